"""Pulsar's answers ↔ what the load manager reads.

Each function raises `OperationalError` for an answer of another shape: a broken answer counts as
none. Sizes and rates are checked, because an answer may come from a broken proxy.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, TypeVar

import msgspec

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import (
    NUMBER_MAX,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    decode_local_broker_data,
    decode_tolerant,
)
from loadmanager.engine.policies.isolation import IsolationPolicies, decode_policies
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.names import NamespaceName, clip, is_system_namespace

T = TypeVar("T")

RATE_MAX = 1e13
BROKERS_MAX = 10_000
OBJECTS_MAX = 1_000_000
"""Objects in one answer: a topic with a producer and a consumer has about ten."""
VALUES_MAX = 20_000_000
"""Values in one answer: such a topic has about a hundred and fifty, which are skipped."""
REPORT_VALUES_MAX = 2_000_000
"""Values in a load report, where a bundle has about ten: they become objects."""
BUNDLES_MAX = 50_000
"""Bundles of one broker: each name is checked, which takes microseconds."""
NAME_MAX = 300
BALANCING = ("loadBalance", "loadManager", "failureDomains", "clusterName", "preferLaterVersions")
"""How the keys begin that are read of a broker's configuration: the others may be secrets."""
USAGES = {
    b"pulsar_lb_cpu_usage": "cpu",
    b"pulsar_lb_memory_usage": "memory",
    b"pulsar_lb_directMemory_usage": "direct_memory",
    b"pulsar_lb_bandwidth_in_usage": "bandwidth_in",
    b"pulsar_lb_bandwidth_out_usage": "bandwidth_out",
}
"""Metric in percent → field of a report."""
_BROKER = re.compile(r"(?:\w[\w.-]*|\[(?P<v6>[0-9a-fA-F:.]+)\]):[0-9]{1,5}", re.ASCII)
_USAGE_LINE = re.compile(rb"^(pulsar_lb_\w+)(?:\{.*\})?[ \t]+([^\s]+)", re.MULTILINE)


class _Topic(msgspec.Struct, rename="camel"):
    """The figures of a topic in `broker-stats/topics`."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    producer_count: int = 0
    storage_size: int = 0
    subscriptions: dict[str, _Subscription] = {}


class _Object(msgspec.Struct, gc=False):
    """An object of which nothing is read."""


class _Subscription(msgspec.Struct):
    consumers: list[_Object] = []


class _Stats(msgspec.Struct):
    """The figures of a topic in its `stats`."""

    publishers: list[_Object] = []
    subscriptions: dict[str, _Subscription] = {}


class _Leader(msgspec.Struct, rename="camel"):
    broker_id: str | None = None
    service_url: str | None = None


class _Registration(msgspec.Struct, rename="camel"):
    load_manager_class_name: str | None = None


class _Bundles(msgspec.Struct):
    boundaries: list[str]


class _Domain(msgspec.Struct):
    brokers: list[str] = []


_Topics = dict[str, dict[str, dict[str, dict[str, _Topic]]]]
_Name = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
_TOPICS = msgspec.json.Decoder(_Topics)
_NAMES = msgspec.json.Decoder(list[_Name])
_STATS = msgspec.json.Decoder(_Stats)
_LEADER = msgspec.json.Decoder(_Leader)
_REGISTRATION = msgspec.json.Decoder(_Registration)
_OWNED = msgspec.json.Decoder(dict[_Name, _Object])
_VALUES = msgspec.json.Decoder(dict[str, str | None])
_BUNDLES = msgspec.json.Decoder(_Bundles)
_DOMAINS = msgspec.json.Decoder(dict[_Name, _Domain])


def _decode(decoder: msgspec.json.Decoder[T], raw: bytes, what: str) -> T:
    _check_size(raw, what)
    try:
        return decode_tolerant(decoder, raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = raw[:60].decode(errors="replace")
        raise OperationalError(f"{what}: {error}; the answer begins with {shown!r}") from None


def _check_size(raw: bytes, what: str, values_max: int = VALUES_MAX) -> None:
    """Raise `OperationalError` for an answer that would take ten times its size as objects."""
    objects, values = raw.count(b"{") + raw.count(b"["), raw.count(b",")
    if objects > OBJECTS_MAX or values > values_max:
        raise OperationalError(
            f"{what}: {objects} objects and {values} values: at most {OBJECTS_MAX} and "
            f"{values_max} are read"
        )


def broker_ids(raw: bytes) -> list[str]:
    """`brokers`: the registered brokers, sorted."""
    listed: list[str] = _decode(_NAMES, raw, "the list of brokers")
    names = sorted(set(listed))
    if len(names) > BROKERS_MAX:
        raise OperationalError(f"{len(names)} brokers: more than {BROKERS_MAX}")
    for name in names:
        if not _is_broker(name):
            raise OperationalError(f"{clip(name)} is not a broker: host:port is expected")
    return names


def _is_broker(name: str) -> bool:
    match = _BROKER.fullmatch(name)
    if match is None:
        return False
    try:
        return match["v6"] is None or bool(ipaddress.IPv6Address(match["v6"]))
    except ValueError:
        return False


def leader_id(raw: bytes) -> str | None:
    """`brokers/leaderBroker`: the leader; older versions tell its address only. None for a text
    that is no name.
    """
    leader = _decode(_LEADER, raw, "the leader")
    url = leader.service_url or ""
    name = leader.broker_id or url.partition("://")[2].rstrip("/")
    return name if name and len(name) <= NAME_MAX and name.isprintable() else None


def balancing_settings(raw: bytes) -> dict[str, str]:
    """`brokers/configuration/runtime`: the keys of load balancing, without Java's `Optional[…]`."""
    values = _decode(_VALUES, raw, "the configuration")
    return {
        name: _plain(value)
        for name, value in values.items()
        if value is not None and name.startswith(BALANCING)
    }


