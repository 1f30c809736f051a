"""The bundles that members could not open a moment ago, so that others get them.

A member that fails to open a bundle says so in the store, in a node that ends with its session.
Whoever places bundles then passes it over, for that bundle: at first for `FIRST_S`, twice as long
with each failure. It gets no other one either, for as long as its failures in a row make it:
otherwise it would have the least load, and be chosen again and again. A bundle that nobody can
open is no failure of all who try.
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
BUNDLES_MAX = 1_000
"""A member says no more of them."""

log = get_logger("ownership")


@dataclass(slots=True)
class _Failure:
    times: int = 0
    until_ms: int = 0

    def again(self, now_ms: int) -> None:
        """It has failed once more."""
        wait_s = min(FIRST_S * 2.0 ** min(self.times, 10), LAST_S)
        self.times += 1
        self.until_ms = now_ms + round(wait_s * 1000)


class Refusals:
    """What this member refuses, and what the others say. A watch on `paths.REFUSALS` must call
    `on_change`.
    """

    def __init__(self, store: Store, clock: Clock, broker_id: str) -> None:
        self._store, self._clock, self._broker_id = store, clock, broker_id
        self._own: dict[str, _Failure] = {}
        self._in_a_row = _Failure()
        """Those of this member, whatever the bundle."""
        self._by_broker: dict[str, dict[str, int]] = {}
        """brokerId → bundle → until when it is refused (ms)."""

    async def failed(self, bundle: str, *, served_before: bool) -> None:
        """This member could not open a bundle. `served_before`: another one served it until then,
        so the bundle is not to blame.
        """
        now_ms = self._clock.now_ms()
        self._own.setdefault(bundle, _Failure()).again(now_ms)
        if served_before or not self._others_failed(bundle):
            self._in_a_row.again(now_ms)
        if len(self._own) > BUNDLES_MAX:
            del self._own[next(iter(self._own))]
        await self._say()

    async def succeeded(self, bundle: str) -> None:
        """This member has opened a bundle."""
        failed_before, self._in_a_row = self._in_a_row.times > 0, _Failure()
        if self._own.pop(bundle, None) is not None or failed_before:
            await self._say()

    def _others_failed(self, bundle: str) -> bool:
        return any(
            bundle in said for broker, said in self._by_broker.items() if broker != self._broker_id
        )

    async def _say(self) -> None:
        now_ms = self._clock.now_ms()
        since_ms = now_ms - round(LAST_S * 1000)  # that it failed counts for longer: see `failed`
        refused = {name: own.until_ms for name, own in self._own.items() if own.until_ms > since_ms}
        if self._in_a_row.until_ms > now_ms:
            refused[EVERY_BUNDLE] = self._in_a_row.until_ms
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
