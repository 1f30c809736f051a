"""Supervises the processes of `loadmanager standalone`: brokers, and the store that they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.tasks import Scope, for_each, sleep

READY_TIMEOUT_S = 240.0
RESTART_FIRST_S, RESTART_MAX_S = 0.5, 60.0
"""A process that died is started again after this, doubled with each death in a row."""
STEADY_S = 60.0
"""A process that lived so long has no deaths in a row."""

log = get_logger("standalone")


class Child(Protocol):
    """A process that can be started again."""

    name: str

    async def start_again(self) -> None:
        """Start it, after it has ended or for the first time. Raises `OperationalError`."""
        ...

    async def ended(self) -> int:
        """Wait until it has ended; returns its exit status, −N after signal N."""
        ...

    def how_it_ended(self) -> str:
        """For people: `ended with status 1`, with the reason if it is known."""
        ...


class Broker(Child, Protocol):
    """The process of a broker. Status 0 means that an operator stopped it."""

    @property
    def running(self) -> bool:
        """True if the process lives."""
        ...

    async def stop(self) -> None:
        """Stop it, if it runs; kill it if that takes too long."""
        ...

    def kill(self) -> None:
        """Kill it, if it runs."""
        ...


class Supervisor:
    """Starts brokers, and starts a broker or the store again when it dies.

    A broker that dies before all were ready once is not started again: the start has failed.
    """

    def __init__(self, store: Child, brokers: Sequence[Broker], *, restart: bool) -> None:
        self._store = store
        self._brokers = brokers
        self._restart = restart
        self._signals = 0
        self._status = 0
        self._ready_count = 0
        self._settled = asyncio.Event()
        """All brokers are ready, or the start has failed."""
        self._ended = asyncio.Event()

    async def run(self, ready: AsyncIterator[None], on_ready: Callable[[], None]) -> int:
        """Run the brokers over a store that runs, until `on_signal` or until no broker is left.

        `ready` yields whenever a broker is ready; `on_ready` is called when all are. Returns the
        exit status. Raises `OperationalError` if the brokers do not start, or not in time.
        """
        try:
            for broker in self._brokers:
                await broker.start_again()
            async with Scope("standalone") as scope:
                for broker in self._brokers:
                    scope.spawn(self._keep_broker(broker), broker.name)
                scope.spawn(self._keep(self._store), self._store.name)
                scope.spawn(self._count(ready), "ready")
                in_time = await self._wait_until_settled()
                if in_time and not self._ended.is_set():
                    on_ready()
                if in_time:
                    await self._ended.wait()
                scope.cancel()
        finally:
            await for_each(self._brokers, lambda broker: broker.stop(), len(self._brokers), "stop")
        if not in_time:
            raise OperationalError(
                f"the brokers did not become ready within {READY_TIMEOUT_S:g} s; their logs say why"
            )
        return self._status

    def on_signal(self) -> None:
        """Stop everything; the second time, kill the brokers."""
        self._signals += 1
        self._end()
        if self._signals > 1:
            for broker in self._brokers:
                broker.kill()

    def _end(self) -> None:
        self._ended.set()
        self._settled.set()

    @property
    def _started(self) -> bool:
        return self._ready_count >= len(self._brokers)

    async def _wait_until_settled(self) -> bool:
        """False if that takes too long."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def _count(self, ready: AsyncIterator[None]) -> None:
        async for _ in ready:
            self._ready_count += 1
            if self._started:
                self._settled.set()

    async def _keep_broker(self, broker: Broker) -> None:
        await self._keep(broker, lambda status: status == 0 or not self._started)
        if self._signals:
            return
        if not self._started or not any(other.running for other in self._brokers):
            self._status = 1
            self._end()

    async def _keep(
        self, child: Child, stays_dead: Callable[[int], bool] = lambda _status: False
    ) -> None:
        """Start a process again whenever it dies, with growing delays."""
        deaths, since_s = 0, asyncio.get_running_loop().time()
        while True:
            status = await child.ended()
            if self._signals:
                return
            if not self._restart or stays_dead(status):
                others = any(other.running for other in self._brokers if other is not child)
                end = "Ctrl-C stops the others." if others else "No broker is left."
                log.warning(f"{child.name} {child.how_it_ended()}. {end}")
                return
            steady = asyncio.get_running_loop().time() - since_s >= STEADY_S
            deaths = 1 if steady else deaths + 1
            wait_s = min(RESTART_FIRST_S * 2.0 ** min(deaths - 1, 30), RESTART_MAX_S)
            log.warning(
                f"{child.name} {child.how_it_ended()}. It starts again in {wait_s:g} s. Ctrl-C "
                "stops everything.",
                deaths_in_a_row=deaths,
            )
            await sleep(wait_s)
            try:
                await child.start_again()
            except OperationalError as error:
                log.error(f"{child.name} did not start: {error}")
                continue
            since_s = asyncio.get_running_loop().time()
            log.info(f"{child.name} was started again")
