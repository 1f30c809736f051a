"""`loadmanager admin interrupted`: which clients waited in moves and losses of brokers, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from loadmanager.cli.admin.archives import events_of, incomplete, now_ms
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import client_steps, losses_between
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.times import at_option, clock, since_option, span, until_of, until_option
from loadmanager.cli.terminal import Cell, Shown, table
from loadmanager.engine.history.records import Decision
from loadmanager.engine.history.waits import Interrupted, interruptions_of, worst_first
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.units import HOUR_MS

AFTER_MS = 10 * 60_000
"""So long after the time that is asked for, clients may have come back."""
BEFORE_MS = 1_000
"""The clocks of two brokers may be so far apart."""
MOVE = re.compile(r"\d{1,12}-m?\d{1,12}")


@click.command(cls=AdminCommand)
@click.argument("name", metavar="[MOVE|BROKER|NAME]", default="")
@since_option
@until_option
@at_option
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=100, metavar="N", help="at most N clients"
)
def interrupted(
    admin: AdminClient,
    name: str,
    since: int | None,
    until: int | None,
    *,
    at: int | None,
    limit: int,
) -> Output:
    """Name the clients that a move, or the loss or stop of a broker, interrupted: how long each
    waited until a broker served it again, and who is not back; the worst first.

    Those of the last hour, or since --since; with --at, those of the hour before. MOVE is an id of
    `moves list`, BROKER one that lost or gave up its clients; another NAME is a part of a topic, a
    bundle, an address or a client's name. Times are those of the brokers' clocks. The archives
    answer: also for a broker that is gone, if its files are beside those of another one. Clients of
    a broker that stood still and was not lost are not named.
    """
    end_ms = now_ms() if (last := until_of(at, until)) is None else last
    begin_ms = end_ms - HOUR_MS if since is None else since
    move = _move(admin, name) if MOVE.fullmatch(name) else None
    if move is not None and move.ended_at is not None:
        end_ms = move.ended_at + BEFORE_MS
        begin_ms = (move.started_at or move.ended_at) - BEFORE_MS
    steps, notes, missing = client_steps(admin, begin_ms, end_ms + AFTER_MS)
    losses = losses_between(admin, begin_ms, end_ms)
    waits = [
        it
        for it in interruptions_of(steps, losses)
        if begin_ms <= it.since <= end_ms and (_is_of(it, move) if move else _has(it, name))
    ]
    as_of_ms = min(now_ms(), end_ms + AFTER_MS)
    shown = worst_first(waits, as_of_ms)[:limit]
    data = [_data(it, as_of_ms) for it in shown]
    parts: list[Shown] = [_summary(waits, begin_ms, end_ms, as_of_ms)]
    if shown:
        headers = ("waited", "client", "as", "topic", "since", "from", "because", "now at")
        parts.append(table(headers, [_row(it, as_of_ms) for it in shown]))
    if len(waits) > limit:
        parts.append(f"and {len(waits) - limit} more: --limit shows them")
    if any(it.unheard_ms for it in waits):
        most = max(it.unheard_ms for it in waits)
        parts.append(
            f"those of a lost broker may have waited up to {span(most)} more, before it was lost"
        )
    return Output(data, (*parts, *incomplete(notes)), missing=missing)


def _move(admin: AdminClient, name: str) -> Decision:
    """The record of a move. Raises `OperationalError` if there is none, or it has not begun."""
    for event in events_of(admin, ("decision.move",), name, limit=10).events:
        record = event.record_as(Decision)
        if name in (record.move, *record.ids):
            if record.started_at is None or record.ended_at is None:
                raise OperationalError(f"move {name} closed no clients: {record.outcome}")
            return record
    raise OperationalError(f"no move {name} is recorded yet: it is once its clients are counted")


def _is_of(it: Interrupted, move: Decision) -> bool:
    return it.client.broker == move.source and it.client.bundle == move.bundle


def _has(it: Interrupted, name: str) -> bool:
    step = it.client
    if name == step.broker:
        return True
    says = (step.client, *step.roles, step.name, step.topic, step.subscription, step.bundle)
    return any(name.casefold() in each.casefold() for each in says if each)


def _summary(waits: Sequence[Interrupted], begin_ms: int, end_ms: int, as_of_ms: int) -> str:
    when = f"from {clock(begin_ms)} to {clock(end_ms)}"
    if not waits:
        return f"no client is recorded that was interrupted {when}"
    back = [it for it in waits if it.back_at is not None]
    missing = len(waits) - len(back)
    text = f"{count_of(len(waits), 'interruption')} of clients {when}"
    if back:
        text += f": those that are back waited {span(max(it.waited_ms(as_of_ms) for it in back))}"
        text += " at most"
    if missing:
        text += f"; {missing} {'is' if missing == 1 else 'are'} not seen to be back"
    return text


def _row(it: Interrupted, as_of_ms: int) -> tuple[Cell, ...]:
    step = it.client
    within = f" of {step.subscription}" if step.subscription else ""
    waited = span(it.waited_ms(as_of_ms))
    return (
        waited if it.back_at is not None else f"{waited}, NOT BACK",
        step.client,
        f"{step.what} {step.name}{within}",
        step.topic,
        clock(it.since),
        step.broker,
        _because(it),
        it.back or None,
    )


def _because(it: Interrupted) -> str:
    if it.lost:
        return "it was lost"
    to = it.client.destination
    return f"moved to {to}" if to else it.client.reason


def _data(it: Interrupted, as_of_ms: int) -> dict[str, Any]:
    step = it.client
    return {
        "client": step.client,
        "kind": step.what,
        "name": step.name,
        "subscription": step.subscription,
        "topic": step.topic,
        "bundle": step.bundle,
        "roles": step.roles,
        "broker": step.broker,
        "because": _because(it),
        "since": it.since,
        "unheardMs": it.unheard_ms,
        "waitedMs": it.waited_ms(as_of_ms),
        "backAt": it.back_at,
        "backAtBroker": it.back or None,
    }
