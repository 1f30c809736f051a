"""The cluster at a glance, as it was at a moment: what the brokers' archives have of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from math import inf
from typing import Any

from msgspec import to_builtins

from loadmanager.cli.admin.archives import (
    LoadsOfAll,
    events_of,
    incomplete,
    loads_at,
)
from loadmanager.cli.admin.asking import count_of, traffic_text
from loadmanager.cli.admin.brokers import brokers_then
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.downtimes import FRESH_MS, back_lately, downtimes, lately_down
from loadmanager.cli.admin.leaders import leader_then
from loadmanager.cli.admin.past_decisions import KINDS, as_of, decisions_of
from loadmanager.cli.admin.past_findings import recorded_findings, summary_then
from loadmanager.cli.admin.past_limits import removals, removed_lines, set_later
from loadmanager.cli.admin.past_owners import bundles_at
from loadmanager.cli.admin.past_wishes import pause_then
from loadmanager.cli.admin.sentences import lines_of
from loadmanager.cli.admin.settings import switched_off_at
from loadmanager.cli.admin.times import clock
from loadmanager.cli.terminal import Shown, table
from loadmanager.engine.history.archived import limit_words
from loadmanager.engine.history.records import Decision
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.leader.owners_then import PastBundle, figures, in_force
from loadmanager.leader.unknown_loads import MEANS_MS

CYCLE_KINDS = ("decision.unload", "decision.skip")
CYCLE_EVENTS = 200
"""Records among which the last cycle before a moment is looked for."""
TOP_BROKERS, TOP_BUNDLES, TOP_DECISIONS = 12, 10, 5
TOP_HEADERS = ("broker", "load", "", "cpu %", "bundles", "msg/s", "MiB/s")
TOP_BUNDLE_HEADERS = ("bundle", "owner", "msg/s", "MiB/s")
PER_DECISION = 20
"""Records of one decision at most."""
RATE, BYTES = "msg_rate", "msg_throughput"
NAMED_MAX = 5


def status_at(admin: AdminClient, at_ms: int) -> Output:
    """Who was missing, load, leader, limits and the last cycle."""
    leader = leader_then(admin, at_ms)
    brokers, past, bundles = brokers_then(admin, at_ms, leader)
    if not brokers:
        return Output(
            [], ("nothing is recorded of then", past.notes), status=1, missing=past.missing
        )
    limits = loads_at(admin, at_ms, "throttle")
    cycle = events_of(admin, CYCLE_KINDS, until_ms=at_ms, limit=CYCLE_EVENTS)
    then, steps = recorded_findings(admin, at_ms, leader)
    gone = {each["broker"] for each in brokers if each["gone"]}
    lines = [
        *past.outages,
        *lately_down(downtimes(admin, at_ms - FRESH_MS), at_ms),
        *_brokers(brokers),
        *back_lately(leader.events.events, at_ms)[:NAMED_MAX],
        leader.text,
        *switched_off_at(admin, at_ms),
        *pause_then(admin, at_ms),
        *_limits(admin, limits, gone, at_ms, bundles),
    ]
    whole_ms = cycle.events[-1].last if len(cycle.events) >= CYCLE_EVENTS else -inf
    decisions = decisions_of((it for it in cycle.events if it.last <= at_ms), whole_ms)
    decided = [each for each in decisions if each.kind == "shed"][:1]
    again = [it for it in cycle.events if it.ts <= at_ms < it.last]
    lines += _again(again, gone)
    said = "last cycle before" if not again else "a cycle before found, and those since did not"
    lines += [
        f"{said}: {' '.join(line.strip() for line in lines_of(each)[:2])}" for each in decided
    ]
    lines.append(summary_then(then))
    notes = [note for note in past.notes if note not in past.outages]
    shown: tuple[Shown, ...] = (lines, notes, *incomplete(cycle.notes))
    return Output(brokers, shown, missing=past.missing | limits.missing | steps.missing)


def top_at(admin: AdminClient, at_ms: int) -> Output:
    """The same, with the busiest brokers and bundles of then and the last decisions before."""
    status = status_at(admin, at_ms)
    brokers: list[dict[str, Any]] = status.data
    if not brokers:
        return status
    bundles, past = bundles_at(admin, at_ms)
    hottest = sorted(
        (it for it in bundles if it.figures),
        key=lambda it: (-_of_both(it.figures, RATE), it.bundle),
    )[:TOP_BUNDLES]
    recorded = events_of(admin, KINDS, until_ms=at_ms, limit=TOP_DECISIONS * PER_DECISION)
    events = as_of(recorded.events, at_ms)
    cut_off = len(events) >= TOP_DECISIONS * PER_DECISION
    decided = decisions_of(events, events[-1].last if cut_off else -inf)[:TOP_DECISIONS]
    here = [row for row in brokers if not row["gone"]]
    here.sort(key=lambda row: (-(row["usage"] or 0), row["broker"]))
    rows = [
        (it.bundle, it.owner, _of_both(it.figures, RATE), _of_both(it.figures, BYTES) / (1 << 20))
        for it in hottest
    ]
    parts: tuple[Shown, ...] = (
        *status.shown,
        table(TOP_HEADERS, [_top_row(row) for row in here[:TOP_BROKERS]]),
        table(TOP_BUNDLE_HEADERS, rows) if rows else "no traffic of bundles is recorded of then",
        [lines_of(each)[0] for each in decided] or ["no decision by then is recorded"],
    )
    data = {
        "brokers": brokers,
        "bundles": [{"bundle": it.bundle, "owner": it.owner, **it.figures} for it in hottest],
        "decisions": to_builtins(decided),
    }
    missing = status.missing | past.missing | recorded.missing
    return Output(data, (*parts, *incomplete(recorded.notes)), status.status, missing)


def bar(usage: float) -> str:
    """A usage as a bar: twenty signs are all that there is."""
    return "#" * min(20, round(20 * usage))


def _top_row(row: dict[str, Any]) -> tuple[str | float | int | None, ...]:
    if row["usage"] is None:
        return (row["broker"], "", None, None, row["bundles"], None, None)
    cpu = 100 * row["cpu_usage"] / row["cpu_limit"] if row["cpu_limit"] > 0 else None
    return (
        row["broker"],
        bar(row["usage"]),
        f"{row['usage']:.0%}",
        cpu,
        round(row["bundles"]),
        _of_both(row, RATE),
        _of_both(row, BYTES) / (1 << 20),
    )


def _of_both(figures: Mapping[str, float], name: str) -> float:
    """In and out together."""
    return figures[f"{name}_in"] + figures[f"{name}_out"]


def _brokers(brokers: list[dict[str, Any]]) -> Iterator[str]:
    gone = [each for each in brokers if each["gone"]]
    yield from (f"{each['broker']} was not there: {each['gone']}" for each in gone[:NAMED_MAX])
    if len(gone) > NAMED_MAX:
        yield f"and {len(gone) - NAMED_MAX} more were not there"
    live = [each for each in brokers if not each["gone"]]
    for each in live:
        if each["lost"]:
            of = count_of(round(each["bundles"] or 0), "bundle")
            yield f"{each['broker']}, owner of {of}, was lost about then: {each['lost']}"
    carry = [each for each in live if each["usage"] is not None]
    loads = [each["usage"] for each in carry]
    load = f", load {min(loads):.0%} to {max(loads):.0%}" if loads else ""
    rate = sum(_of_both(each, RATE) for each in carry)
    size = sum(_of_both(each, BYTES) for each in carry) / (1 << 20)
    traffic = traffic_text(rate, size)
    if unknown := len(live) - len(carry):
        of = count_of(unknown, "broker")
        without = f"{traffic} without what {of} carried, which" if carry else "what they carried"
        traffic = f"{without} is not known"
    bundles = count_of(round(sum(each["bundles"] or 0 for each in live)), "bundle")
    here = count_of(len(live), "broker")
    yield f"{here}, {bundles} with an owner{load}, {traffic}"
    cordoned = [f"{each['broker']} was {each['cordon']}" for each in live if each["cordon"]]
    if cordoned:
        yield f"no new bundles: {'; '.join(cordoned[:NAMED_MAX])}"


def _again(events: Sequence[ArchivedEvent], gone: Set[str]) -> Iterator[str]:
    """What cycles found before a moment and again after it: such a reason is recorded once, with
    its first time and its last one.
    """
    by_code = dict[str, list[str]]()
    there = [it for it in events if it.record_as(Decision).what not in gone]
    for event in sorted(there, key=lambda it: it.ts):
        record = event.record_as(Decision)
        by_code.setdefault(record.code or record.reason, []).append(
            record.what or record.bundle or ""
        )
    if not by_code:
        return
    texts = [
        f"{code} ({', '.join(what[:NAMED_MAX])}{', …' if len(what) > NAMED_MAX else ''})"
        for code, what in list(by_code.items())[:NAMED_MAX]
    ]
    begin = min(it.ts for it in there)
    yield f"what cycles found again and again, the first since {clock(begin)}: {'; '.join(texts)}"


def _limits(
    admin: AdminClient, past: LoadsOfAll, gone: Set[str], at_ms: int, bundles: Sequence[PastBundle]
) -> Iterator[str]:
    """Those that held somebody, that for which most was waited first; `gone`: brokers that were not
    there, whose last loads are of before; `bundles`: of then, with their owners.
    """
    here = [loads for loads in past.loads if loads.broker not in gone]
    removed = [it for it in removals(admin, here, at_ms) if in_force(it.limit, it.broker, bundles)]
    over = {(it.broker, it.limit) for it in (*removed, *set_later(admin, here, at_ms))}
    waits = [
        (of["waited_ms"], name, loads.broker)
        for loads in here
        for name in loads.figures
        if (of := figures(loads, name))["held"] > 0
        and in_force(name, loads.broker, bundles)
        and (loads.broker, name) not in over
    ]
    yield from removed_lines(removed)[:NAMED_MAX]
    if not waits:
        yield "no limit held anybody, as far as it is recorded"
        return
    longest = sorted(waits, reverse=True)[:NAMED_MAX]
    names = ", ".join(f"{limit_words(name)} at {broker}" for _, name, broker in longest)
    more = f" and {len(waits) - NAMED_MAX} more" if len(waits) > NAMED_MAX else ""
    brokers = {broker for *_, broker in waits}
    of_these = [loads for loads in here if loads.broker in brokers]
    begin, end = min(it.ts - it.span_ms for it in of_these), max(it.ts for it in of_these)
    waited_s = sum(waited for waited, _, _ in waits) / 1000
    means = max(it.span_ms for it in of_these) >= MEANS_MS
    in_all = "on the mean of the records of that time" if means else "in all"
    yield (
        f"{count_of(len(waits), 'limit')} held somebody from {clock(begin)} to {clock(end)}, "
        f"who waited {waited_s:,.0f} s {in_all}: {names}{more}"
    )
