"""Messages in chunks, and numbers in metadata that are too large."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from broker.protocol.driven_broker import BUNDLE, MESSAGE, RECEIPT, Broker, Wire
from broker.protocol.test_hostile_clients import a_frame, a_producer, a_publish, checked
from broker.protocol.test_stored_topics import Slow
from simulation.clients import send_frame

from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.exclusive import UNUSED_ABOVE
from loadmanager.broker.storage.memory_disk import SharedFiles
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import BATCH_MESSAGES_MAX, CHUNKED_BYTES_MAX, PLAIN_BYTES_MAX

SEND_ERROR = 8
ZSTD, LZ4 = 3, 1
STORED_BEFORE = (1 << 64) - 1


def a_chunk(sequence_id: int, chunk_id: int, chunks: int = 3, **fields: Any) -> bytes:
    """SEND of a part of a message."""
    metadata = pb.MessageMetadata(
        producer_name="prod",
        sequence_id=sequence_id,
        publish_time=1,
        uuid="u",
        num_chunks_from_msg=chunks,
        chunk_id=chunk_id,
        **fields,
    ).SerializeToString()
    body = struct.pack(">I", len(metadata)) + metadata + b"x"
    return a_frame(pb.CommandSend(producer_id=1, sequence_id=sequence_id), checked(body))


async def comes_back(broker: Broker, epoch: int) -> tuple[Connection, Wire]:
    """The producer, connected once more."""
    connection, wire = await broker.connect()
    await broker.say(connection, a_producer(producer_name="prod", epoch=epoch))
    return connection, wire


def entries(wire: Wire) -> list[int]:
    """The entry ids in the receipts."""
    receipts = [frame.command for frame in wire.frames if frame.command.type == RECEIPT]
    return [command.send_receipt.message_id.entryId for command in receipts]


async def test_new_messages_are_not_numbered_as_those_that_a_client_repeats() -> None:
    """A C++ client that had no receipt when it reconnects numbers new messages behind the answer,
    whatever waits to be repeated. The next owner must not take the new ones for repeated ones.
    """
    broker = Slow(SharedFiles())
    await broker.server.open_bundle(BUNDLE, 1)
    first, _ = await comes_back(broker, 0)
    first.connection_lost(None)
    second, wire = await comes_back(broker, 1)
    new = wire.frames[-1].command.producer_success.last_sequence_id + 1
    await broker.say(second, *(send_frame(1, number) for number in range(4)))
    assert entries(wire) == [0, 1, 2, 3]
    second.connection_lost(None)
    await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=1)
    await broker.settle()
    await broker.server.open_bundle(BUNDLE, 2)
    third, wire = await comes_back(broker, 2)
    await broker.say(third, send_frame(1, 3), send_frame(1, new), send_frame(1, new + 1))
    assert entries(wire) == [STORED_BEFORE, 4, 5]


@pytest.mark.parametrize("moves", [False, True])
async def test_a_message_in_chunks_survives_its_connection(moves: bool) -> None:
    """What was not acknowledged of it is stored when the producer repeats it, on this broker or the
    next; a whole message that is repeated is not stored again.
    """
    broker = Slow(SharedFiles())
    await broker.server.open_bundle(BUNDLE, 1)
    first, wire = await comes_back(broker, 0)
    await broker.say(first, a_chunk(4, 0, 1), a_chunk(5, 0))
    assert entries(wire) == [0, 1]
    first.connection_lost(None)
    if moves:
        await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=1)
        await broker.settle()
        await broker.server.open_bundle(BUNDLE, 2)
    second, wire = await comes_back(broker, 1)
    assert wire.frames[-1].command.producer_success.last_sequence_id == 4 + UNUSED_ABOVE
    await broker.say(second, a_chunk(4, 0, 1), a_chunk(5, 1), a_chunk(5, 2))
    assert entries(wire) == [0, 2, 3]
    second.connection_lost(None)
    third, wire = await comes_back(broker, 2)
    await broker.say(third, a_chunk(5, 2), a_chunk(6, 0, 1))
    assert entries(wire) == [3, 4]
    _, reader = await broker.consumer(permits=10)
    await broker.settle()
    assert reader.count(MESSAGE) == 5


@pytest.mark.parametrize(
    "frame",
    [
        a_publish(compression=ZSTD, uncompressed_size=PLAIN_BYTES_MAX + 1),
        a_publish(compression=LZ4, uncompressed_size=PLAIN_BYTES_MAX + 1, payload=bytes(1 << 20)),
        a_publish(
            compression=ZSTD,
            uncompressed_size=PLAIN_BYTES_MAX,
            num_messages_in_batch=BATCH_MESSAGES_MAX + 1,
        ),
        a_publish(
            payload=bytes(6 * BATCH_MESSAGES_MAX + 6), num_messages_in_batch=BATCH_MESSAGES_MAX + 1
        ),
        a_chunk(0, 0, compression=ZSTD, uncompressed_size=CHUNKED_BYTES_MAX + 1),
    ],
)
async def test_messages_that_are_too_large_are_refused_one_by_one(
    broker: Broker, frame: bytes
) -> None:
    """`NotAllowedError` for that message: a stock client fails it and goes on."""
    connection, wire = await broker.producer()
    await broker.say(connection, frame, a_publish(1))
    refused = [frame.command for frame in wire.frames if frame.command.type == SEND_ERROR]
    assert [command.send_error.error for command in refused] == [pb.NotAllowedError]
    assert "allowed" in refused[0].send_error.message
    assert wire.count(RECEIPT) == 1
    assert not wire.closed


async def test_compressed_messages_in_chunks_are_taken(broker: Broker) -> None:
    """Each chunk has the size of the whole message before compression, even a short last one."""
    connection, wire = await broker.producer()
    size = 200 * 1024 * 1024
    chunks = [a_chunk(1, number, compression=LZ4, uncompressed_size=size) for number in range(3)]
    await broker.say(connection, *chunks)
    assert (wire.count(RECEIPT), wire.closed) == (3, False)
