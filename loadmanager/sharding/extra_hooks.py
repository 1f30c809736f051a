"""The hooks that a service may have, and need not: `prepare`, `cost` and `load`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from loadmanager.kit.logger import get_logger
from loadmanager.leader.plugins import LoadMetric
from loadmanager.sharding.shards import Service, Shard

T = TypeVar("T")

log = get_logger("member")


class ExtraHooks:
    """Calls them. `served`: whether a bundle is served here now. `metrics`: name of a load → what
    measures it, of a plug-in.
    """

    def __init__(
        self,
        service: Service[Any],
        served: Callable[[str], bool],
        metrics: Mapping[str, LoadMetric],
    ) -> None:
        self._service, self._served, self._metrics = service, served, metrics
        self._prepared: dict[str, Shard[Any]] = {}
        """Bundle → the shard that may come here."""
        self._failed: set[str] = set()
        """Hooks whose failure is logged."""

    @property
    def prepares(self) -> bool:
        """Whether the service has a `prepare`."""
        return hasattr(self._service, "prepare")

    async def prepare(self, bundle: str) -> None:
        """Have the service prepare for a bundle that is to come here. Raises what that raises."""
        self.forget(bundle)
        shard: Shard[Any] = Shard(bundle, 0, self._served)
        self._prepared[bundle] = shard
        shard.prepared = await self._service.prepare(shard)  # type: ignore[attr-defined]

    def take(self, bundle: str) -> Shard[Any] | None:
        """What is prepared for a bundle, which is opened now."""
        return self._prepared.pop(bundle, None)

    def forget(self, bundle: str) -> None:
        """It does not come, or has come."""
        shard = self._prepared.pop(bundle, None)
        if shard is not None:
            shard.ended.set()

    def forget_all(self) -> None:
        """Nothing comes."""
        for bundle in list(self._prepared):
            self.forget(bundle)

    def costs(self, shards: Mapping[str, Shard[Any]]) -> dict[str, float]:
        """Bundle → what it costs to move it now, as the service says; nothing if that fails."""
        return self._answers("cost", getattr(self._service, "cost", None), shards, float)

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
        ask: Callable[[Shard[Any]], Any] | None,
        shards: Mapping[str, Shard[Any]],
        read: Callable[[Any], T],
    ) -> dict[str, T]:
        answers: dict[str, T] = {}
        if ask is None:
            return answers
        for bundle, shard in shards.items():
            try:
                answers[bundle] = read(ask(shard))
            except Exception:  # foreign code
                if hook not in self._failed:
                    log.exception("a hook of the service failed", hook=hook, bundle=bundle)
                self._failed.add(hook)
        return answers


def _numbers(said: Mapping[str, float]) -> dict[str, float]:
    return {str(name): _number(value) for name, value in said.items()}


def _number(said: float) -> float:
    number = float(said)
    if not 0 <= number < float("inf"):
        raise ValueError(f"a load is a number of 0 or more, not {number}")
    return number
