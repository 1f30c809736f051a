"""Documents that Apache Pulsar itself stored, of three versions and both load managers: `real/`.

The files are as a standalone of each version wrote them, with one bundle split and one unloaded
under traffic. Every field of every value is read, or is listed here with the reason why not.

Those of 5.0 are of the milestone 5.0.0-M1, not of a release; the classes of the extensible
manager's reports have the same fields in 5.0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadmanager.engine.bundles.ranges import parse_boundaries
from loadmanager.engine.load.quotas import ResourceQuota
from loadmanager.engine.load.reports import (
    LocalBrokerData,
    TimeAverageBrokerData,
    TopBundlesLoadData,
    decode_broker_load_data,
    decode_bundle_data,
    decode_local_broker_data,
)
from loadmanager.engine.policies.isolation import decode_policies
from loadmanager.lab.lines import decode_line, decode_reports
from loadmanager.limits import policies
from loadmanager.limits.policies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate

FILES = sorted((Path(__file__).parent / "real").glob("*.txt"))
ALL = "*"
"""Stands for every field of a kind of value."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value: what it is, its path or topic with the key, and its JSON."""

    kind: str
    name: str
    raw: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The value as plain Python."""
        return dict(msgspec.json.decode(self.raw))


KINDS = {
    "node /loadbalance/brokers/": "registration",
    "node /loadbalance/leader": "leader",
    "node /loadbalance/extension/leader": "leader",
    "node /loadbalance/bundle-data/": "bundle data",
    "node /loadbalance/broker-time-average/": "broker averages",
    "node /loadbalance/resource-quota/": "resource quota",
    "node /namespace/": "lock",
    "node /admin/configuration": "dynamic settings",
    "node /admin/clusters/standalone/failureDomain/": "failure domain",
    "node /admin/clusters/standalone/namespaceIsolationPolicies": "isolation policies",
    "node /admin/clusters/": "cluster",
    "node /admin/local-policies/": "local policies",
    "node /admin/policies/acme/": "namespace policies",
    "node /admin/policies/": "tenant",
    "node /admin/partitioned-topics/": "partitioned topic",
    "node /admin/resourcegroups/": "resource group",
    "message non-persistent://pulsar/system/loadbalancer-broker-load-data": "load",
    "message non-persistent://pulsar/system/loadbalancer-top-bundles-load-data": "top bundles",
    "message persistent://pulsar/system/loadbalancer-service-unit-state": "ownership",
    "answer /admin/v2/broker-stats/load-report": "registration",
}
"""How a value's name begins → what it is; the first that fits counts."""

KEPT = "a change of other fields leaves it as it is, and nothing else here needs it"
REGISTERED = "a broker's addresses, class and start are read of a registration, not more"
IGNORED: dict[str, dict[str, str]] = {
    "registration": {
        "maxResourceUsage": "computed from the other figures, with the weights in force",
        "brokerVersion": REGISTERED,
        "properties": REGISTERED,
    },
    "lock": {
        "disabled": "an owner's note to itself that it unloads; the lock counts until it goes",
        "brokerId": "the same as host and port of httpUrl",
        "advertisedListeners": "clients are sent to the broker's one address",
    },
    "cluster": dict.fromkeys(
        (
            "brokerServiceUrl",
            "serviceUrl",
            "brokerClientTlsEnabled",
            "tlsAllowInsecureConnection",
            "brokerClientSslFactoryPlugin",
            "brokerClientTlsEnabledWithKeyStore",
            "brokerClientTlsTrustStoreType",
            "brokerClientTlsKeyStoreType",
        ),
        "the addresses of brokers come from their registrations",
    ),
    "local policies": {"migrated": KEPT},
    "namespace policies": dict.fromkeys(
        (
            "allowed_clusters",
            "autoTopicCreationOverride",
            "clusterThatCanDeleteNamespace",
            "encryption_required",
            "is_allow_auto_update_schema",
            "is_allow_auto_update_schema_with_replicator",
            "latency_stats_sample_rate",
            "max_consumers_per_topic",
            "max_producers_per_topic",
            "max_topics_per_namespace",
            "migrated",
            "offload_threshold",
            "offload_threshold_in_seconds",
            "properties",
            "replicatorDispatchRate",
            "schema_compatibility_strategy",
            "schema_validation_enforced",
            "subscription_auth_mode",
            "subscription_types_enabled",
        ),
        KEPT,
    ),
    "partitioned topic": {"deleted": KEPT},
    "ownership": {
        ALL: "a deviation: we read states of bundles from the metadata store, not from a topic"
    },
}

READ: dict[str, frozenset[str]] = {
    "leader": frozenset({"brokerId", "serviceUrl"}),
    "lock": frozenset({"nativeUrl", "httpUrl"}),
    "failure domain": frozenset({"brokers"}),
    "local policies": frozenset({"bundles", "namespaceAntiAffinityGroup"}),
    "namespace policies": frozenset(
        {
            "auth_policies",
            "backlog_quota_map",
            "bundles",
            "clusterDispatchRate",
            "clusterSubscribeRate",
            "deleted",
            "message_ttl_in_seconds",
            "publishMaxMessageRate",
            "replication_clusters",
            "resource_group_name",
            "retention_policies",
            "subscriptionDispatchRate",
            "topicDispatchRate",
        }
    ),
    "tenant": frozenset({"adminRoles", "allowedClusters"}),
    "partitioned topic": frozenset({"partitions"}),
}
"""Fields that are read one by one out of a JSON object."""


def values(path: Path) -> Iterator[Value]:
    """The values of a file: a line that names it, a line of JSON."""
    lines = path.read_text().splitlines()[1:]
    for name, raw in zip(lines[::2], lines[1::2], strict=True):
        kind = next(kind for prefix, kind in KINDS.items() if name.startswith(prefix))
        yield Value(kind, name, raw.encode())


