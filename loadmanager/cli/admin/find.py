"""`loadmanager admin find`: where a topic, a client, a producer, a consumer or a subscription is,
and who was refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from shlex import quote

import click
import msgspec

from loadmanager.broker.ports.topics import ClientsFound, topic_rank
from loadmanager.cli.admin.archives import (
    events_of,
    has_archives,
    incomplete,
    now_ms,
)
from loadmanager.cli.admin.asking import OWN, count_of, namespace_path, namespaces_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import attached_then, client_steps, losses_between
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.greatest_user import greatest_users
from loadmanager.cli.admin.held_clients import WAITS_TOO, held_text
from loadmanager.cli.admin.shapes import Names
from loadmanager.cli.admin.silence import (
    is_silent,
    last_client,
    silence_in_records,
    silent_since,
)
from loadmanager.cli.admin.story import client_sentence
from loadmanager.cli.admin.times import at_option, clock, since_option, span
from loadmanager.cli.terminal import Cell, Shown, table
from loadmanager.engine.history.clients import (
    REFUSED,
    REFUSED_AGAIN_S,
    REPEATS_EVERY_S,
    ClientStep,
)
from loadmanager.engine.history.members import MemberChange, left_at_of, unheard_of
from loadmanager.engine.history.records import TopicLoad
from loadmanager.engine.history.waits import (
    Interrupted,
    Loss,
    interruptions_of,
    key_of,
    worst_first,
)
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.kit.units import HOUR_MS
from loadmanager.leader.interruptions import AGO_MS

WAITS_MAX = 3
"""For so many topics with clients that wait, it names who uses most of what they wait for."""
RECORDS_MAX = 1_000
NEW_S = 2
"""A refusal is in the archive after this time: it is written once a second."""
AGAIN_S = REFUSED_AGAIN_S + REPEATS_EVERY_S
LOSSES_SHOWN = 5
WAITING_SHOWN = 5
LATELY_MS = HOUR_MS - 60_000
"""What was longer ago may be over an hour ago when the next command is given."""
NAMESPACES_MAX = 50
"""Namespaces whose stored topics are looked through."""
STEPS = (f"{ClientStep.kind}.attached", f"{ClientStep.kind}.left", REFUSED)


@click.command(cls=AdminCommand)
@click.argument("text", metavar="[TEXT]", default="")
@click.option("--refused", is_flag=True, help="who was refused, by which broker, and why")
@since_option
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, metavar="N", help="at most N [default: 20]"
)
@at_option
def find(
    admin: AdminClient, text: str, *, limit: int, since: int | None, at: int | None, refused: bool
) -> Output:
    """Find topics, producers, consumers and subscriptions by a part of a name, an address or a
    role, and with --refused who was refused something.

    It says on which topic they are, which broker serves it, how much they get through, and what
    holds them now; those with exactly this name come first. Topics that are not open are looked for
    among the stored ones, in 50 namespaces at most. Of a name that nobody has who is connected, it
    says what is recorded last, and since when it waits after a loss or a move. `history` of the
    name or the address tells when they came, left and were refused. With --refused, those of the
    last hour who were refused something, or since --since, how often, and when last; TEXT is then a
    part of a name, an address, a role, a topic or the reason, or left out. With --at, the producers
    and consumers that were attached then, or who had been refused by then, as far as it is
    recorded.
    """
    if refused:
        return _refused(admin, text, since, at, limit)
    if at is not None and since is not None:
        raise click.UsageError("--since goes with --refused")
    if at is not None:
        return _attached_at(admin, text, at, limit)
    if since is not None:
        raise click.UsageError("--since goes with --refused; `history` tells what was")
    if not text:
        raise click.UsageError("TEXT is missing: a part of a name, an address or a role")
    return _attached_now(admin, text, limit)


def _attached_now(admin: AdminClient, text: str, limit: int) -> Output:
    path = f"{OWN}/clients{query(find=text, limit=limit)}"
    answer, raw = admin.ask("GET", path, None, ClientsFound)
    rows = [
        (
            each.kind,
            each.name if each.subscription is None else f"{each.name} of {each.subscription}",
            each.client,
            each.topic,
            each.bundle,
            each.broker,
            None if each.since is None else clock(each.since),
            each.rate,
            held_text(each),
        )
        for each in answer.clients
    ]
    headers = ("kind", "name", "client", "topic", "bundle", "broker", "since", "msg/s", "held by")
    topics, notes = _topics(admin, text, answer, limit)
    shown: Shown = table(headers, rows) if rows else [] if topics else _last_of(admin, text)
    waits = {each.topic: each.held_by for each in answer.clients if each.held_by}
    for topic, causes in islice(waits.items(), WAITS_MAX):
        notes += [each for each in greatest_users(admin, topic, causes) if each not in notes]
    if any(each.held_since is not None for each in answer.clients):
        notes.append(WAITS_TOO)
    if (exact := _exactly(text, answer)) is not None:
        notes += _silence(admin, exact, answer)
        notes.append(f"who publishes and reads it: `loadmanager admin topics stats {exact}`")
    if answer.total > len(rows):
        notes.append(f"and {answer.total - len(rows)} more: a longer text, or --limit")
    if not answer.all_searched:
        notes.append("a broker has so many clients that it did not look at all of them")
    if answer.not_asked:
        notes.append(f"{count_of(answer.not_asked, 'broker')} not asked")
    data = {**raw, "storedTopics": [row[0] for row in topics[len(answer.topics) :]]}
    of_topics = (
        *("topic", "bundle", "broker", "producers", "consumers", "msg in/s", "msg out/s"),
        "silent since",
    )
    parts = (*([table(of_topics, topics)] if topics else ()), shown, *notes)
    return Output(data, parts, status=0 if rows or topics else 1, missing=answer.no_answer)


def _attached_at(admin: AdminClient, text: str, at_ms: int, limit: int) -> Output:
    attached, notes, missing = attached_then(admin, at_ms)
    there = [it for it in attached if _has(it, text)]
    there.sort(key=lambda it: (it.name, it.topic or "", it.ts))
    rows = [
        (
            it.what,
            it.name if it.subscription is None else f"{it.name} of {it.subscription}",
            it.client,
            it.topic,
            it.bundle,
            it.broker,
            clock(it.ts),
        )
        for it in there[:limit]
    ]
    headers = ("kind", "name", "client", "topic", "bundle", "broker", "since")
    nobody = (
        f"nobody of this name or address was attached at {clock(at_ms)}, as far as it is recorded"
    )
    more = [f"and {len(there) - limit} more: a longer text, or --limit"]
    parts: tuple[Shown, ...] = (
        table(headers, rows) if rows else nobody,
        *(more if len(there) > limit else ()),
        *incomplete(notes),
    )
    data = [msgspec.to_builtins(it) for it in there]
    return Output(data, parts, status=0 if rows else 1, missing=missing)


def _silence(admin: AdminClient, topic: str, answer: ClientsFound) -> list[str]:
    """Since when nothing is published to an open topic, and when its last client left."""
    it = next(it for it in answer.topics if it.topic == topic)
    if it.rate_in:
        return []
    lines = silent_since(it.published) if it.published else []
    lines = lines or silence_in_records(admin, TopicLoad.kind, topic)
    return [*lines, *([] if it.producers or it.consumers else last_client(admin, topic))]


def _exactly(text: str, answer: ClientsFound) -> str | None:
    """The open topic that has just this name; None: there is none."""
    open_ones = (it.topic for it in answer.topics)
    return next((it for it in open_ones if text in (it, it.partition("://")[2])), None)


def _topics(
    admin: AdminClient, text: str, answer: ClientsFound, limit: int
) -> tuple[list[tuple[Cell, ...]], list[str]]:
    """Rows of the open topics of this name, and of stored ones that are not open; and notes."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(it.topic, it.bundle, it.broker, it.producers, it.consumers, it.rate_in, it.rate_out),
            None if it.rate_in or not is_silent(it.published) else clock(it.published or 0),
        )
        for it in answer.topics
    ]
    if answer.topics_total > len(rows):
        more = answer.topics_total - len(rows)
        return rows, [f"and {count_of(more, 'more topic')}: a longer text, or --limit"]
    stored, notes = _stored(admin, text.casefold(), {it.topic for it in answer.topics})
    rows += [(topic, None, "not open", *[None] * 5) for topic in stored[: limit - len(rows)]]
    if len(stored) > limit - len(answer.topics):
        notes.append("and more topics that are not open: a longer text, or --limit")
    return rows, notes


