"""`loadmanager admin interrupted`: which clients waited in moves and losses of brokers, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from loadmanager.cli.admin.archives import events_of, incomplete, now_ms
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import client_steps, interrupted_between
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.downtimes import Lapse
from loadmanager.cli.admin.held_clients import holders_of
from loadmanager.cli.admin.held_then import ConnectionHold, held_between, longest_for
from loadmanager.cli.admin.interruptions import longest_of
from loadmanager.cli.admin.moves import owner_of
from loadmanager.cli.admin.names_then import unknown_then
from loadmanager.cli.admin.sentences import clients
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
from loadmanager.engine.history.clients import CLOSED_HERE, REFUSED, ClientStep
from loadmanager.engine.history.lapses import lapse_of
from loadmanager.engine.history.records import Decision, decided_ms, recorded_move
from loadmanager.engine.history.waits import Interrupted, Key, key_of, worst_first
from loadmanager.engine.moves.move import MoveState
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.units import HOUR_MS
from loadmanager.leader.interruptions import AFTER_MS, CLOCKS_MS, is_of

REFUSALS_MAX = 1_000
MOVES_MAX = 1_000
OWNERS_MAX = 20
"""Bundles whose owner is asked for."""
MEANT = (
    "waited: until it was attached again, not until its first receipt or delivery; a limit that "
    "holds its connection may delay both"
)
UNHEARD = (
    "a wait from … to …: since the session of a lost broker was over (if all brokers ended without "
    "a word, since the next sign that it would have given), or since its last sign before"
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
    waits = [it for it in by_name.waits if (is_of(it, move) if move else _has(it, name))]
    as_of_ms = min(now_ms(), end_ms + AFTER_MS)
    if move is None and not waits:
        _check_known(admin, name, begin_ms, as_of_ms)
    if at is not None:
        as_of_ms = at
        waits = [it.until(at) for it in waits if it.since <= at]
    shown = worst_first(waits, as_of_ms)[:limit]
    lasts = at is None and now_ms() <= end_ms + AFTER_MS
    held_at = _held_at(admin, shown) if lasts else {}
    holds = held_between(admin, begin_ms, as_of_ms, by_name.losses) if shown else []
    refusals, failed = _refusals(admin, shown, begin_ms, as_of_ms), _failed_moves(admin, shown)
    causes = _Causes(by_name.lapses, held_at, holds, refusals, failed, as_of_ms)
    data = [_data(it, causes) for it in shown]
    parts: list[Shown] = [_summary(waits, begin_ms, end_ms, as_of_ms)]
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
    if held_at:
        parts.append("which limit holds connections: `loadmanager admin limits why TOPIC`")
    if len(waits) > limit:
        parts.append(f"and {len(waits) - limit} more: --limit shows them")
    if any(it.unheard_ms for it in waits):
        parts.append(UNHEARD)
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
    if not any(_is_in(step, name) for step in steps) and (
        text := unknown_then(admin, name, until_ms)
    ):
        raise OperationalError(f"{text}; nothing that is recorded of a client has it in it")


def _refusals(
    admin: AdminClient, waits: Sequence[Interrupted], since_ms: int, until_ms: int
) -> dict[Key, str]:
    """For those that are not back and were refused since they were interrupted: how often, and what
    the last answer was.
    """
    missing = {key_of(it.client): it for it in waits if it.came_at is None}
    if not missing:
        return {}
    answer = events_of(admin, (REFUSED,), since_ms=since_ms, until_ms=until_ms, limit=REFUSALS_MAX)
    steps = dict[Key, list[ClientStep]]()
    for event in answer.events:
        step = event.record_as(ClientStep)
        it = missing.get(key_of(step))
        if it is not None and event.last >= it.since:
            steps.setdefault(key_of(step), []).append(step)
    texts = dict[Key, str]()
    for key, refused in steps.items():
        last = max(refused, key=lambda step: step.ts)
        times = sum(step.times for step in refused)
        texts[key] = f"{last.broker} refused it, {count_of(times, 'time')}: {last.reason}"
    return texts


def _failed_moves(admin: AdminClient, waits: Sequence[Interrupted]) -> list[Decision]:
    """The moves that failed about when brokers closed topics of clients."""
    closed = [it.since for it in waits if it.client.reason == CLOSED_HERE]
    if not closed:
        return []
    answer = events_of(
        admin,
        ("decision.move",),
        since_ms=min(closed) - CLOCKS_MS,
        until_ms=max(closed) + HOUR_MS,
        limit=MOVES_MAX,
    )
    records = [event.record_as(Decision) for event in answer.events]
    return [it for it in records if it.state == MoveState.FAILED.value and it.started_at]


def _held_at(admin: AdminClient, waits: Sequence[Interrupted]) -> dict[Key, str]:
    """For those that are not back and of whose address limits hold a connection at the broker that
    should serve them: that broker. If there is none, one that may not read their lookup.
    """
    missing = [it for it in waits if it.came_at is None]
    holders = holders_of(admin) if missing else {}
    owners, held_at = dict[str, str | None](), dict[Key, str]()
    for it in missing:
        brokers = holders.get(it.client.client.rpartition(":")[0])
        bundle = it.client.bundle
        if not brokers or bundle is None:
            continue
        if bundle not in owners:
            if len(owners) == OWNERS_MAX:
                break
            owners[bundle] = owner_of(admin, bundle)
        owner = owners[bundle]
        if owner is None or owner in brokers:
            held_at[key_of(it.client)] = owner or min(brokers)
    return held_at


def _served_again(move: Decision) -> str:
    """What the leader counted of a move, in its own terms; empty if it closed no client."""
    outcome = recorded_move(move).outcome
    if outcome is None or not outcome.clients_closed:
        return ""
    return f"{clients(outcome)}, as the leader counted, until the first receipt or delivery of each"


def _has(it: Interrupted, name: str) -> bool:
    return _is_in(it.client, name)


def _is_in(step: ClientStep, name: str) -> bool:
    if name == step.broker:
        return True
    says = (step.client, *step.roles, step.name, step.topic, step.subscription, step.bundle)
    return any(name.casefold() in each.casefold() for each in says if each)


def _summary(waits: Sequence[Interrupted], begin_ms: int, end_ms: int, as_of_ms: int) -> str:
    when = f"from {clock(begin_ms)} to {clock(end_ms)}"
    if not waits:
        return f"no client is recorded that was interrupted {when}"
    back = [it for it in waits if it.back_at is not None]
    again = sum(it.back_at is None and it.came_at is not None for it in waits)
    missing = len(waits) - len(back) - again
    text = f"{count_of(len(waits), 'interruption')} of clients {when}"
    if back:
        longest = longest_of(back)
        text += f": those that are back were attached again after {longest} at most"
    if again:
        text += f"; {again} {'is' if again == 1 else 'are'} attached again, not sure to stay"
    if missing:
        text += f"; {missing} {'is' if missing == 1 else 'are'} not seen to be attached again"
    return text


def _row(it: Interrupted, causes: _Causes, notes: list[str]) -> tuple[Cell, ...]:
    """`notes`: what does not fit into a column goes there."""
    step = it.client
    within = f" of {step.subscription}" if step.subscription else ""
    waited_ms = it.waited_ms(causes.as_of_ms)
    waited = span_between(waited_ms, waited_ms + it.unheard_ms)
    if it.came_at is None:
        waited += ", NOT BACK"
    elif it.back_at is None:
        waited += f"; here again for {span(causes.as_of_ms - it.came_at)}, not sure to stay"
    why = "; ".join(filter(None, (causes.because(it), _tries(it), causes.why_not_yet(it))))
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


@dataclass(frozen=True, slots=True)
class _Causes:
    """What clients may have waited for."""

    lapses: Sequence[Lapse]
    held_at: Mapping[Key, str]
    """Where limits hold connections of the address of one that is not back."""
    holds: Sequence[ConnectionHold]
    refusals: Mapping[Key, str]
    """What those that are not back were told when they tried."""
    failed: Sequence[Decision]
    """Moves that failed."""
    as_of_ms: int

    def because(self, it: Interrupted) -> str:
        """What its broker did, and why, where that is recorded."""
        step = it.client
        if step.destination:
            return f"moved to {step.destination}"
        if (move := self._failed_move(it)) is not None:
            by = f" by {move.why['orderedBy']}" if move.why.get("orderedBy") else ""
            return f"move {move.move} to {move.destination}{by} failed: {move.outcome}"
        lapse = lapse_of(self.lapses, step.broker, it.since)
        if it.stood:
            return "it stood still" if lapse is None else lapse.of(step.broker)
        did = "it was lost" if it.lost else step.reason
        return did if lapse is None else f"{did}: {lapse.of(step.broker)}"

    def _failed_move(self, it: Interrupted) -> Decision | None:
        """The move of its bundle that failed, for which its broker had closed its topic."""
        if it.lost or it.stood or it.client.reason != CLOSED_HERE:
            return None
        of = (
            move
            for move in self.failed
            if (move.bundle, move.source) == (it.client.bundle, it.client.broker)
            and (move.started_at or 0) - CLOCKS_MS <= it.since <= decided_ms(move) + CLOCKS_MS
        )
        return next(of, None)

    def holder(self, it: Interrupted) -> str | None:
        """Where limits hold connections of its address now, if it is not back."""
        return self.held_at.get(key_of(it.client)) if it.came_at is None else None

    def hold(self, it: Interrupted) -> ConnectionHold | None:
        """The connection of its address that limits held longest while it waited."""
        if it.stood:
            return None
        lapse = lapse_of(self.lapses, it.client.broker, it.since)
        still_ms = 0 if lapse is None else lapse.end
        return longest_for(self.holds, it, self.as_of_ms, still_ms)

    def why_not_yet(self, it: Interrupted) -> str:
        """Why it is not back: who refused it, or what limits had to do with it; empty: nothing that
        is known.
        """
        refusal = self.refusals.get(key_of(it.client))
        if it.came_at is None and refusal is not None:
            return refusal
        if (holder := self.holder(it)) is not None:
            return f"{holder} holds connections from its host for a limit, maybe not its own"
        return "" if (hold := self.hold(it)) is None else self._held_text(it, hold)

    def _held_text(self, it: Interrupted, hold: ConnectionHold) -> str:
        lasted = span(hold.overlap_ms(it, self.as_of_ms))
        whose = "its connection"
        if not hold.is_of(it):
            whose = "a connection from its host, maybe not its own"
        limits = hold.limits_for(it, self.as_of_ms)
        why = " for a limit" if limits is None else f": {limits}"
        return f"for {lasted} of it, {hold.broker} held {whose}{why}"


def _data(it: Interrupted, causes: _Causes) -> dict[str, Any]:
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
