"""Who led, and how often that changed: from the archives of all brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from loadmanager.cli.admin.archives import EventsOfAll, events_of, has_archives, parts_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.downtimes import LAPSE_MS_MAX, downtimes, last_sign
from loadmanager.cli.admin.times import clock, span
from loadmanager.engine.history.lapses import SIGN_MS
from loadmanager.engine.history.members import MemberChange, left_at_of, unheard_of
from loadmanager.engine.history.records import Decision
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedEvents
from loadmanager.kit.units import DAY_MS, HOUR_MS
from loadmanager.leader.documents.cluster import LeaderShown

MEMBERS_MAX = 1_000
"""Records among which the leader of a time is looked for, the last ones before it."""
DECISIONS_MAX = 20
"""Records among which the last decision before a moment is looked for."""
LOSS_MS_MAX = 60_000
"""A leader records within this time of its term's begin that the one before it was lost."""
DECISIONS = tuple(
    f"{Decision.kind}.{action}" for action in ("unload", "skip", "place", "split", "move")
)


class LeaderThen(NamedTuple):
    """Who led at a moment."""

    led: MemberChange | None
    """Its term, as it began; None: nobody led, or that is not recorded."""
    text: str
    events: EventsOfAll
    lost: bool = False
    """Whether it was lost about then, so that it may have led no more."""


def led_of(events: Sequence[ArchivedEvent]) -> MemberChange | None:
    """The term that had begun last; None: its leader had left, or that is not recorded."""
    left = set[str]()
    for event in events:  # the newest first
        change = event.record_as(MemberChange)
        if change.event == "leads":
            return None if change.of in left else change
        # What a leader records of itself is how an earlier session of it had ended.
        if change.event == "stops" or (change.event == "left" and change.broker != change.of):
            left.add(change.of)
    return None


def leader_then(admin: AdminClient, at_ms: int) -> LeaderThen:
    """Who led at a moment, as far as that is recorded."""
    events = events_of(admin, (MemberChange.kind,), until_ms=at_ms, limit=MEMBERS_MAX)
    led, since = led_of(events.events), "since"
    if (decided := _decided_by(admin, at_ms, events.events)) is not None:
        led, since = decided, "at the latest since"
    if led is not None and (down := _down_since(admin, led.ts, at_ms)):
        return LeaderThen(None, f"nobody led: {down}", events)
    if led is None:
        return LeaderThen(None, _nobody(events.events), events)
    later = _later_changes(admin, at_ms)
    if unproven := _unproven(led, later, at_ms):
        return LeaderThen(None, unproven, events)
    doubt = _lost_before(admin, led, later, at_ms) or _unanswered(led, events.events, later)
    if doubt := doubt or _silent(admin, led, later, at_ms):
        return LeaderThen(led, doubt, events, lost=True)
    before = f"; before it {led.before} did" if led.before else ""
    text = f"{_term(led)}, {since} {clock(led.ts)} ({span(at_ms - led.ts)})"
    return LeaderThen(led, text + before, events)


def last_led(admin: AdminClient, now_ms: int) -> tuple[MemberChange | None, str]:
    """Who led last, and since when, as far as that is recorded: its term may be over."""
    try:
        if not has_archives(admin):
            return None, "who led last is not recorded"
        led, _, events, _ = leader_then(admin, now_ms)
    except OperationalError as error:
        return None, f"who led last is not known: {error}"
    begun = (event.record_as(MemberChange) for event in events.events)
    led = led or next((it for it in begun if it.event == "leads"), None)
    if led is None:
        return None, "who led last is not recorded"
    ago = span(now_ms - led.ts)
    return led, f"{led.of} led last, term {led.epoch}, since {clock(led.ts)} ({ago} ago)"


def _down_since(admin: AdminClient, since_ms: int, at_ms: int) -> str:
    """When the whole cluster was down between two moments: a term ended then, and nobody was left
    to record that; empty if it was not.
    """
    downs = [down for down in downtimes(admin, since_ms) if since_ms < down.begin <= at_ms]
    return str(downs[-1]) if downs else ""


