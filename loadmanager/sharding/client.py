"""Knows which member serves a key, without asking anybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Protocol, TypeVar

import msgspec

from loadmanager.engine.bundles.ranges import parse_boundaries
from loadmanager.engine.ownership.state_records import UnitState
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.logger import get_logger, speak
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.tasks import Scope, sleep
from loadmanager.member.ownership.state_cache import StateCache
from loadmanager.sharding.shard_owners import SHARDS, ShardOwners
from loadmanager.sharding.shards import Moved
from loadmanager.sharding.stores import SESSION_S, brought, zookeeper_url
from loadmanager.sharding.system_time import SystemTime
from loadmanager.sharding.table import Table
from loadmanager.sharding.words import lines_of_shards

T = TypeVar("T")
BEGIN_S = 30.0
"""How long entering waits for the first member."""
REDIRECTS_MAX = 3
"""So many are followed at once, then a little later."""
FIRST_S, LAST_S = 0.05, 1.0

log = get_logger("client")


class _Current(Protocol):
    def owner(self, key: str) -> str: ...


class _Registration(msgspec.Struct, frozen=True, rename="camel"):
    web_service_url: str | None = None
    web_service_url_tls: str | None = None


class _Members:
    """Member → its session and its address, by its registration."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.listener: Callable[[], None] = lambda: None
        self.all: dict[str, tuple[int, str]] = {}

    async def on_change(self, change: Change) -> None:
        """Read what a change is about."""
        if change.kind is ChangeKind.RESYNC:
            names = await self._store.children(paths.BROKERS)
            for name in [*(self.all.keys() - set(names)), *names]:
                await self._read(name)
        elif change.path != paths.BROKERS:
            await self._read(paths.last(change.path))
        self.listener()

    async def _read(self, name: str) -> None:
        node = await self._store.get(paths.broker(name))
        self.all.pop(name, None)
        if node is not None:
            with suppress(msgspec.MsgspecError):
                said = msgspec.json.decode(node.value, type=_Registration)
                address = said.web_service_url or said.web_service_url_tls or ""
                self.all[name] = (node.ephemeral_owner, address)


