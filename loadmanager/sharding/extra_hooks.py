"""The hooks with which a service says figures, and need not: `cost` and `load`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from loadmanager.kit.logger import get_logger
from loadmanager.sharding.shards import NotNow, Service, Shard

T = TypeVar("T")
Ask = Callable[[Shard[Any]], Any]

log = get_logger("member")


class ExtraHooks:
    """Calls those that are asked for figures: `cost` and `load`."""

    def __init__(self, service: Service[Any]) -> None:
        self._service = service
        self.failures: Counter[str] = Counter()
        """Hook → how often it failed; the first time is logged."""

    def costs(self, shards: Mapping[str, Shard[Any]]) -> dict[str, float | str]:
        """Bundle → what it costs to move it now, or why it is not to be moved, as the service says;
        nothing if that fails.
        """
        return self._answers("cost", shards, _cost)

    def loads(self, shards: Mapping[str, Shard[Any]]) -> dict[str, dict[str, float]]:
        """Bundle → name → load, as the service says; nothing if that fails."""
        return self._answers("load", shards, _numbers)

    def _answers(
        self, hook: str, shards: Mapping[str, Shard[Any]], read: Callable[[Ask, Shard[Any]], T]
    ) -> dict[str, T]:
        ask: Ask | None = getattr(self._service, hook, None)
        answers: dict[str, T] = {}
        if ask is None:
            return answers
        for bundle, shard in shards.items():
            try:
                answers[bundle] = read(ask, shard)
            except Exception:  # foreign code
                if not self.failures[hook]:
                    log.exception("a hook of the service failed", hook=hook, bundle=bundle)
                self.failures[hook] += 1
        return answers


def _cost(ask: Ask, shard: Shard[Any]) -> float | str:
    try:
        cost = float(ask(shard))
    except NotNow as not_now:
        return str(not_now)
    if not cost >= 0:
        raise ValueError(f"a cost is a number of 0 or more: {cost}")
    return "" if cost == math.inf else cost


def _numbers(ask: Ask, shard: Shard[Any]) -> dict[str, float]:
    numbers = {str(name): float(value) for name, value in ask(shard).items()}
    if not all(0 <= value < float("inf") for value in numbers.values()):
        raise ValueError(f"a load is a number of 0 or more: {numbers}")
    return numbers
