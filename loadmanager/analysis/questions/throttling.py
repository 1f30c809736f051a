"""Which limits held clients back, and did they deliver what they promise?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding, hours, number

NAME = "throttling"
ABOUT = "Which limits held clients back? Delivered over configured counts the intervals in which somebody was held, of the scarcer of messages and bytes."
ORDER = ("held_share DESC", "hours_held DESC", "limit")
SUFFERING_SHARE = 0.5
INACCURATE = 0.05


def table(day: Day) -> DataFrame:
    """A row a limit."""
    held = (number("held") > 0) | (number("queueLength") > 0)
    ratio = F.greatest(_ratio("Messages"), _ratio("Bytes"))
    interval = F.col("intervalMs")
    return (
        day.records("throttle")
        .groupBy("limit", "level")
        .agg(
            F.count(F.lit(1)).alias("samples"),
            F.max_by("configuredMessagesPerS", "ts").alias("configured_messages_per_s"),
            F.max_by("configuredBytesPerS", "ts").alias("configured_bytes_per_s"),
            F.avg("deliveredMessagesPerS").alias("delivered_messages_per_s"),
            F.avg("deliveredBytesPerS").alias("delivered_bytes_per_s"),
            F.avg(F.when(held, ratio)).alias("delivered_over_configured"),
            hours(F.sum(F.when(held, interval).otherwise(0))).alias("hours_held"),
            (F.sum(F.when(held, interval).otherwise(0)) / F.sum(interval)).alias("held_share"),
            F.sum("held").alias("times_held"),
            (F.sum("waitedMs") / 1000).alias("waited_s"),
            F.max("queueLength").alias("queue_length_max"),
        )
    )


def _ratio(what: str) -> Column:
    return F.when(F.col(f"configured{what}PerS") > 0, F.col(f"delivered{what}PerS") / F.col(f"configured{what}PerS"))


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Limits that hold somebody most of the time, and limits that deliver other than they say."""
    found = []
    for row in rows:
        configured = " and ".join(
            text
            for value, text in (
                (row.configured_messages_per_s, f"{row.configured_messages_per_s:g} messages/s"),
                (row.configured_bytes_per_s, f"{row.configured_bytes_per_s:g} bytes/s"),
            )
            if value is not None and value >= 0
        )
        if row.held_share >= SUFFERING_SHARE:
            found.append(
                Finding(
                    importance=50 + 40 * row.held_share,
                    question=NAME,
                    title=f"{row.limit} was held back in {row.held_share:.0%} of the time",
                    text=f"Its {row.level} limit is {configured}; clients wanted more for {row.hours_held:.1f} hours "
                    f"and waited {row.waited_s:.0f} s in sum.",
                    advice="If that load is legitimate, raise the limit, or give the clients a resource group of their own.",
                    numbers={"heldShare": row.held_share, "hoursHeld": row.hours_held, "waitedS": row.waited_s},
                )
            )
        error = None if row.delivered_over_configured is None else row.delivered_over_configured - 1
        if error is not None and row.hours_held > 0 and abs(error) > INACCURATE:
            found.append(
                Finding(
                    importance=45,
                    question=NAME,
                    title=f"{row.limit} delivered {error:+.0%} of what is configured",
                    text=f"While clients were held, {row.delivered_over_configured:.1%} of {configured} went through.",
                    advice="Frames larger than a second's limit, or a broker short of CPU, make a limit inaccurate: smaller batches help.",
                    numbers={"error": error},
                )
            )
    return found
