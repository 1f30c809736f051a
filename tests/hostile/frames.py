"""Mutated frames of the binary protocol, and the connections that send them.

`FrameMaker` makes frames of every command from the protocol's description: with and without
optional fields, with small and extreme numbers, and with hostile texts, some of them not UTF-8. A
careful broker keeps the connection open after most of them; the frames of `broken` end it. Frames
are made into a pool and sent in chunks, each followed by a PING: its PONG proves that the broker
has processed the chunk.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import struct
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from crc32c import crc32c
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from system.raw import CONNECT

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.names import TopicName

NAMESPACE = "fuzz/frames"
TOPICS = [f"persistent://{NAMESPACE}/f{index}" for index in range(48)]
CHUNK = 50
CHUNKS_AHEAD = 3
ANSWER_TIMEOUT_S = 60.0
CONNECTIONS = 4
"""Concurrent connections of one process."""
POOL = 6_000
REMADE = 600
"""So many frames of the pool are replaced after every `REMADE_EVERY` frames."""
REMADE_EVERY = 2_000

OWNERS_EVERY = 50
"""The owners of topics are looked up again after so many connections, because bundles move."""

SEND, CLOSE_PRODUCER, PONG = 6, 15, 19
WEIGHTS = {
    4: 10, 5: 8, SEND: 25, 10: 12, 11: 8, 12: 3, 15: 3, 16: 3, PONG: 1, 20: 5, 21: 3, 23: 3, 25: 4,
    28: 5, 29: 4, 32: 1, 34: 3, 39: 3,
}  # fmt: skip
"""Command type of clients → weight. PING is left out, because PONGs are counted."""

INTEGERS = [
    *(0, 1, 2, 3, 5, 7, 10, 127, 128, 255, 1000),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1),
]
HUGE_SHARE = 0.0002
"""Share of frames with huge names, which are written to ZooKeeper."""
NONSENSE_SHARE = 0.02
"""Share of SENDs whose message makes no sense."""
CHECKED = (
    *("compression", "uncompressed_size", "num_messages_in_batch"),
    *("num_chunks_from_msg", "chunk_id", "uuid"),
)
"""Fields of a message's metadata that must fit together, and the size of the message."""
SIZES = [0, 1, 20, 200, 2000]
SPOILED = "ZZ"
SPOILED_SHARE = 0.001
"""Share of texts that are replaced by bytes that are not UTF-8."""
NO_UTF8 = [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0"]
TEXTS = [
    *(
        "",
        "a",
        "b",
        "c",
        "sub",
        "..",
        ".",
        "a/b",
        "\0",
        "\n",
        "\r\nX: y",
        "☃",
        "\u202e",
        "%00",
        "%2F",
    ),
    *("x" * 300, "x" * 5000, "persistent://", f"persistent://{NAMESPACE}/", "://", "///", "ü"),
    *(
        "persistent://nope/nope/x",
        f"non-persistent://{NAMESPACE}/n",
    ),
    *(
        f"persistent://{NAMESPACE}/p-partition-1",
        f"persistent://{NAMESPACE}/p-partition-{'9' * 900}",
    ),
    *(
        f"persistent://{NAMESPACE}/..",
        f"persistent://{NAMESPACE}/{{}}",
        NAMESPACE,
        "<b>",
        '"',
        "\\",
        "'",
    ),
]
_INTEGER_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
}


def _wrapped(value: int, bits: int, signed: bool) -> int:
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


