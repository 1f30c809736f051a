"""Commands of consumers: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK, GET_LAST_MESSAGE_ID, UNSUBSCRIBE,
CLOSE_CONSUMER, CONSUMER_STATS.
"""

from __future__ import annotations

from loadmanager.broker.messaging.consumers import Consumer
from loadmanager.broker.messaging.subscription import Subscription, SubscriptionType
from loadmanager.broker.messaging.topic import QuotaExceededError
from loadmanager.broker.protocol.attachments import CAME_AGAIN, CLOSED_IT
from loadmanager.broker.protocol.connection import CONSUMERS_MAX, Connection
from loadmanager.broker.protocol.durable import create_durable, seek
from loadmanager.broker.protocol.hosted import (
    AttachedConsumer,
    HostedTopic,
    held_since_attached_ms,
)
from loadmanager.broker.protocol.refusing import refuse
from loadmanager.broker.protocol.schemas import check_consumer_schema, schema_code_of
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import (
    REQUEST_ID_NONE,
    Frame,
    MessageEncoder,
    encode,
    last_batch_index_of,
)
from loadmanager.kit.errors import BadInputError, ConflictError, LoadManagerError
from loadmanager.kit.names import TopicName, check_name

ENTRY_NONE = (1 << 64) - 1
LATEST = (1 << 63) - 1
KEY_SHARED = 3
CUMULATIVE = 1


async def on_subscribe(connection: Connection, frame: Frame) -> None:
    """SUBSCRIBE: attach a consumer. A durable subscription is recorded before SUCCESS is sent."""
    request = frame.command.subscribe
    try:
        if request.subType not in SubscriptionType.__members__.values():
            raise BadInputError(
                "Key_Shared subscription is disabled by broker."
                if request.subType == KEY_SHARED
                else "unknown subscription type"
            )
        check_subscribe(connection, request)
        topic = TopicName.parse(request.topic)
        hosted = await connection.server.topics.host(topic)
        _check_durability(hosted, request)
        now_ns = connection.server.clock.monotonic_ns()
        if not hosted.limits.subscribe.try_subscribe(
            connection.address, request.consumer_name, request.consumer_id, now_ns
        ):
            text = "Subscribe limited by subscribe rate limit per consumer."
            refuse(connection, frame.command, pb.NotAllowedError, text)
            return
        await check_consumer_schema(connection.server, hosted, request)
        hosted = await connection.server.topics.host(topic)
        if request.durable and request.subscription not in hosted.core.subscriptions:
            hosted.core.check_consumer(request.subscription, connection.address)
            kind, start_id = SubscriptionType(request.subType), _start_id(hosted, request)
            hosted = await create_durable(
                connection.server, hosted, request.subscription, kind, start_id
            )
        _attach(connection, hosted, request)
    except QuotaExceededError as error:
        refuse(connection, frame.command, pb.NotAllowedError, str(error))
    except ConflictError as error:
        refuse(connection, frame.command, pb.ConsumerBusy, str(error))
    except LoadManagerError as error:
        code = schema_code_of(error)
        refuse(connection, frame.command, code, str(error))
        if code == pb.ServiceNotReady:
            # C++ clients do not repeat a first SUBSCRIBE after an ERROR alone; after CLOSE_CONSUMER
            # they do.
            command = pb.CommandCloseConsumer(
                consumer_id=request.consumer_id, request_id=REQUEST_ID_NONE
            )
            connection.send(encode(close_consumer=command))


def check_subscribe(connection: Connection, request: pb.CommandSubscribe) -> None:
    """Raise `BadInputError` for a SUBSCRIBE that no topic can serve."""
    if not request.subscription:
        raise BadInputError("Empty subscription name")
    check_name(request.subscription, "subscription name")
    check_name(request.consumer_name, "consumer name")
    if len(connection.consumers) >= CONSUMERS_MAX:
        raise BadInputError(f"a connection has at most {CONSUMERS_MAX} consumers")


