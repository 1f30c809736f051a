"""Third parties' strategies can neither end a broker nor confuse the leader with
what they answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loadmanager.core.strategies.plan import Skip, Unload
from loadmanager.core.strategies.strategy import PlacementRule, Shed, Shedder
from loadmanager.wiring.plugins import checked_placement, checked_shedder

NOTHING: Any = None


def raising(error: BaseException) -> Callable[..., Any]:
    """A strategy that raises."""

    def strategy(*_: object) -> Any:
        raise error

    return strategy


def answering(value: object) -> Callable[..., Any]:
    """A strategy that answers."""
    return lambda *_: value


def shed(function: Callable[..., Any]) -> Any:
    """What a checked shedder answers."""
    return checked_shedder(Shedder(name="Odd", shed=function)).shed(NOTHING, NOTHING, NOTHING)


def place(function: Callable[..., Any]) -> Any:
    """What a checked placement rule answers."""
    return checked_placement(PlacementRule(name="Odd", candidates=function)).candidates(
        NOTHING, [], NOTHING, NOTHING
    )


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
@pytest.mark.parametrize("asked", [shed, place])
def test_nothing_but_exceptions_comes_out(asked: Callable[..., Any], error: BaseException) -> None:
    """Neither the process nor the task ends."""
    with pytest.raises(RuntimeError, match="the strategy Odd raised"):
        asked(raising(error))


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


def test_good_answers_pass() -> None:
    """As they are."""
    answer = Shed((), (), {"mine": 1})
    assert shed(answering(answer)) is answer
    assert place(answering((("b0:1",), 7))) == (["b0:1"], 7)
