"""Strategies of third parties: Python entry points in the groups `loadmanager.shedders` and
`loadmanager.placements`.

An entry point's name is what broker.conf calls the strategy. It names a `Shedder` or a
`PlacementRule` of `core.strategies.strategy`; a bare function is the `shed` or the `candidates` of
one without settings and needs. Register them before settings are loaded: they may declare keys. A
name that a strategy of our own has is refused.

What a strategy answers is checked, and what it raises is an error of one step, even if it says
"exit" or "this task is cancelled".
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from loadmanager.core.errors import ConfigError
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.decision import Unload
from loadmanager.core.strategies.shedding.selection import Shed
from loadmanager.core.strategies.strategy import PlacementRule, Shedder

Strategy = TypeVar("Strategy", Shedder, PlacementRule)


def checked_shedder(strategy: Shedder) -> Shedder:
    """The shedder, which raises nothing but `Exception`s and answers a `Shed` with `Unload`s."""

    @functools.wraps(strategy.shed)
    def shed(*arguments: Any) -> Shed:
        answer: object = _called(strategy.name, strategy.shed, *arguments)
        if not isinstance(answer, Shed) or not all(
            isinstance(unload, Unload) for unload in answer.unloads
        ):
            raise TypeError(
                f"the shedding strategy {strategy.name} answered {answer!r:.200}; a Shed of "
                "Unloads is expected"
            )
        return answer

    return replace(
        strategy,
        shed=shed,
        memory=_guarded(strategy.name, strategy.memory),
        observe=_guarded(strategy.name, strategy.observe),
    )


def checked_placement(strategy: PlacementRule) -> PlacementRule:
    """The placement rule, which raises nothing but `Exception`s and answers names of brokers and
    its memory.
    """

    @functools.wraps(strategy.candidates)
    def candidates(*arguments: Any) -> tuple[list[str], Any]:
        answer: object = _called(strategy.name, strategy.candidates, *arguments)
        if (
            not isinstance(answer, tuple)
            or len(answer) != 2
            or not isinstance(answer[0], list | tuple)
        ):
            raise TypeError(
                f"the placement strategy {strategy.name} answered {answer!r:.200}; (names of "
                "brokers, memory) is expected"
            )
        return [str(broker) for broker in answer[0]], answer[1]

    return replace(
        strategy,
        candidates=candidates,
        memory=_guarded(strategy.name, strategy.memory),
        advance=_guarded(strategy.name, strategy.advance),
        order=_guarded(strategy.name, strategy.order),
    )


def register_plugins() -> list[str]:
    """Make installed third-party strategies known; returns their names. May be called again.

    Raises `ConfigError` for one that cannot be loaded.
    """
    shedders = _register(
        "loadmanager.shedders", registry.SHEDDERS, Shedder, "shed", checked_shedder
    )
    return shedders + _register(
        "loadmanager.placements",
        registry.PLACEMENTS,
        PlacementRule,
        "candidates",
        checked_placement,
    )


def _register(
    group: str,
    known: dict[str, Strategy],
    kind: type[Strategy],
    function: str,
    check: Callable[[Strategy], Strategy],
) -> list[str]:
    names = []
    for entry in importlib.metadata.entry_points(group=group):
        try:
            loaded = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a third party's import raises
            raise ConfigError(
                f"{group}: {entry.name} = {entry.value} cannot be loaded: {error}"
            ) from None
        if not isinstance(loaded, kind) and not callable(loaded):
            raise ConfigError(
                f"{group}: {entry.name} = {entry.value} is neither a {kind.__name__} nor a function"
            )
        strategy = (
            loaded if isinstance(loaded, kind) else kind(**{"name": entry.name, function: loaded})
        )
        if strategy.name != entry.name:
            raise ConfigError(f"{group}: {entry.name} = {entry.value} calls itself {strategy.name}")
        before = known.setdefault(entry.name, check(strategy))
        if getattr(getattr(before, function), "__wrapped__", None) is not getattr(
            strategy, function
        ):
            raise ConfigError(
                f"{group}: {entry.value} has the name {entry.name} of a strategy that "
                "there is already"
            )
        names.append(entry.name)
    return names


def _guarded(name: str, function: Any) -> Any:
    return None if function is None else functools.partial(_called, name, function)


def _called(name: str, function: Callable[..., object], *arguments: object) -> object:
    try:
        return function(*arguments)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        # SystemExit would end the broker, CancelledError the leader's task without a word.
        raise RuntimeError(f"the strategy {name} raised {error!r}") from error
