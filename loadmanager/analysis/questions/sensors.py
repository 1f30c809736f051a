"""Which sensors could not be trusted?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding, hours, lasting, ratio

NAME = "sensors"
ABOUT = (
    "Which sensors could not be trusted? Those that brokers reported, those that showed more used "
    "than there is, and CPUs with one value all day."
)
ORDER = ("hours DESC", "broker", "sensor", "fault")
STUCK_SAMPLES_MIN = 30
OVER_LIMIT = 1.5
RESOURCES = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")


def table(day: Day) -> DataFrame:
    """A row for each broker, sensor and fault."""
    loads = day.records("broker_load")
    said = (
        loads.select("broker", "intervalMs", F.explode("faults").alias("sensor"))
        .groupBy("broker", "sensor")
        .agg(
            F.lit("not trusted by the broker").alias("fault"),
            F.count(F.lit(1)).alias("samples"),
            hours(F.sum("intervalMs")).alias("hours"),
        )
    )
    values = loads.select(
        "broker",
        "intervalMs",
        F.explode(
            F.create_map(*(item for name in RESOURCES for item in (F.lit(name), F.col(name))))
        ).alias("sensor", "value"),
    ).where(F.col("value.limit") > 0)
    fraction = ratio(F.col("value.usage"), F.col("value.limit"))
    impossible = (
        values.where(fraction > OVER_LIMIT)
        .groupBy("broker", "sensor")
        .agg(
            F.lit("more used than there is").alias("fault"),
            F.count(F.lit(1)).alias("samples"),
            hours(F.sum("intervalMs")).alias("hours"),
        )
    )
    stuck = (
        values.where(F.col("sensor") == "cpu")
        .groupBy("broker", "sensor")
        .agg(
            F.lit("one value all day").alias("fault"),
            F.count(F.lit(1)).alias("samples"),
            hours(F.sum("intervalMs")).alias("hours"),
            F.min("value.usage").alias("least"),
            F.max("value.usage").alias("most"),
        )
        .where((F.col("samples") >= STUCK_SAMPLES_MIN) & (F.col("least") == F.col("most")))
        .drop("least", "most")
    )
    return said.unionByName(impossible).unionByName(stuck)


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Every fault of more than an hour."""
    return [
        Finding(
            importance=40 if row.fault != "not trusted by the broker" else 20,
            question=NAME,
            title=f"{row.sensor} of {row.broker}: {row.fault}, for {lasting(row.hours)}",
            text="Decisions that go by this sensor are wrong."
            if row.fault != "not trusted by the broker"
            else "It drove no decision meanwhile.",
            advice="loadBalancerOverrideBrokerNicSpeedGbps says a NIC's speed where the system "
            "does not; in containers check the cgroup's limits.",
            numbers={"hours": row.hours, "samples": row.samples},
        )
        for row in rows
        if row.hours >= 1
    ]
