"""Which bundles were split, and did both halves carry traffic?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding, ratio, throughput

NAME = "splits"
ABOUT = (
    "Which bundles were split, and were the children used? A split is useful when the "
    "busiest child carries less than nine tenths afterwards."
)
ORDER = ("ts", "parent")
USELESS_SHARE = 0.9


def table(day: Day) -> DataFrame:
    """A row a split."""
    children = (
        day.records("ownership")
        .where((F.col("before") == "Free") & F.col("parent").isNotNull())
        .select("parent", "bundle", F.col("ts").alias("born"), "broker")
    )
    # A child may have been split again: what its descendants carried counts, too.
    known = day.answer("hot_bundles").select("bundle")
    within = (_place(F.col("child")) == _place(F.col("bundle"))) & edge("bundle", 0).between(
        edge("child", 0), edge("child", 1) - 1
    )
    within &= edge("bundle", 1) <= edge("child", 1)
    descendants = known.join(
        F.broadcast(children.select(F.col("bundle").alias("child"), "born", "parent")), within
    ).select("bundle", "child", "born", "parent")
    traffic = (
        day.records("bundle_load")
        .join(F.broadcast(descendants), "bundle")
        .where(F.col("ts") > F.col("born"))
    )
    carried = traffic.groupBy("parent", F.col("child").alias("bundle")).agg(
        F.sum(throughput() * F.col("intervalMs") / 1000).alias("bytes")
    )
    both = children.join(F.broadcast(carried), ["parent", "bundle"], "left").withColumn(
        "bytes", F.coalesce("bytes", F.lit(0.0))
    )
    busiest = ratio(F.max("bytes"), F.sum("bytes"))
    return (
        both.groupBy("parent")
        .agg(
            F.min("born").alias("ts"),
            F.min("broker").alias("broker"),
            F.array_sort(F.collect_set("bundle")).alias("children"),
            F.sum("bytes").alias("bytes"),
            busiest.alias("busiest_share"),
        )
        .withColumn("useful", F.col("busiest_share") < USELESS_SHARE)
    )


def _place(bundle: Column) -> Column:
    return F.regexp_extract(bundle, r"^(.*)/[^/]+$", 1)


def edge(name: str, which: int) -> Column:
    """Lower (0) or upper (1) edge of a bundle's range."""
    text = F.split_part(F.substring_index(name, "/", -1), F.lit("_"), F.lit(which + 1))
    return F.conv(F.substring(text, 3, 8), 16, 10).try_cast("long")


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Splits that left everything on one side."""
    useless = [row for row in rows if row.useful is False]
    if not useless:
        return []
    worst = max(useless, key=lambda row: (row.bytes, row.parent))
    return [
        Finding(
            importance=30 + min(3 * len(useless), 30),
            question=NAME,
            title=f"{len(useless)} of {len(rows)} splits did not divide the load",
            text=f"One child carried nearly everything afterwards; {worst.parent} is the busiest "
            f"of them, with {worst.busiest_share:.0%} on one side.",
            advice="defaultNamespaceBundleSplitAlgorithm=flow_or_qps_equally_divide cuts where "
            "the traffic is; one hot topic needs partitions instead.",
            numbers={
                "useless": len(useless),
                "splits": len(rows),
                "worstShare": worst.busiest_share,
            },
        )
    ]
