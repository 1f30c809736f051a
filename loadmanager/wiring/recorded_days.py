"""Reads recorded days for replays and tournaments."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadmanager.analysis.history_source import HistorySource
from loadmanager.core.errors import BadInputError
from loadmanager.core.history.records import BrokerLoad, BundleLoad, Record
from loadmanager.simulator.recorded import Recording, record


def history(url: str) -> HistorySource:
    """The history below a URL. Raises `BadInputError`."""
    return HistorySource(url)


def cluster_of(source: HistorySource, cluster: str | None) -> str:
    """The cluster, if there is no other. Raises `BadInputError`."""
    found = source.clusters()
    if cluster is None and len(found) == 1:
        return found[0]
    if cluster is None or cluster not in found:
        raise BadInputError(
            f"{source.url}: which cluster? There are {', '.join(found) or 'none'}: --cluster"
        )
    return cluster


def records(source: HistorySource, cluster: str, date: str, kind: type[Record]) -> Iterator[Record]:
    """The records of one kind of a day; lines that are no records are passed over."""
    decoder = msgspec.json.Decoder(kind)
    for segment in source.day(cluster, date).of(kind.kind):
        for line in source.lines(segment):
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue


def recorded_day(source: HistorySource, cluster: str, date: str, seed: int = 1) -> Recording:
    """A day to be lived again. Raises `BadInputError` when there is too little of it."""

    def loads() -> Iterator[BrokerLoad | BundleLoad]:
        for kind in (BrokerLoad, BundleLoad):
            for load in records(source, cluster, date, kind):
                assert isinstance(load, BrokerLoad | BundleLoad)
                yield load

    try:
        return record(loads(), seed)
    except BadInputError as error:
        raise BadInputError(f"{source.url}: {cluster}, {date}: {error}") from None
