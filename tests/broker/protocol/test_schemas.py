"""Schemas: which are refused, and what is remembered of them; raw frames."""

from __future__ import annotations

from typing import Any

import pytest
from broker.protocol.driven_broker import ERROR, Broker, Wire
from broker.protocol.test_hostile_clients import NAME, a_producer, a_publish, a_subscribe

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode

STRING, JSON, AVRO, AUTO_CONSUME = 1, 2, 4, 21
RECORD = b'{"type": "record", "name": "A", "fields": []}'
SAME_RECORD = b'{"name":"A","type":"record","fields":[]}'
OTHER_RECORD = b'{"name":"A","type":"record","fields":[{"name":"x","type":"int"}]}'


def a_schema(kind: int, data: bytes = b"", **fields: Any) -> pb.Schema:
    """A schema."""
    return pb.Schema(**{"name": "s", "schema_data": data, "type": kind, **fields})


async def stored(broker: Broker, version: bytes = b"") -> pb.CommandGetSchemaResponse:
    """The answer of GET_SCHEMA."""
    connection, wire = await broker.connect()
    asked = pb.CommandGetSchema(topic=NAME, request_id=9, schema_version=version)
    await broker.say(connection, encode(get_schema=asked))
    return wire.frames[-1].command.get_schema_response


def refused(wire: Wire) -> bool:
    """True if the last answer is Pulsar's error for a schema that does not fit."""
    last = wire.frames[-1].command
    return last.type == ERROR and last.error.error == pb.IncompatibleSchema


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        (a_schema(STRING), a_schema(STRING, name="other"), True),
        (a_schema(STRING), a_schema(JSON), False),
        (a_schema(AVRO, RECORD), a_schema(AVRO, SAME_RECORD), True),
        (a_schema(AVRO, RECORD), a_schema(AVRO, OTHER_RECORD), False),
        (a_schema(JSON, RECORD), a_schema(JSON, SAME_RECORD), True),
        (a_schema(JSON, b"[" * 90_000), a_schema(JSON, b"[" * 90_001), False),
        (a_schema(JSON, RECORD), a_schema(AUTO_CONSUME), True),
    ],
)
async def test_every_change_is_refused(
    broker: Broker, first: pb.Schema, second: pb.Schema, *, fits: bool
) -> None:
    """A producer and a consumer with another schema are refused; the first schema stays."""
    connection, wire = await broker.connect()
    await broker.say(connection, a_producer(schema=first))
    assert wire.frames[-1].command.producer_success.schema_version == b"\0" * 8
    for number, frame in enumerate(
        (a_producer(producer_id=2, schema=second), a_subscribe(schema=second))
    ):
        await broker.say(connection, frame)
        assert refused(wire) is not fits, number
    answer = await stored(broker)
    assert answer.schema == first
    assert answer.schema_version == b"\0" * 8
    assert (await stored(broker, b"\0" * 7 + b"\1")).error_code == pb.TopicNotFound


async def test_a_consumer_gives_an_unused_topic_its_schema(broker: Broker) -> None:
    """In a topic with messages and without a schema, it is refused, as in Pulsar."""
    connection, wire = await broker.connect()
    await broker.say(connection, a_subscribe(schema=a_schema(STRING)))
    assert (await stored(broker)).schema == a_schema(STRING)
    assert not refused(wire)
    await broker.say(connection, a_producer(topic="used"))
    await broker.say(connection, a_publish())
    await broker.say(connection, a_subscribe(topic="used", consumer_id=2, schema=a_schema(STRING)))
    assert refused(wire)


async def test_nonsense_is_refused(broker: Broker) -> None:
    """Unknown types, and texts that are not UTF-8."""
    connection, wire = await broker.connect()
    for bad in (a_schema(-7), a_schema(99)):
        await broker.say(connection, a_producer(schema=bad))
        assert wire.frames[-1].command.error.error == pb.NotAllowedError
    broken = a_producer(schema=a_schema(STRING, name="MARK")).replace(b"MARK", b"\xff\xfe\xed\xa0")
    await broker.say(connection, broken)
    assert wire.frames[-1].command.error.error == pb.NotAllowedError
    assert (await stored(broker)).error_code == pb.TopicNotFound
