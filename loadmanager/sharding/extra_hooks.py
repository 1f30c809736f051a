"""The hooks that a service may have, and need not: `prepare` and `cost`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loadmanager.kit.logger import get_logger
from loadmanager.sharding.shards import Service, Shard

log = get_logger("member")


class ExtraHooks:
    """Calls them. `served`: whether a bundle is served here now."""

    def __init__(self, service: Service[Any], served: Callable[[str], bool]) -> None:
        self._service, self._served = service, served
        self._prepared: dict[str, Shard[Any]] = {}
        """Bundle → the shard that may come here."""
        self._cost_failed = False

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
        cost: Callable[[Shard[Any]], float] | None = getattr(self._service, "cost", None)
        costs: dict[str, float] = {}
        if cost is None:
            return costs
        for bundle, shard in shards.items():
            try:
                costs[bundle] = float(cost(shard))
            except Exception:  # foreign code
                if not self._cost_failed:
                    log.exception("a hook of the service failed", hook="cost", bundle=bundle)
                self._cost_failed = True
        return costs
