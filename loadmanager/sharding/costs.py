"""What it costs to move each shard now, as the service of its owner says."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from loadmanager.engine.load.wishes import Pin
from loadmanager.kit.clock import Clock
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind, Store

EVERY_S = 5.0
STAYS_S = 60.0
NOT_NOW = math.inf
_NOT_NOW = -1.0
"""In the store: JSON has no infinity."""


class MoveCosts:
    """`on_change` must be called by a watch on `paths.SERVICE`, `tell` each `EVERY_S`."""

    def __init__(
        self, store: Store, clock: Clock, me: str, own: Callable[[], dict[str, float]]
    ) -> None:
        """`own`: bundle → cost, of those that this member owns."""
        self._store, self._clock, self._me, self._own = store, clock, me, own
        self._path = f"{paths.SERVICE_COSTS}/{paths.encode(me)}"
        self._last: dict[str, float] = {}
        self._of: dict[str, dict[str, float]] = {}
        """Member → bundle → cost."""

    async def tell(self) -> None:
        """Write what moves of this member's shards cost, if that has changed."""
        costs = {
            bundle: _NOT_NOW if cost == NOT_NOW else cost
            for bundle, cost in self._own().items()
            if cost
        }
        if costs == self._last and self._me in self._of:
            return
        value = msgspec.json.encode(costs)
        if costs and not await self._store.create(self._path, value, ephemeral=True):
            await self._store.put(self._path, value)
        elif not costs:
            await self._store.delete(self._path)
        self._last, self._of[self._me] = costs, costs

    async def on_change(self, change: Change) -> None:
        """Read what a member says. What is damaged counts as nothing said."""
        if change.kind is ChangeKind.RESYNC:
            self._of.clear()
            for name in await self._store.children(paths.SERVICE_COSTS):
                await self._read(paths.decode(name))
        elif change.path.startswith(f"{paths.SERVICE_COSTS}/"):
            await self._read(paths.decode(paths.last(change.path)))

    async def _read(self, member: str) -> None:
        node = await self._store.get(f"{paths.SERVICE_COSTS}/{paths.encode(member)}")
        self._of.pop(member, None)
        if node is not None:
            try:
                self._of[member] = msgspec.json.decode(node.value, type=dict[str, float])
            except msgspec.MsgspecError:
                return

    def of(self, member: str, bundle: str) -> float:
        """What it costs to move a bundle away from its owner now; `NOT_NOW`: it is not to be."""
        cost = self._of.get(member, {}).get(bundle, 0.0)
        return NOT_NOW if cost == _NOT_NOW else cost

    def stays(self) -> dict[str, Pin]:
        """The bundles that are not to be moved now, as pins."""
        until_ms = self._clock.now_ms() + round(STAYS_S * 1000)
        return {
            bundle: Pin(member, until_ms, "the service says: not now")
            for member, costs in self._of.items()
            for bundle, cost in costs.items()
            if cost == _NOT_NOW
        }
