"""Commands of consumers: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK, GET_LAST_MESSAGE_ID, UNSUBSCRIBE,
CLOSE_CONSUMER, CONSUMER_STATS.
"""

from __future__ import annotations

from loadmanager.adapters.protocol.connection import CONSUMERS_MAX, Connection
from loadmanager.adapters.protocol.hosted import AttachedConsumer, HostedTopic
from loadmanager.adapters.protocol.lookups import code_of
from loadmanager.core.bundles.names import TopicName, check_name
from loadmanager.core.errors import BadInputError, ConflictError, LoadManagerError
from loadmanager.core.messaging.subscription import Consumer, Subscription, SubscriptionType
from loadmanager.core.messaging.topic import QuotaExceededError
from loadmanager.core.wire import pulsar_pb2 as pb
from loadmanager.core.wire.frames import (
    REQUEST_ID_NONE,
    Frame,
    MessageEncoder,
    encode,
    last_batch_index_of,
    publish_time_of,
)

ENTRY_NONE = (1 << 64) - 1
LATEST = (1 << 63) - 1
KEY_SHARED = 3
CUMULATIVE = 1
PERMITS_MAX = (1 << 31) - 1


async def on_subscribe(connection: Connection, frame: Frame) -> None:
    """SUBSCRIBE: attach a consumer.

    A durable subscription is recorded before the client is told of success.
    """
    asked = frame.command.subscribe
    try:
        if asked.subType not in SubscriptionType.__members__.values():
            raise ConflictError(
                "Key_Shared subscriptions are not served"
                if asked.subType == KEY_SHARED
                else "unknown subscription type"
            )
        check_subscribe(connection, asked)
        topic = TopicName.parse(asked.topic)
        hosted = await connection.server.host(topic)
        now_ns = connection.server.clock.monotonic_ns()
        if not hosted.limits.subscribe.try_subscribe(
            connection.address, asked.consumer_name, asked.consumer_id, now_ns
        ):
            connection.error(
                asked.request_id,
                pb.NotAllowedError,
                "Subscribe limited by subscribe rate limit per consumer.",
            )
            return
        if asked.durable and asked.subscription not in hosted.core.subscriptions:
            hosted = await _create(connection, hosted, asked)
        _attach(connection, hosted, asked)
    except QuotaExceededError as error:
        connection.error(asked.request_id, pb.NotAllowedError, str(error))
    except ConflictError as error:
        connection.error(asked.request_id, pb.ConsumerBusy, str(error))
    except LoadManagerError as error:
        code = code_of(error)
        connection.error(asked.request_id, code, str(error))
        if code == pb.ServiceNotReady:
            # C++ clients never retry a first SUBSCRIBE that is answered with an ERROR alone;
            # closed, they do.
            command = pb.CommandCloseConsumer(
                consumer_id=asked.consumer_id, request_id=REQUEST_ID_NONE
            )
            connection.send(encode(close_consumer=command))


def check_subscribe(connection: Connection, asked: pb.CommandSubscribe) -> None:
    """Raise `BadInputError` for a SUBSCRIBE that no topic can serve."""
    if not asked.subscription:
        raise BadInputError("Empty subscription name")
    check_name(asked.subscription, "subscription name")
    check_name(asked.consumer_name, "consumer name")
    if len(connection.consumers) >= CONSUMERS_MAX:
        raise BadInputError(f"a connection has at most {CONSUMERS_MAX} consumers")


async def _create(
    connection: Connection, hosted: HostedTopic, asked: pb.CommandSubscribe
) -> HostedTopic:
    """Record a durable subscription and add it to the topic, which may have been opened anew
    meanwhile.
    """
    hosted.core.check_consumer(
        asked.subscription, connection.address, creating=len(hosted.creating)
    )
    start_id, creating = _start_id(hosted, asked), hosted.creating
    creating[asked.subscription] = None
    try:
        await connection.server.directory.record_subscription(hosted.name, asked.subscription)
        hosted = await connection.server.host(hosted.name)
    finally:
        creating.pop(asked.subscription, None)
    hosted.core.subscribe(
        asked.subscription, SubscriptionType(asked.subType), start_id, durable=True
    )
    return hosted


def _start_id(hosted: HostedTopic, asked: pb.CommandSubscribe) -> int:
    """Where a new subscription begins."""
    log = hosted.core.log
    if not asked.HasField("start_message_id"):
        return log.first_id if asked.initialPosition == 1 else log.end_id
    start = asked.start_message_id
    return _position(hosted, start) + (
        0 if start.batch_index >= 0 or start.entryId in (ENTRY_NONE, LATEST) else 1
    )