def _check_durability(hosted: HostedTopic, request: pb.CommandSubscribe) -> None:
    """Raise `BadInputError` when the subscription is durable, or is being recorded, and the
    consumer asks for one that is not, or the other way round (Pulsar's texts). In topics that are
    not persistent it makes no difference.
    """
    name = request.subscription
    present = hosted.core.subscriptions.get(name)
    if not hosted.name.persistent or (present is None and name not in hosted.creating):
        return
    durable = present is None or present.durable
    if durable != request.durable:
        kind = "Durable" if durable else "NonDurable"
        raise BadInputError(f"{kind} subscription with the same name already exists.")


def _start_id(hosted: HostedTopic, request: pb.CommandSubscribe) -> int:
    """The first entry id of a new subscription: as in Pulsar, that of `start_message_id` itself.
    Clients pass over the messages that they do not want.
    """
    log = hosted.core.log
    if not request.HasField("start_message_id"):
        return log.first_id if request.initialPosition == 1 else log.end_id
    return _position(hosted, request.start_message_id)


def _position(hosted: HostedTopic, message_id: pb.MessageIdData) -> int:
    """The entry id of a message id, within the entries that this topic holds. Ids of earlier owners
    come before them.
    """
    log = hosted.core.log
    if message_id.entryId == ENTRY_NONE or message_id.ledgerId == ENTRY_NONE:
        return log.first_id
    if message_id.ledgerId == LATEST:
        return log.end_id
    if message_id.ledgerId != hosted.core.ledger_id:
        return log.first_id if message_id.ledgerId < hosted.core.ledger_id else log.end_id
    return min(max(message_id.entryId, log.first_id), log.end_id)


def _attach(connection: Connection, hosted: HostedTopic, request: pb.CommandSubscribe) -> None:
    if not connection.open:
        return
    replaced = connection.consumers.pop(request.consumer_id, None)
    if replaced is not None:
        connection.server.attachments.detach_consumer(replaced, CAME_AGAIN)
    kind = SubscriptionType(request.subType)
    _check_durability(hosted, request)
    present = hosted.core.subscriptions.get(request.subscription)
    if present is not None and kind is not SubscriptionType.SHARED:
        _detach_lost(connection, hosted, present)
    hosted.core.check_consumer(request.subscription, connection.address)
    subscription = hosted.core.subscribe(
        request.subscription, kind, _start_id(hosted, request), durable=request.durable
    )
    core = Consumer(
        request.consumer_name,
        request.priority_level,
        writable=connection.writable,
        address=connection.address,
    )
    before = subscription.active
    hosted.core.attach_consumer(subscription, core, kind)
    messages = MessageEncoder(request.consumer_id, hosted.core.ledger_id, hosted.core.partition)
    consumer = AttachedConsumer(
        connection,
        request.consumer_id,
        hosted,
        subscription,
        core,
        messages,
        connection.server.clock.now_ms(),
    )
    consumer.paused_ns = connection.throttle.paused_until(connection.server.clock.monotonic_ns())
    hosted.attached[core] = consumer
    connection.server.clients.attached(consumer)
    connection.server.dispatcher.touch(hosted)
    connection.consumers[request.consumer_id] = consumer
    connection.send(encode(success=pb.CommandSuccess(request_id=request.request_id)))
    connection.server.dispatcher.announce_active(hosted, subscription, before, new=core)


def _detach_lost(connection: Connection, hosted: HostedTopic, subscription: Subscription) -> None:
    """Detach an active consumer whose client died without a word: it must not block its
    successor.
    """
    while (core := subscription.active) is not None:
        other = hosted.attached[core]
        if not other.connection.lost():
            return
        other.connection.consumers.pop(other.consumer_id, None)
        connection.server.attachments.detach_consumer(other, CAME_AGAIN)


