"""A recorded day as one that can be lived again under other strategies.

What every bundle carried comes from its owners' samples, in any version of the history. The history
does not say what a bundle's bytes cost its broker: the same model as the live leader's
(`engine.load.usage_model`: an idle part, a cost for each class of namespaces, brokers that differ)
is fitted to the usage of all brokers over the day (`lab.fitted`); `Recording.fit` says how well
that explains it.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.history.records import POSSIBLE, BrokerLoad, BundleLoad
from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.reports import NUMBER_MAX
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.units import DAY_MS, MINUTE_MS
from loadmanager.lab import fitted
from loadmanager.lab.days import CPU_OF_A_CORE, DayEvent, DayOfLoad, Kind
from loadmanager.lab.fitted import DayTraffic, Fit
from loadmanager.lab.measures import FLAP_MINUTES, WARM_UP_MINUTES, Measures, Minute, measure

SILENT_MINUTES = 3
"""A broker without samples for longer than this was gone."""
SMOOTH_MINUTES = 2
"""The noise of a sensor is taken out by the mean with so many minutes on each side."""
MESSAGE_BYTES = 1024.0
"""The size of messages of a bundle that carried nothing."""
MINUTES_MAX = 2 * 24 * 60
"""A recording is not longer: a clock that is wrong must not make it so."""
TIMES_MS = range(MINUTE_MS << 30)
"""Times whose minute fits into 32 bits."""
MINUTES_MIN = 30


@dataclass(frozen=True, slots=True)
class Recording:
    """A day, and what is known about it."""

    day: DayOfLoad
    start_ms: int
    fit: Fit
    """What the brokers' usage is made of, and how well that explains it."""
    modelled: tuple[Minute, ...]
    """The same by the model, without the noise of sensors."""
    happened: tuple[Minute, ...]
    """The day as it was: usage as the sensors showed it, and bundles that changed their owner."""
    lived: Measures
    """The day as it most likely was: sensors without their noise, and the model where a broker's
    could not be trusted.
    """
    left_out: int
    """Samples with impossible figures, or of another day: a clock was wrong."""
    stored: Mapping[str, float] | None = None
    """Bundle → the bytes that its open topics had stored, in the mean of the day; None: no record
    says.
    """
    owners: Mapping[str, str] = field(default_factory=dict)
    """Bundle → where it was last seen."""
    stored_of_all: Mapping[str, float] | None = None
    """Namespace → the bytes that its topics had stored, open or not, in the mean of the day; None:
    no leader counted them.
    """

    @property
    def left_out_text(self) -> str:
        """What was left out, to end a sentence with."""
        return f"; {self.left_out} impossible samples are left out" if self.left_out else ""


@dataclass(slots=True)
class _Bundle:
    """The data of a bundle beside its samples."""

    number: int
    messages: float = 0.0
    bytes: float = 0.0
    clients: int = 0
    first: tuple[int, str] = (1 << 62, "")
    """When it was first seen (ms), and where."""
    last: tuple[int, str] = (-1, "")
    """When it was last seen (ms), and where."""
    stored: float = 0.0
    """The sum of what it had stored, each for the milliseconds of its sample."""

    @property
    def message_bytes(self) -> float:
        """The mean bytes of its messages."""
        return self.bytes / self.messages if self.bytes and self.messages else MESSAGE_BYTES


@dataclass(slots=True)
class _Broker:
    number: int
    minutes: set[int] = field(default_factory=set)
    cores: Counter[float] = field(default_factory=Counter)
    """How often which number was recorded."""
    usages: dict[int, float] = field(default_factory=dict)
    """Minute → usage; of trusted samples only."""


