"""What did each move of a bundle do: how long did clients wait, and was the cluster better balanced
afterwards?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import BUCKET_MS, Day, Finding, bucket, many
from loadmanager.core.ownership.states import Cause

NAME = "moves"
ABOUT = (
    "What did each move do? Imbalance is the standard deviation of usage, ten minutes before "
    "against five to fifteen minutes after; "
    "a move was worth it when that fell by more than 0.5 points and a twentieth. Moves off "
    "brokers that stopped or were lost are not judged."
)
ORDER = ("ts", "bundle")
STEPS = 2
"""Time steps compared before and after a move."""
GAIN_MIN, GAIN_SHARE_MIN = 0.005, 0.05
SKEW_MS = 1000
"""Brokers' clocks may differ by so much."""
NEAR_MS = 60_000
"""A release and an acquisition that are this close belong together."""


def acquisitions(day: Day) -> DataFrame:
    """Acquisitions, with the owner before: bundle, broker, ts, source.

    A broker whose first event of the day is a release owned the bundle at midnight.
    """
    steps = day.records("ownership")
    # Older histories know no Opening; a bundle that stays owned after a split that failed was not
    # acquired.
    taken = (F.col("after") == "Owned") & F.col("before").isin("Assigning", "Opening")
    acquired = steps.where(taken).select("bundle", "broker", "ts")
    given_up = (
        steps.where(F.col("before") == "Owned")
        .groupBy("bundle")
        .agg(F.min_by("broker", "ts").alias("broker"), F.min("ts").alias("given"))
    )
    begun = acquired.groupBy("bundle").agg(F.min("ts").alias("begun"))
    at_midnight = (
        given_up.join(begun, "bundle", "left")
        .where(F.col("begun").isNull() | (F.col("begun") > F.col("given") - SKEW_MS))
        .select("bundle", "broker", F.lit(day.start_ms).alias("ts"), F.lit(True).alias("midnight"))
    )
    order = Window.partitionBy("bundle").orderBy("ts", "broker")
    return (
        acquired.withColumn("midnight", F.lit(False))
        .unionByName(at_midnight)
        .withColumn("source", F.lag("broker").over(order))
        .where(~F.col("midnight"))
        .drop("midnight")
    )


def released(steps: DataFrame) -> DataFrame:
    """Releases, with reason and pause.

    Columns bundle, source, released, pause_ms, reason, cause, named (whether a destination was).
    """
    return steps.where((F.col("before") == "Releasing") & (F.col("after") == "Free")).select(
        "bundle",
        F.col("broker").alias("source"),
        F.col("ts").alias("released"),
        F.col("pauseMs").alias("pause_ms"),
        "reason",
        "cause",
        F.col("destination").isNotNull().alias("named"),
    )


def stopped(cause: str = "cause") -> Column:
    """Whether a broker gave up a bundle because it stopped."""
    return F.col(cause).eqNullSafe(Cause.STOP.value)


def table(day: Day) -> DataFrame:
    """A row a move."""
    moved = (
        acquisitions(day)
        .where(F.col("source") != F.col("broker"))
        .withColumnRenamed("broker", "destination")
    )
    releases = released(day.records("ownership"))
    release = F.struct("released", "pause_ms", "reason", "cause", "named").alias("release")
    away_ms = F.abs(F.col("release.released") - F.col("ts"))
    before = F.col("release.released") <= F.col("ts") + SKEW_MS
    # A release that names its destination ends when that has acquired the bundle; any other leaves
    # it to the next lookup.
    unowned_ms = F.when(F.col("near.named"), 0.0).otherwise(
        F.greatest(F.col("ts") - F.col("near.released"), F.lit(0))
    )
    paused = (
        moved.join(releases.select("bundle", "source", release), ["bundle", "source"], "left")
        .groupBy("bundle", "source", "destination", "ts")
        .agg(
            F.min_by("release", F.when(away_ms <= NEAR_MS, away_ms)).alias("near"),
            F.max_by("release", F.when(before, F.col("release.released"))).alias("last"),
        )
        .withColumn("pause_ms", F.col("near.pause_ms") + unowned_ms)
        .withColumn("release", F.coalesce("near", "last"))
        .withColumn("forced", F.col("release").isNull() | stopped("release.cause"))
    )
    gain = F.col("std_before") - F.col("std_after")
    worth = (gain > GAIN_MIN) & (gain > GAIN_SHARE_MIN * F.col("std_before"))
    return (
        paused.join(F.broadcast(_imbalance(day, paused)), "ts", "left")
        .select(
            "ts",
            "bundle",
            "source",
            "destination",
            F.coalesce("release.reason", F.lit("its broker was lost")).alias("reason"),
            F.coalesce("release.cause", F.when(F.col("release").isNull(), Cause.LOSS.value)).alias(
                "cause"
            ),
            "forced",
            "pause_ms",
            "std_before",
            "std_after",
        )
        .withColumn("gain", gain)
        .withColumn("worth_it", F.when(~F.col("forced"), worth))
    )


def _imbalance(day: Day, moves: DataFrame) -> DataFrame:
    """Mean imbalance over a few time steps around each move: columns ts, std_before, std_after."""
    away = F.explode(F.sequence(F.lit(-STEPS), F.lit(STEPS))).alias("away")
    steps = (
        moves.select("ts")
        .distinct()
        .select("ts", away)
        .withColumn("step", (bucket() / BUCKET_MS).cast("long") + F.col("away"))
    )
    known = day.answer("imbalance").select(
        (F.col("bucket") / BUCKET_MS).cast("long").alias("step"), "std"
    )
    return (
        steps.join(F.broadcast(known), "step")
        .groupBy("ts")
        .agg(
            F.avg(F.when(F.col("away") < 0, F.col("std"))).alias("std_before"),
            F.avg(F.when(F.col("away") > 0, F.col("std"))).alias("std_after"),
        )
    )


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Moves of the leader that did not help, and long pauses of all moves."""
    judged = [row for row in rows if row.worth_it is not None and row.cause != Cause.OPERATOR.value]
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
