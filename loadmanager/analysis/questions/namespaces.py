"""Which namespaces have too few bundles or badly placed boundaries, and which would be better?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding, many, namespace, ratio
from loadmanager.analysis.questions import splits

NAME = "namespaces"
ABOUT = (
    "Which namespaces are divided badly? A namespace wants four bundles for each broker's worth of "
    "its traffic, so that there is something to move; the cuts are boundaries that divide the "
    "day's bytes of its recorded topics evenly."
)
ORDER = ("share DESC", "namespace")
BUNDLES_PER_BROKER = 4
BUNDLES_MAX = 128
HASHES = 0xFFFFFFFF
TOPICS_MIN = 2
SHARE_MIN = 0.05


def table(day: Day) -> DataFrame:
    """A row a namespace."""
    bundles = (
        day.answer("hot_bundles")
        .select("bundle", "bytes", "last_ts")
        .withColumn("namespace", namespace())
    )
    brokers = day.records("broker_load").agg(
        F.greatest(F.countDistinct("broker"), F.lit(1)).alias("brokers")
    )
    latest = F.max("last_ts").over(Window.partitionBy("namespace"))
    present = bundles.withColumn("present", F.col("last_ts") >= latest - 2 * 300_000)
    now = F.when(F.col("present"), F.col("bytes"))
    width = splits.edge("bundle", 1) - splits.edge("bundle", 0)
    spaces = present.groupBy("namespace").agg(
        F.count_if("present").alias("bundles"),
        F.sum("bytes").alias("bytes"),
        ratio(F.max(now), F.sum(now)).alias("largest_share"),
        F.sum(F.when(F.col("present"), width)).alias("covered"),
    )
    # Bundles without an owner that day left no record: the rest of the hash space is taken to have
    # bundles of the same size.
    rest = F.ceil(
        ratio((F.lit(HASHES) - F.col("covered")) * F.col("bundles"), F.col("covered")) - 0.5
    )
    spaces = spaces.withColumn(
        "cut_into", F.col("bundles") + F.greatest(F.coalesce(rest, F.lit(0)), F.lit(0))
    ).drop("covered")
    total = F.sum("bytes").over(Window.partitionBy())
    shares = (
        spaces.crossJoin(F.broadcast(brokers))
        .withColumn("share", F.coalesce(ratio(F.col("bytes"), total), F.lit(0.0)))
        .withColumn(
            "wanted",
            F.greatest(
                F.lit(1),
                F.least(
                    F.lit(BUNDLES_MAX),
                    F.ceil(BUNDLES_PER_BROKER * F.col("brokers") * F.col("share")),
                ),
            ),
        )
        .drop("brokers")
    )
    return shares.join(_cuts(day, shares.select("namespace", "wanted")), "namespace", "left")


def namespace_of_topic() -> Column:
    """`tenant/namespace` of a topic's full name."""
    return F.substring_index(F.substring_index("topic", "://", -1), "/", 2)


def _cuts(day: Day, wanted: DataFrame) -> DataFrame:
    """Boundaries between topics in order of their hash, such that each piece carries about as much:
    columns namespace, cuts, largest_share_then, topics.
    """
    topics = (
        day.answer("hot_topics")
        .select(
            "topic",
            "bytes",
            namespace_of_topic().alias("namespace"),
            F.crc32("topic").alias("hash"),
        )
        .join(F.broadcast(wanted), "namespace")
    )
    order = Window.partitionBy("namespace").orderBy("hash", "topic")
    total = F.sum("bytes").over(Window.partitionBy("namespace"))
    middle = F.sum("bytes").over(order) - F.col("bytes") / 2
    pieces = (
        topics.where(F.col("bytes") > 0)
        .withColumn("piece", F.floor(ratio(middle, total) * F.col("wanted")))
        .withColumn("total", total)
    )
    cut = F.when(
        F.col("piece") != F.lag("piece").over(order),
        F.lag("hash").over(order)
        + F.floor((F.col("hash") - F.lag("hash").over(order)) / 2).cast("long")
        + 1,
    )
    text = F.concat(F.lit("0x"), F.lpad(F.lower(F.hex("cut")), 8, "0"))
    return (
        pieces.withColumn("cut", cut)
        .groupBy("namespace", "piece")
        .agg(
            ratio(F.sum("bytes"), F.max("total")).alias("share"),
            F.collect_set(F.when(F.col("cut").isNotNull(), text)).alias("cuts"),
            F.count(F.lit(1)).alias("topics"),
        )
        .groupBy("namespace")
        .agg(
            F.array_sort(F.array_distinct(F.flatten(F.collect_list("cuts")))).alias("cuts"),
            F.sum("topics").alias("topics"),
            F.max("share").alias("largest_share_then"),
        )
    )


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Namespaces with much traffic, and too few bundles or badly placed boundaries."""
    found = []
    for row in rows:
        if row.share < SHARE_MIN:
            continue
        better = (
            row.cuts
            and row.largest_share_then is not None
            and row.largest_share is not None
            and row.largest_share_then < 0.75 * row.largest_share
        )
        numbers = {
            "bundles": row.bundles,
            "cutInto": row.cut_into,
            "wanted": row.wanted,
            "largestShare": row.largest_share,
            "largestShareThen": row.largest_share_then,
            "cuts": row.cuts,
        }
        cuts = (
            f" Split at {', '.join(row.cuts[:16])}{' …' if len(row.cuts) > 16 else ''}."
            if better
            else ""
        )
        wanted = min(row.wanted, row.topics or row.wanted)  # a bundle without a topic helps nobody
        if row.cut_into < wanted and (row.topics or TOPICS_MIN) >= TOPICS_MIN:
            found.append(
                Finding(
                    importance=35 + 30 * row.share,
                    question=NAME,
                    title=f"{row.namespace} has {many(row.cut_into, 'bundle')} and wants {wanted}",
                    text=f"It carries {row.share:.0%} of the traffic; with so few bundles there "
                    "is little to move from a busy broker.",
                    advice=f"Split its bundles until there are about {wanted}." + cuts,
                    numbers=numbers,
                )
            )
        elif better and row.largest_share > 2 / max(row.bundles, 1):
            found.append(
                Finding(
                    importance=30 + 30 * row.largest_share,
                    question=NAME,
                    title=f"One bundle of {row.namespace} carries {row.largest_share:.0%} of it",
                    text=f"It has {row.bundles} bundles; other boundaries would have left "
                    f"{row.largest_share_then:.0%} at most in one.",
                    advice="Use flow_or_qps_equally_divide, or specified_positions_divide." + cuts,
                    numbers=numbers,
                )
            )
    return found
