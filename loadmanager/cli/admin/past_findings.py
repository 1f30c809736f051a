"""What leaders had found wrong at a moment, from the archives of all brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from loadmanager.cli.admin.archives import EventsOfAll, events_of, has_archives, incomplete
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.downtimes import lapses_at
from loadmanager.cli.admin.leaders import LeaderThen, leader_then
from loadmanager.cli.admin.times import clock, span, time_of_day
from loadmanager.engine.findings.finding import FindingShown
from loadmanager.engine.findings.recorded import (
    KNOWN_AT_ONCE,
    RECORDED_MS,
    FindingsThen,
    RecordedFinding,
    findings_then,
)
from loadmanager.engine.history.findings import FindingStep
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.units import HOUR_MS, MINUTE_MS
from loadmanager.leader.documents.cluster import ClusterShown
from loadmanager.leader.documents.findings import FindingsShown

COMMAND = "loadmanager admin findings"
STEPS_MAX = 2_000


def recorded_findings(
    admin: AdminClient, at_ms: int, leader: LeaderThen
) -> tuple[FindingsThen, EventsOfAll]:
    """What had been found at a moment, and the records."""
    steps, events = _steps_until(admin, at_ms)
    term = None
    if leader.led is not None:
        term = (leader.led.epoch or 0, leader.led.ts)
    elif _knows_terms(leader):  # nobody led any more
        term = (max((step.epoch for step in steps), default=0) + 1, at_ms)
    return findings_then(steps, term, at_ms), events


def _steps_until(admin: AdminClient, at_ms: int) -> tuple[list[FindingStep], EventsOfAll]:
    events = events_of(
        admin,
        (FindingStep.kind,),
        since_ms=at_ms - RECORDED_MS,
        until_ms=at_ms,
        limit=STEPS_MAX,
        before_start=False,
    )
    if len(events.events) == STEPS_MAX:
        events.notes.append(f"only the last {STEPS_MAX:,} records of findings were looked through")
    return [event.record_as(FindingStep) for event in events.events], events


FOUND_WITHIN_MS = {"backlog": 15 * MINUTE_MS, "hot topic": 15 * MINUTE_MS}
"""Kind → how long a new leader needs, at most, to find anew what lasts; an hour of the others."""


@dataclass(frozen=True, slots=True)
class FoundBefore:
    """What leaders before the present one had found, and that one cannot know to be over yet."""

    findings: Sequence[RecordedFinding] = ()
    unread: str = ""
    """Why that is not known, or not all of it."""

    def summary(self) -> Iterator[str]:
        """The first of each leader in a line."""
        for leader, its in _by_leader(self.findings):
            more = f" (and {count_of(len(its) - 1, 'other')}: {COMMAND})" if its[1:] else ""
            yield f"{_said_before(leader)}: {its[0].title}{as_of(its[0])}{more}"
        if self.unread:
            yield self.unread

    def lines(self, at_ms: int) -> Iterator[str]:
        """All of them."""
        yield from _lines_before(self.findings, at_ms)
        if self.unread:
            yield self.unread


def found_before(
    admin: AdminClient, cluster: ClusterShown, present: FindingsShown | None
) -> FoundBefore:
    """What is not known to be over, in the first hour of a term; of a daemon nothing is recorded
    by terms. `present`: what the leader says itself, which is recorded later.
    """
    leader, at_ms = cluster.leader, cluster.at
    if present is None or cluster.fleet is not None or at_ms - leader.since >= HOUR_MS:
        return FoundBefore()
    try:
        if not has_archives(admin):
            return FoundBefore()
        steps, events = _steps_until(admin, at_ms)
    except OperationalError as error:
        return FoundBefore(unread=f"what leaders before this one had found is not known: {error}")
    then = findings_then(steps, (leader.epoch, leader.since), at_ms)
    at_once = ("lost",) if present.looked_at is None else KNOWN_AT_ONCE
    own = {(it.kind, it.about) for it in present.findings}
    term_ms = at_ms - leader.since
    left = [
        it
        for it in then.before
        if it.kind not in at_once
        and (it.kind, it.about) not in own
        and term_ms < FOUND_WITHIN_MS.get(it.kind, HOUR_MS)
    ]
    unread = ""
    if missing := {name: why for name, why in events.missing.items() if name != leader.broker}:
        whys = "; ".join(why.splitlines()[0] for _, why in sorted(missing.items()))
        unread = (
            f"whether {', '.join(sorted(missing))} had found more as leader is not known: {whys}"
        )
    return FoundBefore(left, unread)


def _by_leader(
    findings: Iterable[RecordedFinding],
) -> list[tuple[str, list[RecordedFinding]]]:
    by_leader = dict[str, list[RecordedFinding]]()
    for finding in findings:
        by_leader.setdefault(finding.found_by, []).append(finding)
    return list(by_leader.items())


def _said_before(leader: str) -> str:
    return (
        f"{leader} had found before its term ended, and this is not known to be over: the next "
        "leader looks anew"
    )


def _lines_before(findings: Iterable[RecordedFinding], at_ms: int) -> Iterator[str]:
    for leader, its in _by_leader(findings):
        yield _said_before(leader)
        for finding in its:
            yield from finding_lines(finding, at_ms)


def _knows_terms(leader: LeaderThen) -> bool:
    """Whether terms are recorded: not by a daemon, which looks itself."""
    return any(event.record.get("event") == "leads" for event in leader.events.events)


def findings_at(admin: AdminClient, at_ms: int) -> Output:
    """What leaders had found wrong by a moment."""
    leader = leader_then(admin, at_ms)
    then, events = recorded_findings(admin, at_ms, leader)
    data: dict[str, Any] = {
        "at": at_ms,
        "looked": then.looked,
        "findings": to_builtins(then.findings),
        "before": to_builtins(then.before),
    }
    lines = lapses_at(admin, at_ms)
    lines += [leader.text] if _knows_terms(leader) else []
    lines += _lines(then, at_ms)
    recorded = then.looked or then.before
    shown = (lines, *incomplete(events.notes))
    return Output(data, shown, status=0 if recorded else 1, missing=events.missing)


def _lines(then: FindingsThen, at_ms: int) -> Iterator[str]:
    for finding in then.findings:
        yield from finding_lines(finding, at_ms)
    if not then.findings:
        yield summary_then(then)
    yield from _lines_before(then.before, at_ms)


def finding_lines(finding: FindingShown, at_ms: int) -> Iterator[str]:
    """A finding with how long it had lasted at a moment, and of when its figures are, if they are
    recorded ones.
    """
    yield f"{finding.title}{as_of(finding)}"
    ago = span(at_ms - finding.since)
    yield f"    since {clock(finding.since)} ({ago}). {finding.text} {finding.advice}"
    if finding.command:
        yield f"    {finding.command}"


def as_of(finding: FindingShown) -> str:
    """When the words of a recorded finding were so."""
    if not isinstance(finding, RecordedFinding):
        return ""
    return f" (as of {time_of_day(finding.recorded_at)})"


def summary_then(then: FindingsThen) -> str:
    """One line: how much was wrong, and the first of it."""
    if then.findings:
        more = len(then.findings) - 1
        others = (
            f" (and {count_of(more, 'other')}: loadmanager admin findings --at)" if more else ""
        )
        first = then.findings[0]
        return f"the leader had found: {first.title}{as_of(first)}{others}"
    if not then.looked:
        return "no look of the leader of then is recorded: it looks once a minute"
    return "the leader found nothing wrong when it looked last before then"
