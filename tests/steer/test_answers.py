"""Recorded answers of real brokers as the daemon reads them, and broken ones."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from loadmanager.kit.errors import OperationalError
from loadmanager.steer.pulsar import answers

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str, key: str | None = None) -> bytes:
    """A recorded answer, or one of several."""
    document: Any = json.loads((SAMPLES / name).read_text())
    return json.dumps(document if key is None else document[key]).encode()


def test_a_modular_load_report() -> None:
    """With the time of its reading: `lastUpdate` is that of a write to ZooKeeper."""
    report = answers.load_report(sample("modular_load_report.json"), 77)
    assert report.last_update == 77
    assert report.cpu.limit == 200
    assert report.rate == pytest.approx(445.86266412154407 + 164.2421130471928)
    assert "acme/shop/0x10000000_0x20000000" in report.last_stats
    assert report.load_manager_class_name is None or report.load_manager_class_name.endswith(
        "ModularLoadManagerImpl"
    )


def test_topics_add_up_to_their_bundles() -> None:
    """Both managers give rates, producers and consumers of each topic."""
    stats = answers.bundle_stats(sample("broker_stats_topics_two.json"))
    hot = stats["acme/shop/0x60000000_0x70000000"]
    assert hot.msg_rate_in == pytest.approx(299.772)
    assert (hot.producer_count, hot.consumer_count, hot.topics) == (1, 1, 1)
    assert stats["acme/shop/0xf0000000_0xffffffff"].consumer_count == 0


def test_owned_bundles_of_a_broker() -> None:
    """Its heartbeats are among them."""
    owned = answers.owned_bundles(sample("owned_namespaces.json"))
    assert "acme/shop/0x00000000_0x10000000" in owned
    assert "pulsar/c1/127.0.0.1:38080/0x00000000_0xffffffff" in owned


def test_small_answers() -> None:
    """The list of brokers, the leader, the boundaries."""
    name = "lookup_and_small_answers.json"
    brokers = answers.broker_ids(sample(name, "/admin/v2/brokers/c1"))
    assert brokers == ["127.0.0.1:38080", "127.0.0.1:38081", "127.0.0.1:38082"]
    assert answers.leader_id(sample(name, "/admin/v2/brokers/leaderBroker")) == brokers[0]
    edges = answers.bundle_boundaries(sample(name, "/admin/v2/namespaces/acme/shop/bundles"))
    assert edges[0] == "0x00000000"
    assert edges[-1] == "0xffffffff"


def test_policies() -> None:
    """Failure domains and isolation."""
    name = "policies_examples.json"
    domains = answers.failure_domains(sample(name, "GET clusters/c1/failureDomains"))
    assert domains == {"d1": ["127.0.0.1:38080", "127.0.0.1:38081"]}
    isolation = answers.isolation_policies(
        sample(name, "GET clusters/c1/namespaceIsolationPolicies")
    )
    assert isolation["p1"].primary == ["127.0.0.9"]
    assert answers.anti_affinity_group(b"g1") == "g1"
    assert answers.anti_affinity_group(b"") is None


def test_settings_of_load_balancing_only() -> None:
    """Without Java's `Optional[…]`; other values may be secrets and are not kept."""
    recorded = json.loads(sample("modular_runtime_configuration_load_keys.json"))
    raw = json.dumps({**recorded, "brokerClientAuthenticationParameters": "token:x"}).encode()
    read = answers.balancing_settings(raw)
    assert read["loadBalancerOverrideBrokerNicSpeedGbps"] == "1.0"
    assert read["loadBalancerAutoBundleSplitEnabled"] == "false"
    assert "brokerClientAuthenticationParameters" not in read


def test_clients_of_a_topic() -> None:
    """Publishers and the consumers of all subscriptions."""
    assert answers.clients_of_topic(sample("topic_stats.json")) == 2