def _stored(admin: AdminClient, wanted: str, beside: set[str]) -> tuple[list[str], list[str]]:
    """Stored topics of this name beside those, and what was not looked through."""
    try:
        namespaces = namespaces_of(admin)
        if "/" in wanted:  # it says of which namespace it is
            path = wanted.partition("://")[2] or wanted
            namespaces = [it for it in namespaces if _may_have(it.casefold(), path)]
        stored = [
            topic
            for it in namespaces[:NAMESPACES_MAX]
            for topic in admin.get(f"{namespace_path(it)}/topics?mode=ALL", Names)
            if topic not in beside and topic_rank(topic, wanted) is not None
        ]
    except LoadManagerError:  # of a daemon, or of one who may not see them
        return [], []
    stored.sort(key=lambda topic: (topic_rank(topic, wanted) is not False, topic))
    more = len(namespaces) - NAMESPACES_MAX
    return stored, [f"topics that are not open were not looked for in {more} more namespaces"] * (
        more > 0
    )


def _may_have(namespace: str, path: str) -> bool:
    """Whether a topic of a namespace may have this part of a path in its name."""
    parts = path.split("/")
    if len(parts) > 3:
        return False
    return path in f"{namespace}/" or f"{namespace}/".endswith(f"{'/'.join(parts[:-1])}/")


