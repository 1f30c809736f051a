"""Commands of producers: PRODUCER, SEND, CLOSE_PRODUCER."""

from __future__ import annotations

from loadmanager.broker.messaging.segments import ANY_TIME
from loadmanager.broker.messaging.subscription import SubscriptionType
from loadmanager.broker.messaging.topic import (
    ProducerAccessMode,
    ProducerFencedError,
    QuotaExceededError,
)
from loadmanager.broker.protocol.attachments import CAME_AGAIN, CLOSED_IT
from loadmanager.broker.protocol.connection import PRODUCERS_MAX, Connection
from loadmanager.broker.protocol.durable import create_durable
from loadmanager.broker.protocol.exclusive import SEQUENCE_ID_MAX, make_ready, welcome
from loadmanager.broker.protocol.hosted import (
    AttachedProducer,
    HostedTopic,
    held_since_attached_ms,
)
from loadmanager.broker.protocol.refusing import refuse
from loadmanager.broker.protocol.schemas import add_producer_schema, schema_code_of
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import (
    DUPLICATE,
    Frame,
    FrameError,
    ReceiptEncoder,
    RefusedMessageError,
    check_tail,
    checked_metadata,
    encode,
)
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import BadInputError, ConflictError, LoadManagerError, OperationalError
from loadmanager.kit.names import TopicName, check_name


async def on_producer(connection: Connection, frame: Frame) -> None:
    """PRODUCER: attach a producer to a topic that is served here."""
    request = frame.command.producer
    try:
        if request.producer_access_mode not in ProducerAccessMode.__members__.values():
            raise BadInputError("unknown producer access mode")
        check_name(request.producer_name, "producer name")
        if len(connection.producers) >= PRODUCERS_MAX:
            raise BadInputError(f"a connection has at most {PRODUCERS_MAX} producers")
        topic = TopicName.parse(request.topic)
        hosted = await connection.server.topics.host(topic)
        connection.server.topics.check_room(topic)
        hosted.core.check_quota()
        version = await add_producer_schema(connection.server, topic, request)
        hosted = await connection.server.topics.host(topic)
        hosted = await _with_initial_subscription(connection, hosted, request)
        if request.producer_access_mode != ProducerAccessMode.SHARED:
            hosted = await _alone(connection, hosted, request)
        producer = _attach(connection, hosted, request, version)
        if producer is not None and not producer.core.ready:
            await _welcome_exclusive(connection, producer)
    except QuotaExceededError as error:
        refuse(connection, frame.command, _blocked(error), str(error))
    except ProducerFencedError as error:
        refuse(connection, frame.command, pb.ProducerFenced, str(error))
    except ConflictError as error:
        refuse(connection, frame.command, pb.ProducerBusy, str(error))
    except LoadManagerError as error:
        refuse(connection, frame.command, schema_code_of(error), str(error))


def _blocked(error: QuotaExceededError) -> pb.ServerError.ValueType:
    if error.hold:
        return pb.ProducerBlockedQuotaExceededError
    return pb.ProducerBlockedQuotaExceededException


async def _with_initial_subscription(
    connection: Connection, hosted: HostedTopic, request: pb.CommandProducer
) -> HostedTopic:
    """Create the subscription that dead letters wait in, if it is absent (`DeadLetterPolicy`).

    Non-persistent topics ignore it, as in Pulsar. Returns the topic; see `create_durable`.
    """
    name = request.initial_subscription_name
    if not name or not hosted.name.persistent or name in hosted.core.subscriptions:
        return hosted
    check_name(name, "subscription name")
    return await create_durable(connection.server, hosted, name, SubscriptionType.EXCLUSIVE, 0)


async def _alone(
    connection: Connection, hosted: HostedTopic, request: pb.CommandProducer
) -> HostedTopic:
    """Check that nobody else was exclusive since this producer was, and fence others out if it
    asks for that. Returns the topic, which another life of its bundle may have opened meanwhile.
    """
    server = connection.server
    while hosted.core.epoch is None:
        epoch = await server.directory.topic_epoch(hosted.name)
        before, hosted = hosted, await server.topics.host(hosted.name)
        if hosted is before and hosted.core.epoch is None:
            hosted.core.epoch = epoch
    if request.HasField("topic_epoch"):
        hosted.core.check_epoch(request.topic_epoch)
    if request.producer_access_mode == ProducerAccessMode.EXCLUSIVE_WITH_FENCING:
        for other in list(hosted.producers.values()):
            if other.core.name != request.producer_name:
                server.attachments.close_producer(other, None, "another one is exclusive")
    return hosted


async def _welcome_exclusive(connection: Connection, producer: AttachedProducer) -> None:
    """Answer an exclusive producer. If its topic epoch cannot be stored, it is detached.

    Raises `ProducerFencedError` when another one fenced it out before it was ready, and
    `OperationalError` when the topic was unloaded.
    """
    core = producer.hosted.core
    if core.publishers.get(producer.core.name) is not producer.core:
        welcome(producer)  # it waits
        return
    try:
        ready = await make_ready(connection.server.directory, producer)
    except LoadManagerError:
        if connection.producers.get(producer.producer_id) is producer:
            del connection.producers[producer.producer_id]
        why = "its epoch could not be stored"
        connection.server.attachments.detach_producer(producer, why, for_good=False)
        raise
    if ready:
        connection.server.clients.attached(producer)
    if ready or not connection.open:
        return
    if producer.hosted.fenced:
        raise OperationalError(
            f"topic {producer.hosted.name} was unloaded. Please redo the lookup."
        )
    raise ProducerFencedError("Topic has another exclusive producer by now")


