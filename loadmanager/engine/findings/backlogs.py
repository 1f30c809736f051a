"""Subscriptions whose backlog grows: what comes in is not taken."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.kit.model import Shape
from loadmanager.kit.units import MINUTE_MS

BACKLOG_MIN = 1_000
"""A smaller backlog, or one that grew by less, is passed over."""
GROWING_MS = 600_000
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


@dataclass(slots=True)
class _Looks:
    """What was seen of a subscription in the last ten minutes."""

    last: Backlog
    messages: deque[tuple[int, int]] = field(default_factory=deque)
    """When, and how many."""

    def add(self, backlog: Backlog, now_ms: int) -> None:
        self.last = backlog
        self.messages.append((now_ms, backlog.messages))

    def forget(self, now_ms: int) -> None:
        while self.messages and now_ms - self.messages[0][0] > GROWING_MS:
            self.messages.popleft()

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

    def step(self, backlogs: Mapping[str, Sequence[Backlog]], now_ms: int) -> list[FindingShown]:
        """Each broker that answered, with its greatest backlogs."""
        for broker in sorted(backlogs):
            for backlog in backlogs[broker]:
                if backlog.messages < BACKLOG_MIN:
                    continue
                key = backlog.topic, backlog.subscription
                looks = self._looks.get(key)
                if looks is None:
                    if len(self._looks) >= SUBSCRIPTIONS_MAX:
                        continue
                    looks = self._looks[key] = _Looks(backlog)
                looks.add(backlog, now_ms)
        for looks in self._looks.values():
            looks.forget(now_ms)
        self._looks = {key: looks for key, looks in self._looks.items() if looks.messages}
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
        return bounded(_finding(those, since_ms[topic]) for topic, those in by_topic.items())


def _finding(growing: Sequence[_Looks], since_ms: int) -> FindingShown:
    """About a topic, of which these subscriptions' backlogs grow; it names the one that grew most,
    since a sum over subscriptions would grow by more than comes in.
    """
    looks = min(growing, key=lambda it: (-it.grown, it.last.subscription))
    backlog, minutes = looks.last, looks.lasted_ms / MINUTE_MS
    others = len(growing) - 1
    grow = "subscription of the topic grows" if others == 1 else "subscriptions of the topic grow"
    more = f" The backlog of {others:,} other {grow}, too." if others else ""
    nobody = "" if backlog.consumers else " No consumer is connected to the topic."
    return FindingShown(
        kind="backlog",
        about=backlog.topic,
        since=since_ms,
        title=words.backlog(backlog.subscription, backlog.topic, looks.grown / minutes),
        text=f"{backlog.messages:,} messages wait for this subscription, {looks.grown:,} more than "
        f"{minutes:.0f} minutes ago; {backlog.rate_in:,.1f} messages/s come into the topic and "
        f"{backlog.rate_out:,.1f} go out to all its subscriptions.{more}{nobody}",
        advice=words.CATCH_UP,
        command=command("loadmanager admin topics stats", backlog.topic),
    )
