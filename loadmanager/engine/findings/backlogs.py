"""Topics whose backlog grows: what comes in is not taken."""

from __future__ import annotations

from collections import deque
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
TOPICS_MAX = 5_000


class Backlog(Shape):
    """A topic with messages that a subscription has not acknowledged."""

    topic: str
    bundle: str
    messages: int
    """Of all its subscriptions together."""
    rate_in: float
    rate_out: float
    """Messages/s."""
    consumers: int
    subscription: str | None = None
    """The one that most of these messages wait for; null: of an earlier version."""


@dataclass(slots=True)
class _Looks:
    """What was seen of a topic in the last ten minutes."""

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

    _looks: dict[str, _Looks] = field(default_factory=dict)
    """Topic → what was seen of it, at whichever broker it was."""
    _since_ms: dict[str, int] = field(default_factory=dict)
    """Topic whose backlog grows → since when."""

    def step(self, backlogs: Mapping[str, Sequence[Backlog]], now_ms: int) -> list[FindingShown]:
        """Each broker that answered, with its greatest backlogs."""
        for broker in sorted(backlogs):
            for backlog in backlogs[broker]:
                if backlog.messages < BACKLOG_MIN:
                    continue
                looks = self._looks.get(backlog.topic)
                if looks is None:
                    if len(self._looks) >= TOPICS_MAX:
                        continue
                    looks = self._looks[backlog.topic] = _Looks(backlog)
                looks.add(backlog, now_ms)
        for looks in self._looks.values():
            looks.forget(now_ms)
        self._looks = {topic: looks for topic, looks in self._looks.items() if looks.messages}
        growing = {topic: looks for topic, looks in self._looks.items() if looks.grows()}
        self._since_ms = {
            topic: self._since_ms.get(topic, looks.messages[0][0])
            for topic, looks in growing.items()
        }
        return bounded(_finding(looks, self._since_ms[topic]) for topic, looks in growing.items())


def _finding(looks: _Looks, since_ms: int) -> FindingShown:
    backlog, minutes = looks.last, looks.lasted_ms / MINUTE_MS
    nobody = "" if backlog.consumers else " No consumer is connected."
    return FindingShown(
        kind="backlog",
        about=backlog.topic,
        since=since_ms,
        title=words.backlog(backlog.topic, looks.grown / minutes),
        text=f"{backlog.messages:,} messages wait for its subscriptions, {looks.grown:,} more than "
        f"{minutes:.0f} minutes ago; {backlog.rate_in:,.1f} messages/s come in and "
        f"{backlog.rate_out:,.1f} go out.{nobody}",
        advice=words.CATCH_UP,
        command=command("loadmanager admin topics stats", backlog.topic),
    )
