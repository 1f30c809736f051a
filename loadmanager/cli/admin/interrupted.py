"""`loadmanager admin interrupted`: which clients waited in moves and losses of brokers, by name."""

from __future__ import annotations

import re
from typing import Any

import click

from loadmanager.cli.admin.archives import events_of, incomplete, now_ms
from loadmanager.cli.admin.causes import Causes, is_of_name
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import client_steps, interrupted_between
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.interruptions import between_text
from loadmanager.cli.admin.names_then import unknown_then
from loadmanager.cli.admin.sentences import clients
from loadmanager.cli.admin.starting import unrecorded_losses
from loadmanager.cli.admin.times import (
    at_option,
    clock,
    since_option,
    span,
    span_between,
    until_of,
    until_option,
)
from loadmanager.cli.terminal import Cell, Shown, table
from loadmanager.engine.history.records import Decision, recorded_move
from loadmanager.engine.history.waits import Interrupted, worst_first
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.units import HOUR_MS
from loadmanager.leader.interruptions import AFTER_MS, CLOCKS_MS, is_of

MEANT = (
    "waited: until it was attached again, not until its first receipt or delivery; a limit that "
    "holds its connection may delay both"
)
UNHEARD = (
    "a wait from … to …: a lost broker served its clients until some time between its last sign, "
    "which makes it the longer one, and the end of its session (where all brokers were down: when "
    "its next sign was due), which makes it the shorter one"
)
WHY_MAX = 40
"""Characters; what is longer is told below the table."""
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
    """Name the clients that a move, or the loss, stop or standstill of a broker, interrupted: how
    long each waited until it was attached again, and who is not back; the worst first.

    A client that comes back and leaves again within 90 s without a message only tried to: it waits
    on until it comes for longer, or with a message. One that comes after more than 25 s may have
    given up already: it is back once it has stayed for ten seconds, and said to be attached again
    until then.

    It waited not only because of the move or the loss: a limit that holds its connection may have
    kept it from attaching, and may keep it from its first receipt or delivery after that, which is
    not in these times. It says for how much of its wait limits held the connection over which it
    came back, if for a second or longer; of those who waited for long, whether they held another
    one from the host, over which it may have asked where its topic is; and of those not back,
    whether somebody refused them, or limits hold a connection from their host.

    Those of the last hour, or since --since; with --at, those of the hour before, as they were
    then. MOVE is an id of `moves list`, BROKER one that lost or gave up its clients; another NAME
    is a part of a topic, a bundle, an address or a client's name. Times are those of the brokers'
    clocks. The archives answer: also for a broker that is gone, if its files are beside those of
    another one.
    """
    move = _move(admin, name) if MOVE.fullmatch(name) else None
    begin_ms, end_ms = _asked(since, until_of(at, until), move)
    by_name = interrupted_between(admin, begin_ms, end_ms)
    waits = [
        it for it in by_name.waits if (is_of(it, move) if move else is_of_name(it.client, name))
    ]
    as_of_ms = min(now_ms(), end_ms + AFTER_MS)
    if move is None and not waits:
        _check_known(admin, name, begin_ms, as_of_ms)
    if at is not None:
        as_of_ms = at
        waits = [it.until(at) for it in waits if it.since <= at]
    shown = worst_first(waits, as_of_ms)[:limit]
    lasts = at is None and now_ms() <= end_ms + AFTER_MS
    causes = Causes.of(admin, by_name, shown, (begin_ms, as_of_ms), lasts=lasts)
    data = [_data(it, causes) for it in shown]
    parts: list[Shown] = [between_text(waits, begin_ms, end_ms, as_of_ms)]
    if waits:
        parts.append(MEANT)
    if move is not None and (text := _served_again(move)):
        parts.append(text)
    if shown:
        headers = ("waited", "client", "as", "topic", "since", "from", "because", "now at")
        notes = list[str]()
        parts.append(table(headers, [_row(it, causes, notes) for it in shown]))
        if notes:
            parts.append([f"({number}) {note}" for number, note in enumerate(notes, 1)])
    if causes.held_at:
        parts.append("which limit holds connections: `loadmanager admin limits why TOPIC`")
    if len(waits) > limit:
        parts.append(f"and {len(waits) - limit} more: --limit shows them")
    if any(it.unheard_ms for it in waits):
        parts.append(UNHEARD)
    parts += unrecorded_losses(admin, by_name.changes, lasts=lasts and move is None)
    return Output(data, (*parts, *incomplete(by_name.notes)), missing=by_name.missing)


