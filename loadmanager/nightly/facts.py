"""Aggregations of a day in SQL, each in one pass over one kind of records, and small enough for
this process. The questions are answered from these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loadmanager.engine.history.outages import RESTART_MS_MIN
from loadmanager.engine.history.records import POSSIBLE
from loadmanager.engine.history.tenures import Step
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SPLITTERS
from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.ingest import BEFORE, WHOLE, Ingest, good
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
MOVES_MAX = CHANGES_MAX = 100_000
RATE_MIN = 1e-6
AT_LIMIT_MIN = 0.9
"""A limit that holds somebody is used up if so much of what is configured is delivered; less says
that bursts are held.
"""
WAIT_MS_MIN = 100
"""Shorter waits, on the mean, are those of bursts if the limit is not used up."""
STEP = (
    *("ts", "broker", "bundle", "before", "after", "reason", "cause", "parent"),
    *("destination", "pauseMs", "life"),
)
MOVE = (
    *("ts", "broker", "epoch", "cycle", "move", "author", "state", "bundle", "source"),
    *(
        "destination",
        "reason",
        "outcome",
        "pauseMs",
        "clientsClosed",
        "clientsWaitedMeanMs",
        "life",
        "why",
    ),
)
DELIVERED = "greatest({})".format(
    ", ".join(
        f"CASE WHEN configured{what}PerS > {RATE_MIN} "
        f"THEN delivered{what}PerS / configured{what}PerS END"
        for what in ("Messages", "Bytes")
    )
)
"""Delivered over configured: of messages or bytes, whichever is scarcer."""
RATIO = f"({DELIVERED}) * intervalMs / stood_ms"
"""The same while the limit stood; NULL: not known."""
_OF_LIMIT = "PARTITION BY throttle.limit, level, broker ORDER BY ts"
_SAMPLES = (
    "(SELECT *, CASE WHEN level IN ('broker', 'resource group') THEN broker END AS own_broker, "
    "coalesce(queueLength, 0) AS waiting, coalesce(held, 0) AS times, "
    "coalesce(waitedMs, 0) AS waited_ms, "
    f"coalesce(ts - intervalMs - lag(ts) OVER ({_OF_LIMIT}) > {RESTART_MS_MIN}, true) AS is_new, "
    + "".join(
        f"coalesce(lag({name}) OVER ({_OF_LIMIT}) <> {name}, false) AS is_other_{what}, "
        f"first_value({name}) OVER ({_OF_LIMIT} DESC) = {name} AS is_last_{what}, "
        for what, name in (
            ("rate", "configuredMessagesPerS"),
            ("size", "configuredBytesPerS"),
        )
    ).removesuffix(", ")
    + f" FROM {good('throttle')})"
)
"""A limit that each broker enforces alone has its broker. `is_new`: the broker did not enforce it
in the interval before.
"""
_WAITS = (
    "(SELECT *, CASE WHEN NOT is_new AND (is_other_rate OR is_other_size) THEN NULL "
    "WHEN NOT is_new AND stoodMs IS NULL THEN intervalMs WHEN stoodMs IS NOT NULL "
    "THEN least(greatest(stoodMs, 1), intervalMs) END AS stood_ms "
    f"FROM {_SAMPLES} AS samples)"
)
"""For how long of the interval a limit stood; NULL: nobody knows, since it is new in a history of
earlier versions; or it changed, so that nobody knows what was delivered since.
"""
_THROTTLED = (
    "(SELECT *, CASE WHEN waiting > 0 AND times - waiting <= waiting THEN span_ms ELSE least("
    "CASE WHEN waiting > 0 THEN waited_ms * times / greatest(times - waiting, 1) "
    "ELSE waited_ms END, span_ms) END AS held_ms "
    f"FROM (SELECT *, coalesce(stood_ms, intervalMs) AS span_ms FROM {_WAITS} AS waits) AS spans)"
)
"""For how long somebody was held: for as long as the waits took that ended in the interval. If
clients wait at its end, and more waits than these ended in it, theirs are taken to be as long;
otherwise clients are taken to have waited all the time that the limit stood.
"""
NAMESPACE_CHANGE = re.compile(
    r"(PUT|DELETE) /admin/v2/namespaces/([^/?]+/[^/?]+)(?:\?.*)?", re.DOTALL
)
"""What an operator asked for."""


THROUGHPUT = "(coalesce(msgThroughputIn, 0) + coalesce(msgThroughputOut, 0))"
"""Bytes/s in and out."""
RATE = "(coalesce(msgRateIn, 0) + coalesce(msgRateOut, 0))"
"""Messages/s in and out."""


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
        idle = f"(coalesce(bundles, 0) = 0 OR {RATE} = 0)"
        overloaded = float(self.settings.overloaded_percent / 100)
        sums = [
            "count(*) AS samples",
            "count(DISTINCT ts) AS times",
            "min_by(ts - intervalMs, ts) AS begun",
            "array_agg(before_ts) FILTER (WHERE paused) AS paused_ts",
            "array_agg(ts - intervalMs) FILTER (WHERE paused) AS resumed_ts",
            "max_by(ts, intervalMs) AS longest_ts",
            "max(intervalMs) AS longest_ms",
            _whole("sum(intervalMs)", "interval_ms"),
            _whole(f"sum(CASE WHEN usage > {overloaded!r} THEN intervalMs ELSE 0 END)", "over_ms"),
            _whole(f"sum(CASE WHEN {idle} THEN intervalMs ELSE 0 END)", "idle_ms"),
            f"min(CASE WHEN NOT {idle} THEN ts END) AS busy_ts",
            "sum(usage) AS usage_sum",
            "max(usage) AS usage_max",
            f"sum({THROUGHPUT}) AS throughput_sum",
            f"min({THROUGHPUT}) AS throughput_min",
            f"max({THROUGHPUT}) AS throughput_max",
            f"sum({RATE}) AS rate_sum",
            "min(ts) AS first_ts",
            "max(ts) AS last_ts",
            "max(coalesce(bundles, 0)) AS bundles_max",
            "median(cpu.limit) AS cpu_limit",
            "array_agg(faults) FILTER (WHERE size(faults) > 0) AS faults",
        ]
        for name in RESOURCES:
            used, limit = f"{name}.usage", f"{name}.limit"
            fraction = f"CASE WHEN {limit} > 0 THEN {used} / {limit} END"
            sums += [
                f"avg(CASE WHEN ({fraction}) <= {POSSIBLE} THEN {fraction} END) AS {name}_mean",
                f"min(CASE WHEN {limit} > 0 THEN {used} END) AS {name}_least",
                f"max(CASE WHEN {limit} > 0 THEN {used} END) AS {name}_most",
                f"count(*) FILTER (WHERE ({fraction}) > {POSSIBLE}) AS {name}_impossible",
            ]
        bucket = f"ts - ts % {BUCKET_MS}"
        before = f"lag(ts) OVER (PARTITION BY broker, {bucket} ORDER BY ts, ts - intervalMs)"
        rows = self._rows(
            f"SELECT broker, bucket, {', '.join(sums)} FROM ("
            f"SELECT *, ts - intervalMs - before_ts > {RESTART_MS_MIN} AS paused FROM ("
            f"SELECT *, {bucket} AS bucket, {before} AS before_ts FROM {good('broker_load')}"
            ") AS samples) AS samples GROUP BY broker, bucket"
        )
        twice = sum(row["samples"] - row["times"] for row in rows)
        if twice:
            self.notices.append(
                f"broker_load: {twice:,} records have the broker and the time{OF_TWINS}"
            )
        for row in rows:
            pauses = sorted(
                zip(row.pop("paused_ts") or (), row.pop("resumed_ts") or (), strict=True)
            )
            row["pauses"] = [{"ts": ts, "begun": begun} for ts, begun in pauses]
            longest_ts = row.pop("longest_ts")
            row["longest"] = {"begun": longest_ts - row.pop("longest_ms"), "ts": longest_ts}
            row["faults"] = [fault for faults in row["faults"] or () for fault in faults]
        return sorted(rows, key=lambda row: (row["broker"], row["bucket"]))

    @cached_property
    def usage_quantiles(self) -> dict[str, list[float]]:
        """Broker → its usage that half, 95 % and 99 % of the samples do not exceed."""
        shares = {"half": 0.5, "most": 0.95, "all_but_a_few": 0.99}
        parts = (f"percentile(usage, {share}) AS {name}" for name, share in shares.items())
        query = f"SELECT broker, {', '.join(parts)} FROM {good('broker_load')} GROUP BY broker"
        return {row["broker"]: [row[name] for name in shares] for row in self._rows(query)}

    @cached_property
    def plot_steps(self) -> PlotSteps:
        """The axis that fits the loads of brokers."""
        times = [(row["first_ts"], row["last_ts"]) for row in self.brokers]
        return steps_for([ts for pair in times for ts in pair], self.start_ms)

    @cached_property
    def bundles(self) -> pa.Table:
        """Traffic of each bundle at each of its owners."""
        return self._totals("bundles", "bundle", "broker")

    @cached_property
    def topics(self) -> pa.Table:
        """Traffic of each recorded topic in each bundle."""
        return self._totals("topics", "topic", "bundle")

    def _totals(self, sums: str, name: str, place: str) -> pa.Table:
        parts = (
            _whole(f"{how}({column})", column)
            if column in WHOLE
            else f"{how}({column}) AS {column}"
            for column, how in SUMS.items()
        )
        return self._query(
            f"SELECT {name}, {place}, {', '.join(parts)} FROM {sums} GROUP BY {name}, {place}"
        )

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
        by_hour = self._rows(
            "SELECT namespace, hour, sum(bytes) AS bytes, sum(messages) AS messages, "
            "sum(connection_hours) AS connection_hours FROM namespaces GROUP BY namespace, hour"
        )
        return sorted(by_hour, key=lambda row: (row["namespace"], row["hour"]))

    @cached_property
    def steps(self) -> list[Step]:
        """Steps of bundles on brokers, in the order of each broker's own clock."""
        return self._steps(good("ownership"))

    @cached_property
    def steps_before(self) -> list[Step]:
        """The ownership records of the last hours of the day before, if it was analysed."""
        if not self.ingest.has_before("ownership"):
            return []
        grace_ms = int(self.settings.grace_period_minutes * 60_000)
        since_ms = self.start_ms - max(grace_ms, HOUR_MS)
        return self._steps(f"{good(f'ownership{BEFORE}')} WHERE ts >= {since_ms}")

    def _steps(self, records: str) -> list[Step]:
        arrow = self._query(f"SELECT {', '.join(STEP)} FROM {records} LIMIT {STEPS_MAX + 1}")
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
        moves = self._rows(
            f"SELECT {', '.join(MOVE)} FROM {good('decision')} WHERE action = 'move' "
            f"ORDER BY ts DESC, broker, move, bundle LIMIT {MOVES_MAX}"
        )
        return sorted(moves, key=lambda row: (row["ts"], row["move"] or ""))

    @cached_property
    def breaker_stops(self) -> list[dict[str, Any]]:
        """When the circuit breaker of a daemon beside a Pulsar stopped moves, and why."""
        stops = self._rows(
            f"SELECT ts, broker, reason FROM {good('decision')} WHERE action = 'skip' "
            f"AND strategy = '{BREAKER}' AND code = '{BREAKER}' "
            f"ORDER BY ts DESC, broker, reason LIMIT {MOVES_MAX}"
        )
        return sorted(stops, key=lambda row: (row["ts"], row["broker"]))

    @cached_property
    def terms(self) -> list[dict[str, Any]]:
        """The leaders' terms, by their decisions and by what leaders said as they began, with
        their last shedders.
        """
        others = ", ".join(f"'{name}'" for name in (*SPLITTERS, BREAKER, USAGE_MODEL))
        sheds = f"action IN ('unload', 'skip') AND strategy NOT IN ({others})"
        terms = self._rows(
            "SELECT epoch, broker, min(ts) AS ts, max(ts) AS last_ts, "
            f"max_by(strategy, CASE WHEN {sheds} THEN ts END) AS strategy, "
            "count(*) FILTER (WHERE action = 'unload') AS unloads "
            f"FROM {good('decision')} GROUP BY epoch, broker"
        )
        decided = {(row["epoch"], row["broker"]): row for row in terms}
        for begun in self.members:
            if begun["event"] != "leads" or begun["epoch"] is None:
                continue
            row = decided.setdefault(
                (begun["epoch"], begun["broker"]),
                {"strategy": None, "unloads": 0, "last_ts": begun["ts"], **begun},
            )
            row["ts"], row["before"] = min(row["ts"], begun["ts"]), begun["before"]
        return sorted(decided.values(), key=lambda row: (row["epoch"], row["ts"], row["broker"]))

    @cached_property
    def members(self) -> list[dict[str, Any]]:
        """What was recorded of brokers that left, started, stopped, stood still or had no proof of
        their sessions, and of leaders that began, in order of time.
        """
        changes = self._rows(
            "SELECT ts, broker, of, event, how, epoch, before, unheardMs AS unheard_ms, "
            "leftAt AS left_at, tookMs AS took_ms "
            f"FROM {good('member')} "
            "WHERE event IN ('left', 'leads', 'starts', 'stops', 'stood', 'unanswered', 'proven') "
            f"ORDER BY ts DESC, broker, of, event, how, epoch LIMIT {CHANGES_MAX}"
        )
        return sorted(changes, key=lambda row: (row["ts"], row["broker"], row["of"]))

    @property
    def shedder(self) -> str | None:
        """The shedder of the last leader; None if no record tells."""
        return next((row["strategy"] for row in reversed(self.terms) if row["strategy"]), None)

    @cached_property
    def namespace_changes(self) -> list[dict[str, Any]]:
        """Namespaces that were made and deleted, in order of time."""
        methods = " OR ".join(
            f"what LIKE '{method} /admin/v2/namespaces/%'" for method in ("PUT", "DELETE")
        )
        changes = self._rows(
            f"SELECT ts, broker, role, address, what FROM {good('change')} WHERE ({methods}) "
            "AND failed IS NOT TRUE "
            f"ORDER BY ts DESC, broker, what LIMIT {CHANGES_MAX}"
        )
        matches = [(row, NAMESPACE_CHANGE.fullmatch(row["what"])) for row in changes]
        rows = [
            {**row, "method": matched[1], "namespace": matched[2]}
            for row, matched in matches
            if matched is not None
        ]
        return sorted(rows, key=lambda row: (row["ts"], row["namespace"]))

    @cached_property
    def limits(self) -> list[dict[str, Any]]:
        """Each limit; one that each broker enforces alone, on each broker."""
        mostly = "held_ms >= span_ms / 2"
        wanted = f"{mostly} OR {RATIO} >= {AT_LIMIT_MIN} OR waited_ms >= {WAIT_MS_MIN} * times"
        lasting = "stood_ms IS NOT NULL AND is_last_rate AND is_last_size"
        begun = "CASE WHEN is_new THEN ts - coalesce(stood_ms, 0) ELSE ts END"
        sums = [
            "count(*) AS samples",
            "max_by(configuredMessagesPerS, ts) AS configured_messages_per_s",
            "max_by(configuredBytesPerS, ts) AS configured_bytes_per_s",
            *(
                f"sum(delivered{what}PerS * intervalMs) FILTER (WHERE {lasting}) / "
                f"sum(stood_ms) FILTER (WHERE {lasting}) AS delivered_{name}_per_s"
                for what, name in (("Messages", "messages"), ("Bytes", "bytes"))
            ),
            f"median(CASE WHEN {mostly} THEN {RATIO} END) AS let_through",
            f"count(*) FILTER (WHERE {mostly} AND stood_ms IS NOT NULL) AS mostly_held",
            _whole(f"sum(CASE WHEN {mostly} THEN span_ms END)", "mostly_held_ms"),
            "sum(held_ms) AS held_ms",
            _whole("sum(span_ms)", "interval_ms"),
            "TRY_CAST(sum(CAST(times AS DOUBLE)) AS BIGINT) AS times_held",
            "sum(waited_ms) / 1000 AS waited_s",
            f"sum(CASE WHEN {wanted} THEN waited_ms ELSE 0 END) / 1000 AS wanted_more_s",
            "max(waiting) AS queue_length_max",
            _whole(f"min(CASE WHEN held_ms > 0 THEN {begun} END)", "held_first_ts"),
            "max(CASE WHEN held_ms > 0 THEN ts END) AS held_last_ts",
        ]
        return self._rows(
            f"SELECT t.limit AS limit, level, own_broker AS broker, {', '.join(sums)} "
            f"FROM {_THROTTLED} AS t GROUP BY t.limit, level, own_broker"
        )

    def delivered(self, limits: list[str]) -> list[dict[str, Any]]:
        """Delivered over configured of these limits, by the steps of the plots."""
        if not limits:
            return []
        axis = self.plot_steps
        step = f"CAST(floor((ts - {axis.start_ms}) / {axis.step_ms}) AS BIGINT)"
        asked = pa.table({"name": limits})
        return self._rows(
            f"SELECT t.limit AS limit, own_broker AS broker, {step} AS step, "
            f"avg({RATIO}) AS value FROM {_THROTTLED} AS t JOIN asked ON t.limit = asked.name "
            f"GROUP BY t.limit, own_broker, {step}",
            asked=asked,
        )

    def _query(self, sql: str, **small: pa.Table) -> pa.Table:
        return self.ingest.engine.query(sql, **small)

    def _rows(self, sql: str, **small: pa.Table) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._query(sql, **small).to_pylist()
        return rows


def _whole(sum_: str, name: str) -> str:
    """A sum of whole numbers, which DuckDB makes wider than Spark."""
    return f"CAST({sum_} AS BIGINT) AS {name}"


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