def _position(hosted: HostedTopic, message_id: pb.MessageIdData) -> int:
    """The entry id of a message id, within what this topic holds; ids of earlier owners lie before
    it.
    """
    log = hosted.core.log
    if message_id.entryId == ENTRY_NONE or message_id.ledgerId == ENTRY_NONE:
        return log.first_id
    if message_id.ledgerId == LATEST:
        return log.end_id
    if message_id.ledgerId != hosted.core.ledger_id:
        return log.first_id if message_id.ledgerId < hosted.core.ledger_id else log.end_id
    return min(max(message_id.entryId, log.first_id), log.end_id)


def _attach(connection: Connection, hosted: HostedTopic, asked: pb.CommandSubscribe) -> None:
    if not connection.open:
        return
    before = connection.consumers.pop(asked.consumer_id, None)
    if before is not None:
        connection.server.detach_consumer(before)
    kind = SubscriptionType(asked.subType)
    present = hosted.core.subscriptions.get(asked.subscription)
    if present is not None and kind is not SubscriptionType.SHARED:
        _detach_lost(connection, hosted, present)
    hosted.core.check_consumer(asked.subscription, connection.address)
    if asked.HasField("schema"):
        hosted.core.register_schema(asked.schema.SerializeToString())
    subscription = hosted.core.subscribe(
        asked.subscription, kind, _start_id(hosted, asked), durable=asked.durable
    )
    core = Consumer(
        asked.consumer_name,
        asked.priority_level,
        writable=connection.writable,
        address=connection.address,
    )
    active = subscription.active
    hosted.core.attach_consumer(subscription, core, kind)
    messages = MessageEncoder(asked.consumer_id, hosted.core.ledger_id, hosted.core.partition)
    consumer = AttachedConsumer(connection, asked.consumer_id, hosted, subscription, core, messages)
    hosted.attached[core] = consumer
    connection.consumers[asked.consumer_id] = consumer
    connection.send(encode(success=pb.CommandSuccess(request_id=asked.request_id)))
    connection.server.announce_active(hosted, subscription, active, new=core)


def _detach_lost(connection: Connection, hosted: HostedTopic, subscription: Subscription) -> None:
    """A client that died must not be in the way of its successor."""
    for other in [
        hosted.attached[core] for core in subscription.consumers if core in hosted.attached
    ]:
        if other.connection.lost():
            other.connection.consumers.pop(other.consumer_id, None)
            connection.server.detach_consumer(other)


def on_flow(connection: Connection, frame: Frame) -> None:
    """FLOW: the consumer wants more messages."""
    consumer = connection.consumers.get(frame.command.flow.consumer_id)
    if consumer is not None:
        consumer.core.permits = min(
            consumer.core.permits + frame.command.flow.messagePermits, PERMITS_MAX
        )
        connection.server.dispatcher.touch(consumer.hosted)


def on_ack(connection: Connection, frame: Frame) -> None:
    """ACK: entries are done with, one by one or all up to one.

    Ids of another ledger are of an earlier owner and mean nothing here.
    """
    ack = frame.command.ack
    consumer = connection.consumers.get(ack.consumer_id)
    if consumer is not None and not consumer.hosted.fenced and not ack.HasField("validation_error"):
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
        connection.server.dispatcher.touch(consumer.hosted)
    if ack.HasField("request_id"):
        connection.send(
            encode(
                ack_response=pb.CommandAckResponse(
                    consumer_id=ack.consumer_id, request_id=ack.request_id
                ),
            )
        )


