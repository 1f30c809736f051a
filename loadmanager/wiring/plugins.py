"""Strategies of third parties: Python entry points in the groups `loadmanager.shedders` and `loadmanager.placements`.

An entry point's name is what broker.conf calls the strategy. It names a `Shedder` or a `PlacementRule` of `core.strategies.strategy`; a bare function
is the `shed` or the `candidates` of one without settings and needs. Register them before settings are loaded: they may declare keys.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from loadmanager.core.errors import ConfigError
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.strategy import PlacementRule, Shedder

GROUPS: tuple[tuple[str, dict[str, Any], type[Shedder | PlacementRule], str], ...] = (
    ("loadmanager.shedders", registry.SHEDDERS, Shedder, "shed"),
    ("loadmanager.placements", registry.PLACEMENTS, PlacementRule, "candidates"),
)


def register_plugins() -> list[str]:
    """Make installed third-party strategies known; returns their names. May be called again. Raises `ConfigError` for one that cannot be loaded."""
    found: list[str] = []
    for group, known, kind, function in GROUPS:
        for entry in importlib.metadata.entry_points(group=group):
            try:
                loaded = entry.load()
            except Exception as error:  # noqa: BLE001 - whatever a third party's import raises
                raise ConfigError(f"{group}: {entry.name} = {entry.value} cannot be loaded: {error}") from None
            strategy = loaded if isinstance(loaded, kind) else kind(**{"name": entry.name, function: loaded})
            if strategy.name != entry.name:
                raise ConfigError(f"{group}: {entry.name} = {entry.value} calls itself {strategy.name}")
            if known.setdefault(entry.name, strategy) != strategy:
                raise ConfigError(f"{group}: {entry.value} has the name {entry.name} of a strategy that there is already")
            found.append(entry.name)
    return found
