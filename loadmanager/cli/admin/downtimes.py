"""When no broker of the cluster was there: nobody was left to record that the others had gone; and
when brokers stood still or could not prove their sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from loadmanager.cli.admin.archives import (
    STARTS_MAX,
    LoadsOfAll,
    ended_before,
    events_of,
    now_ms,
    parts_of,
)
from loadmanager.cli.admin.asking import OWN, V2
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.times import clock, span, time_of_day
from loadmanager.engine.history.lapses import (
    SAME_MS,
    SIGN_MS,
    SessionLapse,
    Unproven,
    together,
)
from loadmanager.engine.history.members import MemberChange, left_at_of, unheard_of
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedEvents
from loadmanager.leader.interruptions import DOWN_MS, ClusterDown, between, downs_of
from loadmanager.leader.outages import unproven_since
from loadmanager.leader.unknown_loads import lost_about as lost_by_signs
from loadmanager.leader.unknown_loads import sign_text, unknown_loads

STORE = "metadata store"
"""What a broker names that cannot lead, or knows no leader, for want of it."""
NAMED_MAX = 3
LAPSES_MAX = 5
STILL = "frozen, or without a CPU"
NONE_RECORDED = "all had ended, or none could record"
NO_END = "no record tells how that ended"
FOLDER, SYNC = "loadManagerStorageDirectory", "loadManagerStorageSync"
FRESH_MS = 600_000
"""So long after it, a crash of the whole cluster is told before all else."""
LAPSE_MS_MAX = 3_600_000
"""What lasted longer is not looked for when a moment is shown."""


class Downtime(ClusterDown):
    """A time in which no broker recorded anything, in words."""

    def __str__(self) -> str:
        """As a sentence."""
        begin, end, took = clock(self.begin), clock(self.end), span(self.end - self.begin)
        if self.in_order:
            why = "all brokers had stopped in order"
            return f"the whole cluster was down from {begin} to {end} ({took}): {why}"
        between = f"from {begin} at the earliest to {end} ({took} at most)"
        return f"the whole cluster was down {between}: no broker recorded anything"

    def is_fresh(self, at_ms: int) -> bool:
        """Whether it ended shortly before a time, and was no orderly stop."""
        return not self.in_order and 0 <= at_ms - self.end <= FRESH_MS


def downtimes(admin: AdminClient, since_ms: int = 0) -> list[Downtime]:
    """Those that ended later than this, the oldest first; none without archives."""
    values = [("kind", MemberChange.kind), ("limit", STARTS_MAX)]
    try:
        answer = parts_of(admin, "events", values, ArchivedEvents)
    except (AnsweredError, OperationalError):
        return []
    if answer.of_daemon:
        return []
    downs = downs_of(answer.parts.values(), since_ms)
    return [Downtime(it.begin, it.end, it.in_order, it.ended) for it in downs]


def lately_down(downs: Iterable[Downtime], at_ms: int) -> list[str]:
    """A line for each crash of the whole cluster that ended shortly before a time."""
    return [f"{it}, {span(at_ms - it.end)} ago" for it in downs if it.is_fresh(at_ms)]


def receipts_kept(admin: AdminClient) -> list[str]:
    """What a crash of the whole cluster means for messages with a receipt, by where the settings of
    the broker that answers have them; empty if it does not say.
    """
    try:
        keys = admin.get(f"{V2}/brokers/configuration/runtime", dict[str, str])
        folder, sync = keys[FOLDER], keys[SYNC]
    except (LoadManagerError, KeyError):
        return []
    others = "those of topics in memory (non-persistent://) that were not consumed are lost"
    if not folder:
        text = f"all topics were in memory ({FOLDER} is empty): what was not consumed is lost"
    elif sync == "always":
        text = (
            f"messages of persistent:// topics with a receipt were on the disk ({SYNC}=always), "
            f"and are read from there as their topics are opened; {others}"
        )
    else:
        text = (
            f"messages of persistent:// topics with a receipt were written, not yet synced "
            f"({SYNC}={sync}): brokers that were killed lost none, a machine that failed may have "
            f"lost the last ones; {others}"
        )
    return [f"as {admin.url} is set: {text}"]


class Lapse(SessionLapse):
    """A time in which brokers together stood still or could not prove their sessions, in words."""

    def __str__(self) -> str:
        """As a sentence."""
        since = self.since
        between = f"from {clock(since)} to {clock(self.end)} ({span(self.end - since)})"
        if self.is_open:
            between = f"from {clock(since)} until {clock(self.end)} at least"
        first, *others = names = sorted(self.brokers)
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        who = f"{', '.join(names[:NAMED_MAX])}{more}"
        stood_ms = min((self.stood_ms.get(name, 0) for name in names), default=0)
        if stood_ms and self.end - self.begin - stood_ms <= SAME_MS:
            return f"{between} {who} stood still: {STILL}"
        if self.is_open:
            return f"{between} {who} had no answer of the metadata store: {NO_END}"
        if not self.is_unproven:
            proven = "their sessions stayed proven" if others else "its session stayed proven"
            return f"{between} at most {who} had no answer of the metadata store: {proven}"
        if since < self.begin:
            prove = (
                "they could not prove their sessions" if others else "its session was not proven"
            )
            return (
                f"{between} at most {who} had no answer of the metadata store: {prove} from "
                f"{time_of_day(self.begin)} on"
            )
        if not others and stood_ms:
            why = f"it stood still for {span(stood_ms)}, {STILL}"
            return f"{between} {first} could not prove its session: {why}"
        if not others:
            why = "it stood still, or did not reach the metadata store"
            return f"{between} {first} could not prove its session: {why}"
        return (
            f"{between} {who} could not prove their sessions: the "
            "metadata store did not answer, or they stood still"
        )

    def of(self, broker: str, *, several: bool = False) -> str:
        """What it was to one of its brokers, as the cause of something; `several`: and to others of
        which the same is told.
        """
        it, its = ("they", "their sessions") if several else ("it", "its session")
        since = self.since
        between = f"from {clock(since)} to {time_of_day(self.end)}"
        if self.is_open:
            between = f"from {clock(since)} until {time_of_day(self.end)} at least"
        if self.is_of_store and len(self.brokers) > 1:
            return f"the metadata store did not answer {len(self.brokers)} brokers {between}"
        if self.is_of_store:
            return f"{it} had no answer of the metadata store {between}"
        stood_ms = self.stood_ms.get(broker, 0)
        if stood_ms and self.end - self.begin - stood_ms <= SAME_MS:
            return f"{it} stood still {between}"
        stood = f", and stood still for {span(stood_ms)} of it" if stood_ms else ""
        return f"{it} could not prove {its} {between}{stood}"

    @property
    def then(self) -> str:
        """The same of a moment within it."""
        if self.since == self.begin or len(self.brokers) == 1:
            return str(self)
        return f"THE METADATA STORE DID NOT ANSWER {len(self.brokers)} BROKERS THEN: {self}"


def unproven(admin: AdminClient, since_ms: int, until_ms: int | None = None) -> list[Unproven]:
    """Those that ended in this time, with the times in which a process stood still, the oldest
    first; none without archives.
    """
    # What has no recorded end began before.
    values = [("kind", MemberChange.kind), ("since", max(0, since_ms - LAPSE_MS_MAX))]
    values += [("limit", STARTS_MAX), *([] if until_ms is None else [("until", until_ms)])]
    try:
        return unproven_since(parts_of(admin, "events", values, ArchivedEvents).parts, since_ms)
    except LoadManagerError:
        return []


class Stood(NamedTuple):
    """When each broker stood still: no limit has anybody wait meanwhile."""

    times: Mapping[str, Sequence[tuple[int, int]]]

    @classmethod
    def between(cls, admin: AdminClient, since_ms: int, until_ms: int) -> Stood:
        """In a time, as they recorded themselves once they went on; without archives never."""
        try:
            events = events_of(
                admin,
                (MemberChange.kind,),
                since_ms=since_ms,
                until_ms=until_ms + LAPSE_MS_MAX,
                limit=STARTS_MAX,
            ).events
        except LoadManagerError:
            return cls({})
        times = dict[str, list[tuple[int, int]]]()
        for change in (event.record_as(MemberChange) for event in events):
            if change.event == "stood" and change.took_ms and change.ts - change.took_ms < until_ms:
                times.setdefault(change.of, []).append((change.ts - change.took_ms, change.ts))
        return cls(times)

    def within(self, broker: str, begin_ms: float, end_ms: float) -> float:
        """For how long one stood still within a time, in milliseconds."""
        times = self.times.get(broker, ())
        return sum(max(0, min(end, end_ms) - max(begin, begin_ms)) for begin, end in times)

    def lines(self, brokers: Iterable[str], begin_ms: int, end_ms: int, text: str) -> list[str]:
        """A line for each of these brokers that stood still within a time."""
        stood = {it: self.within(it, begin_ms, end_ms) for it in sorted({*brokers})}
        return [f"{name} stood still for {span(ms)}: {text}" for name, ms in stood.items() if ms]


def lapses_of(times: Iterable[Unproven]) -> list[Lapse]:
    """The events that these are parts of, the oldest first."""
    return together(times, Lapse)


def lapse_lines(lapses: Sequence[Lapse]) -> list[str]:
    """A line for each of the last ones, and how many were before."""
    before = len(lapses) - LAPSES_MAX
    times = "once more" if before == 1 else f"{before} more times"
    lines = [f"{times} before, brokers stood still or could not prove their sessions"]
    return [*(lines if before > 0 else ()), *map(str, lapses[-LAPSES_MAX:])]


def lapses_at(admin: AdminClient, at_ms: int) -> list[str]:
    """Which brokers had no answer of the metadata store or stood still at a moment."""
    lapses = lapses_of(unproven(admin, at_ms, at_ms + LAPSE_MS_MAX))
    return [it.then for it in lapses if it.covers(at_ms)]


def outage_now(admin: AdminClient, at_ms: int) -> list[str]:
    """That the metadata store does not answer now, which may concern a moment of the last hour: how
    long an outage was is recorded when it ends.
    """
    if at_ms < now_ms() - LAPSE_MS_MAX:
        return []
    try:
        admin.text(f"{OWN}/cluster?limit=1")
    except LoadManagerError as error:
        if STORE in str(error):
            return [
                f"{error}: how long this is is recorded when it ends; it may concern this moment"
            ]
    return []


def silence_around(admin: AdminClient, at_ms: int) -> list[str]:
    """From when until when no broker recorded anything, around a moment: the whole cluster may have
    been down, though none has recorded yet that it started after that.
    """
    values = [("kind", MemberChange.kind), ("limit", 1)]
    try:
        answer = parts_of(admin, "events", values, ArchivedEvents)
    except LoadManagerError:
        return []
    runs = [run for part in answer.parts.values() for run in part.recorded]
    last_ms = max((run.end for run in runs), default=at_ms)
    if answer.of_daemon or answer.missing:  # one that does not answer may have recorded then
        return []
    if last_ms < at_ms and now_ms() - last_ms > DOWN_MS:
        return [f"no broker has recorded anything since {clock(last_ms)}: {NONE_RECORDED}"]
    return [
        f"no broker recorded anything from {clock(begin)} to {clock(end)}: {NONE_RECORDED}"
        for begin, end in between(runs, DOWN_MS)
        if begin < at_ms < end
    ]


def say_down(admin: AdminClient, at_ms: int, past: LoadsOfAll) -> None:
    """Have the loads of a moment say which brokers could not prove their sessions then, which were
    lost about then, and that the whole cluster was down, if it was.
    """
    lapses = lapses_of(unproven(admin, at_ms, at_ms + LAPSE_MS_MAX))
    past.outages = [it.then for it in lapses if it.covers(at_ms)]
    past.outages += outage_now(admin, at_ms)
    past.outages[:0] = say_silent(admin, at_ms, past)
    later = _later_changes(admin, at_ms)
    past.lost = lost_about(admin, at_ms, later)
    past.notes[:0] = [*past.outages, *lost_lines(past.lost)]
    _mark_unknown(past, lapses, later, at_ms)


def say_unknown(
    admin: AdminClient, at_ms: int, past: LoadsOfAll, doubts: Doubts | None = None
) -> None:
    """Have the loads of a moment say of which brokers they are not known; `doubts`: those of a time
    that the moment lies in, so that they are asked for once.
    """
    doubts = doubts or Doubts.between(admin, at_ms, at_ms)
    _mark_unknown(past, doubts.lapses, [it for it in doubts.changes if it.ts > at_ms], at_ms)


def _mark_unknown(
    past: LoadsOfAll, lapses: Sequence[Lapse], later: Sequence[MemberChange], at_ms: int
) -> None:
    past.unknown = unknown_loads(past.loads, lapses, later, at_ms, clock)
    past.notes += unknown_lines(past.unknown, at_ms)


class Doubts(NamedTuple):
    """What tells whether the loads that are recorded about moments of a time are of them."""

    lapses: list[Lapse]
    changes: list[MemberChange]
    """Of members, the oldest first."""

    @classmethod
    def between(cls, admin: AdminClient, since_ms: int, until_ms: int) -> Doubts:
        """Those of a time."""
        lapses = lapses_of(unproven(admin, since_ms, until_ms + LAPSE_MS_MAX))
        return cls(lapses, _later_changes(admin, since_ms, until_ms))


def say_silent(admin: AdminClient, at_ms: int, past: LoadsOfAll) -> list[str]:
    """Have the loads of a moment say whether the whole cluster was down; in sentences, if it was,
    or if no broker recorded anything.
    """
    if not past.silent:
        return []
    downs = [str(it) for it in downtimes(admin, at_ms) if it.begin <= at_ms]
    silences = downs or silence_around(admin, at_ms)
    past.down = bool(silences)
    return silences


def unknown_lines(unknown: Mapping[str, str], at_ms: int) -> list[str]:
    """A line for each broker of which no load of a moment is known."""
    return [
        f"what {name} carried at {clock(at_ms)} is not known: {why}"
        for name, why in sorted(unknown.items())
    ]


def lost_lines(lost: Mapping[str, str]) -> list[str]:
    """A line for each broker that was lost about a moment."""
    return [f"{name} was lost about then: {text}" for name, text in sorted(lost.items())]


def lost_about(admin: AdminClient, at_ms: int, later: Iterable[MemberChange]) -> dict[str, str]:
    """See `leader.unknown_loads.lost_about`."""

    def sign_of(broker: str, heard_ms: int, left_ms: int) -> int:
        return last_sign(admin, broker, heard_ms, left_ms)

    return lost_by_signs(later, at_ms, sign_of, clock)


def last_sign(admin: AdminClient, broker: str, heard_ms: int, until_ms: int) -> int:
    """When a broker that was heard of at a time had given its last sign, by its own archive."""
    values = [("since", heard_ms), ("until", until_ms), ("limit", 1)]
    part = parts_of(admin, "events", values, ArchivedEvents).parts.get(broker)
    runs = () if part is None else part.recorded
    return max([heard_ms, *(run.end for run in runs if run.begin <= heard_ms)])


def _later_changes(
    admin: AdminClient, at_ms: int, until_ms: int | None = None
) -> list[MemberChange]:
    """What was recorded of members soon after a moment, or after the time that begins with it, the
    oldest first.
    """
    kinds, soon_ms = (MemberChange.kind,), (until_ms or at_ms) + LAPSE_MS_MAX
    later = events_of(admin, kinds, since_ms=at_ms + 1, until_ms=soon_ms, limit=STARTS_MAX)
    of_members = (event for event in reversed(later.events) if event.kind == MemberChange.kind)
    return [event.record_as(MemberChange) for event in of_members]


def gone_at(events: Sequence[ArchivedEvent], at_ms: int) -> dict[str, str]:
    """Broker → how and when it had left, of those that were not there at a moment; `events`: of
    members, the newest first.
    """
    gone = dict[str, str]()
    oldest_first = [*reversed(events)]
    oldest_first.sort(key=lambda it: it.ts)
    for event in oldest_first:
        change = event.record_as(MemberChange)
        if event.ts > at_ms:
            break
        if change.event == "left":
            gone[change.of] = f"{change.how} since {clock(left_at_of(change))}"
        elif change.event == "stops":
            gone[change.of] = f"stopped in order since {clock(change.ts)}"
        elif change.event in ("back", "starts", "proven"):
            gone.pop(change.of, None)
    return gone


def back_lately(events: Sequence[ArchivedEvent], at_ms: int) -> list[str]:
    """A line for each broker that left shortly before a moment and was back by then; `events`: of
    members, the newest first.
    """
    left, lines = dict[str, MemberChange](), dict[str, str]()
    for event in sorted(events, key=lambda it: (it.ts, it.id)):
        change = event.record_as(MemberChange)
        if event.ts > at_ms:
            break
        if change.event == "left":
            left[change.of] = change
            lines.pop(change.of, None)
        elif change.event in ("back", "starts", "proven") and change.of in left:
            gone = left.pop(change.of)
            left_ms = left_at_of(gone)
            if at_ms - left_ms <= FRESH_MS:
                ago = f"{clock(left_ms)}, {span(at_ms - left_ms)} before"
                lines[change.of] = f"{change.of}: {gone.how} at {ago}; back at {clock(change.ts)}"
    return [*lines.values()]


def silent_at(admin: AdminClient, past: LoadsOfAll, at_ms: int) -> dict[str, str]:
    """Broker → since when its archive had no sign of it at a moment, and who recorded afterwards
    how it left; of those that gave none then.
    """
    ends = ended_before(admin, past, at_ms)
    if not ends:
        return {}
    left = [change for change in _later_changes(admin, at_ms) if change.event == "left"]
    return {name: _silence(end, (it for it in left if it.of == name)) for name, end in ends.items()}


def _silence(end: int, left: Iterable[MemberChange]) -> str:
    for change in left:
        if left_at_of(change) - (unheard_of(change) or 0) <= end + SIGN_MS:
            how = "it was lost, its session ended" if change.how == "lost" else f"it {change.how}"
            return f"{sign_text(end, clock)}; {how} at {clock(left_at_of(change))}"
    return f"{sign_text(end, clock)}, and nobody recorded how it left"
