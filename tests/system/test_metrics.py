"""The metrics of real brokers over HTTP, beside the names and labels of a real Pulsar."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from clusters.standalone import Cluster, wait_for
from prometheus_client.parser import text_string_to_metric_families

pytestmark = [pytest.mark.system, pytest.mark.client]

NAMESPACE = "acme/shop"
TOPICS = [f"persistent://{NAMESPACE}/{name}" for name in ("orders", "refunds")]
SENT, ACKNOWLEDGED, SIZE = 20, 15, 100
ENTRY_OVERHEAD_MAX = 100
"""More than the bytes of a message's metadata and checksum."""

Labels = frozenset[tuple[str, str]]
Page = dict[tuple[str, Labels], float]


def _of_pulsar() -> set[tuple[str, frozenset[str]]]:
    found, labels = set(), frozenset[str]()
    for line in (Path(__file__).parent / "pulsar_metrics.txt").read_text().splitlines():
        if line.startswith("["):
            labels = frozenset(line.strip("[]").split())
        elif not line.startswith("#"):
            found.add((line, labels))
    return found


def _scrape(cluster: Cluster) -> Page:
    families = text_string_to_metric_families(cluster.get(0, "/metrics"))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def _value(page: Page, name: str, **labels: str) -> float:
    """The one sample of that name with exactly these labels, the cluster's name left out."""
    return page[name, frozenset({**labels, "cluster": "standalone"}.items())]


def _total(page: Page, name: str, **labels: str) -> float:
    """`sum(name{labels})`."""
    return sum(
        value for (each, those), value in page.items() if each == name and labels.items() <= those
    )


