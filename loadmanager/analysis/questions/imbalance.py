"""How even was the load over the brokers, in steps of five minutes?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import (
    BUCKET_MS,
    Day,
    Finding,
    bucket,
    clock,
    lasting,
    ratio,
    throughput,
)
from loadmanager.core.strategies.shedding.threshold import ThresholdSettings

NAME = "imbalance"
ABOUT = (
    "How even was the load over the brokers? Of their mean usages in five minutes: standard "
    "deviation, highest over mean, Gini coefficient."
)
ORDER = ("bucket",)


def table(day: Day) -> DataFrame:
    """A row for five minutes."""
    means = (
        day.records("broker_load")
        .groupBy(bucket().alias("bucket"), "broker")
        .agg(F.avg("usage").alias("usage"), F.avg(throughput()).alias("bytes"))
    )
    rank = F.row_number().over(Window.partitionBy("bucket").orderBy("usage", "broker"))
    ranked = means.withColumn("rank", rank)
    count, total = F.count(F.lit(1)), F.sum("usage")
    gini = ratio(2 * F.sum(F.col("rank") * F.col("usage")), count * total) - (count + 1) / count
    return ranked.groupBy("bucket").agg(
        count.alias("brokers"),
        F.avg("usage").alias("mean"),
        F.stddev_pop("usage").alias("std"),
        F.max("usage").alias("max"),
        F.min("usage").alias("min"),
        F.coalesce(ratio(F.max("usage"), F.avg("usage")), F.lit(1.0)).alias("max_over_mean"),
        F.coalesce(gini, F.lit(0.0)).alias("gini"),
        F.sum("bytes").alias("throughput"),
    )


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Long stretches in which brokers differed by more than the threshold of ThresholdShedder."""
    limit = day.settings.of(ThresholdSettings).threshold_percent / 100
    uneven = [row for row in rows if row.max - row.mean > limit]
    share = len(uneven) / len(rows) if rows else 0.0
    if share < 0.1:
        return []
    worst = max(uneven, key=lambda row: (row.std, -row.bucket))
    spent = len(uneven) * BUCKET_MS / 3_600_000
    return [
        Finding(
            importance=30 + 40 * share,
            question=NAME,
            title=f"The load was uneven for {lasting(spent)}",
            text=f"In {share:.0%} of the time the busiest broker was more than {limit * 100:g} "
            "points above the mean. "
            f"It was worst at {clock(worst.bucket)}: between {worst.min:.0%} and {worst.max:.0%}, "
            f"standard deviation {worst.std:.2f}, Gini coefficient {worst.gini:.2f}.",
            advice="Try other strategies on the day's load reports with `loadmanager decide "
            "--explain`; "
            "a lower loadBalancerBrokerThresholdShedderPercentage acts sooner, "
            "lowerBoundarySheddingEnabled fills idle brokers.",
            numbers={
                "hours": spent,
                "share": share,
                "worstStd": worst.std,
                "worstGini": worst.gini,
                "worstAt": worst.bucket,
            },
        )
    ]
