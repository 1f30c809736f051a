"""`loadmanager admin history`: one story of a bundle, topic, namespace, broker, tenant, role or
client, or of the whole cluster.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

import click

from loadmanager.cli.admin.absences import clients_waited, names_missing, sign_of
from loadmanager.cli.admin.archives import (
    GAPS_SHOWN,
    events_of,
    incomplete,
    now_ms,
    records_since,
)
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.audit import PEERS
from loadmanager.cli.admin.away import away_lines
from loadmanager.cli.admin.bundle_show import full_name, verdict_lines
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.downtimes import (
    LAPSE_MS_MAX,
    Downtime,
    Lapse,
    downtimes,
    lapses_of,
    unproven,
)
from loadmanager.cli.admin.held_clients import held_now
from loadmanager.cli.admin.names_then import near_then
from loadmanager.cli.admin.nearest import did_you_mean
from loadmanager.cli.admin.past_decisions import KINDS, as_of, decisions_of
from loadmanager.cli.admin.past_plans import plan_sentence
from loadmanager.cli.admin.returned import count_decisions
from loadmanager.cli.admin.sentences import lines_of
from loadmanager.cli.admin.silence import earlier_silences, silence_of
from loadmanager.cli.admin.story_waits import StoryWaits, waits_of_all, waits_of_client
from loadmanager.cli.admin.times import (
    at_option,
    clock,
    since_option,
    span,
    until_of,
    until_option,
)
from loadmanager.cli.admin.trend import recorded_of
from loadmanager.cli.admin.under_way import slow_moves_of
from loadmanager.cli.terminal import Shown
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.findings import FindingStep
from loadmanager.engine.history.lapses import PROVEN_MS, lapse_of
from loadmanager.engine.history.members import UNTIL, MemberChange, left_at_of, unheard_of
from loadmanager.engine.history.plans import PlanStep
from loadmanager.engine.history.records import BY_ITSELF, AuditedChange, Decision, OwnershipStep
from loadmanager.engine.moves.move import MoveState
from loadmanager.engine.ownership.states import OPERATORS_ORDER, LifeCause
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.kit.names import TopicName
from loadmanager.leader.change_words import new_values
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.documents.members import RETURN_MS_MAX

DECISION_ID = re.compile(r"\d{1,12}-m?\d{1,12}")
ENDS = ("Owned", "Free")
PARENTS_MAX = 8
TAKEN_MS = 10_000
"""The extensible manager's leader gives the bundles of a lost broker away before it records that
this one left, by at most so much.
"""
MOVE_MS = 120_000
"""An earlier version dates a move when its clients are back, or a minute after it ended."""
CLOCKS_MS = 1_000
"""So far the clocks of two brokers may be apart."""
ORDERED_MS = 10_000
"""A change is recorded when its request is answered: so long after what it had bundles do, at
most, and by the clock of another broker.
"""
MOVED = f"{Decision.kind}.move"
OF_ALL = (
    *KINDS,
    *(it.kind for it in (OwnershipStep, AuditedChange, MemberChange, FindingStep, PlanStep)),
)
"""Kinds of the events of a whole cluster; those of clients are too many."""
STEPS_OF_CLIENTS = {f"{ClientStep.kind}.{it}" for it in ("attached", "left")}
EVENTS_A_LINE, EVENTS_MAX = 4, 2_000
"""Not every event is a line of the whole cluster's story."""
BY_OPERATORS = (OPERATORS_ORDER, "admin")
"""Reasons of steps that an operator ordered; the second is that of earlier versions."""
MEMBERS_MAX = 1_000
"""Records of brokers that came and went, among which the owners of a story are looked for."""