class _Samples:
    """Traffic of bundles at brokers, in columns: a day of a large cluster has millions."""

    def __init__(self) -> None:
        self._columns: tuple[Any, ...] = (*(array("i") for _ in range(3)), array("f"), array("f"))

    def add(self, bundle: int, broker: int, minute: int, bytes_s: float, part: float) -> None:
        """`part`: of the minute that the sample stands for."""
        for column, value in zip(
            self._columns, (bundle, broker, minute, bytes_s, part), strict=True
        ):
            column.append(value)

    def of_bundles(self, start: int, minutes: int, bundles: int) -> NDArray[np.float32]:
        """Bytes/s of each bundle: `[minute, bundle]`, the mean of its samples."""
        bundle, _, minute, bytes_s, part = (np.array(column) for column in self._columns)
        inside = (minute >= start) & (minute < start + minutes)
        at = (minute[inside] - start).astype(np.int64) * bundles + bundle[inside]
        sums = np.bincount(at, bytes_s[inside] * part[inside], minutes * bundles)
        parts = np.bincount(at, part[inside], minutes * bundles)
        means = (sums / np.maximum(parts, 1e-9)).reshape(minutes, bundles)
        return means.astype(np.float32)

    def traffic(
        self, start: int, minutes: int, rows_of: Mapping[int, int], brokers: int
    ) -> DayTraffic:
        """All samples. Those that stand for more than a bundle's minute, because some are there
        twice, count for a part. `rows_of`: number of a broker → its row.
        """
        bundle, broker, minute, bytes_s, part = (np.array(column) for column in self._columns)
        inside = (minute >= start) & (minute < start + minutes)
        inside &= np.isin(broker, list(rows_of))
        since, bundle, part = (
            (minute[inside] - start).astype(np.int64),
            bundle[inside],
            part[inside],
        )
        bundles = int(bundle.max(initial=0)) + 1
        at = since * bundles + bundle
        part = part / np.maximum(np.bincount(at, part, minutes * bundles), 1)[at]
        rows = np.zeros(max(rows_of, default=0) + 1, np.int64)
        rows[list(rows_of)] = list(rows_of.values())
        return DayTraffic(
            minutes, brokers, since, rows[broker[inside]], bundle, bytes_s[inside] * part
        )

    def carried(self, start: int, minutes: int) -> Array:
        """Bytes/s of all bundles: `[minute]`."""
        _, _, minute, bytes_s, part = (np.array(column) for column in self._columns)
        inside = (minute >= start) & (minute < start + minutes)
        sums = np.bincount(minute[inside] - start, bytes_s[inside] * part[inside], minutes)
        return sums.astype(np.float64)

    def moves(
        self, start: int, minutes: int, died: Collection[tuple[int, int]]
    ) -> tuple[Array, Array, Array]:
        """Bundles that had another broker than a moment before, those of them that had moved within
        the hour, and the bytes/s of all: `[minute]`.
        `died`: numbers of brokers, and when they were gone; what others took over from them was no
        move.
        """
        bundle, broker, minute, bytes_s, _ = (np.array(column) for column in self._columns)
        order = np.lexsort((broker, minute, bundle))
        bundle, broker, minute, bytes_s = (
            each[order] for each in (bundle, broker, minute, bytes_s)
        )
        moved = np.zeros(len(bundle), np.bool_)
        moved[1:] = (bundle[1:] == bundle[:-1]) & (broker[1:] != broker[:-1])
        moved[1:] &= minute[1:] > minute[:-1]  # in one minute, both have had it
        for number, gone in died:
            taken_over = (broker[:-1] == number) & (minute[:-1] <= gone) & (minute[1:] >= gone)
            moved[1:] &= ~taken_over
        inside = moved & (minute >= start) & (minute < start + minutes)
        since = minute[inside] - start
        at, again = np.flatnonzero(moved), np.zeros(len(bundle), np.bool_)
        again[at[1:]] = (bundle[at[1:]] == bundle[at[:-1]]) & (
            minute[at[1:]] - minute[at[:-1]] <= FLAP_MINUTES
        )
        return (
            np.bincount(since, minlength=minutes).astype(np.float64),
            np.bincount(since, again[inside], minutes).astype(np.float64),
            np.bincount(since, bytes_s[inside], minutes).astype(np.float64),
        )


