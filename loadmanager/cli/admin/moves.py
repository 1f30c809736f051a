"""`loadmanager admin moves …`, and what `bundles` does through the leader's queue of moves."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click
from msgspec import UNSET, to_builtins

from loadmanager.cli.admin.archives import events_of, incomplete, now_ms
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done, listed
from loadmanager.cli.admin.interruptions import todays_interruptions
from loadmanager.cli.admin.past_wishes import documents_then, pause_then
from loadmanager.cli.admin.returned import count_moves
from loadmanager.cli.admin.sentences import clients, ordered, paused_text, so_far_text
from loadmanager.cli.admin.times import (
    Duration,
    at_option,
    clock,
    since_option,
    time_of_day,
    until_of,
    until_option,
)
from loadmanager.cli.terminal import Cell, table
from loadmanager.engine.bundles.ranges import BundleRange, bundle_name, split_bundle_name
from loadmanager.engine.history.records import (
    Decision,
    decided_ms,
    move_record,
    recorded_move,
)
from loadmanager.engine.load.wishes import Pin, Wishes
from loadmanager.engine.moves.move import Move, MoveState, Outcome
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.leader.documents.cluster import BundlesShown
from loadmanager.leader.documents.decisions import BundleStory
from loadmanager.leader.documents.moves import (
    Cancelled,
    CordonShown,
    Merged,
    Moved,
    MovesShown,
    NothingMoved,
    PauseShown,
    PinShown,
)

MOVES = f"{OWN}/moves"
PINS = f"{OWN}/pins"
CORDONS = f"{OWN}/cordons"
ENDED_MAX = 1_000
"""Moves that a leader is asked for."""
OPEN_MS = 3_600_000
"""A move that waits or is under way ends within this time."""
BUNDLES_MAX = 10_000
"""As many as a leader lists."""

_OF_EARLIER_VERSION = re.compile(r"(\d+)-(\d+)")
"""The id of a move, as it was when decisions had such ids, too."""

PAUSED = (
    "nothing moves, splits or merges by itself, and no drain, goal or plan goes on; what you order "
    "for one bundle does: `bundles move`, `unload`, `split` and `merge`"
)
NO_MOVE = "no move in this term yet; --since shows those of earlier terms"
EARLIER = "the moves of the present leader's term; --since shows those of earlier terms"
ENDED_SO = {
    MoveState.DONE: "ended",
    MoveState.FAILED: "failed",
    MoveState.CANCELLED: "was cancelled",
    MoveState.EXPIRED: "expired",
}
BACK = (
    "back: with its first receipt or delivery, while the leader counted, or by their own records "
    "once they were attached again; `loadmanager admin interrupted MOVE` names each client"
)

group = AdminGroup("moves", help="The leader's queue of moves: list, cancel, pause, resume.")


@group.command("list")
@since_option
@until_option
@at_option
@click.option("--limit", default=100, metavar="N", help="at most N moves")
def moves_list(
    admin: AdminClient, since: int | None, until: int | None, at: int | None, limit: int
) -> Output:
    """List the moves that wait or are under way, since when, and the last ones that ended, with
    outcomes.

    With a time, those that ended then, also under earlier leaders; with --at also those that were
    waiting or under way then, and a pause.
    """
    until = until_of(at, until)
    headers = ("id", "state", "bundle", "from", "to", "reason", "by", "pause ms", "outcome")
    if since is not None or until is not None:
        past = moves_between(admin, since, until, limit)
        is_more = at is None and count_moves(admin, past.moves, ())
        ended = [(clock(move.ended_at or 0), *_row(move, 0)) for move in past.moves]
        shown = table(("ended", *headers), ended) if ended else "no move ended then"
        paused = [] if at is None else [*_open_then(admin, at), *pause_then(admin, at)]
        notes = (*_meant(past.moves, is_more=is_more), *paused, *incomplete(past.notes))
        return Output(past.data, (shown, *notes), missing=past.missing)
    answer, raw = admin.ask("GET", MOVES + query(limit=limit), None, MovesShown)
    is_more = count_moves(admin, answer.moves, raw["moves"])
    present_ms = now_ms()
    rows = [_with_time(move, _row(move, present_ms)) for move in answer.moves]
    shown = table((*headers[:-1], "when", headers[-1]), rows) if rows else NO_MOVE
    parts: list[Any] = [shown, *_earlier(answer.moves), *_taken_up(answer.taken_up)]
    parts += _meant(answer.moves, is_more=is_more)
    if answer.paused is not None:
        parts.append(paused_text(answer.paused))
    parts += todays_interruptions(admin)
    return Output(raw, tuple(parts))


def _open_then(admin: AdminClient, at_ms: int) -> list[str]:
    """The moves that waited or were under way at a moment, by the records of how they ended."""
    later = moves_between(admin, at_ms + 1, at_ms + OPEN_MS, ENDED_MAX).moves
    lines = []
    for move in sorted(later, key=lambda it: it.created_at):
        began_ms = move.started_at or move.ended_at or 0
        if move.created_at > at_ms:
            continue
        way = f"{move.bundle} from {move.source} to {move.destination or 'wherever it is placed'}"
        state = "waited" if began_ms > at_ms else f"was under way since {clock(began_ms)}"
        end = f"it {ENDED_SO.get(move.state, move.state.value)} at {clock(move.ended_at or 0)}"
        lines.append(f"{move.id} {state} then: {way} ({end})")
    return lines


def _earlier(moves: Sequence[Move]) -> list[str]:
    """That terms before the leader's may have had moves, too, which are not listed."""
    terms = (move.id.partition("-")[0] for move in moves)
    return [EARLIER] if any(it.isdecimal() and int(it) > 1 for it in terms) else []


