"""Commands that ask where things are: CONNECT, PARTITIONED_METADATA, LOOKUP,
GET_TOPICS_OF_NAMESPACE, schemas.
"""

from __future__ import annotations

import hashlib

from loadmanager.adapters.protocol.connection import Connection
from loadmanager.core.bundles.names import NamespaceName, TopicName, clip
from loadmanager.core.errors import BadInputError, CorruptDataError, LoadManagerError, NotFoundError
from loadmanager.core.wire import pulsar_pb2 as pb
from loadmanager.core.wire.frames import Frame, FrameError, encode

PROTOCOL_VERSION_MAX = 20
SERVER_VERSION = "loadmanager"
FAILED_LOOKUP, FAILED_METADATA = 2, 1
MODES = ("PERSISTENT", "NON_PERSISTENT", "ALL")


def on_connect(connection: Connection, frame: Frame) -> None:
    """CONNECT: greet. No authentication."""
    if connection.connected:
        raise FrameError("CONNECT came twice")
    asked = frame.command.connect
    connection.connected = True
    connection.protocol_version = min(asked.protocol_version, PROTOCOL_VERSION_MAX)
    flags = pb.FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
    connection.send(
        encode(
            connected=pb.CommandConnected(
                server_version=SERVER_VERSION,
                protocol_version=connection.protocol_version,
                max_message_size=connection.server.settings.value.message_bytes_max,
                feature_flags=flags,
            ),
        )
    )


def on_ping(connection: Connection, _frame: Frame) -> None:
    """PING: answer at once."""
    connection.send(encode(pong=pb.CommandPong()))


def on_pong(_connection: Connection, _frame: Frame) -> None:
    """PONG: that something arrived is all that counts."""


async def on_partition_metadata(connection: Connection, frame: Frame) -> None:
    """PARTITIONED_METADATA: how many partitions a topic has."""
    asked = frame.command.partition_metadata
    answer = pb.CommandPartitionedTopicMetadataResponse(request_id=asked.request_id, response=0)
    try:
        topic = TopicName.parse(asked.topic)
        answer.partitions = await connection.server.directory.partitions(
            topic, create=asked.metadata_auto_creation_enabled
        )
    except LoadManagerError as error:
        answer.response, answer.error, answer.message = FAILED_METADATA, code_of(error), str(error)
    connection.send(encode(partition_metadata_response=answer))


async def on_lookup(connection: Connection, frame: Frame) -> None:
    """LOOKUP: who serves a topic."""
    asked = frame.command.lookup
    answer = pb.CommandLookupTopicResponse(request_id=asked.request_id)
    try:
        found = await connection.server.directory.lookup(
            TopicName.parse(asked.topic), authoritative=asked.authoritative
        )
    except LoadManagerError as error:
        answer.response, answer.error, answer.message = FAILED_LOOKUP, code_of(error), str(error)
    else:
        answer.response = 0 if found.redirect else 1
        answer.brokerServiceUrl = found.broker.service_url
        answer.authoritative = found.authoritative
        answer.proxy_through_service_url = False
    connection.send(encode(lookup_response=answer))


async def on_get_topics(connection: Connection, frame: Frame) -> None:
    """GET_TOPICS_OF_NAMESPACE: names for clients that subscribe by pattern."""
    asked = frame.command.get_topics
    try:
        mode = MODES[asked.mode] if 0 <= asked.mode < len(MODES) else ""
        topics = await connection.server.directory.topics_of_namespace(
            NamespaceName.parse(asked.namespace), mode
        )
    except LoadManagerError as error:
        connection.error(asked.request_id, code_of(error), str(error))
        return
    digest = hashlib.sha256("\n".join(topics).encode()).hexdigest()[:16]
    connection.send(
        encode(
            get_topics_response=pb.CommandGetTopicsOfNamespaceResponse(
                request_id=asked.request_id,
                topics=topics,
                filtered=False,
                topics_hash=digest,
                changed=digest != asked.topics_hash,
            ),
        )
    )


def on_get_schema(connection: Connection, frame: Frame) -> None:
    """GET_SCHEMA: the latest or a given version of a served topic's schema."""
    asked = frame.command.get_schema
    answer = pb.CommandGetSchemaResponse(request_id=asked.request_id)
    hosted = connection.server.served(asked.topic)
    schemas = hosted.core.schemas if hosted is not None else []
    version = (
        int.from_bytes(asked.schema_version, "big") if asked.schema_version else len(schemas) - 1
    )
    if 0 <= version < len(schemas):
        answer.schema.ParseFromString(schemas[version])
        answer.schema_version = version.to_bytes(8, "big")
    else:
        answer.error_code, answer.error_message = (
            pb.TopicNotFound,
            f"{clip(asked.topic)} has no such schema",
        )
    connection.send(encode(get_schema_response=answer))


async def on_get_or_create_schema(connection: Connection, frame: Frame) -> None:
    """GET_OR_CREATE_SCHEMA: register a schema with a topic (Java clients only)."""
    asked = frame.command.get_or_create_schema
    answer = pb.CommandGetOrCreateSchemaResponse(request_id=asked.request_id)
    try:
        hosted = await connection.server.host(TopicName.parse(asked.topic))
        answer.schema_version = hosted.core.register_schema(
            asked.schema.SerializeToString()
        ).to_bytes(8, "big")
    except LoadManagerError as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    connection.send(encode(get_or_create_schema_response=answer))


def code_of(error: LoadManagerError) -> pb.ServerError.ValueType:
    """The error code by which clients retry what can be retried, and fail at once what cannot."""
    if isinstance(error, NotFoundError):
        return pb.TopicNotFound
    if isinstance(error, BadInputError):
        return pb.NotAllowedError
    if isinstance(error, CorruptDataError):
        return pb.MetadataError
    return pb.ServiceNotReady