class _Recorder:
    """Collects the samples of a day."""

    def __init__(self, times_ms: range) -> None:
        self._times_ms = times_ms
        self._left_out = 0
        self._bundles: dict[str, _Bundle] = {}
        self._brokers: defaultdict[str, _Broker] = defaultdict(lambda: _Broker(len(self._brokers)))
        self._samples = _Samples()
        self._says_stored = False

    def sample(self, load: BrokerLoad | BundleLoad) -> None:
        """A sample; one that cannot be true is left out."""
        if load.ts not in self._times_ms or not _is_possible(load):
            self._left_out += 1
        elif isinstance(load, BrokerLoad):
            self._broker(load)
        else:
            self._bundle(load)

    def _broker(self, load: BrokerLoad) -> None:
        broker, parts = self._brokers[load.broker], _parts(load)
        broker.cores[load.cpu.limit / CPU_OF_A_CORE] += 1
        broker.minutes.update(minute for minute, _ in parts)
        lies = _lies(load)
        self._left_out += lies
        if not load.faults and not lies:
            broker.usages.update((minute, load.usage) for minute, _ in parts)

    def _bundle(self, load: BundleLoad) -> None:
        bundle = self._bundles.get(load.bundle)
        if bundle is None:
            bundle = self._bundles[load.bundle] = _Bundle(len(self._bundles))
        bytes_s = load.msg_throughput_in + load.msg_throughput_out
        broker = self._brokers[load.broker].number
        for minute, part in _parts(load):
            self._samples.add(bundle.number, broker, minute, bytes_s, part)
        bundle.messages += load.msg_rate_in + load.msg_rate_out
        bundle.bytes += bytes_s
        bundle.clients = max(bundle.clients, load.producers + load.consumers)
        if load.stored_bytes is not None:
            self._says_stored = True
            bundle.stored += load.stored_bytes * load.interval_ms
        bundle.first = min(bundle.first, (load.ts, load.broker))
        bundle.last = max(bundle.last, (load.ts, load.broker))

    def recording(self, seed: int) -> Recording:
        """The day. Raises `BadInputError` when there is too little of it."""
        sampled = [minute for broker in self._brokers.values() for minute in broker.minutes]
        if not sampled or not self._bundles:
            raise BadInputError("no samples of brokers and bundles (broker_load, bundle_load)")
        start = min(sampled)
        minutes = min(max(sampled) + 1 - start, MINUTES_MAX)
        if minutes < MINUTES_MIN:
            raise BadInputError(f"{minutes} minutes were recorded, fewer than {MINUTES_MIN}")
        names = [name for name in sorted(self._brokers) if self._brokers[name].minutes]
        cores = self._cores(names)
        brokers, events = self._presence(names, start, minutes)
        bundle_names = sorted(self._bundles)
        bundles = [self._bundles[name] for name in bundle_names]
        fit = self._fit(names, cores, start, minutes)
        day = DayOfLoad(
            seed=seed,
            minutes=minutes,
            brokers=brokers,
            cores=cores,
            bundles=tuple(bundle_names),
            clients=np.array([bundle.clients for bundle in bundles], np.int64),
            cost=np.array(
                [
                    fit.costs.of(name, each.message_bytes)
                    for name, each in zip(bundle_names, bundles, strict=True)
                ]
            ),
            message_bytes=np.array([each.message_bytes for each in bundles]),
            events=events,
            carried=self._samples.of_bundles(start, minutes, len(bundles))[
                :, [bundle.number for bundle in bundles]
            ],
            beside=fit.beside,
            slow=fit.slow,
            owners=tuple(
                bundle.first[1] if bundle.first[1] in brokers else brokers[at % len(brokers)]
                for at, bundle in enumerate(bundles)
            ),
        )
        happened = self._happened(names, start, minutes, events)
        if not any(len(minute.usage) for minute in happened[WARM_UP_MINUTES:]):
            raise BadInputError("no sensor of a broker could be trusted: its usage is not known")
        modelled = self._modelled(happened, fit, names, start)
        lived = measure(list(self._lived(modelled, names, start)))
        stored = {name: each.stored / (minutes * MINUTE_MS) for name, each in self._bundles.items()}
        return Recording(
            day,
            start * MINUTE_MS,
            fit,
            modelled,
            happened,
            lived,
            self._left_out,
            stored if self._says_stored else None,
            {name: each.last[1] for name, each in self._bundles.items()},
        )

    def _modelled(
        self, happened: Sequence[Minute], fit: Fit, names: Sequence[str], start: int
    ) -> tuple[Minute, ...]:
        """The day by the model: also of the brokers whose sensors could not be trusted, since they
        are in its replays, too.
        """
        rows: list[list[int]] = [[] for _ in happened]
        for row, name in enumerate(names):
            for minute in self._brokers[name].minutes:
                if minute - start < len(rows):
                    rows[minute - start].append(row)
        return tuple(
            replace(minute, usage=fit.used[at, of], live=tuple(names[row] for row in of))
            for at, (minute, of) in enumerate(zip(happened, rows, strict=True))
        )

    def _lived(
        self, modelled: Sequence[Minute], names: Sequence[str], start: int
    ) -> Iterator[Minute]:
        """The day by its sensors, each the mean of some minutes, and by the model without one."""
        shown = np.full((len(modelled), len(names)), np.nan)
        for row, name in enumerate(names):
            for minute, usage in self._brokers[name].usages.items():
                if minute - start < len(modelled):
                    shown[minute - start, row] = usage
        there = ~np.isnan(shown)
        sums, counts = np.zeros(shown.shape), np.zeros(shown.shape)
        for offset in range(-SMOOTH_MINUTES, SMOOTH_MINUTES + 1):
            to = slice(max(-offset, 0), len(shown) - max(offset, 0))
            of = slice(max(offset, 0), len(shown) - max(-offset, 0))
            sums[to] += np.where(there[of], shown[of], 0.0)
            counts[to] += there[of]
        smooth = sums / np.maximum(counts, 1)
        row_of = {name: row for row, name in enumerate(names)}
        for at, by_model in enumerate(modelled):
            rows = [row_of[name] for name in by_model.live]
            usages = np.where(there[at, rows], smooth[at, rows], by_model.usage)
            yield replace(by_model, usage=usages)

    def _cores(self, names: Sequence[str]) -> dict[str, float]:
        """Of each broker the number that it recorded most often."""
        recorded = {name: self._brokers[name].cores for name in names}
        cores = {
            name: max(of_broker, key=lambda number: (of_broker[number], number))
            for name, of_broker in recorded.items()
        }
        recorded_counts = [number for number in cores.values() if number > 0]
        usual = float(np.median(recorded_counts)) if recorded_counts else 1.0
        return {name: number or usual for name, number in cores.items()}

    def _presence(
        self, names: Sequence[str], start: int, minutes: int
    ) -> tuple[tuple[str, ...], tuple[DayEvent, ...]]:
        """The brokers at the beginning, and who went and came when."""
        first: list[str] = []
        events: list[DayEvent] = []
        for name in names:
            sampled = sorted({minute - start for minute in self._brokers[name].minutes})
            if sampled[0] <= SILENT_MINUTES:
                first.append(name)
            else:
                events.append(DayEvent(sampled[0], Kind.JOINS, name))
            for before, after in zip(sampled, [*sampled[1:], minutes], strict=True):
                if after - before > SILENT_MINUTES:
                    events.append(DayEvent(before + 1, Kind.DIES, name))
                    events.append(DayEvent(after, Kind.JOINS, name))
        events = [event for event in events if event.minute < minutes]
        events.sort(key=lambda event: (event.minute, event.broker))
        return tuple(first), tuple(events)

    def _fit(self, names: Sequence[str], cores: dict[str, float], start: int, minutes: int) -> Fit:
        """What the brokers' usage is made of."""
        points = [
            (minute - start, row, usage)
            for row, name in enumerate(names)
            for minute, usage in sorted(self._brokers[name].usages.items())
            if minute - start < minutes
        ]
        rows_of = {self._brokers[name].number: row for row, name in enumerate(names)}
        bundles = sorted(self._bundles.items(), key=_number)
        return fitted.fit(
            points,
            self._samples.traffic(start, minutes, rows_of, len(names)),
            bundles=[name for name, _ in bundles],
            message_bytes=np.array([each.message_bytes for _, each in bundles]),
            brokers=[(name, cores[name]) for name in names],
        )

    def _happened(
        self, names: Sequence[str], start: int, minutes: int, events: Sequence[DayEvent]
    ) -> tuple[Minute, ...]:
        died = [
            (self._brokers[event.broker].number, start + event.minute)
            for event in events
            if event.kind is Kind.DIES
        ]
        moves, again, moved = self._samples.moves(start, minutes, died)
        carried = self._samples.carried(start, minutes)
        usages: list[dict[str, float]] = [{} for _ in range(minutes)]
        for name in names:
            for minute, usage in self._brokers[name].usages.items():
                if minute - start < minutes:
                    usages[minute - start][name] = usage
        return tuple(
            Minute(
                usage=np.array(list(usage.values())),
                moves=int(moves[minute]),
                moved_bytes_s=float(moved[minute]),
                again=int(again[minute]),
                pause_s=None,
                placed=0,
                events=tuple(event for event in events if event.minute == minute),
                carried=float(carried[minute]),
                live=tuple(usage),
            )
            for minute, usage in enumerate(usages)
        )


