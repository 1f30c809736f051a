"""`loadmanager admin compare`: what differs between two moments, and what is missing since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import click
from msgspec import to_builtins

from loadmanager.cli.admin.archives import (
    EventsOfAll,
    LoadsOfAll,
    events_of,
    incomplete,
    loads_at,
    now_ms,
)
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.audit import KnownChanges, changes_of, is_decided
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import client_steps
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.differences import (
    Changed,
    ClusterThen,
    Missing,
    changed_owners,
    count_clients,
    cut_off_by,
    missing_of,
    rate_of,
    there_at,
    uncounted,
)
from loadmanager.cli.admin.downtimes import (
    LAPSE_MS_MAX,
    Downtime,
    Lapse,
    downtimes,
    gone_at,
    lapse_lines,
    lapses_of,
    say_silent,
    say_unknown,
    silent_at,
    unproven,
)
from loadmanager.cli.admin.leaders import led_of
from loadmanager.cli.admin.past_owners import (
    BEFORE_MS,
    carried_by,
    doubt_of,
    take_figures,
    without_figures,
)
from loadmanager.cli.admin.standing import Standing
from loadmanager.cli.admin.times import Moment as Time
from loadmanager.cli.admin.times import at_option, clock, span, time_of_day, until_of, until_option
from loadmanager.cli.terminal import Shown, named, table
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.lapses import SIGN_MS, Unproven
from loadmanager.engine.history.members import MemberChange, left_at_of
from loadmanager.engine.history.records import BrokerLoad, BundleLoad, OwnershipStep, TopicLoad
from loadmanager.engine.history.waits import Key, Loss
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedLoads
from loadmanager.kit.units import MINUTE_MS
from loadmanager.leader.interruptions import all_losses, losses_in
from loadmanager.leader.owners_then import owners_at

SINCE_MS = 600_000
EVENTS_MAX = 2_000
"""Records of one sort between the two moments that are looked through, the last ones."""
MEMBERS_MAX = 1_000
CHANGES_MAX = 1_000
BESIDE_MS = 2 * MINUTE_MS
"""A record that stands for a moment ends so long before or after it, at most."""
CLIENTS = (f"{ClientStep.kind}.attached", f"{ClientStep.kind}.left")
STARTED_MS = 20_000
"""The load that a broker records so soon after its start is that of starting."""
LINES = 10
"""Of each sort; with --each all are shown."""
KINDS = (BrokerLoad.kind, BundleLoad.kind, TopicLoad.kind)
SENTENCES = {"stopped": "stopped", "drained": "drained and stopped", "lost": "lost"}


@dataclass(slots=True)
class _Read:
    """What the archives say of two moments and of the time between."""

    then: ClusterThen
    now: ClusterThen
    members: list[MemberChange]
    """All that are known until the second moment, the oldest first."""
    between: list[ArchivedEvent]
    """Members, owners and moves between, the oldest first."""
    clients: list[ArchivedEvent]
    cut_off: list[ClientStep]
    """Of clients of lost brokers; see `cut_off_by`."""
    there: set[Key]
    """If brokers were lost: the clients that were there at the first moment."""
    changes: KnownChanges
    notes: list[str]
    missing: dict[str, str]
    unproven: list[Unproven]
    """The outages and standstills that ended after the first moment, and within an hour after the
    second one.
    """
    downs: list[Downtime]
    """When the whole cluster was down, between or at one of the moments."""


@click.command(cls=AdminCommand)
@click.option(
    "--since",
    type=Time(past=True),
    help="the first moment: 10m, 03:12, 'yesterday 03:12'; default: 10 minutes before --until",
)
@until_option
@at_option
@click.option("--each", is_flag=True, help="a line for everything, in place of the first ten")
def compare(
    admin: AdminClient, since: int | None, until: int | None, at: int | None, *, each: bool
) -> Output:
    """Compare two moments: brokers, leaders, owners, load, traffic, settings, and what is missing.

    The second moment is now, or --until, or --at. Missing is what was there at the first moment and
    is not at the second: owners of bundles, traffic of namespaces and topics, producers and
    consumers that left, or whose broker was lost. The archives of the brokers answer; loads are
    averages, as the last lines say.
    """
    until = until_of(at, until)
    until_ms = now_ms() if until is None else min(until, now_ms())
    since_ms = until_ms - SINCE_MS if since is None else since
    if since_ms >= until_ms:
        raise BadInputError(f"--since {clock(since_ms)} is not before {clock(until_ms)}")
    read = _read(admin, since_ms, until_ms)
    if not any(moment.loads or moment.down for moment in _moments(read)):
        raise OperationalError(
            f"nothing is recorded of {clock(since_ms)} and of {clock(until_ms)}: "
            "there is nothing to compare"
        )
    losses = losses_in(read.downs)
    other, without, new = changed_owners(read.then, read.now, read.between, losses)
    missing = missing_of(read.then, read.now, without, read.clients, read.cut_off, there=read.there)
    most, lapses = None if each else LINES, _lapses(read)
    parts: list[Shown] = [
        f"from {clock(since_ms)} to {clock(until_ms)} ({span(until_ms - since_ms)})",
        [*_brokers(read), *_leaders(read), *map(str, read.downs), *lapse_lines(lapses)],
        [*_owners(other, without, new, len(read.then.bundles), most)],
        _loads(read),
        _traffic(read),
        [*_changes(read.changes, since_ms, most)],
        [*_missing(read, missing, most)],
    ]
    document = _document(read, missing, other=other, new=new)
    shown = (*parts, read.notes, *incomplete(read.changes.notes))
    return Output(document, shown, missing=read.missing)


def _read(admin: AdminClient, since_ms: int, until_ms: int) -> _Read:
    shown_ms = min(until_ms, now_ms() - SIGN_MS)  # until then brokers that live gave a sign
    pasts = [loads_at(admin, at_ms, *KINDS) for at_ms in (min(since_ms, shown_ms), shown_ms)]
    members = _of_kinds(
        events_of(admin, (MemberChange.kind,), until_ms=until_ms, limit=MEMBERS_MAX),
        MemberChange.kind,
    )
    begin_ms = since_ms - BEFORE_MS
    # The loads of the end are over a time that may go on after it.
    ends = max([until_ms, *(it.ts for it in pasts[1].loads)])
    owners = _between(admin, begin_ms, ends, OwnershipStep.kind)
    moves = _between(admin, since_ms, until_ms, "decision.move")
    # Who came and left between a moment and the end of a record about it counts, too.
    clients = _between(admin, since_ms - BESIDE_MS, ends + BESIDE_MS, *CLIENTS)
    downs = [it for it in downtimes(admin, since_ms) if it.begin < until_ms]
    losses = _losses(members.events, downs, since_ms, until_ms)
    cut_off, there, unknown, silent = _cut_off(admin, losses, since_ms, until_ms)
    changes = changes_of(admin, None, since_ms, until_ms, limit=CHANGES_MAX)
    changes.changes = list(filter(is_decided, changes.changes))
    both = zip(pasts, (since_ms, until_ms), strict=True)
    moments = [_moment(admin, past, at_ms, members.events, owners.events) for past, at_ms in both]
    steps = _oldest_first(clients.events)
    for moment in moments:
        of = (it.record_as(ClientStep) for it in steps)
        count_clients(moment.bundles.values(), of, moment.at_ms)
    between = [*owners.events, *moves.events, *members.events]
    notes = [*pasts[0].notes, *pasts[1].notes, *unknown]
    for events, what in ((owners, "owners"), (moves, "moves"), (clients, "clients")):
        if len(events.events) == EVENTS_MAX:
            notes.append(f"only the last {EVENTS_MAX:,} records of {what} were looked through")
    return _Read(
        then=moments[0],
        now=moments[1],
        members=[it.record_as(MemberChange) for it in _oldest_first(members.events)],
        between=[it for it in _oldest_first(between) if since_ms < it.ts <= until_ms],
        clients=[it for it in steps if since_ms < it.ts <= until_ms],
        cut_off=cut_off,
        there=there,
        changes=changes,
        notes=list(dict.fromkeys(notes)),
        downs=downs,
        unproven=unproven(admin, since_ms, until_ms + LAPSE_MS_MAX),
        missing={
            **pasts[0].missing,
            **pasts[1].missing,
            **owners.missing,
            **members.missing,
            **silent,
        },
    )


def _moment(
    admin: AdminClient,
    past: LoadsOfAll,
    at_ms: int,
    members: Sequence[ArchivedEvent],
    owners: Sequence[ArchivedEvent],
) -> ClusterThen:
    """The cluster at a moment; what is not known of it goes to the notes of `past`."""
    of = [it for it in members if it.ts <= at_ms]
    silences = say_silent(admin, at_ms, past)
    gone = gone_at(of, at_ms)
    for name, text in silent_at(admin, past, at_ms).items():
        gone.setdefault(name, text)
    if silences:
        past.notes[:] = [f"of {clock(at_ms)} there is no load: {silences[-1]}"]
        moment = ClusterThen(at_ms, {}, [], gone)
        moment.down = silences[-1]
        return moment
    say_unknown(admin, at_ms, past)
    bundles = [it for it in past.loads if it.kind == BundleLoad.kind]
    owned = owners_at(bundles, [*owners, *of], at_ms)
    led = led_of(of)
    without_figures(owned, past.unknown)
    standing = Standing.of(admin, past, at_ms, *KINDS)
    for it in owned:
        take_figures(it, standing)
    loads, doubts = list[ArchivedLoads](), dict[str, str]()
    carried = dict[str, dict[str, float] | None]()
    for each in (it for it in past.loads if it.broker not in past.unknown):
        best = standing.broker(each.broker) if each.kind == BrokerLoad.kind else None
        loads.append(each if best is None else best.loads)
        if best is not None:
            carried[each.broker] = carried_by(each.broker, best, owned)
            doubts[each.broker] = doubt_of(each.broker, best, owned)
    standing.say(past, KINDS[0])
    moment = ClusterThen(at_ms, {it.bundle: it for it in owned}, loads, gone)
    moment.unknown = past.unknown.keys()
    moment.leader = None if led is None else led.of
    lately = [it.record_as(MemberChange) for it in of if it.ts > at_ms - BEFORE_MS]
    started = {it.of: it.ts for it in lately if it.event == "starts"}
    moment.started = started.keys()
    moment.doubts, moment.carried = doubts, carried
    moment.unmeasured = {
        it.broker
        for it in loads
        if it.kind == BrokerLoad.kind and it.ts < started.get(it.broker, 0) + STARTED_MS
    }
    return moment


def _losses(
    members: Sequence[ArchivedEvent], downs: Sequence[Downtime], since_ms: int, until_ms: int
) -> list[Loss]:
    """Those of brokers between, also of those of which nobody was left to record them: they had
    ended by their last signs, whenever that counts as a loss: at the second moment at the latest.
    """
    losses = all_losses([it.record_as(MemberChange) for it in members], downs)
    return [
        Loss(it.broker, min(it.ts, until_ms), it.unheard_ms)
        for it in losses
        if since_ms < it.ts and it.ts - it.unheard_ms <= until_ms
    ]


def _cut_off(
    admin: AdminClient, losses: Sequence[Loss], since_ms: int, until_ms: int
) -> tuple[list[ClientStep], set[Key], list[str], dict[str, str]]:
    """The clients of lost brokers that are not back; which were there then; what of them is not
    known; who was silent.
    """
    if not losses:
        return [], set(), [], {}
    steps, notes, missing = client_steps(admin, since_ms, until_ms)
    return cut_off_by(losses, steps, since_ms), there_at(steps, since_ms), notes, missing


def _between(admin: AdminClient, since_ms: int, until_ms: int, *kinds: str) -> EventsOfAll:
    limit = EVENTS_MAX
    events = events_of(
        admin, kinds, since_ms=since_ms, until_ms=until_ms, limit=limit, before_start=False
    )
    return _of_kinds(events, *kinds)


def _of_kinds(events: EventsOfAll, *kinds: str) -> EventsOfAll:
    """Without what was not asked for."""
    events.events = [it for it in events.events if it.kind in kinds]
    return events


def _oldest_first(events: Sequence[ArchivedEvent]) -> list[ArchivedEvent]:
    return sorted(events, key=lambda it: (it.ts, it.id))


def _within(read: _Read) -> list[MemberChange]:
    return [it for it in read.members if it.ts > read.then.at_ms]


def _lapses(read: _Read) -> list[Lapse]:
    """The outages and standstills of the time between, those with it that were not over at its
    end.
    """
    return [it for it in lapses_of(read.unproven) if it.since <= read.now.at_ms]


def _brokers(read: _Read) -> Iterator[str]:
    """Who came, left, restarted or changed its version."""
    before, after = read.then.there(), read.now.there()
    yield f"{count_of(len(before), 'broker')} then, {len(after)} now"
    for moment in _moments(read):
        if moment.down:
            yield f"NO BROKER RAN at {clock(moment.at_ms)}, as far as it is recorded"
    within = _within(read)
    starts = Counter(it.of for it in within if it.event == "starts")
    left = dict[str, list[MemberChange]]()
    for it in within:
        if it.event == "left":
            left.setdefault(it.of, []).append(it)
    for name in sorted(before - after):
        how = read.now.gone.get(name, "nothing is recorded of it any more")
        yield f"{name} IS NOT THERE ANY MORE: {how}"
    yield from _came(read, sorted(after - before), within)
    for name in sorted(before & after):
        times = [
            f"{SENTENCES.get(it.how, it.how)} at {clock(left_at_of(it))}"
            for it in left.get(name, [])
        ]
        if starts[name]:
            times.append("restarted" + (f" {starts[name]} times" if starts[name] > 1 else ""))
        if times:
            yield f"{name} is there as before; between, it was {', '.join(times)}"
    yield from _versions(read, after)


def _came(read: _Read, names: Iterable[str], within: Sequence[MemberChange]) -> Iterator[str]:
    """That brokers came, or are back with the process that nobody had heard of then."""
    for name in names:
        at = next((it.ts for it in within if it.of == name and it.event == "starts"), None)
        was = read.then.gone.get(name)
        if at is None and was is not None:
            yield f"{name} is back, and no restart of it is recorded; then: {was}"
        else:
            yield f"{name} came" + ("" if at is None else f": it started at {clock(at)}")


def _versions(read: _Read, names: Iterable[str]) -> Iterator[str]:
    for name in sorted(names):
        versions = [(it.ts, it.version) for it in read.members if it.of == name and it.version]
        before = [version for ts, version in versions if ts <= read.then.at_ms]
        if versions and before and before[-1] != versions[-1][1]:
            yield f"{name} runs version {versions[-1][1]}, which was {before[-1]}"


def _leaders(read: _Read) -> Iterator[str]:
    terms = [it for it in _within(read) if it.event == "leads"]
    was, led = (_led(moment) for moment in _moments(read))
    if not terms:
        if was == led and not read.downs:
            yield f"{led} led all the time"
        else:
            none = "" if read.now.down else ": no term that began between is recorded"
            yield f"{was} led then, and {led} at the end{none}"
        return
    each = ", ".join(f"{it.of} since {time_of_day(it.ts)} (term {it.epoch})" for it in terms[-5:])
    more = f"{len(terms) - 5} more terms, and " if len(terms) > 5 else ""
    end = f"; {led} led at the end" if read.now.down else ""
    yield f"{was} led then; the leader changed {_times(len(terms))}: {more}{each}{end}"


def _led(moment: ClusterThen) -> str:
    if moment.down:
        return "nobody"
    return moment.leader or "nobody, as far as it is recorded,"


def _moments(read: _Read) -> tuple[ClusterThen, ClusterThen]:
    return read.then, read.now


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _owners(
    other: Sequence[Changed],
    without: Sequence[Changed],
    new: Sequence[str],
    total: int,
    most: int | None,
) -> Iterator[str]:
    """How many owners changed by which cause, and the bundles."""
    if not other:
        yield f"no bundle of {total} has another owner"
    else:
        causes = Counter(it.cause for it in other)
        each = "; ".join(f"{count}: {cause}" for cause, count in causes.most_common())
        yield f"{len(other)} of {count_of(total, 'bundle')} have another owner ({each})"
        for it in other[:most]:
            yield f"  {it.bundle}: {it.before} → {it.after} ({it.cause})"
        yield from _more(len(other), most)
    if without:
        causes = Counter(it.cause for it in without)
        each = "; ".join(f"{count}: {cause}" for cause, count in causes.most_common())
        have = "has" if len(without) == 1 else "have"
        yield f"{count_of(len(without), 'bundle')} had an owner and {have} none now ({each})"
    if new:
        yield f"{count_of(len(new), 'bundle')} got an owner that had none: {named(new)}"


def _more(count: int, most: int | None) -> Iterator[str]:
    if most is not None and count > most:
        yield f"  and {count - most} more: --each shows all"


def _loads(read: _Read) -> Shown:
    moments = [(moment.measured(), moment.owned(), moment.there()) for moment in _moments(read)]
    rows = []
    for name in sorted(read.then.there() | read.now.there()):
        loads = [measured.get(name) for measured, _, _ in moments]
        usage = [None if it is None else 100 * it["usage"] for it in loads]
        rates = [None if it is None else rate_of(it) for it in loads]
        bundles = [owned[name] if name in there else None for _, owned, there in moments]
        row = (name, _arrow(usage), _arrow(bundles, digits=0), _arrow(rates))
        rows.append((*row, "; ".join(_doubts(read, name))))
    headers = ("broker", "load %", "bundles", "msg/s", "")
    return table(headers, rows) if rows else "no load of a broker is recorded"


def _doubts(read: _Read, broker: str) -> Iterator[str]:
    """Why the load of a broker is not that of one of the moments."""
    for when, moment in (("then", read.then), ("at the end", read.now)):
        if broker in moment.measured() and (doubt := moment.doubts.get(broker)):
            yield f"{when}: {doubt}"


def _traffic(read: _Read) -> Shown:
    without = uncounted(read.then, read.now)
    before, after = (moment.sums(without, tenants=True) for moment in _moments(read))
    rows = []
    for name in sorted({*before, *after}):
        was_and_is = [of.get(name) or None for of in (before, after)]
        rates = [None if it is None else rate_of(it) for it in was_and_is]
        sizes = [
            None
            if it is None
            else (it.get("msg_throughput_in", 0.0) + it.get("msg_throughput_out", 0.0)) / (1 << 20)
            for it in was_and_is
        ]
        row = (name, _arrow(rates), _arrow(sizes, digits=2))
        rows.append((*row, _not_counted(read, name, without)) if without else row)
    headers = ("tenant", "msg/s", "MiB/s", *(["not counted"] if without else []))
    return table(headers, rows) if rows else "no traffic is recorded"


def _not_counted(read: _Read, tenant: str, without: Set[str]) -> str:
    """How many bundles of a tenant are in none of its sums."""
    prefix = f"{tenant}/"
    bundles = {*read.then.bundles, *read.now.bundles}
    total = sum(it.startswith(prefix) for it in bundles)
    missing = sum(it.startswith(prefix) for it in without)
    return f"{missing} of {count_of(total, 'bundle')}" if missing else ""


def _arrow(figures: Iterable[float | None], digits: int = 1) -> str:
    return " → ".join("-" if it is None else f"{it:,.{digits}f}" for it in figures)


def _changes(of: KnownChanges, since_ms: int, most: int | None) -> Iterator[str]:
    changes = of.changes
    if not changes:
        yield "nobody changed a setting, limit, pin, cordon or anything else"
        return
    yield f"{count_of(len(changes), 'change')} by operators, and by brokers of themselves:"
    for it in changes[:most]:
        who = " for ".join(filter(None, (it.role, it.proxied))) or it.address
        note = f" ({it.note})" if it.note else ""
        yield f"  {clock(it.ts)} {who}: {it}{note}"
    if most is not None and len(changes) > most:
        since = clock(since_ms).replace(" ", "T")
        yield f"  and {len(changes) - most} more: loadmanager admin audit --since {since}"


def _missing(read: _Read, missing: Missing, most: int | None) -> Iterator[str]:
    """What was there and is not."""
    lines = list(_missing_lines(missing, most))
    if lines:
        yield "MISSING NOW, and there then:"
        yield from lines
    else:
        yield "nothing of what was there then is missing, as far as it is recorded"
    if missing.uncounted:
        owners = count_of(len(missing.uncounted), "bundle")
        yield (
            f"the traffic and clients of {owners} are not compared: their owner of one of the "
            "moments had recorded none, or had just got them"
        )
    if not missing.all_topics:
        yield (
            "of topics, only the busiest of each broker are recorded (loadManagerHistoryMaxTopics):"
            " others are compared by their namespaces only"
        )
    if any(moment.down for moment in _moments(read)):
        yield "traffic is not compared: no broker ran at one of the moments"
    elif any(not moment.brokers() and not moment.unknown for moment in _moments(read)):
        yield "no broker is recorded at one of the moments: see below"


def _missing_lines(missing: Missing, most: int | None) -> Iterator[str]:
    for it in missing.bundles[:most]:
        yield f"  {it.bundle} has no owner; {it.before} was it ({it.cause})"
    yield from _more(len(missing.bundles), most)
    for name in missing.namespaces[:most]:
        yield f"  {name} has no traffic"
    yield from _more(len(missing.namespaces), most)
    for less in missing.less[:most]:
        part = f"{less.after / less.before:.0%} of what it had"
        rates = f"{less.before:,.1f} → {less.after:,.1f} messages/s"
        yield f"  {less.namespace} has only {part}: {rates}"
    yield from _more(len(missing.less), most)
    for topic in missing.topics[:most]:
        yield f"  {topic} has no traffic"
    yield from _more(len(missing.topics), most)
    for fewer in missing.fewer[:most]:
        has = count_of(fewer.after, fewer.what.removesuffix("s"))
        yield f"  {fewer.namespace} has {has}, and had {fewer.before}"
    yield from _more(len(missing.fewer), most)
    for step in missing.clients[:most]:
        of = f" of {step.subscription}" if step.subscription else ""
        why = f": {step.reason}" if step.reason else ""
        who = f"{step.what} {step.name}{of} from {step.client} on {step.topic}"
        yield f"  {who} left at {clock(step.ts)} and has not come back{why}"
    yield from _more(len(missing.clients), most)


def _document(
    read: _Read, missing: Missing, *, other: Sequence[Changed], new: Sequence[str]
) -> dict[str, Any]:
    """For programs."""
    without = uncounted(read.then, read.now)
    of: dict[str, Any] = {
        name: {
            "at": moment.at_ms,
            "leader": moment.leader,
            "down": moment.down or None,
            "gone": dict(moment.gone),
            "there": sorted(moment.there()),
            "brokers": moment.measured(),
            "owned": dict(moment.owned()),
            "tenants": moment.sums(without, tenants=True),
        }
        for name, moment in (("before", read.then), ("after", read.now))
    }
    return {
        **of,
        "members": to_builtins(_within(read)),
        "owners": [it._asdict() for it in other],
        "new": list(new),
        "changes": to_builtins(read.changes.changes),
        "missing": {
            "bundles": [it._asdict() for it in missing.bundles],
            "namespaces": missing.namespaces,
            "less": [it._asdict() for it in missing.less],
            "topics": missing.topics,
            "allTopics": missing.all_topics,
            "fewer": [it._asdict() for it in missing.fewer],
            "clients": to_builtins(missing.clients),
            "uncounted": missing.uncounted,
        },
        "notes": [*read.notes, *read.changes.notes],
    }