class FrameMaker:
    """Makes frames; the same seed makes the same frames."""

    def __init__(self, rng: random.Random, topics: Sequence[str] = TOPICS) -> None:
        """`topics`: of one namespace; most frames are about them."""
        self._rng = rng
        self._topics = topics
        fields = pb.BaseCommand.DESCRIPTOR.fields
        self._commands = {field.number: field for field in fields if field.message_type is not None}
        self._kinds = [kind for kind in WEIGHTS if kind in self._commands]
        self._weights = [WEIGHTS[kind] for kind in self._kinds]
        self._plans: dict[str, list[_Field]] = {}

    def frame(self) -> bytes:
        """A frame of a command that clients send, with correct sizes."""
        if self._rng.random() < HUGE_SHARE:
            return self._huge_name()
        (kind,) = self._rng.choices(self._kinds, self._weights)
        command = self._command(kind)
        if kind == SEND and self._rng.random() < 0.98:
            # A refused SEND ends the connection, so SENDs are rare.
            command.send.producer_id = self._rng.randrange(3)
            command.send.sequence_id = self._rng.randrange(2**40)
            command.send.num_messages = self._rng.choice([1, 1, 2, 1000])
        if kind == CLOSE_PRODUCER and self._rng.random() < 0.9:
            command.close_producer.producer_id = 7
        with_tail = kind == SEND or self._rng.random() < 0.01
        return self._framed(command, self._tail() if with_tail else b"")

    def _huge_name(self) -> bytes:
        """A durable subscription whose name does not fit into a packet of ZooKeeper, or hardly."""
        subscribe = pb.CommandSubscribe(
            topic=self._rng.choice(self._topics),
            subscription="y" * self._rng.choice([70_000, 1_500_000]),
            subType=1,
            consumer_id=self._rng.randrange(3),
            request_id=1,
            durable=True,
        )
        return encode(subscribe=subscribe)

    def broken(self) -> bytes:
        """Bytes that end a connection, or should: wrong sizes, cut, flipped, foreign."""
        rng, frame = self._rng, self.frame()
        cut = rng.randrange(len(frame))
        flipped = bytearray(frame)
        for _ in range(rng.choice([1, 1, 2, 8])):
            flipped[rng.randrange(len(flipped))] = rng.randrange(256)
        sizes = [0, 1, 3, 4, 5, 2**31, 2**32 - 1, 5 * 2**20 + 10240, 5 * 2**20 + 10241]
        other = self._commands[rng.choice(list(self._commands))]
        mixed = pb.BaseCommand(type=rng.choice([*self._commands, *range(60, 70), -1, 2**31 - 1]))
        self._fill(getattr(mixed, other.name), 0)
        return rng.choice(
            [
                bytes(flipped),
                frame[:cut],
                frame[cut:],
                struct.pack(">I", rng.choice(sizes)) + frame[4:],
                frame[:4] + struct.pack(">I", rng.choice(sizes)) + frame[8:],
                rng.randbytes(rng.randrange(1, 100)),
                self._framed(mixed, b""),
                CONNECT,
            ]
        )

    def changed(self, frame: bytes) -> bytes:
        """A valid frame with some fields of its command made anew."""
        (size,) = struct.unpack_from(">I", frame, 4)
        command = pb.BaseCommand()
        command.ParseFromString(frame[8 : 8 + size])
        inner = getattr(command, self._commands[command.type].name)
        if plan := self._plan(inner.DESCRIPTOR):
            for item in self._rng.choices(plan, k=self._rng.choice([1, 1, 2])):
                self._set(inner, item, 2)
        return self._framed(command, frame[8 + size :])

    def _command(self, kind: int) -> pb.BaseCommand:
        command = pb.BaseCommand(type=kind)
        self._fill(getattr(command, self._commands[kind].name), 0)
        return command

    def _framed(self, command: pb.BaseCommand, tail: bytes) -> bytes:
        body = command.SerializePartialToString()
        if SPOILED.encode() in body:
            body = body.replace(SPOILED.encode(), self._rng.choice(NO_UTF8))
        return struct.pack(">II", 4 + len(body) + len(tail), len(body)) + body + tail

    def _fill(self, message: Message, depth: int) -> None:
        getattr(message, "SetInParent")()  # noqa: B009 — the stubs do not know it for all
        rng = self._rng
        for item in self._plan(message.DESCRIPTOR):
            if rng.random() < (0.00005 if item.required else 0.45):
                continue
            if not item.repeated:
                self._set(message, item, depth)
                continue
            for _ in range(rng.choice([0, 1, 1, 2, 5, 50])):
                self._set(message, item, depth)

    def _set(self, message: Message, item: _Field, depth: int) -> None:
        if item.value is None:
            if depth < 3:
                inner = getattr(message, item.name)
                self._fill(inner.add() if item.repeated else inner, depth + 1)
        elif item.repeated:
            getattr(message, item.name).append(item.value())
        else:
            setattr(message, item.name, item.value())

    def _plan(self, descriptor: Descriptor) -> list[_Field]:
        plan = self._plans.get(descriptor.full_name)
        if plan is None:
            plan = [self._field(item) for item in descriptor.fields]
            self._plans[descriptor.full_name] = plan
        return plan

    def _field(self, item: FieldDescriptor) -> _Field:
        return _Field(item.name, bool(item.is_required), bool(item.is_repeated), self._value(item))

    def _value(self, item: FieldDescriptor) -> Callable[[], Any] | None:
        """A function that makes values of a field; None for a message."""
        rng, kind, name = self._rng, item.cpp_type, item.name
        if kind == FieldDescriptor.CPPTYPE_MESSAGE:
            return None
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return lambda: rng.random() < 0.5
        if item.type == FieldDescriptor.TYPE_BYTES:
            return lambda: rng.randbytes(rng.choice([0, 1, 8, 30]))
        if kind == FieldDescriptor.CPPTYPE_STRING:
            usual = {
                "topic": self._topics,
                "namespace": [str(TopicName.parse(self._topics[0]).namespace)],
                "subscription": ["a", "b", "c"],
            }.get(name)

            def text() -> str:
                if rng.random() < SPOILED_SHARE:
                    return f"{usual[0] if usual else ''}{SPOILED}"
                return rng.choice(usual if usual and rng.random() < 0.85 else TEXTS)

            return text
        if item.enum_type is not None:
            numbers = [value.number for value in item.enum_type.values]
            return lambda: rng.choice(numbers)
        if kind not in _INTEGER_RANGES:
            return lambda: rng.choice([0.0, -1.0, 1e308, float("nan"), float("inf")])
        bits, signed = _INTEGER_RANGES[kind]
        small = {"ledgerId": 200, "entryId": 30}.get(name, 4)

        def integer() -> int:
            if rng.random() < 0.8:
                return rng.randrange(small)
            return _wrapped(rng.choice(INTEGERS), bits, signed)

        return integer

    def _tail(self) -> bytes:
        """The bytes after the command of a SEND: mostly whole, with metadata that is true where the
        broker looks; nonsense there ends the connection.
        """
        rng, kind = self._rng, self._rng.random()
        if kind < NONSENSE_SHARE:
            return self._nonsense()
        metadata = pb.MessageMetadata()
        self._fill(metadata, 2)
        for name in CHECKED:
            metadata.ClearField(name)
        return _tailed(metadata.SerializePartialToString(), rng.randbytes(rng.choice(SIZES)))

    def _nonsense(self) -> bytes:
        """What may follow the command of a SEND, and makes no sense somewhere."""
        rng, kind = self._rng, self._rng.random()
        if kind < 0.2:
            return rng.randbytes(rng.choice([0, 1, 3, 4, 6, 9, 10, 40]))
        metadata = pb.MessageMetadata()
        self._fill(metadata, 2)
        head = metadata.SerializePartialToString()
        if kind > 0.97:
            head = rng.randbytes(rng.randrange(60))
        size = len(head) if kind < 0.95 else rng.choice(INTEGERS) % 2**32
        rest = struct.pack(">I", size) + head + rng.randbytes(rng.choice(SIZES))
        checksum = crc32c(rest) if rng.random() < 0.97 else rng.randrange(2**32)
        magic = 0x0E01 if rng.random() < 0.97 else rng.choice([0x0E02, 0, 0xFFFF])
        return struct.pack(">HI", magic, checksum) + rest