def _plain(value: str) -> str:
    if value.startswith("Optional[") and value.endswith("]"):
        return value[len("Optional[") : -1]
    return "" if value == "Optional.empty" else value


def owned_bundles(raw: bytes) -> list[str]:
    """`ownedNamespaces`: the bundles of a broker, sorted."""
    owned: dict[str, _Object] = _decode(_OWNED, raw, "the owned bundles")
    bundles = sorted(owned)
    _check_bundles(bundles)
    return bundles


def load_report(raw: bytes, now_ms: int, *, stored: bool = False) -> LocalBrokerData:
    """`broker-stats/load-report` of a modular broker; it counts as of now. One that was `stored`
    is as old as it says. What no strategy uses is left out.
    """
    _check_size(raw, "the load report", REPORT_VALUES_MAX)
    try:
        report = decode_local_broker_data(raw)
    except BadInputError as error:
        raise OperationalError(str(error)) from None
    if not (report.web_service_url or report.web_service_url_tls):
        raise OperationalError("a load report without an address: it is not a broker's")
    _check_bundles({*report.bundles, *report.last_stats})
    _check_rates("the broker", report)
    for bundle, stats in report.last_stats.items():
        _check_rates(bundle, stats)
    if report.num_topics < 0 or report.num_bundles < 0:
        raise OperationalError("a load report with a negative number of topics or bundles")
    return msgspec.structs.replace(
        report,
        last_update=min(report.last_update or now_ms, now_ms) if stored else now_ms,
        last_bundle_gains=[],
        last_bundle_losses=[],
        protocols={},
        advertised_listeners={},
    )


def is_registration(raw: bytes) -> bool:
    """True if a broker's node in ZooKeeper has its address and no load: the broker runs the
    extensible load manager.
    """
    registration = _decode(_REGISTRATION, raw, "the broker's node in ZooKeeper")
    return Manager.of(registration.load_manager_class_name) is Manager.EXTENSIBLE


def bundle_stats(raw: bytes) -> dict[str, NamespaceBundleStats]:
    """`broker-stats/topics`: the sums of each bundle."""
    sums: dict[str, NamespaceBundleStats] = {}
    for namespace, bundles in _decode(_TOPICS, raw, "the topics").items():
        for span, domains in bundles.items():
            stats = sums[f"{namespace}/{span}"] = NamespaceBundleStats()
            for topics in domains.values():
                for topic in topics.values():
                    _add(stats, topic)
    _check_bundles(sums)
    for bundle, stats in sums.items():
        _check_rates(bundle, stats)
    return sums


def stored_bytes(raw: bytes) -> dict[str, int]:
    """`broker-stats/topics`: what the topics of each bundle have stored."""
    return {
        f"{namespace}/{span}": sum(
            min(max(topic.storage_size, 0), int(NUMBER_MAX))
            for topics in domains.values()
            for topic in topics.values()
        )
        for namespace, bundles in _decode(_TOPICS, raw, "the topics").items()
        for span, domains in bundles.items()
    }


