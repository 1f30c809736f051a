"""The clients of moves that came back after the leader had counted them, by their own records: one
truth with `interrupted`, the line of the day and the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType, to_builtins
from msgspec.structs import replace

from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import interrupted_between
from loadmanager.engine.history.records import Decision
from loadmanager.engine.moves.move import Move, Outcome
from loadmanager.kit.errors import LoadManagerError
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.documents.interruptions import MoveReturn
from loadmanager.leader.interruptions import CLOCKS_MS, returned


def count_moves(admin: AdminClient, moves: Sequence[Move], raw: Sequence[dict[str, Any]]) -> bool:
    """Have moves, and the documents of some of them, tell which of their clients are back by now:
    the leader waits for them for a while only. Returns whether that is more of some.
    """
    backs = _returns(admin, [_record(it.id, it) for it in moves if it.outcome is not None])
    for move in moves:
        if move.outcome is not None and (back := backs.get(move.id)):
            move.outcome = _counted(move.outcome, back)
    _count_documents(backs, {it.id: it.outcome for it in moves}, "id", raw)
    return bool(backs)


def count_decisions(
    admin: AdminClient, decisions: Sequence[DecisionShown], raw: Sequence[dict[str, Any]]
) -> None:
    """The same of decisions, among which are moves that have ended."""
    ended = {
        it.move: it
        for it in decisions
        if it.kind == "move" and isinstance(it.move, str) and isinstance(it.outcome, Outcome)
    }
    backs = _returns(admin, [_record(name, it) for name, it in ended.items()])
    for name, back in backs.items():
        outcome = ended[name].outcome
        assert isinstance(outcome, Outcome)
        ended[name].outcome = _counted(outcome, back)
    _count_documents(backs, {name: it.outcome for name, it in ended.items()}, "move", raw)


def _returns(admin: AdminClient, moves: Sequence[Decision | None]) -> dict[str, MoveReturn]:
    """Move → its clients by their own records, where more are back than the leader counted."""
    short = [it for it in moves if it is not None]
    if not short:
        return {}
    begin_ms = min(it.started_at or it.ts for it in short) - CLOCKS_MS
    try:
        waits = interrupted_between(admin, begin_ms, max(it.ts for it in short) + CLOCKS_MS).waits
    except LoadManagerError:  # it is of use without
        return {}
    return {it.move: it for it in returned(short, waits)}


def _record(name: str, move: Move | DecisionShown) -> Decision | None:
    """What tells which clients a move had interrupted; None: all are back, or it had none, or it
    has not ended.
    """
    outcome, ended_ms = move.outcome, _given(move.ended_at)
    if not isinstance(outcome, Outcome) or ended_ms is None or outcome.clients_closed is None:
        return None
    if (outcome.clients_back or 0) >= outcome.clients_closed:
        return None
    return Decision(
        ts=ended_ms,
        broker="",
        epoch=0,
        cycle=0,
        strategy="",
        action="move",
        bundle=_given(move.bundle),
        source=_given(move.source),
        move=name,
        started_at=_given(move.started_at),
        ended_at=ended_ms,
        clients_back=outcome.clients_back,
    )


def _given(value: Any) -> Any:
    return None if value is UNSET else value


def _counted(outcome: Outcome, back: MoveReturn) -> Outcome:
    return replace(
        outcome,
        clients_back=min(back.back, outcome.clients_closed or back.back),
        clients_unserved=None,
        clients_waited_ms=back.longest_ms,
        clients_waited_mean_ms=None,
        clients_within_ms=None,
    )


def _count_documents(
    backs: dict[str, MoveReturn],
    outcomes: dict[str, Outcome | UnsetType | None],
    name: str,
    raw: Sequence[dict[str, Any]],
) -> None:
    for document in raw:
        if (of := document.get(name)) in backs and isinstance(document.get("outcome"), dict):
            document["outcome"] |= to_builtins(outcomes[of])
