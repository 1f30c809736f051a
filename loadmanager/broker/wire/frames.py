"""Frames on the wire ↔ commands, sans I/O.

A frame is `[total:4][command size:4][BaseCommand]`. SEND and MESSAGE have a tail, too:
`[0x0e01:2][crc32c:4][metadata size:4][metadata][payload]`. All integers are big-endian; `total`
counts everything after itself. The tail of a SEND is stored as it came, and is the tail of the
MESSAGE that delivers it: no byte of it is encoded again.
"""

from __future__ import annotations

import contextlib
import enum
import struct
from collections.abc import Iterator

import msgspec
from crc32c import crc32c
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.kit.errors import LoadManagerError

MAGIC_CRC32C = 0x0E01
CONNECT_BYTES_MAX = 64 * 1024
"""The largest frame of a client that has not said who it is: room for two long tokens."""
COMMAND_BYTES_MAX = 1024 * 1024
"""The largest command; what follows it, a message, may be larger."""
FRAME_PADDING_BYTES = 10 * 1024
"""Room for command and metadata beside the largest message (Pulsar's padding)."""
MESSAGE_BYTES_MIN = 6
"""A message in a batch has at least two sizes: of its metadata (4 bytes), and of its payload."""
COMPRESSION_RATIO_MAX = {1: 255, 2: 1032, 4: 64}
"""How much LZ4, ZLIB and SNAPPY can compress at best; ZSTD has no practical bound."""
PLAIN_BYTES_MAX = 128 * 1024 * 1024
CHUNKED_BYTES_MAX = (1 << 31) - 1
BATCH_MESSAGES_MAX = 100_000
"""Limits of the uncompressed size of one SEND's payload; of a message in chunks, as much as Java
clients can tell; and of the messages in a batch. Consumers reserve memory for what the metadata
tells.
"""
TAIL_START_BYTES = 4096
"""Enough of a tail for its publish time: clients write it behind the producer's name and the
sequence id.
"""
_PUBLISH_TIME_KEY = 3 << 3
REQUEST_ID_NONE = (1 << 64) - 1
"""The request id of a command that answers no request (−1)."""

_PARTS: dict[int, tuple[str, tuple[str, ...]]] = {
    field.number: (
        field.name,
        tuple(
            part.name for part in field.message_type.fields if isinstance(part.default_value, str)
        ),
    )
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}
"""Type of a command → its field of `BaseCommand`, and which fields of that are text."""

COMMAND_TYPES = {name: number for number, (name, _) in _PARTS.items()}
"""Field of `BaseCommand` → type of the command."""

_HEAD = struct.Struct(">II")
_TAIL = struct.Struct(">HI")
_MAGIC = MAGIC_CRC32C.to_bytes(2, "big")
_SIZE = struct.Struct(">I")


class RefusedMessageError(LoadManagerError):
    """A message that is too large in a way that only its metadata tells. The producer may go on."""


class FrameError(LoadManagerError):
    """Bytes that are not a frame, or a frame without a valid command: close the connection."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame: its command, and what follows the command (empty for simple commands).

    A `Struct`, because one is made for each message, and a frozen dataclass takes 0.2 µs more.
    """

    command: pb.BaseCommand
    tail: bytes


def request_id_of(command: pb.BaseCommand) -> int | None:
    """The request id of a command; None without one. In a command that our pulsar.proto leaves out,
    it is field 1, as in every request of the protocol.
    """
    fields = command.ListFields()
    if len(fields) > 1:
        request_id: int | None = getattr(fields[1][1], "request_id", None)
        return request_id
    unknown = UnknownFieldSet(command)
    for index in range(len(unknown)):
        field = unknown[index]
        if field.field_number == command.type and isinstance(field.data, bytes):
            inner = pb.CommandSuccess()
            with contextlib.suppress(DecodeError):
                inner.MergeFromString(field.data)
                return inner.request_id if inner.HasField("request_id") else None
    return None


_SEND_HEAD = b"\x08%c%c" % (COMMAND_TYPES["send"], COMMAND_TYPES["send"] << 3 | 2)
"""How a SEND begins: its type, and the key of its field. Then come the size of the field and the
key of the producer's id, a byte each.
"""
_QUIET_HEADS = {
    bytes((8, COMMAND_TYPES[name])) for name in ("ack", "flow", "ping", "pong", "redeliver")
}
"""How commands begin that nobody waits for."""
PEEK_FRAMES_MAX = 32
PEEK_BYTES_MAX = 16 * 1024


class Peeked(enum.Enum):
    """What a frame is that was not taken yet, if it is no SEND."""

    REQUEST = "its client waits for the answer"
    QUIET = "nobody waits for it"
    MORE = "not looked at: it is behind so many frames or bytes"


