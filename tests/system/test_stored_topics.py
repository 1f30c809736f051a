"""Stored topics under a stock client: what was acknowledged survives kill -9 of every broker."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pulsar
import pytest
from system.cluster import Cluster, wait_for
from system.workload import client

pytestmark = [pytest.mark.system, pytest.mark.zookeeper]

TOPIC = "persistent://public/default/kept"


def receive(consumer: pulsar.Consumer, count: int) -> list[int]:
    """The next messages, acknowledged."""
    found = []
    for _ in range(count):
        message = consumer.receive(20_000)
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return found


def backlog(cluster: Cluster) -> int:
    """Messages that the subscription has not acknowledged."""
    path = "/admin/v2/" + TOPIC.replace("://", "/") + "/stats"
    status, body = cluster.request(0, "GET", path)
    return body["subscriptions"]["s"]["msgBacklog"] if status == 200 else -1


@pytest.mark.timeout(180)
def test_every_acknowledged_message_is_consumed_after_all_brokers_were_killed(
    tmp_path: Path,
) -> None:
    """Both brokers are killed while a topic has unread messages. Started again, a consumer goes on
    from its cursor and gets each message once, in order; those that were sent meanwhile follow.
    """
    with Cluster(tmp_path, brokers=2, restart=True) as cluster:
        user = client(cluster.service_url())
        consumer = user.subscribe(TOPIC, "s")
        producer = user.create_producer(TOPIC, batching_enabled=False)
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


def brokers(cluster: Cluster) -> list[psutil.Process]:
    """The processes of the brokers."""
    return [
        child
        for child in psutil.Process(cluster.process.pid).children()
        if any("webServicePort=" in part for part in child.cmdline())
    ]
