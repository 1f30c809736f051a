"""Records from which a cycle can be decided again, exactly: what the leader saw, and what it used.

`seen` is a broker's load report as the leader took it up. Bundles are named when they change; their
figures are rounded to 7 digits. `averages` is what was known of the bundles when a term began, and
every hour. `cycle` has everything else that a decision depends on, and the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import msgspec
import numpy as np

from loadmanager.engine.history.records import Record
from loadmanager.engine.load.bundle_columns import FIGURES, BundleColumns, figures_of
from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.reports import (
    BundleData,
    LocalBrokerData,
    ResourceUsage,
    TimeAverageMessageData,
)
from loadmanager.engine.load.wishes import Cordon, Pin
from loadmanager.engine.policies.isolation import IsolationPolicy
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.conf import Key

FORMAT = 1
"""The version of these records; a reader passes over those of a later one."""
DIGITS = 7
RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
AVERAGED = ("msg_throughput_in", "msg_throughput_out", "msg_rate_in", "msg_rate_out")
AVERAGE_FIGURES = 2 * (2 + len(AVERAGED)) + 1
COUNTS = ("last_update", "num_topics", "num_bundles", "num_consumers", "num_producers")


class ReportRecord(Record, kw_only=True):
    """A load report as the leader took it up."""

    kind: ClassVar[str] = "seen"
    format: int = FORMAT
    epoch: int
    of: str
    """The brokerId of the reporter."""
    again: bool = False
    """The leader took it up before: it is recorded for readers that begin here."""
    resources: list[float]
    """Usage and limit of CPU, memory, direct memory, bandwidth in and out, one after the other."""
    traffic: list[float]
    """Bytes/s in and out, messages/s in and out."""
    counts: list[int]
    """The report's time (ms), topics, bundles, consumers, producers."""
    traits: tuple[str | None, str | None, bool] | None = None
    """Load manager class, version, whether it serves persistent topics; None: as before."""
    bundles: list[str] | None = None
    """Bundles with statistics; None: as in the broker's record before, in this term."""
    idle: list[str] | None = None
    """Bundles without statistics; None: as before."""
    figures: list[list[float]] = msgspec.field(default_factory=list)
    """The figures of each bundle: bytes/s in, out, messages/s in, out, topics, consumers,
    producers; an empty list for a figure that is 0 everywhere.
    """


class Averages(Record, kw_only=True):
    """Averages of bundles."""

    kind: ClassVar[str] = "averages"
    format: int = FORMAT
    epoch: int
    again: bool = False
    """False: before anything else was seen in the term, of which this is the first record. True:
    once an hour, for readers that begin here.
    """
    bundles: list[str]
    figures: list[list[float]]
    """The averages of each bundle, short term then long term: most samples, samples, bytes/s in,
    out, messages/s in, out; then topics. An empty list for a figure that is 0 everywhere.
    """


class Cycle(Record, kw_only=True):
    """A leader's cycle: its input beside the reports, and its decisions."""

    kind: ClassVar[str] = "cycle"
    format: int = FORMAT
    epoch: int
    cycle: int
    strategy: str
    reports: int | None = None
    """`seen` records of the term so far: a reader knows whether it has all. None: not counted."""
    brokers: list[str] | None = None
    """The brokers with a report; this and what follows up to `failure_domains`: None: as in the
    cycle before, in this term.
    """
    settings: dict[str, str] | None = None
    """Keys of broker.conf that strategies read and that differ from their defaults."""
    isolation: dict[str, IsolationPolicy] | None = None
    groups: dict[str, str] | None = None
    """Namespace → anti-affinity group."""
    failure_domains: dict[str, list[str]] | None = None
    pins: dict[str, Pin] = msgspec.field(default_factory=dict)
    cordons: dict[str, Cordon] = msgspec.field(default_factory=dict)
    refusals: dict[str, frozenset[str]] = msgspec.field(default_factory=dict)
    leaving: dict[str, str] = msgspec.field(default_factory=dict)
    """Bundle → the broker that it leaves: moves that wait or are under way."""
    pending: dict[str, str] = msgspec.field(default_factory=dict)
    """Bundle → the broker that it is on its way to."""
    moved: dict[str, int] = msgspec.field(default_factory=dict)
    """Bundle → when it was moved (ms), within the grace period."""
    moved_brokers: dict[str, int] = msgspec.field(default_factory=dict)
    """Broker → when a bundle left it (ms)."""
    pause_s: float | None = None
    """How long a client waits for a move (s), as it was measured; None: it was not."""
    memories: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    """`shedder NAME` and `placement NAME` → what the strategy remembered before the cycle."""
    planned: dict[str, str] = msgspec.field(default_factory=dict)
    """Bundle → the destination that an earlier cycle planned."""
    draws: list[int] = msgspec.field(default_factory=list)
    """What chance said, in order."""
    moves: list[list[str | None]] = msgspec.field(default_factory=list)
    """What was decided: bundle, source, destination."""


CYCLE_KINDS: dict[str, type[Record]] = {each.kind: each for each in (Averages, Cycle, ReportRecord)}


