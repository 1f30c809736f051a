"""The hooks with which a service says figures, and need not: `cost` and `load`."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from loadmanager.kit.logger import get_logger
from loadmanager.kit.text import printable
from loadmanager.leader.plugins import LoadMetric
from loadmanager.sharding.shards import NotNow, Service, Shard

T = TypeVar("T")
REASON_MAX = 200
"""Characters of a "not now" that all members are told."""
Ask = Callable[[Shard[Any]], Any]

log = get_logger("member")


class ExtraHooks:
    """Calls those that are asked for figures: `cost` and `load`."""

    def __init__(self, service: Service[Any], metrics: Mapping[str, LoadMetric]) -> None:
        """`metrics`: name of a load → what measures it, of a plug-in."""
        self._service, self._metrics = service, metrics
        self.failures: Counter[str] = Counter()
        """Hook → how often it failed; the first time is logged."""

    def costs(self, shards: Mapping[str, Shard[Any]]) -> dict[str, float | str]:
        """Bundle → what it costs to move it now, or why it is not to be moved, as the service says;
        nothing if that fails.
        """
        return self._answers("cost", getattr(self._service, "cost", None), shards, _cost)

    def loads(self, shards: Mapping[str, Shard[Any]]) -> dict[str, dict[str, float]]:
        """Bundle → name → load, as the service says, else as a plug-in measures it; nothing if that
        fails.
        """
        loads = self._answers("load", getattr(self._service, "load", None), shards, _numbers)
        for name, metric in self._metrics.items():
            hook = f"the load metric {name}"
            for bundle, amount in self._answers(hook, metric, shards, _number).items():
                loads.setdefault(bundle, {}).setdefault(name, amount)
        return loads

    def _answers(
        self,
        hook: str,
        ask: Ask | None,
        shards: Mapping[str, Shard[Any]],
        read: Callable[[Ask, Shard[Any]], T],
    ) -> dict[str, T]:
        answers: dict[str, T] = {}
        if ask is None:
            return answers
        for bundle, shard in shards.items():
            try:
                answers[bundle] = read(ask, shard)
            except (Exception, asyncio.CancelledError):  # foreign code, which cancels nobody here
                if not self.failures[hook]:
                    log.exception("a hook of the service failed", hook=hook, bundle=bundle)
                self.failures[hook] += 1
        return answers


def _cost(ask: Ask, shard: Shard[Any]) -> float | str:
    try:
        cost = float(ask(shard))
    except NotNow as not_now:
        return printable(str(not_now))[:REASON_MAX]
    if not cost >= 0:
        raise ValueError(f"a cost is a number of 0 or more: {cost}")
    return "" if cost == math.inf else cost


def _numbers(ask: Ask, shard: Shard[Any]) -> dict[str, float]:
    return {str(name): _of_load(value) for name, value in ask(shard).items()}


def _number(ask: Ask, shard: Shard[Any]) -> float:
    return _of_load(ask(shard))


def _of_load(said: float) -> float:
    number = float(said)
    if not 0 <= number < float("inf"):
        raise ValueError(f"a load is a number of 0 or more, not {number}")
    return number
