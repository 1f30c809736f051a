"""Stored topics on one broker: throughput of prebuilt frames, and publish latency over 64 topics,
in memory and with each way to make messages durable, beside a plain loop of the same writes.

`python -m bench storing [--seconds 5] [--rate 5000] [--topics 64] [--stores memory,always]`. The
load comes from this process. The plain loop writes as many bytes as the broker wrote in an average
commit to one file, syncs it, and starts again; it has the disk for itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.standalone import Cluster
from system.raw import Raw

from bench.protocol import _frame, _publish
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode

STORES = ("memory", "always", "interval", "never")
Counters = dict[str, float]


def main(argv: list[str]) -> int:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m bench storing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--topics", type=int, default=64)
    parser.add_argument("--stores", default="memory,interval,always")
    args = parser.parse_args(argv)
    sys.setswitchinterval(0.000_2)  # the thread that reads receipts shall not wait for the sender
    for store in args.stores.split(","):
        settings = {"backlogQuotaDefaultLimitBytes": "-1", "defaultRetentionSizeInMB": "16"}
        if store == "memory":
            settings["loadManagerStorageDirectory"] = ""
        else:
            settings["loadManagerStorageSync"] = store
        with (
            tempfile.TemporaryDirectory(dir=".") as folder,
            Cluster(Path(folder), brokers=1, settings=settings) as cluster,
        ):
            _latency(cluster, store, args.topics, args.rate, args.seconds)
            for messages in (1, 100):
                _throughput(cluster, store, messages, args.seconds)
    return 0


def _counters(cluster: Cluster) -> Counters:
    """The storage's metrics."""
    url = f"http://127.0.0.1:{cluster.http_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {
        line.partition("{")[0].removeprefix("loadmanager_storage_"): float(line.split()[-1])
        for line in lines
        if line.startswith("loadmanager_storage_")
    }


def _since(cluster: Cluster, before: Counters) -> Counters:
    return {name: value - before.get(name, 0) for name, value in _counters(cluster).items()}


def _throughput(cluster: Cluster, store: str, messages: int, seconds: float) -> None:
    before, began_s = _counters(cluster), time.monotonic()
    rate = _publish(cluster, messages, 100, seconds)
    elapsed_s = time.monotonic() - began_s
    spent = _since(cluster, before)
    name = "100 B unbatched" if messages == 1 else "batches of 100 x 100 B"
    print(f"{store:9} {name:24} {rate * messages:12.0f} msg/s" + _shares(spent, elapsed_s))
    if store == "always" and spent.get("commits_total"):
        size = int(spent["committed_bytes_total"] / spent["commits_total"])
        broker = spent["committed_bytes_total"] / elapsed_s
        plain = _plain_loop(size, min(seconds, 3.0))
        print(
            f"{'':9} {'':24} the same writes in a plain loop: {plain / 1e6:.1f} MB/s; the broker "
            f"writes {broker / 1e6:.1f} MB/s, {broker / plain:.2f} of that"
        )


def _shares(spent: Counters, elapsed_s: float) -> str:
    if not spent.get("commits_total"):
        return ""
    return (
        f"   {spent['commits_total'] / elapsed_s:6.0f} commits/s of "
        f"{spent['committed_bytes_total'] / spent['commits_total'] / 1024:.1f} KiB; "
        f"{spent['sync_seconds_total'] / elapsed_s:.0%} of the time to make them durable, "
        f"{(spent['commit_seconds_total'] - spent['sync_seconds_total']) / elapsed_s:.0%} to write"
    )


def _plain_loop(size: int, seconds: float) -> float:
    """Bytes/s of a loop that appends and syncs."""
    data, written = b"x" * max(size, 1), 0
    with tempfile.NamedTemporaryFile(dir=".") as file:
        found, began_s = file.fileno(), time.monotonic()
        while time.monotonic() < began_s + seconds:
            written += os.write(found, data)
            os.fdatasync(found)
        return written / (time.monotonic() - began_s)


def _latency(cluster: Cluster, store: str, topics: int, rate: int, seconds: float) -> None:
    """From SEND to receipt, of messages of 100 B, one after the other to each topic in turn."""
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        frames = []
        for number in range(topics):
            topic = f"persistent://public/default/paced-{number}"
            raw.send(
                encode(lookup=pb.CommandLookupTopic(topic=topic, request_id=1, authoritative=True))
            )
            raw.take()
            raw.send(
                encode(
                    producer=pb.CommandProducer(topic=topic, producer_id=number + 1, request_id=2)
                )
            )
            raw.take()
            frame = _frame(1 << 20, 1, 100)
            frames.append(_for_producer(frame, number + 1))
        before, began_s = _counters(cluster), time.monotonic()
        took = _paced(raw, frames, rate, seconds)
        shares = _shares(_since(cluster, before), time.monotonic() - began_s)
    took.sort()
    points = {name: took[int(len(took) * part)] for name, part in (("p50", 0.5), ("p99", 0.99))}
    late = took[-max(len(took) // 1000, 1)]
    print(
        f"{store:9} {len(took) / seconds:6.0f} msg/s, {topics} topics    p50 {points['p50']:.1f} "
        f"ms, p99 {points['p99']:.1f} ms, p99.9 {late:.1f} ms, mean "
        f"{statistics.fmean(took):.1f} ms{shares}"
    )


def _for_producer(frame: bytes, producer_id: int) -> bytes:
    """A SEND of another producer of the connection."""
    size = int.from_bytes(frame[4:8], "big")
    command = pb.BaseCommand.FromString(frame[8 : 8 + size])
    command.send.producer_id = producer_id
    changed, tail = command.SerializeToString(), frame[8 + size :]
    head = (4 + len(changed) + len(tail)).to_bytes(4, "big") + len(changed).to_bytes(4, "big")
    return head + changed + tail


def _paced(raw: Raw, frames: list[bytes], rate: int, seconds: float) -> list[float]:
    """Milliseconds of each message; a sender that is late catches up."""
    waiting = [deque[float]() for _ in range(len(frames) + 1)]
    took: list[float] = []
    done = threading.Event()

    def receive() -> None:
        while not done.is_set() or any(waiting):
            receipt = raw.take().command.send_receipt
            took.append((time.monotonic() - waiting[receipt.producer_id].popleft()) * 1e3)

    receiver = threading.Thread(target=receive)
    receiver.start()
    began_s = time.monotonic()
    for number in range(int(rate * seconds)):
        due_s = began_s + number / rate
        if (left_s := due_s - time.monotonic()) > 0:
            time.sleep(left_s)
        index = number % len(frames)
        waiting[index + 1].append(due_s)
        raw.socket.sendall(frames[index])
    done.set()
    receiver.join()
    return took
