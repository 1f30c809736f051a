"""CPU time and memory of a broker with many producers, consumers, topics and connections.

`python -m bench scale [--kind producers …] [--sizes 0.25,0.5,1]`: for each kind, clusters of one
broker get a part of 20,000 producers of one topic, 20,000 consumers of a shared subscription, 8,000
of a failover subscription, 20,000 topics, or 10,000 connections. All attach, are served a message
each, and go. Growth is linear when the time of each stays the same.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.standalone import Cluster
from system.raw import Raw, a_send

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode

TOPIC = "persistent://public/default/scale"
AT_ONCE = 200
"""Requests in progress on a connection."""
EACH_CONNECTION = 1_000
SETTINGS = {"maxUnackedMessagesPerConsumer": "0", "keepAliveIntervalSeconds": "600"}


def main(argv: list[str]) -> int:
    """Measure, and print a line for each kind and size."""
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these kinds")
    parser.add_argument("--sizes", default="0.25,0.5,1", help="parts of the full number")
    args = parser.parse_args(argv)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{'kind':12} {'number':>7} {'CPU s':>7} {'µs each':>8} {'MiB':>6} {'KiB each':>9}")
    for kind in args.kind or KINDS:
        most, load = KINDS[kind]
        for part in map(float, args.sizes.split(",")):
            number = int(most * part)
            cpu_s, held_bytes = _measured(number, load)
            print(
                f"{kind:12} {number:7d} {cpu_s:7.2f} {cpu_s / number * 1e6:8.0f} "
                f"{held_bytes / 2**20:6.0f} {held_bytes / number / 1024:9.1f}",
                flush=True,
            )
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return 0


Load = Callable[[Cluster, int, ExitStack], Iterator[None]]


def _measured(number: int, load: Load) -> tuple[float, int]:
    """CPU seconds of the broker for everything, and bytes more than before while all are there."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder), brokers=1, settings=SETTINGS) as cluster,
        ExitStack() as connections,
    ):
        broker = psutil.Process(cluster.pid(0))
        steps = load(cluster, number, connections)
        next(steps)  # the first of its kind is there
        begun, memory = broker.cpu_times(), broker.memory_info().rss
        next(steps)  # all are there
        held_bytes = broker.memory_info().rss - memory
        for _ in steps:
            pass
        ended = broker.cpu_times()
        return ended.user + ended.system - begun.user - begun.system, held_bytes


def _connect(cluster: Cluster, connections: ExitStack) -> Raw:
    raw = connections.enter_context(Raw("127.0.0.1", cluster.pulsar_port))
    raw.socket.settimeout(120)
    raw.greet()
    return raw


def _exchange(raw: Raw, frames: list[bytes]) -> None:
    """Send requests, some at once, and read an answer to each."""
    for first in range(0, len(frames), AT_ONCE):
        part = frames[first : first + AT_ONCE]
        raw.send(*part)
        for _ in part:
            answer = raw.take().command
            assert answer.type not in (14, 16), answer  # ERROR, CLOSE_CONSUMER


def _lookup(raw: Raw, topic: str) -> None:
    _exchange(
        raw, [encode(lookup=pb.CommandLookupTopic(topic=topic, request_id=1, authoritative=True))]
    )


def _parts(number: int) -> Iterator[range]:
    for first in range(0, number, EACH_CONNECTION):
        yield range(first, min(first + EACH_CONNECTION, number))


def _producer(index: int, topic: str = TOPIC) -> bytes:
    return encode(producer=pb.CommandProducer(topic=topic, producer_id=index, request_id=index))


def _producers(cluster: Cluster, number: int, connections: ExitStack) -> Iterator[None]:
    raw = _connect(cluster, connections)
    _lookup(raw, TOPIC)
    _exchange(raw, [_producer(number)])
    yield
    clients = []
    for part in _parts(number):
        clients.append(raw := _connect(cluster, connections))
        _exchange(raw, [_producer(index) for index in part])
        _exchange(raw, [a_send(0, producer_id=index) for index in part])
    yield
    for raw, part in zip(clients, _parts(number), strict=True):
        closing = (pb.CommandCloseProducer(producer_id=index, request_id=index) for index in part)
        _exchange(raw, [encode(close_producer=close) for close in closing])


def _topics(cluster: Cluster, number: int, connections: ExitStack) -> Iterator[None]:
    raw = _connect(cluster, connections)
    _lookup(raw, TOPIC)
    _exchange(raw, [_producer(number)])
    bundles = [f"{TOPIC}-{index}" for index in range(100)]
    for topic in bundles:  # every bundle has an owner afterwards
        _lookup(raw, topic)
    yield
    clients = []
    for part in _parts(number):
        clients.append(raw := _connect(cluster, connections))
        _exchange(raw, [_producer(index, f"{TOPIC}-{index}") for index in part])
        _exchange(raw, [a_send(0, producer_id=index) for index in part])
    yield
    for raw, part in zip(clients, _parts(number), strict=True):
        closing = (pb.CommandCloseProducer(producer_id=index, request_id=index) for index in part)
        _exchange(raw, [encode(close_producer=close) for close in closing])


def _consumers(kind: int) -> Load:
    """Consumers of one subscription; each takes one message, acknowledges it, and closes."""

    def load(cluster: Cluster, number: int, connections: ExitStack) -> Iterator[None]:
        raw = _connect(cluster, connections)
        _lookup(raw, TOPIC)
        _exchange(raw, [_producer(1)])
        yield
        clients = []
        for part in _parts(number):
            clients.append(_connect(cluster, connections))
            asked = [
                pb.CommandSubscribe(
                    topic=TOPIC, subscription="s", subType=kind, consumer_id=index, request_id=index
                )
                for index in part
            ]
            for first in range(0, len(asked), AT_ONCE):
                clients[-1].send(*(encode(subscribe=one) for one in asked[first : first + AT_ONCE]))
                wanted = len(asked[first : first + AT_ONCE])
                while wanted:
                    wanted -= clients[-1].take().command.type == SUCCESS
        yield
        for client, part in zip(clients, _parts(number), strict=True):
            for index in part:
                _serve_one(raw, client, index)

    return load


def _serve_one(producing: Raw, consuming: Raw, index: int) -> None:
    """The consumer is the only one that wants a message, or the active one."""
    consuming.send(encode(flow=pb.CommandFlow(consumer_id=index, messagePermits=1)))
    _exchange(producing, [a_send(index)])
    while (command := consuming.take().command).type != MESSAGE:
        pass
    ack = pb.CommandAck(consumer_id=index, ack_type=0, message_id=[command.message.message_id])
    close = pb.CommandCloseConsumer(consumer_id=index, request_id=index)
    consuming.send(encode(ack=ack), encode(close_consumer=close))
    while consuming.take().command.type != SUCCESS:
        pass


SUCCESS, MESSAGE = 13, 9


def _connections(cluster: Cluster, number: int, connections: ExitStack) -> Iterator[None]:
    _connect(cluster, connections)
    yield
    for _ in range(number):
        _connect(cluster, connections)
    yield
    connections.close()


KINDS: dict[str, tuple[int, Load]] = {
    "producers": (20_000, _producers),
    "shared": (20_000, _consumers(1)),
    "failover": (8_000, _consumers(2)),
    "topics": (20_000, _topics),
    "connections": (10_000, _connections),
}