def _taken_up(ids: Sequence[str]) -> list[str]:
    """Which moves are none of the present leader, if it lists any."""
    if not ids:
        return []
    return [f"made by an earlier leader, and their clients counted by this one: {', '.join(ids)}"]


def _meant(moves: Sequence[Move], *, is_more: bool) -> list[str]:
    """Which clients are meant by those that are back, if of some move not all are, or `is_more`
    than its leader had counted.
    """
    outcomes = [it.outcome for it in moves if it.outcome is not None]
    backs = [(it.clients_back, it.clients_closed or 0) for it in outcomes]
    is_less = any(back is not None and back < closed for back, closed in backs)
    return [BACK] if is_less or is_more else []


@dataclass(slots=True)
class MovesThen:
    """Moves that ended within a time, the newest first."""

    moves: list[Move]
    data: list[dict[str, Any]]
    """Their records. One that the leader has not recorded yet has no `broker` and no `cycle`."""
    notes: list[str]
    missing: dict[str, str]


def moves_between(
    admin: AdminClient, since: int | None, until: int | None, limit: int
) -> MovesThen:
    """The moves of the archives, and those of the present leader that are not recorded yet, because
    their clients are still counted.
    """
    past = events_of(admin, ("decision.move",), since_ms=since, until_ms=until, limit=limit)
    records = [event.record_as(Decision) for event in past.events]
    ended = [
        (decided_ms(record), recorded_move(record), event.record)
        for record, event in zip(records, past.events, strict=True)
    ]
    recorded = {record.move for record in records}
    with contextlib.suppress(OperationalError):
        answer = admin.get(MOVES + query(limit=ENDED_MAX), MovesShown)
        ended += unrecorded([it for it in answer.moves if it.id not in recorded], since, until)
    ended.sort(key=lambda it: -it[0])
    moves = [move for _, move, _ in ended[:limit]]
    for move in moves:
        move.id = _OF_EARLIER_VERSION.sub(r"\1-m\2", move.id)
    return MovesThen(moves, [data for *_, data in ended[:limit]], past.notes, past.missing)


def unrecorded(
    moves: Sequence[Move], since: int | None, until: int | None
) -> list[tuple[int, Move, dict[str, Any]]]:
    """When each of the moves ended that did so within a time, the move, and what its record will
    have, without what is not known yet.
    """
    return [
        (at, move, _record_of(move, at))
        for move in moves
        if (at := move.ended_at) is not None
        and (since is None or at >= since)
        and (until is None or at <= until)
    ]


