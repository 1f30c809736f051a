"""Could the cluster do with one broker fewer?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.analysis.day import NUMBER, TEXT, WHOLE, YES_NO, Columns, Day, Finding, Row, clock
from loadmanager.analysis.trusted import trusted

NAME = "headroom"
ABOUT = (
    "Could the cluster lose a broker? At the five minutes with most usage in sum, that sum is "
    "divided evenly among all brokers but one: an even balance, so the true figure is higher. "
    "Brokers whose sensors lied are taken to be as busy as the mean."
)
COLUMNS: Columns = {
    "case": (TEXT, "all brokers, or one fewer"),
    "brokers": (WHOLE, "brokers in this case"),
    "peak_ts": (WHOLE, "when the usage in sum was highest"),
    "usage_at_peak": (NUMBER, "usage of each broker then, were it even"),
    "headroom": (NUMBER, "how far that is below the overload threshold; negative: above it"),
    "enough": (YES_NO, "whether it is below"),
}


def table(day: Day) -> list[Row]:
    """A row for all brokers, and one for one broker fewer."""
    buckets: dict[int, list[Row]] = {}
    for step in trusted(day):
        buckets.setdefault(step["bucket"], []).append(step)
    peaks = []
    for bucket, steps in buckets.items():
        honest = [step["usage"] for step in steps if not step["lied"]]
        if honest:
            peaks.append((sum(honest) / len(honest) * len(steps), bucket, len(steps)))
    if not peaks:
        return []
    usage, bucket, brokers = max(peaks, key=lambda peak: (peak[0], -peak[1]))
    limit = day.settings.overloaded_percent / 100
    cases = [("all brokers", brokers)] + ([("one fewer", brokers - 1)] if brokers > 1 else [])
    return [
        {
            "case": case,
            "brokers": count,
            "peak_ts": bucket,
            "usage_at_peak": usage / count,
            "headroom": limit - usage / count,
            "enough": usage / count <= limit,
        }
        for case, count in cases
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
            text=f"At {clock(fewer.peak_ts)} the usage of all brokers together would have been "
            f"{fewer.usage_at_peak:.0%} on each of the other {fewer.brokers}, above "
            f"{day.settings.overloaded_percent:g}%, even if they were balanced perfectly.",
            advice="Add a broker before you lose one.",
            numbers={"usage": fewer.usage_at_peak, "brokers": fewer.brokers},
            at_ms=fewer.peak_ts,
            where="all brokers",
            plot="usage",
            commands=["loadmanager admin brokers list"],
        )
    ]