@contextlib.contextmanager
def _traffic(cluster: Cluster) -> Iterator[None]:
    """On each topic: a producer, 20 messages, a consumer that acknowledged 15, and a subscription
    without consumers.
    """
    status, body = cluster.request(
        0, "PUT", "/admin/v2/tenants/acme", {"allowedClusters": ["standalone"]}
    )
    assert status == 204, body
    status, body = cluster.request(0, "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {})
    assert status == 204, body
    client = pulsar.Client(
        f"pulsar://127.0.0.1:{cluster.pulsar_port}",
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    held: list[object] = []
    try:
        for topic in TOPICS:
            consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
            client.subscribe(topic, "idle").close()
            producer = client.create_producer(topic, batching_enabled=False)
            for _ in range(SENT):
                producer.send(b"x" * SIZE)
            for _ in range(ACKNOWLEDGED):
                consumer.acknowledge(consumer.receive(60_000))
            held += [consumer, producer]
        yield
    finally:
        client.close()


def _cluster(folder: Path, **settings: str) -> Cluster:
    every = {
        "loadManagerStorageDirectory": "",
        "statsUpdateFrequencyInSecs": "3600",
        "exposeBundlesMetricsInPrometheus": "true",
    }
    return Cluster(folder, brokers=1, settings={**every, **settings})


def _settled(cluster: Cluster) -> Page:
    """A page on which all acknowledgements have arrived."""
    backlog = len(TOPICS) * (SENT - ACKNOWLEDGED + SENT)

    def arrived() -> Page | None:
        page = _scrape(cluster)
        return page if _value(page, "pulsar_broker_msg_backlog") == backlog else None

    page: Page = wait_for(arrived, f"the backlog is {backlog}")
    return page


def _check_names(page: Page) -> None:
    """A name that Pulsar has means what it means there: it has the same labels. One name of ours is
    beside them.
    """
    ours = {
        (name, frozenset(label for label, _ in labels))
        for name, labels in page
        if name.startswith(("pulsar_", "caffeine_"))
    }
    assert len(ours) > 50
    assert ours - _of_pulsar() == {
        ("pulsar_lb_step_failures_total", frozenset(("cluster", "broker", "step")))
    }


def _check_broker(page: Page) -> None:
    sent = len(TOPICS) * SENT
    for name, value in (
        ("topics_count", 2),
        ("subscriptions_count", 4),
        ("producers_count", 2),
        ("consumers_count", 2),
    ):
        assert _value(page, f"pulsar_broker_{name}") == value
    read = _value(page, "pulsar_broker_in_bytes_total", system_topic="false")
    assert sent * SIZE < read < sent * (SIZE + ENTRY_OVERHEAD_MAX)
    assert _value(page, "pulsar_broker_out_bytes_total", system_subscription="false") == read
    assert _value(page, "pulsar_broker_storage_size") == read


def _check_sums(page: Page) -> None:
    """Check that sums which dashboards add up are right, with and without topics."""
    space, sent = {"namespace": NAMESPACE}, len(TOPICS) * SENT
    for name, value in (
        ("pulsar_topics_count", 2),
        ("pulsar_subscriptions_count", 4),
        ("pulsar_producers_count", 2),
        ("pulsar_consumers_count", 2),
        ("pulsar_msg_backlog", sent - len(TOPICS) * ACKNOWLEDGED + sent),
        ("pulsar_in_messages_total", sent),
        ("pulsar_out_messages_total", sent),
    ):
        assert _total(page, name, **space) == value, name
        assert _total(page, name) == value, name
    stored = _total(page, "pulsar_storage_size", **space)
    assert stored == _total(page, "pulsar_in_bytes_total") > sent * SIZE


def test_topics_and_subscriptions(tmp_path: Path) -> None:
    """By default the series are those of topics and subscriptions."""
    with _cluster(tmp_path) as cluster, _traffic(cluster):
        page = _settled(cluster)
        _check_names(page)
        _check_broker(page)
        _check_sums(page)
        assert _value(page, "pulsar_topics_count", namespace=NAMESPACE) == 2
        for topic in TOPICS:
            of = {"namespace": NAMESPACE, "topic": topic}
            assert _value(page, "pulsar_producers_count", **of) == 1
            assert _value(page, "pulsar_in_messages_total", **of) == SENT
            for subscription, backlog, delivered, consumers in (
                ("s", SENT - ACKNOWLEDGED, SENT, 1),
                ("idle", SENT, 0, 0),
            ):
                each = {**of, "subscription": subscription}
                assert _value(page, "pulsar_subscription_back_log", **each) == backlog
                assert _value(page, "pulsar_out_messages_total", **each) == delivered
                assert _value(page, "pulsar_subscription_consumers_count", **each) == consumers
                unacked = _value(page, "pulsar_subscription_unacked_messages", **each)
                assert unacked == (backlog if consumers else 0)
        status = "pulsar_active_connections"
        labels = {"broker": cluster.broker_id(0), "metric": "broker_connection"}
        assert _value(page, status, **labels) >= 1
        created = _value(page, "pulsar_connection_created_total_count", **labels)
        closed = _value(page, "pulsar_connection_closed_total_count", **labels)
        assert created - closed == _value(page, status, **labels)


def test_namespaces(tmp_path: Path) -> None:
    """Without topics, each namespace has one series of a name."""
    with (
        _cluster(tmp_path, exposeTopicLevelMetricsInPrometheus="false") as cluster,
        _traffic(cluster),
    ):
        page = _settled(cluster)
        _check_names(page)
        _check_broker(page)
        _check_sums(page)
        assert not [labels for _, labels in page if "topic" in dict(labels)]
        backlog = {"namespace": NAMESPACE, "remote_cluster": "local"}
        assert _value(page, "pulsar_msg_backlog", **backlog) == 50


def test_more_topics_than_are_shown(tmp_path: Path) -> None:
    """The topic beyond the maximum is in the series of its namespace: sums stay complete."""
    with _cluster(tmp_path, loadManagerMetricsMaxTopics="1") as cluster, _traffic(cluster):
        page = _settled(cluster)
        _check_names(page)
        _check_broker(page)
        topics = {dict(labels)["topic"] for _, labels in page if "topic" in dict(labels)}
        assert len(topics) == 1
        assert _value(page, "pulsar_producers_count", namespace=NAMESPACE) == 1
        for name in ("pulsar_producers_count", "pulsar_consumers_count", "pulsar_storage_size"):
            broker = name.replace("pulsar_", "pulsar_broker_")
            assert _total(page, name) == _value(page, broker)
        left_out = "loadmanager_metrics_left_out"
        assert _total(page, left_out, what="topics") == 1
        assert _total(page, left_out, what="subscriptions") == 1