class ReportWriter:
    """Makes `ReportRecord` records of one term; keeps which bundles each broker had."""

    def __init__(self, broker: str, epoch: int) -> None:
        self._broker = broker
        self._epoch = epoch
        self._traits: dict[str, tuple[str | None, str | None, bool]] = {}
        self._bundles: dict[str, tuple[list[str], list[str]]] = {}

    def afresh(self) -> None:
        """Name everything again: a reader may begin here."""
        self._traits.clear()
        self._bundles.clear()

    def record(
        self, ts: int, of: str, report: LocalBrokerData, *, again: bool = False
    ) -> ReportRecord:
        stats = report.last_stats
        names, idle = list(stats), [name for name in report.bundles if name not in stats]
        traits = (
            report.load_manager_class_name,
            report.broker_version_string,
            report.persistent_topics_enabled,
        )
        names_before, idle_before = self._bundles.get(of, (None, None))
        traits_before = self._traits.get(of)
        self._bundles[of], self._traits[of] = (names, idle), traits
        figures, _ = figures_of(stats, names)
        used = [getattr(report, resource) for resource in RESOURCES]
        return ReportRecord(
            ts=ts,
            broker=self._broker,
            epoch=self._epoch,
            of=of,
            again=again,
            resources=[value for each in used for value in (each.usage, each.limit)],
            traffic=[getattr(report, name) for name in AVERAGED],
            counts=[int(getattr(report, name)) for name in COUNTS],
            traits=None if traits == traits_before else traits,
            bundles=None if names == names_before else names,
            idle=None if idle == idle_before else idle,
            figures=_columns(figures),
        )


class ReportReader:
    """Makes reports of `ReportRecord` records again."""

    def __init__(self) -> None:
        self._traits: dict[str, tuple[str | None, str | None, bool]] = {}
        self._bundles: dict[str, list[str]] = {}
        self._idle: dict[str, list[str]] = {}

    def report(self, record: ReportRecord) -> LocalBrokerData | None:
        """The report; None if the record that it refers to was lost, or if it is malformed."""
        if record.traits is not None:
            self._traits[record.of] = record.traits
        if record.bundles is not None:
            self._bundles[record.of] = record.bundles
        if record.idle is not None:
            self._idle[record.of] = record.idle
        traits, names = self._traits.get(record.of), self._bundles.get(record.of)
        idle = self._idle.get(record.of)
        lengths = len(record.resources), len(record.traffic), len(record.counts)
        expected = 2 * len(RESOURCES), len(AVERAGED), len(COUNTS)
        if traits is None or names is None or idle is None or lengths != expected:
            return None
        figures = _array(record.figures, FIGURES, len(names))
        if figures is None:
            return None
        report = LocalBrokerData(
            broker_id=record.of,
            load_manager_class_name=traits[0],
            broker_version_string=traits[1],
            persistent_topics_enabled=traits[2],
            last_stats=BundleColumns({name: row for row, name in enumerate(names)}, figures),
            bundles=[*names, *idle],
        )
        pairs = zip(record.resources[::2], record.resources[1::2], strict=True)
        for resource, (usage, limit) in zip(RESOURCES, pairs, strict=True):
            setattr(report, resource, ResourceUsage(usage=usage, limit=limit))
        for name, value in (
            *zip(AVERAGED, record.traffic, strict=True),
            *zip(COUNTS, record.counts, strict=True),
        ):
            setattr(report, name, value)
        return report


def averages_record(
    ts: int, broker: str, epoch: int, data: Mapping[str, BundleData], *, again: bool
) -> Averages:
    names = sorted(data)
    rows = [_average_figures(data[name]) for name in names]
    figures = np.array(rows, np.float64).reshape(len(names), AVERAGE_FIGURES).T
    return Averages(
        ts=ts, broker=broker, epoch=epoch, again=again, bundles=names, figures=_columns(figures)
    )


def averages_of(record: Averages) -> dict[str, BundleData]:
    """The averages in a record; empty if it is malformed."""
    figures = _array(record.figures, AVERAGE_FIGURES, len(record.bundles))
    if figures is None:
        return {}
    half = AVERAGE_FIGURES // 2

    def average(values: Sequence[float]) -> TimeAverageMessageData:
        return TimeAverageMessageData(
            int(values[0]), int(values[1]), **dict(zip(AVERAGED, values[2:], strict=True))
        )

    return {
        name: BundleData(
            short_term_data=average(values[:half]),
            long_term_data=average(values[half : 2 * half]),
            topics=int(values[-1]),
        )
        for name, values in zip(record.bundles, figures.T.tolist(), strict=True)
    }


def _average_figures(data: BundleData) -> list[float]:
    return [
        value
        for each in (data.short_term_data, data.long_term_data)
        for value in (
            each.max_samples,
            each.num_samples,
            *(getattr(each, name) for name in AVERAGED),
        )
    ] + [data.topics]


def moves_of(plan: Plan) -> list[list[str | None]]:
    """Bundle, source and destination of each move of a plan."""
    return [[move.bundle, move.source, move.destination] for move in plan.unloads]


def settings_document(settings: StrategySettings) -> dict[str, str]:
    """The keys of broker.conf whose values are not the defaults."""
    document = {}
    for leaf in (settings, *settings.own.values()):
        for each in fields(leaf):
            key = each.metadata.get("key")
            value = getattr(leaf, each.name)
            if isinstance(key, Key) and value != each.default:
                document[key.name] = _text(value)
    return document


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _columns(figures: Array) -> list[list[float]]:
    """Rounded to `DIGITS` digits, so that they are short as text; whole numbers stay exact."""
    with np.errstate(divide="ignore", invalid="ignore"):
        places = DIGITS - 1 - np.floor(np.log10(np.abs(figures)))
    places = np.where(np.isfinite(places), np.clip(places, 0, 20), 0)
    rounded = np.round(figures * 10.0**places) / 10.0**places
    return [row.tolist() if row.any() else [] for row in rounded]


def _array(figures: Sequence[Sequence[float]], rows: int, columns: int) -> Array | None:
    """The figures again; None if they are malformed."""
    if len(figures) != rows or any(len(row) not in (0, columns) for row in figures):
        return None
    return np.array([row or [0.0] * columns for row in figures], np.float64).reshape(rows, columns)
