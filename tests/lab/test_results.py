"""Rankings and recommendations: what is clearly better is recommended, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import theirs
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmanager.broker import settings as conf
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import Tries
from loadmanager.lab import candidates
from loadmanager.lab.measures import Measures
from loadmanager.lab.results import MARGIN, ObjectiveWeights, Results, cost, standings

LIVE = candidates.LIVE


def a_day(spread: float = 5.0, *, hot: int = 0, moves: int = 0) -> Measures:
    """A day of ten brokers and ten hours."""
    return Measures(
        spread=spread,
        gap=2 * spread,
        ratio=1.2,
        hot_minutes=hot,
        broker_minutes=6000,
        moves=moves,
        moved_bytes=0.0,
        again=0,
        pause_s=0.0,
        settle_minutes=0.0,
    )


def days(spreads: dict[str, list[float]]) -> Results:
    """Candidates with these spreads on consecutive days."""
    return {
        name: {f"2026-11-{at + 1:02}": a_day(value) for at, value in enumerate(values)}
        for name, values in spreads.items()
    }


def test_the_objective_by_hand() -> None:
    """A point of spread, a percent of hot time, moves per broker and hour: each with its weight."""
    day = a_day(4.0, hot=60, moves=200)
    assert cost(day, ObjectiveWeights()) == pytest.approx(4 + 1 + 0.2 * 2)
    assert cost(day, ObjectiveWeights(balance=0, headroom=3, calm=0)) == pytest.approx(3)


def test_what_is_clearly_better_is_recommended() -> None:
    """Chosen on the first days, judged on the later ones."""
    outcome = standings(days({LIVE: [5, 5, 6, 6], "a": [4, 4, 4, 4], "b": [7, 7, 1, 1]}), LIVE)
    assert outcome.verdict is not None
    assert (outcome.verdict.winner, outcome.verdict.recommended) == ("a", True)
    assert outcome.verdict.gain == pytest.approx(1 / 3)
    assert outcome.verdict.chosen_on == ("2026-11-01", "2026-11-02")
    assert outcome.verdict.judged_on == ("2026-11-03", "2026-11-04")
    assert [ranked.candidate for ranked in outcome.ranking] == ["a", "b", LIVE]
    assert outcome.regret == pytest.approx(1.5)


def test_days_of_which_the_model_explains_little_are_not_judged() -> None:
    """They stand in the ranking, and neither choose nor judge; with fewer than two others there is
    no verdict.
    """
    results = days({LIVE: [5, 5, 6, 6], "a": [4, 9, 4, 4]})
    (first, little, *later), names = sorted(results[LIVE]), {"a", LIVE}
    outcome = standings(results, LIVE, not_judged={little})
    assert outcome.not_judged == (little,)
    assert {ranked.candidate for ranked in outcome.ranking} == names
    assert outcome.verdict is not None
    assert (outcome.verdict.chosen_on, outcome.verdict.judged_on) == ((first,), tuple(later))
    assert outcome.verdict.recommended
    assert standings(results, LIVE, not_judged={first, *later}).verdict is None


def test_settings_that_cost_nothing_leave_nothing_to_gain() -> None:
    """The gain is a part of what the settings in force cost: without moves, by calm alone, none."""
    still, restless = a_day(moves=0), a_day(moves=10)
    results = {
        LIVE: {"1": restless, "2": still},
        "a": {"1": still, "2": restless},
        "b": {"1": restless, "2": restless},
    }
    verdict = standings(results, LIVE, ObjectiveWeights(balance=0, headroom=0, calm=1)).verdict
    assert verdict is not None
    assert (verdict.winner, verdict.recommended) == ("a", False)
    assert (verdict.gain, verdict.low, verdict.high) == (0, 0, 0)


@pytest.mark.parametrize(
    ("live", "other", "words"),
    [
        ([5, 5, 5, 5], [4, 4, 4.9, 4.9], "not worth it"),
        ([5, 5, 5, 5], [4, 4, 8, 8], "not worth it"),
        ([5, 5, 5, 5], [4, 4, 1, 6], "may be chance"),
        ([4, 4, 5, 5], [5, 5, 1, 1], "in force were the best"),
        ([4, 4, 4, 4], [4, 4, 4, 4], "in force were the best"),
    ],
)
def test_nothing_else_is(live: list[float], other: list[float], words: str) -> None:
    """A small gain, a loss on the later days, chance, or the settings in force themselves."""
    verdict = standings(days({LIVE: live, "a": other}), LIVE).verdict
    assert verdict is not None
    assert not verdict.recommended
    assert words in verdict.reason


def test_a_day_alone_recommends_nothing() -> None:
    """It can be ranked, not judged."""
    outcome = standings(days({LIVE: [5], "a": [1]}), LIVE)
    assert outcome.verdict is None
    assert [(each.low, each.high) for each in outcome.ranking] == [(1, 1), (5, 5)]


def test_nobody_beats_the_efficient_ones() -> None:
    """In spread, hot time and moves."""
    results = {
        LIVE: {"d": a_day(5, moves=10)},
        "calm": {"d": a_day(6, moves=1)},
        "worse": {"d": a_day(6, moves=11)},
    }
    efficient = {each.candidate for each in standings(results, LIVE).ranking if each.efficient}
    assert efficient == {LIVE, "calm"}


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.data())
def test_a_recommendation_was_better_later(count: int, data: st.DataObject) -> None:
    """Whatever the days: it was the best of the first days, and by the margin better after."""
    spreads = st.lists(st.floats(1, 20), min_size=count, max_size=count)
    costs = {name: data.draw(spreads) for name in (LIVE, "a", "b")}
    outcome = standings(days(costs), LIVE)
    again = standings(days(dict(reversed(costs.items()))), LIVE)
    assert outcome == again
    verdict, half = outcome.verdict, count // 2
    assert verdict is not None
    best = min(float(np.mean(values[:half])) for values in costs.values())
    assert np.mean(costs[verdict.winner][:half]) == pytest.approx(best)
    if verdict.recommended:
        live, winner = np.mean(costs[LIVE][half:]), np.mean(costs[verdict.winner][half:])
        assert winner <= live * (1 - MARGIN) + 1e-9
        assert verdict.low > 0
    for ranked in outcome.ranking:
        assert ranked.low - 1e-9 <= ranked.cost <= ranked.high + 1e-9


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 12, 30])
def test_chance_is_rarely_recommended(count: int) -> None:
    """Of candidates that differ by chance only, over many tournaments: one of twenty, and as many
    more as 300 of them may have by chance.
    """
    rng, recommended = np.random.default_rng(1), 0
    for _ in range(300):
        costs = {name: rng.normal(10, 2, count).tolist() for name in (LIVE, *map(str, range(20)))}
        verdict = standings(days(costs), LIVE).verdict
        assert verdict is not None
        recommended += verdict.recommended
    assert recommended <= 26


def test_one_later_day_judges_nothing() -> None:
    """However large the gain."""
    verdict = standings(days({LIVE: [5, 5], "a": [1, 1]}), LIVE).verdict
    assert verdict is not None
    assert not verdict.recommended
    assert verdict.reason.startswith("a gain of 80.0% on one later day may be chance")


def test_candidates_are_settings() -> None:
    """Everything that the grid and chance make can be tried; the same seed draws the same."""
    made = [*candidates.grid(), *candidates.drawn(60, 3)]
    assert len(set(candidates.grid())) == len(candidates.grid())
    for text in made:
        loaded = conf.KEYS.load().with_overrides(candidates.overrides(text))
        strategies = loaded.leaf(StrategySettings)
        registry.check(strategies.shedder, strategies.placement)
        assert not loaded.unknown
    assert candidates.drawn(60, 3) == candidates.drawn(60, 3) != candidates.drawn(60, 4)


def test_a_shedder_of_third_parties_is_tried() -> None:
    """With the placement rule that it names, and the values in force."""
    with theirs.registered(goes_with="BalancedPlacement"):
        made = [text for text in candidates.grid() if theirs.NAME in text]
    assert made == [f"{theirs.NAME}+BalancedPlacement"]


def test_a_shedder_of_third_parties_says_what_to_try() -> None:
    """Its own keys are in the grid, and in what chance draws."""
    tries = (Tries("theirCycles", (1, 3), 1, 5, whole=True), Tries("theirShare", (0.5,), 0.1, 1.0))
    with theirs.registered(goes_with="BalancedPlacement", tries=tries):
        made = candidates.grid([theirs.NAME])
        drawn = candidates.drawn(20, 1, [theirs.NAME])
        assert theirs.NAME in candidates.searched()
    name = f"{theirs.NAME}+BalancedPlacement"
    assert made == [f"{name},theirCycles={cycles},theirShare=0.5" for cycles in (1, 3)]
    values = [candidates.overrides(text) for text in drawn]
    assert {each["theirCycles"] for each in values} <= {"1", "2", "3", "4", "5"}
    assert all(0.1 <= float(each["theirShare"]) <= 1.0 for each in values)
