"""Commands of producers: PRODUCER, SEND, CLOSE_PRODUCER."""

from __future__ import annotations

from loadmanager.adapters.protocol.connection import Connection
from loadmanager.adapters.protocol.hosted import AttachedProducer, HostedTopic
from loadmanager.adapters.protocol.lookups import code_of
from loadmanager.core.bundles.names import TopicName
from loadmanager.core.errors import ConflictError, LoadManagerError
from loadmanager.core.messaging.topic import QuotaExceededError
from loadmanager.core.wire import pulsar_pb2 as pb
from loadmanager.core.wire.frames import REQUEST_ID_NONE, Frame, FrameError, ReceiptEncoder, check_tail, encode
from loadmanager.ports.hosting import BrokerAddress

ACCESS_SHARED, ACCESS_EXCLUSIVE = 0, 1
DUPLICATE = (1 << 64) - 1


async def on_producer(connection: Connection, frame: Frame) -> None:
    """PRODUCER: attach a producer to a topic that is served here."""
    asked = frame.command.producer
    try:
        if asked.producer_access_mode not in (ACCESS_SHARED, ACCESS_EXCLUSIVE):
            raise ConflictError("access modes WaitForExclusive and ExclusiveWithFencing are not served")
        hosted = await connection.server.host(TopicName.parse(asked.topic))
        connection.server.check_memory()
        hosted.core.check_quota()
        _attach(connection, hosted, asked)
    except QuotaExceededError as error:
        connection.error(asked.request_id, pb.ProducerBlockedQuotaExceededException, str(error))
    except ConflictError as error:
        connection.error(asked.request_id, pb.ProducerBusy, str(error))
    except LoadManagerError as error:
        connection.error(asked.request_id, code_of(error), str(error))


def _attach(connection: Connection, hosted: HostedTopic, asked: pb.CommandProducer) -> None:
    if not connection.open:
        return
    before = connection.producers.pop(asked.producer_id, None)
    if before is not None:
        connection.server.detach_producer(before, for_good=False)
    name = asked.producer_name or connection.server.next_producer_name()
    stale = next((item for item in hosted.producers if item.core.name == name and item.connection.lost()), None)
    if stale is not None:
        stale.connection.producers.pop(stale.producer_id, None)
        connection.server.detach_producer(stale, for_good=False)
    core = hosted.core.attach_publisher(name, asked.epoch, exclusive=asked.producer_access_mode == ACCESS_EXCLUSIVE)
    taken_over = next((item for item in hosted.producers if item.core.name == name), None)
    if taken_over is not None:
        hosted.producers.pop(taken_over, None)
        hosted.limits.leave(taken_over.sender)
        taken_over.connection.producers.pop(taken_over.producer_id, None)
        taken_over.connection.closed_ids.add(taken_over.producer_id)
    version = hosted.core.register_schema(asked.schema.SerializeToString()).to_bytes(8, "big") if asked.HasField("schema") else b""
    receipts = ReceiptEncoder(asked.producer_id, hosted.core.ledger_id)
    producer = AttachedProducer(connection, asked.producer_id, hosted, core, receipts, hosted.limits.sender(name, connection.throttle))
    connection.producers[asked.producer_id] = producer
    connection.closed_ids.discard(asked.producer_id)
    hosted.producers[producer] = None
    connection.send(
        encode(
            17,
            producer_success=pb.CommandProducerSuccess(
                request_id=asked.request_id,
                producer_name=name,
                last_sequence_id=core.resent_until,
                schema_version=version,
                producer_ready=True,
            ),
        )
    )


def on_send(connection: Connection, frame: Frame) -> None:
    """SEND: verify, store, answer. What is stored is the tail as it came."""
    send = frame.command.send
    producer = connection.producers.get(send.producer_id)
    if producer is None:
        if send.producer_id in connection.closed_ids:
            return  # on the way while we closed the producer: its client sends it again elsewhere
        raise FrameError(f"SEND of producer {send.producer_id}, which does not exist on this connection")
    hosted = producer.hosted
    if hosted.fenced:
        return  # being unloaded, as above
    tail = frame.tail
    limits = hosted.limits.publish
    if limits:
        producer.sender.charge(limits, max(send.num_messages, 1), len(tail))
    if not check_tail(tail):
        connection.send(
            encode(
                8,
                send_error=pb.CommandSendError(
                    producer_id=send.producer_id, sequence_id=send.sequence_id, error=pb.ChecksumError, message="checksum failed"
                ),
            )
        )
        return
    try:
        entry = hosted.core.publish(producer.core, send.sequence_id, tail, send.num_messages)
    except QuotaExceededError:
        # SEND_ERROR would make C++ clients drop the whole connection. Closed, the producer comes back by itself and is then refused with the reason.
        close_producer(producer, None)
        return
    connection.send(producer.receipts.encode(send.sequence_id, DUPLICATE if entry is None else entry.entry_id))
    connection.server.dispatcher.touch(hosted)


def on_close_producer(connection: Connection, frame: Frame) -> None:
    """CLOSE_PRODUCER by the client."""
    asked = frame.command.close_producer
    producer = connection.producers.pop(asked.producer_id, None)
    if producer is not None:
        connection.server.detach_producer(producer, for_good=True)
    connection.send(encode(13, success=pb.CommandSuccess(request_id=asked.request_id)))


def close_producer(producer: AttachedProducer, destination: BrokerAddress | None) -> None:
    """CLOSE_PRODUCER by the broker: the client reconnects, to the destination if one is given."""
    connection = producer.connection
    if connection.producers.get(producer.producer_id) is producer:
        del connection.producers[producer.producer_id]
        connection.closed_ids.add(producer.producer_id)
    connection.server.detach_producer(producer, for_good=False)
    command = pb.CommandCloseProducer(producer_id=producer.producer_id, request_id=REQUEST_ID_NONE)
    if destination is not None:
        command.assignedBrokerServiceUrl = destination.service_url
    connection.send(encode(15, close_producer=command))
