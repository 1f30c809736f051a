"""One scrape of `/metrics` of a broker with many bundles and topics: its time, its size, and what
clients notice of it.

`python -m bench scrape [--bundles 10000] [--topics 50000] [--seconds 10]`: a protocol server serves
the bundles and has the topics open, in 100 namespaces. A stock client in a process of its own sends
one message after the other; its latencies are taken without scrapes, and with a scrape a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import sys
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import uvloop

from bench._server import Alone
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.kit.conf import Live
from loadmanager.kit.metrics.page import MetricsPage
from loadmanager.kit.names import TopicName
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.telemetry import Detail, Sample, Telemetry
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.member.telemetry import bundle_samples

NAMESPACES = 100
SCRAPES = 5
SHOWN = 1000
_CLIENT = """
import json, sys, time, pulsar
url, topic, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
producer = client.create_producer(topic, batching_enabled=False)
for _ in range(200):
    producer.send(b"x" * 100)
taken, end = [], time.monotonic() + seconds
while time.monotonic() < end:
    began = time.monotonic()
    producer.send(b"x" * 100)
    taken.append(time.monotonic() - began)
    time.sleep(0.001)
client.close()
print(json.dumps(taken))
"""


def main(argv: list[str]) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench scrape", description=__doc__)
    parser.add_argument("--bundles", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of sending, each")
    args = parser.parse_args(argv)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure(args.bundles, args.topics, args.seconds))
    return 0


class Many(Alone):
    """Owns many bundles: topic i of a namespace falls into one after the other."""

    def __init__(self, port: int, bundles: int) -> None:
        super().__init__(port)
        self.bundles = [f"bench/n{i % NAMESPACES}/0x{i:08x}_0x{i + 1:08x}" for i in range(bundles)]

    async def owned_bundle(self, topic: TopicName) -> str:
        return self.bundles[int(topic.local.rpartition("-")[2]) % len(self.bundles)]


async def _measure(bundles: int, topics: int, seconds: float) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    port = int(sock.getsockname()[1])
    clock = SystemClock()
    throttling = BrokerThrottling(ThrottlingSettings(), cluster="c", now_ns=clock.monotonic_ns())
    tasks = set[asyncio.Task[Any]]()

    def spawn(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    server = BrokerServer(
        Live(MessagingSettings(retention_mb=1, backlog_bytes_max=-1)),
        clock=clock,
        spawn=spawn,
        throttling=throttling,
    )
    many = Many(port, bundles)
    for bundle in many.bundles:
        await server.open_bundle(bundle, 1)
    server.begin(many)
    for number in range(topics):
        name = f"persistent://bench/n{number % NAMESPACES}/topic-{number}"
        await server.serving.topics.host(TopicName.parse(name))
    await server.serving.topics.measure()
    await server.listen(sock)
    print(f"{bundles:,} bundles, {topics:,} topics in {NAMESPACES} namespaces\n")

    def loads() -> Iterator[Sample]:
        yield from bundle_samples(server.bundle_stats())

    plain = [lambda: server.samples(Detail(SHOWN, 0, 0))]
    for name, sources in (
        ("without topics and bundles", plain),
        ("with 1,000 topics (the default)", [lambda: server.samples(Detail(SHOWN, SHOWN, 0))]),
        ("without topics, with all bundles", [*plain, loads]),
    ):
        page = MetricsPage(Telemetry(sources), cluster="standalone", broker="127.0.0.1:8080")
        await page.render()  # the first one counts all topics, which were just opened
        times = [await _scrape(page) for _ in range(SCRAPES)]
        cpu_s = statistics.median(each.cpu_s for each in times)
        row_s = statistics.median([await _longest(page) for _ in range(SCRAPES)])
        print(
            f"{name}: {cpu_s * 1000:.0f} ms of CPU, {times[-1].size / 1e6:.2f} MB, "
            f"at most {row_s * 1000:.1f} ms in a row"
        )
        for what, scraping in (("no scrapes", False), ("a scrape a second", True)):
            print(f"  {what}: {await _latencies(port, page, seconds, scraping=scraping)}")
    await server.stop()


@dataclass(frozen=True)
class Scrape:
    """CPU seconds for a page, and its bytes."""

    cpu_s: float
    size: int


async def _scrape(page: MetricsPage) -> Scrape:
    began_s = time.thread_time()
    text, _ = await page.render()
    return Scrape(time.thread_time() - began_s, len(text))


async def _longest(page: MetricsPage) -> float:
    """The most CPU seconds for which a scrape let nothing else run."""
    turns: list[float] = []

    async def probe() -> None:
        while True:
            turns.append(time.thread_time())
            await asyncio.sleep(0)

    probing = asyncio.ensure_future(probe())
    await page.render()
    probing.cancel()
    return max(after - before for before, after in zip(turns, turns[1:], strict=False))


async def _latencies(port: int, page: MetricsPage, seconds: float, *, scraping: bool) -> str:
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CLIENT, f"pulsar://127.0.0.1:{port}"),
        *("persistent://bench/n0/topic-0", str(seconds)),
        stdout=asyncio.subprocess.PIPE,
    )

    async def scrape() -> None:
        while True:
            await asyncio.sleep(1)
            await page.render()

    scrapes = asyncio.ensure_future(scrape()) if scraping else None
    said, _ = await client.communicate()
    if scrapes is not None:
        scrapes.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await scrapes
    taken = sorted(json.loads(said.splitlines()[-1]))
    parts = [f"{name} {taken[int(share * len(taken))] * 1000:.2f} ms" for name, share in SHARES]
    return f"{len(taken):,} messages, {', '.join(parts)}"


SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
