"""Questions to the archives of all brokers, whose answers are merged; what is missing is said."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from loadmanager.cli.admin.asking import OWN, ask_each
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.times import clock, span
from loadmanager.cli.terminal import Shown, table
from loadmanager.engine.history.lapses import SIGN_MS
from loadmanager.engine.history.members import MemberChange
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive_answers import (
    ArchivedEvent,
    ArchivedEvents,
    ArchivedLoads,
    ArchivedMoment,
    ArchivedSeries,
    ArchivePart,
    ArchiveParts,
    UnrecordedSpan,
)
from loadmanager.leader.interruptions import START_MS
from loadmanager.leader.owners_then import OLD_MS
from loadmanager.leader.unknown_loads import MEANS_MS

ARCHIVE = f"{OWN}/archive"
ANSWER_S = 5.0
"""A broker that does not answer within this time is left out: it may be frozen. A command waits so
long for each broker, however much it asks.
"""
GAP_MS = 30_000
"""Shorter times without a sign of a broker are not told: it gives one every ten seconds."""
GAPS_SHOWN = 5
STARTS_MAX = 500
UNREAD = "the archive of"
"""In what a broker says of an archive that cannot be read."""
NOTHING = {"bundle_load": "recorded no load of a bundle", "throttle": "recorded no limit in use"}
"""That a broker recorded no load of a kind while it recorded: it had nothing of it, or the record
was lost with its process.
"""
Part = TypeVar("Part", bound=ArchivePart)


def now_ms() -> int:
    """The time here."""
    return round(datetime.now(UTC).timestamp() * 1000)


@dataclass(slots=True)
class PartsOf(Generic[Part]):
    """The parts that answered."""

    parts: dict[str, Part]
    missing: dict[str, str]
    """Broker → why its part is not there."""
    asked: tuple[int, int] = field(default=(0, 0))
    """The time that was asked for."""
    of_daemon: bool = False
    """Whether they are of the daemon beside a cluster, and of no broker."""

    def begins(self) -> dict[str, int]:
        """Broker → when its part began, of those that recorded something in the time asked for."""
        return {name: it.recorded[0].begin for name, it in self.parts.items() if it.recorded}

    def notes(
        self,
        started: Collection[str] = (),
        stopped: Callable[[str, int], bool] = lambda _broker, _ms: False,
    ) -> list[str]:
        """What the parts that answered lack, in sentences; `started`: the brokers whose parts begin
        with their start, which lack nothing before; `stopped`: whether a broker had stopped in
        order at a time, which lacks nothing until it starts again.
        """
        since_ms, until_ms = self.asked
        notes = []
        for name, part in sorted(self.parts.items()):
            lacks = [it for it in part.unrecorded if it.touches(since_ms, until_ms)]
            begin_ms = part.recorded[0].begin if part.recorded and name in started else since_ms
            gaps = [
                text
                for at_ms, end_ms, text in _gaps(part, max(since_ms, begin_ms), until_ms)
                if not stopped(name, at_ms) and not _is_said(lacks, at_ms, end_ms)
            ]
            if gaps:
                more = f" and {len(gaps) - GAPS_SHOWN} times more" if len(gaps) > GAPS_SHOWN else ""
                notes.append(f"{name} recorded nothing {', '.join(gaps[:GAPS_SHOWN])}{more}")
            dropped = sum(run.dropped for run in part.recorded)
            if dropped and not any(it.begin and it.end for it in lacks):
                notes.append(f"{name} dropped {dropped} records in this time")
        return notes


def _is_said(lacks: Iterable[UnrecordedSpan], begin_ms: int, end_ms: int) -> bool:
    """Whether a gap is in what an archive says of itself that it lacks (`lacking_text`)."""
    return any(
        it.begin - GAP_MS <= begin_ms and (it.end is None or end_ms <= it.end + GAP_MS)
        for it in lacks
    )


def lacking_text(broker: str, it: UnrecordedSpan) -> str:
    """What the archive of a broker says that it lacks."""
    if it.end is None:
        return f"{broker} has recorded nothing since {clock(it.begin)}: {it.reason}"
    if not it.begin:
        gone = f"its archive began anew at {clock(it.end)}, without what was before"
        return f"{broker}: {gone}: {it.reason}"
    return f"{broker} did not record all {_between(it.begin, it.end)}: {it.reason}"


def _remember(
    admin: AdminClient,
    answers: Mapping[str, ArchivePart],
    missing: Mapping[str, str],
    values: Mapping[str, Any],
) -> None:
    """Have the command say what the archives lack of the time that it asks for; without one, what
    they lack now or lacked lately.
    """
    admin.lacking.unread |= {name: why for name, why in missing.items() if UNREAD in why}
    at_ms = values.get("at")
    since_ms, until_ms = values.get("since", at_ms), values.get("until", at_ms) or now_ms()
    for name, part in sorted(answers.items()):
        for it in part.unrecorded:
            if since_ms is None and not it.is_lately(now_ms()):
                continue
            if it.touches(since_ms or 0, until_ms):
                admin.lacking.times[lacking_text(name, it)] = it.end is None


def _gaps(part: ArchivePart, since_ms: int, until_ms: int) -> Iterable[tuple[int, int, str]]:
    """When each began and ended, and from when until when it was, in words."""
    at_ms = since_ms
    until_ms = min(until_ms, now_ms())
    for run in part.recorded:
        if run.begin - at_ms > GAP_MS:
            before = f"before {clock(run.begin)}"
            yield at_ms, run.begin, _between(at_ms, run.begin) if at_ms else before
        at_ms = max(at_ms, run.end)
    if until_ms - at_ms > GAP_MS:
        text = f"after {clock(at_ms)}" if part.recorded else _between(at_ms, until_ms)
        yield at_ms, until_ms, text


def _between(begin_ms: int, end_ms: int) -> str:
    return f"from {clock(begin_ms)} to {clock(end_ms)}"


def parts_of(
    admin: AdminClient,
    what: str,
    values: Sequence[tuple[str, Any]],
    shape: type[Part],
    *,
    only: str | None = None,
) -> PartsOf[Part]:
    """The answers of all archives to a question, or of that of one broker (`only`)."""
    parts = admin.get(ARCHIVE, ArchiveParts)
    if only is not None and parts.brokers:
        parts.brokers = [name for name in parts.brokers if name == only]
        parts.beside = [name for name in parts.beside if name == only]
        if not (parts.brokers or parts.beside):
            return PartsOf({}, {only: "its archive is not there"})
    query = "?" + urlencode([(name, value) for name, value in values if value is not None])
    path = f"{ARCHIVE}/{what}{query}"

    def ask(at: AdminClient, _broker: str) -> Part:
        return at.get(path, shape)

    if not (parts.brokers or only):  # a daemon: it has the only one
        answer = admin.get(path, shape)
        _remember(admin, {answer.part: answer}, {}, dict(values))
        return PartsOf({answer.part: answer}, {}, of_daemon=True)
    waited_for = [name for name in parts.brokers if name not in admin.silent]
    answers, missing = ask_each(admin, waited_for, ask, timeout_s=ANSWER_S)
    admin.silent |= {name: why for name, why in missing.items() if "did not answer" in why}
    missing |= {name: why for name, why in admin.silent.items() if name in parts.brokers}
    for name in [
        *parts.beside,
        *missing,
    ]:  # of a broker that is frozen, the file may be beside, too
        try:
            answers[name] = admin.get(f"{path}&{urlencode({'part': name})}", shape)
            missing.pop(name, None)
        except OperationalError as error:
            missing.setdefault(name, str(error))
    _remember(admin, answers, missing, dict(values))
    if not answers:
        raise OperationalError("no archive answers: " + "; ".join(sorted(missing.values())))
    return PartsOf(answers, missing)


def has_archives(admin: AdminClient) -> bool:
    """False if the broker that is asked has none, or is of a version before there were any."""
    try:
        admin.get(ARCHIVE, ArchiveParts)
    except AnsweredError as error:
        if error.status == 404:
            return False
        raise
    return True


@dataclass(slots=True)
class EventsOfAll:
    """The events of all parts, the newest first."""

    events: list[ArchivedEvent]
    missing: dict[str, str]
    notes: list[str]
    begins: dict[str, int]
    """Broker → when its part of the time that was asked for begins."""
    of_daemon: bool = False
    """See `PartsOf`."""


def events_of(
    admin: AdminClient,
    kinds: Sequence[str],
    about: str | None = None,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    limit: int = 100,
    wanted: Callable[[ArchivedEvent], bool] = lambda _event: True,
    before_start: bool = True,
) -> EventsOfAll:
    """Events of some kinds about something, from all archives. `before_start`: whether it is a gap
    when nothing is recorded before a broker's start.
    """
    values: list[tuple[str, Any]] = [("kind", kind) for kind in kinds]
    values += [("about", about), ("since", since_ms), ("until", until_ms), ("limit", limit)]
    answer = parts_of(admin, "events", values, ArchivedEvents)
    answer.asked = (since_ms or 0, until_ms or now_ms())
    events = [event for part in answer.parts.values() for event in part.events if wanted(event)]
    events.sort(key=lambda event: (event.last, event.ts), reverse=True)
    notes = answer.notes() if since_ms is not None else []
    if notes:
        members = _members(admin)
        started = set[str]() if before_start else _started(members, answer)
        notes = answer.notes(started, _stops(members))
    parts = events[:limit], answer.missing, notes, answer.begins()
    return EventsOfAll(*parts, of_daemon=answer.of_daemon)


def fields_of_change(text: str | None) -> dict[str, Any]:
    """The keys that the text of a change names; none if its text was cut off."""
    with contextlib.suppress(ValueError):
        fields = json.loads(text or "{}")
        if isinstance(fields, dict):
            return fields
    return {}


def _members(admin: AdminClient) -> Mapping[str, list[MemberChange]]:
    """Broker → when it started and stopped, as it recorded itself, the oldest first."""
    values = [("kind", MemberChange.kind), ("limit", STARTS_MAX)]
    parts = parts_of(admin, "events", values, ArchivedEvents).parts
    own = {
        name: [event.record_as(MemberChange) for event in part.events]
        for name, part in parts.items()
    }
    return {
        name: sorted(
            (it for it in changes if it.of == name and it.event in ("starts", "stops")),
            key=lambda it: it.ts,
        )
        for name, changes in own.items()
    }


def _started(
    members: Mapping[str, Sequence[MemberChange]], answer: PartsOf[ArchivedEvents]
) -> set[str]:
    """The brokers whose parts begin with their start, as far as that is recorded."""
    return {
        name
        for name, begin in answer.begins().items()
        for it in members.get(name, ())
        if it.event == "starts" and abs(it.ts - begin) <= START_MS
    }


def _stops(members: Mapping[str, Sequence[MemberChange]]) -> Callable[[str, int], bool]:
    """Whether a broker had stopped in order at a time, by its own record."""

    def stopped(broker: str, at_ms: int) -> bool:
        before = (it for it in reversed(members.get(broker, ())) if it.ts <= at_ms + GAP_MS)
        last = next(before, None)
        return last is not None and last.event == "stops"

    return stopped


@dataclass(slots=True)
class LoadsOfAll:
    """The loads of all brokers at a moment."""

    loads: list[ArchivedLoads]
    missing: dict[str, str]
    notes: list[str]
    silent: bool = False
    """Whether no part has recorded anything then."""
    quiet: set[str] = field(default_factory=set)
    """Brokers that recorded nothing at that moment: what is there of them is of before."""
    down: bool = False
    """Whether no broker of the whole cluster recorded anything around that moment."""
    outages: list[str] = field(default_factory=list)
    """Those of the cluster and of the metadata store at that moment, which are among the notes."""
    lost: dict[str, str] = field(default_factory=dict)
    """Broker → when its last sign was and when its session ended, of those for which that moment
    was in between: nobody knows whether they still served. It is among the notes, too.
    """
    unknown: dict[str, str] = field(default_factory=dict)
    """Broker → why what is recorded of it is not of that moment; it is among the notes, too."""
    measured: bool = False
    """Whether they are no means, but what had been measured last; see `said_as_of`."""


def records_since(begins: Mapping[str, int]) -> str:
    """From when on there are records; of which brokers later than of others."""
    if not begins:
        return "no archive that answers has records of this time"
    first = min(begins.values())
    later = [
        f"{name} since {clock(begin)}"
        for name, begin in sorted(begins.items(), key=lambda item: (-item[1], item[0]))
        if begin - first > GAP_MS
    ]
    more = f" and {len(later) - GAPS_SHOWN} more later" if len(later) > GAPS_SHOWN else ""
    text = f"; of {', '.join(later[:GAPS_SHOWN])}{more}" if later else ""
    return f"records since {clock(first)}{text}: what was before is not recorded"


def loads_at(admin: AdminClient, at_ms: int, *kinds: str) -> LoadsOfAll:
    """The loads of some kinds at a moment, from all archives."""
    values = [("at", at_ms), *(("kind", kind) for kind in kinds)]
    answer = parts_of(admin, "loads", values, ArchivedMoment)
    loads = [each for part in answer.parts.values() for each in part.loads]
    what = NOTHING.get(kinds[0], "recorded no load")
    notes = [
        f"{name} {what if part.recorded else 'recorded nothing'} at {clock(at_ms)}"
        for name, part in sorted(answer.parts.items())
        if not part.loads
    ]
    notes.insert(
        0,
        said_as_of(at_ms, loads, kinds[0], measured=answer.of_daemon)
        if loads
        else f"nothing is recorded of {clock(at_ms)}",
    )
    notes += _far_off(at_ms, loads)
    quiet = {name for name, part in answer.parts.items() if part.loads and not part.recorded}
    notes += [
        f"{name} recorded nothing at {clock(at_ms)}: what is shown of it is of before"
        for name in sorted(quiet)
    ]
    silent = not any(part.recorded for part in answer.parts.values())
    loads.sort(key=lambda it: it.broker)
    return LoadsOfAll(loads, answer.missing, notes, silent, quiet, measured=answer.of_daemon)


def ended_before(admin: AdminClient, past: LoadsOfAll, at_ms: int) -> dict[str, int]:
    """Broker → when its last sign of life before a moment was, of those that had ended by then, by
    their own archives: nobody recorded that they left. A broker had ended if its last sign is
    `SIGN_MS` old, or if the whole cluster was down and it gave no sign since.
    """
    since = min((it.ts - it.span_ms for it in past.loads if it.broker in past.quiet), default=None)
    if since is None:
        return {}
    values = [("since", since), ("until", at_ms), ("limit", 1)]
    parts = parts_of(admin, "events", values, ArchivedEvents).parts
    ends = {
        name: parts[name].recorded[-1].end
        for name in sorted(past.quiet & parts.keys())
        if parts[name].recorded
    }
    least_ms = 0 if past.down else SIGN_MS
    return {name: end for name, end in ends.items() if at_ms - end > least_ms}


def said_as_of(
    at_ms: int, loads: Sequence[ArchivedLoads], kind: str, *, measured: bool = False
) -> str:
    """When loads are of: the means of the time since the last record. `measured`: those of a
    daemon, which records what Pulsar's brokers have measured last, and later the mean of that.
    """
    least_ms = MEANS_MS if measured and kind != "throttle" else 0
    means = [it for it in loads if it.span_ms >= least_ms]
    then = [it.ts for it in loads if it.span_ms < least_ms]
    texts = list[str]()
    if then:
        first, last = clock(min(then)), clock(max(then))
        when = f"at {last}" if first == last else f"between {first} and {last}"
        texts.append(f"as last measured when it was recorded, {when}")
    if means:
        begin, end = min(it.ts - it.span_ms for it in means), max(it.ts for it in means)
        texts.append(f"averages of times between {clock(begin)} and {clock(end)}")
    return f"as at {clock(at_ms)}: {'; or '.join(texts)}"


def _far_off(at_ms: int, loads: Sequence[ArchivedLoads]) -> Iterable[str]:
    """Whose loads are old."""
    for broker in sorted({it.broker for it in loads}):
        end, span_ms = max((it.ts, it.span_ms) for it in loads if it.broker == broker)
        if at_ms - end > max(span_ms, OLD_MS):
            yield f"what is shown of {broker} was recorded {span(at_ms - end)} before"


def series_of(
    admin: AdminClient, kind: str, name: str, since_ms: int | None, until_ms: int | None
) -> PartsOf[ArchivedSeries]:
    """The loads of one thing, from all archives."""
    values = [("kind", kind), ("name", name), ("since", since_ms), ("until", until_ms)]
    return parts_of(admin, "series", values, ArchivedSeries)


def incomplete(notes: Sequence[str]) -> list[Shown]:
    """What is missing, as the last lines of an output."""
    return [[f"not all is here: {note}" for note in notes]] if notes else []


def listed_at(
    data: list[dict[str, Any]],
    headers: Sequence[str],
    rows: Sequence[Any],
    past: LoadsOfAll,
    nothing: str = "nothing is recorded of then",
) -> Output:
    """A table of what was recorded of a moment, with what is missing."""
    shown = table(headers, rows) if rows else nothing
    return Output(data, (shown, past.notes), status=0 if rows else 1, missing=past.missing)
