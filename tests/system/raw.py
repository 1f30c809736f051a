"""A socket that speaks frames, for bytes that no real client sends."""

from __future__ import annotations

import socket
import struct

from crc32c import crc32c

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, FrameReader, encode

TOPIC = "persistent://public/default/raw"
CONNECT = encode(connect=pb.CommandConnect(client_version="raw", protocol_version=20))


class Raw:
    """A socket that speaks frames."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=60)
        self._reader = FrameReader(1 << 24)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *frames: bytes) -> None:
        """Write at once."""
        self.socket.sendall(b"".join(frames))

    def take(self) -> Frame:
        """The next frame; fails if the broker closes the connection."""
        while (frame := self._reader.take()) is None:
            data = self.socket.recv(65536)
            assert data, "the broker hung up"
            self._reader.feed(data)
        return frame

    def ended(self) -> bool:
        """True if the broker closes the connection without sending another frame."""
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            return True
        return not data

    def greet(self) -> None:
        """CONNECT and CONNECTED."""
        self.send(CONNECT)
        frame = self.take()
        assert frame.command.type == 3

    def produce(self, topic: str = TOPIC) -> None:
        """Place the topic and attach producer 1."""
        self.send(
            encode(lookup=pb.CommandLookupTopic(topic=topic, request_id=1, authoritative=True))
        )
        self.take()
        self.send(encode(producer=pb.CommandProducer(topic=topic, producer_id=1, request_id=2)))
        frame = self.take()
        assert frame.command.type == 17, frame


def a_send(
    sequence_id: int,
    payload: bytes = b"x",
    *,
    spoil: bool = False,
    producer_id: int = 1,
    publish_time_ms: int = 1,
    batch: int | None = None,
    producer: str = "p",
) -> bytes:
    """A SEND frame, optionally with a wrong checksum, or of a batch of so many messages."""
    fields = pb.MessageMetadata(
        producer_name=producer,
        sequence_id=sequence_id,
        publish_time=publish_time_ms,
        num_messages_in_batch=batch,
    )
    metadata = fields.SerializeToString()
    body = struct.pack(">I", len(metadata)) + metadata + payload
    tail = struct.pack(">HI", 0x0E01, crc32c(body) ^ spoil) + body
    send = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=batch)
    command = pb.BaseCommand(type=6, send=send).SerializeToString()
    return struct.pack(">II", 4 + len(command) + len(tail), len(command)) + command + tail
