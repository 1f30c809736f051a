"""Bundles that the balancer moves back and forth, or round several brokers."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.engine.moves.move import Author, Move, MoveState

BACK_GRACES = 2
"""A bundle returns if each broker on the way gave it up within so many grace periods: the balancer
itself leaves it where it is for one.
"""
WINDOW_GRACES = 4
RETURNS_MIN = 2
"""A bundle flaps that returned so often within `WINDOW_GRACES`; one move back is no such thing."""
MOVES_MAX = 10_000
NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class _Past:
    """A move that ended."""

    at_ms: int
    bundle: str
    source: str
    destination: str


@dataclass(slots=True)
class FlappingFindings:
    """Looks at the moves that the balancer decided on. Those that others wanted do not count, nor
    a return to a broker that was emptied or away meanwhile: there is room.
    """

    _moves: deque[_Past] = field(default_factory=lambda: deque(maxlen=MOVES_MAX))
    _emptied: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MOVES_MAX))
    """When a bundle was drained off a broker, or a broker was away."""
    _brokers: frozenset[str] = frozenset()

    def moved(self, move: Move) -> None:
        """A move has ended."""
        owner = move.outcome.owner if move.outcome is not None else None
        destination = owner or move.destination
        if move.author is Author.DRAIN and move.state is MoveState.DONE:
            self._emptied.append((move.ended_at or 0, move.source))
        if move.author is Author.CYCLE and move.state is MoveState.DONE and destination:
            past = _Past(move.ended_at or 0, move.bundle, move.source, destination)
            self._moves.append(past)

    def step(
        self, now_ms: int, grace_ms: float, advice: str, brokers: Collection[str]
    ) -> list[FindingShown]:
        """Those that flap now; `advice`: what to do beside what is always said; `brokers`: those
        that are there.
        """
        self._emptied += ((now_ms, broker) for broker in sorted(self._brokers - set(brokers)))
        self._brokers = frozenset(brokers)
        forget_ms = now_ms - (WINDOW_GRACES + BACK_GRACES) * grace_ms
        while self._emptied and self._emptied[0][0] < forget_ms:
            self._emptied.popleft()
        while self._moves and self._moves[0].at_ms < forget_ms:
            self._moves.popleft()
        by_bundle: dict[str, list[_Past]] = {}
        for move in self._moves:
            by_bundle.setdefault(move.bundle, []).append(move)
        emptied: dict[str, list[int]] = {}
        for at_ms, broker in self._emptied:
            emptied.setdefault(broker, []).append(at_ms)
        findings = []
        for bundle, moves in by_bundle.items():
            returns = [
                at_ms
                for at_ms in _returns(moves, BACK_GRACES * grace_ms, emptied)
                if now_ms - at_ms <= WINDOW_GRACES * grace_ms
            ]
            if len(returns) >= RETURNS_MIN:
                findings.append(_finding(bundle, returns, moves, grace_ms, advice))
        return bounded(findings)


def _returns(
    moves: list[_Past], within_ms: float, emptied: Mapping[str, Sequence[int]]
) -> list[int]:
    """When a bundle came back to a broker that had given it up, and that was there since; no other
    broker had it for longer than `within_ms` meanwhile.
    """
    left_ms: dict[str, int] = {}
    returns, before_ms = [], 0
    for move in moves:
        if move.at_ms - before_ms > within_ms:
            left_ms.clear()
        before_ms = move.at_ms
        left_ms[move.source] = move.at_ms
        gave_up_ms = left_ms.get(move.destination)
        if gave_up_ms is None:
            continue
        times = emptied.get(move.destination, ())
        if not any(gave_up_ms <= at_ms <= move.at_ms for at_ms in times):
            returns.append(move.at_ms)
    return returns


def _finding(
    bundle: str, returns: list[int], moves: list[_Past], grace_ms: float, advice: str
) -> FindingShown:
    minutes = BACK_GRACES * grace_ms / 60_000
    brokers = sorted({name for move in moves for name in (move.source, move.destination)})
    way = "back and forth" if len(brokers) == 2 else f"round {len(brokers)} brokers"
    return FindingShown(
        kind="flapping",
        about=bundle,
        since=returns[0],
        title=f"{bundle} moved {way}",
        text=f"It came back {len(returns)} times to a broker that had given it up, with "
        f"{len(moves)} moves among {', '.join(brokers[:NAMED_MAX])}; no broker kept it for "
        f"{minutes:g} minutes. {words.RECONNECT}",
        advice=advice + words.STAY,
        command=command("loadmanager admin decisions --bundle", bundle),
    )
