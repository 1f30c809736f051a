"""The extensible load manager as it runs in a member: state records, load data, placement by
whoever is asked, splits by the owners.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from zlib import crc32

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import Interval, every, retrying, sleep
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.ports.mover import Release, Released
from loadmanager.member.assigning import Assigning, Observe
from loadmanager.member.base import Base, Cluster
from loadmanager.member.leading.manager import Listeners
from loadmanager.member.leading.state_monitor import Placer, StateMonitor
from loadmanager.member.load_data import LoadPublisher, LoadStore
from loadmanager.member.owner_splits import OwnerSplits
from loadmanager.member.ownership.locks import Locks
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ownership.state_cache import StateCache
from loadmanager.member.ownership.state_records import StateRecords
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.published_feed import PublishedFeed
from loadmanager.member.record_orders import RecordOrders
from loadmanager.member.reporter import Reporter
from loadmanager.member.settings import StateSettings

Preparation = Callable[[str, str | None], AbstractAsyncContextManager[None]]
RELEASE_ASKED_AFTER_S = (0.0, 0.05, 0.2, 1.0)
"""Waits before the questions how the source released a bundle."""


def _nothing_to_prepare(_bundle: str, _to: str | None) -> AbstractAsyncContextManager[None]:
    return contextlib.nullcontext()


class ExtensibleManager:
    """Implements `member.leading.manager.RunningManager`."""

    manager = Manager.EXTENSIBLE
    leader_path = paths.EXTENSIBLE_LEADER
    leader_splits = False

    def __init__(self, base: Base, cluster: Cluster, observe: Observe) -> None:
        """`observe`: called with the epoch, the cycle and the plan of each decision made here."""
        self._base, self._cluster, self._observe = base, cluster, observe
        self._view = ClusterView(knows_owners=True)
        self._cache = StateCache(base.store, base.clock, base.corrupt)
        self._decisions = Decisions(base.clock)
        self._loads = LoadStore(base.store, self._view, base.clock, base.corrupt)
        self._locks = Locks(base, cluster)
        self.claims = StateRecords(base, cluster, self._cache, self._locks)

    def connect(self, ownership: Ownership, reporter: Reporter, hosting: Hosting) -> None:
        base, cluster = self._base, self._cluster
        self._publisher = LoadPublisher(base=base, cluster=cluster, reporter=reporter)
        orders = RecordOrders(base, cluster, self.claims, ownership)
        self.owner_splits = OwnerSplits(
            base=base,
            cluster=cluster,
            ownership=ownership,
            hosting=hosting,
            decisions=self._decisions,
            observe=self._observe,
        )
        self._cache.listeners += [
            self._loads.on_record,
            self._publisher.on_record,
            orders.on_record,
        ]
        self._cache.on_resync.append(ownership.verify_all)
        self.search = Assigning(
            base=base,
            cluster=cluster,
            records=self.claims,
            ownership=ownership,
            view=self._view,
            rng=base.rng(crc32(base.broker_id.encode())),
            decisions=self._decisions,
            observe=self._observe,
        )
        ownership.on_opened = self.claims.openings.on_opened
        self.placer: Placer = self.search
        """Chooses for bundles of brokers that died; the host may set another one."""
        self.preparation: Preparation = _nothing_to_prepare
        """Entered before a bundle is ordered to another broker, left when it is there."""

    def watchers(self) -> list[Watcher]:
        """Those of locks, records and load data."""
        store = self._base.store
        return [
            Watcher(store, paths.LOCKS, self._locks.on_change),
            Watcher(store, paths.UNIT_STATES, self._cache.on_change),
            Watcher(store, paths.LOAD_DATA, self._loads.on_change),
        ]

    async def prepare(self) -> None:
        """Read all records."""
        store = self._base.store
        await retrying(lambda: store.create(paths.UNIT_STATES, b""), "state-records")
        self._base.scope.spawn(self._cache.run(), "state-records")
        await self._cache.synced.wait()

    async def begin(self) -> None:
        """Publish load data, and split what is too big."""
        base = self._base
        scope, steps = base.scope, base.steps
        await steps.run("report", self._publisher.reporter.tick)  # what is to be published
        await steps.run("publish-load", self._publisher.tick)
        publishing = Interval(base.broker, lambda settings: settings.report_interval_min_ms / 1000)
        splits = base.settings.live(SplitSettings)
        splitting = Interval(splits, lambda settings: settings.interval_minutes * 60)
        scope.spawn(every(publishing, self._publisher.tick, "publish-load", steps), "publish-load")
        scope.spawn(
            every(splitting, self.owner_splits.tick, "split", steps, first_after_s=None), "split"
        )

    # While it leads

    @property
    def records(self) -> Listeners:
        return self._cache.listeners

    async def owner(self, bundle: str) -> str | None:
        """By its record."""
        return await self.claims.stored_owner(bundle)

    async def assign(self, bundle: str, broker_id: str) -> bool:
        namespace, bundle_range = split_bundle_name(bundle)
        boundaries = await self._cluster.namespaces.bundles(NamespaceName.parse(namespace))
        boundaries.require(bundle_range)
        return await self.claims.assign(bundle, broker_id, boundaries.version)

    def view(self) -> ClusterView:
        """The one in which this broker places bundles, too."""
        return self._view

    def feed(self, base: Base, view: ClusterView, load_manager: LoadManager) -> PublishedFeed:
        """What brokers publish."""
        return PublishedFeed(view, load_manager.observe, self._loads, base.steps)

    def decisions(self) -> Decisions:
        """Those of this broker, which places bundles and splits, too."""
        return self._decisions

    def release(self, term: Term) -> Release:
        """Write the order into the bundle's record, while the term lasts."""

        async def move(
            owner: BrokerAddress,
            bundle: str,
            destination: BrokerAddress | None,
            *,
            epoch: int | None,
        ) -> Released | None:
            self._cluster.leading.check(epoch)
            to = None if destination is None else destination.broker_id
            clients = await self._clients(owner, bundle)
            async with self.preparation(bundle, to):
                if not await self.claims.order_release(bundle, to, term.checks):
                    return None
            return replace(await self._last_release(owner, bundle), clients=clients)

        return move

    async def _clients(self, owner: BrokerAddress, bundle: str) -> int | None:
        with contextlib.suppress(OperationalError):
            return (await self._base.peers.served_bundles(owner, bundle)).get(bundle)
        return None

    async def _last_release(self, owner: BrokerAddress, bundle: str) -> Released:
        """The source's report of the release, which may end there a little later than it is seen
        here.
        """
        with contextlib.suppress(OperationalError):
            for wait_s in RELEASE_ASKED_AFTER_S:
                await sleep(wait_s)
                if (released := await self._base.peers.last_release(owner, bundle)) is not None:
                    return released
        return Released()

    def lead(self, base: Base, term: Term) -> None:
        """Look after the state records."""
        monitor = StateMonitor(
            base=base,
            cluster=self._cluster,
            cache=self._cache,
            placer=self.placer,
            checks=term.checks,
            lives=self.claims.lives,
            placed=lambda bundle, broker: self._view.placed(bundle, broker, base.clock.now_ms()),
        )
        base.scope.spawn(monitor.follow_brokers(), "follow-brokers")
        states = base.settings.live(StateSettings)
        watching = Interval(states, lambda settings: settings.monitor_interval_s)
        base.scope.spawn(
            every(watching, monitor.monitor, "monitor", base.steps, first_after_s=None), "monitor"
        )
