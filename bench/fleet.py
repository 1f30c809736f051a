"""The cost of the daemon beside a Pulsar cluster: requests, bytes and CPU of a reading.

`python -m bench fleet [--sizes 3x16,100x1000]`: for each size, so many brokers with so many bundles
each answer from another process with load reports of the real shape (modular manager). The daemon's
parts read all of them and decide, some times. CPU is that of the daemon alone; what a request costs
a real broker is in docs/howto/steer-pulsar.md.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import socket
import statistics
import sys
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
from aiohttp import web

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.steer import settings_file as conf
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.files.wishes_file import WishesFile
from loadmanager.steer.fleet_work import build_fleet_work
from loadmanager.steer.outside import FleetOutside
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.orders import AdminOrders
from loadmanager.steer.pulsar.reader import AdminReader

INTERVAL_S = 30


def main(argv: list[str]) -> int:
    """Measure, and print a line for each size."""
    parser = argparse.ArgumentParser(prog="python -m bench fleet", description=__doc__)
    parser.add_argument(
        "--sizes", default="3x16,10x1000,100x1000", help="brokers x bundles of each"
    )
    parser.add_argument("--readings", type=int, default=3)
    args = parser.parse_args(argv)
    print(f"at a reading each {INTERVAL_S} s:")
    print(
        f"{'brokers':>7} {'bundles':>8} {'requests/s':>10} {'KB/s':>7} {'reading CPU s':>13} "
        f"{'took s':>7} {'cycle CPU s':>11}"
    )
    for size in args.sizes.split(","):
        brokers, bundles = map(int, size.split("x"))
        mine, theirs = multiprocessing.Pipe()
        server = multiprocessing.Process(target=_serve, args=(theirs, brokers, bundles))
        server.start()
        try:
            ports = mine.recv()
            requests, size_bytes, cpu_s, took_s, cycle_s = asyncio.run(
                _measured(ports, args.readings)
            )
        finally:
            server.terminate()
            server.join()
        print(
            f"{brokers:7} {brokers * bundles:8} {requests / INTERVAL_S:10.2f} "
            f"{size_bytes / INTERVAL_S / 1000:7.1f} {cpu_s:13.3f} {took_s:7.2f} {cycle_s:11.3f}"
        )
    return 0


async def _measured(ports: list[int], readings: int) -> tuple[float, float, float, float, float]:
    """Requests, bytes, CPU s and s of a reading; CPU s of a cycle."""
    known = conf.parse(
        "bench",
        {"pulsar": f"http://127.0.0.1:{ports[0]}", "mode": "advise", "requestsPerSecondMax": "1e6"},
    )
    clock = SystemClock()
    async with PulsarClient(known.pulsar) as client, Scope("bench") as scope:
        reader = AdminReader(client, clock)
        with tempfile.TemporaryDirectory() as folder:
            outside = FleetOutside(
                me=Leader("bench", "", 1),
                reader=reader,
                orders=partial(AdminOrders, client, reader),
                wishes=WishesFile(Path(folder) / "wishes.json", clock),
                note=FileNote(Path(folder) / "acted.json"),
                clock=clock,
                rng=random.Random(1),
                history=None,
            )
            work = build_fleet_work(known, outside, scope, Steps())
            await work.read()
            figures = []
            for _ in range(readings):
                before = (reader.cost.requests, reader.cost.bytes_read)
                cpu_s, began_s = time.process_time(), time.monotonic()
                await work.read()
                read = (
                    reader.cost.requests - before[0],
                    reader.cost.bytes_read - before[1],
                    time.process_time() - cpu_s,
                    time.monotonic() - began_s,
                )
                cpu_s = time.process_time()
                await work.shed()
                figures.append((*read, time.process_time() - cpu_s))
            assert not work.picture.problems, work.picture.problems
            assert work.advice.plan is not None
    medians = [statistics.median(column) for column in zip(*figures, strict=True)]
    return medians[0], medians[1], medians[2], medians[3], medians[4]


def _serve(pipe: Connection, brokers: int, bundles: int) -> None:
    """Answer for all brokers, forever; sends the ports first."""
    asyncio.run(_serving(pipe, brokers, bundles))


async def _serving(pipe: Connection, brokers: int, bundles: int) -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(brokers)]
    ports = sorted(sock.getsockname()[1] for sock in sockets)
    names = msgspec.json.encode([f"127.0.0.1:{port}" for port in ports])
    runtime = msgspec.json.encode(
        {"clusterName": "c1", "loadManagerClassName": "x.ModularLoadManagerImpl"}
    )
    reports = {port: _report(port, index, bundles) for index, port in enumerate(ports)}

    async def answer(request: web.Request) -> web.Response:
        path, port = request.path, request.transport.get_extra_info("sockname")[1]
        if path.endswith("/load-report"):
            return web.Response(body=reports[port])
        if path.endswith("/brokers"):
            return web.Response(body=names)
        if path.endswith("/runtime"):
            return web.Response(body=runtime)
        return web.json_response({"reason": "there is none"}, status=404)  # as Pulsar says it

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    for sock in sockets:
        await web.SockSite(runner, sock).start()
    pipe.send(ports)
    await asyncio.Event().wait()


def _report(port: int, index: int, bundles: int) -> bytes:
    edges = [round(0xFFFFFFFF * edge / bundles) for edge in range(bundles + 1)]
    stats = {
        f"acme/n{index}/0x{low:08x}_0x{high:08x}": NamespaceBundleStats(
            msg_rate_in=10.5 + index, msg_throughput_in=10_500.25, topics=3, producer_count=2
        )
        for low, high in zip(edges, edges[1:], strict=False)
    }
    return msgspec.json.encode(
        LocalBrokerData(
            web_service_url=f"http://127.0.0.1:{port}",
            pulsar_service_url="pulsar://127.0.0.1:6650",
            cpu=ResourceUsage(usage=20.0 + index, limit=200),
            last_stats=stats,
            bundles=list(stats),
            msg_rate_in=sum(load.msg_rate_in for load in stats.values()),
            msg_throughput_in=sum(load.msg_throughput_in for load in stats.values()),
            num_bundles=bundles,
            num_topics=3 * bundles,
        )
    )