class FrameReader:
    """Splits a stream of bytes into frames: `feed` bytes, `take` frames one at a time, so that the
    caller can stop between any two.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = b""
        self._at = 0
        self._needed = 0  # size of the next frame in bytes, 0 before it is known
        # received since then; joined once, however many pieces there are
        self._later = bytearray()

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        rest = len(self._buffer) - self._at
        if self._later or 0 < rest + len(data) < self._needed:
            self._later += data
        else:
            self._buffer = self._buffer[self._at :] + data if rest else data
            self._at = self._needed = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes that were fed and not yet taken."""
        return len(self._buffer) - self._at + len(self._later)

    def peek(self) -> Iterator[int | Peeked]:
        """What the frames are that wait to be taken, by their first bytes: of a SEND, the producer.
        Ends with `MORE` after `PEEK_FRAMES_MAX`, or if there are more than `PEEK_BYTES_MAX`.
        Nothing is verified: `take` does that.
        """
        data, at = self._buffer, self._at
        if self._later:  # a frame that is not complete is in two parts
            data = data[at : at + PEEK_BYTES_MAX]
            data, at = data + bytes(self._later[: PEEK_BYTES_MAX - len(data)]), 0
        begin = at
        for _ in range(PEEK_FRAMES_MAX):
            start = at + _HEAD.size
            if start + 2 > len(data) or start - begin > PEEK_BYTES_MAX:
                break
            if data.startswith(_SEND_HEAD, start):
                with contextlib.suppress(IndexError):  # its id has not come yet
                    yield _read_varint(data, start + len(_SEND_HEAD) + 2)[0]
            else:
                quiet = data[start : start + 2] in _QUIET_HEADS
                yield Peeked.QUIET if quiet else Peeked.REQUEST
            at += _SIZE.size + _SIZE.unpack_from(data, at)[0]
        else:
            yield Peeked.MORE
            return
        if self.pending_bytes > PEEK_BYTES_MAX:
            yield Peeked.MORE

    def discard(self) -> None:
        """Forget all bytes that were not taken."""
        self._buffer, self._at, self._needed = b"", 0, 0
        self._later = bytearray()

    def _has(self, needed: int) -> bool:
        """Buffer `needed` bytes from `_at` on, more than `_buffer` holds; False if they were not
        fed yet.
        """
        if self.pending_bytes < needed:
            self._needed = needed
            return False
        self._buffer = self._buffer[self._at :] + self._later
        self._at = self._needed = 0
        self._later = bytearray()
        return True

    def take(self) -> Frame | None:
        """The next frame, None when it is not complete.

        Raises `FrameError` for an oversize, truncated or unreadable one.
        """
        if len(self._buffer) - self._at < 4 and not self._has(4):
            return None
        buffer, at = self._buffer, self._at
        (total,) = _SIZE.unpack_from(buffer, at)
        if total > self.frame_bytes_max:
            raise FrameError(
                f"a frame of {total} bytes is larger than the {self.frame_bytes_max} allowed"
            )
        if total < 4:
            raise FrameError(f"a frame of {total} bytes is too short for a command")
        if len(buffer) - at < 4 + total:
            if not self._has(4 + total):
                return None
            buffer, at = self._buffer, self._at
        (size,) = _SIZE.unpack_from(buffer, at + 4)
        start, end = at + 8, at + 4 + total
        if start + size > end:
            raise FrameError(f"a command of {size} bytes does not fit into a frame of {total}")
        if size > COMMAND_BYTES_MAX:
            raise FrameError(
                f"a command of {size} bytes is larger than the {COMMAND_BYTES_MAX} allowed"
            )
        command = pb.BaseCommand()
        try:
            command.ParseFromString(buffer[start : start + size])
        except DecodeError as error:
            raise FrameError(f"unreadable command: {error}") from None
        if not command.IsInitialized():
            raise FrameError(f"command {command.type} lacks fields that it must have")
        _check_parts(command)
        self._at = end
        return Frame(command, buffer[start + size : end])


def _check_parts(command: pb.BaseCommand) -> None:
    """Raise `FrameError` when the command itself is missing or a text of it is not UTF-8.

    Protobuf reports neither: a missing command has the defaults of its fields, and a text that is
    not UTF-8 is returned as `bytes`.
    """
    name, texts = _PARTS.get(command.type, ("", ()))
    if not name:
        return
    if not command.HasField(name):  # type: ignore[arg-type]
        raise FrameError(f"a command of type {command.type} came without its {name}")
    if texts:
        part = getattr(command, name)
        for text in texts:
            if not isinstance(getattr(part, text), str):
                raise FrameError(f"{text} of {name} is not valid UTF-8")


def _tail_head(tail: bytes) -> tuple[int, int]:
    """Magic number and checksum; zeros for a tail that is too short for them."""
    return _TAIL.unpack_from(tail) if len(tail) >= 6 else (0, 0)


