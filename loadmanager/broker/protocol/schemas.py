"""Commands of schemas: GET_SCHEMA and GET_OR_CREATE_SCHEMA, which any broker answers, and the
schemas that PRODUCER and SUBSCRIBE bring.
"""

from __future__ import annotations

from loadmanager.broker.messaging.schema import TYPES, IncompatibleSchemaError, Schema
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.broker.protocol.lookups import code_of
from loadmanager.broker.protocol.serving import Serving
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, encode
from loadmanager.kit.errors import BadInputError, LoadManagerError, NotFoundError
from loadmanager.kit.names import TopicName, clip

_WITHOUT = (TYPES.index("NONE"), TYPES.index("AUTO_CONSUME"))
"""Types by which clients say that they have no schema of their own."""


async def on_get_schema(connection: Connection, frame: Frame) -> None:
    """GET_SCHEMA: a version, by default the latest, of the schema of a topic."""
    request = frame.command.get_schema
    response = pb.CommandGetSchemaResponse(request_id=request.request_id)
    try:
        stored = await connection.server.directory.schemas.get(TopicName.parse(request.topic))
        wanted = request.schema_version
        if stored is None or wanted not in (b"", _version_bytes(stored.version)):
            raise NotFoundError(f"{clip(request.topic)} has no such schema")
        assert stored.schema is not None
        response.schema.name = stored.schema.name
        response.schema.schema_data = stored.schema.data
        response.schema.type = stored.schema.type
        for key, value in stored.schema.properties.items():
            response.schema.properties.add(key=key, value=value)
        response.schema_version = _version_bytes(stored.version)
    except LoadManagerError as error:
        response.error_code, response.error_message = schema_code_of(error), str(error)
    connection.send(encode(get_schema_response=response))


async def on_get_or_create_schema(connection: Connection, frame: Frame) -> None:
    """GET_OR_CREATE_SCHEMA: register a schema with a topic (Java clients only)."""
    request = frame.command.get_or_create_schema
    response = pb.CommandGetOrCreateSchemaResponse(request_id=request.request_id)
    try:
        topic, directory = TopicName.parse(request.topic), connection.server.directory
        if connection.server.topics.served(str(topic)) is None:
            await directory.partitions(topic, create=False)
        version = await directory.schemas.add(topic, _schema_of(request.schema))
        response.schema_version = _version_bytes(version)
    except LoadManagerError as error:
        response.error_code, response.error_message = schema_code_of(error), str(error)
    connection.send(encode(get_or_create_schema_response=response))


async def add_producer_schema(
    server: Serving, topic: TopicName, request: pb.CommandProducer
) -> bytes:
    """Register the schema of a producer; returns its version, empty without a schema.

    Raises `IncompatibleSchemaError` for another schema than the topic's.
    """
    if not request.HasField("schema") or request.schema.type in _WITHOUT:
        return b""
    return _version_bytes(await server.directory.schemas.add(topic, _schema_of(request.schema)))


async def check_consumer_schema(
    server: Serving, hosted: HostedTopic, request: pb.CommandSubscribe
) -> None:
    """Compare the schema of a consumer with the topic's. As in Pulsar, an unused topic gets it.

    Raises `IncompatibleSchemaError` for another schema, and in a used topic without a schema.
    """
    if not request.HasField("schema") or request.schema.type in _WITHOUT:
        return
    schemas, schema = server.directory.schemas, _schema_of(request.schema)
    if hosted.idle and hosted.core.log.bytes == 0:
        await schemas.add(hosted.name, schema)
        return
    stored = await schemas.get(hosted.name)
    if stored is None or stored.schema is None:
        raise IncompatibleSchemaError("Topic does not have schema to check")
    stored.schema.check_same(schema)


def schema_code_of(error: LoadManagerError) -> pb.ServerError.ValueType:
    """Pulsar's error code of an exception, for commands with a schema; see `code_of`."""
    return pb.IncompatibleSchema if isinstance(error, IncompatibleSchemaError) else code_of(error)


def _version_bytes(version: int) -> bytes:
    return version.to_bytes(8, "big")


def _schema_of(message: pb.Schema) -> Schema:
    """Raises `BadInputError` for an unknown type, and for texts that are not UTF-8."""
    if not 0 <= message.type < len(TYPES):
        raise BadInputError(f"schema type {message.type} is unknown")
    properties = {prop.key: prop.value for prop in message.properties}
    if not all(isinstance(text, str) for text in (message.name, *properties, *properties.values())):
        raise BadInputError("a text of the schema is not valid UTF-8")
    return Schema(message.type, message.schema_data, message.name, properties)
