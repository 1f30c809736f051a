"""The supervisor of `standalone`, over processes that only pretend, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.supervisor import READY_TIMEOUT_S, Supervisor
from loadmanager.testing.virtual_time import VirtualLoop


class Pretended:
    """A process that ends when the test says so; `starts` are the times of its starts."""

    def __init__(self, name: str, *, running: bool = False, failing_starts: int = 0) -> None:
        self.name = name
        self.starts: list[float] = []
        self.stopped = False
        self._failing_starts = failing_starts
        self._status: asyncio.Future[int] | None = None
        if running:
            self._status = asyncio.get_running_loop().create_future()

    async def start_again(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self.starts.append(now_s)
        if self._failing_starts and len(self.starts) > 1:
            self._failing_starts -= 1
            raise OperationalError("no")
        self._status = asyncio.get_running_loop().create_future()

    @property
    def running(self) -> bool:
        return self._status is not None and not self._status.done()

    async def ended(self) -> int:
        assert self._status is not None
        return await asyncio.shield(self._status)

    def how_it_ended(self) -> str:
        return "ended"

    def end(self, status: int) -> None:
        assert self._status is not None
        self._status.set_result(status)

    async def stop(self) -> None:
        self.stopped = True
        if self.running:
            self.end(0)

    def kill(self) -> None:
        self.end(-9)


async def all_ready(count: int) -> AsyncIterator[None]:
    """Reports `count` brokers."""
    for _ in range(count):
        yield


def on_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    """Run a test to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(test)


def test_delays_grow_with_deaths_in_a_row() -> None:
    """0.5 s, 1 s, 2 s, to one minute; after a minute of life 0.5 s again. A start that fails counts
    as a death.
    """

    async def run() -> None:
        store = Pretended("store", running=True)
        broker = Pretended("broker", failing_starts=2)
        supervisor = Supervisor(store, [broker], restart=True)
        running = asyncio.ensure_future(supervisor.run(all_ready(1), lambda: None))
        waits = []
        for _ in range(8):
            await asyncio.sleep(1)
            while not broker.running:
                await asyncio.sleep(0.25)
            died_s, starts = asyncio.get_running_loop().time(), len(broker.starts)
            broker.end(1)
            while not broker.running:
                await asyncio.sleep(0.25)
            waits += [
                round(after - before, 1)
                for before, after in zip(
                    [died_s, *broker.starts[starts:]], broker.starts[starts:], strict=False
                )
            ]
        assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
        await asyncio.sleep(60)
        died_s = asyncio.get_running_loop().time()
        broker.end(-9)
        await asyncio.sleep(1)
        assert broker.starts[-1] - died_s == pytest.approx(0.5)
        supervisor.on_signal()
        assert await running == 0
        assert broker.stopped

    on_virtual_time(run())


def test_the_store_is_started_again_and_a_stopped_broker_is_not() -> None:
    """Status 0 of a broker means that an operator stopped it; without brokers everything ends."""

    async def run() -> None:
        store = Pretended("store", running=True)
        brokers = [Pretended("one"), Pretended("two")]
        running = asyncio.ensure_future(
            Supervisor(store, brokers, restart=True).run(all_ready(2), lambda: None)
        )
        await asyncio.sleep(1)
        store.end(0)
        brokers[0].end(0)
        await asyncio.sleep(100)
        assert (len(store.starts), len(brokers[0].starts)) == (1, 1)
        assert not running.done()
        brokers[1].end(0)
        assert await running == 1

    on_virtual_time(run())


@pytest.mark.parametrize("restart", [True, False])
def test_a_broker_that_dies_before_all_are_ready_ends_the_start(restart: bool) -> None:
    """The others are stopped, and `on_ready` is not called."""

    async def run() -> None:
        store, brokers = Pretended("store", running=True), [Pretended("one"), Pretended("two")]
        welcomed: list[None] = []
        running = asyncio.ensure_future(
            Supervisor(store, brokers, restart=restart).run(
                all_ready(1), lambda: welcomed.append(None)
            )
        )
        await asyncio.sleep(1)
        brokers[1].end(2)
        assert await running == 1
        assert brokers[0].stopped
        assert not welcomed

    on_virtual_time(run())


def test_brokers_that_are_never_ready_are_an_error() -> None:
    """After a minute they are stopped, and one line says what to look at."""

    async def run() -> None:
        store, broker = Pretended("store", running=True), Pretended("one")
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(OperationalError, match="their logs say why"):
            await Supervisor(store, [broker], restart=True).run(all_ready(0), lambda: None)
        assert asyncio.get_running_loop().time() - began_s == READY_TIMEOUT_S
        assert broker.stopped

    on_virtual_time(run())


def test_a_second_signal_kills() -> None:
    """The first one lets the brokers stop by themselves."""

    async def run() -> None:
        broker = Pretended("one")
        supervisor = Supervisor(Pretended("store", running=True), [broker], restart=True)
        running = asyncio.ensure_future(supervisor.run(all_ready(1), lambda: None))
        await asyncio.sleep(1)
        supervisor.on_signal()
        supervisor.on_signal()
        assert await broker.ended() == -9
        assert await running == 0

    on_virtual_time(run())
