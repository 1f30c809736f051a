"""Frames: cutting, checking, encoding."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import (
    COMMAND_TYPES,
    DUPLICATE,
    PEEK_BYTES_MAX,
    PEEK_FRAMES_MAX,
    Frame,
    FrameError,
    FrameReader,
    LookupEncoder,
    MessageEncoder,
    Peeked,
    ReceiptEncoder,
    check_tail,
    encode,
    encode_send,
    metadata_of,
    publish_time_of,
)

LIMIT = 1 << 20
U64 = st.integers(0, (1 << 64) - 1)


def frames_of(data: bytes, frame_bytes_max: int) -> Iterator[Frame]:
    """All complete frames of `data`."""
    reader = FrameReader(frame_bytes_max)
    reader.feed(data)
    while (frame := reader.take()) is not None:
        yield frame


def a_tail(payload: bytes = b"hello", checksum: bool = True) -> bytes:
    """The bytes after the command of a SEND."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=7
    ).SerializeToString()
    body = struct.pack(">I", len(metadata)) + metadata + payload
    return struct.pack(">HI", 0x0E01, crc32c(body)) + body if checksum else body


@given(cuts=st.lists(st.integers(1, 30), max_size=40))
def test_frames_survive_any_segmentation(cuts: list[int]) -> None:
    """However TCP cuts the stream, the same frames come out."""
    stream = b"".join(
        encode(flow=pb.CommandFlow(consumer_id=n, messagePermits=n + 1)) for n in range(20)
    )
    reader, got, at = FrameReader(LIMIT), [], 0
    for size in [*cuts, len(stream)]:
        reader.feed(stream[at : at + size])
        at += size
        while (frame := reader.take()) is not None:
            got.append(frame.command.flow.consumer_id)
    assert got == list(range(20))
    assert reader.pending_bytes == 0


@given(producer=U64, ledger=U64, sequence=U64, entry=U64)
def test_receipts_are_what_protobuf_would_write(
    producer: int, ledger: int, sequence: int, entry: int
) -> None:
    """The hand-made receipt parses to its parts; that of a duplicate names no ledger."""
    (frame,) = frames_of(ReceiptEncoder(producer, ledger).encode(sequence, entry), LIMIT)
    receipt = frame.command.send_receipt
    assert (frame.command.type, receipt.producer_id, receipt.sequence_id) == (7, producer, sequence)
    told = DUPLICATE if entry == DUPLICATE else ledger
    assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (told, entry)


@given(
    request=U64,
    url=st.text(max_size=200),
    url_tls=st.text(max_size=200),
    redirect=st.booleans(),
    authoritative=st.booleans(),
)
def test_lookup_answers_are_what_protobuf_would_write(
    request: int, url: str, url_tls: str, redirect: bool, authoritative: bool
) -> None:
    """The hand-made answer parses to the same command as one of protobuf."""
    (frame,) = frames_of(
        LookupEncoder(url, url_tls, redirect, authoritative).encode(request), LIMIT
    )
    assert frame.command == pb.BaseCommand(
        type=COMMAND_TYPES["lookup_response"],
        lookup_response=pb.CommandLookupTopicResponse(
            brokerServiceUrl=url,
            brokerServiceUrlTls=url_tls,
            response=0 if redirect else 1,
            request_id=request,
            authoritative=authoritative,
            proxy_through_service_url=False,
        ),
    )


@given(
    consumer=U64,
    ledger=U64,
    entry=U64,
    partition=st.integers(-1, 1000),
    count=st.integers(0, 99),
    words=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
)
def test_message_heads_are_what_protobuf_would_write(
    consumer: int, ledger: int, entry: int, partition: int, count: int, words: list[int]
) -> None:
    """The hand-made head parses to its parts, and the tail follows byte for byte."""
    tail = a_tail()
    head = MessageEncoder(consumer, ledger, partition).head(entry, len(tail), count, tuple(words))
    (frame,) = frames_of(head + tail, LIMIT)
    message = frame.command.message
    assert (message.consumer_id, message.message_id.ledgerId, message.message_id.entryId) == (
        consumer,
        ledger,
        entry,
    )
    assert (message.message_id.partition, message.redelivery_count, list(message.ack_set)) == (
        partition,
        count,
        words,
    )
    assert frame.tail == tail


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", LIMIT + 1),
        struct.pack(">I", 3) + b"abc",
        struct.pack(">II", 8, 100) + b"abcd",
        struct.pack(">II", 8, 4) + b"\xff\xff\xff\xff",
        struct.pack(">II", 6, 2) + b"\x08\xff",
    ],
)
def test_bad_frames_raise(data: bytes) -> None:
    """Oversize, too short, a command beyond its frame, bytes without a command: each raises, and
    ends the reading.
    """
    reader = FrameReader(LIMIT)
    reader.feed(data)
    with pytest.raises(FrameError):
        reader.take()


def test_missing_required_fields_raise() -> None:
    """A command without its required fields is refused."""
    body = b"\x08\x06\x32\x00"  # SEND without producer and sequence id
    with pytest.raises(FrameError):
        list(frames_of(struct.pack(">II", 4 + len(body), len(body)) + body, LIMIT))


def test_tails_are_verified() -> None:
    """One wrong bit anywhere behind the checksum is found; a tail without checksum passes if its
    sizes do.
    """
    tail = a_tail()
    assert check_tail(tail)
    assert check_tail(a_tail(checksum=False))
    for at in range(2, len(tail)):
        broken = bytearray(tail)
        broken[at] ^= 1
        assert not check_tail(bytes(broken)), at
    for length in range(10):
        assert not check_tail(tail[:length])


