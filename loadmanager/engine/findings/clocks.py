"""Clocks that differ, by the times that brokers write into their reports.

A report that arrives was written a little before. How long it took is not known, but the shortest
of several is short; what a broker's shortest differs from that of the others is its clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, Lasting, bounded
from loadmanager.engine.history.tenures import CLOCKS_DIFFER_MS

REPORTS_MIN = 3
"""With fewer reports a broker is not compared: those that a broker reads when it starts are old."""
ON_THE_WAY_MS = 1_000
"""What reports take may differ by so much from broker to broker."""
LASTING_MS = 300_000


@dataclass(slots=True)
class ClockFindings:
    """Compares clocks, once a minute or so."""

    _off: Lasting = field(default_factory=Lasting)

    def step(self, delays: Mapping[str, Sequence[int]], now_ms: int) -> list[FindingShown]:
        """Broker → ms from when its last reports were written, by its clock, to when they came, by
        this one's; this broker is among them.
        """
        shortest = {
            broker: min(each) for broker, each in delays.items() if len(each) >= REPORTS_MIN
        }
        ordered = sorted(shortest.values())
        middle = ordered[len(ordered) // 2] if ordered else 0
        ahead = {broker: middle - delay for broker, delay in shortest.items()}
        differ = {
            broker
            for broker, ahead_ms in ahead.items()
            if abs(ahead_ms) > CLOCKS_DIFFER_MS + ON_THE_WAY_MS
        }
        self._off.step(differ, now_ms)
        return bounded(
            FindingShown(
                kind="clock",
                about=broker,
                since=since_ms,
                title=words.clock(broker, ahead[broker]),
                text=f"Known to about {ON_THE_WAY_MS / 1000:g} s, from the times in the load "
                f"reports of {len(shortest)} brokers, compared with the one in the middle.",
                advice=words.SYNCHRONISE,
                command="chronyc tracking",
            )
            for broker, since_ms in self._off.after(LASTING_MS, now_ms).items()
        )
