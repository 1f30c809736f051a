"""The embedded store beside ZooKeeper on Java: time to ready, operations, notifications, memory."""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import psutil

from loadmanager.kit.metadata.store import ChangeKind, Create
from loadmanager.kit.zookeeper.local import EMBEDDED, JAVA
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore

VALUE = bytes(400)


async def _rate(
    name: str, count: int, per_call: int, step: Callable[[int], Awaitable[object]], concurrency: int
) -> None:
    started_s, cpu_s = time.perf_counter(), time.process_time()
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await step(number)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    took_s, used_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    done = count * per_call
    print(f"{name:44} {done / took_s:9,.0f}/s {1e6 * used_s / done:8,.0f} µs CPU each")


async def _notice(store: ZooKeeperStore, other: ZooKeeperStore, count: int) -> None:
    changes = other.watch("/seen")
    await anext(changes)
    delays_ms = []
    for number in range(count):
        started_s = time.perf_counter()
        await store.put("/seen", str(number).encode())
        async for change in changes:
            if change.kind is not ChangeKind.RESYNC:
                break
        delays_ms.append(1000 * (time.perf_counter() - started_s))
    print(
        f"{'put until another session sees it':44} p50 {statistics.median(delays_ms):.2f} ms, p99 "
        f"{sorted(delays_ms)[-count // 100 - 1]:.2f} ms"
    )


_SERVER = """
import asyncio, sys
from pathlib import Path
from loadmanager.kit.zookeeper.local import local_store

async def main():
    async with local_store(sys.argv[1], port=int(sys.argv[2]), data_dir=Path(sys.argv[3])):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@contextmanager
def _server(kind: str) -> Iterator[str]:
    """The URL of a server of this kind, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        started_s = time.perf_counter()
        command = [sys.executable, "-c", _SERVER, kind, str(port), folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while b"ready" not in process.stdout.readline():
                assert process.poll() is None, "the server has ended"
            print(f"{kind + ': ready':44} {time.perf_counter() - started_s:9.2f} s")
            yield f"zk:127.0.0.1:{port}"
            own = psutil.Process(process.pid)
            memory = sum(each.memory_info().rss for each in [own, *own.children(recursive=True)])
            print(f"{kind + ': memory':44} {memory >> 20:9} MB")
            process.communicate()


async def _run(count: int, kind: str) -> None:
    with _server(kind) as url:
        settings = ZooKeeperSettings(url=url)
        async with ZooKeeperStore(settings) as store, ZooKeeperStore(settings) as other:
            await store.create("/b", VALUE)
            await _rate("get, one after the other", count, 1, lambda _: store.get("/b"), 1)
            await _rate("get, 128 at once", count, 1, lambda _: store.get("/b"), 128)
            await _rate("set, one after the other", count, 1, lambda _: store.put("/b", VALUE), 1)
            await _rate("set, 128 at once", count, 1, lambda _: store.put("/b", VALUE), 128)
            await _rate(
                "create, one after the other",
                count,
                1,
                lambda number: store.create(f"/b/s{number}", VALUE),
                1,
            )
            await _rate(
                "create, 128 at once",
                count,
                1,
                lambda number: store.create(f"/b/c{number}", VALUE),
                128,
            )
            bulk = 200
            await _rate(
                f"create, in transactions of {bulk}",
                max(1, count // bulk),
                bulk,
                lambda number: store.commit(
                    [Create(f"/b/t{number}-{part}", VALUE) for part in range(bulk)]
                ),
                1,
            )
            await _notice(store, other, max(100, count // 10))


def main(argv: list[str]) -> int:
    """Run all measurements."""
    parser = argparse.ArgumentParser(prog="python -m bench zookeeper", description=__doc__)
    parser.add_argument(
        "--count", type=int, default=4000, help="operations a measurement (default 4000)"
    )
    parser.add_argument("--only", choices=(EMBEDDED, JAVA), help="one of the two")
    options = parser.parse_args(argv)
    for kind in (EMBEDDED, JAVA) if options.only is None else (options.only,):
        asyncio.run(_run(options.count, kind))
    return 0