def _last_of(admin: AdminClient, text: str) -> list[str]:
    """Nobody who is connected has this name: what is recorded of it last, and whether it waits."""
    lines = ["nobody who is connected has this name or address"]
    try:
        if has_archives(admin):
            last = events_of(admin, STEPS, text, limit=1).events
            lines += [
                f"{clock(it.last)}  {client_sentence(it.record_as(ClientStep))}" for it in last
            ]
            lines += _waiting(admin, text)
            lines += _was_refused(admin, text, last)
    except OperationalError:
        pass  # it is of use without
    return lines


def _waiting(admin: AdminClient, text: str) -> list[str]:
    """Those of this name that a loss or a move interrupted, and that no broker serves again."""
    to_ms = now_ms()
    begin_ms = to_ms - AGO_MS
    steps, _, _ = client_steps(admin, begin_ms, to_ms, text)
    if not steps:
        return []
    losses = losses_between(admin, begin_ms, to_ms)
    open_ones = _open_of(steps, losses, (begin_ms, to_ms))
    if text not in (named := {it.client.name for it in open_ones}):  # an address: another, since?
        for name in sorted(named)[:WAITING_SHOWN]:
            steps += client_steps(admin, begin_ms, to_ms, name)[0]
        open_ones = _open_of(steps, losses, (begin_ms, to_ms))
    lines = [_waits_text(it, text, to_ms) for it in worst_first(open_ones, to_ms)[:WAITING_SHOWN]]
    more = len(open_ones) - len(lines)
    return [*lines, f"and {more} more"] if more > 0 else lines


def _open_of(
    steps: Sequence[ClientStep], losses: Sequence[Loss], times: tuple[int, int]
) -> list[Interrupted]:
    """The interruptions of a time that have not ended; a step may be among `steps` twice."""
    begin_ms, as_of_ms = times
    single = {(it.ts, it.event, it.broker, key_of(it)): it for it in steps}
    of_all = interruptions_of(single.values(), losses, as_of_ms=as_of_ms)
    waits = {key_of(it.client): it for it in of_all}
    return [
        it for it in waits.values() if it.came_at is None and it.since >= begin_ms and not it.unsure
    ]


def _waits_text(it: Interrupted, text: str, to_ms: int) -> str:
    step = it.client
    why = f"its broker {step.broker} was lost" if it.lost else f"{step.broker} gave its topic up"
    within = f" of {step.subscription}" if step.subscription else ""
    since = _since_option(it.since, to_ms)
    return (
        f"{step.what} {step.name}{within} waits since {clock(it.since)} ({why}), unless its client "
        f"ended: see `loadmanager admin interrupted {quote(text)}{since}` and "
        f"`loadmanager admin limits why {step.topic}`"
    )


def _was_refused(admin: AdminClient, text: str, last: Sequence[ArchivedEvent]) -> list[str]:
    """Where refusals of this name are told, if the last that is recorded of it is one, or others
    have it as a part.
    """
    to_ms = now_ms()
    refusals = last
    if not last:
        refusals = events_of(admin, (REFUSED,), since_ms=to_ms - HOUR_MS, limit=RECORDS_MAX).events
        refusals = [it for it in refusals if _has(it.record_as(ClientStep), text)]
    if not refusals or refusals[0].kind != REFUSED:
        return []
    since = _since_option(refusals[0].last, to_ms)
    how = f"`loadmanager admin find --refused {quote(text)}{since}`"
    return [f"who was refused, how often, and why: {how}"]


def _since_option(at_ms: int, to_ms: int) -> str:
    """What a command of the last hour needs to know of a moment."""
    return f" --since {clock(at_ms).replace(' ', 'T')}" if to_ms - at_ms > LATELY_MS else ""


