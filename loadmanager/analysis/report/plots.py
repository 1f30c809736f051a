"""What the plots show, computed by Spark and small: time steps of a quarter of an hour, the busiest
bundles, a bounded number of lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, throughput
from loadmanager.analysis.questions import throttling

STEP_MS = 900_000
STEPS = 96
BUNDLES_MAX = 40
BROKERS_MAX = 12
MARKS_MAX = 400


@dataclass(slots=True)
class Plots:
    """Numbers for the plots; the index of a list is the time step."""

    start_ms: int
    heat: dict[str, list[float | None]] = field(default_factory=dict)
    """Bundle → bytes/s, the busiest first."""
    heat_moves: list[tuple[str, int, str]] = field(default_factory=list)
    """Bundle, ms, text."""
    heat_splits: list[tuple[str, int, str]] = field(default_factory=list)
    usage: dict[str, list[float | None]] = field(default_factory=dict)
    """Broker → usage."""
    std: list[float | None] = field(default_factory=list)
    max_over_mean: list[float | None] = field(default_factory=list)
    held: dict[str, float] = field(default_factory=dict)
    """Limit → share of the time in which somebody was held."""
    delivered: dict[str, list[float | None]] = field(default_factory=dict)
    """Limit → delivered over configured."""


def gather(day: Day, shown: dict[str, list[Any]]) -> Plots:
    """Everything that is drawn; `shown` are the rows of each question that people see."""
    plots = Plots(day.start_ms)
    step = F.floor((F.col("ts") - day.start_ms) / STEP_MS).alias("step")
    _heat_map(plots, day, step, shown)
    _usage(plots, day, step, shown)
    _limits(plots, day, step, shown)
    return plots


def _heat_map(plots: Plots, day: Day, step: Column, shown: dict[str, list[Any]]) -> None:
    bundles = [row.bundle for row in shown["hot_bundles"][:BUNDLES_MAX]]
    if bundles:
        loads = (
            day.records("bundle_load")
            .where(F.col("bundle").isin(bundles))
            .groupBy("bundle", step)
            .agg(F.avg(throughput()).alias("value"))
        )
        plots.heat = _lines(loads.collect(), "bundle", bundles)
    plots.heat_moves = [
        (
            row.bundle,
            row.ts,
            f"{row.source} → {row.destination}: {row.reason}"
            + ("" if row.worth_it is None else ", worth it" if row.worth_it else ", no gain"),
        )
        for row in shown["moves"]
        if row.bundle in plots.heat
    ][:MARKS_MAX]
    plots.heat_splits = [
        (bundle, row.ts, f"split of {row.parent}")
        for row in shown["splits"]
        for bundle in (row.parent, *row.children)
        if bundle in plots.heat
    ][:MARKS_MAX]


def _usage(plots: Plots, day: Day, step: Column, shown: dict[str, list[Any]]) -> None:
    busiest = sorted(shown["broker_usage"], key=lambda row: (-row.max, row.broker))
    brokers = sorted(row.broker for row in busiest[:BROKERS_MAX])
    if brokers:
        usage = (
            day.records("broker_load")
            .where(F.col("broker").isin(brokers))
            .groupBy("broker", step)
            .agg(F.avg("usage").alias("value"))
        )
        plots.usage = _lines(usage.collect(), "broker", brokers)
    means = (
        day.answer("imbalance")
        .withColumnRenamed("bucket", "ts")
        .groupBy(step)
        .agg(F.avg("std").alias("std"), F.avg("max_over_mean").alias("ratio"))
        .collect()
    )
    plots.std, plots.max_over_mean = [None] * STEPS, [None] * STEPS
    for row in means:
        if 0 <= row.step < STEPS:
            plots.std[row.step], plots.max_over_mean[row.step] = row.std, row.ratio


def _limits(plots: Plots, day: Day, step: Column, shown: dict[str, list[Any]]) -> None:
    holding = [row for row in shown["throttling"][:BROKERS_MAX] if row.held_share > 0]
    plots.held = {throttling.name_of(row): row.held_share for row in holding}
    if holding:
        records = day.records("throttle").where(
            F.col("limit").isin(sorted({row.limit for row in holding}))
        )
        ratios = records.groupBy("limit", throttling.own_broker().alias("broker"), step).agg(
            F.avg(throttling.delivered_over_configured()).alias("value")
        )
        named = [
            Row(name=throttling.name_of(row), step=row.step, value=row.value)
            for row in ratios.collect()
        ]
        plots.delivered = _lines(
            [row for row in named if row.name in plots.held], "name", list(plots.held)
        )


def _lines(rows: list[Any], name: str, order: list[str]) -> dict[str, list[float | None]]:
    lines: dict[str, list[float | None]] = {key: [None] * STEPS for key in order}
    for row in rows:
        if 0 <= row.step < STEPS:
            lines[row[name]][row.step] = row.value
    return lines
