"""A hostile client for bench/neighbours.py: one tenant that does its worst for a while.

The one argument is a JSON object: kind, host, port, web, token, namespace, seconds. It prints a
JSON object with what it did.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import COMMAND_TYPES, Frame, FrameReader, encode

CONNECTIONS = 8
AT_ONCE = 100
"""Requests in one write."""
SCRAPERS = 32
LARGE_BYTES = 4 << 20
SCHEMA_FIELDS = 7_500
"""Of an Avro schema of about 250 KB."""
AVRO = 4
RECEIPT, PING = COMMAND_TYPES["send_receipt"], COMMAND_TYPES["ping"]


class Wire:
    """A connection that proves a role, if it has a token."""

    def __init__(self, host: str, port: int, token: str, *, timeout_s: float = 5.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(1 << 26)
        fields = {"auth_method_name": "token", "auth_data": token.encode()} if token else {}
        connect = pb.CommandConnect(client_version="bench", protocol_version=20, **fields)
        self.socket.sendall(encode(connect=connect))
        self.take()

    def take(self) -> Frame:
        """The next frame but PINGs, which are answered. Raises `OSError`."""
        while True:
            while (frame := self._reader.take()) is None:
                data = self.socket.recv(1 << 20)
                if not data:
                    raise ConnectionError("the broker hung up")
                self._reader.feed(data)
            if frame.command.type != PING:
                return frame
            self.socket.sendall(encode(pong=pb.CommandPong()))

    def ask(self, **command: Any) -> Frame:
        """Send a command, and wait for the next frame."""
        self.socket.sendall(encode(**command))
        return self.take()

    def ask_frame(self, frame: bytes) -> Frame:
        """Send a frame, and wait for the next one."""
        self.socket.sendall(frame)
        return self.take()

    def produce(self, topic: str, *, subscription: str = "") -> None:
        """Look the topic up, and attach producer 1. Raises `ConnectionError` if it is refused."""
        self.ask(lookup=pb.CommandLookupTopic(topic=topic, request_id=1, authoritative=True))
        asked = pb.CommandProducer(topic=topic, producer_id=1, request_id=2)
        if subscription:
            asked.initial_subscription_name = subscription
        answer = self.ask(producer=asked)
        if answer.command.type != COMMAND_TYPES["producer_success"]:
            raise ConnectionError(answer.command.error.message)

    def drain(self) -> int:
        """Throw away what has arrived; returns its bytes. Raises `ConnectionError` at the end."""
        drained = 0
        while select.select([self.socket], [], [], 0)[0]:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker hung up")
            drained += len(data)
        return drained


def a_send(sequence_id: int, payload: bytes) -> bytes:
    """A SEND of producer 1."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    head = metadata.SerializeToString()
    body = struct.pack(">I", len(head)) + head + payload
    send = pb.CommandSend(producer_id=1, sequence_id=sequence_id, num_messages=1)
    command = pb.BaseCommand(type=COMMAND_TYPES["send"], send=send).SerializeToString()
    tail = struct.pack(">HI", 0x0E01, crc32c(body)) + body
    return struct.pack(">II", 4 + len(command) + len(tail), len(command)) + command + tail