def _move(admin: AdminClient, name: str) -> Decision:
    """The record of a move. Raises `OperationalError` if there is none, or it has not begun."""
    for event in events_of(admin, ("decision.move",), name, limit=10).events:
        record = event.record_as(Decision)
        if name in (record.move, *record.ids):
            if record.started_at is None or record.ended_at is None:
                raise OperationalError(f"move {name} closed no clients: {record.outcome}")
            return record
    raise OperationalError(f"no move {name} is recorded yet: it is once its clients are counted")


def _asked(since: int | None, until: int | None, move: Decision | None) -> tuple[int, int]:
    """The time that is asked about: that of the move, if one is named that has ended."""
    if move is not None and move.ended_at is not None:
        return (move.started_at or move.ended_at) - CLOCKS_MS, move.ended_at + CLOCKS_MS
    end_ms = now_ms() if until is None else until
    return end_ms - HOUR_MS if since is None else since, end_ms


def _check_known(admin: AdminClient, name: str, begin_ms: int, until_ms: int) -> None:
    """Raise `OperationalError` for a name that nobody has, and that is no part of what is recorded
    of a client.
    """
    if not name:
        return
    steps, _, _ = client_steps(admin, begin_ms, until_ms)
    if not any(is_of_name(step, name) for step in steps) and (
        text := unknown_then(admin, name, until_ms)
    ):
        raise OperationalError(f"{text}; nothing that is recorded of a client has it in it")


def _served_again(move: Decision) -> str:
    """What the leader counted of a move, in its own terms; empty if it closed no client."""
    outcome = recorded_move(move).outcome
    if outcome is None or not outcome.clients_closed:
        return ""
    return f"{clients(outcome)}, as the leader counted, until the first receipt or delivery of each"


def _row(it: Interrupted, causes: Causes, notes: list[str]) -> tuple[Cell, ...]:
    """`notes`: what does not fit into a column goes there."""
    step = it.client
    within = f" of {step.subscription}" if step.subscription else ""
    waited_ms = it.waited_ms(causes.as_of_ms)
    waited = span_between(waited_ms, waited_ms + it.unheard_ms)
    if it.came_at is None:
        waited += ", NOT BACK"
    elif it.back_at is None:
        waited += f"; here again for {span(causes.as_of_ms - it.came_at)}, not sure to stay"
    because = (causes.because(it), causes.course(it), _tries(it), causes.why_not_yet(it))
    why = "; ".join(filter(None, because))
    return (
        waited,
        step.client,
        f"{step.what} {step.name}{within}",
        step.topic,
        clock(it.since),
        step.broker,
        _in_short(why, notes),
        it.back or it.again or None,
    )


def _in_short(why: str, notes: list[str]) -> str:
    """What fits into a column, with the number of the note that says all."""
    if len(why) <= WHY_MAX:
        return why
    if why not in notes:
        notes.append(why)
    first = re.split("[:;] ", why, maxsplit=1)[0]
    return f"{first[:WHY_MAX]} ({notes.index(why) + 1})"


def _tries(it: Interrupted) -> str:
    """How often it seemed to be back; empty if it did not."""
    if not it.tried:
        return ""
    often = "once" if len(it.tried) == 1 else f"{len(it.tried)} times"
    return f"it tried {often} and got no message through"


def _data(it: Interrupted, causes: Causes) -> dict[str, Any]:
    step, hold = it.client, causes.hold(it)
    held_ms = None if hold is None else round(hold.overlap_ms(it, causes.as_of_ms))
    return {
        "client": step.client,
        "kind": step.what,
        "name": step.name,
        "subscription": step.subscription,
        "topic": step.topic,
        "bundle": step.bundle,
        "roles": step.roles,
        "broker": step.broker,
        "because": causes.because(it),
        "course": causes.course(it),
        "since": it.since,
        "unheardMs": it.unheard_ms,
        "waitedMs": it.waited_ms(causes.as_of_ms),
        "backAt": it.back_at,
        "againAt": it.again_at,
        "tries": len(it.tried),
        "backAtBroker": it.back or it.again or None,
        "heldAt": causes.holder(it) or (hold and hold.broker),
        "heldMs": held_ms,
        "heldBy": hold and hold.limits_for(it, causes.as_of_ms),
    }
