"""Could the cluster do with one broker fewer?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, YES_NO, Columns, Day, Finding, Row, clock
from loadmanager.nightly.trusted import trusted

NAME = "headroom"
ABOUT = (
    "Could the cluster lose a broker? At the five minutes with most load, that is divided evenly "
    "among all brokers but the largest: an even balance, so the true figure is higher. A broker is "
    "as large as its CPU; one whose sensor lied is taken to be as busy as the others."
)
COLUMNS: Columns = {
    "case": (TEXT, "all brokers, or one fewer"),
    "brokers": (WHOLE, "brokers in this case"),
    "peak_ts": (WHOLE, "when the load was highest"),
    "usage_at_peak": (NUMBER, "usage of each broker then, were it even"),
    "headroom": (NUMBER, "how far that is below the overload threshold; negative: above it"),
    "enough": (YES_NO, "whether it is below"),
}


def table(day: Day) -> list[Row]:
    """A row for all brokers, and one for one broker fewer."""
    buckets: dict[int, list[Row]] = {}
    steps = trusted(day)
    limits = [step["cpu_limit"] for step in steps if step["cpu_limit"]]
    usual = median(limits) if limits else 1.0
    for step in steps:
        buckets.setdefault(step["bucket"], []).append(step)
    peaks = []
    for bucket, of_bucket in buckets.items():
        sizes = [step["cpu_limit"] or usual for step in of_bucket]
        pairs = zip(of_bucket, sizes, strict=True)
        honest = [(step["usage"] * size, size) for step, size in pairs if not step["lied"]]
        if honest:
            usage = sum(used for used, _ in honest) / sum(size for _, size in honest)
            peaks.append((usage * sum(sizes), bucket, sizes))
    if not peaks:
        return []
    load, bucket, sizes = max(peaks, key=lambda peak: (peak[0], -peak[1]))
    limit = day.settings.overloaded_percent / 100
    fewer = sorted(sizes)[:-1]
    cases = [("all brokers", sizes)] + ([("one fewer", fewer)] if fewer else [])
    return [
        {
            "case": case,
            "brokers": len(of_case),
            "peak_ts": bucket,
            "usage_at_peak": load / sum(of_case),
            "headroom": limit - load / sum(of_case),
            "enough": load / sum(of_case) <= limit,
        }
        for case, of_case in cases
    ]


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Find out when the loss of one broker would overload the others."""
    fewer = next((row for row in rows if row.case == "one fewer"), None)
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
            numbers={"usage": fewer.usage_at_peak, "brokers": fewer.brokers},
            at_ms=fewer.peak_ts,
            where="all brokers",
            plot="usage",
            commands=["loadmanager admin brokers list"],
        )
    ]
