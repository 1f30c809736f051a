"""Publish limits (Pulsar's PublishRateLimiterImpl): messages and bytes per second of a topic, of
the broker, of a resource group.

Every SEND is charged to all limits of its topic before it is stored. When one of them is used up,
or it is another producer's turn, that limit holds the producer. Its connection is not read from
until no limit holds any of its producers.
"""

from __future__ import annotations

from loadmanager.limits.bucket import SECOND_NS
from loadmanager.limits.levels import Level, Tuning
from loadmanager.limits.limit import NEVER_NS, Limit, Ticket
from loadmanager.limits.policies import PublishRate
from loadmanager.limits.schedule import Schedule
from loadmanager.limits.tracker import ConnectionThrottle, HoldCause

CAUSES = {
    Level.BROKER: HoldCause.BROKER_PUBLISH_RATE,
    Level.TOPIC: HoldCause.TOPIC_PUBLISH_RATE,
    Level.RESOURCE_GROUP: HoldCause.RESOURCE_GROUP_PUBLISH_RATE,
}
"""Under which cause a limit of a level holds connections."""


class PublishLimiter(Limit):
    """A publish limit. `TopicThrottling.publish` lists only those that have a rate."""

    __slots__ = ("rate",)

    forgives_debt = True

    def __init__(
        self, level: Level, name: str, *, schedule: Schedule, tuning: Tuning, now_ns: int
    ) -> None:
        super().__init__(level, name, schedule=schedule, tuning=tuning, now_ns=now_ns)
        self.rate = PublishRate()

    def update(self, rate: PublishRate, now_ns: int) -> None:
        """Change the limit: new buckets, debt forgotten. The same rate again changes nothing."""
        if rate == self.rate:
            return
        self.rate = rate
        self.set_buckets(
            self.new_bucket(rate.messages_per_s, SECOND_NS, now_ns),
            self.new_bucket(rate.bytes_per_s, SECOND_NS, now_ns),
            now_ns,
        )

    def close(self, now_ns: int) -> None:
        """The topic, broker or group is gone: unlimited, everybody released."""
        self.update(PublishRate(), now_ns)


class Sender:
    """One producer on its connection."""

    __slots__ = (
        "_before_ns",
        "_tickets",
        "_waited_before_ns",
        "messages",
        "name",
        "size_bytes",
        "throttle",
        "times_held",
        "times_held_up",
        "topic",
    )

    def __init__(self, name: str, throttle: ConnectionThrottle, topic: str) -> None:
        self.name = name
        self.topic = topic
        self.throttle = throttle
        self.messages = 0
        """Messages charged so far."""
        self.size_bytes = 0
        self.times_held = 0
        """How often a limit held it."""
        self.times_held_up = 0
        """The same, without the times that none of its publishes waited."""
        self._tickets: dict[Limit, Ticket] = {}
        self._before_ns = dict(throttle.throttled_ns)
        """For how long its connection had been held up by each cause when it was attached; and how
        long it had waited.
        """
        self._waited_before_ns = throttle.waited_ns

    def waited_ns(self, now_ns: int) -> int:
        """For how long its connection was paused since it was attached, and something had
        to wait.
        """
        return self.throttle.waited_until(now_ns) - self._waited_before_ns

    def held_ns(self, now_ns: int) -> dict[HoldCause, int]:
        """For how long each cause held up its connection since it was attached, also at once."""
        held_ns = dict(self.throttle.throttled_ns)
        for hold in self.throttle.holds(now_ns) if self.throttle.owner.waits() else ():
            held_ns[hold.cause] = held_ns.get(hold.cause, 0) + hold.for_ns
        since = ((cause, ns - self._before_ns.get(cause, 0)) for cause, ns in held_ns.items())
        return {cause: ns for cause, ns in since if ns > 0}

    def charge(
        self, limits: tuple[PublishLimiter, ...], messages: int, size_bytes: int, now_ns: int
    ) -> None:
        """Charge one SEND to all `limits`: `messages` is what its batch holds, `size_bytes`
        everything after the command.

        Afterwards `throttle.paused` says whether the connection may be read from.
        """
        self.messages += messages
        self.size_bytes += size_bytes
        paused_ns = self.throttle.paused_ns
        for limit in limits:
            ticket = self._tickets.get(limit)
            if ticket is None:
                ticket = self._tickets[limit] = Ticket(limit, self)
                limit.regain_from_now(ticket, paused_ns)
            elif ticket.paused_ns != paused_ns:
                limit.regain(ticket, paused_ns, now_ns)
            if limit.charge(ticket, messages, size_bytes, now_ns) and limit.hold(ticket, now_ns):
                self.times_held += 1
                self.throttle.hold(CAUSES[limit.level], now_ns, self)

    def keep(self, limits: tuple[PublishLimiter, ...], now_ns: int) -> None:
        """Only `limits` apply from now on: leave the queues of all others."""
        for limit in [limit for limit in self._tickets if limit not in limits]:
            ticket = self._tickets.pop(limit)
            waiting = bool(ticket.place)
            limit.leave(ticket, now_ns, for_good=True)
            if waiting:
                self._released(ticket, now_ns)

    @property
    def has_more(self) -> bool:
        """Whether a publish of it waits (see `Readable.waits`)."""
        return self.throttle.owner.waits(self)

    @property
    def held_again_since_ns(self) -> int:
        """See `Holder.held_again_since_ns`."""
        since_ns = [ticket.held_again_since_ns for ticket in self._tickets.values()]
        return min((it for it in since_ns if it > NEVER_NS), default=NEVER_NS)

    def released(self, limit: Limit, now_ns: int) -> None:
        """A limit holds this producer no more."""
        self._released(self._tickets[limit], now_ns)

    def _released(self, last: Ticket, now_ns: int) -> None:
        """What limits discarded meanwhile was not for this producer."""
        for used, ticket in self._tickets.items():
            used.regain_from_now(ticket, self.throttle.paused_until(now_ns))
        self.times_held_up += last.held_up
        cause = CAUSES[last.limit.level]
        idle = not last.held_up and not self.throttle.owner.waits()
        self.throttle.release(cause, now_ns, self, idle=idle)

    def waiting(self) -> list[Ticket]:
        """Its tickets in the queues of the limits that hold it now."""
        return [ticket for ticket in self._tickets.values() if ticket.place]
