"""Strategies by name: Pulsar's full class name, or its last part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loadmanager.core.errors import ConfigError
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.placement import least_long_term_message_rate
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding import threshold
from loadmanager.core.strategies.shedding.selection import Shed

Shedder = Callable[[ClusterSnapshot, StrategySettings, Memory], Shed]
PlacementRule = Callable[[ClusterSnapshot, Sequence[str], StrategySettings], list[str]]

SHEDDERS: Mapping[str, Shedder] = {"ThresholdShedder": threshold.shed}
PLACEMENTS: Mapping[str, PlacementRule] = {"LeastLongTermMessageRate": least_long_term_message_rate.candidates}


def short_name(name: str) -> str:
    """The last part of a class name."""
    return name.rpartition(".")[2]


def shedder(name: str) -> Shedder:
    """The shedder of that name. Raises `ConfigError` listing the known ones."""
    found = SHEDDERS.get(short_name(name))
    if found is None:
        raise ConfigError(f"loadBalancerLoadSheddingStrategy = {name!r}: one of {', '.join(sorted(SHEDDERS))} is allowed")
    return found


def placement(name: str) -> PlacementRule:
    """The placement rule of that name. Raises `ConfigError` listing the known ones."""
    found = PLACEMENTS.get(short_name(name))
    if found is None:
        raise ConfigError(f"loadBalancerLoadPlacementStrategy = {name!r}: one of {', '.join(sorted(PLACEMENTS))} is allowed")
    return found
