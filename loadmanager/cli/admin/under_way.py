"""Moves that are under way for longer than one takes whose broker answers."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.cli.admin.archives import now_ms
from loadmanager.cli.admin.asking import OWN
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.sentences import under_way_text
from loadmanager.engine.moves.move import Move, MoveState
from loadmanager.kit.errors import LoadManagerError
from loadmanager.leader.documents.moves import MovesShown

SLOW_MS = 5_000
"""A move that takes longer waits for a broker that does not answer."""
NAMED_MAX = 5


def slow_moves(moves: Sequence[Move], now_ms: int) -> list[str]:
    """A line for each: since when, and who waits."""
    slow = [
        move
        for move in moves
        if move.state is MoveState.RUNNING and now_ms - (move.started_at or now_ms) > SLOW_MS
    ]
    more = [f"and {len(slow) - NAMED_MAX} more moves"] if len(slow) > NAMED_MAX else []
    return [under_way_text(move, now_ms) for move in slow[:NAMED_MAX]] + more


def slow_moves_of(admin: AdminClient, names: Sequence[str]) -> list[str]:
    """Those of these bundles and brokers now, or with no name all; none if no leader answers."""
    try:
        moves = admin.get(f"{OWN}/moves", MovesShown).moves
    except LoadManagerError:
        return []
    if names:
        wanted = {*names}
        moves = [it for it in moves if {it.bundle, it.source, it.destination} & wanted]
    return slow_moves(moves, now_ms())