@click.command(cls=AdminCommand)
@click.argument(
    "name",
    metavar="[BUNDLE|TOPIC|NAMESPACE|BROKER|TENANT|ROLE|CLIENT|DECISION]",
    required=False,
)
@since_option
@until_option
@at_option
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=100, metavar="N", help="at most N events"
)
def history(admin: AdminClient, name: str | None, limit: int, **given: int | None) -> Output:
    """Tell what is recorded of a thing, the oldest first: owners, moves, splits, reasons, changes;
    without a name, of the whole cluster but its clients. --at tells what was recorded by then.

    The archives of all brokers answer. Of a topic, that of its present bundle is told, too; of a
    bundle, that of the bundles that it was split from, and when its owner left. Both end with for
    how long there was no owner that served it.

    A client is named by its address, with or without the port, or by the name of its producer,
    consumer or subscription: when it came, left and was refused, and why; for how long losses,
    standstills and moves of its brokers interrupted it, and limits held its connection. Of a topic,
    bundle, namespace or tenant these are sums: `interrupted` and `limits list --clients` have each.
    """
    since, until = given["since"], until_of(given["at"], given["until"])
    if name is None:
        return story_of_all(admin, since, until, limit)
    return _story(admin, name, since, until, limit)


def _story(
    admin: AdminClient, name: str, since: int | None, until: int | None, limit: int
) -> Output:
    """That of one thing."""
    names, events, notes = [name], list[ArchivedEvent](), list[str]()
    missing: dict[str, str] = {}
    begins: dict[str, int] = {}
    if name.count("/") == 2 and "://" not in name and "_0x" not in name:
        with contextlib.suppress(LoadManagerError):  # or a client has such a name
            names.append(str(TopicName.parse(name)))
            names.append(full_name(admin, names[1]))
    elif "://" in name:
        names.append(full_name(admin, name))
    for about in names:  # which grows
        answer = events_of(admin, (), about, since_ms=since, until_ms=until, limit=limit)
        events += as_of(answer.events, inf if until is None else until)
        missing |= answer.missing
        begins |= answer.begins
        notes += [note for note in answer.notes if note not in notes]
        if about.count("_0x") and len(names) < PARENTS_MAX:
            names += sorted(_parents(answer.events) - set(names))
    events_by_id = {(event.kind, event.id, event.ts, str(event.record)): event for event in events}
    clients = any(event.kind.startswith(f"{ClientStep.kind}.") for event in events)
    if ":" not in name or "://" in name or clients:  # no broker
        members = events_of(
            admin, (MemberChange.kind,), since_ms=since, until_ms=until, limit=MEMBERS_MAX
        )
        leavers = owners_that_left([*events_by_id.values()], members.events)
        events_by_id |= {(each.kind, each.id, each.ts, str(each.record)): each for each in leavers}
    if clients:
        notes += _uncounted(admin, since, until)
    newest = sorted(events_by_id.values(), key=lambda event: (event.last, event.id))[-limit:]
    dated, sums = _story_lines(admin, names, newest, since, until)
    parts: list[Shown] = [_lines(dated) or _nothing(admin, name, since, until)]
    parts += [
        sums,
        _load(admin, names, (since, until)) or [],
        _silence(admin, names, since, until),
        away_lines(admin, names, since, until),
    ]
    if len(newest) == limit:
        parts.append(f"the newest {limit} are shown: --limit shows more, --until earlier ones")
    elif since is None:
        parts.append(records_since(begins))
    if until is None:
        no_client = "_0x" in name or any(it.kind != AuditedChange.kind for it in newest)
        held_lines = held_now(admin, name) if clients or not no_client else []
        parts += [slow_moves_of(admin, names), *held_lines]
        present = next((it for it in names if "_0x" in it), None)
        with contextlib.suppress(LoadManagerError):  # no bundle any more, or nobody leads
            parts.append(verdict_lines(admin, present) if present else [])
    data = [{"ts": event.ts, "kind": event.kind, "record": event.record} for event in newest]
    status = 0 if newest else 1
    return Output(data, (*parts, *incomplete(notes)), status=status, missing=missing)


