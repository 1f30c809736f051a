"""What the moves of an order for a goal came to: how many arrived, failed, and really moved."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from loadmanager.engine.moves.move import NOT_OWNED, NOT_SENT, Move, MoveState
from loadmanager.engine.plans.order import GoalOrder, OrderedMove, Progress
from loadmanager.leader.pauses import waited_ms


def counted(order: GoalOrder, batch: Sequence[Move]) -> tuple[Progress, int]:
    """The progress with the moves of a batch that have ended, and how many have not."""
    moves, progress, left = {move.bundle: move for move in batch}, order.progress, 0
    for ordered in order.under_way:
        move = moves.get(ordered.bundle)
        if move is None:  # the queue did not take it
            progress = replace(progress, ordered=progress.ordered - 1)
        elif not move.ended:
            left += 1
        else:
            progress = with_ended(progress, arrived=move.state is MoveState.DONE)
            if _has_moved(move):
                progress = progress.and_moved(ordered, _client_seconds(ordered, move))
    return progress, left


def with_ended(progress: Progress, *, arrived: bool) -> Progress:
    """The progress with one more move that arrived, or failed."""
    if arrived:
        return replace(progress, arrived=progress.arrived + 1)
    return replace(progress, failed=progress.failed + 1)


def _has_moved(move: Move) -> bool:
    """Whether the bundle has left its broker, so that its clients were paused. What is not known
    counts.
    """
    outcome = move.outcome
    if move.state is MoveState.DONE or outcome is None:
        return True
    if move.started_at is None or outcome.code in (NOT_SENT, NOT_OWNED):
        return False
    return outcome.owner != move.source or outcome.pause_ms is not None


def _client_seconds(ordered: OrderedMove, move: Move) -> float:
    """The pauses of a bundle's clients: measured, or else expected."""
    outcome, wait_ms = move.outcome, waited_ms(move)
    if outcome is None or wait_ms is None or outcome.clients_closed is None:
        return ordered.client_seconds
    return outcome.clients_closed * wait_ms / 1000
