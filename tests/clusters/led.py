"""A fleet whose broker 0 leads: the leader's load manager over real parts, in either manager."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import msgspec
from clusters.members import Fleet, a_fleet

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.engine.load.snapshot import NOTHING_KNOWN
from loadmanager.engine.moves.move import Move
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.from_reports import load_data, top_bundles
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.leader.base import BundleOrders, LedCluster, TermBase
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.draining import Draining
from loadmanager.leader.events import EventHub
from loadmanager.leader.goals import TermGoals
from loadmanager.leader.load_feed import LoadFeed
from loadmanager.leader.load_manager import LeaderHold, LeaderRecords, LoadManager
from loadmanager.leader.merging import Merging
from loadmanager.leader.moves import Moves
from loadmanager.leader.operations import Operations
from loadmanager.leader.overview import TermOverview
from loadmanager.leader.owner_tracker import OwnerTracker
from loadmanager.leader.plans import TermPlans
from loadmanager.leader.ports.mover import Released
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.member.leading.term import Feed
from loadmanager.member.load_data import LoadStore
from loadmanager.member.ownership.owners import stored_owner
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.published_feed import PublishedFeed
from loadmanager.testing.cluster import LoopTime


class Led:
    """A fleet whose broker 0 leads."""

    def __init__(self, fleet: Fleet, clock: Clock, *, extensible: bool = False) -> None:
        first = fleet.brokers[0]
        self.fleet, self.store = fleet, first.store
        self.policies = PlacementPolicies(first.store, "standalone")
        self.strategies = Live(StrategySettings(failure_domains=True, distribute_evenly=False))
        self.splits = Live(SplitSettings(topics_max=10))
        self.observed: list[Plan] = []

        async def bundle_count(namespace: NamespaceName) -> int:
            return len((await first.namespaces.bundles(namespace)).ranges)

        self.steps = Steps()
        self.view = ClusterView(knows_owners=extensible)
        self.loads = LoadStore(first.store, self.view, clock, Corrupt()) if extensible else None
        self.wishes = OperatorWishes(first.store, clock, Corrupt())
        self.ended: list[Move] = []
        self.of_other_manager: set[str] = set()
        """Brokers that run the other load manager."""
        self.move_settings = Live(MoveSettings())
        self.moves = Moves(
            term=TermBase(
                epoch=1, clock=clock, rng=random.Random(1), scope=fleet.scope, steps=self.steps
            ),
            cluster=LedCluster(
                view=self.view,
                brokers=first.brokers,
                policies=self.policies,
                wishes=self.wishes,
                bundle_count=bundle_count,
            ),
            orders=BundleOrders(
                mover=fleet,
                release=self._order_release if extensible else fleet.release_bundle,
                owner=(
                    first.records.stored_owner if extensible else partial(stored_owner, first.store)
                ),
            ),
            settings=self.move_settings,
        )
        self.load_manager = LoadManager(
            moves=self.moves,
            strategies=self.strategies,
            splits=self.splits,
            records=LeaderRecords(
                decisions=Decisions(clock),
                planned=lambda _cycle, plan: self.observed.append(plan),
            ),
        )
        self.moves.on_record.append(lambda move, _life: self.ended.append(move))
        self.hold: LeaderHold | None = None
        self.feed: Feed
        if self.loads is not None:
            first.cache.listeners.append(self.loads.on_record)
            self.feed = PublishedFeed(self.view, self.load_manager.observe, self.loads, self.steps)
        else:
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
            leads=lambda broker: broker not in self.of_other_manager,
        )
        self.merge_settings = Live(MergeSettings(enabled=True))
        self.merging = Merging(
            moves=self.moves,
            peers=fleet,
            load_manager=self.load_manager,
            settings=self.merge_settings,
        )
        self.events = EventHub()
        self.owners = OwnerTracker(
            brokers=first.brokers,
            clock=clock,
            events=self.events,
            view=self.view,
            stats_interval_s=lambda: 60.0,
        )
        self.overview = TermOverview(
            leader=Leader("b0:8080", "http://b0:8080", 1),
            since_ms=clock.now_ms(),
            moves=self.moves,
            draining=self.draining,
            owners=self.owners,
            balancing=lambda: True,
            load_manager=self.load_manager,
        )
        self.plans = TermPlans(
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
            goals=TermGoals(checks=(), load_manager=self.load_manager, moves=self.moves),
        )

    def _settings_with(self, changed: Mapping[str, str]) -> StrategySettings:
        shedder = changed.get("loadBalancerLoadSheddingStrategy", self.strategies.value.shedder)
        return replace(self.strategies.value, shedder=shedder)

    async def _order_release(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        to = None if destination is None else destination.broker_id
        done = await self.fleet.brokers[0].records.order_release(bundle, to)
        return Released() if done else None

    async def shed(self) -> None:
        """A cycle, and all its moves."""
        await self.feed.refresh()
        await self.load_manager.shed(self.hold)
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
        data = self._data(index, stats, cpu, at_ms)
        value = msgspec.json.encode(data)
        store, reports = self.fleet.brokers[index].store, self.fleet.brokers[0].brokers.reports
        if not await store.create(paths.broker(address.broker_id), value, ephemeral=True):
            await store.put(paths.broker(address.broker_id), value)
        await self.until(
            lambda: (
                address.broker_id in reports
                and reports[address.broker_id].last_stats == stats
                and reports[address.broker_id].cpu == data.cpu
                and reports[address.broker_id].last_update == at_ms
            )
        )
        return value

    async def publish(
        self, index: int, stats: dict[str, NamespaceBundleStats], *, cpu: float, at_ms: int
    ) -> tuple[bytes, bytes]:
        """A broker publishes its load data and its busiest bundles; returns the JSON of both."""
        store, settings = self.fleet.brokers[index].store, self.strategies.value
        broker_id = self.fleet.brokers[index].address.broker_id
        data = load_data(self._data(index, stats, cpu, at_ms), settings, None, at_ms)
        top = top_bundles(NOTHING_KNOWN, stats, settings, settings.bundles_in_report_max)
        published = msgspec.json.encode(data), msgspec.json.encode(top)
        for root, value in zip((paths.LOAD_DATA, paths.TOP_BUNDLES), published, strict=True):
            if not await store.create(f"{root}/{broker_id}", value, ephemeral=True):
                await store.put(f"{root}/{broker_id}", value)
        known = self.view.load_data
        await self.until(lambda: broker_id in known and known[broker_id].updated_at == at_ms)
        return published

    def _data(
        self, index: int, stats: dict[str, NamespaceBundleStats], cpu: float, at_ms: int
    ) -> LocalBrokerData:
        address = self.fleet.brokers[index].address
        return LocalBrokerData(
            web_service_url=address.web_url,
            pulsar_service_url=address.service_url,
            bundles=list(stats),
            last_stats=stats,
            cpu=ResourceUsage(usage=cpu, limit=100),
            last_update=at_ms,
            msg_rate_in=sum(traffic.msg_rate_in for traffic in stats.values()),
            msg_throughput_in=sum(traffic.msg_throughput_in for traffic in stats.values()),
        )


@asynccontextmanager
async def led_fleet(
    brokers: int,
    *,
    bundles: int = 4,
    clock: Clock | None = None,
    strategies: StrategySettings | None = None,
    extensible: bool = False,
    tree: MemoryTree | None = None,
) -> AsyncIterator[Led]:
    """A running fleet with a leader."""
    records = range(brokers if extensible else 0)
    async with a_fleet(brokers, bundles, records, tree) as fleet, Scope("policies") as scope:
        led = Led(fleet, clock or LoopTime(), extensible=extensible)
        if strategies is not None:
            led.strategies.set(strategies)
        readers = [
            (paths.ADMIN, led.policies.on_change),
            (paths.WISHES, led.wishes.on_change),
        ]
        if led.loads is not None:
            readers.append((paths.LOAD_DATA, led.loads.on_change))
        for root, reader in readers:
            watcher = Watcher(led.store, root, reader)
            scope.spawn(watcher.run(), "watch")
            await watcher.synced.wait()
        scope.spawn(led.moves.run(), "moves")
        with led.feed, led.owners:
            yield led
        scope.cancel()