def test_metadata() -> None:
    """The metadata is read with and without checksum; nonsense raises."""
    assert metadata_of(a_tail()).publish_time == 7
    assert metadata_of(a_tail(checksum=False)).producer_name == "p"
    for nonsense in (b"", b"\x0e\x01", b"\x00\x00\x00\x04\xff\xff\xff\xff"):
        with pytest.raises(FrameError):
            metadata_of(nonsense)


@given(U64, st.text(max_size=1000), st.lists(st.text(), max_size=3), st.integers(0, 10_000))
def test_publish_times_are_read_from_the_beginning(
    time_ms: int, name: str, keys: list[str], more: int
) -> None:
    """As protobuf reads them, from a tail that is cut off behind them, too; 0 from nonsense."""
    metadata = pb.MessageMetadata(
        producer_name=name,
        sequence_id=1,
        publish_time=time_ms,
        properties=[pb.KeyValue(key=key, value="v") for key in keys],
    ).SerializeToString()
    body = struct.pack(">I", len(metadata)) + metadata + bytes(more)
    tail = struct.pack(">HI", 0x0E01, crc32c(body)) + body
    expected = time_ms if len(name.encode()) < 4000 else 0
    assert publish_time_of(tail) == expected
    assert publish_time_of(body) == expected
    for length in range(12):
        assert publish_time_of(tail[:length]) == 0
    assert publish_time_of(b"\0\0\0\7\x0b\x0a\xff\xff\xff\xff\x0f") == 0


def test_texts_that_are_not_utf8_raise() -> None:
    """Protobuf hands them out as bytes; no handler should meet them."""
    frame = encode(lookup=pb.CommandLookupTopic(topic="MARK", request_id=1)).replace(
        b"MARK", b"\xed\xa0\x80x"
    )
    with pytest.raises(FrameError, match="topic of lookup is not valid UTF-8"):
        list(frames_of(frame, LIMIT))


def test_a_command_that_is_not_there_raises() -> None:
    """A type without the fields that the command must have is refused."""
    with pytest.raises(FrameError, match="without its send"):
        list(frames_of(b"\0\0\0\6\0\0\0\2\x08\6", LIMIT))


def test_commands_are_smaller_than_messages() -> None:
    """A frame may be large for its payload, not for its command."""
    topics = pb.CommandGetTopicsOfNamespaceResponse(request_id=1, topics=["x" * 1000] * 1100)
    with pytest.raises(FrameError, match="larger than the 1048576 allowed"):
        list(frames_of(encode(get_topics_response=topics), 1 << 24))


def test_a_large_frame_in_small_pieces_is_joined_once() -> None:
    """Its cost does not grow with the number of pieces times its size: 4 MB in 300-byte pieces take
    a fraction of a second.
    """
    tail = a_tail(b"x" * 4_000_000)
    command = pb.BaseCommand(
        type=6, send=pb.CommandSend(producer_id=1, sequence_id=1)
    ).SerializeToString()
    data = struct.pack(">II", 4 + len(command) + len(tail), len(command)) + command + tail
    reader, taken = FrameReader(1 << 24), []
    began_s = time.process_time()
    for at in range(0, len(data), 300):
        reader.feed(data[at : at + 300])
        if (frame := reader.take()) is not None:
            taken.append(frame)
    assert [frame.tail == tail for frame in taken] == [True]
    assert reader.pending_bytes == 0
    # 2 s or more when every piece copies what came before
    assert time.process_time() - began_s < 0.5


def a_publish(producer_id: int, size: int = 5) -> bytes:
    """A SEND of so many bytes."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=7)
    return encode_send(producer_id, metadata, b"x" * size)


@given(cuts=st.lists(st.integers(1, 90), max_size=8))
def test_frames_that_wait_are_looked_at_without_taking_them(cuts: list[int]) -> None:
    """However TCP cuts the stream: the producers of SENDs, and whether somebody waits for others;
    also while the last frame is not complete, and after some were taken.
    """
    ping = encode(ping=pb.CommandPing())
    lookup = encode(lookup=pb.CommandLookupTopic(topic="t", request_id=1))
    stream = b"".join((ping, a_publish(300), lookup, ping, a_publish(2, size=500)))
    reader, at = FrameReader(LIMIT), 0
    for size in [*cuts, len(stream) - 400]:
        reader.feed(stream[at : min(at + size, len(stream) - 400)])
        at = min(at + size, len(stream) - 400)
    kinds = [Peeked.QUIET, 300, Peeked.REQUEST, Peeked.QUIET, 2]
    assert list(reader.peek()) == kinds
    for taken in range(1, 5):
        assert reader.take() is not None
        assert list(reader.peek()) == kinds[taken:]
    assert reader.take() is None
    reader.feed(stream[-400:])
    assert list(reader.peek()) == [2]


def test_a_look_at_frames_that_wait_has_an_end() -> None:
    """So many frames or bytes; what is behind them is said to be there."""
    reader = FrameReader(LIMIT)
    ping = encode(ping=pb.CommandPing())
    reader.feed(ping * (PEEK_FRAMES_MAX + 1))
    assert list(reader.peek()) == [*[Peeked.QUIET] * PEEK_FRAMES_MAX, Peeked.MORE]
    reader.discard()
    reader.feed(a_publish(1, size=PEEK_BYTES_MAX) + ping)
    assert list(reader.peek()) == [1, Peeked.MORE]
