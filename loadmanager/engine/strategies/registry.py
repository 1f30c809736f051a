"""Strategies by name: Pulsar's full class name, or its last part.

`register` takes ours here, and those of third parties in `leader.plugins`, before anybody reads
settings.
"""

from __future__ import annotations

from loadmanager.engine.strategies.placement import (
    any_broker,
    balanced_placement,
    least_long_term_message_rate,
    least_resource_usage,
    round_robin,
)
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import (
    avg,
    balanced,
    overload,
    threshold,
    transfer,
    uniform,
)
from loadmanager.engine.strategies.strategy import PlacementRule, Shedder, Strategy
from loadmanager.kit.errors import ConfigError

SHEDDERS: dict[str, Shedder] = {}
PLACEMENTS: dict[str, PlacementRule] = {}
EXTENSIBLE_SHEDDER = transfer.SHEDDER
EXTENSIBLE_PLACEMENT = least_resource_usage.PLACEMENT
"""Pulsar's extensible manager places by this rule, whatever the settings say."""
EXCLUDED_PLACEMENT = round_robin.PLACEMENT
"""Places the bundles of namespaces that are excluded from shedding."""
FALLBACK_PLACEMENT = least_long_term_message_rate.PLACEMENT
"""Places bundles while the configured rule fails, or follows another shedder than the one tried."""


def register(strategy: Strategy) -> None:
    """Make a strategy known by its name.

    Raises `ConfigError` if another one has the name.
    """
    if isinstance(strategy, Shedder):
        same_name: Strategy = SHEDDERS.setdefault(strategy.name, strategy)
    else:
        same_name = PLACEMENTS.setdefault(strategy.name, strategy)
    if same_name is not strategy:
        raise ConfigError(f"there is already another strategy with the name {strategy.name}")


for _strategy in (
    avg.SHEDDER,
    balanced.SHEDDER,
    overload.SHEDDER,
    threshold.SHEDDER,
    transfer.SHEDDER,
    uniform.SHEDDER,
    any_broker.PLACEMENT,
    balanced_placement.PLACEMENT,
    least_long_term_message_rate.PLACEMENT,
    least_resource_usage.PLACEMENT,
    round_robin.PLACEMENT,
    round_robin.ALIAS,
):
    register(_strategy)


def short_name(name: str) -> str:
    """The last part of a class name."""
    return name.rpartition(".")[2]


def shedder(name: str) -> Shedder:
    """The shedder of that name. Raises `ConfigError` listing the known ones."""
    strategy = SHEDDERS.get(short_name(name))
    if strategy is None:
        raise ConfigError(
            f"loadBalancerLoadSheddingStrategy = {name[:100]!r}: one of "
            f"{', '.join(sorted(SHEDDERS))} is allowed"
        )
    return strategy


def placement(name: str) -> PlacementRule:
    """The placement rule of that name. Raises `ConfigError` listing the known ones."""
    rule = PLACEMENTS.get(short_name(name))
    if rule is None:
        raise ConfigError(
            f"loadBalancerLoadPlacementStrategy = {name[:100]!r}: one of "
            f"{', '.join(sorted(PLACEMENTS))} is allowed"
        )
    return rule


def acting(settings: StrategySettings, *, extensible: bool) -> tuple[Shedder, PlacementRule]:
    """The strategies that act with these settings in either manager.

    Raises `ConfigError` for an unknown one.
    """
    configured, rule = shedder(settings.shedder), placement(settings.placement)
    if not extensible:
        return configured, rule
    return configured if configured.extensible else EXTENSIBLE_SHEDDER, EXTENSIBLE_PLACEMENT


def own_settings() -> tuple[type, ...]:
    """The settings dataclasses that single strategies declare."""
    strategies: tuple[Strategy, ...] = (*SHEDDERS.values(), *PLACEMENTS.values())
    return tuple(
        dict.fromkeys(strategy.settings for strategy in strategies if strategy.settings is not None)
    )


def check(shedder_name: str, placement_name: str) -> None:
    """Raise `ConfigError` for an unknown strategy, and for a placement rule that follows another
    shedder than the configured one (Pulsar's rule for AvgShedder).
    """
    shedder(shedder_name)
    rule = placement(placement_name)
    if rule.follows not in (None, short_name(shedder_name)):
        raise ConfigError(
            f"loadBalancerLoadPlacementStrategy = {rule.name} needs "
            f"loadBalancerLoadSheddingStrategy = {rule.follows}, too"
        )
