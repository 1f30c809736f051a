"""A member of a sharded service: a process that owns some of the shards, in its author's own loop.

The members of a service find each other in a metadata store. Every key hashes into one shard, and
every shard is owned by at most one member, which proves that before each use. One member leads: it
places shards, moves them away from members with too much to do, and gives those of dead members to
the others. This is what `loadmanager broker` runs on, too.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from loadmanager import __version__
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import BadInputError, ConflictError, LoadManagerError
from loadmanager.kit.logger import get_logger, speak
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.sampler import OwnTraffic, Sampler
from loadmanager.kit.tasks import LoopBusy, Scope, every, guarded
from loadmanager.member import compose
from loadmanager.member.extensible import ExtensibleManager
from loadmanager.member.ownership.ownership import OPEN_TIMEOUT_S
from loadmanager.member.world import World, base_of
from loadmanager.sharding.alone import NoPeers
from loadmanager.sharding.copies import Copies
from loadmanager.sharding.costs import EVERY_S as COSTS_EVERY_S
from loadmanager.sharding.costs import MoveCosts
from loadmanager.sharding.eager import EVERY_S, EagerOwnership
from loadmanager.sharding.host import ShardHost
from loadmanager.sharding.preparing import Preparations
from loadmanager.sharding.roll import Roll
from loadmanager.sharding.settings import MemberSettings
from loadmanager.sharding.shard_owners import ShardOwners
from loadmanager.sharding.shards import Moved, Service, Shard
from loadmanager.sharding.standbys import Standbys, wanted
from loadmanager.sharding.stores import brought, zookeeper_url
from loadmanager.sharding.system_time import SystemTime
from loadmanager.sharding.table import Table
from loadmanager.sharding.words import NAMESPACE, lines_of_shards, of_shards, words_of_shards

log = get_logger("member")

State = TypeVar("State")
SHARDS = NamespaceName.parse(NAMESPACE)
SHARDS_MAX = 10_000
CLOSE_S = 10.0
DECISIONS_MAX = 100


class Member(Generic[State]):
    """An asynchronous context manager: entering joins, leaving gives all shards to others.

    - `store`: where the members find each other, `zk://host:2181,host2:2181/path`. All members of a
      service name the same one; services with other paths know nothing of it.
    - `service`: opens and closes shards.
    - `address`: where others reach this member, `http://10.0.0.7:8080`; it is what `Moved.owner`
      and `resolve` tell, and nobody calls it otherwise.
    - `shards`: how many there are. The first member of a service decides it for all time.
    - `eager`: every shard gets an owner without being asked for. Otherwise a shard is opened when
      somebody asks for one of its keys. All members must say the same.
    - `budgets`: name of a load → how much of it this member takes. The member is as busy as the
      budget that is used most, or its CPU. `requests` is what `own` counts, a second; others are
      what the service's `load` says.
    - `settings`: keys of broker.conf that concern a member.

    A hook of the service that takes too long is given up: `open` after 60 s, `close` after 10 s.
    Everything here is for the loop in which it was entered; nothing is safe in another thread.
    """

    def __init__(
        self,
        store: str,
        service: Service[State],
        *,
        address: str,
        shards: int = 64,
        eager: bool = False,
        budgets: Mapping[str, float] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Raises `BadInputError` and `ConfigError`."""
        if not 1 <= shards <= SHARDS_MAX:
            raise BadInputError(f"1 to {SHARDS_MAX} shards are possible, not {shards}")
        self._url, self._service, self._shards, self._eager = store, service, shards, eager
        self._connect = brought(store)
        self._standbys_wanted = wanted(service, eager=eager)
        self._budgets = dict(budgets or {})
        if not all(0 < budget < math.inf for budget in self._budgets.values()):
            raise BadInputError(f"budgets are numbers above 0, not {self._budgets}")
        self._address = _address(address)
        of_store = {} if self._connect else {"metadataStoreUrl": zookeeper_url(store)}
        self._settings = MemberSettings({**of_store, **(settings or {})})
        manager = self._settings.live(StrategySettings).value.load_manager_class
        if Manager.of(manager) is not Manager.EXTENSIBLE:
            raise BadInputError(
                f"with loadManagerClassName={manager} no shard is moved, and nothing is eager: "
                "leave it out"
            )
        self._sought: set[str] = set()
        """Bundles for which an owner is being found."""
        self._exits = AsyncExitStack()
        self._entered = self._running = False

    async def __aenter__(self) -> Member[State]:
        """Join. Raises `OperationalError` if the store does not answer, or if a running member has
        the same address, and `RuntimeError` if it was entered before.
        """
        if self._entered:
            raise RuntimeError("a Member is entered once; make another one")
        self._entered = True
        try:
            store = await self._exits.enter_async_context(self._store())
            await self._join(store, SystemTime(), _system_sampler(self._settings))
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    def _store(self) -> AbstractAsyncContextManager[Store]:
        from loadmanager.kit.zookeeper.settings import ZooKeeperSettings

        settings = self._settings.live(ZooKeeperSettings).value
        if self._connect is not None:
            return self._connect(self._url, settings.session_timeout_ms / 1000)
        from loadmanager.kit.zookeeper.store import ZooKeeperStore  # kazoo

        return ZooKeeperStore(settings)

    async def _join(
        self, store: Store, clock: Clock, sampler: Callable[[OwnTraffic], Sampler]
    ) -> None:
        self._exits.callback(speak(lines_of_shards))
        self._scope = await self._exits.enter_async_context(Scope("member"))
        self._exits.callback(self._scope.cancel)
        manager = self._compose(store, clock, sampler)
        parts, namespaces = self._parts, self._parts.cluster.namespaces
        roll = Roll(store, self._address, eager=self._eager, begin_anew=self._begin_service)
        await roll.ask()
        readers = (
            roll.on_change,
            self._preparations.on_change,
            self._costs.said.on_change,
            self._standbys.on_change,
            self._standbys.said.on_change,
        )
        await parts.prepare(
            [
                Watcher(store, paths.ADMIN, namespaces.on_change, parts.ownership.on_boundaries),
                Watcher(store, paths.SERVICE, *readers),
            ]
        )
        await self._begin_service()
        await roll.compare()
        self._bundles = await namespaces.bundles(SHARDS)
        if len(self._bundles.names) != self._shards:
            log.warning(
                "the first member of this service has decided for another number of shards",
                shards=len(self._bundles.names),
                asked_for=self._shards,
            )
            self._shards = len(self._bundles.names)
        self._shard_owners = ShardOwners(self._bundles.boundaries, self._bundles.names, self._owner)
        manager.records.append(self._shard_owners.on_record)
        parts.cluster.brokers.listeners.append(self._shard_owners.on_members)
        self._repeat(self._costs.said.tell, COSTS_EVERY_S, "tell-costs")
        if self._eager:
            eager = EagerOwnership(parts, manager, self._bundles.names, self._costs, self._standbys)
            manager.placer = eager
            steps = [eager.place, eager.fill, eager.open_again]
            if self._standbys.count:
                steps += [eager.stand_by, self._standbys.said.tell]
            for step in steps:
                self._repeat(step, EVERY_S, step.__name__.replace("_", "-"))
        await guarded(parts.join(), roll.keep_asking())
        self._running = roll.running = True

    def _compose(
        self, store: Store, clock: Clock, sampler: Callable[[OwnTraffic], Sampler]
    ) -> ExtensibleManager:
        busy = LoopBusy()
        self._scope.spawn(busy.run(), "loop-busy")
        world = World(
            me=self._address,
            store=store,
            clock=clock,
            peers=NoPeers(),
            sampler=sampler,
            version=__version__,
            busy=busy,
        )
        base = base_of(world, self._settings, self._scope)
        copies = Copies(self._service, self._scope, self._is_served)
        self._host = host = ShardHost(
            self._service,
            clock,
            copies=copies,
            served=self._is_served,
            proven=lambda: store.lease.held(clock.monotonic_s()),
            budgets=self._budgets,
        )
        self._exits.callback(self._fence)  # before the session ends, however it ends
        self._parts = compose.ComposedMember(
            base, world, host, None, documents=store, stats_interval_s=lambda: 5.0
        )
        manager, brokers = self._parts.manager, self._parts.cluster.brokers
        assert isinstance(manager, ExtensibleManager), "the constructor takes no other one"
        manager.claims.openings.limit_s = OPEN_TIMEOUT_S
        self._preparations = Preparations(
            store,
            self._scope,
            base.broker_id,
            registered=lambda: brokers.registered,
            copies=copies,
        )
        manager.preparation = self._preparations.of
        self._costs = MoveCosts(store, clock, base.broker_id, lambda: host.extra.costs(host.shards))
        self._standbys = Standbys(
            store, clock, base.broker_id, copies, self._scope, count=self._standbys_wanted
        )
        wishes = self._parts.cluster.wishes
        wishes.stays, wishes.costs = self._costs.stays, self._costs.all
        wishes.copies = self._standbys.ready
        return manager

    def _repeat(self, step: Callable[[], Awaitable[None]], interval_s: float, name: str) -> None:
        self._scope.spawn(every(lambda: interval_s, step, name, self._parts.base.steps), name)

    async def _begin_service(self) -> None:
        namespaces = self._parts.cluster.namespaces
        with suppress(ConflictError):
            await namespaces.create_tenant(SHARDS.tenant, {})
        with suppress(ConflictError):
            await namespaces.create_namespace(SHARDS, {"bundles": {"numBundles": self._shards}})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name in ("_bundles", "_host", "_parts", "_shard_owners"):
                raise RuntimeError("enter the member first: async with Member(…) as member: …")
            raise AttributeError(f"Member has no attribute {name!r}")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all shards, so that others open them, and leave."""
        try:
            await self._parts.stop(0, _nothing)
        finally:
            await self._exits.aclose()

    def own(self, key: str, weight: float = 1.0) -> Shard[State]:
        """The shard of a key, if this member owns it now; otherwise raises `Moved`.

        Use it in a `with` block: its `close` waits for the end of the block. Inside, after an
        `await`, `Shard.check` says whether it is still this member's. `weight` counts as load of
        the key. Does no I/O; of a shard that nobody has, it begins to find an owner.
        """
        bundle = self._bundles.bundle_of_topic(key)
        shard = self._host.shards.get(bundle)
        if shard is None or not self._is_served(bundle):
            owner = self._owner(bundle)
            if not owner and self._running and bundle not in self._sought:
                self._sought.add(bundle)
                self._scope.spawn(self._seek(bundle), "find-owner")
            raise Moved(key, owner)
        shard.count(key, weight)
        return shard

    async def resolve(self, key: str) -> str:
        """The address of the member that serves a key; finds one if nobody does.

        Raises `OperationalError` if none takes it in time.
        """
        bundle = self._bundles.bundle_of_topic(key)
        with words_of_shards():
            return _url((await self._parts.lookups.of_bundle(bundle)).broker)

    def table(self) -> Table:
        """Who serves which keys, as this member knows it; does no I/O. `Table.to_json` is all of it
        in one answer, for clients that do not reach the store.
        """
        return self._shard_owners.table()

    def tables(self) -> AsyncIterator[Table]:
        """The table, and again after each change, for ever: what a `RoutingClient` takes, sent on
        by whatever a program has for that.
        """
        return self._shard_owners.tables()

    @property
    def shards(self) -> list[Shard[State]]:
        """The shards that this member owns now."""
        return [shard for name, shard in self._host.shards.items() if self._is_served(name)]

    @property
    def address(self) -> str:
        """Where others reach this member."""
        return _url(self._address)

    def decisions(self) -> list[dict[str, Any]]:
        """What this member has decided while it led, the newest first: which shards it moved, and
        why each other one stays. At most 100; none at a member that has not led.
        """
        shown = self._parts.manager.decisions().last(DECISIONS_MAX)
        text = of_shards(msgspec.json.encode(shown).decode())
        decisions: list[dict[str, Any]] = msgspec.json.decode(text)
        return decisions

    async def move(self, shard: Shard[State], destination: str) -> None:
        """Give a shard of this member to another one, by its address, and wait until it has it;
        whatever that costs. The destination prepares before.

        Raises `BadInputError` if nobody has that address now, `ConflictError` if the shard is not
        this member's, and `OperationalError` if it takes too long.
        """
        to = self._parts.cluster.brokers.address(_address(destination).broker_id)
        if to is None:
            raise BadInputError(f"{destination} is the address of no member now")
        if self._host.shards.get(shard.name) is not shard:
            raise ConflictError(f"{shard} is not this member's")
        if to == self._address:
            return
        with words_of_shards():
            async with self._preparations.of(shard.name, to.broker_id):
                released = await self._parts.ownership.release(
                    shard.name, reason="moved by the service", destination=to, timeout_s=CLOSE_S
                )
        if released is None:
            raise ConflictError(f"{shard} is not this member's")

    def _fence(self) -> None:
        self._running = False
        self._host.fence_all()

    def _is_served(self, bundle: str) -> bool:
        return self._parts.ownership.served(bundle)

    def _owner(self, bundle: str) -> str:
        owner = self._parts.ownership.cached_owner(bundle)
        return "" if owner is None else _url(owner)

    async def _seek(self, bundle: str) -> None:
        try:
            with suppress(LoadManagerError):
                await self._parts.lookups.of_bundle(bundle)
        finally:
            self._sought.discard(bundle)


async def _nothing() -> None:
    """There are no connections to close."""


def _address(url: str) -> BrokerAddress:
    """Load reports have Pulsar's form, in which every broker has a service URL, too."""
    parts, url = urlsplit(url), url.rstrip("/")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise BadInputError(f"an address such as http://10.0.0.7:8080 is expected, not {url!r}")
    plain, secure = ("", url) if parts.scheme == "https" else (url, "")
    return BrokerAddress(parts.netloc, f"pulsar://{parts.netloc}", plain, web_url_tls=secure)


def _url(member: BrokerAddress) -> str:
    return member.web_url or member.web_url_tls


def _system_sampler(settings: MemberSettings) -> Callable[[OwnTraffic], Sampler]:
    from loadmanager.kit.system.cgroup import Cgroup
    from loadmanager.kit.system.sampler import SystemSampler  # psutil
    from loadmanager.kit.system.settings import SamplerSettings

    leaf = settings.live(SamplerSettings).value
    return lambda own: SystemSampler(leaf, own, cgroup=Cgroup.find())
