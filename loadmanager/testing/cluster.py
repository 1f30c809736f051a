"""Members of a sharded service in one process, over a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.sampler import Reading, SystemUsage
from loadmanager.sharding import member as production
from loadmanager.sharding.client import RoutingClient
from loadmanager.sharding.shards import Moved, Service

SESSION_S = 10.0
PATIENCE_S = 120.0
POLL_S = 0.1


class LoopTime:
    """The loop's time as all clocks; in another thread, that of the loop in which it was last asked
    for.
    """

    _loop: asyncio.AbstractEventLoop

    def now_ms(self) -> int:
        """Milliseconds."""
        return int(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        """Seconds."""
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def monotonic_ns(self) -> int:
        """Nanoseconds."""
        return round(self.monotonic_s() * 1e9)


class SetSampler:
    """A machine that is as busy as a test says."""

    scope = "process"

    def __init__(self, member: LocalMember) -> None:
        self._member = member

    def sample(self) -> SystemUsage:
        """Next to nothing of everything but CPU."""
        cpu, little = Reading(self._member.cpu_percent, 100), Reading(1, 100)
        return SystemUsage(cpu, little, little, little)


class LocalMember:
    """One member of a cluster of a test, as if in a process of its own.

    `member`: its `Member`. `service`: the service of that. `number`: its place in the cluster.
    `alive`: it was neither stopped nor killed. `cpu_percent`: how busy its machine is, to be set.
    """

    def __init__(self, number: int, service: Service[Any], member: production.Member[Any]) -> None:
        self.number = number
        self.service = service
        self.member = member
        self.alive = True
        self.cpu_percent = 1.0
        """How busy its machine is, as it samples it."""
        self._store: MemoryStore

    def __repr__(self) -> str:
        return f"LocalMember({self.number})"

    async def start(self, tree: MemoryTree) -> None:
        """Join."""
        self._store = tree.session(timeout_s=SESSION_S)
        await self._store.__aenter__()
        try:
            await self.member._join(self._store, LoopTime(), lambda _own: SetSampler(self))  # noqa: SLF001
        except BaseException:
            self.alive = False
            await self.member._exits.aclose()  # noqa: SLF001
            await self._store.__aexit__()
            raise

    async def stop(self) -> None:
        """Leave in order."""
        if self.alive:
            self.alive = False
            await self.member.__aexit__(None, None, None)
            await self._store.__aexit__()

    async def close(self) -> None:
        """Forget what a killed member has left."""
        if not self._store.closed:
            await self._store.__aexit__()

    async def kill(self) -> None:
        """End at once, without a word; its session ends later."""
        self.alive = False
        self._store.suspend()
        self.member._scope.cancel()  # noqa: SLF001
        await self.member._exits.aclose()  # noqa: SLF001
        asyncio.get_running_loop().call_later(SESSION_S, self._store.expire)

    def cut(self) -> None:
        """From now on the store does not answer it."""
        self._store.suspend()
        self._cut = asyncio.get_running_loop().call_later(SESSION_S, self._store.expire)

    def heal(self) -> None:
        """The store answers again: in a new session, if the old one has ended."""
        self._cut.cancel()
        self._store.resume()

    def owns(self, key: str) -> bool:
        """True if it serves a key now."""
        try:
            return self.alive and self.member.own(key) is not None
        except Moved:
            return False


class Members:
    """The members of a test; use `cluster`."""

    def __init__(
        self, service: Callable[[], Service[Any]], settings: Mapping[str, str], **options: Any
    ) -> None:
        self._tree = MemoryTree()
        self._service, self._settings, self._options = service, settings, options
        self.all: list[LocalMember] = []

    def __getitem__(self, number: int) -> LocalMember:
        return self.all[number]

    async def start(self) -> LocalMember:
        """Let one more member join."""
        number, service = len(self.all), self._service()
        production_member: production.Member[Any] = production.Member(
            "zk://nowhere/service",
            service,
            address=f"http://member-{number}",
            settings=self._settings,
            **self._options,
        )
        member = LocalMember(number, service, production_member)
        await member.start(self._tree)
        self.all.append(member)
        return member

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RoutingClient]:
        """A client of the members, with a session of its own."""
        client = RoutingClient("zk://nowhere/service")
        async with self._tree.session(timeout_s=SESSION_S) as store, client._exits:  # noqa: SLF001
            await client._read(store)  # noqa: SLF001
            yield client

    async def kill(self, number: int) -> None:
        """End a member as `kill -9` does."""
        await self.all[number].kill()

    def owners(self, key: str) -> list[LocalMember]:
        """The members that serve a key now: never more than one."""
        return [member for member in self.all if member.owns(key)]

    async def owner(self, key: str) -> LocalMember:
        """The member that serves a key; asks for one until there is. Raises `TimeoutError`."""
        await _until(
            lambda: bool(self.owners(key)), lambda: f"nobody serves {key!r} within {PATIENCE_S:g} s"
        )
        (owner,) = self.owners(key)
        return owner

    async def settled(self) -> None:
        """Wait until every shard is open somewhere. Raises `TimeoutError`."""

        def open_and_all() -> tuple[list[str], list[str]]:
            alive = [each.member for each in self.all if each.alive]
            here = [shard.name for member in alive for shard in member.shards]
            return sorted(here), [str(span) for span, _ in alive[0].table().ranges]

        def all_open() -> bool:
            here, shards = open_and_all()
            return here == shards

        def why_not() -> str:
            here, shards = open_and_all()
            missing = sorted(set(shards).difference(here))
            few = ", ".join(missing[:3])
            return f"{len(missing)} shards are open nowhere within {PATIENCE_S:g} s: {few}"

        await _until(all_open, why_not)

    async def stop(self) -> None:
        """End all."""
        for member in self.all:
            await member.stop()
        for member in self.all:
            await member.close()


async def _until(condition: Callable[[], bool], why_not: Callable[[], str]) -> None:
    until_s = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        if asyncio.get_running_loop().time() >= until_s:
            raise TimeoutError(why_not())
        await asyncio.sleep(POLL_S)


@asynccontextmanager
async def cluster(
    service: Callable[[], Service[Any]],
    members: int = 3,
    *,
    shards: int = 16,
    eager: bool = True,
    settle: bool = True,
    budgets: Mapping[str, float] | None = None,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Members]:
    """Running members, each with a service of its own; on virtual time, in `virtual` tests.

    `settle`: begin when every shard is open, if they are opened without being asked for.
    """
    running = Members(service, settings or {}, shards=shards, eager=eager, budgets=budgets)
    try:
        for _ in range(members):
            await running.start()
        if eager and settle:
            await running.settled()
        yield running
    finally:
        await running.stop()
