"""A member of a sharded service: a process that owns some of the shards, in its author's own loop.

The members of a service find each other in a metadata store. Every key hashes into one shard, and
every shard is owned by at most one member, which proves that before each use. One member leads: it
places shards, moves them away from members with too much to do, and gives those of dead members to
the others. This is what `loadmanager broker` runs on, too.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from loadmanager.kit.addresses import HOST_MAX, BrokerAddress, is_address
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import (
    BadInputError,
    ConflictError,
    LoadManagerError,
    OperationalError,
)
from loadmanager.kit.logger import speak
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.tasks import Scope
from loadmanager.sharding.shards import Moved, Service, Shard
from loadmanager.sharding.stores import brought, zookeeper_url
from loadmanager.sharding.system_time import SystemTime
from loadmanager.sharding.table import Table
from loadmanager.sharding.words import lines_of_shards, of_shards, words_of_shards

if TYPE_CHECKING:
    from loadmanager.kit.sampler import OwnTraffic, Sampler
    from loadmanager.sharding.joining import Joined
    from loadmanager.sharding.settings import MemberSettings

State = TypeVar("State")
SHARDS_MAX = 10_000
CLOSE_S = 10.0
DECISIONS_MAX = 100
URLS = frozenset({"metadataStoreUrl", "zookeeperServers", "zooKeeperServers"})


class Member(Generic[State]):
    """An asynchronous context manager: entering joins, leaving gives all shards to others.

    - `store`: where the members find each other, `zk://host:2181,host2:2181/path`. All members of a
      service name the same one; services with other paths know nothing of it. The root is none.
    - `service`: opens and closes shards.
    - `address`: where others reach this member, `http://10.0.0.7:8080`, or `https://`, without a
      path; it is what `Moved.owner` and `resolve` tell, and nobody calls it otherwise. For other
      protocols it names host and port.
    - `shards`: how many there are in the beginning, which the first member of a service decides for
      all time. There are more only if the service says `splits = True`.
    - `eager`: every shard gets an owner without being asked for. Otherwise a shard is opened when
      somebody asks for one of its keys. All members must say the same.
    - `budgets`: name of a load → how much of it this member takes. The member is as busy as the
      budget that is used most, or its CPU. `requests` is what `own` counts, a second; others are
      what the service's `load` says, or an installed package measures (`loadmanager.load_metrics`).
    - `settings`: further settings, name → text; one that no member has is refused.

    A hook of the service that takes too long is given up: `open` after 60 s, `close` after 10 s.
    Everything here is for the loop in which it was entered; nothing is safe in another thread.
    After the block, `own` raises `Moved`, without an owner.
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
        if not isinstance(shards, int) or not 1 <= shards <= SHARDS_MAX:
            raise BadInputError(f"1 to {SHARDS_MAX} shards are possible, not {shards}")
        if of_the_store := sorted(URLS & (settings or {}).keys()):
            raise BadInputError(f"the store is the first argument, not a setting: {of_the_store}")
        self._url, self._connect = store, brought(store)
        budgets = dict(budgets or {})
        if not all(0 < budget < math.inf for budget in budgets.values()):
            raise BadInputError(f"budgets are numbers above 0, not {budgets}")
        of_store = {} if self._connect else {"metadataStoreUrl": zookeeper_url(store)}
        from loadmanager.sharding.joining import Options

        with words_of_shards():
            self._options = Options(
                service=service,
                address=_address(address),
                shards=shards,
                eager=eager,
                budgets=budgets,
                settings={**of_store, **(settings or {})},
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
            await self._join(store, SystemTime(), _system_sampler(self._options.settings))
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    def _store(self) -> AbstractAsyncContextManager[Store]:
        from loadmanager.kit.zookeeper.settings import ZooKeeperSettings

        settings = self._options.settings.live(ZooKeeperSettings).value
        if self._connect is not None:
            return self._connect(self._url, settings.session_timeout_ms / 1000)
        from loadmanager.kit.zookeeper.store import ZooKeeperStore  # kazoo

        return ZooKeeperStore(settings, url_key=self._url)

    async def _join(
        self, store: Store, clock: Clock, sampler: Callable[[OwnTraffic], Sampler]
    ) -> None:
        from loadmanager.leader.plugins import warn_of_left_out
        from loadmanager.sharding.joining import Joined, history_of

        self._exits.callback(speak(lines_of_shards))
        warn_of_left_out()
        history = history_of(self._options, clock)
        if history is not None:
            self._exits.push_async_callback(history.close)
        self._scope = await self._exits.enter_async_context(Scope("member"))
        self._exits.callback(self._scope.cancel)
        joined = Joined(self._options, store, clock, sampler, self._scope, history=history)
        self._exits.callback(self._fence, joined)  # before the session ends, however it ends
        await joined.begin()
        self._joined = joined
        await joined.register()
        self._running = True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name == "_joined":
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
            await self._joined.parts.stop(0, _nothing)
        finally:
            await self._exits.aclose()

    def own(self, key: str, weight: float = 1.0) -> Shard[State]:
        """The shard of a key, if this member owns it now; otherwise raises `Moved`.

        Use it in a `with` block: its `close` waits for the end of the block. Inside, after an
        `await`, `Shard.check` says whether it is still this member's. `weight` counts as load of
        the key: from 0 to a billion, else `BadInputError` is raised, and nothing counted. Does no
        I/O; of a shard that nobody has, it begins to find an owner.
        """
        bundle = self._joined.shard_owners.shard_of(key)
        shard = self._joined.host.shards.get(bundle)
        if shard is None or not self._joined.is_served(bundle):
            owner = self._joined.owner(bundle)
            if not owner and self._running and bundle not in self._sought:
                self._sought.add(bundle)
                self._scope.spawn(self._seek(key, bundle), "find-owner")
            raise Moved(key, owner)
        shard.count(key, weight)
        return shard

    async def resolve(self, key: str) -> str:
        """The address of the member that serves a key; finds one if nobody does.

        Raises `OperationalError` if none takes it in time, or this member has left.
        """
        joined = self._joined
        if not self._running:
            raise OperationalError("this member has left")
        with words_of_shards():
            return _url(await joined.find(key))

    def table(self) -> Table:
        """Who serves which keys, as this member knows it; does no I/O. `Table.to_json` is all of it
        in one answer, for clients that do not reach the store.
        """
        return self._joined.shard_owners.table()

    def tables(self) -> AsyncIterator[Table]:
        """The table, and again after each change, for ever: what a `RoutingClient` takes, sent on
        by whatever a program has for that.
        """
        return self._joined.shard_owners.tables()

    @property
    def shards(self) -> list[Shard[State]]:
        """The shards that this member owns now."""
        return [
            shard
            for name, shard in self._joined.host.shards.items()
            if self._joined.is_served(name)
        ]

    @property
    def address(self) -> str:
        """Where others reach this member."""
        return _url(self._options.address)

    def decisions(self) -> list[dict[str, Any]]:
        """What this member has decided, the newest first, at most 100. Whoever leads moves shards:
        its decisions say which, and why each other one stays.
        """
        shown = self._joined.parts.manager.decisions().last(DECISIONS_MAX)
        text = of_shards(msgspec.json.encode(shown).decode())
        decisions: list[dict[str, Any]] = msgspec.json.decode(text)
        return decisions

    async def metrics(self) -> str:
        """The metrics of this member and its process, in Prometheus' text format, for a route of
        the program: how long moves paused, how often each hook failed, what the leader did. Each
        has the label `member`.
        """
        page, _ = await self._joined.metrics.render()
        return page.decode()

    async def move(self, shard: Shard[State], destination: str) -> None:
        """Give a shard of this member to another one, by its address, and wait until it has it;
        whatever that costs. The destination prepares before.

        Raises `BadInputError` if nobody has that address now, `ConflictError` if the shard is not
        this member's, and `OperationalError` if it takes too long.
        """
        to = self._joined.parts.cluster.brokers.address(_address(destination).broker_id)
        if to is None:
            raise BadInputError(f"{destination} is the address of no member now")
        if self._joined.host.shards.get(shard.bundle) is not shard:
            raise ConflictError(f"{shard} is not this member's")
        if to == self._options.address:
            return
        with words_of_shards():
            async with self._joined.preparations.of(shard.bundle, to.broker_id):
                released = await self._joined.parts.ownership.release(
                    shard.bundle, reason="moved by the service", destination=to, timeout_s=CLOSE_S
                )
        if released is None:
            raise ConflictError(f"{shard} is not this member's")

    async def split(self, shard: Shard[State]) -> None:
        """Divide a shard of this member in two, each with half of the load of the keys that were
        counted over the last seconds, or in the middle if none were; returns when both are open.
        Whatever uses much of its member is split without being asked for.

        Raises `ConflictError` if the shard is not this member's or cannot be divided,
        `BadInputError` if the service does not say `splits = True`, and `OperationalError` if it
        says "not now", or cannot prepare.
        """
        joined = self._joined
        if not self._options.splits:
            raise BadInputError("this service does not say splits = True")
        if joined.host.shards.get(shard.bundle) is not shard:
            raise ConflictError(f"{shard} is not this member's")
        with words_of_shards():
            await joined.split(shard)

    def _fence(self, joined: Joined) -> None:
        self._running = False
        joined.fence()

    async def _seek(self, key: str, bundle: str) -> None:
        try:
            with suppress(LoadManagerError):
                await self._joined.find(key)
        finally:
            self._sought.discard(bundle)


async def _nothing() -> None:
    """There are no connections to close."""


def _address(url: str) -> BrokerAddress:
    """Load reports have Pulsar's form, in which every broker has a service URL, too."""
    url = url.removesuffix("/")
    if not is_address(url, ("http", "https")):
        raise BadInputError(
            "an address such as http://10.0.0.7:8080 is expected (http or https, ASCII, at most "
            f"{HOST_MAX} characters and no path), not {url[:80]!r}"
        )
    parts = urlsplit(url)
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
