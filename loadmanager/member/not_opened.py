"""The bundles that members could not open a moment ago, so that others get them.

A member that fails to open a bundle says so in the store, in a node that ends with its session.
Whoever places bundles then passes it over, for that bundle: at first for `FIRST_S`, twice as long
with each failure. One that fails with `MANY` bundles gets none at all for a while. Otherwise it
would have the least load, and be chosen again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from loadmanager.engine.load.wishes import EVERY_BUNDLE
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind, Store

FIRST_S, LAST_S = 10.0, 300.0
MANY = 3
BUNDLES_MAX = 1_000
"""A member says no more of them; with so many it refuses all."""

log = get_logger("ownership")


@dataclass(slots=True)
class _Failure:
    times: int
    until_ms: int


class Refusals:
    """What this member refuses, and what the others say. A watch on `paths.REFUSALS` must call
    `on_change`.
    """

    def __init__(self, store: Store, clock: Clock, broker_id: str) -> None:
        self._store, self._clock, self._broker_id = store, clock, broker_id
        self._own: dict[str, _Failure] = {}
        self._by_broker: dict[str, dict[str, int]] = {}
        """brokerId → bundle → until when it is refused (ms)."""

    async def failed(self, bundle: str) -> None:
        """This member could not open a bundle."""
        failure = self._own.setdefault(bundle, _Failure(0, 0))
        failure.times += 1
        wait_s = min(FIRST_S * 2.0 ** min(failure.times - 1, 10), LAST_S)
        failure.until_ms = self._clock.now_ms() + round(wait_s * 1000)
        if len(self._own) > BUNDLES_MAX:
            del self._own[next(iter(self._own))]
        await self._say()

    async def succeeded(self, bundle: str) -> None:
        """This member has opened a bundle."""
        if self._own.pop(bundle, None) is not None:
            await self._say()

    async def _say(self) -> None:
        now_ms = self._clock.now_ms()
        refused = {name: own.until_ms for name, own in self._own.items() if own.until_ms > now_ms}
        if len(refused) >= MANY:
            refused[EVERY_BUNDLE] = max(refused.values())
        self._by_broker[self._broker_id] = refused
        path, value = paths.refusals(self._broker_id), msgspec.json.encode(refused)
        try:
            if not await self._store.create(path, value, ephemeral=True):
                await self._store.put(path, value)
        except LoadManagerError as error:
            log.warning("others do not know which bundles this member refuses", error=str(error))

    async def on_change(self, change: Change) -> None:
        """Read what a member says. What is damaged counts as nothing said."""
        if change.kind is ChangeKind.RESYNC:
            names = await self._store.children(paths.REFUSALS)
            for broker_id in self._by_broker.keys() - set(map(paths.decode, names)):
                del self._by_broker[broker_id]
            for name in names:
                await self._read(paths.decode(name))
        elif change.path.startswith(f"{paths.REFUSALS}/"):
            await self._read(paths.decode(change.path.rpartition("/")[2]))

    async def _read(self, broker_id: str) -> None:
        node = await self._store.get(paths.refusals(broker_id))
        try:
            said = {} if node is None else msgspec.json.decode(node.value, type=dict[str, int])
        except msgspec.MsgspecError:
            said = {}
        self._by_broker[broker_id] = said
        if not said:
            del self._by_broker[broker_id]

    def now(self) -> dict[str, frozenset[str]]:
        """brokerId → the bundles that it refuses now."""
        if not self._by_broker:
            return {}
        now_ms = self._clock.now_ms()
        return {
            broker_id: refused
            for broker_id, said in self._by_broker.items()
            if (refused := frozenset(name for name, until in said.items() if until > now_ms))
        }