def on_flow(connection: Connection, frame: Frame) -> None:
    """FLOW: the consumer takes more messages."""
    consumer = connection.consumers.get(frame.command.flow.consumer_id)
    if consumer is not None:
        first, now_ms = not consumer.flow_ms, connection.server.clock.now_ms()
        consumer.flow_ms = now_ms
        consumer.subscription.flow(consumer.core, frame.command.flow.messagePermits)
        if not (consumer.served_ms or consumer.wanted_ms):
            wants = consumer.subscription.ready(0, now_ms, consumer.core)
            now_ns = connection.server.clock.monotonic_ns()
            unread_ms = held_since_attached_ms(consumer, now_ns) if first else 0
            consumer.wanted_ms = now_ms - unread_ms if wants else 0
        connection.server.dispatcher.touch(consumer.hosted, consumer.subscription)


def on_ack(connection: Connection, frame: Frame) -> None:
    """ACK: single entries, or all entries up to one (cumulative). Ids of other ledgers, which
    belong to earlier owners, are ignored.
    """
    ack = frame.command.ack
    consumer = connection.consumers.get(ack.consumer_id)
    if consumer is not None and not consumer.hosted.fenced and not ack.HasField("validation_error"):
        consumer.acked_ms = connection.server.clock.now_ms()
        ledger_id, subscription = consumer.hosted.core.ledger_id, consumer.subscription
        for message_id in ack.message_id:
            if message_id.ledgerId != ledger_id:
                continue
            if ack.ack_type != CUMULATIVE:
                subscription.ack(consumer.core, message_id.entryId, tuple(message_id.ack_set))
            elif not message_id.ack_set:
                subscription.ack_cumulative(consumer.core, message_id.entryId)
            elif message_id.entryId > 0:
                subscription.ack_cumulative(consumer.core, message_id.entryId - 1)
        if consumer.hosted.stored is not None:
            consumer.hosted.stored.moved()
        connection.server.dispatcher.touch(consumer.hosted, subscription)
    if ack.HasField("request_id"):
        connection.send(
            encode(
                ack_response=pb.CommandAckResponse(
                    consumer_id=ack.consumer_id, request_id=ack.request_id
                ),
            )
        )