def check_tail(tail: bytes) -> bool:
    """True if the tail of a SEND has the right magic number and checksum.

    True also for a complete tail without checksum (protocol before v6).
    """
    if len(tail) < 4:
        return False
    magic, checksum = _tail_head(tail)
    if magic == MAGIC_CRC32C:
        return len(tail) >= 10 and crc32c(memoryview(tail)[6:]) == checksum
    (size,) = _SIZE.unpack_from(tail)
    return bool(4 + size <= len(tail))


def metadata_of(tail: bytes) -> pb.MessageMetadata:
    """The metadata in a tail. Raises `FrameError` when it cannot be read."""
    at = 6 if len(tail) >= 6 and _TAIL.unpack_from(tail)[0] == MAGIC_CRC32C else 0
    try:
        (size,) = _SIZE.unpack_from(tail, at)
        metadata = pb.MessageMetadata()
        metadata.ParseFromString(tail[at + 4 : at + 4 + size])
    except (struct.error, DecodeError) as error:
        raise FrameError(f"unreadable message metadata: {error}") from None
    return metadata


def checked_metadata(tail: bytes) -> pb.MessageMetadata:
    """The metadata in the tail of a SEND, of which `check_tail` is true.

    Raises `FrameError` when consumers could not read it, or numbers of it are impossible: clients
    believe them, and some crash. Raises `RefusedMessageError` when numbers of it are too large.
    """
    at = 10 if tail[:2] == _MAGIC else 4
    (size,) = _SIZE.unpack_from(tail, at - 4)
    payload = len(tail) - at - size
    metadata = pb.MessageMetadata()
    try:
        metadata.ParseFromString(tail[at : at + size])
    except DecodeError as error:
        raise FrameError(f"unreadable message metadata: {error}") from None
    if payload < 0 or not metadata.IsInitialized():
        raise FrameError("message metadata is cut off, or lacks fields that it must have")
    if metadata.compression or metadata.num_messages_in_batch != 1 or payload < MESSAGE_BYTES_MIN:
        _check_numbers(metadata, payload)
    return metadata


def _check_numbers(metadata: pb.MessageMetadata, payload: int) -> None:
    """Raise `FrameError` for sizes and counts that so many bytes of payload cannot have, and
    `RefusedMessageError` for those that are too large. The uncompressed size in a chunk is that of
    the whole message.
    """
    plain, packed = payload, metadata.compression
    if packed:
        chunked = metadata.num_chunks_from_msg > 1
        plain, plain_max = metadata.uncompressed_size, PLAIN_BYTES_MAX
        if chunked:
            plain_max = CHUNKED_BYTES_MAX
        elif plain > payload * COMPRESSION_RATIO_MAX.get(packed, 1 << 32):
            raise FrameError(f"{payload} bytes cannot decompress to {plain}")
        if plain > plain_max:
            raise RefusedMessageError(
                f"a message of {plain} bytes before compression is larger than the {plain_max} "
                "allowed"
            )
    if metadata.HasField("num_messages_in_batch"):
        messages = metadata.num_messages_in_batch
        if not 0 < messages <= plain // MESSAGE_BYTES_MIN:
            raise FrameError(f"a batch of {messages} messages in {plain} bytes")
        if messages > BATCH_MESSAGES_MAX:
            raise RefusedMessageError(
                f"a batch of {messages} messages has more than the {BATCH_MESSAGES_MAX} allowed"
            )


