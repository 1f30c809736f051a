"""`loadmanager admin watch`: what happens in the cluster, as it happens."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import click
import msgspec
from msgspec import UNSET

from loadmanager.cli.admin.asking import OWN, count_of
from loadmanager.cli.admin.client import AdminClient, decoded
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.leader import shown, words
from loadmanager.cli.admin.moves import text_of
from loadmanager.cli.admin.times import at_option, time_of_day
from loadmanager.engine.moves.move import Move
from loadmanager.engine.strategies.plan_document import because
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.conversion import converted
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.text import printable
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.documents.events import BrokerChange, Lost, OwnershipChange, TermChange
from loadmanager.leader.documents.findings import FindingChange

AGAIN_S = 1.0
"""Wait before the stream is asked for again: its leader may have changed."""
NAMED_MAX = 3
COUNT_THEN = 20
"""Events that are shown of a past moment without --count."""


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
                self._show(kind, _document(value))
                self.last, event_id = event_id or self.last, ""

    def _show(self, kind: str, data: dict[str, Any]) -> None:
        line = printable(line_of(kind, data))
        click.echo(json.dumps({"event": kind, "data": data}) if self._raw else line)
        self.shown += 1
        if self._count is not None and self.shown >= self._count:
            raise _Enough


def _document(text: str) -> dict[str, Any]:
    """The data of an event. Raises `OperationalError`."""
    try:
        return decoded(text, dict[str, Any])[0]
    except ValueError as error:
        raise OperationalError(f"an event is no JSON object: {error}") from None


@click.command(cls=AdminCommand)
@click.option("--count", type=click.IntRange(1, 1_000), metavar="N", help="end after N events")
@at_option
def watch(admin: AdminClient, count: int | None, at: int | None) -> Output:
    """Show decisions, moves, owners, brokers and leaders as they change, until Ctrl-C.

    With --json, each event is a line. The command follows the leader. With --at, the last events
    before that time, as they are recorded: twenty, or N.
    """
    if at is not None:
        from loadmanager.cli.admin.story import story_of_all  # it takes time

        return story_of_all(admin, None, at, count or COUNT_THEN, "--count")
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
    """An event for people; one of another version with its fields as they are."""
    at_ms = data.get("at") or data.get("ts") or data.get("endedAt") or data.get("startedAt")
    at_ms = at_ms or data.get("createdAt")
    at = time_of_day(at_ms) if at_ms and isinstance(at_ms, int | float) else " " * 9
    text = _other(data)
    if kind in _TEXTS:
        shape, describe = _TEXTS[kind]
        with contextlib.suppress(msgspec.ValidationError):
            text = describe(converted(data, shape))
    return f"{at}  {kind:<10}  {text}".rstrip()


def _decision(decision: DecisionShown) -> str:
    head = decision.kind
    if head == "place":
        return f"{head}: {decision.bundle} -> {decision.broker}"
    if head == "move":
        text = text_of(decision.outcome or None)
        return f"{head} {decision.move} {decision.state}: {decision.bundle}: {text}"
    if decision.unloads is not UNSET and decision.skipped is not UNSET:
        count = decision.unloads_count or 0 if decision.unloads else 0
        reasons = [skip.reason for skip in decision.skipped]
        why = decision.unloads[0].reason if count else (reasons or ["nothing to do"])[0]
        moving = "1 bundle moves" if count == 1 else f"{count} bundles move"
        times = "" if decision.times is UNSET else f", {decision.times} cycles in a row"
        return f"{head} by {decision.strategy}: {moving}{times}: {why}"
    return f"{head}: {_other(msgspec.to_builtins(decision))}"


def _move(move: Move) -> str:
    text = f"{move.id} {move.state.value}: {move.bundle} {move.source} -> "
    text += f"{move.destination or 'anywhere'} ({move.author.value}: {move.reason}) "
    return text + text_of(move.outcome)


def _ownership(change: OwnershipChange) -> str:
    parts = []
    for word, names, count in (
        ("has", change.gained, change.gained_count),
        ("no longer has", change.lost, change.lost_count),
    ):
        if count:
            more = count - len(names[:NAMED_MAX])
            named = ", ".join(names[:NAMED_MAX])
            parts.append(f"{word} {named}" + (f" and {more} more" if more > 0 else ""))
    return f"{change.broker} {'; '.join(parts)}"


def _broker(change: BrokerChange) -> str:
    gone = f"is gone, without an owner: {count_of(change.bundles, 'bundle')}"
    return f"{change.broker} {'joined' if change.state == 'active' else gone}"


def _leadership(change: TermChange) -> str:
    if change.leader is None:
        return f"term {change.epoch} is over"
    return f"{change.leader} leads, term {change.epoch}"


def _split(split: DecisionShown) -> str:
    text = f"{split.bundle} on {split.broker}, {because(split.reason or '', split.why or {})}"
    return f"{text}: {split.outcome.text}" if split.outcome else text


def _merge(merge: DecisionShown) -> str:
    return f"{merge.bundle} on {merge.broker}: {merge.reason}"


def _change(change: ChangeShown) -> str:
    id_ = f" ({change.id})" if change.id else ""
    return f"{change.role or change.address} on {change.broker}: {change}{id_}"


def _finding(change: FindingChange) -> str:
    return f"{change.state}: {change.finding.title}"


def _lost(event: Lost) -> str:
    return f"{count_of(event.lost, 'event')} not sent: this end was too slow"


def _other(data: dict[str, Any]) -> str:
    values = {name: value for name, value in data.items() if name not in ("at", "ts")}
    return ", ".join(f"{words(name)} {shown(name, value)}" for name, value in values.items())


_TEXTS: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "decision": (DecisionShown, _decision),
    "move": (Move, _move),
    "ownership": (OwnershipChange, _ownership),
    "broker": (BrokerChange, _broker),
    "leadership": (TermChange, _leadership),
    "split": (DecisionShown, _split),
    "merge": (DecisionShown, _merge),
    "change": (ChangeShown, _change),
    "finding": (FindingChange, _finding),
    "lost": (Lost, _lost),
}
"""Kind of event → what its line relies on, and the line."""