def story_of_all(
    admin: AdminClient, since: int | None, until: int | None, limit: int, more: str = "--limit"
) -> Output:
    """The last events of the whole cluster in a time, without those of clients; `more`: the option
    that shows more of them.
    """
    at_most = min(EVENTS_A_LINE * limit, EVENTS_MAX)
    answer = events_of(admin, OF_ALL, since_ms=since, until_ms=until, limit=at_most)
    newest = as_of(reversed(answer.events), inf if until is None else until)
    first, last = (newest[0].ts, until or now_ms()) if newest else (0, 0)
    down = [it for it in downtimes(admin, first) if first < it.begin < last]
    whole_after_ms = newest[0].last if len(newest) >= at_most else -inf
    decisions = _decisions(admin, newest, whole_after_ms, until)
    dated = _dated_lines(newest, down, _lapses(admin, newest), decisions)
    cut_off = len(dated) > limit or len(newest) >= at_most
    dated = dated[-limit:]
    parts: list[Shown] = [_lines(dated) or "nothing is recorded of that time"]
    if cut_off:
        parts.append(f"the newest {len(dated)} are shown: {more} shows more")
    elif since is None:
        parts.append(records_since(answer.begins))
    data = [
        {"ts": event.ts, "kind": event.kind, "record": event.record}
        for event in newest
        if dated and event.last >= dated[0][0]
    ]
    notes = incomplete(answer.notes)
    return Output(data, (*parts, *notes), status=0 if dated else 1, missing=answer.missing)


def _story_lines(
    admin: AdminClient,
    names: Sequence[str],
    newest: Sequence[ArchivedEvent],
    since: int | None,
    until: int | None,
) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """The lines of one thing's story, and those below it about its clients."""
    first, last = (newest[0].ts, until or now_ms()) if newest else (0, 0)
    down = [it for it in downtimes(admin, first) if first < it.begin < last]
    whole_after_ms = -inf if DECISION_ID.fullmatch(names[0]) else inf
    decisions = _decisions(admin, newest, whole_after_ms, until)
    begin_ms = first if since is None else since
    waits = _waits(admin, names, newest, (begin_ms, until or now_ms()))
    dated = _dated_lines(told_once(newest, names[0]), down, _lapses(admin, newest), decisions)
    return sorted([*dated, *waits.dated], key=lambda item: item[0]), [*waits.sums]


def _waits(
    admin: AdminClient,
    names: Sequence[str],
    events: Sequence[ArchivedEvent],
    times: tuple[int, int],
) -> StoryWaits:
    """How long clients had to wait in the time of a story, if it is of them, or of what they use:
    not of a broker, of which `interrupted` has them, or of a decision.
    """
    name = names[0]
    kinds = {event.kind for event in events}
    of = next((it for it in names if "://" in it), name)
    if not times[0] or DECISION_ID.fullmatch(name):
        return StoryWaits()
    if "/" in of:
        return waits_of_all(admin, of, times)
    if kinds & STEPS_OF_CLIENTS:
        recorded = kinds & {f"{ClientStep.kind}.{it}" for it in ("held", "freed")}
        return waits_of_client(admin, name, times, with_holds=not recorded)
    return StoryWaits() if ":" in of else waits_of_all(admin, of, times)


def _lapses(admin: AdminClient, events: Sequence[ArchivedEvent]) -> list[Lapse]:
    """Why bundles lost their owners, or brokers could not prove their sessions, if some did."""
    times = [
        event.ts
        for event in events
        if event.record.get("cause") == LifeCause.LOSS.value
        or event.record.get("event") == "proven"
    ]
    if not times:
        return []
    return lapses_of(unproven(admin, min(times) - PROVEN_MS, max(times) + LAPSE_MS_MAX))


