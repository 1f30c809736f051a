"""Retention, time to live, backlog quotas, de-duplication: the rules of a namespace, and what a
topic does.
"""

from __future__ import annotations

from typing import Any

import pytest
from broker.messaging.test_segments import a_log

from loadmanager.broker.messaging.consumers import Consumer
from loadmanager.broker.messaging.memory import TopicMemory
from loadmanager.broker.messaging.rules import (
    NamespaceRules,
    check_quota_and_retention,
    quota_policy,
    retention_policy,
    rules_of,
)
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.messaging.subscription import SubscriptionType
from loadmanager.broker.messaging.topic import Publisher, QuotaExceededError, Topic
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError

SETTINGS = MessagingSettings(retention_mb=2, retention_minutes=1, backlog_gb_max=1, ttl_s=7)


def test_policies_of_a_namespace_come_before_broker_conf() -> None:
    """What is not set, or cannot be read, is as in broker.conf."""
    policies = {
        "retention_policies": {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1},
        "backlog_quota_map": {
            "destination_storage": {"limitSize": 10, "policy": "consumer_backlog_eviction"},
            "message_age": {"limitTime": 3, "policy": "producer_exception"},
        },
        "message_ttl_in_seconds": 0,
    }
    rules = rules_of(policies, SETTINGS, stored=True)
    assert (rules.retention_bytes, rules.retention_s, rules.ttl_s) == (-1, 300, 0)
    assert (rules.quota_bytes, rules.evicts, rules.holds) == (10, True, False)
    assert (rules.quota_s, rules.age_policy) == (3, "producer_exception")
    for garbage in ({}, {"retention_policies": 5, "backlog_quota_map": [], "x": None}):
        rules = rules_of(garbage, SETTINGS, stored=True)
        assert (rules.retention_bytes, rules.retention_s, rules.ttl_s) == (2 << 20, 60, 7)
        assert (rules.quota_bytes, rules.holds, rules.quota_s) == (1 << 30, True, -1)


@pytest.mark.parametrize(
    "document",
    [
        {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1},
        {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1},
        {"retentionTimeInMinutes": "1", "retentionSizeInMB": 1},
        {},
    ],
)
def test_retentions_that_are_refused(document: dict[str, Any]) -> None:
    """As in Pulsar, one limit of 0 needs the other."""
    with pytest.raises(BadInputError):
        retention_policy(document)


def test_a_quota_must_fit_into_the_retention() -> None:
    """It must be smaller, by size and by time; without a limit of the retention, any does."""
    quota = quota_policy({"limitSize": 1 << 20, "policy": "producer_exception"})
    quotas = {"destination_storage": quota}
    for size, fits in ((2, True), (1, False), (-1, True)):
        retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": size}
        policies = {"retention_policies": retention, "backlog_quota_map": quotas}
        if fits:
            check_quota_and_retention(policies)
        else:
            with pytest.raises(BadInputError, match="must exceed"):
                check_quota_and_retention(policies)


def a_topic(policy: str, limit: int) -> Topic:
    """A stored topic with one subscription and 100 entries of about 60 bytes."""
    rules = NamespaceRules(Live(SETTINGS))
    quota = {"limitSize": limit, "policy": policy}
    rules.set_policies({"backlog_quota_map": {"destination_storage": quota}})
    log = a_log()
    topic = Topic("t", 1, Live(SETTINGS), TopicMemory(1 << 30), log=log, rules=rules)
    topic.subscribe("s", SubscriptionType.SHARED, 0, durable=True)
    for number in range(100):
        log.append(b"%010d" % number, 1, 0, "p", number)
    _, end_id, size = log.take()
    log.stored(end_id, size)
    return topic


@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
def test_a_full_backlog_refuses_producers(policy: str) -> None:
    """Until enough is acknowledged; what is retained does not count."""
    topic = a_topic(policy, 3000)
    with pytest.raises(QuotaExceededError) as caught:
        topic.check_quota()
    assert caught.value.hold == (policy == "producer_request_hold")
    topic.subscriptions["s"].expire_until(60)
    topic.check_quota()
    assert topic.log.bytes > 3000


def test_eviction_has_the_oldest_messages_count_as_acknowledged() -> None:
    """Nine tenths of the quota are left; a consumer that has some of them is not waited for."""
    topic = a_topic("consumer_backlog_eviction", 3000)
    subscription = topic.subscriptions["s"]
    consumer = Consumer("c")
    topic.attach_consumer(subscription, consumer, SubscriptionType.SHARED)
    subscription.flow(consumer, 10)
    given = list(subscription.dispatch(entries_max=10, round_robin_max=10, unacked_max=0, now_ms=0))
    assert len(given) == 10
    topic.check_quota()
    assert 2600 < topic.backlog_bytes <= 2700
    assert subscription.entries_expired == subscription.mark == 100 - subscription.backlog_entries
    assert not consumer.pending
    assert consumer.unacked_messages == 0


@pytest.mark.parametrize("enabled", [False, True])
def test_duplicates_of_a_producer_are_not_stored(enabled: bool) -> None:
    """With de-duplication a producer is told the last sequence id of its name, whoever had it and
    however it left, and what is not greater is not stored. Without, a new producer begins anew.
    """
    rules = NamespaceRules(Live(SETTINGS))
    rules.set_policies({"deduplicationEnabled": enabled})
    topic = Topic("t", 1, Live(SETTINGS), TopicMemory(1 << 30), rules=rules)

    def publish(producer: Publisher, *sequence_ids: int) -> list[int]:
        return [number for number in sequence_ids if topic.publish(producer, number, b"x", 1)]

    first = topic.attach_publisher("p", 0)
    assert publish(first, 3, 4, 4, 2, 5) == ([3, 4, 5] if enabled else [3, 4, 4, 2, 5])
    topic.publish(first, 6, b"batch", 4, highest_id=9)
    topic.detach_publisher(first, 0.0, for_good=True)
    second = topic.attach_publisher("p", 0)
    assert second.resent_until == (9 if enabled else -1)
    assert publish(second, 7, 9, 10, 10) == ([10] if enabled else [7, 9, 10, 10])
