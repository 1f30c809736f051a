"""Runs a `Service` as the host of a member's bundles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.tasks import sleep
from loadmanager.leader.plugins import load_metrics
from loadmanager.member.ports.hosting import HostUsage, TopicTraffic
from loadmanager.sharding.copies import Copies
from loadmanager.sharding.extra_hooks import ExtraHooks
from loadmanager.sharding.loads import ShardLoads
from loadmanager.sharding.shards import Service, Shard

LEAVE_S = 5.0
"""How long a closing waits for `with` blocks to end."""
POLL_S = 0.01


class ShardHost:
    """Implements `member.ports.hosting.Hosting`. `proven`: whether the session is proven now."""

    def __init__(
        self,
        service: Service[Any],
        clock: Clock,
        *,
        copies: Copies,
        proven: Callable[[], bool],
        budgets: Mapping[str, float],
    ) -> None:
        self._service, self._clock = service, clock
        self.copies, self._proven = copies, proven
        self.shards: dict[str, Shard[Any]] = {}
        """Bundle → its open shard."""
        self.extra = ExtraHooks(service, load_metrics(budgets))
        self._opening: set[Shard[Any]] = set()
        """Those for which the service's `open` is under way."""
        self._closing: dict[tuple[str, int], Shard[Any]] = {}
        """Those that are fenced, and not closed yet."""
        self._saving: set[asyncio.Task[Any]] = set()
        """Tasks in which the service's `close` is under way."""
        self.loads = ShardLoads(self.shards, clock, self.extra, budgets)

    async def open_bundle(self, bundle: str, life: int) -> None:
        """See the port."""
        older = self.shards.get(bundle)
        if older is not None and older.token >= life:
            return
        shard, copy = self.copies.shard(bundle, life), self.copies.take(bundle)
        opening = {shard}
        if copy is not None:
            copy.shard.token = life
            opening.add(copy.shard)
        self._opening |= opening
        try:
            if copy is not None and await copy.stop_following():
                shard = copy.shard
            if not shard.ended.is_set():
                shard.state = await self._service.open(shard)
        except BaseException:
            for each in opening:
                each.ended.set()  # for tasks that `open` or `prepare` has started
            raise
        finally:
            self._opening -= opening
        if shard.ended.is_set():
            return  # lost or given up meanwhile: a later life may be open
        if older is not None:
            older.ended.set()
        self.shards[bundle] = shard

    def fence_bundle(self, bundle: str, life: int) -> None:
        """See the port."""
        for opening in self._opening:
            if (opening.bundle, opening.token) == (bundle, life):
                opening.ended.set()
        shard = self.shards.get(bundle)
        if shard is not None and shard.token == life:
            shard.ended.set()
            self._closing[bundle, life] = self.shards.pop(bundle)

    async def settle_bundle(self, bundle: str, life: int) -> None:
        """Wait for those who are inside, then let the service save what the next owner needs.

        Raises `OperationalError` if the session is lost before it has.
        """
        shard = self._closing.get((bundle, life))
        if shard is None:
            return
        until_s = self._clock.monotonic_s() + LEAVE_S
        while shard.users and self._clock.monotonic_s() < until_s:
            await sleep(POLL_S)
        if self._closing.pop((bundle, life), None) is not shard or not self._proven():
            raise OperationalError("the session was lost before `close`, which is not called")
        saving = asyncio.current_task()
        assert saving is not None
        self._saving.add(saving)
        try:
            await self._service.close(shard, shard.state)
        except asyncio.CancelledError:
            if saving in self._saving:
                raise
            raise OperationalError("the session was lost during `close`") from None
        finally:
            self._saving.discard(saving)

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Nobody has to be told: whoever asks next is sent on."""
        self.fence_bundle(bundle, life)
        self._closing.pop((bundle, life), None)
        return 0

    def close_topic(self, topic: str, *, force: bool) -> bool:
        """A key cannot be closed by itself."""
        return False

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """Shards are closed and opened instead, because of `Ownership.replacing`."""
        raise NotImplementedError

    def merge_bundles(self, parts: dict[str, int], merged: str, merged_life: int) -> None:
        """Likewise."""
        raise NotImplementedError

    def fence_all(self) -> None:
        """The session cannot be proven: serve nothing, and save nothing."""
        for shard in (*self.shards.values(), *self._opening):
            shard.ended.set()
        self.copies.forget_moves()
        saving, self._saving = self._saving, set()
        for task in saving:
            task.cancel()
        self.shards.clear()
        self._closing.clear()

    def bundle_stats(self) -> dict[str, NamespaceBundleStats]:
        """See `ShardLoads.stats`."""
        return self.loads.stats()

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """The load of each key."""
        shard = self.shards.get(bundle)
        rates = {} if shard is None else shard.rates
        return {key: TopicTraffic(msg_rate_in=rate) for key, rate in rates.items()}

    def clients(self, bundle: str) -> int:
        """How many are inside a shard now."""
        shard = self.shards.get(bundle)
        return 0 if shard is None else shard.users

    def usage(self) -> HostUsage:
        """See `ShardLoads.usage`."""
        return self.loads.usage()