def _tailed(head: bytes, payload: bytes) -> bytes:
    rest = struct.pack(">I", len(head)) + head + payload
    return struct.pack(">HI", 0x0E01, crc32c(rest)) + rest


@dataclass(slots=True)
class _Field:
    """The values of one field; `value` is None for a message."""

    name: str
    required: bool
    repeated: bool
    value: Callable[[], Any] | None


# Sending


@dataclass(slots=True)
class Sent:
    """The figures of a run."""

    frames: int = 0
    """Frames that the broker processed: a PONG followed, or they ended the connection."""
    made: int = 0
    """Different frames among them."""
    connections: int = 0
    ended_early: int = 0
    """Connections that the broker closed before the frame that should end them."""
    refused: int = 0
    problems: list[str] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    """Type of command → number of answers."""

    def add(self, other: Sent) -> None:
        """Add the figures of another run."""
        for figure in fields(self):
            mine, theirs = getattr(self, figure.name), getattr(other, figure.name)
            setattr(self, figure.name, mine + theirs)


def send_frames(
    ports: list[int], http_port: int, count: int, seed: int, seconds: float = math.inf
) -> Sent:
    """Send at least `count` frames to the brokers at `ports`, in a process of its own; but begin
    no connection after `seconds`.
    """
    return asyncio.run(_Sender(ports, http_port, count, seed, seconds).run())


