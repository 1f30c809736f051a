"""Settings with which a shedder never sheds anything; the doctor asks the shedder for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from loadmanager.engine.strategies.settings import StrategySettings


class NeverSheds(NamedTuple):
    """A broker.conf key, why nothing is ever shed with its value, and what to do."""

    key: str
    why: str
    advice: str


def all_idle(settings: StrategySettings) -> Iterator[NeverSheds]:
    """Usage is weighted, and every weight is 0."""
    if not any(settings.weights):
        yield NeverSheds(
            "loadBalancerCPUResourceWeight",
            "all weights of resources are 0: every broker looks idle, and nothing is ever shed",
            "give the resources that matter a weight of 1",
        )


def not_exceeded(key: str, percent: float) -> Iterator[NeverSheds]:
    """Usage is a percentage, and this threshold is 100 or more."""
    if percent >= 100:
        why = f"{percent:g}: no percentage exceeds it, and nothing is ever shed"
        yield NeverSheds(key, why, "lower it")