class RoutingClient:
    """An asynchronous context manager that knows the owner of every key, and is told of changes.

    - `source`: the store of the members, as in `Member`; or tables as they change, such as those of
      `Member.tables` that a program sends on, for clients that cannot reach the store. If they end
      or raise, the log says so, and the last one stays in force: reconnect in the iterator.

    For one event loop.
    """

    def __init__(self, source: str | AsyncIterable[Table]) -> None:
        """Raises `BadInputError`."""
        self._source = source
        self._connect = brought(source) if isinstance(source, str) else None
        self._exits = AsyncExitStack()
        self._current: _Current | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> RoutingClient:
        """Read the table. Raises `OperationalError` if the store does not answer, no member of the
        service has ever run, or no first table comes within 30 s.
        """
        try:
            await self._enter()
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def _enter(self) -> None:
        if not isinstance(self._source, str):
            await self._open_scope()
            await self._first_of(self._source)
            return
        if self._connect is not None:
            store = await self._exits.enter_async_context(self._connect(self._source, SESSION_S))
        else:
            from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
            from loadmanager.kit.zookeeper.store import ZooKeeperStore  # kazoo

            settings = ZooKeeperSettings(
                url=zookeeper_url(self._source), session_timeout_ms=round(SESSION_S * 1000)
            )
            store = await self._exits.enter_async_context(
                ZooKeeperStore(settings, url_key=self._source)
            )
        await self._read(store)

    async def _open_scope(self) -> None:
        self._exits.callback(speak(lines_of_shards))
        self._scope = await self._exits.enter_async_context(Scope("client"))
        self._exits.callback(self._scope.cancel)

    async def _first_of(self, tables: AsyncIterable[Table]) -> None:
        came, following = self._changed, self._scope.spawn(self._follow(tables), "tables")
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_S):
                await came.wait()
        if self._current is None:
            why = following.result() if following.done() else f"none within {BEGIN_S:g} s"
            raise OperationalError(f"no table of owners has come: {why}")

    async def _follow(self, tables: AsyncIterable[Table]) -> str:
        """Returns why there are no more."""
        failure: Exception | None = None
        try:
            async for table in tables:
                self._current = table
                self._wake()
        except Exception as error:  # noqa: BLE001 - foreign code
            failure = error
        why = f"{type(failure).__name__}: {failure}" if failure else "the iterator has ended"
        if self._current is not None:
            log.error("no more tables come: the last one stays in force", why=why, exc_info=failure)
        self._wake()
        return why

    async def _read(self, store: Store) -> None:
        await self._open_scope()
        await self._boundaries(store)
        cache = StateCache(store, SystemTime(), Corrupt())

        def owner(name: str) -> str:
            record = cache.record(name)
            if record is None or record.owner is None or record.opening is True:
                return ""
            if record.state is UnitState.RELEASING:
                return ""
            broker, session = record.owner
            registered, address = members.all.get(broker, (0, ""))
            return address if registered == session else ""

        members = _Members(store)
        owners = ShardOwners(owner)

        async def follow(change: Change) -> None:
            if change.kind is ChangeKind.RESYNC or change.path == paths.local_policies(SHARDS):
                owners.follow(await self._boundaries(store))

        members.listener = owners.on_members
        cache.listeners.append(owners.on_record)
        watchers = [
            Watcher(store, paths.BROKERS, members.on_change),
            Watcher(store, paths.UNIT_STATES, cache.on_change),
            Watcher(store, paths.LOCAL_POLICIES, follow),
        ]
        for watcher in watchers:
            self._scope.spawn(watcher.run(), f"watch{watcher.root.replace('/', '-')}")
        self._scope.spawn(cache.run(), "state-records")
        self._scope.spawn(self._pass_on(owners), "changes")
        for watcher in watchers:
            await watcher.synced.wait()
        await cache.synced.wait()
        self._current = owners

    async def _boundaries(self, store: Store) -> tuple[int, ...]:
        path, left = paths.local_policies(SHARDS), round(BEGIN_S / LAST_S)
        while (node := await store.get(path)) is None:
            left -= 1
            if left < 0:
                raise OperationalError("no member of this service has run yet; start one first")
            await sleep(LAST_S)
        try:
            stored = msgspec.json.decode(node.value)["bundles"]["boundaries"]
        except (msgspec.MsgspecError, KeyError, TypeError):
            raise OperationalError(f"{path} says nothing of shards: is it a service?") from None
        return parse_boundaries(stored)

    async def _pass_on(self, owners: ShardOwners) -> None:
        while True:
            await owners.changed()
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave."""
        await self._exits.aclose()

    def owner(self, key: str) -> str:
        """The address of the member that serves a key; empty while nobody does. Asks nobody."""
        if self._current is None:
            raise RuntimeError("enter the client first: async with RoutingClient(…) as client: …")
        return self._current.owner(key)

    async def call(
        self,
        key: str,
        ask: Callable[[str], Awaitable[T]],
        *,
        patience_s: float = 30.0,
        retry_on: tuple[type[Exception], ...] = (),
    ) -> T:
        """`await ask(address)` with the address of the member that serves a key, again while it
        raises `Moved`, at the member that this names, or at the one that has the key a little
        later.

        `retry_on`: further errors after which another try does no harm, such as
        `ConnectionRefusedError`. After `patience_s` the last error is raised, or `Moved` if nobody
        had the key; an `ask` that is under way then is cancelled, and `TimeoutError` raised. Raises
        `BadInputError` if that is no number above 0.
        """
        if not patience_s > 0:
            raise BadInputError(f"patience is a number of seconds above 0, not {patience_s}")
        loop = asyncio.get_running_loop()
        until_s, wait_s, redirects, hint = loop.time() + patience_s, FIRST_S, 0, ""
        failure: Exception = Moved(key, "")
        again: tuple[type[Exception], ...] = (Moved, *retry_on)
        while True:
            address, hint = hint or self.owner(key), ""
            if address:
                try:
                    return await _by(until_s, ask, address)
                except again as error:
                    failure = error
                    if isinstance(error, Moved) and error.owner != address:
                        hint = error.owner
            redirects = redirects + 1 if hint else 0
            if not hint or redirects > REDIRECTS_MAX:
                await self._moved(key, min(wait_s, until_s - loop.time()))
                if loop.time() >= until_s:
                    raise failure
                wait_s, redirects = min(wait_s * 2, LAST_S), 0

    async def _moved(self, key: str, limit_s: float) -> None:
        """Return when the table names another owner of a key, or in time."""
        before = self.owner(key)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.owner(key) == before:
                    await self._changed.wait()


async def _by(until_s: float, ask: Callable[[str], Awaitable[T]], address: str) -> T:
    limit = asyncio.timeout_at(until_s)
    try:
        async with limit:
            return await ask(address)
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"{address} has not answered in time") from None
        raise
