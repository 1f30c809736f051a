"""Strategies by name: Pulsar's full class name, or its last part.

`wiring.plugins` adds those of third parties, once, at the start.
"""

from __future__ import annotations

from loadmanager.core.errors import ConfigError
from loadmanager.core.strategies.placement import (
    any_broker,
    least_long_term_message_rate,
    least_resource_usage,
    round_robin,
)
from loadmanager.core.strategies.shedding import avg, overload, threshold, transfer, uniform
from loadmanager.core.strategies.strategy import PlacementRule, Shedder

SHEDDERS: dict[str, Shedder] = {
    item.name: item
    for item in (
        avg.SHEDDER,
        overload.SHEDDER,
        threshold.SHEDDER,
        transfer.SHEDDER,
        uniform.SHEDDER,
    )
}
PLACEMENTS: dict[str, PlacementRule] = {
    item.name: item
    for item in (
        any_broker.PLACEMENT,
        least_long_term_message_rate.PLACEMENT,
        least_resource_usage.PLACEMENT,
        round_robin.PLACEMENT,
        round_robin.ALIAS,
    )
}
EXTENSIBLE_SHEDDER = transfer.SHEDDER
EXTENSIBLE_PLACEMENT = least_resource_usage.PLACEMENT
"""Pulsar's extensible manager places by this rule, whatever the settings say."""
EXCLUDED_PLACEMENT = round_robin.PLACEMENT
"""Places the bundles of namespaces that are excluded from shedding."""


def short_name(name: str) -> str:
    """The last part of a class name."""
    return name.rpartition(".")[2]


def shedder(name: str) -> Shedder:
    """The shedder of that name. Raises `ConfigError` listing the known ones."""
    found = SHEDDERS.get(short_name(name))
    if found is None:
        raise ConfigError(
            f"loadBalancerLoadSheddingStrategy = {name!r}: one of "
            f"{', '.join(sorted(SHEDDERS))} is allowed"
        )
    return found


def own_settings() -> tuple[type, ...]:
    """The settings that single strategies declare."""
    strategies: tuple[Shedder | PlacementRule, ...] = (*SHEDDERS.values(), *PLACEMENTS.values())
    return tuple(dict.fromkeys(item.settings for item in strategies if item.settings is not None))


def check(shedder_name: str, placement_name: str) -> None:
    """Raise `ConfigError` for an unknown strategy, and for a rule that follows another shedder.

    The latter is Pulsar's rule for AvgShedder.
    """
    shedder(shedder_name)
    placement(placement_name)
    rule = placement(placement_name)
    if rule.follows not in (None, short_name(shedder_name)):
        raise ConfigError(
            f"loadBalancerLoadPlacementStrategy = {rule.name} needs "
            f"loadBalancerLoadSheddingStrategy = {rule.follows}, too"
        )


def placement(name: str) -> PlacementRule:
    """The placement rule of that name. Raises `ConfigError` listing the known ones."""
    found = PLACEMENTS.get(short_name(name))
    if found is None:
        raise ConfigError(
            f"loadBalancerLoadPlacementStrategy = {name!r}: one of "
            f"{', '.join(sorted(PLACEMENTS))} is allowed"
        )
    return found
