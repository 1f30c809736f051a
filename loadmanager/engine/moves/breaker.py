"""The circuit breaker: it stops a daemon's moves when they do harm, or do not help.

A move is judged by what it could change: by the figures of the two brokers between which it went,
beside the other moves there, and beside what the clients did meanwhile everywhere else; and by
those of its bundle, where they are known: clients of other bundles that stop are their own affair.
A broker that joins or leaves changes neither. When one leaves, moves wait until all is steady: that
is an ordinary restart, say, and no alarm. Nor is a move that was under way then and fails, or that
failed because one of its brokers left, nor that the clients of all brokers send far less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from loadmanager.kit.reason import Reason

WORSE = 1.1
"""A difference of load that grew by more than this factor after a move is not an improvement."""
EXPECTATIONS_MAX = 100
NAMED_MAX = 5
"""Brokers that a reason names."""
DISAPPEARED = "disappeared"
"""How the reason of brokers that left ends."""


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
    near_ms: float = 60_000
    """A broker that is seen to have disappeared so long after a move failed explains the failure;
    later ones do not.
    """


class LoadSeen(NamedTuple):
    """The load of a broker or a bundle: messages/s in all, and published to it."""

    rate: float
    published: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """The figures before a move, to be compared with those afterwards."""

    move: str
    source: str
    destination: str
    bundle: LoadSeen
    check_ms: int
    brokers: Mapping[str, LoadSeen]
    """All brokers before the move."""
    others: Mapping[str, Expectation] = field(default_factory=dict)
    """Bundle → its move, of all that began after these figures were read."""

    def without_this(self, broker: str) -> LoadSeen:
        """What a broker would have if only the other moves were made, and clients did the same."""
        rate, published = self.brokers[broker]
        for other in self.others.values():
            sign = (broker == other.destination) - (broker == other.source)
            rate, published = (
                figure + sign * more
                for figure, more in zip((rate, published), other.bundle, strict=True)
            )
        return LoadSeen(max(rate, 0.0), max(published, 0.0))


BundleSeen = Callable[[str, str], LoadSeen | None]
"""The load of a bundle at a broker; None: it is not known."""


def _unknown(_bundle: str, _broker: str) -> LoadSeen | None:
    return None


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
        self.waits = False
        """Whether nothing is wrong with the moves: it opened last because brokers disappeared, or
        because the clients of all brokers went away.
        """
        self._until_ms = 0.0
        self._failed: list[tuple[frozenset[str], int]] = []
        """The brokers of each move that failed since the last one that did not, and when that was.
        """
        self._blamed: tuple[tuple[frozenset[str], int], ...] = ()
        """The same of the moves whose failures opened it; empty: something else did."""
        self._left: frozenset[str] = frozenset()
        """The brokers that disappeared last, and are not back."""
        self._left_ms = 0
        """When brokers were last seen to have disappeared, and moves wait for that."""
        self._expected: list[Expectation] = []
        self._since_look: dict[str, Expectation] = {}
        """Bundle → its move, of those that began since the cluster was read."""
        self._brokers: frozenset[str] = frozenset()
        self.opened = 0
        """How often it has opened; not those times when nothing was wrong with the moves."""

    def reason(self, now_ms: int) -> Reason | None:
        """Why nothing is moved; None while it is closed."""
        if now_ms >= self._until_ms:
            return None
        minutes, seconds = divmod(math.ceil(self._until_ms / 1000), 60)
        until = f"{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02} UTC"
        text = f"{self.why}; moves go on at {until}"
        if not self.waits:
            return Reason("CircuitBreaker", text)
        if self._waits_for_brokers(now_ms):
            return Reason("BrokersLeft", text)
        return Reason("TrafficDip", text)

    def _waits_for_brokers(self, now_ms: int) -> bool:
        """Whether it is open because brokers left."""
        return now_ms < self._until_ms and self.waits and self.why.endswith(DISAPPEARED)

    def recall(
        self, why: str, until_ms: float, now_ms: int, rules: BreakerRules, *, waits: bool = False
    ) -> bool:
        """It was opened before; returns whether it still is. That is no longer than `rules` say,
        whatever the clock was then. If it is open for longer already, that stays.
        """
        until_ms = min(until_ms, now_ms + rules.open_ms)
        if until_ms > self._until_ms:
            self.why, self.waits, self._until_ms, self._blamed = why, waits, until_ms, ()
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
        was_open, self._until_ms, self._blamed = self._until_ms > 0, 0.0, ()
        self._failed.clear()
        self._expected.clear()
        return was_open

    def ended(
        self,
        move: str,
        problem: str | None,
        now_ms: int,
        rules: BreakerRules,
        *,
        brokers: Set[str] = frozenset(),
        began_ms: int | None = None,
    ) -> bool:
        """A move between two `brokers` has ended; `began_ms`: when it began, or None: now;
        `problem`: what went wrong. A failure does not count if one of them has left, nor that of a
        move that was under way when others did, while moves wait for that. Returns whether the
        breaker opened.
        """
        if problem is None:
            self._failed.clear()
            return False
        self.not_made(move)
        if brokers & self._left:
            return False
        was_under_way = began_ms is not None and began_ms <= self._left_ms
        if was_under_way and self._waits_for_brokers(now_ms):
            return False
        self._failed.append((frozenset(brokers), now_ms))
        if len(self._failed) < rules.failures:
            return False
        blamed = tuple(self._failed)
        failed = "a move failed" if len(blamed) == 1 else f"{len(blamed)} moves failed in a row"
        why = f"{failed}, {problem}"
        opened = self._open(why, now_ms, rules.open_ms)
        if opened:
            self._blamed = blamed
        return opened

    def expect(self, expectation: Expectation) -> None:
        """A move begins."""
        bundle = expectation.move
        waiting = [
            replace(expected, others={**expected.others, bundle: expectation})
            for expected in self._expected
        ]
        began = replace(expectation, others=self._since_look)
        self._expected = [*waiting, began][-EXPECTATIONS_MAX:]
        self._since_look = {**self._since_look, bundle: expectation}

    def not_made(self, move: str) -> None:
        """A move that began was not made: nothing is expected of it, or of its load elsewhere."""
        self._since_look = _without(self._since_look, move)
        self._expected = [
            replace(expected, others=_without(expected.others, move))
            for expected in self._expected
            if expected.move != move
        ]

    def look(
        self,
        brokers: Mapping[str, LoadSeen],
        now_ms: int,
        rules: BreakerRules,
        *,
        may_leave: Set[str] = frozenset(),
        of_bundle: BundleSeen = _unknown,
    ) -> bool:
        """The cluster was read: the load of each live broker. `may_leave`: brokers whose end
        somebody has announced. `of_bundle`: tells the load of bundles.

        Returns whether the breaker opened, or is open for another reason: failures that opened it
        are explained by brokers that have disappeared soon afterwards.
        """
        left = self._brokers - brokers.keys()
        self._brokers, self._since_look = frozenset(brokers), {}
        self._left = left or self._left - brokers.keys()
        blamed = self._blamed if now_ms < self._until_ms else ()
        oldest_ms = now_ms - rules.near_ms
        explained = bool(blamed) and all(pair & left and at >= oldest_ms for pair, at in blamed)
        if explained:
            self._until_ms = 0.0
        gone = sorted(left if explained else left - may_leave)
        if gone:
            names = ", ".join(gone[:NAMED_MAX]) + (" and others" if gone[NAMED_MAX:] else "")
            open_ms, self._left_ms = min(rules.open_ms, rules.steady_ms), now_ms
            return self._open(f"{names} {DISAPPEARED}", now_ms, open_ms, waits=True)
        due = [expected for expected in self._expected if expected.check_ms <= now_ms]
        self._expected = [expected for expected in self._expected if expected.check_ms > now_ms]
        for expected in due:
            why = _harm(expected, brokers, rules, of_bundle)
            if why is not None:
                return self._open(why, now_ms, rules.open_ms)
        for expected in due:
            why = _quiet(expected, brokers, rules)
            if why is not None:
                open_ms = min(rules.open_ms, rules.steady_ms)
                return self._open(why, now_ms, open_ms, waits=True)
        return False

    def _open(self, why: str, now_ms: int, open_ms: float, *, waits: bool = False) -> bool:
        """Open it; if it is to be open for longer already, for another reason, that one stays.
        Returns whether this reason is the one that counts.
        """
        self._failed.clear()
        self._expected.clear()
        if now_ms + open_ms <= self._until_ms:
            return False
        self._blamed = ()
        self.why, self.waits, self._until_ms = why, waits, now_ms + open_ms
        self.opened += not waits
        return True


def _without(moves: Mapping[str, Expectation], move: str) -> dict[str, Expectation]:
    return {bundle: each for bundle, each in moves.items() if bundle != move}


def _harm(
    expected: Expectation,
    now: Mapping[str, LoadSeen],
    rules: BreakerRules,
    of_bundle: BundleSeen,
) -> str | None:
    """What a move did, if it is to blame; None if one of its brokers is gone, too."""
    pair = expected.source, expected.destination
    if not all(broker in now and broker in expected.brokers for broker in pair):
        return None
    least = 1 - rules.rate_drop_percent / 100
    elsewhere = _elsewhere(expected, now)
    left, left_elsewhere = _left(expected, now, pair), _left(expected, now, elsewhere)
    usual = min(left_elsewhere, 1.0) if elsewhere else 0.0  # nobody to compare with
    its = of_bundle(expected.move, expected.destination)
    goes_on = its is not None and _part(its, expected.bundle) >= least * usual
    if left < least * usual and usual >= least and not goes_on:
        return (
            f"after move {expected.move} {expected.source} and {expected.destination} get "
            f"{left:.0%} of the messages/s that they got before, the other brokers "
            f"{left_elsewhere:.0%}"
        )
    return _wider(expected, now)


def _part(now: LoadSeen, before: LoadSeen) -> float:
    """The part of what was published to a bundle that still is; of all its messages if nothing was;
    1 if it had none.
    """
    if before.published > 0:
        return now.published / before.published
    return now.rate / before.rate if before.rate > 0 else 1.0


def _wider(expected: Expectation, now: Mapping[str, LoadSeen]) -> str | None:
    """The difference of two brokers that a move made wider than it was, though it should not."""
    rates = [expected.brokers[broker].rate for broker in (expected.source, expected.destination)]
    before = abs(rates[0] - rates[1])
    source, destination = (
        expected.without_this(broker).rate for broker in (expected.source, expected.destination)
    )
    without = source - destination
    predicted = abs(without - 2 * expected.bundle.rate)
    if predicted >= before or not source + destination > 0:
        return None
    grown = (now[expected.source].rate + now[expected.destination].rate) / (source + destination)
    wide = abs(now[expected.source].rate - now[expected.destination].rate)
    if wide <= max(before, abs(without)) * grown * WORSE:
        return None
    if wide > (before + 2 * expected.bundle.rate) * max(grown, 1.0):
        return None  # more than this move could do: that was somebody else
    return (
        f"after move {expected.move} {expected.source} and {expected.destination} differ by "
        f"{wide:.0f} messages/s; {before:.0f} before, {predicted:.0f} predicted"
    )


def _quiet(expected: Expectation, now: Mapping[str, LoadSeen], rules: BreakerRules) -> str | None:
    """The clients of the whole cluster send far less: no time for moves, whoever did that."""
    both = [broker for broker in expected.brokers if broker in now]
    left = _left(expected, now, both)
    if left >= 1 - rules.rate_drop_percent / 100:
        return None
    gets, got = (
        math.fsum(rates[broker].published for broker in both) for rates in (now, expected.brokers)
    )
    return (
        f"the cluster gets {gets:.0f} messages/s, {got:.0f} before the move {expected.move}, "
        "which need not be the cause"
    )


def _elsewhere(expected: Expectation, now: Mapping[str, LoadSeen]) -> list[str]:
    pair = expected.source, expected.destination
    return [broker for broker in expected.brokers if broker in now and broker not in pair]


def _left(expected: Expectation, now: Mapping[str, LoadSeen], brokers: Collection[str]) -> float:
    """The part of what was published to some brokers that still is; 1 if nothing was."""
    before = math.fsum(expected.without_this(broker).published for broker in brokers)
    return math.fsum(now[broker].published for broker in brokers) / before if before > 0 else 1.0
