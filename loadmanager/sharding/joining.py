"""The parts of a member while it runs: how they are built, and started. To import this, with all
that a member consists of, takes long: it is done when a `Member` is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from loadmanager import __version__
from loadmanager.engine.bundles.ranges import NoSuchBundleError
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import OF_SHARDS, SplitSettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import (
    BadInputError,
    ConflictError,
    NotFoundError,
    OperationalError,
)
from loadmanager.kit.history.history import FLUSH_S, FileHistory
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.starting import answered
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.sampler import OwnTraffic, Sampler
from loadmanager.kit.tasks import LoopBusy, Scope, every, guarded
from loadmanager.kit.telemetry import Telemetry
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.member import compose
from loadmanager.member.extensible import ExtensibleManager
from loadmanager.member.ownership.ownership import OPEN_TIMEOUT_S
from loadmanager.member.settings import BrokerSettings
from loadmanager.member.world import World, base_of
from loadmanager.sharding.alone import PeersInStore
from loadmanager.sharding.checked_service import check_service
from loadmanager.sharding.copies import Copies
from loadmanager.sharding.costs import EVERY_S as COSTS_EVERY_S
from loadmanager.sharding.costs import MoveCosts
from loadmanager.sharding.eager import EVERY_S, EagerOwnership
from loadmanager.sharding.host import ShardHost
from loadmanager.sharding.merge_orders import MergeOrders
from loadmanager.sharding.metrics import of_service
from loadmanager.sharding.preparing import Preparations
from loadmanager.sharding.roll import Roll
from loadmanager.sharding.said import Said
from loadmanager.sharding.settings import MemberSettings
from loadmanager.sharding.shard_owners import SHARDS, ShardOwners
from loadmanager.sharding.shards import Service, Shard
from loadmanager.sharding.splitting import ShardSplits, inputs_of
from loadmanager.sharding.standbys import Standbys, wanted

if TYPE_CHECKING:
    from loadmanager.kit.metrics.page import MetricsPage

log = get_logger("member")

ORIGINALLY = "loadmanagerShards"
"""Where the policies of a service's shards say how many it began with."""
FIND_MAX = 5


class Options:
    """What a member is to do, as its program says. Raises `BadInputError` and `ConfigError`."""

    def __init__(
        self,
        *,
        service: Service[Any],
        address: BrokerAddress,
        shards: int,
        eager: bool,
        budgets: Mapping[str, float],
        settings: Mapping[str, str],
    ) -> None:
        check_service(service)
        self.service, self.address, self.shards, self.eager = service, address, shards, eager
        self.budgets, self.settings = budgets, self._settings_of(service, settings)
        self.standbys = wanted(service, eager=eager)
        manager = self.settings.live(StrategySettings).value.load_manager_class
        if Manager.of(manager) is not Manager.EXTENSIBLE:
            raise BadInputError(
                f"with loadManagerClassName={manager} no shard is moved, and nothing is eager: "
                "leave it out"
            )

    def _settings_of(self, service: Service[Any], settings: Mapping[str, str]) -> MemberSettings:
        splits: object = getattr(service, "splits", False)
        if not isinstance(splits, bool):
            raise BadInputError(f"a service's splits is True or False, not {splits!r}")
        parsed = MemberSettings(settings, splits=splits)
        if not splits and parsed.live(SplitSettings).value.enabled:
            raise BadInputError(
                "shards are split only if the service says that it can: splits = True"
            )
        self.splits = splits
        return parsed