def _nobody(events: Sequence[ArchivedEvent]) -> str:
    """That nobody led, and that the leader before had stopped in order; `events`: of before, the
    newest first.
    """
    changes = [event.record_as(MemberChange) for event in events]
    last = next((it for it in changes if it.event == "leads"), None)
    stops = (it for it in changes if last and it.event == "stops" and it.of == last.of)
    if last is None or (stopped := next(stops, None)) is None or stopped.ts < last.ts:
        return "nobody led, as far as it is recorded"
    return (
        f"nobody is known to have led: {_term(last)}, and had stopped in order since "
        f"{clock(stopped.ts)}"
    )


def _term(led: MemberChange) -> str:
    return f"{led.of} led, term {led.epoch}"


def _later_changes(admin: AdminClient, at_ms: int) -> list[MemberChange]:
    """What was recorded of brokers soon after a moment, the oldest first."""
    kinds, until_ms = (MemberChange.kind,), at_ms + LAPSE_MS_MAX
    later = events_of(admin, kinds, since_ms=at_ms + 1, until_ms=until_ms, limit=MEMBERS_MAX)
    return [event.record_as(MemberChange) for event in reversed(later.events)]


def _unproven(led: MemberChange, later: Sequence[MemberChange], at_ms: int) -> str:
    """That the leader could not prove its session at a moment, as it recorded when that was over;
    empty if it could.
    """
    for it in later:
        if it.event == "proven" and it.of == led.of and it.took_ms:
            if it.ts - it.took_ms > at_ms:
                return ""
            between = f"from {clock(it.ts - it.took_ms)} to {clock(it.ts)}"
            return f"nobody led: {_term(led)}, and could not prove its session {between}"
    return ""


def _unanswered(
    led: MemberChange, events: Sequence[ArchivedEvent], later: Sequence[MemberChange]
) -> str:
    """That the leader had no answer of the metadata store at a moment, and did not record how that
    ended; empty if it had, or its session stayed proven. `events`: of before, the newest first.
    """
    before = (event.record_as(MemberChange) for event in events)
    own = (
        it for it in before if it.of == led.of and it.event in ("unanswered", "proven", "starts")
    )
    last = next(own, None)
    if last is None or last.event != "unanswered" or last.ts < led.ts:
        return ""
    if any(it.of == led.of and it.event == "proven" for it in later):
        return ""
    answered = clock(last.ts - (last.unheard_ms or 0))
    return (
        f"{_term(led)}, until the metadata store did not answer it any more, the last time at "
        f"{answered}; nobody is known to have led then"
    )


def _silent(
    admin: AdminClient, led: MemberChange, later: Sequence[MemberChange], at_ms: int
) -> str:
    """That the leader's own archive had no sign of it at a moment, nor anybody who recorded how it
    left; empty if there was one, or its archive does not answer.
    """
    values = [("since", led.ts), ("until", at_ms), ("limit", 1)]
    part = parts_of(admin, "events", values, ArchivedEvents).parts.get(led.of)
    ends = [run.end for run in part.recorded] if part is not None else []
    if ends:
        own = (it for it in later if it.of == led.of and it.event in ("left", "starts"))
        following = next(own, None)
        if following is not None and following.event == "left":
            ends.append(left_at_of(following) - (unheard_of(following) or 0))
    if not ends or at_ms - max(ends) <= SIGN_MS:
        return ""
    return (
        f"{_term(led)}, until its last sign at {clock(max(ends))}; nobody is known to have led then"
    )


def _lost_before(
    admin: AdminClient, led: MemberChange, changes: Sequence[MemberChange], at_ms: int
) -> str:
    """That the leader was lost about then, and that the next term began later; empty if it was not.
    The next leader records the loss, and for how long at most it had not heard of that broker.
    """
    following = next((it for it in changes if it.event == "leads"), None)
    losses = (it for it in changes if it.event == "left" and it.of == led.of)
    loss = next(losses, None)
    if following is None or loss is None or loss.unheard_ms is None:
        return ""
    sign_ms = last_sign(admin, led.of, max(led.ts, loss.ts - loss.unheard_ms), following.ts)
    if sign_ms >= at_ms or loss.ts > following.ts + LOSS_MS_MAX:
        return ""
    return (
        f"{_term(led)}, until it was lost after {clock(sign_ms)}; nobody is "
        f"known to have led then: term {following.epoch} of {following.of} began at "
        f"{clock(following.ts)}"
    )


