"""A fleet whose broker 0 leads: the leader's load manager over real parts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import msgspec
from runtime.fleet import Fleet, LoopClock, a_fleet

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.conf import Live
from loadmanager.core.load.cluster_view import ClusterView
from loadmanager.core.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.core.moves.move import Move
from loadmanager.core.moves.settings import MoveSettings
from loadmanager.core.strategies.plan import Plan
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.splitting.merging import MergeSettings
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.ports.clock import Clock
from loadmanager.ports.election import Leader
from loadmanager.runtime.leader.draining import Draining
from loadmanager.runtime.leader.load_feed import LoadFeed
from loadmanager.runtime.leader.load_manager import LoadManager
from loadmanager.runtime.leader.merging import Merging
from loadmanager.runtime.leader.moves import Moves
from loadmanager.runtime.leader.operations import Operations
from loadmanager.runtime.leader.overview import Overview
from loadmanager.runtime.leader.owners_seen import OwnersSeen
from loadmanager.runtime.leader.plans import Plans
from loadmanager.runtime.leader.preferred import Preferred
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.documents import Corrupt
from loadmanager.runtime.shared.events import Events
from loadmanager.runtime.shared.owners import stored_owner
from loadmanager.runtime.shared.placement_policies import PlacementPolicies
from loadmanager.runtime.shared.watching import Watcher
from loadmanager.runtime.shared.wishes import OperatorWishes
from loadmanager.runtime.tasks import Scope, Steps


class Led:
    """A fleet whose broker 0 leads."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        first = fleet.brokers[0]
        self.fleet, self.store = fleet, first.store
        self.policies = PlacementPolicies(first.store, "standalone")
        self.strategies = Live(StrategySettings(failure_domains=True, distribute_evenly=False))
        self.splits = Live(SplitSettings(topics_max=10))
        self.observed: list[Plan] = []

        async def bundle_count(namespace: NamespaceName) -> int:
            return len((await first.namespaces.bundles(namespace)).ranges)

        self.steps = Steps()
        self.view = ClusterView()
        self.wishes = OperatorWishes(first.store, clock, Corrupt())
        self.ended: list[Move] = []
        self.move_settings = Live(MoveSettings())
        self.moves = Moves(
            epoch=1,
            settings=self.move_settings,
            brokers=first.brokers,
            wishes=self.wishes,
            view=self.view,
            preferred=Preferred(clock),
            release=fleet.release_bundle,
            owner=partial(stored_owner, first.store),
            mover=fleet,
            clock=clock,
            scope=fleet.scope,
            steps=self.steps,
            observe=self._on_move,
        )
        self.load_manager = LoadManager(
            epoch=1,
            view=self.view,
            policies=self.policies,
            moves=self.moves,
            clock=clock,
            rng=random.Random(1),
            strategies=self.strategies,
            splits=self.splits,
            bundle_count=bundle_count,
            steps=self.steps,
            observe=lambda _cycle, plan: self.observed.append(plan),
        )
        self.feed = LoadFeed(
            self.view,
            observe=self.load_manager.observe,
            brokers=first.brokers,
            clock=clock,
            corrupt=Corrupt(),
            steps=self.steps,
        )
        first.leading.leader, first.leading.load_manager = (
            Leader("b0:8080", "http://b0:8080", 1),
            self.load_manager,
        )

        self.draining = Draining(
            moves=self.moves,
            load_manager=self.load_manager,
            brokers=first.brokers,
            mover=fleet,
            clock=clock,
        )
        self.moves.ended = self.draining.moved
        self.merge_settings = Live(MergeSettings(enabled=True))
        self.merging = Merging(
            moves=self.moves,
            peers=fleet,
            load_manager=self.load_manager,
            settings=self.merge_settings,
            splits=self.splits,
            bundle_count=bundle_count,
        )
        self.events = Events()
        self.owners = OwnersSeen(
            brokers=first.brokers,
            clock=clock,
            events=self.events,
            view=self.view,
            stats_interval_s=lambda: 60.0,
        )
        self.overview = Overview(
            leader=Leader("b0:8080", "http://b0:8080", 1),
            since_ms=clock.now_ms(),
            view=self.view,
            moves=self.moves,
            draining=self.draining,
            owners=self.owners,
            strategies=self.strategies,
            balancing=lambda: True,
            load_manager=self.load_manager,
        )
        self.plans = Plans(
            epoch=1,
            load_manager=self.load_manager,
            moves=self.moves,
            settings_with=self._settings_with,
            boundaries=first.namespaces.bundles,
        )
        self.operations = Operations(
            checks=(),
            moves=self.moves,
            draining=self.draining,
            merging=self.merging,
            overview=self.overview,
            plans=self.plans,
        )

    def _settings_with(self, changed: Mapping[str, str]) -> StrategySettings:
        shedder = changed.get("loadBalancerLoadSheddingStrategy", self.strategies.value.shedder)
        return replace(self.strategies.value, shedder=shedder)

    def _on_move(self, move: Move) -> None:
        self.ended.append(move)
        self.load_manager.moved(move)

    async def shed(self) -> None:
        """A cycle, and all its moves."""
        await self.load_manager.shed()
        await self.moves.idle()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a watch has brought a change."""
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.005)

    async def report(
        self,
        index: int,
        stats: dict[str, NamespaceBundleStats],
        *,
        cpu: float = 0,
        at_ms: int = 0,
    ) -> bytes:
        """A broker reports; returns the report's JSON."""
        address = self.fleet.brokers[index].address
        data = LocalBrokerData(
            web_service_url=address.web_url,
            pulsar_service_url=address.service_url,
            bundles=list(stats),
            last_stats=stats,
            cpu=ResourceUsage(usage=cpu, limit=100),
            last_update=at_ms,
            msg_rate_in=sum(traffic.msg_rate_in for traffic in stats.values()),
            msg_throughput_in=sum(traffic.msg_throughput_in for traffic in stats.values()),
        )
        value = msgspec.json.encode(data)
        store, reports = self.fleet.brokers[index].store, self.fleet.brokers[0].brokers.reports
        if not await store.create(paths.broker(address.broker_id), value, ephemeral=True):
            await store.put(paths.broker(address.broker_id), value)
        await self.until(
            lambda: (
                address.broker_id in reports
                and reports[address.broker_id].last_stats == stats
                and reports[address.broker_id].last_update == at_ms
            )
        )
        return value


@asynccontextmanager
async def led_fleet(
    brokers: int,
    *,
    bundles: int = 4,
    clock: Clock | None = None,
    strategies: StrategySettings | None = None,
) -> AsyncIterator[Led]:
    """A running fleet with a leader."""
    async with a_fleet(brokers, bundles) as fleet, Scope("policies") as scope:
        led = Led(fleet, clock or LoopClock())
        if strategies is not None:
            led.strategies.set(strategies)
        for root, reader in (
            (paths.ADMIN, led.policies.on_change),
            (paths.WISHES, led.wishes.on_change),
        ):
            watcher = Watcher(led.store, root, reader)
            scope.spawn(watcher.run(), "watch")
            await watcher.synced.wait()
        scope.spawn(led.moves.run(), "moves")
        with led.feed, led.owners:
            yield led
        scope.cancel()
