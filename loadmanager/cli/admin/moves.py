"""`loadmanager admin moves …`, and what `bundles` does through the leader's queue of moves."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import click
from msgspec import UNSET

from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done, listed
from loadmanager.cli.terminal import Cell, table
from loadmanager.engine.bundles.ranges import BundleRange, bundle_name, split_bundle_name
from loadmanager.engine.moves.move import Move, Outcome
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.text import MOMENT_MS_MAX
from loadmanager.leader.documents.decisions import BundleStory
from loadmanager.leader.documents.moves import (
    Cancelled,
    Merged,
    Moved,
    MovesShown,
    NothingMoved,
    PauseShown,
    PinShown,
)

MOVES = f"{OWN}/moves"
PINS = f"{OWN}/pins"
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

group = AdminGroup("moves", help="The leader's queue of moves: list, cancel, pause, resume.")


class Duration(click.ParamType[float]):
    """A number of seconds, written `90s`, `30m`, `2h` or `1d`."""

    name = "DURATION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, str) and value[-1:] in UNITS_S:
            with contextlib.suppress(ValueError):
                if 0 < (seconds := float(value[:-1]) * UNITS_S[value[-1]]) < float("inf"):
                    return seconds
        return self.fail(f"{value}: a duration such as 90s, 30m, 2h or 1d is expected", param, ctx)


class Moment(click.ParamType[int]):
    """A time in milliseconds since the epoch, written `2026-11-20T14:00Z`, or as a duration before
    now: `90s`, `30m`, `2h`, `1d`.
    """

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds since the epoch. A time without a zone is UTC."""
        if isinstance(value, int):
            return value
        if value[-1:] in UNITS_S:
            ago_s = Duration().convert(value, param, ctx)
            return round((datetime.now(UTC).timestamp() - ago_s) * 1000)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value}: a time such as 2026-11-20T14:00Z, or 30m, is expected", param, ctx)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)


@group.command("list")
@click.option("--limit", default=100, metavar="N", help="at most N moves")
def moves_list(admin: AdminClient, limit: int) -> Output:
    """List the moves that wait or are under way, and the last ones that ended, with outcomes."""
    answer, raw = admin.ask("GET", MOVES + query(limit=limit), None, MovesShown)
    headers = ("id", "state", "bundle", "from", "to", "reason", "by", "pause ms", "outcome")
    rows = [_row(move) for move in answer.moves]
    parts: list[Any] = [table(headers, rows) if rows else "no move in this term yet"]
    if answer.paused is not None:
        parts.append(f"paused until {clock(answer.paused.until)}  {answer.paused.note}".rstrip())
    return Output(raw, tuple(parts))


def _row(move: Move) -> tuple[Cell, ...]:
    outcome = move.outcome or Outcome("")
    clients = ""
    if outcome.clients_closed:
        back = "?" if outcome.clients_back is None else outcome.clients_back
        clients = f"; {back} of {outcome.clients_closed} clients back"
    return (
        move.id,
        move.state.value,
        move.bundle,
        move.source,
        move.destination,
        move.reason,
        move.author.value,
        outcome.pause_ms,
        f"{outcome.text}{clients}",
    )


def text_of(outcome: Outcome | None) -> str:
    """What became of a move; empty while that is not known."""
    return "" if outcome is None else outcome.text


def _moment(at_ms: float) -> datetime:
    return datetime.fromtimestamp(min(max(at_ms, 0), MOMENT_MS_MAX) / 1000, UTC)


def clock(at_ms: float) -> str:
    """A time (ms since the epoch) for people; one out of bounds is the bound."""
    return f"{_moment(at_ms):%Y-%m-%d %H:%M:%SZ}"


def time_of_day(at_ms: float) -> str:
    """The same, without the date."""
    return f"{_moment(at_ms):%H:%M:%SZ}"


@group.command("cancel")
@click.argument("move", required=False)
@click.option("--all", "everything", is_flag=True, help="cancel every move that has not begun")
def moves_cancel(admin: AdminClient, move: str | None, everything: bool) -> Output:
    """Cancel a move that has not begun, or all; a swap is cancelled as a whole."""
    if (move is None) != everything:
        raise click.UsageError("name a move, or say --all")
    path = MOVES if move is None else f"{MOVES}/{quote(move, safe='')}"
    cancelled = admin.order("DELETE", path, None, Cancelled).cancelled
    text = (
        f"{count_of(cancelled, 'move')} cancelled"
        if cancelled
        else "no move waits: nothing to cancel"
    )
    return Output({"cancelled": cancelled}, text, status=0 if cancelled else 1)


@group.command("pause")
@click.argument("duration", type=Duration(), metavar="DURATION")
@click.option("--note", default="", help="why, for others")
def moves_pause(admin: AdminClient, duration: float, note: str) -> Output:
    """Let no move begin for a time (90s, 30m, 2h); `bundles move` is not held."""
    wanted = {"seconds": duration, "note": note}
    pause, raw = admin.ask("PUT", f"{MOVES}/pause", wanted, PauseShown)
    return done(f"moves are paused until {clock(pause.until)}", **raw)


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
    owner = _bundle(admin, name).owner
    if owner is None:
        raise OperationalError(f"{bundle} has no owner, where it could stay")
    body = {"bundle": name, "destination": owner, "note": note, "pinSeconds": duration}
    move, raw = _ordered(admin, body)
    until = clock(move.pinned_until or 0)
    return done(f"{bundle} stays at {owner}; pinned until {until}", **raw)


def _bundle(admin: AdminClient, bundle: str) -> BundleStory:
    return admin.get(f"{OWN}/bundles/{bundle}{query(limit=1)}", BundleStory)


def pin_text(admin: AdminClient, bundle: str) -> str:
    """The end of a sentence that says that a bundle is pinned; empty if it is not, or without a
    leader.
    """
    pin = None
    with contextlib.suppress(OperationalError):
        pin = _bundle(admin, bundle).pin
    return "" if pin is None else f"; pinned to {pin.broker} until {clock(pin.until)}"


def bundles_pins(admin: AdminClient) -> Output:
    """List the pinned bundles: the balancer leaves them where they are."""
    pins, raw = admin.ask("GET", PINS, None, dict[str, PinShown])
    rows = [(bundle, pin.broker, clock(pin.until), pin.note) for bundle, pin in pins.items()]
    return listed(raw, ("bundle", "broker", "until", "note"), rows, "no bundle is pinned")


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
