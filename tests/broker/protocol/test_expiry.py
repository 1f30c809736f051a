"""Messages that are too old or too many, on a broker in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from broker.protocol.driven_broker import ERROR, MESSAGE, Broker
from limits.driven import TOPIC
from system.raw import a_send

from loadmanager.broker.wire import pulsar_pb2 as pb

BUNDLE = "public/default/0x00000000_0xffffffff"
CLOSE_PRODUCER = 15


async def a_broker(policies: dict[str, Any], published_s_ago: list[int]) -> tuple[Broker, Any]:
    """A broker with a subscription, its producer's wire, and messages of these ages."""
    broker = Broker()
    await broker.server.open_bundle(BUNDLE, 1)
    broker.server.rules.set_policies("public/default", policies)
    connection, wire = await broker.producer()
    await broker.consumer(permits=0)
    now_ms = broker.server.serving.clock.now_ms()
    for number, age_s in enumerate(published_s_ago):
        await broker.say(connection, a_send(number, publish_time_ms=now_ms - age_s * 1000))
    return broker, wire


@pytest.mark.asyncio
async def test_messages_beyond_their_time_to_live_count_as_acknowledged() -> None:
    """The others wait."""
    broker, _ = await a_broker({"message_ttl_in_seconds": 50}, [100, 60, 40, 20])
    await broker.server._build_expiry().check_ages()
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    (subscription,) = hosted.core.subscriptions.values()
    assert (subscription.backlog_entries, subscription.entries_expired) == (2, 2)


@pytest.mark.asyncio
async def test_acknowledged_messages_are_kept_as_long_as_the_retention_says() -> None:
    """Those that are too old go when all have acknowledged them."""
    retention = {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1}
    broker, _ = await a_broker({"retention_policies": retention}, [100, 90, 80, 20])
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    (subscription,) = hosted.core.subscriptions.values()
    expiry = broker.server._build_expiry()
    for acknowledged, first_id in ((0, 0), (2, 2), (4, 3)):
        subscription.expire_until(acknowledged)
        await expiry.check_ages()
        assert hosted.core.log.first_id == first_id


@pytest.mark.asyncio
@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
async def test_a_backlog_that_is_too_old_costs_its_producers(policy: str) -> None:
    """They are closed, and refused with the code of the policy, until it is consumed."""
    quota = {"message_age": {"limitTime": 50, "policy": policy}}
    broker, wire = await a_broker({"backlog_quota_map": quota}, [100, 20])
    expiry = broker.server._build_expiry()
    await expiry.check_quotas()
    assert wire.count(CLOSE_PRODUCER) == 1
    _, refused = await broker.producer()
    codes = [frame.command.error.error for frame in refused.frames if frame.command.type == ERROR]
    assert codes == [
        pb.ProducerBlockedQuotaExceededError
        if policy == "producer_request_hold"
        else pb.ProducerBlockedQuotaExceededException
    ]
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    (subscription,) = hosted.core.subscriptions.values()
    subscription.expire_until(1)
    await expiry.check_quotas()
    _, welcome = await broker.producer()
    assert welcome.count(ERROR) == 0


@pytest.mark.asyncio
async def test_a_backlog_that_is_too_old_is_evicted_if_the_policy_says_so() -> None:
    """The young ones are delivered."""
    quota = {"message_age": {"limitTime": 50, "policy": "consumer_backlog_eviction"}}
    broker, wire = await a_broker({"backlog_quota_map": quota}, [100, 60, 20])
    await broker.server._build_expiry().check_quotas()
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    (subscription,) = hosted.core.subscriptions.values()
    assert (subscription.backlog_entries, wire.count(CLOSE_PRODUCER)) == (1, 0)
    assert wire.count(MESSAGE) == 0
