"""What did each move of a bundle do: how long did clients wait, and was the cluster better balanced
afterwards?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import BUCKET_MS, Day, Finding, bucket, many

NAME = "moves"
ABOUT = (
    "What did each move do? Imbalance is the standard deviation of usage, ten minutes before "
    "against five to fifteen minutes after; "
    "a move was worth it when that fell by more than 0.5 points and a twentieth. Moves off "
    "brokers that stopped or were lost are not judged."
)
ORDER = ("ts", "bundle")
STEPS = 2
"""So many time steps count before and after."""
GAIN_MIN, GAIN_SHARE_MIN = 0.005, 0.05
SKEW_MS = 1000
"""Brokers' clocks may differ by so much."""
NEAR_MS = 60_000
STOPPING = "broker stops"
"""The reason that a broker gives when it stops."""


def acquisitions(day: Day) -> DataFrame:
    """Who came to own which bundle, and whose it was before.

    Columns bundle, broker, ts, reason, source.

    Who gives up a bundle before anybody acquired it that day has owned it since before.
    """
    steps = day.records("ownership")
    # Older histories know no Opening; a bundle that stays owned after a split that failed was not
    # acquired.
    taken = (F.col("after") == "Owned") & F.col("before").isin("Assigning", "Opening")
    acquired = steps.where(taken).select("bundle", "broker", "ts", "reason")
    given_up = (
        steps.where(F.col("before") == "Owned")
        .groupBy("bundle")
        .agg(F.min_by("broker", "ts").alias("broker"), F.min("ts").alias("given"))
    )
    begun = acquired.groupBy("bundle").agg(F.min("ts").alias("begun"))
    earlier = (
        given_up.join(begun, "bundle", "left")
        .where(F.col("begun").isNull() | (F.col("begun") > F.col("given") - SKEW_MS))
        .select(
            "bundle",
            "broker",
            F.lit(day.start_ms).alias("ts"),
            F.lit("owned before").alias("reason"),
        )
    )
    order = Window.partitionBy("bundle").orderBy("ts", "broker")
    return (
        acquired.unionByName(earlier)
        .withColumn("source", F.lag("broker").over(order))
        .where(F.col("reason") != "owned before")
    )


def released(steps: DataFrame) -> DataFrame:
    """Who gave up which bundle, after which pause.

    Columns bundle, source, released, pause_ms, why, named (whether its destination was).
    """
    return steps.where((F.col("before") == "Releasing") & (F.col("after") == "Free")).select(
        "bundle",
        F.col("broker").alias("source"),
        F.col("ts").alias("released"),
        F.col("pauseMs").alias("pause_ms"),
        F.col("reason").alias("why"),
        F.col("destination").isNotNull().alias("named"),
    )


def table(day: Day) -> DataFrame:
    """A row a move."""
    moved = (
        acquisitions(day)
        .where(F.col("source") != F.col("broker"))
        .withColumnRenamed("broker", "destination")
    )
    before = F.col("released") <= F.col("ts") + SKEW_MS
    near = (F.col("released") >= F.col("ts") - NEAR_MS) & (
        F.col("released") <= F.col("ts") + NEAR_MS
    )
    # A release that names its destination ends when that has acquired the bundle; any other leaves
    # it to the next lookup.
    unowned = F.greatest(F.col("ts") - F.col("released"), F.lit(0))
    pause = F.col("pause_ms") + F.when(F.col("named"), 0.0).otherwise(unowned)
    paused = (
        moved.join(released(day.records("ownership")), ["bundle", "source"], "left")
        .groupBy("bundle", "source", "destination", "ts", "reason")
        .agg(
            F.max_by(F.when(near, pause), F.when(near, F.col("released"))).alias("pause_ms"),
            F.max_by(F.when(before, F.col("why")), F.when(before, F.col("released"))).alias("why"),
        )
        .withColumn("forced", F.col("why").isNull() | (F.col("why") == STOPPING))
    )
    here = bucket() / BUCKET_MS
    std_before = _imbalance(
        day, paused.select("ts").distinct(), here - STEPS, here - 1
    ).withColumnRenamed("std", "std_before")
    std_after = _imbalance(
        day, paused.select("ts").distinct(), here + 1, here + STEPS
    ).withColumnRenamed("std", "std_after")
    gain = F.col("std_before") - F.col("std_after")
    worth = (gain > GAIN_MIN) & (gain > GAIN_SHARE_MIN * F.col("std_before"))
    return (
        paused.join(F.broadcast(std_before), "ts", "left")
        .join(F.broadcast(std_after), "ts", "left")
        .withColumn(
            "reason",
            F.when(F.col("why").isNull(), F.lit("its broker was lost")).otherwise(F.col("why")),
        )
        .select(
            "ts",
            "bundle",
            "source",
            "destination",
            "reason",
            "forced",
            "pause_ms",
            "std_before",
            "std_after",
        )
        .withColumn("gain", gain)
        .withColumn("worth_it", F.when(~F.col("forced"), worth))
    )


def _imbalance(day: Day, times: DataFrame, first: Any, last: Any) -> DataFrame:
    """Mean imbalance over a few time steps around each moment: columns ts, std."""
    steps = times.withColumn("step", F.explode(F.sequence(first.cast("long"), last.cast("long"))))
    known = day.answer("imbalance").select(
        (F.col("bucket") / BUCKET_MS).cast("long").alias("step"), "std"
    )
    return steps.join(F.broadcast(known), "step").groupBy("ts").agg(F.avg("std").alias("std"))


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Moves that did not help, and long pauses."""
    judged = [row for row in rows if row.worth_it is not None]
    useless = [row for row in judged if not row.worth_it]
    found = []
    if useless:
        share = len(useless) / len(judged)
        worst = min(useless, key=lambda row: (row.gain, row.ts, row.bundle))
        found.append(
            Finding(
                importance=20 + 40 * share,
                question=NAME,
                title=f"{len(useless)} of {len(judged)} moves did not help",
                text="After them the brokers' usage was spread as before, or worse. "
                f"The worst: {worst.bundle} from {worst.source} to {worst.destination}, "
                f"standard deviation {worst.std_before:.3f} before and {worst.std_after:.3f} "
                f"after ({worst.reason}).",
                advice="A longer loadBalancerSheddingGracePeriodMinutes or a higher threshold "
                "saves such moves; "
                "AvgShedder and TransferShedder name destinations.",
                numbers={"useless": len(useless), "judged": len(judged), "worstGain": worst.gain},
            )
        )
    pauses = sorted((row.pause_ms for row in rows if row.pause_ms is not None), reverse=True)
    if pauses and pauses[0] > 1000:
        slow = sum(pause > 1000 for pause in pauses)
        found.append(
            Finding(
                importance=35 + min(slow, 25),
                question=NAME,
                title=f"{many(slow, 'move')} left a bundle without an owner for more than a second",
                text=f"The longest pause was {pauses[0] / 1000:.1f} s; half of all moves took no "
                f"more than {pauses[len(pauses) // 2]:.0f} ms. "
                "Clients of the bundle could not publish or consume meanwhile.",
                advice="Look at the metadata store's latency and at the destination's log "
                "around that time.",
                numbers={"slow": slow, "maxMs": pauses[0]},
            )
        )
    return found
