"""The circuit breaker: it stops a daemon's moves when they do harm, or do not help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass

from loadmanager.kit.reason import Reason

WORSE = 1.1
"""A spread of load that grew by more than this factor after a move is not an improvement."""
EXPECTATIONS_MAX = 100
NAMED_MAX = 5
"""Brokers that a reason names."""


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """The limits at which the breaker opens, and how long it stays open."""

    failures: int
    rate_drop_percent: float
    open_ms: float
    steady_ms: float
    """For how long it is open after brokers disappeared, if no other one does; at most
    `open_ms`.
    """


@dataclass(frozen=True, slots=True)
class Expectation:
    """The predicted effect of a move, to be compared with the figures afterwards."""

    move: str
    check_ms: int
    publish_rate: float
    """Messages/s into the cluster before the move."""
    spread_before: float
    spread_predicted: float


def spread(loads: Mapping[str, float]) -> float:
    """The standard deviation of the brokers' loads."""
    if not loads:
        return 0.0
    mean = math.fsum(loads.values()) / len(loads)
    return math.sqrt(math.fsum((load - mean) ** 2 for load in loads.values()) / len(loads))


class Breaker:
    """Times are milliseconds since the epoch."""

    def __init__(self) -> None:
        self.why = ""
        """Why it opened last."""
        self._until_ms = 0.0
        self._failures = 0
        self._expected: list[Expectation] = []
        self._brokers: frozenset[str] = frozenset()
        self.opened = 0
        """How often it has opened."""

    def reason(self, now_ms: int) -> Reason | None:
        """Why nothing is moved; None while it is closed."""
        if now_ms >= self._until_ms:
            return None
        minutes, seconds = divmod(math.ceil(self._until_ms / 1000), 60)
        until = f"{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02} UTC"
        return Reason("CircuitBreaker", f"{self.why}; moves go on at {until}")

    def recall(self, why: str, until_ms: float, now_ms: int, rules: BreakerRules) -> bool:
        """It was opened before; returns whether it still is. That is no longer than `rules` say,
        whatever the clock was then. If it is open for longer already, that stays.
        """
        until_ms = min(until_ms, now_ms + rules.open_ms)
        if until_ms > self._until_ms:
            self.why, self._until_ms = why, until_ms
        return self.reason(now_ms) is not None

    @property
    def until_ms(self) -> int:
        """The time at which an open breaker closes by itself."""
        return round(self._until_ms)

    def open(self, why: str, now_ms: int, rules: BreakerRules) -> bool:
        """Open it for another reason than those below; returns whether this one counts."""
        return self._open(why, now_ms, rules.open_ms)

    def close(self) -> bool:
        """An operator has looked; returns whether it was open."""
        was_open, self._until_ms, self._failures = self._until_ms > 0, 0.0, 0
        self._expected.clear()
        return was_open

    def ended(self, move: str, problem: str | None, now_ms: int, rules: BreakerRules) -> bool:
        """A move has ended; `problem`: what went wrong. Returns whether the breaker opened."""
        if problem is None:
            self._failures = 0
            return False
        self._failures += 1
        self.not_made(move)
        if self._failures < rules.failures:
            return False
        why = f"{self._failures} moves failed in a row, {problem}"
        return self._open(why, now_ms, rules.open_ms)

    def expect(self, expectation: Expectation) -> None:
        """A move begins."""
        self._expected = [*self._expected, expectation][-EXPECTATIONS_MAX:]

    def not_made(self, move: str) -> None:
        """A move that began was not made: nothing is expected of it."""
        self._expected = [one for one in self._expected if one.move != move]

    def look(
        self,
        brokers: frozenset[str],
        publish_rate: float,
        loads: Mapping[str, float],
        now_ms: int,
        rules: BreakerRules,
        *,
        may_leave: Set[str] = frozenset(),
    ) -> bool:
        """The cluster was read: live brokers, messages/s into it, and the load of each broker.
        `may_leave`: brokers whose end somebody has announced.

        Returns whether the breaker opened.
        """
        gone, self._brokers = sorted(self._brokers - brokers - may_leave), brokers
        if gone:
            names = ", ".join(gone[:NAMED_MAX]) + (" and others" if gone[NAMED_MAX:] else "")
            open_ms = min(rules.open_ms, rules.steady_ms)
            return self._open(f"{names} disappeared", now_ms, open_ms)
        due = [one for one in self._expected if one.check_ms <= now_ms]
        self._expected = [one for one in self._expected if one.check_ms > now_ms]
        for one in due:
            why = _disappointment(one, publish_rate, spread(loads), rules)
            if why is not None:
                return self._open(why, now_ms, rules.open_ms)
        return False

    def _open(self, why: str, now_ms: int, open_ms: float) -> bool:
        """Open it; if it is to be open for longer already, for another reason, that one stays.
        Returns whether this reason is the one that counts.
        """
        self._failures = 0
        self._expected.clear()
        if now_ms + open_ms <= self._until_ms:
            return False
        self.why, self._until_ms = why, now_ms + open_ms
        self.opened += 1
        return True


def _disappointment(
    one: Expectation, publish_rate: float, spread_now: float, rules: BreakerRules
) -> str | None:
    least = one.publish_rate * (1 - rules.rate_drop_percent / 100)
    if publish_rate < least:
        return (
            f"after move {one.move} the cluster gets {publish_rate:.0f} messages/s, "
            f"{one.publish_rate:.0f} before"
        )
    promised = one.spread_before - one.spread_predicted
    if promised > 0 and spread_now > one.spread_before * WORSE:
        return (
            f"after move {one.move} the brokers' loads spread by {spread_now:.0f} messages/s; "
            f"{one.spread_before:.0f} before, {one.spread_predicted:.0f} predicted"
        )
    return None
