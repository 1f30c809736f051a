"""Publish throughput of the protocol server under prebuilt frames: what one core of the broker does
when the client costs nothing.

`python -m bench protocol [--seconds 3] [--repeat 3]`: best of the repeats. The server is a broker
process of a one-broker cluster on uvloop; the load comes from this process through one socket, with
a window of outstanding frames.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from crc32c import crc32c

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.standalone import Cluster
from system.raw import Raw

from loadmanager.broker.wire import pulsar_pb2 as pb

TOPIC = "persistent://public/default/raw"
WINDOW_BYTES = 512 * 1024
RECEIPT = b"\x08\x07"
"""How the command of a SEND_RECEIPT begins."""


def main(argv: list[str]) -> int:
    """Measure, and print a line for each workload."""
    parser = argparse.ArgumentParser(prog="python -m bench protocol", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--store", choices=("memory", "always", "interval", "never"), default="memory"
    )
    args = parser.parse_args(argv)
    settings = {"defaultRetentionSizeInMB": "16", "backlogQuotaDefaultLimitBytes": "-1"}
    if args.store == "memory":
        settings["loadManagerStorageDirectory"] = ""
    else:
        settings["loadManagerStorageSync"] = args.store
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder), brokers=1, settings=settings) as cluster,
    ):
        for name, messages, size in (
            ("100 B, unbatched", 1, 100),
            ("1 KiB, unbatched", 1, 1024),
            ("100 x 100 B", 100, 100),
            ("1000 x 100 B", 1000, 100),
        ):
            best = max(_publish(cluster, messages, size, args.seconds) for _ in range(args.repeat))
            print(
                f"publish {name:18} {best:10.0f} frames/s {best * messages:12.0f} msg/s "
                f"{best * messages * size / 1e6:8.1f} MB/s"
            )
    return 0


def _frame(sequence_id: int, messages: int, size: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    payload = b"x" * size
    if messages > 1:
        metadata.num_messages_in_batch = messages
        payload = (b"\x00\x00\x00\x02\x18" + bytes([min(size, 127)]) + b"x" * size) * messages
    raw = metadata.SerializeToString()
    body = struct.pack(">I", len(raw)) + raw + payload
    send = pb.CommandSend(producer_id=1, sequence_id=sequence_id, num_messages=messages)
    command = pb.BaseCommand(type=6, send=send).SerializeToString()
    tail = struct.pack(">HI", 0x0E01, crc32c(body)) + body
    return struct.pack(">II", 4 + len(command) + len(tail), len(command)) + command + tail


def _publish(cluster: Cluster, messages: int, size: int, seconds: float) -> float:
    """Frames/s with receipts."""
    with Raw("127.0.0.1", cluster.pulsar_port) as raw:
        raw.greet()
        raw.produce(TOPIC)
        connection = raw.socket
        frames = [
            _frame(1 << 20 | number, messages, size)
            for number in range(max(1, 256 * 1024 // (messages * size + 80)))
        ]
        chunk, per_chunk = b"".join(frames), len(frames)
        window = max(2, WINDOW_BYTES // len(chunk))
        gate, stop = threading.Semaphore(window), threading.Event()
        sender = threading.Thread(target=_send, args=(connection, chunk, gate, stop))
        began_s = time.monotonic()
        sender.start()
        receipts = pending = 0
        buffer = bytearray(1 << 20)
        rest = b""
        while time.monotonic() - began_s < seconds:
            data = rest + buffer[: connection.recv_into(buffer)]
            at = 0
            while len(data) - at >= 4:
                size_of = int.from_bytes(data[at : at + 4], "big") + 4
                if len(data) - at < size_of:
                    break
                if data[at + 8 : at + 10] != RECEIPT:
                    raise SystemExit("the broker sent something else than a receipt")
                at += size_of
                receipts += 1
                pending += 1
                if pending == per_chunk:
                    pending = 0
                    gate.release()
            rest = bytes(data[at:])
        elapsed_s = time.monotonic() - began_s
        stop.set()
        gate.release()
        connection.shutdown(socket.SHUT_RDWR)
        sender.join()
        return receipts / elapsed_s


def _send(
    connection: socket.socket, chunk: bytes, gate: threading.Semaphore, stop: threading.Event
) -> None:
    try:
        while not stop.is_set():
            gate.acquire()
            connection.sendall(chunk)
    except OSError:
        return  # the measurement is over
