"""How busy was each broker, and for how long was it over the threshold?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding, hours, lasting, throughput

NAME = "broker_usage"
ABOUT = "How busy was each broker? Usage is the most used resource after weighting, as a fraction."
OVER_HOURS_MIN = 0.1
"""Shorter peaks are not reported."""
ORDER = ("hours_over DESC", "p95 DESC", "broker")


def table(day: Day) -> DataFrame:
    """A row a broker. Percentiles are exact: there are few brokers."""
    over = F.col("usage") > day.settings.overloaded_percent / 100
    quantiles = F.percentile("usage", F.array(*(F.lit(value) for value in (0.5, 0.95, 0.99))))
    return (
        day.records("broker_load")
        .groupBy("broker")
        .agg(
            F.count(F.lit(1)).alias("samples"),
            F.avg("usage").alias("mean"),
            quantiles.alias("quantiles"),
            F.max("usage").alias("max"),
            hours(F.sum(F.when(over, F.col("intervalMs")).otherwise(0))).alias("hours_over"),
            hours(F.sum("intervalMs")).alias("hours"),
            F.avg(throughput()).alias("throughput_mean"),
            F.max("bundles").alias("bundles_max"),
        )
        .select(
            "broker",
            "samples",
            "mean",
            F.col("quantiles")[0].alias("p50"),
            F.col("quantiles")[1].alias("p95"),
            F.col("quantiles")[2].alias("p99"),
            "max",
            "hours_over",
            "hours",
            "throughput_mean",
            "bundles_max",
        )
    )


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Brokers that were overloaded."""
    threshold = day.settings.overloaded_percent
    return [
        Finding(
            importance=min(60 + 4 * row.hours_over, 95),
            question=NAME,
            title=f"{row.broker} was overloaded for {lasting(row.hours_over)}",
            text=f"Its usage was above {threshold:g} % for {lasting(row.hours_over)} of "
            f"{lasting(row.hours)}; half of the time it was above "
            f"{row.p50:.0%}, and a twentieth of the time above {row.p95:.0%}.",
            advice="If other brokers had room, look at the day's moves; otherwise add a broker.",
            numbers={"hoursOver": row.hours_over, "p50": row.p50, "p95": row.p95, "max": row.max},
        )
        for row in rows
        if row.hours_over >= OVER_HOURS_MIN
    ]
