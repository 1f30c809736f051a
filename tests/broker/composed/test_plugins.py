"""Third parties' strategies can neither end a broker nor confuse the leader with
what they answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Shedder
from loadmanager.leader.plugins import FIGURES_MAX, checked_placement, checked_shedder

NOTHING: Any = None
FUNCTIONS: dict[type[Any], set[str]] = {
    Shedder: {"shed", "memory", "observe", "keep", "never_sheds"},
    PlacementRule: {"candidates", "memory", "observe", "advance", "order", "why"},
}


def raising(error: BaseException) -> Callable[..., Any]:
    """A strategy that raises."""

    def strategy(*_: object) -> Any:
        raise error

    return strategy


def answering(value: object) -> Callable[..., Any]:
    """A strategy that answers."""
    return lambda *_: value


def shed(function: Callable[..., Any]) -> Any:
    """The answer of a checked shedder."""
    return checked_shedder(Shedder(name="Odd", shed=function)).shed(NOTHING, NOTHING, NOTHING)


def place(function: Callable[..., Any]) -> Any:
    """The answer of a checked placement rule."""
    return checked_placement(PlacementRule(name="Odd", candidates=function)).candidates(
        NOTHING, [], NOTHING, NOTHING
    )


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
@pytest.mark.parametrize(
    ("kind", "function"),
    [(kind, name) for kind, names in FUNCTIONS.items() for name in sorted(names)],
)
def test_nothing_but_exceptions_comes_out(
    kind: type[Any], function: str, error: BaseException
) -> None:
    """Neither the process nor the task ends, whichever of its functions a strategy raises in."""
    needed = {Shedder: "shed", PlacementRule: "candidates"}[kind]
    odd = kind(**{"name": "Odd", needed: answering(None), function: raising(error)})
    checked = (checked_shedder if kind is Shedder else checked_placement)(odd)
    with pytest.raises(RuntimeError, match="the strategy Odd raised"):
        getattr(checked, function)(NOTHING, [], NOTHING)


def test_the_functions_above_are_all() -> None:
    """Another one of a strategy would have to be contained, too."""
    for kind, names in FUNCTIONS.items():
        declared = get_type_hints(kind).items()
        assert {name for name, hint in declared if "Callable" in str(hint)} == names


@pytest.mark.parametrize(
    "value",
    [
        None,
        (),
        Shed((7,), (), None),
        Shed((Unload("t/n/0x00000000_0xffffffff", "a", "b", "x", {"load": {1, 2}}),), (), None),
        Shed((Unload("t/n/0x00000000_0xffffffff", 7, "b", "x"),), (), None),
        Shed((), (Skip("a", object()),), None),
        Shed((), (Skip("a", "x"),) * 100_001, None),
    ],
)
def test_a_shedder_answers_what_it_must(value: object) -> None:
    """Anything else is an error that says so."""
    with pytest.raises(TypeError, match="the shedding strategy Odd answered"):
        shed(answering(value))


@pytest.mark.parametrize("value", [None, ["b0:1"], ("b0:1", None), (["b0:1"], None, 1)])
def test_a_placement_answers_what_it_must(value: object) -> None:
    """As above."""
    with pytest.raises(TypeError, match="the placement strategy Odd answered"):
        place(answering(value))


def explained(value: object) -> Any:
    """What a checked placement rule says of its choice that answers this."""
    rule = PlacementRule(name="Odd", candidates=answering(None), why=answering(value))
    why = checked_placement(rule).why
    assert why is not None
    return why(NOTHING, "b0:1", NOTHING, NOTHING)


@pytest.mark.parametrize("value", [None, 7, {7: 1.0}, {"usage": {1, 2}}, {"usage": None}])
def test_a_placement_explains_itself_by_numbers_and_texts(value: object) -> None:
    """Anything else is an error that says so; more than some are left out."""
    with pytest.raises(TypeError, match="the placement strategy Odd explained"):
        explained(value)
    assert explained({"usage": 0.5, "of": "cpu"}) == {"usage": 0.5, "of": "cpu"}
    assert len(explained({str(number): 1.0 for number in range(10_000)})) == FIGURES_MAX


def test_a_sentence_is_taken_apart() -> None:
    """A package that was made for an earlier version tells a skip's reason in one text."""
    old = (Skip("a", "Busy: 7 of 9"), Skip("b", "Balanced"), Skip("c", "it naps"))
    assert shed(answering(Shed((), (*old, Skip("d", "Busy", "1")), None))).skipped == (
        Skip("a", "Busy", "7 of 9"),
        Skip("b", "Balanced"),
        Skip("c", "Unknown", "it naps"),
        Skip("d", "Busy", "1"),
    )


def test_good_answers_pass() -> None:
    """As they are."""
    answer = Shed((), (), {"mine": 1})
    assert shed(answering(answer)) is answer
    assert place(answering((("b0:1",), 7))) == (["b0:1"], 7)
