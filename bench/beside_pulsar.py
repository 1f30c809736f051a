"""A broker beside a real Pulsar 4.0 on one machine: the same clients, in turns.

`python -m bench beside-pulsar [--rounds 3] [--seconds 3]`: each round starts one broker of ours and
`bin/pulsar standalone`, in an order that alternates, and measures one while the other is stopped.
Prints the medians and their ratio. Needs Java 17 and Maven, which downloads Pulsar once.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import maven
from clients.pulsar import Standalone, distribution
from clusters.standalone import Cluster, wait_for
from system.raw import Raw
from system.workload import client

from bench.protocol import RECEIPT, _frame, _publish
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode

TOPIC = "public/default/bench"
NAME = f"persistent://{TOPIC}"
CONNECTIONS, IN_FLIGHT = 4, 32
DRAINED = 20_000
UNLOADS = 20
LIMIT = 1000
FIGURES = {
    "start": "s until the first message is published",
    "memory": "MB of the broker when idle",
    "memory of the store": "MB (Pulsar: in the same process)",
    "lookups": "binary lookups/s, 4 connections × 32 in flight",
    "CPU of a lookup": "µs",
    "HTTP lookups": "/s, 4 connections",
    "sends": "1 KiB, unbatched /s",
    "p50": "ms from SEND to receipt at about 1,000/s, 1 KiB",
    "p99": "ms",
    "drain": "messages/s of a backlog, 100 B, unbatched",
    "pause p50": f"ms without a receipt around an unload, {UNLOADS} unloads",
    "pause max": "ms",
    "limit": f"sent/limit at {LIMIT}/s over 6 s",
    "limit, first second": "",
}


class Target:
    """A running broker, one of the two."""

    def __init__(self, running: Cluster | Standalone) -> None:
        self.pulsar_port = running.pulsar_port
        self.web = f"http://127.0.0.1:{running.http_port}"
        self.url = f"pulsar://127.0.0.1:{self.pulsar_port}"
        if isinstance(running, Cluster):
            self.process = psutil.Process(running.pid(0))
            others = psutil.Process(running.process.pid).children(recursive=True)
            self.store = [one for one in others if one.pid != self.process.pid]
        else:
            self.process, self.store = psutil.Process(running.process.pid), []

    def request(self, method: str, path: str, body: Any = None) -> str:
        """The body of a successful answer."""
        asked = urllib.request.Request(
            self.web + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return str(answer.read().decode())

    def cpu_s(self) -> float:
        """CPU time of the broker so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


def main(argv: list[str]) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench beside-pulsar", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each throughput")
    args = parser.parse_args(argv)
    if (reason := maven.missing()) is not None:
        print(reason)
        return 1
    home = distribution()
    found: dict[str, list[dict[str, float]]] = {"ours": [], "pulsar": []}
    for number in range(args.rounds):
        for name in ("ours", "pulsar") if number % 2 == 0 else ("pulsar", "ours"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder)
                running = Cluster(path, brokers=1) if name == "ours" else Standalone(home, path)
                found[name].append(_measure(running, args.seconds))
            print(f"round {number + 1}: {name} measured", file=sys.stderr, flush=True)
    print(f"{'':24}{'ours':>10}{'Pulsar':>10}{'ratio':>8}  medians of {args.rounds} rounds")
    for figure, meaning in FIGURES.items():
        ours, pulsar = (statistics.median(one[figure] for one in found[name]) for name in found)
        ratio = f"{ours / pulsar:8.2f}" if pulsar else " " * 8
        print(f"{figure:24}{ours:10.4g}{pulsar:10.4g}{ratio}  {meaning}")
    return 0


def _measure(running: Cluster | Standalone, seconds: float) -> dict[str, float]:
    began_s = time.monotonic()
    with running:
        target = Target(running)
        user = client(target.url)
        user.create_producer(NAME).send(b"x")
        figures = {"start": time.monotonic() - began_s}
        time.sleep(3)
        figures["memory"] = target.process.memory_info().rss / 1e6
        figures["memory of the store"] = sum(one.memory_info().rss for one in target.store) / 1e6
        question = encode(lookup=pb.CommandLookupTopic(topic=NAME, request_id=1))
        _asked(target, question, _frames, seconds)  # warm
        figures["lookups"], figures["CPU of a lookup"] = _asked(target, question, _frames, seconds)
        get = f"GET /lookup/v2/topic/persistent/{TOPIC} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        figures["HTTP lookups"], _ = _asked(target, get, _bodies, seconds)
        figures["sends"] = _publish(target, 1, 1024, seconds)
        figures["p50"], figures["p99"] = _latency(target)
        figures["drain"] = _drain(user)
        figures["pause p50"], figures["pause max"] = _pauses(target, user)
        figures["limit"], figures["limit, first second"] = _limit(target)
        user.close()
    return figures


