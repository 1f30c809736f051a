"""Ranks candidates by what they cost on several days, and says whether one is clearly better than
the settings in force.

Nothing is judged on the days that it was chosen on: the winner of the first half of the days is
judged on the others. It is recommended if it is better there by at least `MARGIN`, and if chance
alone would make a gain like that in less than one of twenty cases (Student's t over these days, of
which there must be two: to draw from so few days again and again would find nearly anything sure).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import Array
from loadmanager.lab.measures import Measures

DRAWINGS = 2_000
SEED = 1
MARGIN = 0.05
"""A candidate that is better by a smaller part is not worth a change."""
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""Quantiles at 95 % for one degree of freedom, two …; for more they are nearly 1.645 + 1.6 / n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveWeights:
    """The weights of the objective's parts; the unit is a point of spread."""

    balance: float = 1.0
    """The weight of a point of spread (standard deviation of the brokers' usage)."""
    headroom: float = 1.0
    """The weight of a percent of the brokers' time above 85 %."""
    calm: float = 0.2
    """The weight of a move per broker and hour."""


def cost(measures: Measures, weights: ObjectiveWeights) -> float:
    """The objective: lower is better."""
    hours = measures.broker_minutes / 60
    return (
        weights.balance * measures.spread
        + weights.headroom * 100 * measures.hot_minutes / max(measures.broker_minutes, 1)
        + weights.calm * measures.moves / max(hours, 1e-9)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate's place."""

    candidate: str
    cost: float
    """Mean over the days."""
    low: float
    """Between `low` and `high` the mean lies, with 95 % (bootstrap over days)."""
    high: float
    efficient: bool
    """No other candidate is better in one of spread, hot time and moves without being worse in
    another.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of the back-test."""

    winner: str
    """The best candidate of the first days."""
    chosen_on: tuple[str, ...]
    judged_on: tuple[str, ...]
    gain: float
    """How much less than the settings in force the winner costs on the later days, as a part."""
    low: float
    high: float
    """The gain lies between these, with 90 %; of one later day, nobody knows."""
    recommended: bool
    reason: str
    """For people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """A tournament's outcome."""

    days: tuple[str, ...]
    live: str
    ranking: tuple[Ranked, ...]
    regret: float
    """How much more than the best candidate's the settings in force cost, in points."""
    verdict: Verdict | None
    """The result of the back-test; None with fewer than two days that say enough."""
    not_judged: tuple[str, ...] = ()
    """Days that say too little for a verdict."""


Results = Mapping[str, Mapping[str, Measures]]
"""Candidate → day → measures; every candidate has every day."""


def standings(
    results: Results,
    live: str,
    weights: ObjectiveWeights | None = None,
    *,
    not_judged: Collection[str] = (),
) -> Standings:
    """The ranking, and what to recommend. Days are in order of name. Needs a day at least. Days
    that are `not_judged` count for the ranking only.
    """
    weights, candidates = weights or ObjectiveWeights(), list(results)
    days = tuple(sorted(results[live]))
    costs = np.array(
        [[cost(results[name][day], weights) for day in days] for name in candidates], np.float64
    )
    means, drawn = costs.mean(axis=1), _drawn_means(costs)
    low, high = np.percentile(drawn, (2.5, 97.5), axis=1)
    efficient = _efficient(results, candidates, days)
    order = sorted(range(len(candidates)), key=lambda at: (means[at], candidates[at]))
    ranking = tuple(
        Ranked(
            candidate=candidates[at],
            cost=float(means[at]),
            low=float(low[at]),
            high=float(high[at]),
            efficient=bool(efficient[at]),
        )
        for at in order
    )
    judged = [at for at, day in enumerate(days) if day not in not_judged]
    chosen = tuple(days[at] for at in judged)
    return Standings(
        days=days,
        live=live,
        ranking=ranking,
        regret=float(means[candidates.index(live)] - means.min()),
        verdict=_back_test(costs[:, judged], candidates, chosen, live)
        if len(judged) >= 2
        else None,
        not_judged=tuple(day for day in days if day in not_judged),
    )


def _drawn_means(costs: Array) -> Array:
    """Means over days that are drawn again and again: `[row, drawing]`. The same for each row."""
    rng = np.random.default_rng(SEED)
    drawings = rng.integers(0, costs.shape[1], (DRAWINGS, costs.shape[1]))
    means: Array = costs[:, drawings].mean(axis=2)
    return means


def _efficient(
    results: Results, candidates: Sequence[str], days: Sequence[str]
) -> NDArray[np.bool_]:
    """The efficient candidates: no other is better in one mean and at least equal in the rest."""
    means = np.array(
        [_mean([results[name][day] for day in days]) for name in candidates], np.float64
    )
    no_worse = (means[:, None, :] <= means[None, :, :]).all(axis=2)
    better = (means[:, None, :] < means[None, :, :]).any(axis=2)
    beaten: NDArray[np.bool_] = np.any(no_worse & better, axis=0)
    return np.logical_not(beaten)


def _mean(days: Sequence[Measures]) -> list[float]:
    """Spread, hot time and moves, means over days."""
    return [
        fmean(getattr(day, name) for day in days) for name in ("spread", "hot_minutes", "moves")
    ]


def _gain(live: Array, other: Array) -> tuple[float, float, float]:
    """How much less the second costs in the mean, as a part, and between what that lies; 0 if the
    first costs nothing.
    """
    mean, count = float(live.mean()), len(live)
    if mean <= 0:
        return 0.0, 0.0, 0.0
    each = (live - other) / mean
    gain = float(each.mean())
    if count < 2:
        return gain, gain, gain
    quantile = STUDENT[count - 2] if count - 2 < len(STUDENT) else 1.645 + 1.6 / (count - 1)
    margin = quantile * float(each.std(ddof=1)) / math.sqrt(count)
    return gain, gain - margin, min(gain + margin, 1.0)  # nothing costs less than nothing


def _back_test(
    costs: Array, candidates: Sequence[str], days: tuple[str, ...], live: str
) -> Verdict:
    half, at_live = len(days) // 2, candidates.index(live)
    first = costs[:, :half].mean(axis=1)
    at = min(range(len(candidates)), key=lambda row: (first[row], row != at_live, candidates[row]))
    gain, low, high = _gain(costs[at_live, half:], costs[at, half:])
    alone = len(days) - half < 2
    if at == at_live:
        reason = "the settings in force were the best of the first days"
    elif gain < MARGIN:
        reason = f"the best of the first days gains {gain:.1%} on the later ones: not worth it"
    elif alone:
        reason = f"a gain of {gain:.1%} on one later day may be chance: two are the least"
    elif low <= 0:
        reason = f"a gain of {gain:.1%} on the later days may be chance ({low:.1%} to {high:.1%})"
    else:
        reason = f"chosen on the first days, it gains {gain:.1%} on the later ones"
    return Verdict(
        winner=candidates[at],
        chosen_on=days[:half],
        judged_on=days[half:],
        gain=gain,
        low=low,
        high=high,
        recommended=at != at_live and gain >= MARGIN and low > 0 and not alone,
        reason=reason,
    )
