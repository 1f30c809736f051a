"""The parts of a broker that runs the extensible load manager, beside those of every broker."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from zlib import crc32

from loadmanager.broker.settings.live import LiveSettings
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import Interval, Scope, Steps, every, retrying
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.leading import Leading
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.member.assigning import Assigning
from loadmanager.member.leading.extensible_term import ExtensibleLeaderWork
from loadmanager.member.leading.term import LeaderWork
from loadmanager.member.load_data import LoadPublisher, LoadStore
from loadmanager.member.locks import Locks
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.owner_splits import OwnerSplits
from loadmanager.member.ownership import Ownership
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.record_orders import RecordOrders
from loadmanager.member.reporter import Reporter
from loadmanager.member.settings import BrokerSettings, StateSettings
from loadmanager.member.state_cache import StateCache
from loadmanager.member.state_records import StateRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The parts of every broker that these need."""

    settings: LiveSettings
    store: Store
    clock: Clock
    me: BrokerAddress
    scope: Scope
    steps: Steps
    brokers: Brokers
    namespaces: Namespaces
    policies: PlacementPolicies
    leading: Leading
    corrupt: Corrupt
    locks: Locks
    seed: int
    observe: Callable[[int, int, Plan], None]
    wishes: OperatorWishes


class ExtensibleParts:
    """State records, load data, placement on lookup, splits by owners, and a leader's term."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self._broker: Live[BrokerSettings] = common.settings.live(BrokerSettings)
        self._strategies: Live[StrategySettings] = common.settings.live(StrategySettings)
        self._splits: Live[SplitSettings] = common.settings.live(SplitSettings)
        self._states: Live[StateSettings] = common.settings.live(StateSettings)
        self._view = ClusterView(knows_owners=True)
        self._cache = StateCache(common.store, common.clock, common.corrupt)
        self._decisions = Decisions(common.clock)
        self._loads = LoadStore(common.store, self._view, common.clock, common.corrupt)
        self.claims = StateRecords(
            store=common.store,
            cache=self._cache,
            locks=common.locks,
            namespaces=common.namespaces,
            brokers=common.brokers,
            clock=common.clock,
            self_address=common.me,
            settings=self._states,
        )

    def connect(self, ownership: Ownership, reporter: Reporter, hosting: Hosting) -> Assigning:
        """Build what needs the broker's other parts; returns what finds owners on lookup."""
        common = self._common
        self._publisher = LoadPublisher(
            store=common.store,
            reporter=reporter,
            policies=common.policies,
            clock=common.clock,
            broker_id=common.me.broker_id,
            settings=self._broker,
            strategies=self._strategies,
            epoch=lambda: common.leading.epoch,
        )
        orders = RecordOrders(
            store=common.store,
            records=self.claims,
            ownership=ownership,
            brokers=common.brokers,
            scope=common.scope,
            steps=common.steps,
            self_address=common.me,
            settings=self._broker,
        )
        self._owner_splits = OwnerSplits(
            ownership=ownership,
            namespaces=common.namespaces,
            hosting=hosting,
            leading=common.leading,
            clock=common.clock,
            broker_id=common.me.broker_id,
            settings=self._splits,
            decisions=self._decisions,
            observe=common.observe,
        )
        self._cache.listeners += [
            self._loads.on_record,
            self._publisher.on_record,
            orders.on_record,
        ]
        self._cache.on_resync.append(ownership.verify_all)
        self._assigning = self._build_assigning(ownership)
        return self._assigning

    def _build_assigning(self, ownership: Ownership) -> Assigning:
        common = self._common
        return Assigning(
            records=self.claims,
            ownership=ownership,
            namespaces=common.namespaces,
            brokers=common.brokers,
            leading=common.leading,
            policies=common.policies,
            wishes=common.wishes,
            view=self._view,
            strategies=self._strategies,
            clock=common.clock,
            rng=self._rng(crc32(common.me.broker_id.encode())),
            self_address=common.me,
            decisions=self._decisions,
            observe=common.observe,
        )

    def leader_work(self, work: LeaderWork) -> ExtensibleLeaderWork:
        """Build the leader's work in this manager from that in the modular one."""
        common = {field.name: getattr(work, field.name) for field in fields(work)}
        common.update(
            leader_splits=False,
            owner=self.claims.stored_owner,
            assign=self._assign,
            records=self._cache.listeners,
        )
        return ExtensibleLeaderWork(
            **common,
            states=self._states,
            view=self._view,
            published=self._loads,
            orders=self.claims,
            cache=self._cache,
            lives=self.claims.lives,
            placer=self._assigning,
            decisions=self._decisions,
        )

    async def _assign(self, bundle: str, broker_id: str) -> bool:
        namespace = NamespaceName.parse(split_bundle_name(bundle)[0])
        boundaries = await self._common.namespaces.bundles(namespace)
        return await self.claims.assign(bundle, broker_id, boundaries.version)

    def _rng(self, number: int) -> random.Random:
        return random.Random(self._common.seed + number)  # noqa: S311 - reproducible, not secret

    def watchers(self) -> list[Watcher]:
        """The watchers that keep the caches current."""
        store = self._common.store
        return [
            Watcher(store, paths.LOCKS, self._common.locks.on_change),
            Watcher(store, paths.UNIT_STATES, self._cache.on_change),
            Watcher(store, paths.LOAD_DATA, self._loads.on_change),
        ]

    async def prepare(self) -> None:
        """Read all records."""
        store = self._common.store
        await retrying(lambda: store.create(paths.UNIT_STATES, b""), "state-records")
        self._common.scope.spawn(self._cache.run(), "state-records")
        await self._cache.synced.wait()

    async def begin(self) -> None:
        """Publish load data, and start the periodic steps; the broker registers next."""
        scope, steps = self._common.scope, self._common.steps
        await steps.run("report", self._publisher.reporter.tick)  # what is to be published
        await steps.run("publish-load", self._publisher.tick)
        publishing = Interval(self._broker, lambda settings: settings.report_interval_min_ms / 1000)
        splitting = Interval(self._splits, lambda settings: settings.interval_minutes * 60)
        scope.spawn(every(publishing, self._publisher.tick, "publish-load", steps), "publish-load")
        scope.spawn(
            every(splitting, self._owner_splits.tick, "split", steps, first_after_s=None), "split"
        )
