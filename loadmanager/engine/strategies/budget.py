"""The moves that a daemon may make by itself: in an hour, and at one broker."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from loadmanager.engine.strategies.guards import together
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.kit.reason import Reason
from loadmanager.kit.units import HOUR_MS

PER_HOUR_LEAST, PER_HOUR_MOST, BUNDLES_OF_AN_HOUR = 60, 5_000, 20
PER_BROKER_LEAST = 20


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The budget's limits."""

    per_hour: int
    per_broker: int


def limits_of(
    per_hour: int,
    per_broker: int,
    *,
    brokers: int,
    bundles: int,
) -> BudgetLimits:
    """The limits of a cluster; −1: what fits its size. Then a broker can be filled in an hour,
    however small its bundles are, and a twentieth of all bundles can move.
    """
    if per_hour < 0:
        per_hour = min(max(PER_HOUR_LEAST, bundles // BUNDLES_OF_AN_HOUR), PER_HOUR_MOST)
    if per_broker < 0:
        per_broker = min(max(PER_BROKER_LEAST, bundles // max(brokers, 1)), per_hour)
    return BudgetLimits(per_hour, per_broker)


class Budget:
    """The moves that began in the last hour."""

    def __init__(self) -> None:
        self._moves: deque[tuple[int, str, str]] = deque()
        """When a move began, its source and destination."""

    def moves(self) -> list[tuple[int, str, str]]:
        """The moves that count: when each began, its source and destination."""
        return list(self._moves)

    def began(self, source: str, destination: str | None, now_ms: int) -> None:
        """A move begins."""
        self._forget_old(now_ms)
        self._moves.append((now_ms, source, destination or ""))

    def not_made(self, source: str, destination: str | None) -> None:
        """A move that began was not made: the newest one between these brokers does not count."""
        brokers = (source, destination or "")
        for index in reversed(range(len(self._moves))):
            if self._moves[index][1:] == brokers:
                del self._moves[index]
                return

    def _forget_old(self, now_ms: int) -> None:
        while self._moves and self._moves[0][0] <= now_ms - HOUR_MS:
            self._moves.popleft()

    def recall(self, moves: Sequence[tuple[int, str, str]], now_ms: int) -> None:
        """Count moves that were made before, too; if the clock was set back meanwhile, as made now.
        One that is known already counts once.
        """
        before = Counter(
            (min(at_ms, now_ms), source, destination) for at_ms, source, destination in moves
        )
        self._moves = deque(sorted((Counter(self._moves) | before).elements()))

    def full_until_ms(self, now_ms: int, per_hour: int) -> int | None:
        """The time at which the next move may begin, if an hour's moves (at least one) are made;
        else None.
        """
        self._forget_old(now_ms)
        return self._moves[-per_hour][0] + HOUR_MS if len(self._moves) >= per_hour else None

    def allow(
        self,
        unloads: Sequence[Unload],
        now_ms: int,
        limits: BudgetLimits,
        waiting: Sequence[tuple[str, str]] = (),
    ) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
        """The moves that the budget has room for, in their order, and why the others wait. The
        moves of a swap are allowed together. `waiting`: source and destination of moves that were
        allowed before, and have not begun.
        """
        self._forget_old(now_ms)
        taken = [*(brokers for _, *brokers in self._moves), *waiting]
        count, touched = len(taken), Counter(broker for brokers in taken for broker in brokers)
        allowed: list[Unload] = []
        refused: list[Skip] = []
        for moves in together(unloads):
            brokers = [name for move in moves for name in (move.source, move.destination or "")]
            why = _refusal(count + len(moves), brokers, touched, limits)
            if why is not None:
                refused += [Skip(move.bundle, why.code, why.text) for move in moves]
                continue
            touched.update(brokers)
            allowed += moves
            count += len(moves)
        return tuple(allowed), tuple(refused)


def _refusal(
    count: int, brokers: Sequence[str], touched: Counter[str], limits: BudgetLimits
) -> Reason | None:
    if count > limits.per_hour:
        return Reason("HourlyBudget", f"{limits.per_hour} moves an hour")
    for broker in sorted(set(brokers)):
        if touched[broker] + brokers.count(broker) > limits.per_broker:
            return Reason("BrokerBudget", f"{limits.per_broker} moves an hour at {broker}")
    return None