def _number(named: tuple[str, _Bundle]) -> int:
    return named[1].number


def _is_possible(load: BrokerLoad | BundleLoad) -> bool:
    figures = [load.msg_rate_in, load.msg_rate_out, load.msg_throughput_in, load.msg_throughput_out]
    if isinstance(load, BrokerLoad):
        figures += [load.usage, load.cpu.limit]
    else:
        figures += [load.producers, load.consumers, load.stored_bytes or 0]
    return 0 < load.interval_ms <= DAY_MS and all(0 <= each <= NUMBER_MAX for each in figures)


def _lies(load: BrokerLoad) -> bool:
    """Whether its usage comes from a sensor that shows more than there is; that a broker was there
    is true nevertheless.
    """
    used = (load.cpu, load.direct_memory, load.bandwidth_in, load.bandwidth_out)
    return load.usage > POSSIBLE or any(0 < each.limit < each.usage / POSSIBLE for each in used)


def _parts(load: BrokerLoad | BundleLoad) -> list[tuple[int, float]]:
    """The minutes that a sample stands for, each with the part of it; a sample shorter than a
    minute belongs to the one in which its middle is.
    """
    if load.interval_ms <= MINUTE_MS:
        middle = (load.ts - load.interval_ms // 2) // MINUTE_MS
        return [(middle, load.interval_ms / MINUTE_MS)]
    last = (load.ts - 1) // MINUTE_MS
    count = min(round(load.interval_ms / MINUTE_MS), MINUTES_MAX)
    return [(minute, 1.0) for minute in range(last - count + 1, last + 1)]


def record(
    loads: Iterable[BrokerLoad | BundleLoad], seed: int = 1, times_ms: range = TIMES_MS
) -> Recording:
    """A day from its samples, in any order; of several that contradict each other, the mean. Those
    of other times are left out.

    Raises `BadInputError` when there is too little of it.
    """
    recorder = _Recorder(times_ms)
    for load in loads:
        recorder.sample(load)
    return recorder.recording(seed)
