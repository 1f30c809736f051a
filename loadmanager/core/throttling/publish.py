"""Publish limits (Pulsar's PublishRateLimiterImpl): messages and bytes per second of a topic, of
the broker, of a resource group.

Every SEND is charged to all limits of its topic before it is stored; when one of them is exhausted,
or it is others' turn, the producer is held and its connection is not read from until every limit
has let go of all its producers.
"""

from __future__ import annotations

from loadmanager.core.throttling.bucket import SECOND_NS, TokenBucket
from loadmanager.core.throttling.limit import Level, Limit, Ticket, Tuning
from loadmanager.core.throttling.policies import PublishRate
from loadmanager.core.throttling.tracker import Cause, ConnectionThrottle
from loadmanager.core.throttling.wakeups import Wakeups

_CAUSES = {
    Level.BROKER: Cause.BROKER_PUBLISH_RATE,
    Level.TOPIC: Cause.TOPIC_PUBLISH_RATE,
    Level.RESOURCE_GROUP: Cause.RESOURCE_GROUP_PUBLISH_RATE,
}


def bucket(rate: int, *, period_ns: int, wakeups: Wakeups, tuning: Tuning) -> TokenBucket | None:
    """A bucket that grants `rate` in the first period as in every other, and saves up no more than
    the configured burst; None for rates below 1.

    Differs from Pulsar, whose buckets start with a whole second and save up a whole second
    (tuning.burst_ns = 1 s).
    """
    if rate < 1:
        return None
    burst = max(rate * tuning.burst_ns // period_ns, 1)
    return TokenBucket(
        rate,
        clock=wakeups.clock,
        period_ns=period_ns,
        capacity=burst,
        initial_tokens=burst,
        resolution_ns=tuning.resolution_ns,
    )


class PublishLimiter(Limit):
    """A publish limit.

    Without rates (0 or less) it accepts everything and should not be among a topic's limits at all.
    """

    __slots__ = ("rate",)

    def __init__(self, level: Level, name: str, *, wakeups: Wakeups, tuning: Tuning) -> None:
        super().__init__(level, name, wakeups=wakeups, tuning=tuning)
        self._debt_max_ns = tuning.debt_max_ns
        self.rate = PublishRate()

    def update(self, rate: PublishRate) -> None:
        """Change the limit at once: new buckets, debt forgotten, everybody let go.

        The same rate again changes nothing.
        """
        if rate == self.rate:
            return
        self.rate = rate
        self.set_buckets(
            bucket(
                rate.messages_per_s, period_ns=SECOND_NS, wakeups=self._wakeups, tuning=self._tuning
            ),
            bucket(
                rate.bytes_per_s, period_ns=SECOND_NS, wakeups=self._wakeups, tuning=self._tuning
            ),
        )

    def close(self) -> None:
        """The topic, broker or group is gone: no limit any more, everybody let go."""
        self.update(PublishRate())


class Sender:
    """One producer on its connection: what it is charged, and what holds it."""

    __slots__ = ("_tickets", "messages", "name", "size_bytes", "throttle", "times_held")

    def __init__(self, name: str, throttle: ConnectionThrottle) -> None:
        self.name = name
        self.messages = 0
        """Messages charged to any limit so far."""
        self.size_bytes = 0
        self.throttle = throttle
        self.times_held = 0
        """How often a limit held it."""
        self._tickets: dict[Limit, Ticket] = {}

    def charge(self, limits: tuple[PublishLimiter, ...], messages: int, size_bytes: int) -> None:
        """Charge one SEND to all `limits`: `messages` is CommandSend.num_messages, `size_bytes`
        everything after the command, as sent.

        Afterwards look at the connection's `paused`.
        """
        self.messages += messages
        self.size_bytes += size_bytes
        for limit in limits:
            ticket = self._tickets.get(limit)
            if ticket is None:
                ticket = self._tickets[limit] = Ticket(limit, self)
            if limit.charge(ticket, messages, size_bytes):
                limit.hold(ticket)

    def close(self) -> None:
        """The producer is gone, or its topic is no longer served here: leave every queue, and hold
        the connection no longer.

        May resume the connection before it returns.
        """
        self.keep(())

    def keep(self, limits: tuple[PublishLimiter, ...]) -> None:
        """Only these limits apply from now on: leave the queues of all others."""
        for limit in [limit for limit in self._tickets if limit not in limits]:
            # letting go may resume the connection, and its next frame may close this very producer
            ticket = self._tickets.pop(limit, None)
            if ticket is not None and not (ticket.queued and limit.lifted):
                self._leave(limit, ticket)

    def held(self, limit: Limit) -> None:
        """A limit holds this producer from now on."""
        self.times_held += 1
        self.throttle.hold(_CAUSES[limit.level])

    def released(self, limit: Limit) -> None:
        """A limit lets go of this producer; its connection may go on at once."""
        self.throttle.release(_CAUSES[limit.level])

    @staticmethod
    def cause_of(limit: Limit) -> Cause:
        """Under which cause a limit holds connections."""
        return _CAUSES[limit.level]

    def waiting(self) -> list[Ticket]:
        """Its places in the queues of the limits that hold it now."""
        return [ticket for ticket in self._tickets.values() if ticket.queued]

    def _leave(self, limit: Limit, ticket: Ticket) -> None:
        waiting = bool(ticket.queued)
        limit.leave(ticket)
        if waiting:
            self.released(limit)
