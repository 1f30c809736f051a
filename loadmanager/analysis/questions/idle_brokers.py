"""Which brokers had nothing to do, and how long did a new one wait for load?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import BUCKET_MS, Day, Finding, clock, hours, lasting, number, rate

NAME = "idle_brokers"
ABOUT = (
    "Which brokers had nothing to do? A broker is idle without bundles or without messages, and "
    "new if it appears after the others."
)
HOURS_MIN = 1.0
"""Brokers with fewer recorded hours are not judged."""
ORDER = ("idle_hours DESC", "broker")


def table(day: Day) -> DataFrame:
    """A row a broker."""
    loads = day.records("broker_load")
    idle = (number("bundles") == 0) | (rate() == 0)
    brokers = loads.groupBy("broker").agg(
        F.min("ts").alias("first_ts"),
        F.max("ts").alias("last_ts"),
        F.min(F.when(~idle, F.col("ts"))).alias("first_load_ts"),
        hours(F.sum(F.when(idle, F.col("intervalMs")).otherwise(0))).alias("idle_hours"),
        hours(F.sum("intervalMs")).alias("hours"),
    )
    first = F.min("first_ts").over(Window.partitionBy())
    return brokers.withColumn("new", F.col("first_ts") - first > BUCKET_MS).withColumn(
        "waited_minutes", (F.coalesce("first_load_ts", "last_ts") - F.col("first_ts")) / 60_000
    )


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """New brokers that waited, and brokers that were idle most of the day."""
    found = []
    for row in rows:
        if row.new and row.waited_minutes > 10:
            until = (
                f"got load at {clock(row.first_load_ts)}"
                if row.first_load_ts
                else "never got any that day"
            )
            found.append(
                Finding(
                    importance=55,
                    question=NAME,
                    title=f"{row.broker} was new and waited {row.waited_minutes:.0f} "
                    "minutes for load",
                    text=f"It appeared at {clock(row.first_ts)} and {until}.",
                    advice="lowerBoundarySheddingEnabled=true makes ThresholdShedder fill idle "
                    "brokers; AvgShedder does by itself.",
                    numbers={"waitedMinutes": row.waited_minutes},
                )
            )
        elif row.hours >= HOURS_MIN and row.idle_hours / row.hours > 0.5:
            found.append(
                Finding(
                    importance=25,
                    question=NAME,
                    title=f"{row.broker} was idle for {lasting(row.idle_hours)} of "
                    f"{lasting(row.hours)}",
                    text="It had no bundles, or its bundles had no messages.",
                    advice="Run one broker less, or let the shedder fill it: "
                    "lowerBoundarySheddingEnabled=true.",
                    numbers={"idleHours": row.idle_hours, "hours": row.hours},
                )
            )
    return found
