"""Strategies of third parties: Python entry points in the groups `loadmanager.shedders` and `loadmanager.placements`.

An entry point's name is what broker.conf calls the strategy; its object is a function with the signature of `core.strategies.registry.Shedder` or
`PlacementRule`. A name that a strategy of our own has is refused.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from loadmanager.core.errors import ConfigError
from loadmanager.core.strategies import registry

GROUPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("loadmanager.shedders", registry.SHEDDERS),
    ("loadmanager.placements", registry.PLACEMENTS),
)


def register_plugins() -> list[str]:
    """Make installed third-party strategies known; returns their names. May be called again. Raises `ConfigError` for one that cannot be loaded."""
    found: list[str] = []
    for group, known in GROUPS:
        for entry in importlib.metadata.entry_points(group=group):
            try:
                strategy = entry.load()
            except Exception as error:  # noqa: BLE001 - whatever a third party's import raises
                raise ConfigError(f"{group}: {entry.name} = {entry.value} cannot be loaded: {error}") from None
            if known.setdefault(entry.name, strategy) is not strategy:
                raise ConfigError(f"{group}: {entry.value} has the name {entry.name} of a strategy that there is already")
            found.append(entry.name)
    return found
