"""Members in this process, as the product composes them, over one tree in memory: their hosts only
record the calls to them, and they reach each other directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from loadmanager.broker.topics.topics import Topics
from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.engine.history.records import OwnershipStep, Record
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.ownership.states import BundleState, LifeCause, Transition
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Node
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.sampler import Reading, SystemUsage
from loadmanager.kit.tasks import Scope
from loadmanager.leader.ports.mover import ClientsBack, Released
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.member.base import Base
from loadmanager.member.compose import ComposedMember
from loadmanager.member.extensible import ExtensibleManager
from loadmanager.member.ownership.state_cache import StateCache
from loadmanager.member.ownership.state_records import StateRecords
from loadmanager.member.ports.hosting import HostUsage, TopicTraffic
from loadmanager.member.settings import BrokerSettings, StateSettings
from loadmanager.member.world import World, base_of
from loadmanager.testing.cluster import LoopTime
from loadmanager.testing.virtual_time import VirtualLoop

Leaf = TypeVar("Leaf")
NS = NamespaceName("public", "default")
SHEDDER = "loadBalancerLoadSheddingStrategy"
BROKER = (BrokerSettings(lookups_max=100), StateSettings(in_flight_ms=2_000))
EXTENSIBLE = (StrategySettings(load_manager_class="ExtensibleLoadManagerImpl"),)


class FixedSampler:
    """Reports the CPU usage that it is told."""

    scope = "fixed"

    def __init__(self, cpu_percent: float) -> None:
        self.cpu_percent = cpu_percent
        self.samples = 0
        self.disks: dict[str, Reading] = {}

    def sample(self) -> SystemUsage:
        self.samples += 1
        return SystemUsage(
            Reading(self.cpu_percent, 100),
            Reading(0, 100),
            Reading(0, 100),
            Reading(0, 100),
            disks=dict(self.disks),
        )


class Tenant:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self._lives: dict[str, int] = {}
        self.told: list[tuple[str, str, str | None]] = []
        self.calls: list[tuple[tuple[str, str], int]] = []
        """The calls, each with its bundle and life."""
        self.stats: dict[str, NamespaceBundleStats] = {}
        self.returned_ms: tuple[float, ...] = ()
        self.served_ms: float | None = None
        """When clients came back to a bundle."""
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
        """Those in force, with another shedder: nobody asks for other changes."""
        settings = self.live(StrategySettings).value
        assert changes.keys() <= {SHEDDER}
        return replace(settings, shedder=changes.get(SHEDDER, settings.shedder))


class Transitions:
    """A history that has what became of the bundles of one broker."""

    def __init__(self) -> None:
        self.steps: list[Transition] = []

    def append(self, *records: Record) -> None:
        self.steps += [_transition(each) for each in records if isinstance(each, OwnershipStep)]


def _transition(step: OwnershipStep) -> Transition:
    return Transition(
        bundle=step.bundle,
        before=BundleState(step.before),
        after=BundleState(step.after),
        reason=step.reason,
        cause=LifeCause(step.cause),
        parent=step.parent,
        destination=step.destination,
        pause_ms=step.pause_ms,
        life=step.life,
    )


class Broker:
    """A member that is there, and does by itself only what others make it do: it neither reports
    nor leads.
    """

    def __init__(self, fleet: Fleet, index: int, *leaves: object) -> None:
        virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
        # by a real clock, a machine that stands still for some seconds ends no session
        self.store: MemoryStore = fleet.tree.session(timeout_s=2.0 if virtual else 60.0)
        self.address = BrokerAddress(
            f"b{index}:8080", f"pulsar://b{index}:6650", f"http://b{index}:8080"
        )
        self.tenant, history = Tenant(), Transitions()
        self.steps = history.steps
        world = World(
            me=self.address,
            store=self.store,
            clock=fleet.clock,
            peers=fleet,
            sampler=lambda _own: FixedSampler(10),
            version="1",
            history=history,
        )
        self.base = base_of(world, Leaves(*BROKER, *leaves), fleet.scope)
        throttling = BrokerThrottling(ThrottlingSettings(), cluster="standalone", now_ns=0)
        self.member = ComposedMember(
            self.base,
            world,
            self.tenant,
            throttling,
            documents=self.store,
            stats_interval_s=lambda: 60.0,
        )
        self.cluster, self.ownership = self.member.cluster, self.member.ownership
        self.lookups, self.leading = self.member.lookups, self.cluster.leading
        self.brokers, self.namespaces = self.cluster.brokers, self.cluster.namespaces
        self.topics = Topics(self.store, self.namespaces, self.base.broker)

    @property
    def records(self) -> StateRecords:
        """The claims of one that runs the extensible manager."""
        assert isinstance(self.member.manager, ExtensibleManager)
        return self.member.manager.claims

    @property
    def cache(self) -> StateCache:
        """The state records as it knows them."""
        assert isinstance(self.member.manager, ExtensibleManager)
        return self.member.manager._cache

    def with_settings(self, *leaves: object) -> Base:
        """What its parts stand on, with these settings."""
        return replace(self.base, settings=Leaves(*leaves))

    async def start(self) -> None:
        """Connect, watch, register."""
        await self.store.__aenter__()
        documents = Watcher(
            self.store,
            paths.ADMIN,
            self.namespaces.on_change,
            self.cluster.policies.on_change,
            self.topics.on_change,
            self.ownership.on_boundaries,
        )
        await self.member.prepare([documents])
        value = b'{"webServiceUrl":"%b","pulsarServiceUrl":"%b"}' % (
            self.address.web_url.encode(),
            self.address.service_url.encode(),
        )
        await self.store.create(paths.broker(self.address.broker_id), value, ephemeral=True)

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
        clock: Clock | None = None,
    ) -> None:
        self.scope, self.tree, self.clock = scope, tree or MemoryTree(), clock or LoopTime()
        self.brokers = [
            Broker(self, index, *(EXTENSIBLE if index in extensible else ()))
            for index in range(count)
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

    async def clients_back(
        self, broker: BrokerAddress, bundle: str, closed: int
    ) -> ClientsBack | None:
        """Peers."""
        count = (await self.served_bundles(broker, bundle)).get(bundle)
        tenant = self.at(broker).tenant
        if count is None:
            return None
        return ClientsBack(count, tenant.returned_ms, unserved=0, served_ms=tenant.served_ms)

    async def last_release(self, broker: BrokerAddress, bundle: str) -> Released | None:
        """Peers."""
        return self.at(broker).member.ownership_log.released(bundle)

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
    clock: Clock | None = None,
) -> AsyncIterator[Fleet]:
    """A running fleet with the namespace public/default; some brokers run the extensible manager,
    by their numbers.
    """
    async with Scope("fleet") as scope:
        fleet = Fleet(count, scope, extensible, tree, clock)
        for broker in fleet.brokers:
            await broker.start()
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
