"""The HTTP API of real broker processes: lookups of the stock client, the shell, the metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulsar
import pytest
from clusters.standalone import Cluster, wait_for
from kazoo.client import KazooClient
from prometheus_client.parser import text_string_to_metric_families

pytestmark = [pytest.mark.system, pytest.mark.client]

NAMESPACE = "acme/web"


def _admin(cluster: Cluster, *words: str) -> Any:
    command = [
        sys.executable,
        "-m",
        "loadmanager",
        "admin",
        *words,
        "--json",
        "--url",
        f"http://127.0.0.1:{cluster.http_port + 1}",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_http_lookups_the_shell_and_metrics(tmp_path: Path) -> None:
    """A client with an http:// URL produces and consumes, partitions and encoded names included;
    the shell sees, splits and moves; metrics count.
    """
    with Cluster(
        tmp_path,
        brokers=2,
        settings={"statsUpdateFrequencyInSecs": "1", "exposeBundlesMetricsInPrometheus": "true"},
    ) as cluster:
        assert (
            _admin(cluster, "namespaces", "create", NAMESPACE, "--bundles", "4", "--create-tenant")[
                "bundles"
            ]
            == 4
        )
        _admin(cluster, "topics", "create", f"{NAMESPACE}/many", "--partitions", "3")
        assert _admin(cluster, "topics", "partitions", f"{NAMESPACE}/many") == {"partitions": 3}
        client = pulsar.Client(
            f"http://127.0.0.1:{cluster.http_port + 1}",
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        held: list[object] = []  # a producer that nobody holds closes itself
        try:
            for name in ("plain", "with space + 100% ü", "many"):
                topic = f"persistent://{NAMESPACE}/{name}"
                consumer = client.subscribe(
                    topic, "s", initial_position=pulsar.InitialPosition.Earliest
                )
                producer = client.create_producer(topic)
                held += [consumer, producer]
                sent = [f"{name} {index}".encode() for index in range(9)]
                for data in sent:
                    producer.send(data)
                assert sorted(consumer.receive(60_000).data() for _ in sent) == sorted(sent)
            names = {
                f"persistent://{NAMESPACE}/{name}" for name in ("plain", "with space + 100% ü")
            }
            assert names <= set(_admin(cluster, "topics", "list", NAMESPACE))
            _check_stats(cluster)
            _check_policies(cluster)
            _check_moves(cluster)
        finally:
            client.close()
        _check_metrics(cluster)


def _check_stats(cluster: Cluster) -> None:
    def attached() -> bool:
        stats = _admin(cluster, "topics", "stats", f"{NAMESPACE}/plain")
        return len(stats["publishers"]) == len(stats["subscriptions"]["s"]["consumers"]) == 1

    wait_for(attached, "the statistics have the producer and the consumer")


def _check_policies(cluster: Cluster) -> None:
    _admin(cluster, "limits", "set", NAMESPACE, "publishRate", "--messages", "1000")
    assert (
        _admin(cluster, "limits", "show", NAMESPACE)["publishRate"]["publishThrottlingRateInMsg"]
        == 1000
    )

    def in_use() -> bool:
        return any(
            limit["configuredMessagesPerS"] == 1000 for limit in _admin(cluster, "limits", "list")
        )

    wait_for(in_use, "the limit is in use")
    assert len(_admin(cluster, "limits", "why", f"{NAMESPACE}/plain")["producers"]) == 1
    _admin(cluster, "limits", "remove", NAMESPACE, "publishRate")
    assert "publishRate" not in _admin(cluster, "limits", "show", NAMESPACE)
    wait_for(lambda: not in_use(), "the limit is gone")
    zookeeper = KazooClient(f"127.0.0.1:{cluster.zookeeper_port}")
    zookeeper.start()
    # what a broker of a mistyped clusterName leaves behind
    zookeeper.create("/admin/clusters/a-mistake", b"{}")
    zookeeper.stop()
    zookeeper.close()
    _admin(
        cluster, "isolation", "set", "kept", "--namespaces", "other/.*", "--primary", "127.0.0.1:.*"
    )
    assert len(_admin(cluster, "isolation", "list")["brokers"]["kept"]) == 2
    _admin(cluster, "isolation", "delete", "kept")
    assert _admin(cluster, "isolation", "list") == {"policies": {}, "brokers": {}}


def _check_moves(cluster: Cluster) -> None:
    found = _admin(cluster, "topics", "lookup", f"{NAMESPACE}/plain")
    owner = found["httpUrl"].partition("://")[2]
    bundle = f"{NAMESPACE}/{found['bundle']}"
    listed = {row["bundle"]: row["owner"] for row in _admin(cluster, "bundles", "list", NAMESPACE)}
    assert listed[bundle] == owner
    other = next(
        row["broker"] for row in _admin(cluster, "brokers", "list") if row["broker"] != owner
    )
    _admin(cluster, "bundles", "unload", bundle, "--to", other)
    wait_for(
        lambda: other in _admin(cluster, "topics", "lookup", f"{NAMESPACE}/plain")["httpUrl"],
        "the bundle is at its destination",
    )
    middle = (int(found["bundle"][:10], 0) + int(found["bundle"][11:], 0)) // 2
    split = _admin(
        cluster,
        "bundles",
        "split",
        bundle,
        "--algorithm",
        "specified_positions_divide",
        "--at",
        hex(middle),
    )
    assert split["boundaries"] == [f"0x{middle:08x}"]
    _admin(cluster, "drain", owner)
    assert set(_admin(cluster, "brokers", "health").values()) == {"ok"}


def _pages(cluster: Cluster) -> list[str]:
    return [str(cluster.get(index, "/metrics/")) for index in range(2)]


def _check_metrics(cluster: Cluster) -> None:
    splits, bundle_labels = 0.0, set[str]()
    # Pages of a moment ago may be shown again, and traffic is measured each second.
    wait_for(
        lambda: any("\npulsar_bundle_topics_count{" in page for page in _pages(cluster)),
        "the metrics of bundles",
    )
    for index, page in enumerate(_pages(cluster)):
        samples = {
            sample.name: sample
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }
        assert samples["pulsar_lb_cpu_usage"].labels["broker"] == cluster.broker_id(index)
        assert samples["process_resident_memory_bytes"].value > 1e6
        assert samples["pulsar_broker_lookup_answers_total"].value > 0
        assert (
            samples["pulsar_broker_lookup_count"].value
            >= samples["pulsar_broker_lookup_answers_total"].value
        )
        if "pulsar_bundle_topics_count" in samples:
            bundle_labels |= set(samples["pulsar_bundle_topics_count"].labels)
        splits += samples["pulsar_lb_bundles_split_total"].value
    assert splits == 1
    assert bundle_labels == {"bundle", "metric", "broker", "cluster"}
