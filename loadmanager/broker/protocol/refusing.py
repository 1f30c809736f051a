"""Answers a command with a refusal, as its client expects one, and records that."""

from __future__ import annotations

from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import COMMAND_TYPES, encode

FAILED_LOOKUP, FAILED_METADATA = 2, 1
NAMES = {number: name for name, number in COMMAND_TYPES.items()}


def refuse(
    connection: Connection, command: pb.BaseCommand, code: pb.ServerError.ValueType, text: str
) -> None:
    """Answer a command as its client expects a refusal."""
    connection.server.clients.refused(connection, code, text, command)
    if command.type == COMMAND_TYPES["lookup"]:
        answer = pb.CommandLookupTopicResponse(
            request_id=command.lookup.request_id, response=FAILED_LOOKUP, error=code, message=text
        )
        connection.send(encode(lookup_response=answer))
        return
    if command.type == COMMAND_TYPES["partition_metadata"]:
        metadata = pb.CommandPartitionedTopicMetadataResponse(
            request_id=command.partition_metadata.request_id,
            response=FAILED_METADATA,
            error=code,
            message=text,
        )
        connection.send(encode(partition_metadata_response=metadata))
        return
    connection.error(getattr(command, NAMES[command.type]).request_id, code, text)
