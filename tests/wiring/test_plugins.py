"""Third parties' strategies can neither end a broker nor spoil what its own strategies remember."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.shedding.selection import Shed
from loadmanager.wiring.plugins import placement, shedder


def raising(error: BaseException) -> Callable[..., Any]:
    """A strategy that raises."""

    def strategy(*_: object) -> Any:
        raise error

    return strategy


def answering(value: object) -> Callable[..., Any]:
    """A strategy that answers."""
    return lambda *_: value


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
def test_nothing_but_exceptions_comes_out(error: BaseException) -> None:
    """Neither the process nor the task ends."""
    with pytest.raises(RuntimeError, match="the strategy Odd raised"):
        shedder("Odd", raising(error))(None, None, Memory())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="the strategy Odd raised"):
        placement("Odd", raising(error))(None, [], None, Memory())  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, Shed((), (), None), Shed((7,), (), Memory())])  # type: ignore[arg-type]
def test_a_shedder_answers_what_it_must(value: object) -> None:
    """An answer without a memory would break every strategy after it."""
    with pytest.raises(TypeError, match="the shedding strategy Odd answered"):
        shedder("Odd", answering(value))(None, None, Memory())  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, ["b0:1"], (["b0:1"], None), (["b0:1"], Memory(), 1)])
def test_a_placement_answers_what_it_must(value: object) -> None:
    """As above."""
    with pytest.raises(TypeError, match="the placement strategy Odd answered"):
        placement("Odd", answering(value))(None, [], None, Memory())  # type: ignore[arg-type]


def test_good_answers_pass() -> None:
    """As they are."""
    memory = Memory(hits=3)
    shed = Shed((), (), memory)
    assert shedder("Odd", answering(shed))(None, None, memory) is shed  # type: ignore[arg-type]
    assert placement("Odd", answering((("b0:1",), memory)))(None, [], None, memory) == (["b0:1"], memory)  # type: ignore[arg-type]
