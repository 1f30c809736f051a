"""`loadmanager admin trend`: how the load of a thing, or of the whole cluster, went over a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from loadmanager.cli.admin.archives import PartsOf, incomplete, now_ms, series_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.names_then import kind_of, unknown_then
from loadmanager.cli.admin.times import (
    at_option,
    clock,
    since_option,
    span,
    until_of,
    until_option,
)
from loadmanager.cli.terminal import Cell, table
from loadmanager.engine.history.records import BrokerLoad, BundleLoad, TopicLoad
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive_answers import ArchivedSeries
from loadmanager.kit.names import TopicName
from loadmanager.kit.units import HOUR_MS, MINUTE_MS

ALL = "/"
"""The name of the sum of all that is recorded of a kind."""
PARTS_MAX = 24
LENGTHS_MS = (
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12, 24)),
)
LACKS_MS = 1_000
"""A part of which at least so much is not recorded says so."""
BAR = 20
MESSAGES = ("msg_rate_in", "msg_rate_out")
BYTES = ("msg_throughput_in", "msg_throughput_out")
CLIENTS = ("producers", "consumers")


@dataclass(frozen=True, slots=True)
class Mean:
    """Means over one of the equal parts of a time, of what is recorded of it."""

    begin_ms: int
    end_ms: int
    recorded_ms: int
    """For how much of it there are records of any broker."""
    figures: dict[str, float]
    """By the columns of the records; empty: none."""

    def sum(self, *columns: str) -> float | None:
        """That of some figures; None without a record."""
        return sum(self.figures[column] for column in columns) if self.figures else None

    @property
    def messages(self) -> float:
        """Messages/s in and out; 0 without a record."""
        return self.sum(*MESSAGES) or 0.0


def means_of(
    parts: Iterable[ArchivedSeries], begin_ms: int, end_ms: int, length_ms: int
) -> list[Mean]:
    """Means over equal parts of a time, which begin at multiples of their length: the sums of what
    brokers recorded, over the time of which any did.
    """
    parts = [part for part in parts if part.points]
    columns = parts[0].columns if parts else []
    first = begin_ms // length_ms
    sums = [[0.0] * len(columns) for _ in range(first, -(-end_ms // length_ms))]
    times: list[list[tuple[int, int]]] = [[] for _ in sums]
    for point in (point for part in parts for point in part.points):
        begin, end = max(point.ts - point.span_ms, begin_ms), min(point.ts, end_ms)
        for number in range(begin // length_ms, -(-end // length_ms) if begin < end else 0):
            from_ms, to_ms = max(begin, number * length_ms), min(end, (number + 1) * length_ms)
            own = sums[number - first]
            own[:] = (a + b * (to_ms - from_ms) for a, b in zip(own, point.figures, strict=True))
            times[number - first].append((from_ms, to_ms))
    means = []
    for number, (own, those) in enumerate(zip(sums, times, strict=True), first):
        begin, end = max(begin_ms, number * length_ms), min(end_ms, (number + 1) * length_ms)
        lasts_ms = _covered(those)
        figures = [it / lasts_ms for it in own] if lasts_ms else []
        means.append(Mean(begin, end, lasts_ms, dict(zip(columns, figures, strict=False))))
    return means


def _covered(times: Iterable[tuple[int, int]]) -> int:
    """How long they last together; what some of them share counts once."""
    covered = until = 0
    for begin, end in sorted(times):
        covered += max(0, end - max(begin, until))
        until = max(until, end)
    return covered


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is recorded of a thing over a time."""

    what: str
    """Of what it is, if that is not what was asked for."""
    kind: str
    parts: PartsOf[ArchivedSeries]

    def times(self) -> list[tuple[int, int]]:
        """From when to when each record is."""
        points = (point for part in self.parts.parts.values() for point in part.points)
        return [(point.ts - point.span_ms, point.ts) for point in points]

    def line(self) -> str:
        """The mean and the most of its messages in and out, by minutes; empty without a record."""
        times = self.times()
        if not times:
            return ""
        begin, end = min(times)[0], max(it[1] for it in times)
        series = self.parts.parts.values()
        minutes = [it for it in means_of(series, begin, end, MINUTE_MS) if it.figures]
        lasts_ms = sum(it.recorded_ms for it in minutes)
        mean = sum(it.messages * it.recorded_ms for it in minutes) / lasts_ms
        peak = max(minutes, key=lambda it: it.messages)
        if len(set(times)) == 1:
            return f"{self.what} at {clock(end)}: {mean:,.1f} messages/s"
        most = f"at most {peak.messages:,.1f} in the minute from {clock(peak.begin_ms)}"
        return (
            f"{self.what} from {clock(begin)} to {clock(end)}: {mean:,.1f} messages/s on average, "
            f"{most}"
        )


def recorded_of(
    admin: AdminClient, names: Sequence[str], since_ms: int | None, until_ms: int | None
) -> Recorded:
    """What is recorded of the first of these names, or of the bundle among them; without any, of
    the whole cluster. Raises `OperationalError` if no archive answers.
    """
    bundle = next((it for it in names if "_0x" in it), None)
    name = bundle or (names[0] if names else ALL)
    what = "load" if not names or name == names[0] else f"load of its bundle {name}"
    kind = BrokerLoad.kind if name == ALL or kind_of(name) == "broker" else BundleLoad.kind
    of = name if name == ALL or kind_of(name) in ("broker", "bundle") else f"{name}/"
    parts = series_of(admin, kind, of, since_ms, until_ms)
    if of in parts.parts:  # what other brokers lack is none of it
        parts.parts = {of: parts.parts[of]}
    return Recorded(what, kind, parts)