class Attack:
    """One tenant with a token and a namespace of its own."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.host, self.port = asked["host"], asked["port"]
        self.web, self.token = asked["web"], asked["token"]
        self.namespace = asked["namespace"]
        self.until_s = time.monotonic() + asked["seconds"]
        self.did: Counter[str] = Counter()

    @property
    def going(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.until_s

    def wire(self) -> Wire:
        """A new connection."""
        return Wire(self.host, self.port, self.token)

    def in_threads(self, work: Callable[[], None], count: int = CONNECTIONS) -> None:
        """Run `work` on so many threads, again and again; a broker that hangs up is no end."""

        def run() -> None:
            while self.going:
                try:
                    work()
                except (OSError, ValueError) as error:
                    self.did[f"{type(error).__name__}"] += 1
                    time.sleep(0.05)

        threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        while self.going:
            time.sleep(0.1)

    def _lookups(self, topic: Callable[[], str]) -> None:
        wire, number = self.wire(), 0
        while self.going:
            asked = [
                encode(lookup=pb.CommandLookupTopic(topic=topic(), request_id=number + index))
                for index in range(AT_ONCE)
            ]
            wire.socket.sendall(b"".join(asked))
            number += AT_ONCE
            self.did["lookups"] += AT_ONCE
            wire.drain()

    def unknown(self) -> None:
        """Lookups in tenants that do not exist."""
        self.in_threads(
            lambda: self._lookups(lambda: f"persistent://x{random.randrange(10**9)}/x/t")
        )

    def forbidden(self) -> None:
        """Lookups in the namespace of somebody else."""
        self.in_threads(lambda: self._lookups(lambda: "persistent://victim/ns/t"))

    def topics(self) -> None:
        """A new topic with a producer and a subscription, again and again."""

        def work() -> None:
            wire, number, prefix = self.wire(), 0, random.randrange(10**9)
            while self.going:
                asked = b""
                for index in range(number, number + 50):
                    name = f"persistent://{self.namespace}/t{prefix}-{index}"
                    lookup = pb.CommandLookupTopic(topic=name, request_id=2 * index)
                    producer = pb.CommandProducer(
                        topic=name, producer_id=index, request_id=2 * index + 1
                    )
                    producer.initial_subscription_name = "s"
                    asked += encode(lookup=lookup) + encode(producer=producer)
                wire.socket.sendall(asked)
                number += 50
                self.did["topics asked for"] += 50
                wire.drain()

        self.in_threads(work, 1)

    def memory(self) -> None:
        """Messages that nobody reads, until nothing more is taken."""
        number = iter(range(10**9))

        def work() -> None:
            wire = self.wire()
            wire.produce(f"persistent://{self.namespace}/m{next(number)}", subscription="s")
            frame = a_send(1, os.urandom(1 << 20))
            while self.going:
                if wire.ask_frame(frame).command.type != RECEIPT:
                    raise ConnectionError("refused")
                self.did["MB"] += 1

        self.in_threads(work, 2)

    def large(self) -> None:
        """Messages of 4 MB, one after the other."""
        number = iter(range(10**9))

        def work() -> None:
            wire = self.wire()
            wire.produce(f"persistent://{self.namespace}/l{next(number)}")
            frame = a_send(1, os.urandom(LARGE_BYTES))
            while self.going:
                if wire.ask_frame(frame).command.type != RECEIPT:
                    raise ConnectionError("refused")
                self.did["MB"] += 4

        self.in_threads(work, 2)

    def flood(self) -> None:
        """Small messages, without waiting for receipts."""

        def work() -> None:
            wire = self.wire()
            wire.produce(f"persistent://{self.namespace}/f")
            frames = a_send(1 << 20, b"x" * 20) * 200
            while self.going:
                wire.socket.sendall(frames)
                self.did["messages"] += 200
                wire.drain()

        self.in_threads(work, 2)

    def schemas(self) -> None:
        """An Avro schema of 250 KB that is not the topic's."""
        fields = ",".join(f'{{"name":"f{i}","type":"string"}}' for i in range(SCHEMA_FIELDS))
        first = f'{{"type":"record","name":"a","fields":[{fields}]}}'.encode()
        other = first.replace(b"f7499", b"g7499")

        def work() -> None:
            wire = self.wire()
            topic = f"persistent://{self.namespace}/s"
            for number, data in enumerate([first] + [other] * 10**6):
                if not self.going:
                    return
                schema = pb.Schema(name="s", schema_data=data, type=AVRO)
                wire.ask(
                    get_or_create_schema=pb.CommandGetOrCreateSchema(
                        request_id=number, topic=topic, schema=schema
                    )
                )
                self.did["schemas"] += 1

        self.in_threads(work, 2)

    def scrapes(self) -> None:
        """The metrics page, from many at once."""

        def work() -> None:
            url = f"{self.web}/metrics/"
            with (
                contextlib.suppress(urllib.error.HTTPError),
                urllib.request.urlopen(url, timeout=10) as answer,
            ):
                self.did["MB of pages"] += len(answer.read()) >> 20
            self.did["scrapes"] += 1

        self.in_threads(work, SCRAPERS)

    def reconnects(self) -> None:
        """Connections that prove themselves and hang up."""

        def work() -> None:
            self.wire().socket.close()
            self.did["connections"] += 1

        self.in_threads(work)

    def strangers(self) -> None:
        """Connections that begin a long CONNECT and do not end it."""
        held: list[socket.socket] = []

        def work() -> None:
            sock = socket.create_connection((self.host, self.port), timeout=5)
            sock.sendall(struct.pack(">II", 60_000, 59_996) + bytes(50_000))
            held.append(sock)
            self.did["connections"] += 1

        self.in_threads(work)


def main() -> None:
    """Run one attack."""
    asked = json.loads(sys.argv[1])
    attack = Attack(asked)
    getattr(attack, asked["kind"])()
    print(json.dumps(attack.did), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