def _asked(
    target: Target, question: bytes, count: Callable[[bytes], tuple[int, int]], seconds: float
) -> tuple[float, float]:
    """Answers/s, and µs of CPU of the broker for each."""
    http = question.startswith(b"GET")
    port = int(target.web.rpartition(":")[2]) if http else target.pulsar_port
    window = 1 if http else IN_FLIGHT
    answered, rests = 0, {}
    with selectors.DefaultSelector() as waiting:
        for _ in range(CONNECTIONS):
            if http:
                sock = socket.create_connection(("127.0.0.1", port))
            else:
                raw = Raw("127.0.0.1", port)
                raw.greet()
                sock = raw.socket
            sock.sendall(question * window)
            waiting.register(sock, selectors.EVENT_READ)
            rests[sock] = b""
        cpu_s, began_s = target.cpu_s(), time.monotonic()
        while time.monotonic() - began_s < seconds:
            for key, _events in waiting.select(0.1):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                data = rests[sock] + sock.recv(1 << 16)
                number, used = count(data)
                rests[sock] = data[used:]
                answered += number
                sock.sendall(question * number)
        elapsed_s, cpu_s = time.monotonic() - began_s, target.cpu_s() - cpu_s
        for sock in rests:
            sock.close()
    return answered / elapsed_s, cpu_s / answered * 1e6


def _frames(data: bytes) -> tuple[int, int]:
    """The number of whole frames, and their bytes."""
    number = at = 0
    while len(data) - at >= 4:
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        number, at = number + 1, end
    return number, at


def _bodies(data: bytes) -> tuple[int, int]:
    """1 and the bytes of the first HTTP answer; zeros if no whole answer is there."""
    head, found, _ = data.partition(b"\r\n\r\n")
    if not found:
        return 0, 0
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    end = len(head) + 4 + length
    return (1, end) if len(data) >= end else (0, 0)


def _latency(target: Target) -> tuple[float, float]:
    """p50 and p99 in ms."""
    load = {"url": target.url, "topic": f"{NAME}-ping", "mode": "ping"}
    load |= {"sizes": [1024], "count": 3000}
    target.request("GET", f"/lookup/v2/topic/persistent/{TOPIC}-ping")
    command = [sys.executable, str(Path(__file__).with_name("_load.py")), json.dumps(load)]
    printed = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout
    took = sorted(json.loads(printed.splitlines()[0]))
    return took[len(took) // 2] / 1000, took[len(took) * 99 // 100] / 1000


def _drain(user: Any) -> float:
    """Messages/s of the stock client that receives and acknowledges a backlog."""
    user.subscribe(f"{NAME}-drain", "s").close()
    producer = user.create_producer(
        f"{NAME}-drain", batching_enabled=False, block_if_queue_full=True
    )
    for _ in range(DRAINED):
        producer.send_async(b"x" * 100, lambda _result, _id: None)
    producer.flush()
    began_s = time.monotonic()
    consumer = user.subscribe(f"{NAME}-drain", "s", receiver_queue_size=5000)
    for _ in range(DRAINED):
        consumer.acknowledge(consumer.receive(10_000))
    return DRAINED / (time.monotonic() - began_s)


def _pauses(target: Target, user: Any) -> tuple[float, float]:
    """Median and longest time between two receipts around an unload, in ms."""
    topic = f"{TOPIC}-pause"
    producer = user.create_producer(f"persistent://{topic}")
    bundle = target.request("GET", f"/lookup/v2/topic/persistent/{topic}/bundle")
    stamps: list[float] = []
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            producer.send(b"x")
            stamps.append(time.monotonic())
            time.sleep(0.001)

    def more(count: int = 20) -> None:
        before = len(stamps)
        wait_for(lambda: len(stamps) > before + count, "the producer sends")

    thread, pauses = threading.Thread(target=produce), []
    thread.start()
    try:
        for _ in range(UNLOADS):
            more()
            before = len(stamps)
            target.request("PUT", f"/admin/v2/namespaces/public/default/{bundle}/unload")
            more()
            around = stamps[before - 5 :]
            gaps = [later - one for one, later in zip(around, around[1:], strict=False)]
            pauses.append(max(gaps) * 1000)
    finally:
        stop.set()
        thread.join()
    return statistics.median(pauses), max(pauses)


def _limit(target: Target) -> tuple[float, float]:
    """Messages sent in 6 s, and in the first, over the limit."""
    topic = f"{TOPIC}-limit"
    target.request("PUT", f"/admin/v2/persistent/{topic}")
    rate = {"publishThrottlingRateInMsg": LIMIT, "publishThrottlingRateInByte": -1}
    target.request("POST", f"/admin/v2/persistent/{topic}/publishRate", rate)
    time.sleep(2)  # Pulsar reads it from a topic
    with Raw("127.0.0.1", target.pulsar_port) as raw:
        raw.greet()
        raw.produce(f"persistent://{topic}")
        frames = b"".join(_frame(1 << 20 | number, 1, 10) for number in range(8 * LIMIT))
        thread = threading.Thread(target=_send_all, args=(raw.socket, frames))
        began_s = time.monotonic()
        thread.start()
        first = count = 0
        while (elapsed_s := time.monotonic() - began_s) < 6:
            try:
                frame = raw.take()
            except TimeoutError:
                break
            count += frame.command.type == RECEIPT[1]
            first = count if elapsed_s < 1 else first
        raw.socket.shutdown(socket.SHUT_RDWR)
        thread.join()
    return count / LIMIT / 6, first / LIMIT


def _send_all(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except OSError:
        return  # the measurement is over
