"""Brokers without sockets: the runtime's own parts over one tree in memory, with hosts that only
record the calls to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from loadmanager.broker.topics.topics import Topics
from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.ownership.states import Transition
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Node
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.ports.mover import Released
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.member.base import Base, Cluster
from loadmanager.member.hooks import HookLimits, Hooks
from loadmanager.member.lookup import Lookups
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.not_opened import Refusals
from loadmanager.member.ownership.locks import Locks
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ownership.state_cache import StateCache
from loadmanager.member.ownership.state_records import StateRecords
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.ports.hosting import HostUsage, TopicTraffic
from loadmanager.member.record_orders import RecordOrders
from loadmanager.member.settings import BrokerSettings, StateSettings
from loadmanager.testing.cluster import LoopTime

Leaf = TypeVar("Leaf")
NS = NamespaceName("public", "default")


class Tenant:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self._lives: dict[str, int] = {}
        self.told: list[tuple[str, str, str | None]] = []
        self.calls: list[tuple[tuple[str, str], int]] = []
        """The calls, each with its bundle and life."""
        self.stats: dict[str, NamespaceBundleStats] = {}
        self.opening: asyncio.Event | None = None
        """Opening a bundle waits for this."""
        self.refuses: Exception | None = None
        """Opening a bundle raises this."""

    @property
    def open(self) -> set[str]:
        """The bundles that it serves."""
        return set(self._lives)

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Serve."""
        if self.opening is not None:
            await self.opening.wait()
        if self.refuses is not None:
            raise self.refuses
        self._lives[bundle] = max(life, self._lives.get(bundle, life))
        self.told.append(("open", bundle, None))

    def fence_bundle(self, bundle: str, life: int) -> None:
        """Serve no more."""
        if self._lives.get(bundle) == life:
            del self._lives[bundle]
        self.told.append(("fence", bundle, None))

    async def settle_bundle(self, bundle: str, life: int) -> None:
        return None

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Tell clients."""
        if self._lives.get(bundle) == life:
            del self._lives[bundle]
        self.calls.append((("close", bundle), life))
        self.told.append(("close", bundle, destination.broker_id if destination else None))
        return 0

    def close_topic(self, topic: str, *, force: bool) -> bool:
        """Tell clients."""
        self.told.append(("close topic", topic, None))
        return False

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """Go on as children."""
        if self._lives.get(parent) == life:
            del self._lives[parent]
            self._lives.update(dict.fromkeys(children, children_life))

    def merge_bundles(self, parts: dict[str, int], merged: str, merged_life: int) -> None:
        """Go on as one."""
        if all(self._lives.get(part) == life for part, life in parts.items()):
            for part in parts:
                del self._lives[part]
            self._lives[merged] = merged_life

    def clients(self, bundle: str) -> int:
        """The number of clients in the traffic."""
        stats = self.stats.get(bundle)
        return int(stats.producer_count + stats.consumer_count) if stats else 0

    def fence_all(self) -> None:
        """Stop."""
        self._lives.clear()
        self.told.append(("fence all", "", None))

    def bundle_stats(self) -> dict[str, NamespaceBundleStats]:
        """Traffic."""
        return {bundle: self.stats.get(bundle, NamespaceBundleStats()) for bundle in self.open}

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """Always empty."""
        return {}

    def usage(self) -> HostUsage:
        """Nothing."""
        return HostUsage(0, 1 << 20, 0, 0)


async def nothing_open() -> None:
    """Close a topic that is open nowhere."""


class Leaves:
    """Settings as a test sets them; every other leaf has its defaults."""

    def __init__(self, *leaves: object) -> None:
        self._leaves: dict[type, Live[Any]] = {type(leaf): Live(leaf) for leaf in leaves}
        self.rejected: dict[str, str] = {}

    def live(self, kind: type[Leaf]) -> Live[Leaf]:
        """See `member.base.SettingsInForce`."""
        return self._leaves.setdefault(kind, Live(kind()))

    def strategies_with(self, changes: Mapping[str, str]) -> StrategySettings:
        """Those in force: nobody asks for others."""
        assert not changes
        return self.live(StrategySettings).value


class Broker:
    """One broker's parts."""

    def __init__(self, fleet: Fleet, index: int, *, extensible: bool = False) -> None:
        self.store: MemoryStore = fleet.tree.session()
        self.address = BrokerAddress(
            f"b{index}:8080", f"pulsar://b{index}:6650", f"http://b{index}:8080"
        )
        self.tenant = Tenant()
        self.steps: list[Transition] = []
        self.scope = fleet.scope
        settings, clock = Live(BrokerSettings(lookups_max=100)), LoopTime()
        self.leading = PresentLeader()
        self.brokers = Brokers(self.store, clock)
        self.namespaces = Namespaces(self.store, settings)
        self.topics = Topics(self.store, self.namespaces, settings)
        self.cluster = Cluster(
            brokers=self.brokers,
            namespaces=self.namespaces,
            policies=PlacementPolicies(self.store, "standalone"),
            wishes=OperatorWishes(self.store, clock, Corrupt()),
            leading=self.leading,
        )
        self.base = Base(
            me=self.address,
            store=self.store,
            clock=clock,
            peers=fleet,
            scope=fleet.scope,
            steps=Steps(),
            corrupt=Corrupt(),
            settings=Leaves(settings.value, StateSettings(in_flight_ms=2_000)),
        )
        locks = Locks(self.base, self.cluster)
        self.cache = StateCache(self.store, clock, Corrupt())
        self.extensible = extensible
        self.records = StateRecords(self.base, self.cluster, self.cache, locks)
        self.ownership = Ownership(
            self.base,
            namespaces=self.namespaces,
            hosting=Hooks(self.tenant, HookLimits()),
            refusals=Refusals(self.store, clock, self.address.broker_id),
            claims=self.records if extensible else locks,
            observe=self.steps.append,
        )
        self.lookups = Lookups(base=self.base, cluster=self.cluster, ownership=self.ownership)

    def with_settings(self, *leaves: object) -> Base:
        """What its parts stand on, with these settings."""
        return replace(self.base, settings=Leaves(*leaves))

    async def start(self, scope: Scope) -> None:
        """Connect, watch, register."""
        await self.store.__aenter__()
        watchers = [
            Watcher(
                self.store,
                paths.ADMIN,
                self.namespaces.on_change,
                self.topics.on_change,
                self.ownership.on_boundaries,
            ),
            Watcher(self.store, paths.BROKERS, self.brokers.on_change),
        ]
        if self.extensible:
            watchers += await self._follow_records(scope)
        else:
            watchers.append(Watcher(self.store, paths.LOCKS, self.ownership.on_change))
        for watcher in watchers:
            scope.spawn(watcher.run(), "watch")
        for watcher in watchers:
            await watcher.synced.wait()
        value = b'{"webServiceUrl":"%b","pulsarServiceUrl":"%b"}' % (
            self.address.web_url.encode(),
            self.address.service_url.encode(),
        )
        await self.store.create(paths.broker(self.address.broker_id), value, ephemeral=True)

    async def _follow_records(self, scope: Scope) -> list[Watcher]:
        base = replace(self.base, scope=scope)
        orders = RecordOrders(base, self.cluster, self.records, self.ownership)
        self.cache.listeners.append(orders.on_record)
        self.cache.on_resync.append(self.ownership.verify_all)
        await self.store.create(paths.UNIT_STATES, b"")
        scope.spawn(self.cache.run(), "state-records")
        return [
            Watcher(self.store, paths.UNIT_STATES, self.cache.on_change),
            Watcher(self.store, paths.LOCKS, self.records._locks.on_change),
        ]

    async def acquire(self, bundle: str) -> BrokerAddress:
        """Acquire a bundle; returns the owner's address."""
        return (await self.ownership.acquire(bundle, "test")).address

    async def release(self, bundle: str, destination: BrokerAddress | None = None) -> int | None:
        """Release a bundle."""
        return await self.ownership.release(
            bundle, reason="test", destination=destination, timeout_s=1
        )

    async def lock(self, bundle: str) -> Node | None:
        """The lock of a bundle."""
        return await self.store.get(paths.lock(bundle))