def _nothing(admin: AdminClient, name: str, since: int | None, until: int | None) -> list[str]:
    """That nothing is recorded of a name in a time; of an unknown one, what may have been meant."""
    near, earlier = list[str](), list[ArchivedEvent]()
    with contextlib.suppress(LoadManagerError):  # nobody answers, or it has only such a form
        earlier = events_of(admin, (), name, limit=1).events
        near = near_then(admin, name, now_ms())
    when = "" if since is None else f" since {clock(since)}"
    if until is not None:
        when = f" until {clock(until)}" if since is None else f"{when} and until {clock(until)}"
    if earlier or name in near:
        return [f"{name} is known, but nothing is recorded of it{when}"]
    return [f"nothing is recorded of {name}{when}", *did_you_mean(near)]


def told_once(events: Sequence[ArchivedEvent], broker: str) -> list[ArchivedEvent]:
    """In the story of a broker, a move is one line: without the steps of its bundle at both ends,
    which it stands for; and without those of other brokers, of which it has its own.
    """
    steps = {id(event): event.record_as(OwnershipStep) for event in events if _is_step(event)}
    moves = [(event.ts, event.record_as(Decision)) for event in events if event.kind == MOVED]
    brokers = {step.broker for step in steps.values()}
    brokers |= {end or "" for _, move in moves for end in (move.source, move.destination)}
    if broker not in brokers:
        return [*events]
    ends = [
        (ts, move.bundle, end)
        for ts, move in moves
        if move.state == MoveState.DONE.value
        for end in (move.source, move.destination)
    ]
    taken = {step.bundle for step in steps.values() if step.broker == broker}

    def is_mirror(event: ArchivedEvent) -> bool:
        step = steps.get(id(event))
        if step is None:
            return False
        if step.broker != broker and step.bundle in taken:
            return True
        its = (ts for ts, bundle, end in ends if (bundle, end) == (step.bundle, step.broker))
        return any(-CLOCKS_MS <= ts - event.ts <= MOVE_MS for ts in its)

    return [event for event in events if not is_mirror(event)]


def _is_step(event: ArchivedEvent) -> bool:
    return event.kind == OwnershipStep.kind


def owners_that_left(
    events: Sequence[ArchivedEvent], members: Sequence[ArchivedEvent]
) -> list[ArchivedEvent]:
    """Of what is recorded of all brokers: which ones left as owners of bundles in a story, and how
    long clients waited then.
    """
    served: dict[tuple[str, str], int | None] = {}
    """Bundle, or client and topic, and broker → when another one had it, without a word of this
    one; None: it has it.
    """
    left, leavers = set[str](), list[ArchivedEvent]()
    steps = (event for event in events if _served(event))
    changes = (event for event in members if event.kind == MemberChange.kind)
    for event in sorted([*steps, *changes], key=lambda each: (each.ts, each.kind, each.id)):
        if (step := _served(event)) is not None:
            what, broker, there = step
            if there:
                served |= {key: event.ts for key in served if key[0] == what}
                served[what, broker] = None
            else:
                served.pop((what, broker), None)
            continue
        change = event.record_as(MemberChange)
        if change.event == "left":
            own = {key: since for key, since in served.items() if key[1] == change.of}
            served = {key: since for key, since in served.items() if key not in own}
            was_owner = any(it is None or event.ts - it <= TAKEN_MS for it in own.values())
            (left.add if was_owner else left.discard)(change.of)
        if change.event in ("left", "clients") and change.of in left:
            leavers.append(event)
    return leavers


def _served(event: ArchivedEvent) -> tuple[str, str, bool] | None:
    """A bundle, or a client with its topic, a broker, and whether this one serves it from then on;
    None: the event does not say.
    """
    if event.kind == OwnershipStep.kind:
        step = event.record_as(OwnershipStep)
        return (step.bundle, step.broker, step.after == "Owned") if step.after in ENDS else None
    if event.kind in (f"{ClientStep.kind}.attached", f"{ClientStep.kind}.left"):
        client = event.record_as(ClientStep)
        return f"{client.name} {client.topic}", client.broker, client.event == "attached"
    return None


