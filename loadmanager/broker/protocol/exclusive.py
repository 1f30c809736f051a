"""Answers to producers, and the topic epochs of exclusive ones. An epoch is stored before its
producer may send, so that an earlier one is refused wherever the topic goes (PIP 68).
"""

from __future__ import annotations

from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.protocol.hosted import AttachedProducer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.errors import LoadManagerError

SEQUENCE_ID_MAX = (1 << 63) - 1
"""The greatest `last_sequence_id` of PRODUCER_SUCCESS (int64)."""
UNUSED_ABOVE = 1 << 32
"""No client has sent so many messages without a receipt."""


def welcome(producer: AttachedProducer) -> None:
    """Tell a producer that it is attached, and whether it may send."""
    core, request = producer.core, producer.request
    success = pb.CommandProducerSuccess(
        request_id=request.request_id,
        producer_name=core.name,
        last_sequence_id=_last_sequence_id(producer),
        schema_version=producer.schema_version,
        producer_ready=core.ready,
    )
    if request.producer_access_mode and core.ready:
        success.topic_epoch = producer.hosted.core.epoch or 0
    producer.connection.send(encode(producer_success=success))


def _last_sequence_id(producer: AttachedProducer) -> int:
    """The sequence id above which the client is to number new messages, if it has none yet.

    With de-duplication, that of its last message, as in Pulsar. Without it, if it reconnects, a
    number that no message has which it repeats: a C++ client without a receipt so far begins anew
    behind this answer, while it still repeats messages. It would give their sequence ids to new
    messages, and the next owner could not tell the ones from the others.
    """
    core, last = producer.core, producer.core.resent_until
    if core.epoch == 0 or producer.hosted.core.rules.deduplicates:
        return last
    return last + UNUSED_ABOVE if last <= SEQUENCE_ID_MAX - UNUSED_ABOVE else last


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


async def promote(directory: Directory, producer: AttachedProducer) -> bool:
    """`make_ready` for a producer that waited; if it fails, the producer is closed by an error."""
    try:
        return await make_ready(directory, producer)
    except LoadManagerError as error:
        producer.connection.close(str(error))
        return False


def _attached(producer: AttachedProducer) -> bool:
    hosted = producer.hosted
    return hosted.producers.get(producer.core.name) is producer and not hosted.fenced
