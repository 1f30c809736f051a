"""A load process for bench/throttling.py: it sends or receives at full speed until its input ends.

The one argument is a JSON object: url, topic, mode (stock, raw, consume, ping), producers, batch,
sizes. Every producer has a connection of its own. `ping` prints `count` times from SEND to receipt
in µs, of a producer that is mostly idle.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
import threading
import time
from typing import Any

from crc32c import crc32c

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode, varint


def main() -> None:
    """Run one load."""
    asked = json.loads(sys.argv[1])
    modes = {"stock": stock, "raw": raw, "consume": consume, "ping": ping}
    modes[asked["mode"]](asked)
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)  # without waiting for threads, which are blocked while they send


def stock(asked: dict[str, Any]) -> None:
    """Producers of the stock client."""
    import pulsar

    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)

    def produce(producer: Any, size: int) -> None:
        body = b"x" * size
        while True:
            producer.send_async(body, lambda result, message_id: None)

    batch, sizes = asked["batch"], asked["sizes"]
    producers = []
    for _ in range(asked["producers"]):
        client = pulsar.Client(asked["url"], logger=quiet)
        producer = client.create_producer(
            asked["topic"],
            block_if_queue_full=True,
            send_timeout_millis=0,
            batching_enabled=batch > 1,
            batching_max_messages=max(batch, 2),
            batching_max_publish_delay_ms=10,
        )
        producers.append((client, producer))
    for index, (_client, producer) in enumerate(producers):
        threading.Thread(
            target=produce, args=(producer, sizes[index % len(sizes)]), daemon=True
        ).start()


def consume(asked: dict[str, Any]) -> None:
    """Shared consumers of the stock client that acknowledge everything."""
    import pulsar

    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)

    def receive(consumer: Any) -> None:
        while True:
            consumer.acknowledge(consumer.receive())

    for _ in range(asked["producers"]):
        client = pulsar.Client(asked["url"], logger=quiet)
        consumer = client.subscribe(
            asked["topic"],
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=1000,
        )
        threading.Thread(
            target=lambda held: receive(held[1]), args=((client, consumer),), daemon=True
        ).start()


def frame(messages: int, size: int) -> bytes:
    """A prebuilt SEND."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1 << 20, publish_time=1)
    payload = b"x" * size
    if messages > 1:
        metadata.num_messages_in_batch = messages
        single = b"\x18" + varint(size)  # SingleMessageMetadata.payload_size
        payload = (struct.pack(">I", len(single)) + single + payload) * messages
    head = metadata.SerializeToString()
    body = struct.pack(">I", len(head)) + head + payload
    command = pb.BaseCommand(
        type=6, send=pb.CommandSend(producer_id=1, sequence_id=1 << 20, num_messages=messages)
    ).SerializeToString()
    tail = struct.pack(">HI", 0x0E01, crc32c(body)) + body
    return struct.pack(">II", 4 + len(command) + len(tail), len(command)) + command + tail


def attach(asked: dict[str, Any]) -> socket.socket:
    """A connection with one producer."""
    host, port = asked["url"].removeprefix("pulsar://").split(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(encode(connect=pb.CommandConnect(client_version="bench", protocol_version=20)))
    _answer(sock)
    sock.sendall(
        encode(producer=pb.CommandProducer(topic=asked["topic"], producer_id=1, request_id=1))
    )
    _answer(sock)
    return sock


def _answer(sock: socket.socket) -> bytes:
    head = sock.recv(4, socket.MSG_WAITALL)
    return sock.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)


def raw(asked: dict[str, Any]) -> None:
    """Producers that send prebuilt frames. They discard receipts, or ignore them (`drain` false).

    With `count`, each sends that many frames, and then waits for the answer to a PING.
    """
    socks = [attach(asked) for _ in range(asked["producers"])]
    count = asked.get("count")

    pong = encode(pong=pb.CommandPong())

    def drain(sock: socket.socket) -> None:
        buffer = bytearray(1 << 18)
        while (got := sock.recv_into(buffer)) and not (
            count is not None and bytes(buffer[:got]).endswith(pong)
        ):
            pass

    def send(sock: socket.socket, size: int) -> None:
        one = frame(asked["batch"], size)
        per_chunk = max(1, 65_536 // len(one))
        left = count
        while left is None or left > 0:
            now = per_chunk if left is None else min(per_chunk, left)
            sock.sendall(one * now)
            left = None if left is None else left - now
        sock.sendall(encode(ping=pb.CommandPing()))  # its answer comes after all receipts

    threads = []
    for index, sock in enumerate(socks):
        if asked.get("drain", True):
            threads.append(threading.Thread(target=drain, args=(sock,), daemon=True))
        threads.append(
            threading.Thread(
                target=send, args=(sock, asked["sizes"][index % len(asked["sizes"])]), daemon=True
            )
        )
    for thread in threads:
        thread.start()
    if count is not None:
        for thread in threads:
            thread.join()


def ping(asked: dict[str, Any]) -> None:
    """Send one message at a time, about a millisecond apart.

    The intervals are random, because even ones fall into step with the server's timers.
    """
    rng = random.Random(1)
    sock, one, took = attach(asked), frame(1, asked["sizes"][0]), []
    for _ in range(asked["count"]):
        started = time.perf_counter_ns()
        sock.sendall(one)
        _answer(sock)
        took.append((time.perf_counter_ns() - started) / 1000)
        time.sleep(rng.uniform(0.0005, 0.0015))
    print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