def _uncounted(admin: AdminClient, since: int | None, until: int | None) -> list[str]:
    """Where more clients came and left than were recorded."""
    kinds = (f"{ClientStep.kind}.unrecorded",)
    answer = events_of(admin, kinds, since_ms=since, until_ms=until, limit=GAPS_SHOWN)
    steps = [event.record_as(ClientStep) for event in answer.events]
    return [
        f"{step.broker} recorded {count_of(step.times, 'step')} of clients before {clock(step.ts)} "
        "by their number only: too many came at once"
        for step in steps
    ]


def _parents(events: Sequence[ArchivedEvent]) -> set[str]:
    parents = {event.record.get("parent") for event in events if event.kind == "ownership"}
    return {parent for parent in parents if isinstance(parent, str) and parent}


def _decisions(
    admin: AdminClient, events: Sequence[ArchivedEvent], whole_after_ms: float, until: int | None
) -> list[DecisionShown]:
    """Those among the events; of moves with the clients that are back by now, unless they are to be
    told as they were at a time.
    """
    decided = [event for event in events if event.kind.startswith("decision.")]
    decisions = decisions_of(decided, whole_after_ms)
    if until is None:
        count_decisions(admin, decisions, ())
    return decisions


def _dated_lines(
    events: Sequence[ArchivedEvent],
    down_times: Sequence[Downtime],
    lapses: Sequence[Lapse],
    decisions: Sequence[DecisionShown],
) -> list[tuple[int, list[str]]]:
    """When each event was that there is something to say of, the oldest first: a line, and one
    below it for its reason.
    """
    dated = [(decision.ts, lines_of(decision)) for decision in decisions]
    orders = list(_orders(events))
    members = [it.record_as(MemberChange) for it in events if it.kind == MemberChange.kind]
    for event in events:
        if event.kind == OwnershipStep.kind and (text := _step(event, orders, lapses)):
            dated.append((event.ts, [f"{clock(event.ts)}  {text}"]))
        if event.kind == MemberChange.kind and event.record.get("event") in ("sign", "later"):
            dated.append((event.ts, [f"{clock(event.ts)}  {_sign(event, members)}"]))
        elif event.record.get("event") == "proven":
            dated.append((event.ts, [f"{clock(event.ts)}  {_proven(event, lapses)}"]))
        elif (say := _SENTENCES.get(event.kind)) is not None and (text := say(event)):
            at_ms = _happened_ms(event)
            dated.append((at_ms, [f"{clock(at_ms)}  {text}"]))
    dated += [(down.begin, [f"{clock(down.begin)}  {down}"]) for down in down_times]
    dated.sort(key=lambda item: item[0])
    return dated


def _lines(dated: Iterable[tuple[int, list[str]]]) -> list[str]:
    return [line for _, lines in dated for line in lines]


def _happened_ms(event: ArchivedEvent) -> int:
    """When it was: of a broker that left, when its session was over, and not when a leader wrote
    it down.
    """
    if event.kind != MemberChange.kind or event.record.get("event") != "left":
        return event.ts
    return left_at_of(event.record_as(MemberChange))


def _orders(events: Sequence[ArchivedEvent]) -> Iterator[tuple[int, str]]:
    """When and by whom something was ordered: the changes, and the moves that say so, as those of
    an undo do.
    """
    for event in events:
        if event.kind != AuditedChange.kind or not _change(event):
            continue
        change = event.record_as(AuditedChange)
        if not change.failed:
            yield event.ts, _who(change)
    for event in events:
        if event.kind == MOVED and (by := event.record_as(Decision).why.get("orderedBy")):
            yield event.ts, by