def _add(stats: NamespaceBundleStats, topic: _Topic) -> None:
    stats.msg_rate_in += topic.msg_rate_in
    stats.msg_rate_out += topic.msg_rate_out
    stats.msg_throughput_in += topic.msg_throughput_in
    stats.msg_throughput_out += topic.msg_throughput_out
    stats.producer_count += topic.producer_count
    stats.consumer_count += sum(len(sub.consumers) for sub in topic.subscriptions.values())
    stats.topics += 1


def clients_of_topic(raw: bytes) -> int:
    """A topic's `stats`: its producers and consumers."""
    stats = _decode(_STATS, raw, "the stats of a topic")
    consumers = sum(len(sub.consumers) for sub in stats.subscriptions.values())
    return len(stats.publishers) + consumers


def usages(page: bytes) -> dict[str, ResourceUsage]:
    """The metrics page: field of a report → usage in percent of a limit of 100."""
    by_resource: dict[str, ResourceUsage] = {}
    for line in _USAGE_LINE.finditer(page):
        field = USAGES.get(line[1])
        if field is None:
            continue
        try:
            value = float(line[2])
        except ValueError:
            continue
        if 0 <= value <= RATE_MAX:
            by_resource[field] = ResourceUsage(usage=value, limit=100.0)
    if not by_resource:
        raise OperationalError("the metrics page says nothing of the usage of resources")
    return by_resource


def report_of(
    stats: Mapping[str, NamespaceBundleStats],
    usage: Mapping[str, ResourceUsage],
    owned: Iterable[str],
    *,
    url: str,
    now_ms: int,
) -> LocalBrokerData:
    """The report of a broker that publishes none over HTTP (extensible manager)."""
    of_owned = {bundle: stats.get(bundle, NamespaceBundleStats()) for bundle in sorted(owned)}
    loads = of_owned.values()
    report = LocalBrokerData(
        web_service_url=url,
        bundles=list(of_owned),
        last_stats=of_owned,
        last_update=now_ms,
        msg_rate_in=sum(load.msg_rate_in for load in loads),
        msg_rate_out=sum(load.msg_rate_out for load in loads),
        msg_throughput_in=sum(load.msg_throughput_in for load in loads),
        msg_throughput_out=sum(load.msg_throughput_out for load in loads),
        num_topics=sum(int(load.topics) for load in loads),
        num_bundles=len(of_owned),
        num_producers=sum(int(load.producer_count) for load in loads),
        num_consumers=sum(int(load.consumer_count) for load in loads),
    )
    for field, value in usage.items():
        setattr(report, field, value)
    return report


def isolation_policies(raw: bytes) -> IsolationPolicies:
    """`namespaceIsolationPolicies`. One that cannot be understood makes the whole unusable: a move
    against a policy is worse than no move.
    """
    try:
        return decode_policies(raw)
    except BadInputError as error:
        raise OperationalError(str(error)) from None


def failure_domains(raw: bytes) -> dict[str, list[str]]:
    """`failureDomains`: domain → brokers."""
    return {
        name: domain.brokers
        for name, domain in _decode(_DOMAINS, raw, "the failure domains").items()
    }


def anti_affinity_group(raw: bytes) -> str | None:
    """`antiAffinity`: the bare word; an empty answer means no group."""
    try:
        word = raw.decode().strip().strip('"')
    except UnicodeDecodeError:
        raise OperationalError("an anti-affinity group that is not a text") from None
    if len(word) > NAME_MAX or not word.isprintable() or "<" in word:
        raise OperationalError(f"{word[:40]!r} is not an anti-affinity group")
    return word or None


def bundle_boundaries(raw: bytes) -> list[str]:
    """`bundles` of a namespace."""
    return _decode(_BUNDLES, raw, "the boundaries").boundaries


def _check_bundles(names: Collection[str]) -> None:
    if len(names) > BUNDLES_MAX:
        raise OperationalError(f"{len(names)} bundles of one broker: more than {BUNDLES_MAX}")
    for bundle in names:
        try:
            namespace, span = split_bundle_name(bundle)
            if str(BundleRange.parse(span)) != span:
                raise BadInputError(f"invalid bundle {bundle[:80]!r}")
            if not is_system_namespace(namespace):
                NamespaceName.parse(namespace)
        except BadInputError as error:
            raise OperationalError(str(error)) from None


def _check_rates(what: str, load: LocalBrokerData | NamespaceBundleStats) -> None:
    rates = (load.msg_rate_in, load.msg_rate_out, load.msg_throughput_in, load.msg_throughput_out)
    if not all(0 <= rate <= RATE_MAX for rate in rates):
        raise OperationalError(f"{what} has an impossible rate: 0 to {RATE_MAX:g} is possible")
