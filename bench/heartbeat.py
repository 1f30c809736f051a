"""CPU of a broker and of ZooKeeper for a heartbeat: a transaction, and the `sync` of before."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ports import free_port

from loadmanager.kit.zookeeper.client import TreeWatchingClient
from loadmanager.kit.zookeeper.java import JavaZooKeeper


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _measure(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with JavaZooKeeper(port=free_port(), data_dir=Path(folder)) as server:
            children = psutil.Process().children(recursive=True)
            java = next(child for child in children if "java" in child.name())
            client = TreeWatchingClient(hosts=f"127.0.0.1:{server.port}", timeout=30)
            client.start()
            for name, send in 2 * (
                ("sync", lambda: client.sync_async("/")),
                ("transaction", client.write_nothing_async),
            ):
                own, here_s, there_s = psutil.Process(), 0.0, 0.0
                here_s, there_s, began_s = _cpu_s(own), _cpu_s(java), time.perf_counter()
                for _ in range(count):
                    send().get()
                took_us = (time.perf_counter() - began_s) / count * 1e6
                here_us = (_cpu_s(own) - here_s) / count * 1e6
                there_us = (_cpu_s(java) - there_s) / count * 1e6
                print(
                    f"{name:12} {took_us:5.0f} us until the answer, {here_us:4.0f} us of CPU here, "
                    f"{there_us:4.0f} us of ZooKeeper"
                )
            client.stop()


def main(argv: list[str]) -> int:
    """Prints each twice: the first time warms Java up."""
    parser = argparse.ArgumentParser(prog="bench heartbeat", description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="of each")
    asyncio.run(_measure(parser.parse_args(argv).count))
    return 0