def _decided_by(
    admin: AdminClient, at_ms: int, members: Sequence[ArchivedEvent]
) -> MemberChange | None:
    """The leader of the last decision, if its term's begin is not recorded (any more). A move that
    ended before may have been recorded later, by the next leader.
    """
    recorded = events_of(admin, DECISIONS, until_ms=at_ms, limit=DECISIONS_MAX).events
    decisions = [it for it in recorded if not _is_later(it.record_as(Decision), at_ms)]
    if not decisions:
        return None
    decision = decisions[0].record_as(Decision)
    begun, ended = 0, 0
    for event in members:
        change = event.record_as(MemberChange)
        if change.event == "leads":
            begun = max(begun, change.epoch or 0)
        elif change.event == "left" and change.of == decision.broker != change.broker:
            ended = max(ended, change.ts)
    if not decision.epoch or decision.epoch <= begun or ended >= decisions[0].last:
        return None
    return MemberChange(
        ts=decisions[0].ts,
        broker=decision.broker,
        of=decision.broker,
        event="leads",
        epoch=decision.epoch,
    )


def _is_later(record: Decision, at_ms: int) -> bool:
    return record.action == "move" and record.ts > at_ms


def changes_text(admin: AdminClient, term: LeaderShown, now_ms: int) -> Iterator[str]:
    """Who led before, and how often the leader changed lately; nothing if no archive knows."""
    try:
        if not has_archives(admin):
            return
        kinds, since = (MemberChange.kind,), now_ms - DAY_MS
        events = events_of(admin, kinds, since_ms=since, limit=MEMBERS_MAX)
        changes = [event.record_as(MemberChange) for event in events.events]
    except OperationalError:  # it is of use without
        return
    yield from terms_text(changes, term, now_ms)
    if events.missing:
        yield f"not all is here: {', '.join(sorted(events.missing))} did not answer"


def terms_text(changes: Sequence[MemberChange], present: LeaderShown, now_ms: int) -> Iterator[str]:
    """Who led before, and how often the leader changed lately. `changes`: the last that are
    recorded, the newest first; `present`: the present term, which may have begun so lately that no
    record of it is written yet.
    """
    terms = _with_present([change for change in changes if change.event == "leads"], present)
    if terms and terms[0].before:
        begun = next((it for it in terms[1:] if it.of == terms[0].before), None)
        of = "" if begun is None else f", term {begun.epoch}, since {clock(begun.ts)}"
        yield f"before it {terms[0].before} led{of}"
    times = [after.ts for after, _ in pairwise(terms)]
    times += [it.ts for it in terms[-1:] if it.before or (it.epoch or 0) > 1]
    hour = sum(ts >= now_ms - HOUR_MS for ts in times)
    least = "at least " if len(changes) == MEMBERS_MAX else ""
    day = f"{least}{_times(len(times))} in the last day"
    if not times:
        yield "the leader did not change in the last day"
    elif not hour:
        yield f"the leader changed {day}, not in the last hour"
    else:
        yield f"the leader changed {_times(hour)} in the last hour, {day}"


def _with_present(terms: list[MemberChange], term: LeaderShown) -> list[MemberChange]:
    """The recorded terms, the newest first, with the present one, after the last that ended."""
    earlier = [it for it in terms if it.epoch is None or it.epoch < term.epoch]
    if len(earlier) < len(terms):
        return terms
    before = earlier[0].of if earlier else None
    present = MemberChange(
        ts=term.since,
        broker=term.broker,
        of=term.broker,
        event="leads",
        epoch=term.epoch,
        before=before,
    )
    return [present, *earlier]


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")