def on_redeliver(connection: Connection, frame: Frame) -> None:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES: the given ids, or all that this consumer has not
    acknowledged.
    """
    request = frame.command.redeliver
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        return
    ledger_id = consumer.hosted.core.ledger_id
    ids = (
        [
            message_id.entryId
            for message_id in request.message_ids
            if message_id.ledgerId == ledger_id
        ]
        if request.message_ids
        else None
    )
    consumer.subscription.redeliver(consumer.core, ids)
    connection.server.dispatcher.touch(consumer.hosted, consumer.subscription)


def _known_consumer(
    connection: Connection, request_id: int, consumer_id: int
) -> AttachedConsumer | None:
    """The consumer of a request; without one, the request is answered with an error."""
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        text = f"consumer {consumer_id} does not exist"
        connection.error(request_id, pb.ConsumerNotFound, text)
    return consumer


async def on_seek(connection: Connection, frame: Frame) -> None:
    """SEEK: move the subscription to a message or a publish time.

    All its consumers are closed before SUCCESS is sent: a C++ client that reads SUCCESS first drops
    messages by its old position.
    """
    request = frame.command.seek
    consumer = _known_consumer(connection, request.request_id, request.consumer_id)
    if consumer is None:
        return
    hosted, subscription = consumer.hosted, consumer.subscription

    def wanted() -> bool:
        return connection.consumers.get(request.consumer_id) is consumer and not hosted.fenced

    position: int | None
    if request.HasField("message_id"):
        position = _position(hosted, request.message_id)
    else:
        position = await hosted.published_since(request.message_publish_time, wanted)
    if position is None or not wanted():
        return  # closed meanwhile: its client seeks again
    seek(connection.server, hosted, subscription, position)
    connection.send(encode(success=pb.CommandSuccess(request_id=request.request_id)))


async def on_get_last_message_id(connection: Connection, frame: Frame) -> None:
    """GET_LAST_MESSAGE_ID: the newest entry, with its last batch index; entry −1 in an empty
    topic.
    """
    request = frame.command.get_last_message_id
    consumer = _known_consumer(connection, request.request_id, request.consumer_id)
    if consumer is None:
        return
    core = consumer.hosted.core
    entry = await consumer.hosted.fetch(core.log.end_id - 1)
    last = pb.MessageIdData(
        ledgerId=core.ledger_id,
        entryId=ENTRY_NONE if entry is None else entry.entry_id,
        partition=core.partition,
    )
    if entry is not None and (batch_index := last_batch_index_of(entry.tail)) >= 0:
        last.batch_index = batch_index
    mark = consumer.subscription.mark
    position = pb.MessageIdData(
        ledgerId=core.ledger_id, entryId=mark - 1 if mark > 0 else ENTRY_NONE
    )
    response = pb.CommandGetLastMessageIdResponse(
        last_message_id=last, request_id=request.request_id, consumer_mark_delete_position=position
    )
    connection.send(encode(get_last_message_id_response=response))


async def on_unsubscribe(connection: Connection, frame: Frame) -> None:
    """UNSUBSCRIBE: forget the subscription. Refused while it has other consumers, unless forced."""
    request = frame.command.unsubscribe
    consumer = _known_consumer(connection, request.request_id, request.consumer_id)
    if consumer is None:
        return
    if len(consumer.subscription.consumers) > 1 and not request.force:
        text = "Unconnected or shared consumer attempting to unsubscribe: there are others"
        connection.error(request.request_id, pb.MetadataError, text)
        return
    try:
        await connection.server.directory.forget_subscription(
            consumer.hosted.name, consumer.subscription.name
        )
    except LoadManagerError as error:
        connection.error(request.request_id, pb.MetadataError, str(error))
        return
    # Meanwhile another consumer may have this id, and another subscription this name.
    if connection.consumers.get(request.consumer_id) is consumer:
        del connection.consumers[request.consumer_id]
    connection.server.attachments.detach_consumer(consumer, "it unsubscribed")
    hosted, subscription = consumer.hosted, consumer.subscription
    if hosted.core.subscriptions.get(subscription.name) is subscription:
        for core in list(subscription.consumers):  # forced, or attached meanwhile
            why = "its subscription was deleted"
            connection.server.attachments.close_consumer(hosted.attached[core], None, why)
        hosted.core.unsubscribe(subscription.name)
        hosted.limits.close_gate(subscription.name, connection.server.clock.monotonic_ns())
    connection.send(encode(success=pb.CommandSuccess(request_id=request.request_id)))


def on_close_consumer(connection: Connection, frame: Frame) -> None:
    request = frame.command.close_consumer
    consumer = connection.consumers.pop(request.consumer_id, None)
    if consumer is not None:
        connection.server.attachments.detach_consumer(consumer, CLOSED_IT)
    connection.send(encode(success=pb.CommandSuccess(request_id=request.request_id)))


def on_consumer_stats(connection: Connection, frame: Frame) -> None:
    """CONSUMER_STATS: the figures of one consumer."""
    request = frame.command.consumer_stats
    response = pb.CommandConsumerStatsResponse(request_id=request.request_id)
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        response.error_code, response.error_message = (
            pb.ConsumerNotFound,
            f"consumer {request.consumer_id} does not exist",
        )
    else:
        core = consumer.core
        response.msgRateOut = consumer.hosted.traffic.msg_rate_out
        response.msgThroughputOut = consumer.hosted.traffic.msg_throughput_out
        response.consumerName = core.name
        response.availablePermits = max(core.permits, 0)
        response.unackedMessages = core.unacked_messages
        response.address = connection.peer
        response.type = consumer.subscription.kind.name.capitalize()
        response.msgBacklog = consumer.subscription.backlog_messages
    connection.send(encode(consumer_stats_response=response))
