"""Candidates of a tournament: strategies with settings, as `replay --try` spells them.

`SHEDDER+PLACEMENT,KEY=VALUE…`; what a candidate leaves out is as it is in force. Shedders of third
parties, of whose keys nothing is known here, are tried with the values in force.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import product

from loadmanager.engine.strategies import registry

LIVE = ""
"""The settings in force."""
USAGE_PLACEMENT = "LeastResourceUsageWithWeight"
RATE_PLACEMENT = "LeastLongTermMessageRate"
ANY_PLACEMENT = (RATE_PLACEMENT, USAGE_PLACEMENT, "BalancedPlacement")
"""The placement rules to try with a shedder that every rule fits."""
GRID: Mapping[str, Mapping[str, Sequence[float]]] = {
    "AvgShedder": {
        "loadBalancerAvgShedderLowThreshold": (8, 15),
        "loadBalancerAvgShedderHitCountLowThreshold": (3, 8),
        "maxUnloadPercentage": (0.2, 0.3),
    },
    "BalancedShedder": {"loadManagerBalancedMovePrice": (0.002, 0.004, 0.008)},
    "OverloadShedder": {"loadBalancerBrokerOverloadedThresholdPercentage": (70, 75, 80, 85)},
    "ThresholdShedder": {
        "loadBalancerBrokerThresholdShedderPercentage": (5, 10),
        "loadBalancerHistoryResourcePercentage": (0.5, 0.9),
    },
    "TransferShedder": {
        "loadBalancerBrokerLoadTargetStd": (0.04, 0.08, 0.25),
        "loadBalancerSheddingConditionHitCountThreshold": (0, 3),
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle": (3, 10),
    },
    "UniformLoadShedder": {
        "loadBalancerMsgRateDifferenceShedderThreshold": (20, 50),
        "maxUnloadPercentage": (0.2, 0.4),
    },
}
"""Shedder → its most important keys → values to try."""
RANGES: Mapping[str, tuple[float, float]] = {
    "loadBalancerAvgShedderLowThreshold": (4, 30),
    "loadBalancerAvgShedderHitCountLowThreshold": (1, 12),
    "maxUnloadPercentage": (0.1, 0.5),
    "loadManagerBalancedMovePrice": (0.001, 0.03),
    "loadBalancerBrokerOverloadedThresholdPercentage": (60, 95),
    "loadBalancerBrokerThresholdShedderPercentage": (3, 25),
    "loadBalancerHistoryResourcePercentage": (0.3, 0.95),
    "loadBalancerBrokerLoadTargetStd": (0.02, 0.3),
    "loadBalancerSheddingConditionHitCountThreshold": (0, 5),
    "loadBalancerMaxNumberOfBrokerSheddingPerCycle": (1, 20),
    "loadBalancerMsgRateDifferenceShedderThreshold": (10, 100),
}
"""Key → between what a random search draws."""
WHOLE = frozenset(
    {
        "loadBalancerAvgShedderHitCountLowThreshold",
        "loadBalancerSheddingConditionHitCountThreshold",
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle",
    }
)
"""Keys whose values are whole numbers."""


def grid(shedders: Sequence[str] | None = None) -> list[str]:
    """Every combination of the grid's values, for these shedders (None: for all that there are)."""
    return [
        spell(shedder, placement, dict(zip(keys, values, strict=True)))
        for shedder in (sorted(registry.SHEDDERS) if shedders is None else shedders)
        for placement in _placements(shedder)
        for keys in [GRID.get(shedder, {})]
        for values in product(*keys.values())
    ]


def _placements(shedder: str) -> Sequence[str]:
    fitting = registry.SHEDDERS[shedder].goes_with
    return ANY_PLACEMENT if fitting is None else (fitting,)


def drawn(count: int, seed: int, shedders: Sequence[str] = tuple(GRID)) -> list[str]:
    """Draw `count` candidates, the same ones for the same seed; small values are as likely as
    large ones (logarithmically).
    """
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    made = []
    for number in range(count):
        shedder = shedders[number % len(shedders)]
        placement = rng.choice(_placements(shedder))
        made.append(spell(shedder, placement, {key: _value(rng, key) for key in GRID[shedder]}))
    return made


def _value(rng: random.Random, key: str) -> float:
    low, high = RANGES[key]
    if key in WHOLE:
        return rng.randint(int(low), int(high))
    return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")


def spell(shedder: str, placement: str, values: Mapping[str, float]) -> str:
    """A candidate as a text."""
    return ",".join([f"{shedder}+{placement}", *(f"{key}={values[key]:g}" for key in values)])


def overrides(text: str) -> dict[str, str]:
    """The keys of broker.conf that a candidate sets. A pair without `=` has an empty value."""
    names, *pairs = text.split(",")
    shedder, _, placement = names.partition("+")
    keys = {"loadBalancerLoadSheddingStrategy": shedder} if shedder else {}
    if placement:
        keys["loadBalancerLoadPlacementStrategy"] = placement
    return keys | {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
