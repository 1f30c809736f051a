"""Candidates of a tournament: strategies with settings, as `replay --try` spells them.

`SHEDDER+PLACEMENT,KEY=VALUE…`; what a candidate leaves out is as it is in force. Each shedder says
which values of its keys to try (`Shedder.tries`); one that says nothing is tried as it is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import product

from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.strategy import Tries
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.settings import Settings

LIVE = ""
"""The settings in force."""
USAGE_PLACEMENT = "LeastResourceUsageWithWeight"
RATE_PLACEMENT = "LeastLongTermMessageRate"
WEIGHT = "ResourceWeight"
"""The end of the keys that weigh resources."""
ANY_PLACEMENT = (RATE_PLACEMENT, USAGE_PLACEMENT, "BalancedPlacement")
"""The placement rules of ours to try with a shedder that every rule fits; those of third parties
that say which values to try are added.
"""


def grid(shedders: Sequence[str] | None = None) -> list[str]:
    """Every combination of the grid's values, for these shedders (None: for all that there are)."""
    return [
        spell(shedder, placement, dict(zip((each.key for each in tries), values, strict=True)))
        for shedder in (sorted(registry.SHEDDERS) if shedders is None else shedders)
        for placement in _placements(shedder)
        for tries in [_tries(shedder, placement)]
        for values in product(*(each.grid for each in tries))
    ]


def _placements(shedder: str) -> Sequence[str]:
    fitting = registry.SHEDDERS[shedder].goes_with
    if fitting is not None:
        return (fitting,)
    theirs = (name for name, rule in registry.PLACEMENTS.items() if rule.tries and not rule.follows)
    return (*ANY_PLACEMENT, *sorted(theirs))


def _tries(shedder: str, placement: str) -> tuple[Tries, ...]:
    """The keys to try of both, each once: they may share their settings."""
    rule = registry.PLACEMENTS.get(placement)
    both = (*registry.SHEDDERS[shedder].tries, *(rule.tries if rule is not None else ()))
    return tuple({each.key: each for each in both}.values())


def searched() -> list[str]:
    """The shedders that say which values to try, by name."""
    return sorted(name for name, shedder in registry.SHEDDERS.items() if shedder.tries)


def drawn(count: int, seed: int, shedders: Sequence[str] | None = None) -> list[str]:
    """Draw `count` candidates of shedders (None: of all that say which values to try), the same
    ones for the same seed; small values are as likely as large ones (logarithmically).
    """
    shedders = searched() if shedders is None else shedders
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    made = []
    for number in range(count):
        shedder = shedders[number % len(shedders)]
        placement = rng.choice(_placements(shedder))
        values = {tries.key: _value(rng, tries) for tries in _tries(shedder, placement)}
        made.append(spell(shedder, placement, values))
    return made


def _value(rng: random.Random, tries: Tries) -> float:
    low, high = tries.low, tries.high
    if tries.whole:
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


def unweighted(base: Settings) -> Settings:
    """These settings for recorded days, whose usage has the brokers' weights in it already."""
    return base.with_overrides({"loadBalancerCPUResourceWeight": "1"})


def check_candidate(text: str) -> None:
    """Raises `BadInputError` if a candidate for recorded days changes weights."""
    for key in overrides(text):
        if key.endswith(WEIGHT):
            raise BadInputError(
                f"--try {text}: recorded usage has the brokers' weights in it; leave out {key}"
            )
