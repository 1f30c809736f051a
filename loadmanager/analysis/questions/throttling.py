"""Which limits held clients back, and did they deliver what they promise?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding, hours, lasting, many, number, ratio

NAME = "throttling"
ABOUT = (
    "Which limits held clients back? Delivered over configured is of the scarcer of messages and "
    "bytes, in intervals for most of which a client was held."
)
ORDER = ("held_share DESC", "hours_held DESC", "limit", "broker")
SUFFERING_SHARE = 0.5
INACCURATE = 0.05
RATE_MIN = 1e-6


def table(day: Day) -> DataFrame:
    """A row for each limit; limits that each broker enforces alone (its own, a resource group's)
    have a row for each broker.
    """
    interval = F.col("intervalMs")
    # If a client waits at the end of the interval, clients are taken to have waited all the time;
    # otherwise for as long as the waits took that ended in it.
    held_ms = F.when(number("queueLength") > 0, interval).otherwise(
        F.least(number("waitedMs"), interval)
    )
    mostly = held_ms >= interval / 2
    return (
        day.records("throttle")
        .groupBy("limit", "level", own_broker().alias("broker"))
        .agg(
            F.count(F.lit(1)).alias("samples"),
            F.max_by("configuredMessagesPerS", "ts").alias("configured_messages_per_s"),
            F.max_by("configuredBytesPerS", "ts").alias("configured_bytes_per_s"),
            F.avg("deliveredMessagesPerS").alias("delivered_messages_per_s"),
            F.avg("deliveredBytesPerS").alias("delivered_bytes_per_s"),
            ratio(
                F.sum(F.when(mostly, delivered_over_configured() * interval)),
                F.sum(F.when(mostly, interval)),
            ).alias("delivered_over_configured"),
            hours(F.sum(held_ms)).alias("hours_held"),
            F.coalesce(ratio(F.sum(held_ms), F.sum(interval)), F.lit(0.0)).alias("held_share"),
            F.sum(number("held").cast("double")).try_cast("long").alias("times_held"),
            (F.sum(number("waitedMs")) / 1000).alias("waited_s"),
            F.max(number("queueLength")).alias("queue_length_max"),
        )
    )


def own_broker() -> Column:
    """The broker of a limit that each broker enforces alone; null for other limits."""
    return F.when(F.col("level").isin("broker", "resource group"), F.col("broker"))


def delivered_over_configured() -> Column:
    """The figure of messages or bytes, whichever is scarcer."""
    return F.greatest(_ratio("Messages"), _ratio("Bytes"))


def name_of(row: Any) -> str:
    """A limit for a person."""
    return f"{row.limit} of {row.broker}" if row.broker else str(row.limit)


def _ratio(what: str) -> Column:
    return F.when(
        F.col(f"configured{what}PerS") > RATE_MIN,
        F.col(f"delivered{what}PerS") / F.col(f"configured{what}PerS"),
    )


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Limits that hold a client most of the time, and limits whose delivered rate differs from the
    configured rate.
    """
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
        name = name_of(row)
        if row.held_share >= SUFFERING_SHARE:
            found.append(
                Finding(
                    importance=50 + 40 * row.held_share,
                    question=NAME,
                    title=f"{name} held clients back in {row.held_share:.0%} of the time",
                    text=f"The {row.level} limit is {configured}; clients wanted more for "
                    f"{lasting(row.hours_held)} "
                    f"and waited {row.waited_s:,.0f} s in sum, up to "
                    f"{many(row.queue_length_max, 'client')} at a time.",
                    advice="If that load is legitimate, raise the limit, or give the clients a "
                    "resource group of their own.",
                    numbers={
                        "heldShare": row.held_share,
                        "hoursHeld": row.hours_held,
                        "waitedS": row.waited_s,
                    },
                )
            )
        error = None if row.delivered_over_configured is None else row.delivered_over_configured - 1
        if error is not None and row.hours_held > 0 and abs(error) > INACCURATE:
            found.append(
                Finding(
                    importance=45,
                    question=NAME,
                    title=f"{name} let {row.delivered_over_configured:.0%} of what is "
                    "configured through",
                    text="While clients were held most of the time, they got "
                    f"{row.delivered_over_configured:.1%} of {configured}.",
                    advice="Frames larger than a second's limit, or a broker short of CPU, make a "
                    "limit inaccurate: smaller batches help.",
                    numbers={"error": error},
                )
            )
    return found
