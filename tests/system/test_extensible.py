"""The extensible load manager in real processes: stock clients, transfers, kill -9."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pulsar
import pytest
from clusters.processes import Fleet
from clusters.standalone import Cluster, wait_for
from kazoo.client import KazooClient
from system.faults import observed, run

pytestmark = [pytest.mark.system, pytest.mark.client, pytest.mark.zookeeper]

EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
NAMESPACE = "public/default"
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(6)]
SESSION_MS = 5_000


def _bundles(cluster: Cluster, asked: int = 0) -> list[str]:
    edges = cluster.get(asked, f"/admin/v2/namespaces/{NAMESPACE}/bundles")["boundaries"]
    return [f"{low}_{high}" for low, high in zip(edges, edges[1:], strict=False)]


def _records(cluster: Cluster) -> dict[str, dict[str, object]]:
    client = KazooClient(f"127.0.0.1:{cluster.zookeeper_port}")
    client.start(timeout=30)
    try:
        root = f"/service_unit_state/{NAMESPACE}"
        return {
            span: json.loads(client.get(f"{root}/{span}")[0]) for span in client.get_children(root)
        }
    finally:
        client.stop()
        client.close()


def _transferred(cluster: Cluster, destination: str) -> bool:
    """Move every bundle to a broker; true once all are there."""
    leader = cluster.leader(0)
    for span in _bundles(cluster):
        path = f"/admin/v2/namespaces/{NAMESPACE}/{span}/unload"
        cluster.request(leader, "PUT", f"{path}?destinationBroker={destination}")
    return {record["dstBroker"] for record in _records(cluster).values()} == {destination}


def _publish(producers: list[pulsar.Producer], sent: list[list[bytes]], rounds: int) -> None:
    for _ in range(rounds):
        for producer, of_topic in zip(producers, sent, strict=True):
            message = b"%d" % len(of_topic)
            producer.send(message)
            of_topic.append(message)


def test_stock_clients_through_transfers_and_the_death_of_owner_and_leader(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, no bundle ever has two owners, and the bundles of a
    broker that died have owners again before anybody asks for them.
    """
    with Cluster(
        tmp_path,
        settings={"loadManagerClassName": EXTENSIBLE, "loadBalancerSheddingEnabled": "false"},
        session_ms=SESSION_MS,
    ) as cluster:
        leader = cluster.leader(0)
        victim, survivor = (index for index in range(3) if index != leader)
        client = pulsar.Client(
            # The client takes the addresses of its URL in turn and doubles its pauses: if two of
            # three brokers are dead, it may ask those alone for minutes.
            cluster.service_url(survivor),
            operation_timeout_seconds=120,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        producers = [client.create_producer(topic, send_timeout_millis=60_000) for topic in TOPICS]
        consumers = [client.subscribe(topic, "s") for topic in TOPICS]
        sent: list[list[bytes]] = [[] for _ in TOPICS]
        _publish(producers, sent, 5)
        wait_for(
            lambda: {record["state"] for record in _records(cluster).values()} == {"Owned"},
            "all have owners",
        )
        assert cluster.request(0, "GET", "/admin/v2/broker-stats/load-report")[0] == 501
        assert "bundles" in cluster.get(0, "/loadmanager/v1/load-report")

        for turn in (survivor, leader, victim):
            wait_for(partial(_transferred, cluster, cluster.broker_id(turn)), "all have moved")
            _publish(producers, sent, 5)

        cluster.kill(victim)  # it owns everything
        dead = cluster.broker_id(victim)
        wait_for(
            lambda: (
                all(
                    record["state"] == "Owned" and record["ownerSession"] not in (0, None)
                    for record in _records(cluster).values()
                )
                and any(
                    event.get("event") == "the bundles of brokers that died were assigned again"
                    and dead in event["brokers"]
                    for event in cluster.events()
                )
            ),
            "its bundles are assigned again",
            60,
        )
        _publish(producers, sent, 5)

        assert cluster.leader(survivor) == leader
        cluster.kill(leader)
        _publish(producers, sent, 5)
        for consumer, of_topic in zip(consumers, sent, strict=True):
            seen: set[bytes] = set()
            deadline_s = time.monotonic() + 60
            while seen != set(of_topic) and time.monotonic() < deadline_s:
                message = consumer.receive(60_000)
                seen.add(message.data())
                consumer.acknowledge(message)
            assert seen == set(of_topic)
        client.close()
        assert cluster.check_single_ownership() > 0


@pytest.mark.timeout(600)
def test_brokers_change_to_the_extensible_manager_one_by_one(tmp_path: Path) -> None:
    """No bundle has two owners, no message is lost, and every topic is served while brokers of both
    managers run, and when a broker dies afterwards.
    """
    with Fleet(tmp_path) as fleet, observed(fleet) as observer:
        fleet.extra = {"loadManagerClassName": "ExtensibleLoadManagerImpl"}
        outcomes = [run(name, fleet, observer) for name in ("rolling-restart", "kill-both")]
    for outcome in outcomes:
        assert (outcome.twice_owned, outcome.undelivered, outcome.problems) == ([], 0, [])
