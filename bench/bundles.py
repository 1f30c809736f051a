"""Many bundles on three brokers: what it takes to place them all, to lose a broker, and to start.

`python -m bench bundles [--namespaces 1000] [--bundles 100] [--set KEY=VALUE …]`: every bundle is
looked up, as clients do, and so gets an owner. Then a broker is killed (kill -9): until all bundles
have owners again, as the store says; with the modular load manager, whose bundles are placed by
lookups, those of the dead broker are looked up again. Then that broker is started again. `--set
loadManagerClassName=…` chooses the load manager. CPU is that of the three brokers; operations are
requests to ZooKeeper, transactions its changes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from kazoo.client import KazooClient

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.processes import Fleet
from system.raw import CONNECT

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import FrameReader, encode
from loadmanager.engine.bundles.ranges import NamespaceBundles, equal_boundaries
from loadmanager.kit.names import NamespaceName

AT_ONCE = 256
"""Lookups under way."""
AGAIN_S = 0.2
SESSION_S = 10.0
DEFAULTS = {
    "loadBalancerReportUpdateMinIntervalMillis": "5000",
    "loadManagerHistoryIntervalSeconds": "60",
}
"""What tests set to less."""
PING, LOOKUP_RESPONSE = 18, 24
REDIRECT, CONNECT_THERE = 0, 1


def main(argv: list[str]) -> int:
    """Measure, and print a line for each step."""
    parser = argparse.ArgumentParser(prog="python -m bench bundles", description=__doc__)
    parser.add_argument("--namespaces", type=int, default=1000)
    parser.add_argument("--bundles", type=int, default=100, help="of each namespace")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args(argv)
    settings = {**DEFAULTS, **dict(pair.split("=", 1) for pair in args.set)}
    spaces = [f"acme/bundles-{number}" for number in range(args.namespaces)]
    topics: dict[str, str] = {}
    for space in spaces:
        topics |= _topics(space, args.bundles)
    print(f"{'step':34} {'s':>8} {'CPU s':>8} {'operations':>11} {'transactions':>13} {'MB':>14}")
    with (
        tempfile.TemporaryDirectory(dir=".") as folder,
        Fleet(Path(folder), session_s=SESSION_S, settings=settings) as fleet,
    ):
        with _step(fleet, f"create {len(spaces)} namespaces"):
            for space in spaces:
                fleet.create_namespace(space, args.bundles)
        with _step(fleet, f"look up {len(topics)} bundles"):
            asyncio.run(_look_up(fleet, list(topics.values()), range(fleet.count)))
        victim = fleet.follower()
        lost = [topics[bundle] for bundle in fleet.owned(victim)]
        left = [index for index in range(fleet.count) if index != victim]
        with _step(fleet, f"kill -9 of the owner of {len(lost)}"):
            fleet.kill(victim)
            asyncio.run(_look_up(fleet, lost, left, fleet.pulsar_port + victim))
        with _step(fleet, "start it again"):
            fleet.start(victim)
    return 0


def _topics(space: str, count: int) -> dict[str, str]:
    """Each bundle of a namespace, with a topic in it."""
    bundles = NamespaceBundles(NamespaceName.parse(space), equal_boundaries(count))
    found: dict[str, str] = {}
    for number in itertools.count():
        topic = f"persistent://{space}/t{number}"
        found.setdefault(bundles.bundle_of_topic(topic), topic)
        if len(found) == count:
            break
    return found


# What is measured


@contextmanager
def _step(fleet: Fleet, name: str) -> Iterator[None]:
    before, began_s = _used(fleet), time.monotonic()
    operations, transactions = _server(fleet)
    yield
    elapsed_s, after = time.monotonic() - began_s, _used(fleet)
    cpu_s = sum(cpu_s - before.get(pid, (0.0, 0))[0] for pid, (cpu_s, _) in after.items())
    later, changed = _server(fleet)
    memory = "/".join(f"{rss / 1e6:.0f}" for _, rss in after.values())
    print(
        f"{name:34} {elapsed_s:8.1f} {cpu_s:8.1f} {(later - operations) / elapsed_s:9.0f}/s "
        f"{(changed - transactions) / elapsed_s:11.0f}/s {memory:>14}",
        flush=True,
    )


def _used(fleet: Fleet) -> dict[int, tuple[float, int]]:
    """Process of each broker that runs → its CPU seconds and its memory."""
    used = {}
    for index in range(fleet.count):
        if fleet.alive(f"broker-{index}"):
            broker = psutil.Process(fleet.process_of(index).pid)
            times = broker.cpu_times()
            used[broker.pid] = times.user + times.system, broker.memory_info().rss
    return used


def _server(fleet: Fleet) -> tuple[int, int]:
    """Requests that ZooKeeper received so far, and the number of its last transaction."""
    shell = KazooClient(f"127.0.0.1:{fleet.zookeeper.port}")
    shell.start()
    try:
        told = shell.command(b"srvr")
    finally:
        shell.stop()
        shell.close()
    received = re.search(r"Received: (\d+)", told)
    transaction = re.search(r"Zxid: 0x([0-9a-f]+)", told)
    assert received is not None
    assert transaction is not None
    return int(received[1]), int(transaction[1], 16) & 0xFFFFFFFF


# Lookups


class Connection:
    """Asks one broker many questions at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[pb.CommandLookupTopicResponse]] = {}
        self._numbers = itertools.count(1)
        writer.write(CONNECT)

    async def read(self) -> None:
        """Answer pings, and hand out answers, until the broker hangs up."""
        frames = FrameReader(1 << 24)
        while data := await self._reader.read(1 << 16):
            frames.feed(data)
            while (frame := frames.take()) is not None:
                if frame.command.type == PING:
                    self._writer.write(encode(pong=pb.CommandPong()))
                elif frame.command.type == LOOKUP_RESPONSE:
                    answer = frame.command.lookup_response
                    self._waiting.pop(answer.request_id).set_result(answer)

    async def ask(self, topic: str, *, authoritative: bool) -> pb.CommandLookupTopicResponse:
        """Look up a topic."""
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        question = pb.CommandLookupTopic(
            topic=topic, request_id=number, authoritative=authoritative
        )
        self._writer.write(encode(lookup=question))
        return await answered


async def _look_up(
    fleet: Fleet, topics: Sequence[str], asked: Sequence[int], dead: int = 0
) -> None:
    """Until each topic has an owner, which is not the broker at port `dead`."""
    connections = {}
    readers = []
    for index in asked:
        port = fleet.pulsar_port + index
        connections[port] = Connection(*await asyncio.open_connection("127.0.0.1", port))
        readers.append(asyncio.ensure_future(connections[port].read()))
    ports, left = list(connections), iter(enumerate(topics))

    async def place() -> None:
        for number, topic in left:
            port, authoritative = ports[number % len(ports)], False
            while True:
                answer = await connections[port].ask(topic, authoritative=authoritative)
                to = int(answer.brokerServiceUrl.rpartition(":")[2] or 0)
                if answer.response == CONNECT_THERE and to != dead:
                    break
                if answer.response == REDIRECT and to != dead:
                    port, authoritative = to, answer.authoritative
                else:  # not yet: the session of the dead broker lasts
                    port, authoritative = ports[number % len(ports)], False
                    await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*(place() for _ in range(AT_ONCE)))
    for reader in readers:
        reader.cancel()
