"""`loadmanager admin find`: where a client, a producer, a consumer or a subscription is, and who
was refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import click

from loadmanager.broker.ports.topics import ClientsFound
from loadmanager.cli.admin.archives import (
    events_of,
    has_archives,
    incomplete,
    now_ms,
)
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.greatest_user import greatest_users
from loadmanager.cli.admin.held_clients import WAITS_TOO, held_text
from loadmanager.cli.admin.story import client_sentence
from loadmanager.cli.admin.times import clock, since_option
from loadmanager.cli.terminal import Shown, table
from loadmanager.engine.history.clients import REFUSED, ClientStep
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.units import HOUR_MS

WAITS_MAX = 3
"""For so many topics with clients that wait, it names who uses most of what they wait for."""
RECORDS_MAX = 1_000
STEPS = (f"{ClientStep.kind}.attached", f"{ClientStep.kind}.left", REFUSED)


@click.command(cls=AdminCommand)
@click.argument("text", metavar="[TEXT]", default="")
@click.option("--refused", is_flag=True, help="who was refused, by which broker, and why")
@since_option
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, metavar="N", help="at most N [default: 20]"
)
def find(admin: AdminClient, text: str, limit: int, since: int | None, *, refused: bool) -> Output:
    """Find producers, consumers and subscriptions by a part of a name, an address or a role, and
    with --refused who was refused something.

    It says on which topic they are, which broker serves it, how much they get through, and what
    holds them now; those with exactly this name come first. `history` of the name or the address
    tells when they came, left and were refused. With --refused, those of the last hour who were
    refused something, or since --since, how often, and when last; TEXT is then a part of a name, an
    address, a role, a topic or the reason, or left out.
    """
    if refused:
        return _refused(admin, text, since, limit)
    if since is not None:
        raise click.UsageError("--since goes with --refused; `history` tells what was")
    if not text:
        raise click.UsageError("TEXT is missing: a part of a name, an address or a role")
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
    shown: Shown = table(headers, rows) if rows else _last_of(admin, text)
    notes = list[str]()
    waits = {each.topic: each.held_by for each in answer.clients if each.held_by}
    for topic, causes in islice(waits.items(), WAITS_MAX):
        notes += [each for each in greatest_users(admin, topic, causes) if each not in notes]
    if any(each.held_since is not None for each in answer.clients):
        notes.append(WAITS_TOO)
    if answer.total > len(rows):
        notes.append(f"and {answer.total - len(rows)} more: a longer text, or --limit")
    if not answer.all_searched:
        notes.append("a broker has so many clients that it did not look at all of them")
    if answer.not_asked:
        notes.append(f"{count_of(answer.not_asked, 'broker')} not asked")
    return Output(raw, (shown, *notes), status=0 if rows else 1, missing=answer.no_answer)


def _last_of(admin: AdminClient, text: str) -> list[str]:
    """Nobody who is connected has this name: what is recorded of it last."""
    lines = ["nobody who is connected has this name or address"]
    try:
        if has_archives(admin):
            last = events_of(admin, STEPS, text, limit=1).events
            lines += [
                f"{clock(it.last)}  {client_sentence(it.record_as(ClientStep))}" for it in last
            ]
    except OperationalError:
        pass  # it is of use without
    return lines


def _refused(admin: AdminClient, text: str, since: int | None, limit: int) -> Output:
    since = now_ms() - HOUR_MS if since is None else since
    past = events_of(admin, (REFUSED,), since_ms=since, limit=RECORDS_MAX)
    events = [event for event in past.events if _has(event.record_as(ClientStep), text)]
    if len(past.events) >= RECORDS_MAX:  # with the whole name, it may be among earlier ones
        past = events_of(admin, (REFUSED,), text or None, since_ms=since, limit=RECORDS_MAX)
        events += [event for event in past.events if event not in events]
        events.sort(key=lambda event: -event.last)
    refusals = list(_together([event.record_as(ClientStep) for event in events]).values())
    rows = [
        (
            clock(step.ts),
            step.client,
            ", ".join(step.roles) or None,
            " ".join(filter(None, (step.what, step.name))),
            step.topic,
            step.broker,
            step.times,
            step.reason,
        )
        for step in refusals[:limit]
    ]
    headers = ("last", "client", "role", "as", "topic", "broker", "times", "why")
    nobody = f"nobody was refused since {clock(since)}, as far as it is recorded"
    shown: Shown = table(headers, rows) if rows else nobody
    notes = [f"and {len(refusals) - limit} more"] if len(refusals) > limit else []
    data = [{"ts": event.ts, "record": event.record} for event in events]
    return Output(data, (shown, *notes, *incomplete(past.notes)), missing=past.missing)


def _has(step: ClientStep, text: str) -> bool:
    """Whether a part of what a refusal says is this."""
    says = (step.client, *step.roles, step.name, step.topic, step.subscription, step.reason)
    return any(text.casefold() in each.casefold() for each in says if each)


def _together(steps: Iterable[ClientStep]) -> dict[tuple[object, ...], ClientStep]:
    """The records of each refusal as one, of the newest first: how often it came in all of them."""
    refusals = dict[tuple[object, ...], ClientStep]()
    for step in steps:
        who = (step.address, tuple(step.roles), step.what, step.name)
        key = (*who, step.topic, step.subscription, step.broker, step.code, step.reason)
        if key in refusals:
            refusals[key].times += step.times
        else:
            refusals[key] = step
    return refusals
