"""`loadmanager admin watch`: what happens in the cluster, as it happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, NotRequired, TypedDict

import click
import msgspec

from loadmanager.cli.admin.asking import OWN, count_of
from loadmanager.cli.admin.client import AdminClient, decoded
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.leader import shown, words
from loadmanager.cli.admin.moves import text_of, time_of_day
from loadmanager.cli.admin.shapes import Document, Move, Outcome, Skip, Unload, Why
from loadmanager.engine.strategies.plan_document import because
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.text import printable

AGAIN_S = 1.0
"""Wait before the stream is asked for again: its leader may have changed."""
NAMED_MAX = 3


class _Enough(Exception):  # noqa: N818 - no error
    """The wanted number of events was shown."""


class _Watching:
    """Reads a stream, and shows its events."""

    def __init__(self, *, count: int | None) -> None:
        self.last = ""
        self.shown = 0
        self._count = count
        self._raw = "loadmanager.json" in click.get_current_context().meta

    def take(self, lines: Iterable[bytes]) -> None:
        """Show the events of a stream until it ends."""
        kind = event_id = ""
        for line in lines:
            name, _, value = line.decode(errors="replace").rstrip("\r\n").partition(": ")
            if name == "id":
                event_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                self._show(kind, _told(value))
                self.last, event_id = event_id or self.last, ""

    def _show(self, kind: str, data: dict[str, Any]) -> None:
        line = printable(line_of(kind, data))
        click.echo(json.dumps({"event": kind, "data": data}) if self._raw else line)
        self.shown += 1
        if self._count is not None and self.shown >= self._count:
            raise _Enough


def _told(text: str) -> dict[str, Any]:
    """The data of an event. Raises `OperationalError`."""
    try:
        return decoded(text, Document)
    except ValueError as error:
        raise OperationalError(f"an event is no JSON object: {error}") from None


@click.command(cls=AdminCommand)
@click.option("--count", type=int, metavar="N", help="end after N events")
def watch(admin: AdminClient, count: int | None) -> Output:
    """Show decisions, moves, owners, brokers and leaders as they change, until Ctrl-C.

    With --json, each event is a line. The command follows the leader.
    """
    watching = _Watching(count=count)
    try:
        while True:
            try:
                admin.listen(f"{OWN}/events", watching.last, watching.take)
            except OperationalError as error:
                if not watching.shown:
                    raise
                click.echo(f"loadmanager admin: {printable(str(error))}; trying again", err=True)
            time.sleep(AGAIN_S)
    except (_Enough, KeyboardInterrupt):
        return Output({"events": watching.shown}, count_of(watching.shown, "event"))


def line_of(kind: str, data: dict[str, Any]) -> str:
    """An event for people."""
    at_ms = data.get("at") or data.get("ts") or data.get("endedAt") or data.get("startedAt")
    at_ms = at_ms or data.get("createdAt")
    at = time_of_day(at_ms) if at_ms and isinstance(at_ms, int | float) else " " * 9
    shape, text = _TEXTS.get(kind, (Document, _other))
    try:
        msgspec.convert(data, shape)
    except msgspec.ValidationError:
        text = _other  # of another version
    return f"{at}  {kind:<10}  {text(data)}".rstrip()


class _Decision(TypedDict):
    kind: str
    bundle: NotRequired[str]
    broker: NotRequired[str | None]
    move: NotRequired[str]
    state: NotRequired[str]
    outcome: NotRequired[Outcome | None]
    strategy: NotRequired[str]
    times: NotRequired[int]
    unloads: NotRequired[list[Unload]]
    unloadsCount: NotRequired[int]
    skipped: NotRequired[list[Skip]]


def _decision(data: dict[str, Any]) -> str:
    head = data["kind"]
    if head == "place" and {"bundle", "broker"} <= data.keys():
        return f"{head}: {data['bundle']} -> {data['broker']}"
    if head == "move" and {"move", "state", "bundle"} <= data.keys():
        outcome = text_of(data.get("outcome"))
        return f"{head} {data['move']} {data['state']}: {data['bundle']}: {outcome}"
    if {"unloads", "skipped", "strategy"} <= data.keys():
        count = data.get("unloadsCount", 0) if data["unloads"] else 0
        reasons = [skip["reason"] for skip in data["skipped"]]
        why = data["unloads"][0]["reason"] if count else (reasons or ["nothing to do"])[0]
        moving = "1 bundle moves" if count == 1 else f"{count} bundles move"
        times = f", {data['times']} cycles in a row" if "times" in data else ""
        return f"{head} by {data['strategy']}: {moving}{times}: {why}"
    return f"{head}: {_other(data)}"


def _move(data: dict[str, Any]) -> str:
    outcome = text_of(data["outcome"])
    text = f"{data['id']} {data['state']}: {data['bundle']} {data['source']} -> "
    return (
        f"{text}{data['destination'] or 'anywhere'} ({data['author']}: {data['reason']}) {outcome}"
    )


class _Ownership(TypedDict):
    broker: str
    gained: list[str]
    gainedCount: int
    lost: list[str]
    lostCount: int


def _ownership(data: dict[str, Any]) -> str:
    parts = []
    for name, word in (("gained", "has"), ("lost", "no longer has")):
        if data[f"{name}Count"]:
            more = data[f"{name}Count"] - len(data[name][:NAMED_MAX])
            named = ", ".join(data[name][:NAMED_MAX])
            parts.append(f"{word} {named}" + (f" and {more} more" if more > 0 else ""))
    return f"{data['broker']} {'; '.join(parts)}"


class _Broker(TypedDict):
    broker: str
    state: str
    bundles: NotRequired[int]


def _broker(data: dict[str, Any]) -> str:
    gone = f"is gone, without an owner: {count_of(data.get('bundles', 0), 'bundle')}"
    return f"{data['broker']} {'joined' if data['state'] == 'active' else gone}"


class _Leadership(TypedDict):
    leader: str | None
    epoch: int


def _leadership(data: dict[str, Any]) -> str:
    if data["leader"] is None:
        return f"term {data['epoch']} is over"
    return f"{data['leader']} leads, term {data['epoch']}"


class _Split(TypedDict):
    bundle: str
    broker: str
    reason: str
    why: Why
    outcome: Outcome | None


def _split(data: dict[str, Any]) -> str:
    text = f"{data['bundle']} on {data['broker']}, {because(data)}"
    return text if data["outcome"] is None else f"{text}: {data['outcome']['text']}"


class _Merge(TypedDict):
    bundle: str
    broker: str
    reason: str


def _merge(data: dict[str, Any]) -> str:
    return f"{data['bundle']} on {data['broker']}: {data['reason']}"


class _Change(TypedDict):
    role: str
    address: str
    what: str
    broker: str


def _change(data: dict[str, Any]) -> str:
    return f"{data['role'] or data['address']} on {data['broker']}: {data['what']}"


class _Lost(TypedDict):
    lost: int


def _lost(data: dict[str, Any]) -> str:
    return f"{count_of(data['lost'], 'event')} not sent: this end was too slow"


def _other(data: dict[str, Any]) -> str:
    told = {name: value for name, value in data.items() if name not in ("at", "ts")}
    return ", ".join(f"{words(name)} {shown(name, value)}" for name, value in told.items())


_TEXTS: dict[str, tuple[Any, Callable[[dict[str, Any]], str]]] = {
    "decision": (_Decision, _decision),
    "move": (Move, _move),
    "ownership": (_Ownership, _ownership),
    "broker": (_Broker, _broker),
    "leadership": (_Leadership, _leadership),
    "split": (_Split, _split),
    "merge": (_Merge, _merge),
    "change": (_Change, _change),
    "lost": (_Lost, _lost),
}
"""Kind of event → what its line relies on, and the line."""
