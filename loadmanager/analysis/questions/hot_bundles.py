"""Which bundles carried the traffic?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding, mib, number, rate, ratio, throughput

NAME = "hot_bundles"
ABOUT = (
    "Which bundles carried the traffic? Share is of all bytes of the day; percentiles are "
    "exact, of the 200 busiest."
)
ORDER = ("share DESC", "bundle")
BUSIEST = 200
"""Percentiles are computed for this many bundles only: sorting every sample of every bundle costs
far more than it tells.
"""
HOT_SHARE = 0.2


def table(day: Day) -> DataFrame:
    """A row a bundle."""
    return ranked(day.records("bundle_load"), "bundle")


def ranked(loads: DataFrame, name: str) -> DataFrame:
    """Traffic by `name`, the busiest with percentiles."""
    totals = (
        loads.groupBy(name)
        .agg(
            F.count(F.lit(1)).alias("samples"),
            F.sum(throughput() * F.col("intervalMs") / 1000).alias("bytes"),
            F.avg(throughput()).alias("throughput_mean"),
            F.max(throughput()).alias("throughput_max"),
            F.avg(rate()).alias("rate_mean"),
            F.max(rate()).alias("rate_max"),
            F.max("ts").alias("last_ts"),
            *([F.max(number("topics")).alias("topics_max")] if "topics" in loads.columns else []),
        )
        .persist()
    )  # small, and read twice
    everything = F.sum("bytes").over(Window.partitionBy())
    shares = totals.withColumn("share", F.coalesce(ratio(F.col("bytes"), everything), F.lit(0.0)))
    busiest = totals.orderBy(F.desc("bytes"), name).limit(BUSIEST).select(name)
    quantiles = (
        loads.join(F.broadcast(busiest), name, "left_semi")
        .groupBy(name)
        .agg(
            F.percentile(throughput(), F.lit(0.5)).alias("throughput_p50"),
            F.percentile(throughput(), F.lit(0.95)).alias("throughput_p95"),
        )
    )
    return shares.join(F.broadcast(quantiles), name, "left")


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Bundles that alone carry a large part."""
    if len(rows) < 2:
        return []
    return [
        Finding(
            importance=40 + 50 * row.share,
            question=NAME,
            title=f"One bundle carried {row.share:.0%} of all traffic",
            text=f"{row.bundle} had {mib(row.throughput_mean)} on average and "
            f"{mib(row.throughput_max)} at most, with {row.topics_max} topics. "
            "No broker can have less than its largest bundle.",
            advice="Split it (`loadmanager admin bundles split`)."
            if row.topics_max > 1
            else "A single topic carries it, which no split can cut: partition the topic.",
            numbers={
                "share": row.share,
                "throughputMean": row.throughput_mean,
                "throughputP95": row.throughput_p95,
                "topics": row.topics_max,
            },
        )
        for row in rows
        if row.share >= HOT_SHARE
    ]
