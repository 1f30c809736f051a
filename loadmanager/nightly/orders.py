"""Who wanted a move: the leaders' own records of moves, beside changes of owners."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.engine.history.tenures import Handover
from loadmanager.engine.moves.move import Author
from loadmanager.nightly.day import Row

WORDS_MAX = 120
"""Characters of what an operator wrote."""


class RecordedOrders:
    """The leaders' own records of moves: by the life that each ended, and of leaders that were not
    told it, in order by bundle and brokers.
    """

    def __init__(self, moves: Sequence[Row]) -> None:
        self._by_life = {(row["bundle"], row["life"]): row for row in moves if row["life"]}
        self._others: dict[tuple[str, str, str], list[Row]] = {}
        for row in moves:
            if not row["life"] and row["state"] == "done" and row["destination"]:
                key = (row["bundle"], row["source"], row["destination"])
                self._others.setdefault(key, []).append(row)

    def of(self, change: Handover) -> Row:
        """The leader's record of this change of owners."""
        before, after = change
        row = self._by_life.get((before.bundle, before.life))
        if row is None:
            others = self._others.get((before.bundle, before.broker, after.broker))
            row = others.pop(0) if others else {}
        why = dict(row.get("why") or ())
        return {
            "move": row.get("move"),
            "epoch": row.get("epoch"),
            "cycle": row.get("cycle"),
            "clients_closed": row.get("clientsClosed"),
            "clients_waited_ms": row.get("clientsWaitedMeanMs"),
            "pause_ms": row.get("pauseMs"),
            "author": row.get("author"),
            "expected": _expected(why),
            "in_words": _in_words(row.get("author"), why),
        }


def _in_words(author: str | None, why: dict[str, str]) -> str | None:
    """Who wanted a move that no cycle ordered, and their note; None: a cycle ordered it, or nobody
    knows.
    """
    if author in (None, Author.CYCLE.value):
        return None
    by, note = why.get("orderedBy"), why.get("cordonNote")
    text = f"{author}{f' by {by}' if by else ''}{f': {note}' if note else ''}"
    return text if len(text) <= WORDS_MAX else f"{text[:WORDS_MAX]}…"


def _expected(why: dict[str, str]) -> float | None:
    """What the shedder expected the source to lose."""
    try:
        return float(why["usage"]) - float(why["usageAfter"])
    except (KeyError, ValueError):
        return None
