"""Pulsar's `TopicStats` of an open topic: counters, backlogs and clients as they are now, and rates
over the last stats period. What no part of the broker counts is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from loadmanager.broker.messaging.subscription import Subscription
from loadmanager.broker.protocol.hosted import (
    AttachedConsumer,
    AttachedProducer,
    Client,
    HostedTopic,
)
from loadmanager.broker.wire.frames import publish_time_of

Document = dict[str, Any]


def topic_stats(hosted: HostedTopic, *, owner: str, unacked_max: int, now_ms: int) -> Document:
    """The stats of a topic; `unacked_max` as `maxUnackedMessagesPerConsumer`, `owner`: a brokerId.

    `msgBacklog` counts entries, as in Pulsar: a batch is one.
    """
    core, traffic, producers = hosted.core, hosted.traffic, hosted.producers.values()
    subscriptions = core.subscriptions.values()
    slowest = core.slowest
    oldest = core.log.get(max(slowest, core.log.first_id))
    age_s = -1 if oldest is None else max(now_ms - publish_time_of(oldest.tail), 0) // 1000
    return {
        "msgRateIn": traffic.msg_rate_in,
        "msgThroughputIn": traffic.msg_throughput_in,
        "msgRateOut": traffic.msg_rate_out,
        "msgThroughputOut": traffic.msg_throughput_out,
        "bytesInCounter": core.bytes_in,
        "msgInCounter": core.messages_in,
        "bytesOutCounter": core.bytes_out,
        "msgOutCounter": core.messages_out,
        "averageMsgSize": _average(traffic.msg_throughput_in, traffic.msg_rate_in),
        "storageSize": core.log.bytes,
        "backlogSize": core.log.bytes_from(slowest),
        "backlogQuotaLimitSize": core.rules.quota_bytes,
        "backlogQuotaLimitTime": core.rules.quota_s,
        "oldestBacklogMessageAgeSeconds": age_s,
        "publishRateLimitedTimes": hosted.limits.held_times,
        "publishers": [_publisher(producer) for producer in producers if producer.core.ready],
        "waitingPublishers": sum(not producer.core.ready for producer in producers),
        "subscriptions": {
            subscription.name: _subscription(hosted, subscription, unacked_max)
            for subscription in subscriptions
        },
        "replication": {},
        "deduplicationStatus": "Enabled" if core.rules.deduplicates else "Disabled",
        "ownerBroker": owner,
        "lastPublishTimeStamp": hosted.last_published_ms,
    }


def _average(size_per_s: float, rate_per_s: float) -> float:
    return size_per_s / rate_per_s if rate_per_s else 0.0


def _publisher(producer: AttachedProducer) -> Document:
    rates = producer.rates
    return {
        "accessMode": producer.core.access.name.title().replace("_", ""),
        "msgRateIn": rates.messages_per_s,
        "msgThroughputIn": rates.bytes_per_s,
        "averageMsgSize": _average(rates.bytes_per_s, rates.messages_per_s),
        "producerId": producer.producer_id,
        "supportsPartialProducer": False,
        "producerName": producer.core.name,
        "address": f"/{producer.connection.peer}",
        "connectedSince": _instant(producer.since_ms),
        "clientVersion": producer.connection.client_version,
        **_role(producer.connection),
        "metadata": {pair.key: pair.value for pair in producer.request.metadata},
    }


def _role(client: Client) -> Document:
    """Who a client is, with the one for which a proxy asks; nothing without authentication. Pulsar
    does not say it.
    """
    roles = [role for role in client.roles if role]
    return {"role": ", ".join(roles)} if roles else {}


def _instant(time_ms: int) -> str:
    """A time as Pulsar's `DateFormatter` writes it in UTC."""
    text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _subscription(hosted: HostedTopic, subscription: Subscription, unacked_max: int) -> Document:
    attached = [hosted.attached.get(core) for core in subscription.consumers]
    consumers = [_consumer(each, unacked_max) for each in attached if each is not None]
    active = subscription.active
    backlog = subscription.backlog_entries
    rates = hosted.figures.subscription_rates.get(subscription.name, (0.0,) * 5)
    return {
        "msgRateOut": rates[0],
        "msgThroughputOut": rates[1],
        "msgRateRedeliver": rates[2],
        "msgRateExpired": rates[4],
        "totalMsgExpired": subscription.entries_expired,
        "msgOutCounter": subscription.messages_out,
        "bytesOutCounter": subscription.bytes_out,
        "msgBacklog": backlog,
        "msgBacklogNoDelayed": backlog - subscription.delayed_entries,
        "msgDelayed": subscription.delayed_entries,
        "backlogSize": hosted.core.log.bytes_from(subscription.mark),
        "msgInReplay": subscription.waiting_to_be_redelivered,
        "unackedMessages": sum(consumer["unackedMessages"] for consumer in consumers),
        "blockedSubscriptionOnUnackedMsgs": False,
        "type": subscription.kind.name.capitalize() if consumers else "None",
        "activeConsumerName": None if active is None else active.name,
        "consumers": consumers,
        "isDurable": subscription.durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "subscriptionProperties": {},
        "durable": subscription.durable,
        "replicated": False,
    }


def _consumer(consumer: AttachedConsumer, unacked_max: int) -> Document:
    core = consumer.core
    return {
        "msgRateOut": consumer.rates.messages_per_s,
        "msgThroughputOut": consumer.rates.bytes_per_s,
        "msgOutCounter": core.delivered_messages,
        "bytesOutCounter": core.delivered_bytes,
        "consumerName": core.name,
        "availablePermits": core.permits,
        "unackedMessages": core.unacked_messages,
        "blockedConsumerOnUnackedMsgs": consumer.blocked(unacked_max),
        "lastConsumedFlowTimestamp": consumer.flow_ms,
        "lastConsumedTimestamp": consumer.delivered_ms,
        "lastAckedTimestamp": consumer.acked_ms,
        "address": f"/{consumer.connection.peer}",
        "connectedSince": _instant(consumer.since_ms),
        "clientVersion": consumer.connection.client_version,
        **_role(consumer.connection),
        "metadata": {},
    }