def _refused(
    admin: AdminClient, text: str, since: int | None, until: int | None, limit: int
) -> Output:
    since = (now_ms() if until is None else until) - HOUR_MS if since is None else since
    past = events_of(
        admin, (REFUSED,), since_ms=since, until_ms=until, limit=RECORDS_MAX, before_start=False
    )
    events = [event for event in past.events if _has(event.record_as(ClientStep), text)]
    if len(past.events) >= RECORDS_MAX:  # with the whole name, it may be among earlier ones
        past = events_of(
            admin,
            (REFUSED,),
            text or None,
            since_ms=since,
            until_ms=until,
            limit=RECORDS_MAX,
            before_start=False,
        )
        events += [event for event in past.events if event not in events]
        events.sort(key=lambda event: -event.last)
    refusals = list(_together([event.record_as(ClientStep) for event in events]).values())
    rows = [
        (
            clock(step.ts),
            step.client,
            ", ".join(step.roles) or None,
            _as_what(step, names),
            step.topic,
            step.broker,
            step.times,
            step.reason,
        )
        for step, names in refusals[:limit]
    ]
    headers = ("last", "client", "role", "as", "topic", "broker", "times", "why")
    by_then = "" if until is None else f" until {clock(until)}"
    nobody = f"nobody was refused since {clock(since)}{by_then}, as far as it is recorded"
    shown: Shown = table(headers, rows) if rows else nobody
    notes = [f"and {len(refusals) - limit} more"] if len(refusals) > limit else []
    data = [{"ts": event.ts, "record": event.record} for event in events]
    gaps = [*past.notes, *_unsaved(admin, since, until)]
    return Output(data, (shown, *notes, *incomplete(gaps)), missing=past.missing)


def _unsaved(admin: AdminClient, since_ms: int, until_ms: int | None) -> list[str]:
    """What brokers had not recorded of that time that were lost in it or shortly after, and whose
    process did not go on: how often refusals came again is in its memory for a while.
    """
    events = events_of(admin, (MemberChange.kind,), since_ms=since_ms, limit=RECORDS_MAX).events
    changes = [it.record_as(MemberChange) for it in events if it.kind == MemberChange.kind]
    went_on, notes = set[str](), list[str]()
    for change in changes:  # the newest first
        if change.event == "back" and change.same_process:
            went_on.add(change.of)
        elif change.event == "left":
            if change.how == "lost" and change.of not in went_on and _reaches(change, until_ms):
                notes.append(_lost_at(change))
            went_on.discard(change.of)
    more = [f"{len(notes) - LOSSES_SHOWN} earlier losses of brokers took such records, too"]
    return [*notes[:LOSSES_SHOWN], *(more if len(notes) > LOSSES_SHOWN else ())]


def _reaches(change: MemberChange, until_ms: int | None) -> bool:
    """Whether what a broker had not recorded when it was lost may be of the time until then."""
    lost_ms = left_at_of(change) - (unheard_of(change) or 0)
    return until_ms is None or lost_ms - 1_000 * AGAIN_S <= until_ms


def _lost_at(change: MemberChange) -> str:
    unheard_ms = unheard_of(change)
    sign = f", up to {span(unheard_ms)} after its last sign" if unheard_ms else ""
    return (
        f"{change.of} was lost at {clock(left_at_of(change))}{sign}: whom it refused in its last "
        f"{NEW_S} s may not be recorded, nor how often it refused the same in its last {AGAIN_S} s"
    )


def _has(step: ClientStep, text: str) -> bool:
    """Whether a part of what a refusal says is this."""
    says = (step.client, *step.roles, step.name, step.topic, step.subscription, step.reason)
    return any(text.casefold() in each.casefold() for each in says if each)


def _as_what(step: ClientStep, names: set[str]) -> str:
    """What it was refused as: a client without a name of its own takes a new one each time."""
    if len(names) > 1:
        return f"{step.what} of {len(names)} names"
    return " ".join(filter(None, (step.what, step.name)))


def _together(
    steps: Iterable[ClientStep],
) -> dict[tuple[object, ...], tuple[ClientStep, set[str]]]:
    """The records of each refusal as one, of the newest first: how often it came in all of them,
    and under which names.
    """
    refusals = dict[tuple[object, ...], tuple[ClientStep, set[str]]]()
    for step in steps:
        who = (step.address, tuple(step.roles), step.what)
        key = (*who, step.topic, step.subscription, step.broker, step.code, step.reason)
        if key in refusals:
            refusals[key][0].times += step.times
        else:
            refusals[key] = step, set()
        refusals[key][1].update({step.name} if step.name else ())
    return refusals
