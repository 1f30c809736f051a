"""The programs in examples/ as processes, on a real ZooKeeper: what their first lines say."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from ports import free_port

from loadmanager.client import RoutingClient
from loadmanager.kit.zookeeper.java import JavaZooKeeper

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 120

pytestmark = [pytest.mark.zookeeper, pytest.mark.system, pytest.mark.timeout(600)]


@asynccontextmanager
async def two(program: str, store: str, folder: Path) -> AsyncIterator[list[str]]:
    """Two processes of a program, and the addresses at which they answer."""
    ports = [free_port(), free_port()]
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            *(str(EXAMPLES / program), str(port), store),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
        )
        for port in ports
    ]
    try:
        async with RoutingClient(store) as client:
            async with asyncio.timeout(PATIENCE_S):
                while not _shared_evenly(Counter(client.owner(str(key)) for key in range(1_000))):
                    await asyncio.sleep(0.1)
            yield [f"http://127.0.0.1:{port}" for port in ports]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _shared_evenly(owners: Counter[str]) -> bool:
    return not owners[""] and len(+owners) == 2 and min((+owners).values()) > 420


@pytest.fixture
def store(zookeeper_server: JavaZooKeeper, request: pytest.FixtureRequest) -> str:
    """A place of this test's own."""
    address = zookeeper_server.url.partition(":")[2]
    return f"zk://{address}/{request.node.name}-{os.getpid()}"


async def test_chat(store: str, tmp_path: Path) -> None:
    """Whoever is connected to a room at any process reads what is said in it."""
    async with two("chat.py", store, tmp_path) as urls, aiohttp.ClientSession() as session:
        for room in ("kitchen", "garden", "attic"):
            first, second = [await session.ws_connect(f"{url}/{room}") for url in urls]
            await first.send_str("hello")
            assert await first.receive_str(timeout=60) == "hello"
            assert await second.receive_str(timeout=60) == "hello"
            late = await session.ws_connect(f"{urls[0]}/{room}")
            assert await late.receive_str(timeout=60) == "hello"


async def test_cache(store: str, tmp_path: Path) -> None:
    """A value is found wherever somebody asks."""
    program = "snapshot_cache.py"
    async with two(program, store, tmp_path) as urls, aiohttp.ClientSession() as session:
        for number in range(10):
            async with session.put(f"{urls[0]}/key-{number}", data=str(number)) as answer:
                assert answer.status == 204
            async with session.get(f"{urls[1]}/key-{number}") as answer:
                assert await answer.text() == str(number)


async def test_scheduler(store: str, tmp_path: Path) -> None:
    """A job is stored, whoever is told of it."""
    async with two("scheduler.py", store, tmp_path) as urls, aiohttp.ClientSession() as session:
        for number in range(10):
            async with session.put(f"{urls[0]}/job-{number}", data="1") as answer:
                assert answer.status == 204