def _attach(
    connection: Connection, hosted: HostedTopic, request: pb.CommandProducer, version: bytes
) -> AttachedProducer | None:
    if not connection.open:
        return None
    replaced = connection.producers.pop(request.producer_id, None)
    if replaced is not None:
        connection.server.attachments.detach_producer(replaced, CAME_AGAIN, for_good=False)
    name = request.producer_name or connection.server.attachments.next_producer_name()
    present = hosted.producers.get(name)
    if present is not None and present.connection.lost():
        present.connection.producers.pop(present.producer_id, None)
        connection.server.attachments.detach_producer(present, CAME_AGAIN, for_good=False)
    access = ProducerAccessMode(request.producer_access_mode)
    core = hosted.core.attach_publisher(
        name, request.epoch, access=access, address=connection.address
    )
    taken_over = hosted.producers.get(name)
    if taken_over is not None:
        hosted.limits.leave(taken_over.sender, connection.server.clock.monotonic_ns())
        taken_over.connection.close_producer(taken_over.producer_id)
        connection.server.clients.left(taken_over, CAME_AGAIN)
    receipts = ReceiptEncoder(request.producer_id, hosted.core.ledger_id)
    producer = AttachedProducer(
        connection,
        request.producer_id,
        hosted,
        core,
        receipts,
        hosted.limits.sender(name, connection.throttle),
        request,
        version,
        connection.server.clock.now_ms(),
    )
    producer.paused_ns = connection.throttle.paused_until(connection.server.clock.monotonic_ns())
    connection.add_producer(producer)
    hosted.producers[name] = producer
    connection.server.dispatcher.touch(hosted)
    if core.ready:
        connection.server.clients.attached(producer)
        welcome(producer)
    return producer


def on_send(connection: Connection, frame: Frame) -> None:
    """SEND: verify checksum and metadata, charge the limits, store the tail as it came, answer."""
    send = frame.command.send
    producer = connection.producers.get(send.producer_id)
    if producer is None:
        if connection.was_closed(send.producer_id):
            return  # sent before the client read our CLOSE_PRODUCER; it sends it again elsewhere
        raise FrameError(
            f"SEND of producer {send.producer_id}, which does not exist on this connection"
        )
    hosted = producer.hosted
    if hosted.fenced:
        return  # being unloaded: likewise
    if send.sequence_id > SEQUENCE_ID_MAX or not producer.core.ready:
        raise FrameError(
            f"SEND with sequence id {send.sequence_id}"
            if producer.core.ready
            else f"SEND of producer {send.producer_id}, which waits to be exclusive"
        )
    tail = frame.tail
    if not check_tail(tail):
        _charge(connection, producer, 1, len(tail))
        _refuse(connection, send, pb.ChecksumError, "checksum failed")
        return
    try:
        metadata = checked_metadata(tail)
    except RefusedMessageError as error:
        _charge(connection, producer, 1, len(tail))
        _refuse(connection, send, pb.NotAllowedError, str(error))
        return
    messages = metadata.num_messages_in_batch
    _charge(connection, producer, messages, len(tail))
    deliver_at_ms = max(metadata.deliver_at_time, 0)
    if deliver_at_ms and not connection.server.settings.value.delayed:
        deliver_at_ms = 0
    try:
        entry = hosted.core.publish(
            producer.core,
            send.sequence_id,
            tail,
            messages,
            deliver_at_ms,
            continued=metadata.chunk_id + 1 < metadata.num_chunks_from_msg,
            highest_id=min(send.highest_sequence_id, SEQUENCE_ID_MAX),
            published_ms=min(metadata.publish_time, ANY_TIME),
        )
    except QuotaExceededError:
        # SEND_ERROR would make C++ clients drop the whole connection. A closed producer comes back
        # by itself, and PRODUCER is then refused with the reason.
        why = "the backlog quota is reached"
        connection.server.attachments.close_producer(producer, None, why)
        return
    hosted.figures.writes.add(len(tail))
    hosted.published_ms = connection.server.clock.now_ms()
    producer.sent_ms = producer.sent_ms or _first_sent_ms(producer, connection.server.clock)
    if hosted.stored is not None:
        hosted.stored.owe(producer, send.sequence_id, entry, metadata.chunk_id)
        return
    producer.receipt_ms = producer.receipt_ms or connection.server.clock.now_ms()
    connection.send(
        producer.receipts.encode(send.sequence_id, DUPLICATE if entry is None else entry.entry_id)
    )
    connection.server.dispatcher.touch(hosted)


def _first_sent_ms(producer: AttachedProducer, clock: Clock) -> int:
    """Since when its first message, read now, may have waited: the connection was held."""
    return clock.now_ms() - held_since_attached_ms(producer, clock.monotonic_ns())


def _refuse(
    connection: Connection, send: pb.CommandSend, code: pb.ServerError.ValueType, text: str
) -> None:
    error = pb.CommandSendError(
        producer_id=send.producer_id, sequence_id=send.sequence_id, error=code, message=text
    )
    connection.send(encode(send_error=error))


def _charge(
    connection: Connection, producer: AttachedProducer, messages: int, size_bytes: int
) -> None:
    limits = producer.hosted.limits.publish
    if limits:
        now_ns = connection.server.clock.monotonic_ns()
        producer.sender.charge(limits, messages, size_bytes, now_ns)


def on_close_producer(connection: Connection, frame: Frame) -> None:
    request = frame.command.close_producer
    producer = connection.producers.pop(request.producer_id, None)
    success = encode(success=pb.CommandSuccess(request_id=request.request_id))
    if producer is not None:
        connection.server.attachments.detach_producer(producer, CLOSED_IT, for_good=True)
        stored = producer.hosted.stored
        # As Pulsar's broker: a client may take no receipt after the answer.
        if stored is not None and stored.answer_later(producer, success):
            return
    connection.send(success)
