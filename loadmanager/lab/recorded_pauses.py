"""How long clients waited for the moves of a recorded day, as its leaders recorded each move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from loadmanager.engine.history.records import Decision
from loadmanager.kit.units import MINUTE_MS
from loadmanager.lab.measures import Minute, measure
from loadmanager.lab.recorded import Recording

DONE = "done"


def waited_s(move: Decision) -> float | None:
    """How long the clients of a move waited, in sum: until they were back, where that was seen,
    else until the bundle had an owner; None: not recorded.
    """
    if move.clients_closed == 0:
        return 0.0
    if move.clients_closed is None or move.pause_ms is None:
        return None
    each_ms = move.clients_waited_mean_ms or move.pause_ms
    return move.clients_closed * each_ms / 1000


def pauses_by_minute(moves: Iterable[Decision], start_ms: int) -> Mapping[int, float] | None:
    """Minute of the day → how long clients waited for its moves; None: no record tells. A move that
    is there twice counts once.
    """
    ended: dict[tuple[str | None, str | None], Decision] = {}
    for move in moves:
        if move.action == "move" and move.state == DONE:
            ended[move.move, move.bundle] = move
    waits = {key: waited for key, move in ended.items() if (waited := waited_s(move)) is not None}
    if not waits:
        return None
    by_minute: dict[int, float] = {}
    for key, waited in waits.items():
        minute = (ended[key].ts - start_ms) // MINUTE_MS
        by_minute[minute] = by_minute.get(minute, 0.0) + waited
    return by_minute


def with_pauses(recording: Recording, moves: Iterable[Decision]) -> Recording:
    """The day with what its records of moves tell of pauses. Without moves nobody waited."""
    by_minute = pauses_by_minute(moves, recording.start_ms)
    if by_minute is None and any(minute.moves for minute in recording.happened):
        return recording
    waited = by_minute or {}

    def paused(minutes: tuple[Minute, ...]) -> tuple[Minute, ...]:
        return tuple(
            replace(minute, pause_s=waited.get(at, 0.0)) for at, minute in enumerate(minutes)
        )

    happened = paused(recording.happened)
    return replace(
        recording,
        happened=happened,
        modelled=paused(recording.modelled),
        lived=replace(recording.lived, pause_s=measure(happened).pause_s),
    )
