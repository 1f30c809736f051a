"""Subscriptions whose backlog grows: what comes in is not taken."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.kit.model import Shape
from loadmanager.kit.units import MINUTE_MS

BACKLOG_MIN = 1_000
"""A smaller backlog, or one that grew by less, is passed over."""
GROWING_MS = 600_000
UNLISTED_MS = 150_000
"""Two looks, and half of one."""
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

    def add(self, broker: str, backlog: Backlog, now_ms: int) -> None:
        self.broker, self.last = broker, backlog
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
    def grown(self) -> int:
        """By how many messages."""
        return self.messages[-1][1] - self.messages[0][1]

    @property
    def lasted_ms(self) -> int:
        return self.messages[-1][0] - self.messages[0][0]

    def grows(self) -> bool:
        """Whether the least of the second half of the time is more than the most of the first: a
        consumer that takes it all now and then makes it shrink in between.
        """
        if len(self.messages) < LOOKS_MIN or self.lasted_ms < 0.9 * GROWING_MS:
            return False
        sizes = [size for _, size in self.messages]
        half = len(sizes) // 2
        return self.grown >= BACKLOG_MIN and min(sizes[half:]) > max(sizes[:half])


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
            key: self._since_ms.get(key, looks.messages[0][0]) for key, looks in growing.items()
        }
        by_topic = defaultdict[str, list[_Looks]](list)
        since_ms = dict[str, int]()
        for (topic, _), looks in growing.items():
            by_topic[topic].append(looks)
            began_ms = self._since_ms[topic, looks.last.subscription]
            since_ms[topic] = min(since_ms.get(topic, began_ms), began_ms)
        return bounded(
            _finding(those, since_ms[topic], holders) for topic, those in by_topic.items()
        )


def _finding(
    growing: Sequence[_Looks], since_ms: int, holders: Mapping[_Key, Sequence[str]]
) -> FindingShown:
    """About a topic, of which these subscriptions' backlogs grow; it names the one that grew most,
    since a sum over subscriptions would grow by more than comes in.
    """
    looks = min(growing, key=lambda it: (-it.grown, it.last.subscription))
    backlog, minutes = looks.last, looks.lasted_ms / MINUTE_MS
    others = len(growing) - 1
    grow = "subscription of the topic grows" if others == 1 else "subscriptions of the topic grow"
    more = f" The backlog of {others:,} other {grow}, too." if others else ""
    nobody = "" if backlog.consumers else " No consumer is connected to the topic."
    limits = holders.get((backlog.topic, backlog.subscription), ())
    by_limits = f" Its consumers are held by {' and '.join(limits)}." if limits else ""
    shows = "limits why" if limits else "topics stats"
    return FindingShown(
        kind="backlog",
        about=backlog.topic,
        since=since_ms,
        title=words.backlog(backlog.subscription, backlog.topic, looks.grown / minutes),
        text=f"{backlog.messages:,} messages wait for this subscription, {looks.grown:,} more than "
        f"{minutes:.0f} minutes ago; {backlog.rate_in:,.1f} messages/s come into the topic and "
        f"{backlog.rate_out:,.1f} go out to all its subscriptions.{more}{nobody}{by_limits}",
        advice=words.RAISE_THE_LIMIT if limits else words.CATCH_UP,
        command=command(f"loadmanager admin {shows}", backlog.topic),
    )
