"""Disks of brokers that are nearly full, or will be within a day."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, Lasting, bounded, command
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.units import DAY_MS, HOUR_MS, MINUTE_MS

FULL_PERCENT, FULL_UNTIL_PERCENT = 90.0, 88.0
"""One that was nearly full is so until it is emptier than the second."""
WITHIN_MS = DAY_MS
WINDOW_MS, WINDOW_MS_MIN = HOUR_MS, 20 * MINUTE_MS
"""The rate is of the last hour, and known once so much of it was looked at."""
_Disk = tuple[str, str]


@dataclass(slots=True)
class DiskFindings:
    """Looks once a minute or so."""

    _looks: dict[_Disk, deque[tuple[int, ResourceUsage]]] = field(default_factory=dict)
    """Broker and what is stored there → the looks of the window, the oldest first."""
    _nearly: Lasting = field(default_factory=Lasting)
    _soon: Lasting = field(default_factory=Lasting)

    def step(
        self, disks: Mapping[str, Mapping[str, ResourceUsage]], now_ms: int
    ) -> list[FindingShown]:
        """Broker → what is stored there → how full that disk is."""
        now = {
            (broker, name): usage
            for broker, each in disks.items()
            for name, usage in each.items()
            if usage.limit > 0
        }
        self._looks = {disk: self._looks.get(disk, deque()) for disk in now}
        for disk, usage in now.items():
            looks = self._looks[disk]
            looks.append((now_ms, usage))
            while now_ms - looks[0][0] > WINDOW_MS:
                looks.popleft()
        left_ms = {disk: _left_ms(looks) for disk, looks in self._looks.items()}
        before = self._nearly.since_ms
        self._nearly.step({_about(it) for it in now if _is_full(it, now[it], before)}, now_ms)
        soon = {it for it, ms in left_ms.items() if ms is not None and ms <= WITHIN_MS}
        self._soon.step({_about(it) for it in soon}, now_ms)
        return bounded(self._findings(now, left_ms))

    def _findings(
        self, now: Mapping[_Disk, ResourceUsage], left_ms: Mapping[_Disk, float | None]
    ) -> Iterator[FindingShown]:
        for disk, usage in now.items():
            since = [
                lasting.since_ms[_about(disk)]
                for lasting in (self._nearly, self._soon)
                if _about(disk) in lasting.since_ms
            ]
            if not since:
                continue
            broker, name = disk
            yield FindingShown(
                kind="disk",
                about=_about(disk),
                since=min(since),
                title=words.disk(broker, name, usage.percent, left_ms[disk]),
                text=f"{words.room(usage)} {words.once_full(name)}",
                advice=words.MAKE_ROOM,
                command=command("loadmanager admin brokers report", broker),
            )


def _about(disk: _Disk) -> str:
    return " ".join(disk)


def _is_full(disk: _Disk, usage: ResourceUsage, before: Mapping[str, int]) -> bool:
    return usage.percent > (FULL_UNTIL_PERCENT if _about(disk) in before else FULL_PERCENT)


def _left_ms(looks: deque[tuple[int, ResourceUsage]]) -> float | None:
    """When a disk is full at its present rate: the lower one of the two halves of the window, so
    that what was written once does not count. None: it does not fill, or that is not known yet.
    """
    (first_ms, first), (last_ms, last) = looks[0], looks[-1]
    if last_ms - first_ms < WINDOW_MS_MIN:
        return None
    middle_ms, middle = looks[len(looks) // 2]
    if not first_ms < middle_ms < last_ms:
        return None
    rate = min(
        (middle.usage - first.usage) / (middle_ms - first_ms),
        (last.usage - middle.usage) / (last_ms - middle_ms),
    )
    return max(0.0, last.limit - last.usage) / rate if rate > 0 else None