class Joined:
    """The constructor builds the parts, `begin` reads the store, `register` joins."""

    def __init__(
        self,
        options: Options,
        store: Store,
        clock: Clock,
        sampler: Callable[[OwnTraffic], Sampler],
        scope: Scope,
        *,
        history: FileHistory | None,
    ) -> None:
        self._options, self._store, self._scope = options, store, scope
        self._shards = options.shards
        self._history = history
        busy, peers = LoopBusy(), PeersInStore()
        scope.spawn(busy.run(), "loop-busy")
        world = World(
            me=options.address,
            store=store,
            clock=clock,
            peers=peers,
            sampler=sampler,
            version=__version__,
            history=self._history,
            busy=busy,
        )
        base = base_of(world, options.settings, scope)
        self._copies = copies = Copies(options.service, scope, self.is_served, self.owner)
        self.host = host = ShardHost(
            options.service,
            clock,
            copies=copies,
            proven=lambda: store.lease.held(clock.monotonic_s()),
            budgets=options.budgets,
        )
        self.parts = compose.ComposedMember(
            base, world, host, None, documents=store, stats_interval_s=lambda: 5.0
        )
        copies.failures = host.extra.failures = self.parts.telemetry.hosting.failures
        manager, brokers = self.parts.manager, self.parts.cluster.brokers
        assert isinstance(manager, ExtensibleManager), "the options take no other one"
        self._manager = manager
        self.shard_owners = ShardOwners(self.owner)
        openings = manager.claims.openings
        openings.limit_s, openings.of_replacements = OPEN_TIMEOUT_S, True
        self.preparations = Preparations(
            store,
            scope,
            base.broker_id,
            registered=lambda: brokers.registered,
            copies=copies,
        )
        manager.preparation = self.preparations.of
        self._standbys = Standbys(
            store, clock, base.broker_id, copies, scope, count=options.standbys
        )
        self.costs = MoveCosts(store, clock, base.broker_id, lambda: host.extra.costs(host.shards))
        peers.order_merge = self._build_splits(manager).order
        wishes = self.parts.cluster.wishes
        wishes.stays, wishes.costs = self.costs.stays, self.costs.all
        wishes.copies = self._standbys.ready

    def _build_splits(self, manager: ExtensibleManager) -> MergeOrders:
        store, me, parts = self._store, self.parts.base.broker_id, self.parts
        self.splits = ShardSplits(
            self.host,
            self.shard_owners,
            inputs_of(parts),
            lambda look: Said(store, paths.SERVICE_IDLE, me, look, list[str]),
        )
        manager.owner_splits.choose = self.splits.choose
        manager.owner_splits.strategy = OF_SHARDS
        parts.ownership.replacing = self.splits.replacing
        self._merge_orders = MergeOrders(
            store,
            self._scope,
            me,
            registered=lambda: parts.cluster.brokers.registered,
            merge=lambda left, right: parts.ownership.merge(left, right, "idle"),
        )
        return self._merge_orders

    async def begin(self) -> None:
        """Read the store; the first member writes what a service needs. Raises `OperationalError`
        if another member has this one's address.
        """
        options, store, parts = self._options, self._store, self.parts
        namespaces, owners = parts.cluster.namespaces, self.shard_owners
        self._manager.records.append(owners.on_record)
        parts.cluster.brokers.listeners.append(owners.on_members)
        self._roll = roll = Roll(
            store, options.address, eager=options.eager, begin_anew=self._begin_service
        )
        within_s = options.settings.live(ZooKeeperSettings).value.operation_timeout_s
        await answered(roll.ask, "find other members", within_s)
        readers = (
            roll.on_change,
            self.preparations.on_change,
            self.costs.said.on_change,
            self._standbys.on_change,
            self._standbys.said.on_change,
            self._merge_orders.on_change,
            self.splits.idle.on_change,
        )
        await parts.prepare(
            [
                Watcher(
                    store,
                    paths.ADMIN,
                    namespaces.on_change,
                    parts.ownership.on_boundaries,
                    self._on_boundaries,
                ),
                Watcher(store, paths.SERVICE, *readers),
            ]
        )

        async def read() -> Mapping[str, Any]:
            await self._begin_service()
            await roll.compare()
            await self._follow_boundaries()
            return await namespaces.policies(SHARDS)

        policies = await answered(read, "read the service", within_s)
        began_with = policies.get(ORIGINALLY, len(owners.names))
        if began_with != options.shards:
            log.warning(
                "the first member of this service has decided for another number of shards",
                shards=began_with,
                asked_for=options.shards,
            )
            self._shards = began_with
        self.splits.begin(began_with)

    async def _on_boundaries(self, change: Change) -> None:
        if change.kind is ChangeKind.RESYNC or change.path == paths.local_policies(SHARDS):
            with suppress(NotFoundError):  # nobody has begun the service
                await self._follow_boundaries()

    async def _follow_boundaries(self) -> None:
        bundles = await self.parts.cluster.namespaces.bundles(SHARDS)
        self.shard_owners.follow(bundles.boundaries)

    async def register(self) -> None:
        """From now on, this member gets shards."""
        if self._history is not None:
            await self._history.start()
            self._repeat(self._history.flush, FLUSH_S, "history")
        self._repeat(self.costs.said.tell, COSTS_EVERY_S, "tell-costs")
        if self._options.splits:
            self._repeat(self.splits.idle.tell, COSTS_EVERY_S, "tell-idle")
            minutes = self._options.settings.live(SplitSettings).value.interval_minutes
            self._repeat(self.splits.merge, minutes * 60, "merge-shards")
        if self._options.eager:
            eager = EagerOwnership(
                self.parts, self._manager, self.shard_owners, self.costs, self._standbys
            )
            self._manager.placer = eager
            steps = [eager.place, eager.fill, eager.open_again]
            if self._standbys.count:
                steps += [eager.stand_by, self._standbys.said.tell]
            for step in steps:
                self._repeat(step, EVERY_S, step.__name__.replace("_", "-"))
        await guarded(self.parts.join(), self._roll.keep_asking())
        self._roll.running = True

    def fence(self) -> None:
        """Serve nothing, save nothing, and let go of all copies: this member ends."""
        self.host.fence_all()
        self._copies.forget_all()

    @cached_property
    def metrics(self) -> MetricsPage:
        """The page of its metrics."""
        from loadmanager.kit.metrics.page import MetricsPage  # prometheus-client

        telemetry = Telemetry([lambda: of_service(self.parts.telemetry.samples())])
        return MetricsPage(telemetry, member=self.parts.base.broker_id)

    def _repeat(self, step: Callable[[], Awaitable[None]], interval_s: float, name: str) -> None:
        self._scope.spawn(every(lambda: interval_s, step, name, self.parts.base.steps), name)

    async def _begin_service(self) -> None:
        namespaces = self.parts.cluster.namespaces
        with suppress(ConflictError):
            await namespaces.create_tenant(SHARDS.tenant, {})
        with suppress(ConflictError):
            policies = {"bundles": {"numBundles": self._shards}, ORIGINALLY: self._shards}
            await namespaces.create_namespace(SHARDS, policies)

    def is_served(self, bundle: str) -> bool:
        """Whether it is served here now."""
        return self.parts.ownership.served(bundle)

    async def find(self, key: str) -> BrokerAddress:
        """The member that serves a key, or one that takes it now. Raises `OperationalError` if none
        does in time.
        """
        parts = self.parts
        for _ in range(FIND_MAX):
            bundles = await parts.cluster.namespaces.bundles(SHARDS)
            with suppress(NoSuchBundleError):  # it was split or merged meanwhile
                return (await parts.lookups.of_bundle(bundles.bundle_of_topic(key))).broker
        raise OperationalError(f"the shard of {key!r} is being split or merged; try again")

    async def split(self, shard: Shard[Any]) -> None:
        """Divide a shard of this member; see `Member.split`."""
        places = self.splits.by_hand(shard)
        await self.parts.ownership.split(shard.bundle, list(places), "the service")

    def owner(self, bundle: str) -> str:
        """Where it is served, as far as this member knows; empty: nowhere."""
        owner = self.parts.ownership.cached_owner(bundle)
        return "" if owner is None else owner.web_url or owner.web_url_tls


def history_of(options: Options, clock: Clock) -> FileHistory | None:
    """What a member records into, if it is to. It is closed when all of the member has ended."""
    settings = options.settings.live(HistorySettings).value
    cluster = options.settings.live(BrokerSettings).value.cluster_name
    if not settings.enabled:
        return None
    return FileHistory(settings, cluster=cluster, broker=options.address.broker_id, clock=clock)
