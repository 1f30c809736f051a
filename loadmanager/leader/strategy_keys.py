"""The settings of the strategies, for what runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from loadmanager.engine.load.manager import Manager
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.settings import SHOWN_MAX, Keys, Problem, Settings, raise_if
from loadmanager.leader import plugins


def with_own(leaves: Mapping[type, Any]) -> Mapping[type, Any]:
    """Put the settings of single strategies where these look for them."""
    own = {leaf: leaves[leaf] for leaf in registry.own_settings()}
    return {**leaves, StrategySettings: dataclasses.replace(leaves[StrategySettings], own=own)}


STRATEGY_KEYS = Keys((StrategySettings,), added=plugins.own_settings, joined=with_own)
"""The keys of the strategies alone."""


def strategies_of(settings: Settings) -> StrategySettings:
    """The settings of the strategies, for what runs them without a broker.

    Raises `ConfigError` for an unknown strategy, for two that do not go together, and for values of
    a strategy that contradict each other.
    """
    strategies = settings.leaf(StrategySettings)
    of_strategies = settings.contradictions(registry.own_settings())
    raise_if([*strategy_problems(strategies), *of_strategies])
    return strategies


def strategy_problems(strategies: StrategySettings) -> Iterator[Problem]:
    """Unknown strategies, and those that do not go together."""
    names = ("loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy")
    texts: dict[tuple[str, ...], str] = {
        names[:1]: refusal(lambda: registry.shedder(strategies.shedder)),
        names[1:]: refusal(lambda: registry.placement(strategies.placement)),
    }
    if not any(texts.values()):
        texts[names] = refusal(lambda: registry.check(strategies.shedder, strategies.placement))
    if Manager.of(strategies.load_manager_class) is None:
        allowed = " and ".join(manager.short_name for manager in Manager)
        texts[("loadManagerClassName",)] = (
            f"loadManagerClassName = {strategies.load_manager_class[:SHOWN_MAX]!r}: {allowed} are "
            "allowed"
        )
    yield from (Problem(names, text) for names, text in texts.items() if text)


def refusal(check: Callable[[], object]) -> str:
    """The text of the `ConfigError` that a check raises; empty without one."""
    try:
        check()
    except ConfigError as error:
        return str(error)
    return ""