def _of_topic(
    admin: AdminClient, topic: str, since_ms: int | None, until_ms: int | None
) -> Recorded:
    return Recorded(
        "load", TopicLoad.kind, series_of(admin, TopicLoad.kind, topic, since_ms, until_ms)
    )


@click.command(cls=AdminCommand)
@click.argument("name", metavar="[BROKER|BUNDLE|TOPIC|NAMESPACE|TENANT]", default="")
@since_option
@until_option
@at_option
def trend(
    admin: AdminClient, name: str, since: int | None, until: int | None, *, at: int | None
) -> Output:
    """Show how the load of a broker, bundle, topic, namespace or tenant went, or of all: the last
    hour, or any time.

    Means over equal parts of the last hour, or of the time since --since; with --at, of the hour
    before.

    The archives of all brokers answer: means over minutes, and over quarters of an hour of what was
    more than a day ago; a minute is recorded once it is over. Topics are recorded while they are
    among the busiest of their broker. A broker's usage is that of its fullest resource, as
    shedders see it; the whole cluster's CPU is what its brokers use of all that they have. KiB/s
    are in and out together.
    """
    end_ms = until_of(at, until) or now_ms()
    begin_ms = end_ms - HOUR_MS if since is None else since
    if begin_ms >= end_ms:
        raise click.UsageError("--since is not before the end of the time")
    if name.count("/") == 2 and "://" not in name and "_0x" not in name:
        name = str(TopicName.parse(name))
    if "://" in name:
        recorded = _of_topic(admin, name, begin_ms, end_ms)
    else:
        recorded = recorded_of(admin, [name] if name else [], begin_ms, end_ms)
    parts = recorded.parts
    parts.asked = (begin_ms, end_ms)
    times = recorded.times()
    if not times:
        if name and (unknown := unknown_then(admin, name, begin_ms)):
            raise OperationalError(unknown)
        text = f"no load {f'of {name} ' if name else ''}is recorded from {clock(begin_ms)} to "
        return Output([], (f"{text}{clock(end_ms)}",), status=1, missing=parts.missing)
    begin_ms, end_ms = max(begin_ms, min(times)[0]), min(end_ms, max(end for _, end in times))
    means = means_of(parts.parts.values(), begin_ms, end_ms, _length_ms(begin_ms, end_ms))
    notes = [] if parts.of_daemon else [*_lacks(means), *parts.notes()]
    if any(part.cut_off for part in parts.parts.values()):
        notes.append("there are more records than are read at once: ask for a shorter time")
    data = [_shown(it) for it in means]
    return Output(
        data,
        (_table(recorded.kind, means, name == ""), recorded.line(), *incomplete(notes)),
        missing=parts.missing,
    )


def _length_ms(begin_ms: int, end_ms: int) -> int:
    """The shortest of usual lengths of which not too many fill the time."""
    least_ms = (end_ms - begin_ms) / PARTS_MAX
    days = -(-(end_ms - begin_ms) // (PARTS_MAX * 24 * HOUR_MS))
    return next((it for it in LENGTHS_MS if it >= least_ms), days * 24 * HOUR_MS)


def _lacks(means: Sequence[Mean]) -> Iterator[str]:
    """Of which parts something is not recorded."""
    for it in means:
        lacks_ms = it.end_ms - it.begin_ms - it.recorded_ms
        if lacks_ms >= LACKS_MS and it.figures:
            yield (
                f"the part from {clock(it.begin_ms)} is the mean of the {span(it.recorded_ms)} of "
                "it that are recorded"
            )


def _shown(it: Mean) -> dict[str, Any]:
    return {
        "beginMs": it.begin_ms,
        "endMs": it.end_ms,
        "recordedMs": it.recorded_ms,
        "means": it.figures or None,
    }


def _table(kind: str, means: Sequence[Mean], of_all: bool) -> Any:
    headers = ["from", "msg in/s", "msg out/s", "KiB/s", *_more_headers(kind, of_all), "trend"]
    of_usage = kind == BrokerLoad.kind and not of_all
    bars = [(it.sum("usage") or 0.0) if of_usage else it.messages for it in means]
    most = max(1.0 if of_usage else 0.0, *bars)
    rows = []
    for it, bar in zip(means, bars, strict=True):
        throughput = it.sum(*BYTES)
        rows.append(
            [
                clock(it.begin_ms),
                *(it.sum(column) for column in MESSAGES),
                None if throughput is None else throughput / 1024,
                *_more(kind, of_all, it),
                "█" * round(BAR * bar / most) if most and it.figures else "",
            ]
        )
    return table(headers, rows)


def _more_headers(kind: str, of_all: bool) -> list[str]:
    if kind == BrokerLoad.kind:
        return [*([] if of_all else ["usage %"]), "CPU %", "bundles", "clients"]
    return ["backlog" if kind == TopicLoad.kind else "topics", "clients"]


def _more(kind: str, of_all: bool, it: Mean) -> Iterator[Cell]:
    """What brokers, topics or bundles have besides traffic."""
    if kind == BrokerLoad.kind:
        if not of_all:
            yield it.figures["usage"] * 100 if it.figures else None
        yield 100 * it.figures["cpu_usage"] / (it.figures["cpu_limit"] or 1) if it.figures else None
        yield it.sum("bundles")
    else:
        yield it.sum("backlog_messages" if kind == TopicLoad.kind else "topics")
    yield it.sum(*CLIENTS)
