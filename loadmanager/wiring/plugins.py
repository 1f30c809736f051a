"""Strategies of third parties: Python entry points in the groups `loadmanager.shedders` and `loadmanager.placements`.

An entry point's name is what broker.conf calls the strategy. It names a `Shedder` or a `PlacementRule` of `core.strategies.strategy`, or only the
`shed` or `candidates` function of one. A name that a strategy of our own has is refused.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

from loadmanager.core.errors import ConfigError
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.strategy import PlacementRule, Shedder

GROUPS: tuple[tuple[str, dict[str, Any], Callable[[str, Any], object]], ...] = (
    ("loadmanager.shedders", registry.SHEDDERS, lambda name, shed: Shedder(name=name, shed=shed)),
    ("loadmanager.placements", registry.PLACEMENTS, lambda name, candidates: PlacementRule(name=name, candidates=candidates)),
)


def register_plugins() -> list[str]:
    """Make installed third-party strategies known; returns their names. May be called again. Raises `ConfigError` for one that cannot be loaded."""
    found: list[str] = []
    for group, known, strategy_of in GROUPS:
        for entry in importlib.metadata.entry_points(group=group):
            try:
                strategy = entry.load()
            except Exception as error:  # noqa: BLE001 - whatever a third party's import raises
                raise ConfigError(f"{group}: {entry.name} = {entry.value} cannot be loaded: {error}") from None
            if not isinstance(strategy, Shedder | PlacementRule):
                strategy = strategy_of(entry.name, strategy)
            if known.setdefault(entry.name, strategy) != strategy:
                raise ConfigError(f"{group}: {entry.value} has the name {entry.name} of a strategy that there is already")
            found.append(entry.name)
    return found