def _top_bundles(raw: bytes) -> TopBundlesLoadData:
    return decode_line(b'{"brokers": {}, "topBundles": {"b": %s}}' % raw).top_bundles["b"]


def _broker_averages(raw: bytes) -> TimeAverageBrokerData:
    line = decode_line(b'{"brokers": {}, "brokerTimeAverages": {"b": %s}}' % raw)
    return line.broker_time_averages["b"]


DECODERS: dict[str, Callable[[bytes], msgspec.Struct | Mapping[str, msgspec.Struct]]] = {
    "registration": decode_local_broker_data,
    "bundle data": decode_bundle_data,
    "broker averages": _broker_averages,
    "load": decode_broker_load_data,
    "top bundles": _top_bundles,
    "isolation policies": lambda raw: dict(decode_policies(raw)),
    "resource quota": lambda raw: msgspec.json.decode(raw, type=ResourceQuota),
    "resource group": lambda raw: policies.decode(msgspec.json.decode(raw), ResourceGroup),
}
"""Values that are decoded as a whole. What is decoded is what we write, too."""


def unread(kind: str, stored: Mapping[str, Any], written: Mapping[str, Any]) -> list[str]:
    """Fields of a stored object that are neither written again with the same value nor listed."""
    ignored = IGNORED.get(kind, {})
    return [
        f"{field}: {value!r}, decoded {written.get(field)!r}"
        for field, value in stored.items()
        if field not in ignored and not (field in written and _same(value, written[field]))
    ]


def _same(stored: Any, written: Any) -> bool:
    """True if every field of what is stored is in what is written, with the same value."""
    if isinstance(stored, dict):
        return isinstance(written, dict) and all(
            key in written and _same(value, written[key]) for key, value in stored.items()
        )
    if isinstance(stored, list):
        return len(stored) == len(written) and all(map(_same, stored, written))
    return bool(stored == written)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_field_is_accounted_for(path: Path) -> None:
    """A field is decoded and written again as it was, or is read by its name, or is listed."""
    for value in values(path):
        if value.kind in DECODERS:
            decoded = msgspec.json.encode(DECODERS[value.kind](value.raw))
            assert unread(value.kind, value.document, msgspec.json.decode(decoded)) == [], (
                value.name
            )
        elif value.kind == "dynamic settings":
            assert all(isinstance(setting, str) for setting in value.document.values())
        else:
            known = READ.get(value.kind, frozenset()) | IGNORED.get(value.kind, {}).keys()
            assert ALL in known or value.document.keys() <= known, value.name


def test_each_version_and_each_reason_is_needed() -> None:
    """Both managers of three versions are there, and every listed field occurs."""
    assert {path.stem.rpartition("-")[::2] for path in FILES} == {
        (version, manager)
        for version in ("4.0.8", "4.2.4", "5.0.0-M1")
        for manager in ("modular", "extensible")
    }
    stored = [value for path in FILES for value in values(path)]
    assert {value.kind for value in stored} == set(KINDS.values())
    for kind, listed in (IGNORED | READ).items():
        fields = {field for value in stored if value.kind == kind for field in value.document}
        assert set(listed) - fields - {ALL} == set(), kind
    for kind, ignored in IGNORED.items():
        assert not ignored.keys() & READ.get(kind, frozenset()), kind


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_reports_mean_what_they_meant(path: Path) -> None:
    """Figures are in our units: the sums of a report are those of its bundles."""
    stored = list(values(path))
    for report in [_registration(value) for value in stored if value.kind == "registration"]:
        manager = (report.load_manager_class_name or "").rpartition(".")[2]
        if path.stem.endswith("extensible"):
            assert manager == "ExtensibleLoadManagerImpl"
            continue
        assert manager == "ModularLoadManagerImpl"
        assert report.rate == pytest.approx(sum(each.rate for each in report.last_stats.values()))
        assert report.rate > 100
        assert sorted(report.last_stats) == sorted(report.bundles)
        assert report.num_bundles == len(report.bundles)
        assert 0 < report.cpu.percent <= 100
        assert 0 < report.memory.percent < 100
    for value in stored:
        if value.kind == "load":
            load = decode_reports({"b": msgspec.Raw(value.raw)}).load["b"]
            assert load.msg_rate_in + load.msg_rate_out > 100
            assert 0 < load.weighted_max_ema <= load.max_resource_usage <= 1
        if value.kind == "bundle data":
            data = decode_bundle_data(value.raw)
            assert data.short_term_data.num_samples <= data.short_term_data.max_samples == 10
            assert data.long_term_data.max_samples == 1000


def _registration(value: Value) -> LocalBrokerData:
    return decode_local_broker_data(value.raw)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_policies_mean_what_they_meant(path: Path) -> None:
    """Boundaries after a split, and limits, as the operator set them."""
    stored = {value.name: value.document for value in values(path)}
    bundles = stored["node /admin/local-policies/acme/cut"]["bundles"]
    assert len(parse_boundaries(bundles["boundaries"])) - 1 == bundles["numBundles"] == 4
    limits = stored["node /admin/policies/acme/rich"]
    rates = {
        field: policies.of_cluster(limits, field, "standalone", kind)
        for field, kind in (
            ("publishMaxMessageRate", PublishRate),
            ("subscriptionDispatchRate", DispatchRate),
            ("clusterSubscribeRate", SubscribeRate),
        )
    }
    assert rates == {
        "publishMaxMessageRate": PublishRate(messages_per_s=1000, bytes_per_s=1_000_000),
        "subscriptionDispatchRate": DispatchRate(messages=500, bytes=500_000, period_s=2),
        "clusterSubscribeRate": SubscribeRate(subscribes=100, period_s=30),
    }
