"""Could the cluster do with one broker fewer?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from loadmanager.engine.load.usage_line import usage_line
from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, YES_NO, Columns, Day, Finding, Row, clock
from loadmanager.nightly.hurt import NOBODY
from loadmanager.nightly.trusted import filled, trusted

NAME = "headroom"
ABOUT = (
    "Could the cluster lose a broker? At the five minutes with most load, what traffic makes of it "
    "is divided evenly among all brokers but the largest: an even balance, so the true figure is "
    "higher. What brokers use without traffic stays with each: by the model of the day's replay, "
    "if it was replayed and the model explains the day, else by a line of usage over traffic. A "
    "broker is as large as its CPU; one whose sensor lied is taken to be as busy as the others."
)
COLUMNS: Columns = {
    "case": (TEXT, "all brokers, or one fewer"),
    "brokers": (WHOLE, "brokers in this case"),
    "peak_ts": (WHOLE, "when the load was highest"),
    "usage_at_peak": (NUMBER, "usage of each broker then, were it even"),
    "headroom": (NUMBER, "how far that is below the overload threshold; negative: above it"),
    "enough": (YES_NO, "whether it is below"),
    "idle": (NUMBER, "usage without traffic"),
    "idle_by": (TEXT, "what says so: model or line"),
}


MODEL, LINE = "model", "line"


class HeadroomByModel:
    """The question, with what says how much brokers use without traffic on a date; None: unknown.
    On made-up days that is nearer to the truth than the line (`python -m bench models`).
    """

    NAME = NAME
    ABOUT = ABOUT
    COLUMNS = COLUMNS

    def __init__(self, idle_of: Callable[[str], float | None]) -> None:
        self._idle_of = idle_of

    def table(self, day: Day) -> list[Row]:
        """See `rows`."""
        return rows(day, self._idle_of(day.date))

    def findings(self, answer: Sequence[Any], day: Day) -> list[Finding]:
        """See `findings` of the module."""
        return findings(answer, day)


def table(day: Day) -> list[Row]:
    """See `rows`."""
    return rows(day, None)


def rows(day: Day, idle: float | None) -> list[Row]:
    """A row for all brokers, and one for one broker fewer. `idle`: usage without traffic, if a
    model says it.
    """
    means = _means(filled(trusted(day)))
    if not means:
        return []
    line = usage_line(
        np.array([mean.traffic for mean in means]), np.array([mean.usage for mean in means])
    )
    beside = (0.0 if line is None else line[1]) if idle is None else idle
    peak = max(means, key=lambda mean: (mean.usage * sum(mean.sizes), -mean.bucket))
    carried = max(peak.usage - beside, 0.0) * sum(peak.sizes)
    limit = day.settings.overloaded_percent / 100
    fewer = sorted(peak.sizes)[:-1]
    cases = [("all brokers", peak.sizes)] + ([("one fewer", fewer)] if fewer else [])
    return [
        {
            "case": case,
            "brokers": len(sizes),
            "peak_ts": peak.bucket,
            "usage_at_peak": (usage := min(beside, peak.usage) + carried / sum(sizes)),
            "headroom": limit - usage,
            "enough": usage <= limit,
            "idle": min(beside, peak.usage),
            "idle_by": LINE if idle is None else MODEL,
        }
        for case, sizes in cases
    ]


@dataclass(frozen=True, slots=True)
class _Mean:
    """Brokers whose sensors did not lie, together, in five minutes."""

    bucket: int
    usage: float
    traffic: float
    """Bytes/s for each percent of a core."""
    sizes: list[float]
    """Of all brokers: their CPU."""


def _means(steps: Sequence[Row]) -> list[_Mean]:
    limits = [step["cpu_limit"] for step in steps if step["cpu_limit"]]
    usual = median(limits) if limits else 1.0
    buckets: dict[int, list[Row]] = {}
    for step in steps:
        buckets.setdefault(step["bucket"], []).append(step)
    means = []
    for bucket, of_bucket in buckets.items():
        sizes = [step["cpu_limit"] or usual for step in of_bucket]
        pairs = zip(of_bucket, sizes, strict=True)
        honest = [(step, size) for step, size in pairs if not step["lied"]]
        if honest:
            size_of_honest = sum(size for _, size in honest)
            usage = sum(step["usage"] * size for step, size in honest) / size_of_honest
            traffic = sum(step["throughput_sum"] / step["samples"] for step, _ in honest)
            means.append(_Mean(bucket, usage, traffic / size_of_honest, sizes))
    return means


def findings(answer: Sequence[Any], day: Day) -> list[Finding]:
    """Find out when the loss of one broker would overload the others."""
    fewer = next((row for row in answer if row.case == "one fewer"), None)
    if fewer is None or fewer.enough:
        return []
    return [
        Finding(
            importance=44,
            question=NAME,
            title=f"With one broker fewer, {fewer.usage_at_peak:.0%} at the peak",
            text=f"At {clock(fewer.peak_ts)} the load of all brokers together would have been "
            f"{fewer.usage_at_peak:.0%} on each of {fewer.brokers}, without the largest: above "
            f"{day.settings.overloaded_percent:g}%, even if they were balanced perfectly.",
            advice="Add a broker before you lose one.",
            hurt=f"{NOBODY} yet: all tenants, if a broker is lost at such a time",
            numbers={"usage": fewer.usage_at_peak, "brokers": fewer.brokers},
            at_ms=fewer.peak_ts,
            where="all brokers",
            plot="usage",
            commands=["loadmanager admin brokers list"],
        )
    ]
