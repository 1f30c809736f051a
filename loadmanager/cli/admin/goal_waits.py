"""How long the clients of a goal's moves waited, by their own records: as `interrupted` counts."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.cli.admin.archives import events_of, now_ms
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import interrupted_between
from loadmanager.cli.admin.interruptions import longest_of
from loadmanager.cli.admin.times import span
from loadmanager.engine.history.records import Decision, decided_ms
from loadmanager.engine.history.waits import Interrupted
from loadmanager.engine.moves.move import Author
from loadmanager.engine.plans.goals import Emptied
from loadmanager.kit.errors import LoadManagerError
from loadmanager.leader.documents.goals import GoalShown
from loadmanager.leader.interruptions import AFTER_MS, CLOCKS_MS, is_of

MOVES_MAX = 1_000


def waited_for(admin: AdminClient, order: GoalShown) -> list[str]:
    """A line about the clients of the moves that an order has made; none without records."""
    if not order.progress.arrived:
        return []
    begin_ms = order.approved_ms or order.made_ms
    end_ms = now_ms() if order.ended_ms is None else order.ended_ms
    try:
        moves = _moves_of(admin, order, begin_ms, end_ms)
        waits = interrupted_between(admin, begin_ms, end_ms)
    except LoadManagerError:  # without archives, or of a daemon
        return []
    line = waited_text(waits.waits, moves)
    if line and not waits.whole:
        line += "; not all records of clients are there"
    return [line] if line else []


def waited_text(waits: Sequence[Interrupted], moves: Sequence[Decision]) -> str:
    """How long the clients of these moves waited; empty if none did, as far as is recorded. Those
    of a broker that was lost do not count, though a move of their bundle failed by that.
    """
    its = [it for it in waits if not it.lost and any(is_of(it, move) for move in moves)]
    if not its:
        return ""
    back = [it for it in its if it.back_at is not None]
    text = f"by the records of clients: {count_of(len(its), 'client')} waited"
    if back:
        total_ms = sum(it.waited_ms(0) for it in back)
        text += f" {span(total_ms)} in all until attached again, longest {longest_of(back)}"
    if missing := len(its) - len(back):
        are = "is" if missing == 1 else "are"
        text += f"; {missing} of them {are} not seen to be back" + ", and not in this sum" * bool(
            back
        )
    return text


def _moves_of(admin: AdminClient, order: GoalShown, begin_ms: int, end_ms: int) -> list[Decision]:
    """The moves that were made for an order. One that is no drain is alone at work."""
    author = (Author.DRAIN if order.drain else Author.GOAL).value
    events = events_of(
        admin,
        ("decision.move",),
        since_ms=begin_ms,
        until_ms=end_ms + AFTER_MS,  # it is recorded once its clients were counted
        limit=MOVES_MAX,
    ).events
    records = [it.record_as(Decision) for it in events]
    return [
        it
        for it in records
        if it.author == author
        and begin_ms <= decided_ms(it) <= end_ms + CLOCKS_MS
        and not (isinstance(order.goal, Emptied) and it.source != order.goal.broker)
    ]