class Fleet:
    """Several brokers over one tree, whose `Peers` call each other directly."""

    def __init__(
        self,
        count: int,
        scope: Scope,
        extensible: Container[int] = (),
        tree: MemoryTree | None = None,
    ) -> None:
        self.scope = scope
        self.tree = tree or MemoryTree()
        self.brokers = [
            Broker(self, index, extensible=index in extensible) for index in range(count)
        ]
        self.unreachable: set[str] = set()

    def at(self, address: BrokerAddress) -> Broker:
        """The broker of an address."""
        if address.broker_id in self.unreachable:
            raise OperationalError(f"{address.broker_id} cannot be reached")
        return next(broker for broker in self.brokers if broker.address == address)

    async def release_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        """Peers."""
        at = self.at(owner)
        clients = at.tenant.clients(bundle)
        closed = await at.ownership.release(
            bundle, reason="peer", destination=destination, timeout_s=1
        )
        return None if closed is None else Released(clients, 5.0)

    async def served_bundles(
        self, broker: BrokerAddress, bundle: str | None = None
    ) -> Mapping[str, int]:
        """Peers."""
        at = self.at(broker)
        served = at.ownership.owned() if bundle is None else [bundle]
        return {name: at.tenant.clients(name) for name in served if at.ownership.served(name)}

    async def last_release(self, broker: BrokerAddress, bundle: str) -> Released | None:
        """Peers."""
        self.at(broker)
        return None

    async def split_bundle(
        self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None
    ) -> list[str]:
        """Peers."""
        span = BundleRange.parse(bundle.rpartition("/")[2])
        middle = (span.lower + span.upper) // 2
        return await self.at(owner).ownership.split(bundle, [middle], "peer")

    async def merge_bundles(
        self, owner: BrokerAddress, left: str, right: str, *, epoch: int | None
    ) -> str:
        """Peers."""
        return await self.at(owner).ownership.merge(left, right, "peer")

    async def tell_changes(self, leader: BrokerAddress, changes: Sequence[ChangeShown]) -> None:
        """Peers."""

    async def close_topic(self, owner: BrokerAddress, topic: str, *, force: bool) -> bool:
        """Peers."""
        return self.at(owner).tenant.close_topic(topic, force=force)

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        """Peers."""
        await self.at(broker).ownership.acquire(bundle, "transferred")

    def owners(self, bundle: str) -> list[str]:
        """The brokers that serve the bundle."""
        return [
            broker.address.broker_id for broker in self.brokers if broker.ownership.served(bundle)
        ]

    async def settle(self) -> None:
        """Wait until every broker has every load report."""
        while any(len(broker.brokers.reports) < len(self.brokers) for broker in self.brokers):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def a_fleet(
    count: int = 2,
    bundles: int = 4,
    extensible: Container[int] = (),
    tree: MemoryTree | None = None,
) -> AsyncIterator[Fleet]:
    """A running fleet with the namespace public/default; some brokers run the extensible manager,
    by their numbers.
    """
    async with Scope("fleet") as scope:
        fleet = Fleet(count, scope, extensible, tree)
        for broker in fleet.brokers:
            await broker.start(scope)
        first = fleet.brokers[0].namespaces
        await first.create_tenant(NS.tenant, {})
        await first.create_namespace(NS, {"bundles": {"numBundles": bundles}})
        await fleet.settle()
        try:
            yield fleet
        finally:
            scope.cancel()
            for broker in fleet.brokers:
                await broker.store.__aexit__()
