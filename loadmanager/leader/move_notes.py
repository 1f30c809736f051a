"""The note of a change that ordered moves: it names them, so that they can be undone later on."""

from __future__ import annotations

import re
from collections.abc import Sequence

NAMED_MAX = 200
"""More moves in a row are noted by the first and the last one."""
NOTED_MAX = 20_000
_MOVES = re.compile(r"moves (\d+-m?\d+(?:, \d+-m?\d+)*)")
"""Ids that the versions before this one gave have no `m`."""
_RANGE = re.compile(r"moves (\d+-m?)(\d+) to \d+-m?(\d+)")


def moves_note(ids: Sequence[str]) -> str:
    """The note of a change that ordered these moves; empty for none."""
    if len(ids) <= NAMED_MAX:
        return f"moves {', '.join(ids)}" if ids else ""
    return f"moves {ids[0]} to {ids[-1]}"


def moves_noted(note: str | None) -> list[str]:
    """The ids of the moves that a change ordered, by its note."""
    if (ends := _RANGE.search(note or "")) is not None:
        first, last = int(ends[2]), int(ends[3])
        return [f"{ends[1]}{number}" for number in range(first, last + 1)[:NOTED_MAX]]
    match = _MOVES.search(note or "")
    return match[1].split(", ") if match else []