@pytest.mark.parametrize("manager", ["modular", "extensible"])
@pytest.mark.parametrize("version", ["4.0.4", "4.2.4", "5.0.0-M1"])
def test_answers_of_every_version(version: str, manager: str) -> None:
    """What `record.py` recorded: all of it is understood, and it fits together."""
    recorded: Any = json.loads((SAMPLES / f"{version}-{manager}.json").read_text())
    told = {path: answer["body"].encode() for path, answer in recorded.items()}
    brokers = answers.broker_ids(told["brokers"])
    assert len(brokers) == 3
    assert answers.leader_id(told["brokers/leaderBroker"]) in brokers
    read = answers.balancing_settings(told["brokers/configuration/runtime"])
    assert ("Extensible" in read["loadManagerClassName"]) == (manager == "extensible")
    (path,) = (path for path in told if path.endswith("/ownedNamespaces"))
    owned = set(answers.owned_bundles(told[path]))
    edges = answers.bundle_boundaries(told["namespaces/acme/shop/bundles"])
    bundles = {f"acme/shop/{low}_{high}" for low, high in itertools.pairwise(edges)}
    assert 0 < len(owned & bundles) < len(bundles) == 8
    stats = answers.bundle_stats(told["broker-stats/topics"])
    assert stats.keys() & bundles <= owned
    assert sum(stats[bundle].topics for bundle in stats.keys() & bundles) > 0
    if manager == "modular":
        report = answers.load_report(told["broker-stats/load-report"], 77)
        assert set(report.bundles) & bundles == owned & bundles
        assert {name for name in stats if name in bundles} <= set(report.last_stats)
    else:
        assert recorded["broker-stats/load-report"]["status"] == 500
    assert answers.clients_of_topic(told["persistent/acme/shop/t-0/stats"]) == 2
    group = "namespaces/acme/shop/antiAffinity"
    assert recorded[group]["status"] == (204 if version.startswith("4.0") else 200)
    assert answers.anti_affinity_group(told[group]) is None
    assert answers.anti_affinity_group(told[f"{group} with policies"]) == "g1"
    isolation = "clusters/c1/namespaceIsolationPolicies"
    assert recorded[isolation]["status"] == 404
    policies = answers.isolation_policies(told[f"{isolation} with policies"])
    assert policies["p1"].primary == ["127.0.0.9"]
    assert answers.failure_domains(told["clusters/c1/failureDomains"]) == {}
    domains = answers.failure_domains(told["clusters/c1/failureDomains with policies"])
    assert list(domains) == ["d1"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"{}",
        b"<html><body>Bad Gateway</body></html>",
        b"[]",
        b'{"lastStats": 3}',
        b'{"webServiceUrl": "http://h:1", "lastStats": {"a/b/0x0_0x1": {}}}',
        b'{"webServiceUrl": "http://h:1", "bundles": ["not a bundle"]}',
        b'{"webServiceUrl": "http://h:1", "msgRateIn": -1}',
        b'{"webServiceUrl": "http://h:1", "msgRateIn": 1e17}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_broken_report_is_none(raw: bytes) -> None:
    """It raises what a broker that does not answer raises."""
    with pytest.raises(OperationalError):
        answers.load_report(raw, 1)


@pytest.mark.parametrize(
    "raw", [b'["a"]', b'["a:b"]', b'["http://x:1"]', b'["h:1/x"]', b'{"a": 1}', b"<html>"]
)
def test_names_that_are_no_brokers(raw: bytes) -> None:
    """Requests go to these names: a broken list names no other host."""
    with pytest.raises(OperationalError):
        answers.broker_ids(raw)


def test_metrics_of_a_broker() -> None:
    """Percent of 100; a line that is broken is left out."""
    page = b"""
# TYPE pulsar_lb_cpu_usage gauge
pulsar_lb_cpu_usage{cluster="c1",broker="127.0.0.1",metric="loadBalancing"} 37.5
pulsar_lb_memory_usage{cluster="c1"} NaN
pulsar_lb_bandwidth_in_usage{cluster="c1"} oops
pulsar_lb_directMemory_usage 12.0 1795281571605
other{x="1"} 3
"""
    read = answers.usages(page)
    percent = {name: usage.percent for name, usage in read.items()}
    assert percent == {"cpu": 37.5, "direct_memory": 12.0}


@pytest.mark.parametrize("told", ["x" * 301, "b:1\n", "\x1b[2J", "\u202eb:1", ""])
@pytest.mark.parametrize(("key", "prefix"), [("brokerId", ""), ("serviceUrl", "http://")])
def test_a_leader_whose_name_is_none(key: str, prefix: str, told: str) -> None:
    """It is shown to operators, and its settings are asked for: another broker is asked instead."""
    assert answers.leader_id(json.dumps({key: prefix + told}).encode()) is None