def publish_time_of(tail: bytes) -> int:
    """The publish time of a message, in milliseconds since the epoch; 0 if the first
    `TAIL_START_BYTES` of its tail do not tell. The rest of the tail is not looked at.
    """
    start = tail[:TAIL_START_BYTES]
    at = 6 if start[:2] == _MAGIC else 0
    try:
        end = at + 4 + _SIZE.unpack_from(start, at)[0]
        at += 4
        while at < end:
            key, at = _read_varint(start, at)
            if key == _PUBLISH_TIME_KEY:
                return _read_varint(start, at)[0]
            at = _after_field(start, key, at)
    except (struct.error, IndexError):
        pass
    return 0


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in protobuf's variable length, and where the next thing begins. Raises
    `IndexError` at the end of the data.
    """
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
        shift += 7
    raise IndexError("no number is that long")


def _after_field(data: bytes, key: int, at: int) -> int:
    """The position after the next field with that key. Raises `IndexError` at the end of the data,
    and for groups, which Pulsar has not.
    """
    kind = key & 7
    if kind == 0:
        return _read_varint(data, at)[1]
    if kind == 2:
        size, at = _read_varint(data, at)
        return at + size
    return at + {1: 8, 5: 4}.get(kind, len(data))


def last_batch_index_of(tail: bytes) -> int:
    """The index of the last message of a batch; −1 for a single message or unreadable metadata."""
    try:
        metadata = metadata_of(tail)
    except FrameError:
        return -1
    return (
        max(metadata.num_messages_in_batch - 1, -1)
        if metadata.HasField("num_messages_in_batch")
        else -1
    )


def encode(**command: Message) -> bytes:
    """A frame without a tail, of one command under its field of `BaseCommand`: `ping=…`."""
    (name,) = command
    base = pb.BaseCommand(type=COMMAND_TYPES[name], **command)  # type: ignore[arg-type]
    try:
        body = base.SerializeToString()
    except EncodeError as error:
        raise AssertionError(f"incomplete command {name}: {error}") from None
    return _HEAD.pack(4 + len(body), len(body)) + body


def encode_send(producer_id: int, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
    """A SEND of one message, as clients send it."""
    fields = metadata.SerializeToString()
    body = _SIZE.pack(len(fields)) + fields + payload
    tail = _TAIL.pack(MAGIC_CRC32C, crc32c(body)) + body
    send = pb.CommandSend(producer_id=producer_id, sequence_id=metadata.sequence_id)
    command = pb.BaseCommand(type=COMMAND_TYPES["send"], send=send).SerializeToString()
    return _HEAD.pack(4 + len(command) + len(tail), len(command)) + command + tail


def varint(value: int) -> bytes:
    """`value` ≥ 0 in protobuf's variable length."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


DUPLICATE = (1 << 64) - 1
"""Ledger and entry id (−1) in the receipt of a message that was stored before."""


_RECEIPT = pb.BaseCommand(type=COMMAND_TYPES["send_receipt"])
"""All receipts are made with this one command: one for each producer would take 2 KB of memory."""
_RECEIPT_BODY = _RECEIPT.send_receipt
_RECEIPT_ID = _RECEIPT_BODY.message_id


class ReceiptEncoder:
    """SEND_RECEIPT frames of one producer at one ledger."""

    def __init__(self, producer_id: int, ledger_id: int) -> None:
        self._producer_id = producer_id
        self._ledger_id = ledger_id

    def encode(self, sequence_id: int, entry_id: int) -> bytes:
        """The receipt for one SEND; of a `DUPLICATE` it names no message, as Pulsar's."""
        _RECEIPT_BODY.producer_id = self._producer_id
        _RECEIPT_BODY.sequence_id = sequence_id
        _RECEIPT_ID.ledgerId = self._ledger_id if entry_id != DUPLICATE else DUPLICATE
        _RECEIPT_ID.entryId = entry_id
        body = _RECEIPT.SerializeToString()
        return _HEAD.pack(4 + len(body), len(body)) + body


class LookupEncoder:
    """LOOKUP_RESPONSE frames that name one broker; all but the request id is encoded once."""

    def __init__(self, url: str, url_tls: str, redirect: bool, authoritative: bool) -> None:
        self._answer = pb.CommandLookupTopicResponse(
            brokerServiceUrl=url,
            brokerServiceUrlTls=url_tls,
            response=0 if redirect else 1,
            authoritative=authoritative,
            proxy_through_service_url=False,
        ).SerializePartialToString()

    def encode(self, request_id: int) -> bytes:
        answer = b"%b\x20%b" % (self._answer, varint(request_id))
        body = b"\x08\x18\xc2\x01%b%b" % (varint(len(answer)), answer)
        return _HEAD.pack(4 + len(body), len(body)) + body


class MessageEncoder:
    """Heads of MESSAGE frames for one consumer at one ledger; the stored tail follows as it is."""

    def __init__(self, consumer_id: int, ledger_id: int, partition: int) -> None:
        self._consumer = b"\x08" + varint(consumer_id) + b"\x12"
        self._ledger = b"\x08" + varint(ledger_id) + b"\x10"
        self._partition = b"\x18" + varint(partition) if partition >= 0 else b""

    def head(
        self,
        entry_id: int,
        tail_length: int,
        redelivery_count: int = 0,
        ack_set: tuple[int, ...] = (),
    ) -> bytes:
        """The part before the tail: sizes and the command, with the redelivery count and the batch
        indexes that are not acknowledged (`ack_set`), if any.
        """
        message_id = b"%b%b%b" % (self._ledger, varint(entry_id), self._partition)
        message = b"%b%b%b" % (self._consumer, varint(len(message_id)), message_id)
        if redelivery_count:
            message += b"\x18" + varint(redelivery_count)
        for word in ack_set:
            message += b"\x20" + varint(word & 0xFFFFFFFFFFFFFFFF)
        body = b"\x08\x09\x4a%b%b" % (varint(len(message)), message)
        return _HEAD.pack(4 + len(body) + tail_length, len(body)) + body