def _record_of(move: Move, ended_ms: int) -> dict[str, Any]:
    epoch = int(move.id.partition("-")[0])
    record = to_builtins(move_record(ended_ms, "", move, epoch=epoch, cycle=0, life=None))
    return {name: value for name, value in record.items() if name not in ("broker", "cycle")}


def _row(move: Move, present_ms: int) -> tuple[Cell, ...]:
    """A line of the table; `present_ms` counts for a move that has not ended."""
    outcome = move.outcome or Outcome("")
    text = clients(outcome) if outcome.clients_closed else ""
    clients_text = f"; {text}" if text else ""
    if not move.ended:
        clients_text = so_far_text(move, present_ms)
    return (
        move.id,
        move.state.value,
        move.bundle,
        move.source,
        move.destination,
        move.reason,
        _by(move),
        outcome.pause_ms,
        f"{outcome.text}{clients_text}",
    )


def _with_time(move: Move, row: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """A line with when it ended, or since when it is under way or waits, before the outcome."""
    if move.ended_at is not None:
        when = time_of_day(move.ended_at)
    else:
        when = f"since {time_of_day(move.started_at or move.created_at)}"
    return (*row[:-1], when, row[-1])


def _by(move: Move) -> str:
    """Who wanted it, and who ordered that."""
    by = move.why.get("orderedBy")
    if by and by == move.source:
        by = "ordered by the broker itself"
    return move.author.value + (f" ({by})" if by else "")


def text_of(outcome: Outcome | None) -> str:
    """What became of a move; empty while that is not known."""
    return "" if outcome is None else outcome.text


@group.command("cancel")
@click.argument("move", required=False)
@click.option("--all", "everything", is_flag=True, help="cancel every move that has not begun")
def moves_cancel(admin: AdminClient, move: str | None, everything: bool) -> Output:
    """Cancel a move that has not begun, or all; a swap is cancelled as a whole.

    One that has begun ends by itself: its bundle is on its way. Status 1 if none is cancelled.
    """
    if (move is None) != everything:
        raise click.UsageError("name a move, or say --all")
    path = MOVES if move is None else f"{MOVES}/{quote(move, safe='')}"
    cancelled = admin.order("DELETE", path, None, Cancelled).cancelled
    text = "no move waits: nothing to cancel"
    if cancelled:
        text = f"{count_of(cancelled, 'move')} cancelled{_queued_again(admin)}"
    if everything:
        text += _under_way(admin)
    return Output({"cancelled": cancelled}, text, status=0 if cancelled else 1)


def _under_way(admin: AdminClient) -> str:
    """That moves that have begun are not cancelled, if there are any."""
    running = 0
    with contextlib.suppress(OperationalError):
        running = admin.get(MOVES + query(limit=1), MovesShown).running
    if not running:
        return ""
    return f"; {count_of(running, 'move')} under way cannot be cancelled, and will end by itself"


def _queued_again(admin: AdminClient) -> str:
    """That drains queue their moves again, if there are any."""
    cordons: list[CordonShown] = []
    with contextlib.suppress(OperationalError):
        cordons = admin.get(CORDONS, list[CordonShown])
    draining = [each.broker for each in cordons if each.state == "draining"]
    if not draining:
        return ""
    ends = " and ".join(f"`loadmanager admin brokers uncordon {name}`" for name in draining)
    return f"; a drain queues its moves again, until {ends}"


@group.command("pause")
@click.argument("duration", type=Duration(), metavar="DURATION")
@click.option("--note", default="", help="why, for others")
def moves_pause(admin: AdminClient, duration: float, note: str) -> Output:
    """Let nothing move by itself for a time (90s, 30m, 2h): no cycle, drain, goal or plan begins a
    move, and no bundle is split or merged.

    What an operator orders for one bundle goes on: `bundles move`, `unload`, `split` and `merge`.
    """
    wanted = {"seconds": duration, "note": note}
    before = None
    with contextlib.suppress(OperationalError):  # the order counts
        before = admin.get(MOVES + query(limit=1), MovesShown).paused
    pause, raw = admin.ask("PUT", f"{MOVES}/pause", wanted, PauseShown)
    was = "" if before is None else f"; before, {paused_text(before, 'were')}"
    return done(f"moves are paused until {clock(pause.until)}: {PAUSED}{was}", **raw)


@group.command("resume")
def moves_resume(admin: AdminClient) -> Output:
    """End the pause."""
    paused = admin.get(MOVES + query(limit=1), MovesShown).paused is not None
    admin.send("DELETE", f"{MOVES}/pause")
    text = "moves go on" if paused else "moves were not paused"
    return Output({"resumed": paused}, text, status=0 if paused else 1)


# `loadmanager admin bundles …`


@click.argument("bundle", metavar="TENANT/NAMESPACE/RANGE")
@click.option("--to", required=True, metavar="BROKER", help="host:port of the next owner")
@click.option("--pin", type=Duration(), help="keep the bundle there for so long (90s, 30m, 2h)")
@click.option("--note", default="", help="why, for others")
def bundles_move(admin: AdminClient, bundle: str, to: str, pin: float | None, note: str) -> Output:
    """Move a bundle to a broker, and wait for the outcome; --pin keeps the balancer from it."""
    body = {"bundle": bundle, "destination": to, "note": note}
    wanted = body if pin is None else {**body, "pinSeconds": pin}
    move, raw = _ordered(admin, wanted)
    outcome = move.outcome or Outcome("")
    if isinstance(move, NothingMoved):
        text = outcome.text
    else:
        pause = "" if outcome.pause_ms is None else f", pause {outcome.pause_ms:.0f} ms"
        text = f"{bundle} moved from {move.source} to {outcome.owner}{pause}"
    if move.pinned_until is not UNSET:
        still = "" if pin is not None else "still "
        text += f"; {still}pinned until {clock(move.pinned_until)}"
    return Output(raw, text, status=1 if isinstance(move, NothingMoved) and pin is None else 0)


def _ordered(admin: AdminClient, wanted: Any) -> tuple[Moved | NothingMoved, Any]:
    """The answer to an order to move, and its JSON."""
    return admin.ask("POST", MOVES, wanted, Moved, NothingMoved)


@click.argument("bundle", metavar="TENANT/NAMESPACE/RANGE")
@click.argument("duration", type=Duration(), metavar="DURATION")
@click.option("--note", default="", help="why, for others")
def bundles_pin(admin: AdminClient, bundle: str, duration: float, note: str) -> Output:
    """Keep a bundle where it is for a time (90s, 30m, 2h): the balancer does not move it.

    `bundles move --pin` moves it first.
    """
    namespace, bundle_range = split_bundle_name(bundle)
    name = bundle_name(namespace, str(BundleRange.parse(bundle_range)))
    story = _bundle(admin, name)
    owner = story.owner
    if owner is None:
        raise OperationalError(f"{bundle} has no owner, where it could stay")
    body = {"bundle": name, "destination": owner, "note": note, "pinSeconds": duration}
    move, raw = _ordered(admin, body)
    until = clock(move.pinned_until or 0)
    was = ""
    if (pin := story.pin) is not None:
        about = f" ({text})" if (text := ordered(pin)) else ""
        was = f"; before, it was pinned to {pin.broker} until {clock(pin.until)}{about}"
    return done(f"{bundle} stays at {owner}; pinned until {until}{was}", **raw)


def _bundle(admin: AdminClient, bundle: str) -> BundleStory:
    return admin.get(f"{OWN}/bundles/{bundle}{query(limit=1)}", BundleStory)


def owner_of(admin: AdminClient, bundle: str) -> str | None:
    """The owner of a bundle, as it is stored: the list of all bundles has it later. None: nobody
    owns it, or it is not known.
    """
    with contextlib.suppress(OperationalError):
        return _bundle(admin, bundle).owner
    return None


def pin_text(admin: AdminClient, bundle: str) -> str:
    """The end of a sentence that says that a bundle is pinned; empty if it is not, or without a
    leader.
    """
    pin = None
    with contextlib.suppress(OperationalError):
        pin = _bundle(admin, bundle).pin
    if pin is None:
        return ""
    about = f" ({text})" if (text := ordered(pin)) else ""
    return f"; pinned to {pin.broker} until {clock(pin.until)}{about}"


@at_option
def bundles_pins(admin: AdminClient, at: int | None) -> Output:
    """List the pinned bundles: where the balancer leaves each, and where it is now.

    With --at, those that were pinned then, each with its last change before.
    """
    if at is not None:
        return _pins_at(admin, at)
    pins, raw = admin.ask("GET", PINS, None, dict[str, PinShown])
    owners = dict[str, str | None]()
    if pins:
        with contextlib.suppress(OperationalError):
            there = admin.get(f"{OWN}/bundles{query(limit=BUNDLES_MAX)}", BundlesShown)
            owners = {each.bundle: each.owner for each in there.bundles}
    rows = [
        (bundle, pin.broker, owners.get(bundle), clock(pin.until), pin.note, pin.by)
        for bundle, pin in pins.items()
    ]
    headers = ("bundle", "broker", "now at", "until", "note", "by")
    return listed(raw, headers, rows, "no bundle is pinned")


@dataclass(slots=True)
class PinsThen:
    """The pins of a moment, each with its last change before."""

    data: list[dict[str, Any]]
    notes: list[str]
    missing: dict[str, str]

    def of(self, bundle: str) -> PinShown | None:
        """The pin of a bundle, or of the bundle that it was a part of."""
        wishes = Wishes(
            {
                it["bundle"]: Pin(
                    it.get("broker", ""), it["untilMs"], it.get("note", ""), it.get("by", "")
                )
                for it in self.data
            }
        )
        pin = wishes.pin_of(bundle)
        return None if pin is None else PinShown.of(pin)


def pins_at(admin: AdminClient, at_ms: int) -> PinsThen:
    """The pins that were in force then."""
    present = {
        bundle: {"broker": pin.broker, "untilMs": pin.until, "note": pin.note, "by": pin.by}
        for bundle, pin in admin.get(PINS, dict[str, PinShown]).items()
    }
    then = documents_then(admin, paths.PINS, present, at_ms)
    data = [
        {"bundle": bundle, **it.fields, "changed": it.changed}
        for bundle, it in then.documents.items()
        if it.fields.get("untilMs", 0) > at_ms  # else it was over
    ]
    return PinsThen(data, then.notes, then.missing)


def _pins_at(admin: AdminClient, at_ms: int) -> Output:
    then = pins_at(admin, at_ms)
    fields = ("bundle", "broker", "untilMs", "note", "by", "changed")
    rows = [
        [clock(it[name]) if name == "untilMs" else it.get(name, "") for name in fields]
        for it in then.data
    ]
    headers = ("bundle", "broker", "until", "note", "by", "changed")
    shown = table(headers, rows) if rows else "no bundle was pinned, as far as it is recorded"
    return Output(then.data, (shown, *incomplete(then.notes)), missing=then.missing)


@click.argument("bundle", metavar="TENANT/NAMESPACE/RANGE")
def bundles_unpin(admin: AdminClient, bundle: str) -> Output:
    """Remove the pin of a bundle."""
    namespace, bundle_range = split_bundle_name(bundle)
    name = bundle_name(namespace, str(BundleRange.parse(bundle_range)))
    admin.send("DELETE", f"{PINS}/{name}")
    return done(f"{bundle} is no longer pinned")


@click.argument("namespace", metavar="TENANT/NAMESPACE")
@click.argument("first", metavar="RANGE")
@click.argument("second", metavar="RANGE")
def bundles_merge(admin: AdminClient, namespace: str, first: str, second: str) -> Output:
    """Merge two bundles that lie next to each other; their topics stay open."""
    body = {"namespace": namespace, "first": first, "second": second}
    merged = admin.order("POST", f"{OWN}/merges", body, Merged).merged
    return done(f"{first} and {second} are {merged} now", merged=merged)
