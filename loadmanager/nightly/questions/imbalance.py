"""How even was the load over the brokers, in steps of five minutes?"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from shlex import quote
from statistics import fmean, pstdev
from typing import Any

from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.threshold import ThresholdSettings
from loadmanager.nightly.day import (
    NUMBER,
    WHOLE,
    Columns,
    Day,
    Finding,
    Row,
    clock,
    command,
    hours,
    lasting,
    over,
)
from loadmanager.nightly.facts import BUCKET_MS
from loadmanager.nightly.hurt import Hurt, OnBrokers
from loadmanager.nightly.trusted import filled, trusted

NAME = "imbalance"
ABOUT = (
    "How even was the load over the brokers? Of their mean usages in five minutes. A broker whose "
    "usage came from a sensor that lied is left out meanwhile, and one that was drained until it "
    "has bundles again."
)
COLUMNS: Columns = {
    "bucket": (WHOLE, "when the five minutes began"),
    "brokers": (WHOLE, "brokers that recorded their load"),
    "mean": (NUMBER, "mean of the brokers' usages, as a fraction"),
    "std": (NUMBER, "their standard deviation; 0 is even"),
    "max": (NUMBER, "the highest"),
    "min": (NUMBER, "the lowest"),
    "max_over_mean": (NUMBER, "the highest over the mean; 1 is even"),
    "gini": (NUMBER, "their Gini coefficient; 0 is even"),
    "throughput": (NUMBER, "bytes/s in and out of all brokers"),
}
UNEVEN_SHARE = 0.1
"""Of the day; less is a peak."""


def table(day: Day) -> list[Row]:
    """A row for five minutes."""
    steps: dict[int, list[Row]] = {}
    for step in filled(trusted(day)):
        empty = step["bundles_max"] == 0 and step["last_ts"] >= day.drained.get(step["broker"], inf)
        if not step["lied"] and not empty:
            steps.setdefault(step["bucket"], []).append(step)
    return [_row(bucket, steps[bucket]) for bucket in sorted(steps)]


def _row(bucket: int, steps: Sequence[Row]) -> Row:
    usages = sorted(step["usage"] for step in steps)
    count, sum_, mean = len(usages), sum(usages), fmean(usages)
    ranked = sum(rank * usage for rank, usage in enumerate(usages, start=1))
    gini = over(2 * ranked, count * sum_)
    return {
        "bucket": bucket,
        "brokers": count,
        "mean": mean,
        "std": pstdev(usages),
        "max": usages[-1],
        "min": usages[0],
        "max_over_mean": over(usages[-1], mean) or 1.0,
        "gini": 0.0 if gini is None else gini - (count + 1) / count,
        "throughput": sum(step["throughput_sum"] / step["samples"] for step in steps),
    }


def _advice(shedder: str | None) -> str:
    """What makes a shedder act sooner."""
    entry = registry.SHEDDERS.get(shedder or registry.short_name(StrategySettings().shedder))
    what = entry.more_even if entry else ""
    if not what:
        what = f"Try other settings of {shedder}, or another strategy,"
    return f"{what} on this day's load with replay before you set anything."


def was_uneven(day: Day) -> bool:
    """Whether the load was uneven for so long that there is a card."""
    rows, limit = day.answers.get(NAME, ()), _limit(day)
    return bool(rows) and (
        sum(row["max"] - row["mean"] > limit for row in rows) >= UNEVEN_SHARE * len(rows)
    )


def _limit(day: Day) -> float:
    return day.settings.of(ThresholdSettings).threshold_percent / 100


def _busiest(day: Day) -> Hurt:
    """The tenants of the busiest broker."""
    rows = day.answers.get("broker_usage", [])
    most = max(rows, key=lambda row: (row["mean"], row["broker"]), default=None)
    if most is None:
        return "clients of the busiest broker: they shared it with more load than others"
    return OnBrokers([most["broker"]], "on the busiest broker, while others had room")


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Long stretches in which brokers differed by more than the threshold of ThresholdShedder."""
    limit = _limit(day)
    uneven = [row for row in rows if row.max - row.mean > limit]
    share = len(uneven) / len(rows) if rows else 0.0
    if share < UNEVEN_SHARE:
        return []
    worst = max(uneven, key=lambda row: (row.std, -row.bucket))
    spent = hours(len(uneven) * BUCKET_MS)
    return [
        Finding(
            importance=30 + 25 * share,
            question=NAME,
            title=f"The load was uneven for {lasting(spent)}",
            text=f"In {share:.0%} of the time the busiest broker was more than {limit * 100:g} "
            "points above the mean. "
            f"It was worst at {clock(worst.bucket)}: between {worst.min:.0%} and {worst.max:.0%}, "
            f"standard deviation {worst.std:.1%}, Gini coefficient {worst.gini:.2f}.",
            advice=_advice(day.facts.shedder),
            hurt=_busiest(day),
            numbers={
                "hours": spent,
                "share": share,
                "worstStd": worst.std,
                "worstGini": worst.gini,
                "worstAt": worst.bucket,
            },
            at_ms=uneven[0].bucket,
            until_ms=uneven[-1].bucket + BUCKET_MS,
            where="all brokers",
            plot="imbalance",
            commands=[
                "loadmanager admin dry-run",
                *command(
                    "loadmanager replay",
                    day.facts.ingest.history_url,
                    f" --cluster {quote(day.cluster)} --date {day.date} {day.configured}"
                    '--try "" --try BalancedShedder+BalancedPlacement',
                ),
            ],
        )
    ]
