"""The whole cluster, as its users see it: start, memory, lookups, throughput, pauses of unloads.

`python -m bench cluster [--unloads 100] [--seconds 5]`
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.standalone import Cluster, wait_for
from system.workload import client

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode

TOPIC = "persistent://public/default/bench"


def main(argv: list[str]) -> int:
    """Measure, and print one line per figure."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__)
    parser.add_argument("--unloads", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args(argv)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as cluster:
        said = next(
            line for line in cluster.log.read_text().splitlines() if "is ready after" in line
        )
        print(
            f"command to ready, seen from outside     {time.monotonic() - started_s:8.2f} s   "
            f"({said.strip()})"
        )
        time.sleep(3)
        rss = [psutil.Process(cluster.pid(index)).memory_info().rss / 1e6 for index in range(3)]
        print(f"RSS of idle brokers                     {', '.join(f'{mb:.0f}' for mb in rss)} MB")
        print(
            "lookups, one broker, 8 connections      "
            f"{asyncio.run(_lookups(cluster, args.seconds)):8.0f} /s"
        )
        for batching in (False, True):
            sent, got = _throughput(cluster, batching, args.seconds)
            print(
                f"stock client, 1 KiB, batching {'on ' if batching else 'off'}       {sent:8.0f} "
                f"published/s {got:8.0f} delivered/s"
            )
        pauses = _unload_pauses(cluster, args.unloads)
        p50, p99 = statistics.median(pauses), sorted(pauses)[max(0, int(len(pauses) * 0.99) - 1)]
        print(
            f"pause of a producer, {len(pauses)} unloads        p50 {p50:5.0f} ms   p99 "
            f"{p99:5.0f} ms   worst {max(pauses):5.0f} ms"
        )
    return 0


async def _lookups(cluster: Cluster, seconds: float) -> float:
    """Binary lookups of an owned topic, one in flight per connection."""
    owner = cluster.owner_of(TOPIC)
    counts = [0] * 8

    async def one(index: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.pulsar_port + owner)
        writer.write(encode(connect=pb.CommandConnect(client_version="bench", protocol_version=20)))
        await _frame(reader)
        question = encode(lookup=pb.CommandLookupTopic(topic=TOPIC, request_id=1))
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            writer.write(question)
            await _frame(reader)
            counts[index] += 1
        writer.close()

    await asyncio.gather(*(one(index) for index in range(8)))
    return sum(counts) / seconds


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    return await reader.readexactly(size)


def _throughput(cluster: Cluster, batching: bool, seconds: float) -> tuple[float, float]:
    """Publish for some seconds without waiting, then receive the backlog."""
    topic = f"{TOPIC}-{batching}"
    user = client(cluster.service_url())
    consumer = user.subscribe(topic, "s", receiver_queue_size=5000)
    producer = user.create_producer(
        topic,
        batching_enabled=batching,
        batching_max_messages=1000,
        max_pending_messages=5000,
        block_if_queue_full=True,
    )
    payload, done = b"x" * 1024, threading.Semaphore(0)

    def acknowledged(_result: Any, _message_id: Any) -> None:
        done.release()

    count, began_s = 0, time.monotonic()
    limit = int(200e6 / 1024)  # within the topic's backlog limit
    while time.monotonic() - began_s < seconds and count < limit:
        producer.send_async(payload, acknowledged)
        count += 1
    producer.flush()
    for _ in range(count):
        done.acquire()
    published = count / (time.monotonic() - began_s)
    began_s = time.monotonic()
    for _ in range(count):
        consumer.acknowledge(consumer.receive(timeout_millis=10_000))
    delivered = count / (time.monotonic() - began_s)
    user.close()
    return published, delivered


def _unload_pauses(cluster: Cluster, unloads: int) -> list[float]:
    """The longest times between two acknowledged sends around each unload, in ms.

    The unloads have a destination, as those of the leader's shedding.
    """
    topic = f"{TOPIC}-pause"
    bundle = cluster.get(0, "/lookup/v2/topic/" + topic.replace("://", "/") + "/bundle")
    user = client(cluster.service_url())
    producer = user.create_producer(topic)
    stamps: list[float] = []
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            producer.send(b"x")
            stamps.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=produce)
    thread.start()
    pauses = []
    try:
        for _ in range(unloads):
            owner = cluster.owner_of(topic)
            target = cluster.broker_id((owner + 1) % cluster.count)
            before = len(stamps)
            wait_for(lambda count=before: len(stamps) > count + 20, "the producer sends")
            before = len(stamps)
            status, body = cluster.request(
                owner,
                "PUT",
                f"/admin/v2/namespaces/public/default/{bundle}/unload?destinationBroker={target}",
            )
            assert status == 204, body
            wait_for(lambda count=before: len(stamps) > count + 20, "the producer goes on")
            around = stamps[max(0, before - 5) :]
            pauses.append(
                max(after - earlier for earlier, after in zip(around, around[1:], strict=False))
                * 1000
            )
    finally:
        stop.set()
        thread.join()
        user.close()
    return pauses
