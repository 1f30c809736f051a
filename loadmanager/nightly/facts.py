"""Aggregations of a day by Spark, each in one pass over one kind of records, and small enough for
the driver. The questions are answered from these without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from loadmanager.engine.history.outages import RESTART_MS_MIN
from loadmanager.engine.history.records import POSSIBLE
from loadmanager.engine.history.tenures import Step
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SPLITTERS
from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.ingest import Ingest
from loadmanager.nightly.reading import SUMS
from loadmanager.nightly.schema import RESOURCES

BUCKET_MS = 300_000
"""Comparisons go in steps of five minutes."""
PLOT_STEPS_MAX = 96
PLOT_STEPS_MS = tuple(minutes * 60_000 for minutes in (1, 2, 5, 10, 15))
BUSIEST = 200
"""Percentiles and plots are of this many bundles and topics only."""
OF_TWINS = " of another one; a record that two segments have counts twice, in every table"
"""What decisions about splits name as their strategy."""
BREAKER, USAGE_MODEL = "CircuitBreaker", "UsageModel"
"""Decisions that name no shedder as their strategy: those of a daemon's circuit breaker, and doubts
about sensors.
"""
STEPS_MAX = 1_000_000
"""Ownership records of a day that are looked at; there is a notice when there are more."""
MOVES_MAX = 100_000
RATE_MIN = 1e-6


def bucket(ts: str = "ts") -> Column:
    """The start of the time step that a record falls into, in ms."""
    return F.col(ts) - F.col(ts) % BUCKET_MS


def number(name: str) -> Column:
    """An optional number of a record; 0 where it is missing."""
    return F.coalesce(F.col(name), F.lit(0))


def throughput() -> Column:
    """Bytes/s in and out."""
    return number("msgThroughputIn") + number("msgThroughputOut")


def rate() -> Column:
    """Messages/s in and out."""
    return number("msgRateIn") + number("msgRateOut")


def ratio(over: Column, under: Column) -> Column:
    """`over / under`; null where `under` is not positive (Spark's ANSI mode fails
    the query on 0).
    """
    return F.when(under > 0, over / under)


@dataclass(frozen=True, slots=True)
class PlotSteps:
    """The time axis of the plots: it begins with the first record and ends with the last."""

    start_ms: int
    step_ms: int
    count: int

    @property
    def end_ms(self) -> int:
        """Its right edge."""
        return self.start_ms + self.step_ms * self.count


@dataclass
class Facts:
    """A day's sums. Each is computed when it is first asked for, and raises what Spark raises."""

    ingest: Ingest
    settings: StrategySettings
    start_ms: int
    notices: list[str] = field(default_factory=list)
    """What the sums do not hold, a sentence each."""

    @cached_property
    def brokers(self) -> list[dict[str, Any]]:
        """Loads of a broker in five minutes, in order of broker and time."""
        over = F.col("usage") > self.settings.overloaded_percent / 100
        idle = (number("bundles") == 0) | (rate() == 0)
        begun = F.col("ts") - F.col("intervalMs")
        samples = F.sort_array(F.collect_list(F.struct("ts", begun.alias("begun"))))
        later = F.slice(samples, 2, F.size(samples))
        pauses = F.zip_with(samples, later, lambda sample, next_: F.struct(sample.ts, next_.begun))
        sums = [
            F.count(F.lit(1)).alias("samples"),
            F.size(F.collect_set("ts")).alias("times"),
            F.min_by(begun, "ts").alias("begun"),
            F.filter(pauses, lambda sample: sample.begun - sample.ts > RESTART_MS_MIN).alias(
                "pauses"
            ),
            F.max_by(F.struct(begun.alias("begun"), "ts"), "intervalMs").alias("longest"),
            F.sum("intervalMs").alias("interval_ms"),
            F.sum(F.when(over, F.col("intervalMs")).otherwise(0)).alias("over_ms"),
            F.sum(F.when(idle, F.col("intervalMs")).otherwise(0)).alias("idle_ms"),
            F.min(F.when(~idle, F.col("ts"))).alias("busy_ts"),
            F.sum("usage").alias("usage_sum"),
            F.max("usage").alias("usage_max"),
            F.sum(throughput()).alias("throughput_sum"),
            F.min(throughput()).alias("throughput_min"),
            F.max(throughput()).alias("throughput_max"),
            F.sum(rate()).alias("rate_sum"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
            F.max(number("bundles")).alias("bundles_max"),
            F.median("cpu.limit").alias("cpu_limit"),
            F.flatten(F.collect_list("faults")).alias("faults"),
        ]
        for name in RESOURCES:
            fraction = ratio(F.col(f"{name}.usage"), F.col(f"{name}.limit"))
            sums += [
                F.avg(F.when(fraction <= POSSIBLE, fraction)).alias(f"{name}_mean"),
                F.min(F.when(fraction.isNotNull(), F.col(f"{name}.usage"))).alias(f"{name}_least"),
                F.max(F.when(fraction.isNotNull(), F.col(f"{name}.usage"))).alias(f"{name}_most"),
                F.count_if(fraction > POSSIBLE).alias(f"{name}_impossible"),
            ]
        loads = self.ingest.records("broker_load")
        rows = rows_of(loads.groupBy("broker", bucket().alias("bucket")).agg(*sums))
        twice = sum(row["samples"] - row["times"] for row in rows)
        if twice:
            self.notices.append(
                f"broker_load: {twice:,} records have the broker and the time{OF_TWINS}"
            )
        return sorted(rows, key=lambda row: (row["broker"], row["bucket"]))

    @cached_property
    def usage_quantiles(self) -> dict[str, list[float]]:
        """Broker → its usage that half, 95 % and 99 % of the samples do not exceed."""
        quantiles = F.percentile("usage", F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99))))
        quantiles_of = (
            self.ingest.records("broker_load").groupBy("broker").agg(quantiles.alias("of"))
        )
        return {row["broker"]: list(row["of"]) for row in rows_of(quantiles_of)}

    @cached_property
    def plot_steps(self) -> PlotSteps:
        """The axis that fits the loads of brokers."""
        times = [(row["first_ts"], row["last_ts"]) for row in self.brokers]
        return steps_for([ts for pair in times for ts in pair], self.start_ms)

    @cached_property
    def bundles(self) -> pa.Table:
        """Traffic of each bundle at each of its owners."""
        return _totals(self.ingest.sums("bundle_load", "bundles"), "bundle", "broker")

    @cached_property
    def topics(self) -> pa.Table:
        """Traffic of each recorded topic in each bundle."""
        return _totals(self.ingest.sums("topic_load", "topics"), "topic", "bundle")

    @cached_property
    def busiest_bundles(self) -> list[dict[str, Any]]:
        """See `_of_busiest`."""
        return self._of_busiest("bundle_load", "bundle", self.bundles)

    @cached_property
    def busiest_topics(self) -> list[dict[str, Any]]:
        """See `_of_busiest`."""
        return self._of_busiest("topic_load", "topic", self.topics)

    def of_one(
        self, busiest: list[dict[str, Any]], name: str, which: str
    ) -> Iterator[tuple[float, float]]:
        """When (ms) and how much one of the busiest carried, by the steps of the plots."""
        axis = self.plot_steps
        for row in busiest:
            if row[name] == which and row["step"] is not None:
                yield axis.start_ms + row["step"] * axis.step_ms, row["mean"]

    def _of_busiest(self, kind: str, name: str, totals: pa.Table) -> list[dict[str, Any]]:
        """Means of the busiest by the steps of the plots; the rows with `step` None have the
        percentiles of the whole day instead.
        """
        sums = totals.group_by(name).aggregate([("bytes", "sum")])
        names = sums.sort_by([("bytes_sum", "descending"), (name, "ascending")])[name]
        busiest = names.slice(0, BUSIEST).to_pylist()
        if not busiest:
            return []
        axis, loads = self.plot_steps, self.ingest.throughputs(kind, name, busiest)
        once = loads.select([name, "broker", "ts"]).group_by([name, "broker", "ts"]).aggregate([])
        if twins := loads.num_rows - once.num_rows:
            self.notices.append(
                f"{kind}: {twins:,} records of the busiest {name}s have the {name}, the broker and "
                f"the time{OF_TWINS}"
            )
        since = pc.cast(pc.subtract(loads["ts"], axis.start_ms), pa.float64())
        step = pc.cast(pc.floor(pc.divide(since, axis.step_ms)), pa.int64())
        parts = loads.append_column("step", step).group_by([name, "step"])
        means = parts.aggregate([("throughput", "mean")]).rename_columns([name, "step", "mean"])
        whole = loads.group_by(name).aggregate([("throughput", "list")])
        quantiles: list[dict[str, Any]] = [
            {name: key, "step": None, "quantiles": pc.quantile(of.values, [0.5, 0.95]).to_pylist()}
            for key, of in zip(whole[name].to_pylist(), whole["throughput_list"], strict=True)
        ]
        return [*means.to_pylist(), *quantiles]

    @cached_property
    def namespaces_by_hour(self) -> list[dict[str, Any]]:
        """Traffic and connections of each namespace in each hour."""
        sums = [F.sum(name).alias(name) for name in ("bytes", "messages", "connection_hours")]
        parts = self.ingest.sums("bundle_load", "namespaces")
        by_hour = parts.groupBy("namespace", "hour").agg(*sums)
        return sorted(rows_of(by_hour), key=lambda row: (row["namespace"], row["hour"]))

    @cached_property
    def steps(self) -> list[Step]:
        """Steps of bundles on brokers, in the order of each broker's own clock."""
        return self._steps(self.ingest.records("ownership"))

    @cached_property
    def steps_before(self) -> list[Step]:
        """The ownership records of the last hours of the day before, if it was analysed."""
        before = self.ingest.records_before("ownership")
        if before is None:
            return []
        grace_ms = int(self.settings.grace_period_minutes * 60_000)
        return self._steps(before.where(F.col("ts") >= self.start_ms - max(grace_ms, HOUR_MS)))

    def _steps(self, records: DataFrame) -> list[Step]:
        columns = ("ts", "broker", "bundle", "before", "after", "reason", "cause", "parent")
        table = records.select(*columns, "destination", "pauseMs", "life").limit(STEPS_MAX + 1)
        arrow = arrow_of(table)
        if arrow.num_rows > STEPS_MAX:
            self.notices.append(
                f"ownership: there are more than {STEPS_MAX:,} records; moves are told from "
                "so many of them, and may be wrong"
            )
        lists = [arrow[name].to_pylist() for name in arrow.column_names]
        return sorted(map(Step._make, zip(*lists, strict=True)), key=lambda step: step[:3])

    @cached_property
    def leader_moves(self) -> list[dict[str, Any]]:
        """The leaders' records of the moves that they made."""
        records = self.ingest.records("decision").where(F.col("action") == "move")
        names = ("ts", "broker", "epoch", "cycle", "move", "author", "state", "bundle", "source")
        more = ("destination", "reason", "outcome", "pauseMs", "clientsClosed", "life", "why")
        moves = rows_of(records.select(*names, *more).limit(MOVES_MAX))
        return sorted(moves, key=lambda row: (row["ts"], row["move"] or ""))

    @cached_property
    def breaker_stops(self) -> list[dict[str, Any]]:
        """When the circuit breaker of a daemon beside a Pulsar stopped moves, and why."""
        opened = (F.col("action") == "skip") & (F.col("strategy") == BREAKER)
        records = self.ingest.records("decision").where(opened)
        stops = rows_of(records.select("ts", "broker", "reason").limit(MOVES_MAX))
        return sorted(stops, key=lambda row: (row["ts"], row["broker"]))

    @cached_property
    def terms(self) -> list[dict[str, Any]]:
        """The leaders' terms that recorded a decision, with their last shedders."""
        others = (*SPLITTERS, BREAKER, USAGE_MODEL)
        sheds = F.col("action").isin("unload", "skip") & ~F.col("strategy").isin(*others)
        terms = (
            self.ingest.records("decision")
            .groupBy("epoch", "broker")
            .agg(
                F.min("ts").alias("ts"),
                F.max("ts").alias("last_ts"),
                F.max_by("strategy", F.when(sheds, F.col("ts"))).alias("strategy"),
                F.count_if(F.col("action") == "unload").alias("unloads"),
            )
        )
        return sorted(rows_of(terms), key=lambda row: (row["epoch"], row["ts"], row["broker"]))

    @property
    def shedder(self) -> str | None:
        """The shedder of the last leader; None if no record tells."""
        return next((row["strategy"] for row in reversed(self.terms) if row["strategy"]), None)

    @cached_property
    def limits(self) -> list[dict[str, Any]]:
        """Each limit; one that each broker enforces alone, on each broker."""
        interval, held_ms = F.col("intervalMs"), _held_ms()
        mostly = held_ms >= interval / 2
        limits = (
            self.ingest.records("throttle")
            .groupBy("limit", "level", own_broker().alias("broker"))
            .agg(
                F.count(F.lit(1)).alias("samples"),
                F.max_by("configuredMessagesPerS", "ts").alias("configured_messages_per_s"),
                F.max_by("configuredBytesPerS", "ts").alias("configured_bytes_per_s"),
                F.avg("deliveredMessagesPerS").alias("delivered_messages_per_s"),
                F.avg("deliveredBytesPerS").alias("delivered_bytes_per_s"),
                F.sum(F.when(mostly, _delivered_over_configured() * interval)).alias("let_through"),
                F.sum(F.when(mostly, interval)).alias("mostly_held_ms"),
                F.sum(held_ms).alias("held_ms"),
                F.sum(interval).alias("interval_ms"),
                F.sum(number("held").cast("double")).try_cast("long").alias("times_held"),
                (F.sum(number("waitedMs")) / 1000).alias("waited_s"),
                F.max(number("queueLength")).alias("queue_length_max"),
                F.min(F.when(held_ms > 0, F.col("ts"))).alias("held_first_ts"),
                F.max(F.when(held_ms > 0, F.col("ts"))).alias("held_last_ts"),
            )
        )
        return rows_of(limits)

    def delivered(self, limits: list[str]) -> list[dict[str, Any]]:
        """Delivered over configured of these limits, by the steps of the plots."""
        if not limits:
            return []
        axis = self.plot_steps
        step = F.floor((F.col("ts") - axis.start_ms) / axis.step_ms).alias("step")
        records = self.ingest.records("throttle").where(F.col("limit").isin(limits))
        ratios = records.groupBy("limit", own_broker().alias("broker"), step).agg(
            F.avg(_delivered_over_configured()).alias("value")
        )
        return rows_of(ratios)


