"""Which bundles moved back and forth?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding, many
from loadmanager.analysis.questions import moves

NAME = "flapping"
ABOUT = (
    "Which bundles moved back and forth? A bundle returns when a broker acquires it that gave it "
    "up within the grace period, also when no other broker owned it meanwhile."
)
ORDER = ("returns DESC", "moves DESC", "bundle")


def table(day: Day) -> DataFrame:
    """A row a bundle that moved, or came back to where it was."""
    grace_ms = int(day.settings.grace_period_minutes * 60_000)
    left = moves.released(day.records("ownership"))
    yesterday = day.records_before("ownership")
    if yesterday is not None:
        left = left.unionByName(moves.released(yesterday))
    left = left.where(~moves.stopped())  # a bundle that survives a restart does not flap
    events = (
        moves.acquisitions(day)
        .select("bundle", "broker", "ts", "source", F.lit(1).alias("acquired"))
        .unionByName(
            left.select(
                "bundle",
                F.col("source").alias("broker"),
                F.col("released").alias("ts"),
                F.lit(None).alias("source"),
                F.lit(0).alias("acquired"),
            )
        )
    )
    so_far = (
        Window.partitionBy("bundle", "broker")
        .orderBy("ts", "acquired")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    left_ts = F.max(F.when(F.col("acquired") == 0, F.col("ts"))).over(so_far)
    returned = F.col("left").isNotNull() & (F.col("ts") - F.col("left") <= grace_ms)
    return (
        events.withColumn("left", left_ts)
        .where(F.col("acquired") == 1)
        .groupBy("bundle")
        .agg(
            F.count_if(F.col("source") != F.col("broker")).alias("moves"),
            F.count_if(returned).alias("returns"),
            F.countDistinct("broker").alias("brokers"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
        )
        .where((F.col("moves") > 0) | (F.col("returns") > 0))
    )


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Bundles that returned."""
    back = [row for row in rows if row.returns > 0]
    if not back:
        return []
    worst = back[0]
    returns = sum(row.returns for row in back)
    return [
        Finding(
            importance=min(45 + 2 * returns, 85),
            question=NAME,
            title=f"{many(len(back), 'bundle')} moved back and forth",
            text=f"Bundles came back {many(returns, 'time')} to a broker that they had left less "
            f"than {day.settings.grace_period_minutes:g} minutes before. "
            f"The worst is {worst.bundle} with {worst.moves} moves and {worst.returns} returns. "
            "Every move makes its clients reconnect.",
            advice="Shedding and placement score different things: use AvgShedder for both, or a "
            "longer loadBalancerSheddingGracePeriodMinutes.",
            numbers={
                "bundles": len(back),
                "returns": returns,
                "worstMoves": worst.moves,
                "worstReturns": worst.returns,
            },
        )
    ]
