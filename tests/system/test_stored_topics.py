"""Stored topics under a stock client: what was acknowledged survives kill -9 of every broker."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import psutil
import pulsar
import pytest
from clusters.standalone import Cluster, wait_for
from system.workload import client

pytestmark = pytest.mark.system

TOPIC = "persistent://public/default/kept"
DEAD = "persistent://public/default/dead"
SESSION_MS = 5_000


def receive(consumer: pulsar.Consumer, count: int) -> list[int]:
    """The next messages, acknowledged."""
    found = []
    for _ in range(count):
        message = consumer.receive(120_000)
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return found


def backlog(cluster: Cluster) -> int:
    """Messages that the subscription has not acknowledged."""
    path = "/admin/v2/" + TOPIC.replace("://", "/") + "/stats"
    status, body = cluster.request(0, "GET", path)
    return body["subscriptions"]["s"]["msgBacklog"] if status == 200 else -1


@pytest.mark.timeout(600)
def test_every_acknowledged_message_is_consumed_after_all_brokers_were_killed(
    tmp_path: Path,
) -> None:
    """Both brokers are killed while a topic has unread messages. Started again, a consumer goes on
    from its cursor and gets each message once, in order; those that were sent meanwhile follow.
    """
    with Cluster(tmp_path, brokers=2, restart=True, session_ms=SESSION_MS) as cluster:
        user = client(cluster.service_url())
        consumer = user.subscribe(TOPIC, "s")
        producer = user.create_producer(TOPIC, batching_enabled=False, send_timeout_millis=120_000)
        for number in range(500):
            producer.send(b"%d" % number)
        assert receive(consumer, 100) == list(range(100))
        wait_for(lambda: backlog(cluster) == 400, "the acknowledgements have arrived")
        path = "/admin/v2/namespaces/public/default/unload"
        assert cluster.request(0, "PUT", path)[0] == 204
        for number in range(500, 510):
            producer.send(b"%d" % number)
        consumer.close()
        for broker in [child.pid for child in brokers(cluster)]:
            os.kill(broker, signal.SIGKILL)
        producer.send(b"510")
        consumer = user.subscribe(TOPIC, "s")
        assert receive(consumer, 411) == list(range(100, 511))
        user.close()


def move(cluster: Cluster) -> None:
    """Move the topic's bundle to the other broker."""
    asked = cluster.owner_of(TOPIC)
    lookup = f"/lookup/v2/topic/{TOPIC.replace('://', '/')}/bundle"
    bundle = cluster.request(asked, "GET", lookup)[1]
    path = f"/admin/v2/namespaces/public/default/{bundle}/unload"
    destination = cluster.broker_id(1 - asked)
    assert cluster.request(asked, "PUT", f"{path}?destinationBroker={destination}")[0] == 204


def kill(cluster: Cluster) -> None:
    """kill -9 the owner of the topic, and wait until it has been started again."""
    owner = cluster.owner_of(TOPIC)
    cluster.kill(owner)

    def ready() -> bool:
        with contextlib.suppress(OSError):
            return cluster.request(owner, "GET", "/admin/v2/brokers/ready")[0] == 200
        return False

    wait_for(ready, "the broker is back")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("manager", ["ModularLoadManagerImpl", "ExtensibleLoadManagerImpl"])
@pytest.mark.parametrize("troubles", [(move, move), (kill, move)])
def test_waiting_and_rejected_messages_survive(
    tmp_path: Path, troubles: Sequence[Callable[[Cluster], None]], manager: str
) -> None:
    """A delayed message comes once, and not before its time. One that is rejected comes again, and
    ends once among the dead letters. In between, their topic moves, or its owner is killed.
    """
    settings, due = {"loadManagerClassName": manager}, list(troubles)
    with Cluster(
        tmp_path, brokers=2, settings=settings, restart=True, session_ms=SESSION_MS
    ) as cluster:
        user = client(cluster.service_url(0, 1))
        rules = pulsar.ConsumerDeadLetterPolicy(2, DEAD, initial_subscription_name="dead")
        consumer = user.subscribe(
            TOPIC,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=500,
            dead_letter_policy=rules,
        )
        producer = user.create_producer(TOPIC, batching_enabled=False, send_timeout_millis=120_000)
        dead = user.subscribe(DEAD, "dead")
        sent_ms = time.time_ns() // 1_000_000
        producer.send(b"late", deliver_after=timedelta(seconds=6))
        producer.send(b"rejected")
        late_ms, buried = list[int](), list[bytes]()
        while not late_ms or not buried:
            for message in next_of(consumer):
                if message.data() == b"late":
                    late_ms.append(time.time_ns() // 1_000_000)
                    consumer.acknowledge(message)
                    wait_for(lambda: backlog(cluster) in (0, 1), "the acknowledgement has arrived")
                    continue
                consumer.negative_acknowledge(message)
                if due:  # deliveries are counted anew after a move, as in Pulsar
                    due.pop(0)(cluster)
            for message in next_of(dead):
                buried.append(message.data())
                dead.acknowledge(message)
        assert (buried, due) == ([b"rejected"], [])
        wait_for(lambda: backlog(cluster) == 0, "nothing is left")
        # Of a rejected message the client may have got a copy before it was buried.
        assert {message.data() for message in next_of(consumer)} <= {b"rejected"}
        assert next_of(dead) == []
        assert [time_ms - sent_ms >= 6_000 for time_ms in late_ms] == [True]
        user.close()


def next_of(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    """The next message, if one comes."""
    try:
        return [consumer.receive(1_000)]
    except pulsar.Timeout:
        return []


def brokers(cluster: Cluster) -> list[psutil.Process]:
    """The processes of the brokers."""
    return [
        child
        for child in psutil.Process(cluster.process.pid).children()
        if any("webServicePort=" in part for part in child.cmdline())
    ]
