"""Subscriptions whose backlog grows: what comes in is not taken."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.kit.model import Shape
from loadmanager.kit.text import moment
from loadmanager.kit.units import MINUTE_MS

BACKLOG_MIN = 1_000
"""A smaller backlog, or one that grew by less, is passed over."""
GROWING_MS = 600_000
UNTAKEN_MS = 180_000
"""Nobody takes what waits for so long, without a consumer: most of those that restart are back."""
APART_MS = 45_000
"""Two looks that are so far apart tell it: after a crash, clients may miss the first."""
UNLISTED_MS = 150_000
"""Two looks, and half of one."""
LATELY_MS = 165_000
"""How fast it grows is told over so long, less half a look, where somebody takes some of it."""
LOOKS_MIN = 6
"""So many looks, at least, tell whether something grows."""
SUBSCRIPTIONS_MAX = 5_000


class Backlog(Shape):
    """A subscription with messages that it has not acknowledged."""

    topic: str
    subscription: str
    bundle: str
    messages: int
    """Those of this subscription."""
    rate_in: float
    """Messages/s of the topic."""
    rate_out: float
    """Messages/s of the topic, to all its subscriptions."""
    consumers: int
    """Of all subscriptions of the topic."""
    own_consumers: int | None = None
    """Of this subscription; null: a version before tells it."""
    oldest_ms: int | None = None
    """When the oldest of these messages was published, by its client's clock, if the subscription
    has no consumer and the broker knows it.
    """

    @property
    def untaken(self) -> bool:
        """Whether nobody is there to take it."""
        return not (self.consumers if self.own_consumers is None else self.own_consumers)


_Key = tuple[str, str]
"""Topic, subscription."""
NO_LIMITS: Mapping[_Key, Sequence[str]] = {}


@dataclass(slots=True)
class _Looks:
    """What was seen of a subscription in the last ten minutes."""

    last: Backlog
    broker: str
    """The last one that listed it."""
    messages: deque[tuple[int, int]] = field(default_factory=deque)
    """When, and how many: of ten minutes, and one look more, so that looks which are late or missed
    do not make these shorter than the time over which a backlog must grow.
    """
    untaken: tuple[int, int] | None = None
    """When it was looked first of those times in a row at which it had no consumer, and how many
    messages there were; None: it had one at the last look.
    """

    def add(self, broker: str, backlog: Backlog, now_ms: int) -> None:
        self.broker, self.last = broker, backlog
        if not backlog.untaken:
            self.untaken = None
        elif self.untaken is None:
            self.untaken = now_ms, backlog.messages
        self.messages.append((now_ms, backlog.messages))
        while len(self.messages) > 1 and self.messages[1][0] <= now_ms - GROWING_MS:
            self.messages.popleft()
        if self.messages[0][0] < now_ms - 2 * GROWING_MS:
            self.messages.popleft()

    def is_over(self, brokers: Container[str], now_ms: int) -> bool:
        """Whether nothing is known of it any more: these brokers answered, and none lists it. One
        that is moved is not listed for a look or two; one whose broker is not asked, or too slow to
        answer, has not ended for that.
        """
        unlisted_ms = now_ms - self.messages[-1][0]
        return unlisted_ms > (UNLISTED_MS if self.broker in brokers else GROWING_MS)

    @property
    def first(self) -> tuple[int, int]:
        """The look with which the last is compared: the first of ten minutes, or the first at which
        nobody took it.
        """
        last_ms = self.messages[-1][0]
        if self.untaken is not None and last_ms - self.untaken[0] >= APART_MS:
            return self.untaken
        return self.messages[0]

    @property
    def grown(self) -> int:
        """By how many messages since the first look."""
        return self.messages[-1][1] - self.first[1]

    @property
    def lasted_ms(self) -> int:
        """For how long since the first look."""
        return self.messages[-1][0] - self.first[0]

    @property
    def since_ms(self) -> int:
        """Since when it grows: since its oldest message came, if that is known of one that nobody
        takes; else since the first look.
        """
        first_ms = self.first[0]
        return first_ms if self.last.oldest_ms is None else min(self.last.oldest_ms, first_ms)

    @property
    def per_minute(self) -> float:
        """By how many messages a minute it grew lately: over the last minutes, or since the look
        before if nobody takes it, which can but grow or stand. What it grew by in all says nothing
        of that: it is the same for ever once it stands.
        """
        (first_ms, _), (last_ms, last) = self.first, self.messages[-1]
        over_ms = APART_MS if self.first is self.untaken else LATELY_MS
        before_ms, before = next(
            (it for it in reversed(self.messages) if first_ms <= it[0] <= last_ms - over_ms),
            self.first,
        )
        return (last - before) / max(last_ms - before_ms, 1) * MINUTE_MS

    @property
    def stands_since_ms(self) -> int | None:
        """Since which look it has been what it is; None: it was not at the look before, and
        messages came in the last period of the broker's stats, or are taken.
        """
        since_ms, last = self.messages[-1]
        for at_ms, messages in reversed(self.messages):
            if messages != last:
                break
            since_ms = at_ms
        if since_ms == self.messages[-1][0] and (self.last.rate_in or not self.last.untaken):
            return None
        return since_ms

    def grows(self) -> bool:
        """Whether nobody takes it, or less is taken than comes."""
        return self._is_untaken() or self._is_outrun()

    def _is_untaken(self) -> bool:
        """Whether there was no consumer at two looks at least, and more messages at the last, of
        which the oldest waits for some minutes.
        """
        if self.first is not self.untaken or self.grown <= 0:
            return False
        return self.messages[-1][0] - self.since_ms >= UNTAKEN_MS

    def _is_outrun(self) -> bool:
        """Whether the least of the second half of the time is more than the most of the first: a
        consumer that takes it all now and then makes it shrink in between.
        """
        (first_ms, _), (last_ms, _) = self.messages[0], self.messages[-1]
        if len(self.messages) < LOOKS_MIN or last_ms - first_ms < 0.9 * GROWING_MS:
            return False
        sizes = [size for _, size in self.messages]
        half = len(sizes) // 2
        return sizes[-1] - sizes[0] >= BACKLOG_MIN and min(sizes[half:]) > max(sizes[:half])


@dataclass(slots=True)
class BacklogFindings:
    """Looks at the greatest backlogs of each broker, once a minute or so."""

    _looks: dict[_Key, _Looks] = field(default_factory=dict)
    """What was seen of it, at whichever broker it was."""
    _since_ms: dict[_Key, int] = field(default_factory=dict)
    """Those whose backlog grows → since when."""

    def step(
        self,
        backlogs: Mapping[str, Sequence[Backlog]],
        now_ms: int,
        holders: Mapping[_Key, Sequence[str]] = NO_LIMITS,
    ) -> list[FindingShown]:
        """Each broker that answered, with its greatest backlogs; `holders`: the limits that hold
        which subscription.
        """
        for broker in sorted(backlogs):
            for backlog in backlogs[broker]:
                key = backlog.topic, backlog.subscription
                if backlog.messages < BACKLOG_MIN:
                    self._looks.pop(key, None)
                    continue
                looks = self._looks.get(key)
                if looks is None:
                    if len(self._looks) >= SUBSCRIPTIONS_MAX:
                        continue
                    looks = self._looks[key] = _Looks(backlog, broker)
                looks.add(broker, backlog, now_ms)
        self._looks = {
            key: looks for key, looks in self._looks.items() if not looks.is_over(backlogs, now_ms)
        }
        growing = {key: looks for key, looks in self._looks.items() if looks.grows()}
        self._since_ms = {
            key: min(self._since_ms.get(key, looks.since_ms), looks.since_ms)
            for key, looks in growing.items()
        }
        by_topic = defaultdict[str, list[_Looks]](list)
        since_ms = dict[str, int]()
        for (topic, _), looks in growing.items():
            by_topic[topic].append(looks)
            began_ms = self._since_ms[topic, looks.last.subscription]
            since_ms[topic] = min(since_ms.get(topic, began_ms), began_ms)
        return bounded(
            _finding(those, since_ms[topic], holders, now_ms) for topic, those in by_topic.items()
        )


def _finding(
    growing: Sequence[_Looks],
    since_ms: int,
    holders: Mapping[_Key, Sequence[str]],
    now_ms: int,
) -> FindingShown:
    """About a topic, of which these subscriptions' backlogs grow; it names the one that grew most,
    since a sum over subscriptions would grow by more than comes in.
    """
    looks = min(growing, key=lambda it: (-it.grown, it.last.subscription))
    backlog, minutes = looks.last, looks.lasted_ms / MINUTE_MS
    ago = "a minute ago" if round(minutes) <= 1 else f"{minutes:.0f} minutes ago"
    others = len(growing) - 1
    grew = "subscription of the topic grew" if others == 1 else "subscriptions of the topic grew"
    more = f" The backlog of {others:,} other {grew}, too." if others else ""
    nobody = f" No consumer is connected to the {'subscription' if backlog.consumers else 'topic'}."
    nobody = nobody if backlog.untaken else ""
    if backlog.oldest_ms is not None:
        nobody += f" The oldest message was published at {moment(backlog.oldest_ms)}."
    limits = holders.get((backlog.topic, backlog.subscription), ())
    by_limits = f" Its consumers are held by {' and '.join(limits)}." if limits else ""
    shows = "limits why" if limits else "topics stats"
    return FindingShown(
        kind="backlog",
        about=backlog.topic,
        since=since_ms,
        title=words.backlog(backlog.subscription, backlog.topic, _how(looks, now_ms)),
        text=f"{_unlisted(looks, now_ms)}{backlog.messages:,} messages wait for this subscription, "
        f"{looks.grown:,} more than {ago}; {backlog.rate_in:,.1f} messages/s come into the topic "
        f"and {backlog.rate_out:,.1f} go out to all its subscriptions.{more}{nobody}{by_limits}",
        advice=words.RAISE_THE_LIMIT if limits else words.CATCH_UP,
        command=command(f"loadmanager admin {shows}", backlog.topic),
    )


def _how(looks: _Looks, now_ms: int) -> str:
    """What the backlog does now: it may have grown, and stand since."""
    last_ms, messages = looks.messages[-1]
    since_ms, size = looks.stands_since_ms, words.messages(messages)
    if last_ms != now_ms:
        return f"was {size} at {moment(last_ms)}, when it was listed last"
    if since_ms is not None:
        return f"stands at {size} since {moment(since_ms)}"
    if looks.per_minute <= 0:
        return f"grew to {size}, and does not grow now"
    return f"grows by {looks.per_minute:,.0f} messages a minute"


def _unlisted(looks: _Looks, now_ms: int) -> str:
    """That the figures are old, if they are."""
    last_ms = looks.messages[-1][0]
    if last_ms == now_ms:
        return ""
    return (
        f"No broker that answers lists it since {moment(last_ms)}: it may be moving, or its broker "
        "was not asked. These are the figures of then. "
    )