def _step(event: ArchivedEvent, orders: Sequence[tuple[int, str]], lapses: Sequence[Lapse]) -> str:
    """A step of a bundle; `orders`: those of the same story; `lapses`: of which it may be a
    consequence.
    """
    step = event.record_as(OwnershipStep)
    reason = step.reason
    if step.cause == LifeCause.LOSS.value:
        lapse = lapse_of(lapses, step.broker, step.ts)
        reason = reason if lapse is None else lapse.of(step.broker)
    if reason in BY_OPERATORS:
        after = [it for it in orders if -CLOCKS_MS <= it[0] - step.ts <= ORDERED_MS]
        order = min(after, key=lambda it: (it[0] < step.ts, abs(it[0] - step.ts)), default=(0, ""))
        by = order[1]
        reason = f"{OPERATORS_ORDER}, ordered by {by}" if by else OPERATORS_ORDER
    if step.after == "Owned" and step.before != "Owned":
        return f"{step.bundle} is served by {step.broker} ({reason})"
    if step.after == "Free" and step.before != "Assigning":
        to = f", for {step.destination}" if step.destination else ""
        until = "" if step.destination else " by then"  # nobody had it yet
        paused = "" if step.pause_ms is None else f", paused {span(step.pause_ms)}{until}"
        return f"{step.bundle} is no longer served by {step.broker} ({reason}{to}{paused})"
    return ""


def _change(event: ArchivedEvent) -> str:
    change = event.record_as(AuditedChange)
    if PEERS in change.what:  # it follows from what was ordered before
        return ""
    if change.over == BY_ITSELF:
        values = new_values(change.before, change.after)
        return f"{change.address} by itself {change}{f': {values}' if values else ''}"
    return f"{_who(change)} {change}"


def _who(change: AuditedChange) -> str:
    """The roles of who made a change, or else the address."""
    roles = " for ".join(filter(None, (change.role, change.proxied)))
    return roles or f"{change.address} (no role: authentication is off)"


def client_sentence(step: ClientStep) -> str:
    """What a client did, was refused, or had to wait for."""
    within = f" of {step.subscription}" if step.subscription else ""
    named = f"{step.what} {step.name}".strip() + within
    if step.event in ("held", "freed"):
        how = "is held" if step.event == "held" else "was held until then"
        lasts = f"for {span(step.held_ms or 0)}"
        look = "now" if step.event == "held" else "at the last look"
        return f"connection {step.client} {how} at {step.broker}, {lasts}; {look} by {step.reason}"
    role = f"as {', '.join(step.roles)}" if step.roles else ""
    topic = step.topic and f"on {step.topic}"
    who = " ".join(filter(None, [named, f"from {step.client}", role, topic]))
    if step.event == "attached":
        return f"{who} is served by {step.broker}"
    if step.event == "refused":
        times = f", {step.times} times" if step.times > 1 else ""
        return f"{who} was refused by {step.broker}: {step.reason} ({step.code}{times})"
    if step.event != "left":
        return ""
    sent = f"; it was sent to {step.destination}" if step.destination else ""
    stayed = f"after {span(step.attached_ms or 0)} and {count_of(step.messages or 0, 'message')}"
    return f"{who} left {step.broker} {stayed}: {step.reason}{sent}"


def _client(event: ArchivedEvent) -> str:
    return client_sentence(event.record_as(ClientStep))


def _member(event: ArchivedEvent) -> str:
    change = event.record_as(MemberChange)
    if change.event == "left":
        unheard_ms = unheard_of(change)
        sign = "" if unheard_ms is None else f", its last sign {span(unheard_ms)} before at most"
        how = f"{change.how}{sign}"
        return f"{change.of} left: {how}; it owned {count_of(change.bundles, 'bundle')}"
    bundles = count_of(change.bundles, "bundle")
    took = "" if change.took_ms is None else f" after {span(change.took_ms)}"
    if change.event == "back":
        how = "the same process" if change.same_process else "restarted"
        return f"{change.of} is back{took}, {how}"
    if change.event == "clients":
        waited = clients_waited(change, over=change.how != UNTIL)
        until = f" {UNTIL}, when they were no longer waited for" if change.how == UNTIL else ""
        if (change.clients_back or 0) < (change.clients or 0):
            counted = ", as its leader counted by its last report"
            until += f"{counted}: {names_missing(change.ts - RETURN_MS_MAX, change.of)}"
        return f"clients of what {change.of} had owned: {waited}{until}"
    if change.event == "placed":
        return f"what {change.of} had owned is served again{took} at most: {bundles}"
    return _by_itself(change)