def own_broker() -> Column:
    """The broker of a limit that each broker enforces alone; null for other limits."""
    return F.when(F.col("level").isin("broker", "resource group"), F.col("broker"))


def _held_ms() -> Column:
    """For how long somebody was held.

    For as long as the waits took that ended in the interval. If clients wait at its end, and more
    waits than these ended in it, theirs are taken to be as long; otherwise clients are taken to
    have waited all the time.
    """
    interval, waiting, waited_ms = F.col("intervalMs"), number("queueLength"), number("waitedMs")
    ended = number("held") - waiting
    known_ms = F.when(waiting > 0, waited_ms * number("held") / F.greatest(ended, F.lit(1)))
    known_ms = known_ms.otherwise(waited_ms)
    return F.when((waiting > 0) & (ended <= waiting), interval).otherwise(
        F.least(known_ms, interval)
    )


def _delivered_over_configured() -> Column:
    """The figure of messages or bytes, whichever is scarcer."""
    return F.greatest(
        *(
            F.when(
                F.col(f"configured{what}PerS") > RATE_MIN,
                F.col(f"delivered{what}PerS") / F.col(f"configured{what}PerS"),
            )
            for what in ("Messages", "Bytes")
        )
    )


def _totals(parts: DataFrame, name: str, place: str) -> pa.Table:
    sums = [getattr(F, how)(column).alias(column) for column, how in SUMS.items()]
    return arrow_of(parts.groupBy(name, place).agg(*sums))


def arrow_of(table: DataFrame) -> pa.Table:
    """A small result, brought to the driver."""
    arrow: pa.Table = table.toArrow()
    return arrow


def rows_of(table: DataFrame) -> list[dict[str, Any]]:
    """A small result as plain rows."""
    rows: list[dict[str, Any]] = arrow_of(table).to_pylist()
    return rows


def steps_for(times: list[int], start_ms: int) -> PlotSteps:
    """The axis of at most `PLOT_STEPS_MAX` steps that holds these times; of none: the whole day."""
    if not times:
        return PlotSteps(start_ms, PLOT_STEPS_MS[-1], PLOT_STEPS_MAX)
    first, last = min(times), max(times)
    for step_ms in PLOT_STEPS_MS:
        begin = first - first % step_ms
        count = (last - begin) // step_ms + 1
        if count <= PLOT_STEPS_MAX:
            return PlotSteps(begin, step_ms, int(count))
    return PlotSteps(start_ms, PLOT_STEPS_MS[-1], PLOT_STEPS_MAX)


def total(values: Any) -> float:
    """The sum of an Arrow column; 0 of none."""
    return float(pc.sum(values).as_py() or 0.0)