class _Sender:
    def __init__(
        self, ports: list[int], http_port: int, count: int, seed: int, seconds: float
    ) -> None:
        self._until_s = time.monotonic() + seconds
        self._ports = ports
        self._http_port = http_port
        self._count = count
        self._rng = random.Random(seed)
        self._maker = FrameMaker(self._rng)
        self._pool: list[bytes] = []
        self._owned: dict[int, list[str]] = {}
        self._sent = Sent()
        self._remade_at = 0

    async def run(self) -> Sent:
        """Keep some connections busy until enough was sent."""
        self._remake(POOL)
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._connect_again_and_again())
        return self._sent

    def _remake(self, count: int) -> None:
        made = [self._maker.frame() for _ in range(count)]
        if len(self._pool) < POOL:
            self._pool += made
        else:
            start = self._rng.randrange(0, POOL - count + 1)
            self._pool[start : start + count] = made
        self._sent.made += count

    async def _connect_again_and_again(self) -> None:
        while self._sent.frames < self._count and len(self._sent.problems) < 20:
            if time.monotonic() > self._until_s:
                break
            if self._sent.connections % OWNERS_EVERY == 0:
                self._owned = await asyncio.to_thread(owned_topics, self._ports, self._http_port)
            if self._sent.frames - self._remade_at >= REMADE_EVERY:
                self._remade_at = self._sent.frames
                self._remake(REMADE)
            self._sent.connections += 1
            port = self._rng.choice(self._ports)
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except (OSError, TimeoutError):
                self._sent.refused += 1
                await asyncio.sleep(0.2)
                continue
            try:
                await _Exchange(self._sent, reader, writer, port).run(self._script(port))
            finally:
                writer.transport.abort()

    def _script(self, port: int) -> list[list[bytes]]:
        """Chunks for one connection: the first attaches, the last ends it, politely or not."""
        rng = self._rng
        chunks = [rng.choices(self._pool, k=CHUNK) for _ in range(rng.choice([1, 3, 10, 20]))]
        end = [self._maker.broken()] if rng.random() < 0.6 else []
        start = self._attach(port)
        if rng.random() < 0.02:
            del start[0]  # no CONNECT
        if rng.random() < 0.02:
            start, end = [], [self._maker.broken()]
            chunks = []
        return [start, *chunks, end]

    def _attach(self, port: int) -> list[bytes]:
        rng, frames = self._rng, [CONNECT]
        for number, topic in enumerate(rng.choices(self._owned.get(port) or TOPICS, k=3)):
            producer = pb.CommandProducer(topic=topic, producer_id=number, request_id=number)
            subscribe = pb.CommandSubscribe(
                topic=topic,
                subscription=rng.choice("abc"),
                subType=rng.randrange(3),
                consumer_id=number,
                request_id=10 + number,
                durable=rng.random() < 0.5,
            )
            flow = pb.CommandFlow(consumer_id=number, messagePermits=1000)
            frames += [
                encode(producer=producer),
                encode(subscribe=subscribe),
                encode(flow=flow),
            ]
        return frames


class _Exchange:
    """One connection: sends chunks, and counts the answers."""

    def __init__(
        self,
        sent: Sent,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        port: int,
    ) -> None:
        self._sent = sent
        self._reader = reader
        self._writer = writer
        self._port = port
        self._pongs = 0
        self._ended = False
        self._progress = asyncio.Event()

    async def run(self, script: list[list[bytes]]) -> None:
        """Send all chunks, unless the broker closes the connection before."""
        ping = encode(ping=pb.CommandPing())
        reading = asyncio.create_task(self._read())
        *chunks, end = script
        try:
            for out, chunk in enumerate(chunks):
                # The first chunk attaches; the next chunks need its answers.
                await self._until_pongs(out if out == 1 else out - CHUNKS_AHEAD)
                if not self._ended:
                    self._writer.write(b"".join([*chunk, ping]))
            await self._until_pongs(len(chunks))
            self._sent.ended_early += self._ended
            if end and not self._ended:
                self._writer.write(b"".join([*end, ping]))
                await asyncio.sleep(0)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        self._sent.frames += sum(len(chunk) for chunk in chunks[: self._pongs])
        self._sent.frames += bool(end) or self._ended

    async def _until_pongs(self, count: int) -> None:
        """Until that many PONGs came, or the connection ended."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while self._pongs < count and not self._ended:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            self._sent.problems.append(f"port {self._port}: no PONG for {ANSWER_TIMEOUT_S:g} s")
            self._ended = True

    async def _read(self) -> None:
        """Count answers by type. Only the head of each is looked at."""
        data = b""
        try:
            while got := await self._reader.read(1 << 18):
                data = self._count_answers(data + got)
        except OSError:
            pass
        finally:
            self._ended = True
            self._progress.set()

    def _count_answers(self, data: bytes) -> bytes:
        at, size = 0, len(data)
        answers = self._sent.answers
        while size - at >= 10:
            total = int.from_bytes(data[at : at + 4], "big")
            if size - at < 4 + total:
                break
            kind = data[at + 9]
            answers[kind] += 1
            if kind == PONG:
                self._pongs += 1
                self._progress.set()
            at += 4 + total
        return data[at:]


def owned_topics(ports: list[int], http_port: int) -> dict[int, list[str]]:
    """Port → topics of `TOPICS` that the broker there serves."""
    owned: dict[int, list[str]] = {port: [] for port in ports}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for topic in TOPICS:
        path = topic.replace("://", "/")
        url = f"http://127.0.0.1:{http_port}/lookup/v2/topic/{path}"
        try:
            with opener.open(url, timeout=10) as answer:
                service_url = json.loads(answer.read())["brokerUrl"]
        except OSError:
            continue
        owned[int(service_url.rpartition(":")[2])].append(topic)
    return owned
