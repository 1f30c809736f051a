"""Strategies by name: Pulsar's full class name, or its last part. `wiring.plugins` adds those of third parties, once, at the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadmanager.core.errors import ConfigError
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.placement import any_broker, least_long_term_message_rate, least_resource_usage, round_robin
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding import avg, overload, threshold, transfer, uniform
from loadmanager.core.strategies.shedding.selection import Shed

Shedder = Callable[[ClusterSnapshot, StrategySettings, Memory], Shed]
PlacementRule = Callable[[ClusterSnapshot, Sequence[str], StrategySettings, Memory], tuple[list[str], Memory]]

SHEDDERS: dict[str, Shedder] = {
    "AvgShedder": avg.shed,
    "OverloadShedder": overload.shed,
    "ThresholdShedder": threshold.shed,
    "TransferShedder": transfer.shed,
    "UniformLoadShedder": uniform.shed,
}
PLACEMENTS: dict[str, PlacementRule] = {
    "AvgShedder": any_broker.candidates,
    "LeastLongTermMessageRate": least_long_term_message_rate.candidates,
    "LeastResourceUsageWithWeight": least_resource_usage.candidates,
    "RoundRobin": round_robin.candidates,
    "RoundRobinBrokerSelector": round_robin.candidates,
}
MODULAR_SHEDDERS = ("AvgShedder", "OverloadShedder", "ThresholdShedder", "UniformLoadShedder")
"""Those that read the modular manager's reports."""


def short_name(name: str) -> str:
    """The last part of a class name."""
    return name.rpartition(".")[2]


def shedder(name: str) -> Shedder:
    """The shedder of that name. Raises `ConfigError` listing the known ones."""
    found = SHEDDERS.get(short_name(name))
    if found is None:
        raise ConfigError(f"loadBalancerLoadSheddingStrategy = {name!r}: one of {', '.join(sorted(SHEDDERS))} is allowed")
    return found


def check(shedder_name: str, placement_name: str) -> None:
    """Raises `ConfigError` for an unknown strategy, and where AvgShedder is to place but not to shed: its placement needs its plans (Pulsar's rule)."""
    shedder(shedder_name)
    placement(placement_name)
    if short_name(placement_name) == "AvgShedder" != short_name(shedder_name):
        raise ConfigError("loadBalancerLoadPlacementStrategy = AvgShedder needs loadBalancerLoadSheddingStrategy = AvgShedder, too")


def placement(name: str) -> PlacementRule:
    """The placement rule of that name. Raises `ConfigError` listing the known ones."""
    found = PLACEMENTS.get(short_name(name))
    if found is None:
        raise ConfigError(f"loadBalancerLoadPlacementStrategy = {name!r}: one of {', '.join(sorted(PLACEMENTS))} is allowed")
    return found
