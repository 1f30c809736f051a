"""Commands that need neither a producer nor a consumer: CONNECT, PING, PARTITIONED_METADATA,
LOOKUP, GET_TOPICS_OF_NAMESPACE.
"""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any

from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.refusing import refuse
from loadmanager.broker.protocol.storing import StorageFullError
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, FrameError, LookupEncoder, encode
from loadmanager.kit.errors import BadInputError, CorruptDataError, LoadManagerError, NotFoundError
from loadmanager.kit.names import NamespaceName, TopicName, check_name
from loadmanager.member.ports.lookup import Lookup

PROTOCOL_VERSION_MAX = 20
SERVER_VERSION = "loadmanager"
CLIENT_VERSION_MAX = 100
"""Characters that are kept of the version that a client says it has."""
ANSWERS_MAX = 1_000
"""Answers to lookups that are kept encoded: one for each broker and kind of client."""
TRANSACTIONS = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")
"""Its partitions would be the transaction coordinators. It has no partitions here, from which
clients conclude that the broker does not serve transactions.
"""
MODES = ("PERSISTENT", "NON_PERSISTENT", "ALL")


def on_connect(connection: Connection, frame: Frame) -> None:
    """CONNECT: answer CONNECTED. `access.ClientAccess` has checked it, if access is checked."""
    if connection.connected:
        raise FrameError("CONNECT came twice")
    request = frame.command.connect
    if not connection.welcome():
        return
    connection.server.attachments.counts.succeeded += 1
    connection.client_version = request.client_version[:CLIENT_VERSION_MAX]
    connection.protocol_version = min(request.protocol_version, PROTOCOL_VERSION_MAX)
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
    """PING: answer PONG."""
    connection.send(encode(pong=pb.CommandPong()))


def on_pong(_connection: Connection, _frame: Frame) -> None:
    """PONG: nothing to do; `Connection.last_heard_s` was set when it arrived."""


async def on_partition_metadata(connection: Connection, frame: Frame) -> None:
    """PARTITIONED_METADATA: how many partitions a topic has."""
    request = frame.command.partition_metadata
    response = pb.CommandPartitionedTopicMetadataResponse(
        request_id=request.request_id, response=0, partitions=0
    )
    try:
        topic = TopicName.parse(request.topic)
        if topic != TRANSACTIONS:
            response.partitions = await connection.server.directory.partitions(
                topic, create=request.metadata_auto_creation_enabled
            )
    except LoadManagerError as error:
        refuse(connection, frame.command, code_of(error), str(error))
        return
    connection.send(encode(partition_metadata_response=response))


def on_lookup(connection: Connection, frame: Frame) -> Coroutine[Any, Any, None] | None:
    """LOOKUP: which broker serves a topic. The answer is sent at once when it is in memory."""
    request = frame.command.lookup
    directory = connection.server.directory
    try:
        listener = check_name(request.advertised_listener_name, "listener name")
        connection.listener = listener = listener or connection.listener
        topic = TopicName.parse(request.topic)
        lookup = directory.lookup_in_memory(topic) or _open_here(connection, topic)
        if lookup is None:
            return _look_up(connection, frame.command, topic, listener)
        _answer_lookup(connection, request.request_id, listener, lookup)
    except LoadManagerError as error:
        refuse(connection, frame.command, code_of(error), str(error))
    return None


def _open_here(connection: Connection, topic: TopicName) -> Lookup | None:
    """A stored topic that is open here goes on without the lease: clients may come back to it."""
    hosted = connection.server.topics.served(str(topic))
    stored = hosted is not None and hosted.stored is not None
    return Lookup(connection.server.directory.self_address) if stored else None


async def _look_up(
    connection: Connection, command: pb.BaseCommand, topic: TopicName, listener: str
) -> None:
    request = command.lookup
    try:
        lookup = await connection.server.directory.lookup(
            topic, authoritative=request.authoritative
        )
        _answer_lookup(connection, request.request_id, listener, lookup)
    except LoadManagerError as error:
        refuse(connection, command, code_of(error), str(error))


def _answer_lookup(connection: Connection, request_id: int, listener: str, lookup: Lookup) -> None:
    """Raises `OperationalError` when the broker has no such listener."""
    broker = lookup.broker.of(listener)
    encoder = _encoder(
        broker.service_url, broker.service_url_tls, lookup.redirect, lookup.authoritative
    )
    connection.send(encoder.encode(request_id))


_encoder = lru_cache(maxsize=ANSWERS_MAX)(LookupEncoder)


async def on_get_topics(connection: Connection, frame: Frame) -> None:
    """GET_TOPICS_OF_NAMESPACE: topic names, for clients that subscribe by pattern."""
    request = frame.command.get_topics
    try:
        mode = MODES[request.mode] if 0 <= request.mode < len(MODES) else ""
        topics = await connection.server.directory.topics_of_namespace(
            NamespaceName.parse(request.namespace), mode
        )
    except LoadManagerError as error:
        connection.error(request.request_id, code_of(error), str(error))
        return
    digest = hashlib.sha256("\n".join(topics).encode()).hexdigest()[:16]
    connection.send(
        encode(
            get_topics_response=pb.CommandGetTopicsOfNamespaceResponse(
                request_id=request.request_id,
                topics=topics,
                filtered=False,
                topics_hash=digest,
                changed=digest != request.topics_hash,
            ),
        )
    )


def code_of(error: LoadManagerError) -> pb.ServerError.ValueType:
    """The error code of the protocol: it decides whether clients try again or fail at once."""
    if isinstance(error, NotFoundError):
        return pb.TopicNotFound
    if isinstance(error, BadInputError):
        return pb.NotAllowedError
    if isinstance(error, CorruptDataError):
        return pb.MetadataError
    if isinstance(error, StorageFullError):
        return pb.PersistenceError
    return pb.ServiceNotReady
