"""Reads recorded days for replays and tournaments."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import msgspec

from loadmanager.engine.history.cycles import CYCLE_KINDS, Cycle, settings_document
from loadmanager.engine.history.records import BrokerLoad, BundleLoad, Decision, Record
from loadmanager.engine.history.stored import NamespaceStored
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.history import layout
from loadmanager.kit.history.source import HistorySource, Listing, Segment
from loadmanager.kit.settings import Settings
from loadmanager.kit.units import DAY_MS
from loadmanager.lab import candidates
from loadmanager.lab.day_rules import rules_of
from loadmanager.lab.exact import when
from loadmanager.lab.recorded import Recording, record
from loadmanager.lab.recorded_pauses import with_pauses


def history(url: str) -> HistorySource:
    """The history below a URL. Raises `BadInputError`."""
    return HistorySource(url)


def records(
    source: HistorySource, segments: Iterable[Segment], kind: type[Record]
) -> Iterator[Record]:
    """The records in these segments; lines that are not records are passed over."""
    decoder = msgspec.json.Decoder(kind)
    for segment in segments:
        for line in source.lines(segment):
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue


def start_ms_of(date: str) -> int:
    try:
        return layout.day_start_ms(date)
    except ValueError:
        raise BadInputError(f"{date}: a day such as 2026-11-20 is expected") from None


def recorded_day(source: HistorySource, cluster: str, date: str, seed: int = 1) -> Recording:
    """A recorded day to simulate. Raises `BadInputError` for what is no day, and when there is too
    little of it.
    """

    start_ms, listing = start_ms_of(date), _listing(source, cluster, date)

    def loads() -> Iterator[BrokerLoad | BundleLoad]:
        for kind in (BrokerLoad, BundleLoad):
            for load in records(source, listing.of(kind.kind), kind):
                assert isinstance(load, BrokerLoad | BundleLoad)
                yield load

    try:
        recording = record(loads(), seed, range(start_ms, start_ms + DAY_MS))
    except BadInputError as error:
        raise BadInputError(f"cluster {cluster} in {source.url}, {date}: {error}") from None
    recording = with_pauses(recording, _moves(source, listing))
    cycles = in_order(source, listing, [Cycle])
    rules = rules_of((each for each in cycles if isinstance(each, Cycle)), recording.start_ms)
    stored = records(source, listing.of(NamespaceStored.kind), NamespaceStored)
    return replace(
        recording,
        day=replace(recording.day, rules=rules),
        stored_of_all=stored_of_all(
            (each for each in stored if isinstance(each, NamespaceStored)), start_ms
        ),
    )


def stored_of_all(counts: Iterable[NamespaceStored], start_ms: int) -> dict[str, float] | None:
    """Namespace → the mean of a day that begins at `start_ms`, over the time that leaders' counts
    stand for; None without a count. Two leaders' counts of the same time do not add up.
    """
    sums: dict[str, float] = {}
    times: dict[str, int] = {}
    until: dict[str, int] = {}
    for each in sorted(counts, key=lambda count: count.ts):
        begun = max(each.ts - each.interval_ms, start_ms, until.get(each.namespace, start_ms))
        lasted = min(each.ts, start_ms + DAY_MS) - begun
        if lasted > 0 and each.stored_bytes >= 0:
            sums[each.namespace] = sums.get(each.namespace, 0.0) + each.stored_bytes * lasted
            times[each.namespace] = times.get(each.namespace, 0) + lasted
            until[each.namespace] = each.ts
    longest = max(times.values(), default=0)
    return {name: value / longest for name, value in sums.items()} if longest else None


def _moves(source: HistorySource, listing: Listing) -> Iterator[Decision]:
    """The leaders' records of moves that have ended."""
    decoder = msgspec.json.Decoder(Decision)
    for segment in listing.of(Decision.kind):
        for line in source.lines(segment):
            if b'"move"' in line:  # most decisions are others
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    yield decoder.decode(line)


def other_settings(
    source: HistorySource, cluster: str, dates: Iterable[str], base: Settings
) -> Iterator[str]:
    """A sentence about each day whose leader had others of the strategies' settings than `base`, at
    last; the same ones are told once. A day without records of cycles does not tell.
    """
    own, previous = _unweighted(settings_document(base.leaf(StrategySettings))), None
    for date in dates:
        in_force = _in_force(source, cluster, date)
        theirs = None if in_force is None else _unweighted(in_force)
        if theirs is None or theirs in (own, previous):
            continue
        previous = theirs
        differing = [
            f"{key}={theirs.get(key, '(its default)')}"
            for key in sorted({*own, *theirs})
            if own.get(key) != theirs.get(key)
        ]
        yield (
            f"{date}: the leader had other settings than --config and --set say: "
            f"{', '.join(differing)}"
        )


def _unweighted(keys: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in keys.items() if not key.endswith(candidates.WEIGHT)}


def settings_in_force(source: HistorySource, cluster: str, date: str) -> dict[str, str] | None:
    """The keys of the strategies' settings that a day's last leader had, but for weights; None: the
    history has no cycles of that day.
    """
    keys = _in_force(source, cluster, date)
    return None if keys is None else _unweighted(keys)


def _in_force(source: HistorySource, cluster: str, date: str) -> dict[str, str] | None:
    latest: tuple[int, dict[str, str] | None] = (0, None)
    for each in records(source, source.day(cluster, date).of(Cycle.kind), Cycle):
        assert isinstance(each, Cycle)
        if each.settings is not None and each.ts >= latest[0]:
            latest = each.ts, each.settings
    return latest[1]


def recorded_cycles(source: HistorySource, cluster: str, date: str) -> Iterator[Record]:
    """The leaders' records of a day's cycles, in the order of `exact.when`. One record of each
    leader and kind is in memory. Raises `BadInputError`.
    """
    start_ms_of(date)
    return in_order(source, _listing(source, cluster, date), CYCLE_KINDS.values())


def _listing(source: HistorySource, cluster: str, date: str) -> Listing:
    """A day's segments. Raises `BadInputError` if they were deleted because they are old."""
    listing = source.day(cluster, date)
    if not listing.segments and (why := source.why_gone(cluster, date)):
        raise BadInputError(f"cluster {cluster} in {source.url}: {why}")
    return listing


def in_order(
    source: HistorySource, listing: Listing, kinds: Iterable[type[Record]]
) -> Iterator[Record]:
    """The leaders' records of these kinds, in the order of `exact.when`."""
    streams = []
    for kind in kinds:
        by_broker: dict[str, list[Segment]] = {}
        for segment in sorted(listing.of(kind.kind), key=_age):
            by_broker.setdefault(segment.stem.rsplit("-", 2)[0], []).append(segment)
        streams += [records(source, segments, kind) for segments in by_broker.values()]
    return heapq.merge(*streams, key=when)


def _age(segment: Segment) -> tuple[int, ...]:
    """When it began, and its number; a name that tells neither comes first."""
    _, *numbers = segment.stem.rsplit("-", 2)
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else ()