def on_redeliver(connection: Connection, frame: Frame) -> None:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES: some ids, or all that this consumer has not
    acknowledged.
    """
    asked = frame.command.redeliver
    consumer = connection.consumers.get(asked.consumer_id)
    if consumer is None:
        return
    ledger_id = consumer.hosted.core.ledger_id
    ids = (
        [message_id.entryId for message_id in asked.message_ids if message_id.ledgerId == ledger_id]
        if asked.message_ids
        else None
    )
    consumer.subscription.redeliver(consumer.core, ids)
    connection.server.dispatcher.touch(consumer.hosted)


def on_seek(connection: Connection, frame: Frame) -> None:
    """SEEK: the subscription starts anew at a message or a publish time.

    All its consumers are closed *before* the answer: a C++ client that hears SUCCESS first filters
    by its old position.
    """
    asked = frame.command.seek
    consumer = connection.consumers.get(asked.consumer_id)
    if consumer is None:
        connection.error(
            asked.request_id, pb.ConsumerNotFound, f"consumer {asked.consumer_id} does not exist"
        )
        return
    hosted, subscription = consumer.hosted, consumer.subscription
    if asked.HasField("message_id"):
        position = _position(hosted, asked.message_id)
    else:
        time_ms = asked.message_publish_time
        position = hosted.core.log.first_where(lambda entry: publish_time_of(entry.tail) >= time_ms)
    for core in list(subscription.consumers):
        connection.server.close_consumer(hosted.attached[core], None)
    hosted.core.subscriptions[subscription.name] = subscription
    subscription.rewind_to(position)
    connection.send(encode(success=pb.CommandSuccess(request_id=asked.request_id)))


def on_get_last_message_id(connection: Connection, frame: Frame) -> None:
    """GET_LAST_MESSAGE_ID: the newest entry, with its last batch index; entry −1 when there is
    none.
    """
    asked = frame.command.get_last_message_id
    consumer = connection.consumers.get(asked.consumer_id)
    if consumer is None:
        connection.error(
            asked.request_id, pb.ConsumerNotFound, f"consumer {asked.consumer_id} does not exist"
        )
        return
    core = consumer.hosted.core
    entry = core.log.get(core.log.end_id - 1)
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
    answer = pb.CommandGetLastMessageIdResponse(
        last_message_id=last, request_id=asked.request_id, consumer_mark_delete_position=position
    )
    connection.send(encode(get_last_message_id_response=answer))


async def on_unsubscribe(connection: Connection, frame: Frame) -> None:
    """UNSUBSCRIBE: forget the subscription, which must have no other consumer."""
    asked = frame.command.unsubscribe
    consumer = connection.consumers.get(asked.consumer_id)
    if consumer is None:
        connection.error(
            asked.request_id, pb.ConsumerNotFound, f"consumer {asked.consumer_id} does not exist"
        )
        return
    if len(consumer.subscription.consumers) > 1 and not asked.force:
        connection.error(asked.request_id, pb.ConsumerBusy, "the subscription has other consumers")
        return
    try:
        await connection.server.directory.forget_subscription(
            consumer.hosted.name, consumer.subscription.name
        )
    except LoadManagerError as error:
        connection.error(asked.request_id, pb.MetadataError, str(error))
        return
    # Meanwhile another consumer may have this id, and another subscription this name.
    if connection.consumers.get(asked.consumer_id) is consumer:
        del connection.consumers[asked.consumer_id]
    connection.server.detach_consumer(consumer)
    hosted, subscription = consumer.hosted, consumer.subscription
    if hosted.core.subscriptions.get(subscription.name) is subscription:
        for core in list(subscription.consumers):  # forced, or attached meanwhile
            connection.server.close_consumer(hosted.attached[core], None)
        hosted.core.unsubscribe(subscription.name)
        hosted.limits.close_gate(subscription.name, connection.server.clock.monotonic_ns())
    connection.send(encode(success=pb.CommandSuccess(request_id=asked.request_id)))


def on_close_consumer(connection: Connection, frame: Frame) -> None:
    """CLOSE_CONSUMER by the client."""
    asked = frame.command.close_consumer
    consumer = connection.consumers.pop(asked.consumer_id, None)
    if consumer is not None:
        connection.server.detach_consumer(consumer)
    connection.send(encode(success=pb.CommandSuccess(request_id=asked.request_id)))


def on_consumer_stats(connection: Connection, frame: Frame) -> None:
    """CONSUMER_STATS: figures of one consumer."""
    asked = frame.command.consumer_stats
    answer = pb.CommandConsumerStatsResponse(request_id=asked.request_id)
    consumer = connection.consumers.get(asked.consumer_id)
    if consumer is None:
        answer.error_code, answer.error_message = (
            pb.ConsumerNotFound,
            f"consumer {asked.consumer_id} does not exist",
        )
    else:
        core = consumer.core
        answer.msgRateOut = consumer.hosted.traffic.msg_rate_out
        answer.msgThroughputOut = consumer.hosted.traffic.msg_throughput_out
        answer.consumerName = core.name
        answer.availablePermits = max(core.permits, 0)
        answer.unackedMessages = core.unacked_messages
        answer.address = connection.peer
        answer.type = consumer.subscription.kind.name.capitalize()
        answer.msgBacklog = consumer.subscription.backlog_messages
    connection.send(encode(consumer_stats_response=answer))
