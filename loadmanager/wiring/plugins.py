"""Strategies of third parties: Python entry points in the groups `loadmanager.shedders` and `loadmanager.placements`.

An entry point's name is what broker.conf calls the strategy; its object is a function with the signature of `core.strategies.registry.Shedder` or
`PlacementRule`. A name that a strategy of our own has is refused.

What a strategy answers is checked: a wrong memory, for one, would stay in the leader's desk and break the strategies after it. What it raises is an
error, even if that says "exit" or "this task is cancelled".
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

from loadmanager.core.errors import ConfigError
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.decision import Unload
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.registry import PlacementRule, Shedder
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.selection import Shed


def shedder(name: str, strategy: Shedder) -> Shedder:
    """A third party's shedder that raises `Exception`s, and answers a `Shed`."""

    @functools.wraps(strategy)
    def checked(snapshot: ClusterSnapshot, settings: StrategySettings, memory: Memory) -> Shed:
        answer: object = _called(name, strategy, snapshot, settings, memory)
        if not isinstance(answer, Shed) or not isinstance(answer.memory, Memory):
            raise TypeError(f"the shedding strategy {name} answered {answer!r:.200}; a Shed with a Memory is expected")
        if not all(isinstance(unload, Unload) for unload in answer.unloads):
            raise TypeError(f"the shedding strategy {name} answered {answer.unloads!r:.200}; Unloads are expected")
        return answer

    return checked


def placement(name: str, strategy: PlacementRule) -> PlacementRule:
    """A third party's placement rule that raises `Exception`s, and answers names and a `Memory`."""

    @functools.wraps(strategy)
    def checked(snapshot: ClusterSnapshot, brokers: Sequence[str], settings: StrategySettings, memory: Memory) -> tuple[list[str], Memory]:
        answer: object = _called(name, strategy, snapshot, brokers, settings, memory)
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Memory):
            raise TypeError(f"the placement strategy {name} answered {answer!r:.200}; (names of brokers, Memory) is expected")
        return [str(broker) for broker in answer[0]], answer[1]

    return checked


GROUPS: tuple[tuple[str, dict[str, Any], Callable[[str, Any], Any]], ...] = (
    ("loadmanager.shedders", registry.SHEDDERS, shedder),
    ("loadmanager.placements", registry.PLACEMENTS, placement),
)


def register_plugins() -> list[str]:
    """Make installed third-party strategies known; returns their names. May be called again. Raises `ConfigError` for one that cannot be loaded."""
    found: list[str] = []
    for group, known, check in GROUPS:
        for entry in importlib.metadata.entry_points(group=group):
            try:
                strategy = entry.load()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a third party's import raises
                raise ConfigError(f"{group}: {entry.name} = {entry.value} cannot be loaded: {error}") from None
            if not callable(strategy):
                raise ConfigError(f"{group}: {entry.name} = {entry.value} is no function")
            before = known.setdefault(entry.name, check(entry.name, strategy))
            if getattr(before, "__wrapped__", None) is not strategy:
                raise ConfigError(f"{group}: {entry.value} has the name {entry.name} of a strategy that there is already")
            found.append(entry.name)
    return found


def _called(name: str, strategy: Callable[..., object], *arguments: object) -> object:
    try:
        return strategy(*arguments)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        # SystemExit would end the broker, CancelledError the leader's task without a word.
        raise RuntimeError(f"the strategy {name} raised {error!r}") from error