def _sign(event: ArchivedEvent, members: Sequence[MemberChange]) -> str:
    """What a lost broker did when it was asked; `members`: the changes of the same story."""
    change = event.record_as(MemberChange)
    sign = sign_of(change, members)
    if change.event == "sign":
        return f"{change.of}, asked after it was lost: it {sign}"
    later = span(change.took_ms or 0)
    return f"{change.of} had not answered when it was lost; {later} later it {sign}"


def _by_itself(change: MemberChange) -> str:
    """What a broker recorded of itself."""
    if change.event == "starts":
        return f"{change.of} starts" + (f", version {change.version}" if change.version else "")
    if change.event == "stops":
        return f"{change.of} stops in order"
    if change.event == "leads":
        before = f"; before it {change.before} did" if change.before else ""
        return f"{change.of} leads, term {change.epoch}{before}"
    if change.event == "unanswered":
        silent = span(change.unheard_ms or 0)
        return f"{change.of} has had no answer of the metadata store for {silent}"
    if change.event == "stood":
        clients = f", with {count_of(change.clients, 'client')}" if change.clients else ""
        return f"{change.of} goes on: it stood still for {span(change.took_ms or 0)}{clients}"
    return ""


def _proven(event: ArchivedEvent, lapses: Sequence[Lapse]) -> str:
    """That a broker proves its session again, and why it could not, as far as that is known."""
    change = event.record_as(MemberChange)
    answered_ms = change.ts - (change.took_ms or 0) - (change.unheard_ms or 0)
    last = f"; its last answer before was of {clock(answered_ms)}" if change.unheard_ms else ""
    lapse = lapse_of(lapses, change.of, change.ts)
    stood_ms = 0 if lapse is None else lapse.stood_ms.get(change.of, 0)
    why = "the metadata store did not answer it for most of the session timeout"
    if stood_ms:
        why, last = f"its process stood still for {span(stood_ms)}", ""
    elif lapse is None or not lapse.is_of_store:
        why += ", or its process stood still"
    if not change.took_ms:
        silent = span(change.unheard_ms or 0)
        return (
            f"the metadata store answers {change.of} again, after {silent}: its session stayed "
            "proven"
        )
    took = span(change.took_ms)
    return f"{change.of} proves its session again, which was not proven for {took}: {why}{last}"


def _finding(event: ArchivedEvent) -> str:
    step = event.record_as(FindingStep)
    if step.event == "began":
        return f"the leader finds: {step.title}"
    return f"the leader no longer finds: {step.title}" if step.event == "ended" else ""


def _plan(event: ArchivedEvent) -> str:
    return plan_sentence(event.record_as(PlanStep))


_SENTENCES: dict[str, Callable[[ArchivedEvent], str]] = {
    "change": _change,
    "member": _member,
    "finding": _finding,
    "plan": _plan,
    **{
        f"{ClientStep.kind}.{event}": _client
        for event in ("attached", "left", "refused", "held", "freed")
    },
}


def _silence(
    admin: AdminClient, names: Sequence[str], since: int | None, until: int | None
) -> list[str]:
    """Since when nothing is published to a topic or bundle, and when it was silent before; `names`:
    see `_load`.
    """
    bundle = next((it for it in names if "_0x" in it), None)
    of = next((it for it in names if "://" in it), bundle)
    if of is None:
        return []
    before = earlier_silences(admin, of, since, until) if "://" in of else []
    return [*before, *silence_of(admin, of, bundle, until)]


def _load(admin: AdminClient, names: Sequence[str], between: tuple[int | None, int | None]) -> str:
    """What it carried, in a line, or of a topic its bundle, which is among the `names`; empty if
    that is not recorded.
    """
    try:
        return recorded_of(admin, names, *between).line()
    except OperationalError:
        return ""
