"""Bytes that no client should send: the connection ends, if possible after an ERROR, and the broker
goes on.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from clusters.standalone import Cluster, wait_for
from system.raw import TOPIC, Raw, a_send

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode

CLIENTS = 10
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker for all tests."""
    with Cluster(tmp_path_factory.mktemp("cluster"), brokers=1) as running:
        yield running


@pytest.fixture(autouse=True)
def unharmed(cluster: Cluster) -> Iterator[None]:
    """After each test the broker serves a well-behaved client."""
    yield
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        raw.produce()
        raw.send(a_send(0))
        frame = raw.take()
        assert frame.command.type == 7


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", 0x7FFFFFFF),
        struct.pack(">I", 0) + b"\x00" * 8,
        struct.pack(">II", 10, 10) + b"\xff" * 6,
        struct.pack(">II", 8, 500) + b"1234",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">II", 8, 4) + b"\x08\x06\x32\x00",
        encode(
            message=pb.CommandMessage(
                consumer_id=1, message_id=pb.MessageIdData(ledgerId=1, entryId=1)
            ),
        ),
    ],
    ids=[
        "oversize",
        "too short",
        "no protobuf",
        "command beyond frame",
        "http",
        "missing fields",
        "a server's command",
    ],
)
def test_bad_frames_end_the_connection(cluster: Cluster, data: bytes) -> None:
    """An ERROR, and the broker hangs up."""
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        raw.send(data)
        frame = raw.take()
        assert frame.command.type == 14
        assert frame.command.error.message
        assert raw.ended()


def test_truncated_frame(cluster: Cluster) -> None:
    """Clients that go away in the middle of a frame leave nothing behind: no connection, no
    producer, no part of the message, and no open file.
    """
    name = "public/default/truncated"

    def stats() -> Any:
        return cluster.get(0, f"/admin/v2/persistent/{name}/stats")

    broker = psutil.Process(cluster.pid(0))
    before = connections(cluster)
    files = broker.num_fds()
    for _ in range(CLIENTS):
        with Raw("127.0.0.1", cluster.pulsar_port) as raw:
            raw.greet()
            raw.produce(f"persistent://{name}")
            raw.send(a_send(0)[:-3])
            assert stats()["publishers"]
            wait_for(lambda: connections(cluster) > 0, "it is counted, also on a page that is kept")
    wait_for(lambda: not stats()["publishers"], "the producer is gone")
    wait_for(lambda: connections(cluster) <= before, "the connection is gone")
    assert (stats()["msgInCounter"], stats()["storageSize"]) == (0, 0)
    wait_for(lambda: broker.num_fds() < files + CLIENTS, "their files are closed")


def connections(cluster: Cluster) -> int:
    """How many clients are connected."""
    (count,) = re.findall(
        r"^pulsar_active_connections{.*} (\S+)$", cluster.get(0, "/metrics"), re.MULTILINE
    )
    return int(float(count))


def test_before_connect(cluster: Cluster) -> None:
    """Nothing is served before CONNECT."""
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.send(encode(lookup=pb.CommandLookupTopic(topic=TOPIC, request_id=1)))
        frame = raw.take()
        assert frame.command.type == 14
        assert raw.ended()


def test_wrong_checksum(cluster: Cluster) -> None:
    """A message with a wrong checksum is refused alone; the next is stored."""
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        raw.produce()
        raw.send(a_send(0, spoil=True), a_send(1))
        frame = raw.take()
        assert (frame.command.type, frame.command.send_error.error) == (8, pb.ChecksumError)
        frame = raw.take()
        assert (frame.command.type, frame.command.send_receipt.sequence_id) == (7, 1)


def test_unknown_command_with_a_request_id(cluster: Cluster) -> None:
    """A command that is not served is refused by its request id, and the connection goes on."""
    body = b"\x08\x32\x92\x03\x02\x08\x07"  # NEW_TXN: type 50, field 50
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        for data in (
            struct.pack(">II", 4 + len(body), len(body)) + body,
            encode(success=pb.CommandSuccess(request_id=7)),
        ):
            raw.send(data)
            frame = raw.take()
            assert frame.command.type == 14
            assert (frame.command.error.request_id, frame.command.error.error) == (
                7,
                pb.UnsupportedVersionError,
            )


def test_send_of_an_unknown_producer(cluster: Cluster) -> None:
    """A SEND of a producer that never was ends the connection."""
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        raw.send(a_send(0, producer_id=99))
        frame = raw.take()
        assert frame.command.type == 14
        assert raw.ended()


def test_names_that_are_none(cluster: Cluster) -> None:
    """Lookups, producers and consumers of impossible or missing names get the error of their own
    kind.
    """
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        for topic in ("persistent://public/nowhere/x", "nonsense://x"):
            raw.send(encode(lookup=pb.CommandLookupTopic(topic=topic, request_id=4)))
            frame = raw.take()
            assert (frame.command.type, frame.command.lookup_response.response) == (24, 2)
            raw.send(encode(producer=pb.CommandProducer(topic=topic, producer_id=9, request_id=5)))
            frame = raw.take()
            assert (frame.command.type, frame.command.error.request_id) == (14, 5)


def test_ping(cluster: Cluster) -> None:
    """PING is answered at once."""
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        raw.send(encode(ping=pb.CommandPing()))
        frame = raw.take()
        assert frame.command.type == 19
