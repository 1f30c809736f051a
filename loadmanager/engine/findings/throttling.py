"""Limits that hold clients back most of the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded
from loadmanager.kit.units import HOUR_MS

SUFFERING_SHARE = 0.5
INACCURATE = 0.05
"""What a limit lets through may differ so much from what is configured."""
LOOK_MS_MAX = 300_000
"""A look at a limit stands for the time since the one before, at most for so long."""
LIMITS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class HeldLimit:
    """A limit that holds somebody at the moment of a look."""

    name: str
    level: str
    messages_per_s: float
    bytes_per_s: float
    """Negative: unlimited."""
    clients: int


@dataclass(slots=True)
class _Looks:
    """What was seen of a limit of one broker in the last hour."""

    limit: HeldLimit
    """As it was last seen to hold somebody."""
    since_ms: int
    """Since when it holds somebody again and again."""
    held_ms: deque[tuple[int, int]] = field(default_factory=deque)
    """When it was seen to hold somebody, and for how long that stands."""

    def forget(self, now_ms: int) -> None:
        while self.held_ms and now_ms - self.held_ms[0][0] >= HOUR_MS:
            self.held_ms.popleft()

    @property
    def share(self) -> float:
        """For which part of the last hour it held somebody."""
        return sum(held_ms for _, held_ms in self.held_ms) / HOUR_MS


@dataclass(slots=True)
class ThrottlingFindings:
    """Looks at what limits hold, once a minute or so."""

    _looked_ms: dict[str, int] = field(default_factory=dict)
    """Broker → when it was last asked."""
    _looks: dict[tuple[str, str, str], _Looks] = field(default_factory=dict)
    """Level, name and broker → what was look."""

    def step(self, holding: Mapping[str, Sequence[HeldLimit]], now_ms: int) -> list[FindingShown]:
        """Each broker that answered, with its limits that hold somebody now."""
        for broker, limits in sorted(holding.items()):
            since_ms = now_ms - self._looked_ms.get(broker, now_ms)
            for limit in limits:
                self._hold(broker, limit, min(since_ms, LOOK_MS_MAX), now_ms)
            self._looked_ms[broker] = now_ms
        self._looked_ms = {
            broker: at_ms for broker, at_ms in self._looked_ms.items() if now_ms - at_ms < HOUR_MS
        }
        for looks in self._looks.values():
            looks.forget(now_ms)
        self._looks = {key: looks for key, looks in self._looks.items() if looks.held_ms}
        return self._suffering()

    def _hold(self, broker: str, limit: HeldLimit, held_ms: int, now_ms: int) -> None:
        key = limit.level, limit.name, broker
        looks = self._looks.get(key)
        if looks is None:
            if len(self._looks) >= LIMITS_MAX:
                return
            looks = self._looks[key] = _Looks(limit, now_ms)
        looks.limit = limit
        looks.held_ms.append((now_ms, held_ms))

    def _suffering(self) -> list[FindingShown]:
        suffering: dict[tuple[str, str], list[tuple[float, str, _Looks]]] = {}
        for (level, name, broker), looks in self._looks.items():
            if looks.share >= SUFFERING_SHARE:
                suffering.setdefault((level, name), []).append((-looks.share, broker, looks))
        return bounded(_finding(sorted(each, key=lambda it: it[:2])) for each in suffering.values())


def _finding(brokers: Sequence[tuple[float, str, _Looks]]) -> FindingShown:
    """One for a limit, whichever brokers enforce it."""
    share, broker, worst = brokers[0]
    limit = worst.limit
    clients = sum(looks.limit.clients for _, _, looks in brokers)
    where = f"on {broker}" if len(brokers) == 1 else f"on each of {len(brokers)} brokers"
    rates = words.configured(limit.messages_per_s, limit.bytes_per_s)
    return FindingShown(
        kind="throttling",
        about=limit.name,
        since=min(looks.since_ms for _, _, looks in brokers),
        title=words.held_back(limit.name, min(-share, 1.0), "the last hour"),
        text=f"The {limit.level} limit is {rates} {where}; at the last look it held "
        f"{clients:,} client{'' if clients == 1 else 's'}.",
        advice=words.held_advice(limit.level),
        command="loadmanager admin limits list",
    )
