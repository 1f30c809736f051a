"""Answers to producers, and the topic epochs of exclusive ones. An epoch is stored before its
producer may send, so that an earlier one is refused wherever the topic goes (PIP 68).
"""

from __future__ import annotations

from loadmanager.adapters.protocol.hosted import AttachedProducer
from loadmanager.core.errors import LoadManagerError
from loadmanager.core.wire import pulsar_pb2 as pb
from loadmanager.core.wire.frames import encode
from loadmanager.ports.directory import Directory


def welcome(producer: AttachedProducer) -> None:
    """Tell a producer that it is attached, and whether it may send."""
    core, request = producer.core, producer.request
    success = pb.CommandProducerSuccess(
        request_id=request.request_id,
        producer_name=core.name,
        last_sequence_id=core.resent_until,
        schema_version=producer.schema_version,
        producer_ready=core.ready,
    )
    if request.producer_access_mode and core.ready:
        success.topic_epoch = producer.hosted.core.epoch or 0
    producer.connection.send(encode(producer_success=success))


async def make_ready(directory: Directory, producer: AttachedProducer) -> bool:
    """Give an exclusive producer its topic epoch and tell it that it may send; False, and nothing
    is said, when it is not attached any more.

    One that comes back with its epoch keeps it. Raises `OperationalError` when the store does not
    answer.
    """
    hosted, request = producer.hosted, producer.request
    if not _attached(producer):
        return False
    if hosted.core.epoch is None or not request.topic_epoch >= hosted.core.epoch > 0:
        epoch = await directory.next_topic_epoch(hosted.name)
        if not _attached(producer):
            return False
        hosted.core.epoch = epoch
    producer.core.ready = True
    welcome(producer)
    return True


async def promote(directory: Directory, producer: AttachedProducer) -> None:
    """`make_ready` for a producer that waited; if it fails, the producer is closed by an error."""
    try:
        await make_ready(directory, producer)
    except LoadManagerError as error:
        producer.connection.close(str(error))


def _attached(producer: AttachedProducer) -> bool:
    hosted = producer.hosted
    return hosted.producers.get(producer.core.name) is producer and not hosted.fenced
