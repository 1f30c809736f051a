"""How archives keep the records: loads as figures, everything else by what it is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any
from urllib.parse import unquote

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.findings import FindingStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.plans import PlanStep
from loadmanager.engine.history.records import (
    AuditedChange,
    BrokerLoad,
    BundleLoad,
    Decision,
    OwnershipStep,
    Throttle,
    TopicLoad,
    decided_ms,
)
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.history.catalogue import Catalogue, EventsOf, FiguresOf
from loadmanager.kit.metadata import paths

RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
TRAFFIC = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
BUNDLE = (*TRAFFIC, "topics", "producers", "consumers")
TOPIC = (*TRAFFIC, "producers", "consumers", "backlog_messages")
BROKER = (
    *("usage", *TRAFFIC, "bundles", "topics", "producers", "consumers"),
    *(f"{resource}_{part}" for resource in RESOURCES for part in ("usage", "limit")),
)
DELIVERED = ("delivered_messages_per_s", "delivered_bytes_per_s")
LIMIT = (
    *("configured_messages_per_s", "configured_bytes_per_s"),
    *DELIVERED,
    *("held", "waited_ms", "queue_length"),
)
CLUSTER = "cluster"
"""What a skip that concerns the whole cluster names."""
_BUNDLE = re.compile(r"[^/\s\"?]+/[^/\s\"?]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}")
"""As orders name bundles in their path or in what they ask for."""
STOPS = "POST /admin/v2/brokers/shutdown"
"""How the order to a broker to stop begins."""
SETTINGS = "broker.conf"
"""What a change of the settings of all brokers is about."""


def limit_name(level: str, limit: str) -> str:
    """The name of a limit in an archive."""
    return f"{level}: {limit}"


def limit_words(name: str) -> str:
    """The name of a limit in an archive, for people: `resource group: resource group batch publish`
    says its level twice.
    """
    level, _, limit = name.partition(": ")
    return limit if limit.startswith(level) else name


def _row(name: str, columns: tuple[str, ...]) -> Callable[[Any], tuple[str, tuple[float, ...]]]:
    return lambda record: (
        getattr(record, name),
        tuple(getattr(record, column) for column in columns),
    )


def _broker(record: BrokerLoad) -> tuple[str, tuple[float, ...]]:
    traffic = [getattr(record, column) for column in BROKER[:9]]
    used = [getattr(record, resource) for resource in RESOURCES]
    return record.broker, (*traffic, *(part for each in used for part in (each.usage, each.limit)))


def _limit(record: Throttle) -> tuple[str, tuple[float, ...]]:
    """What a limit delivered is kept as the mean of the time in which it had its rates."""
    stood_ms = record.interval_ms if record.stood_ms is None else max(record.stood_ms, 1)
    whole = record.interval_ms / stood_ms
    figures = tuple(
        getattr(record, column) * (whole if column in DELIVERED else 1.0) for column in LIMIT
    )
    return limit_name(record.level, record.limit), figures


def _with_namespace(bundle: str | None) -> Iterator[str]:
    """A bundle, its namespace and its tenant."""
    if bundle:
        yield bundle
        try:
            namespace, _ = split_bundle_name(bundle)
        except BadInputError:
            return
        yield namespace
        yield namespace.partition("/")[0]


def _of_decision(record: Decision) -> Iterator[str]:
    yield from _with_namespace(record.bundle)
    if record.what not in (None, CLUSTER):
        yield from _with_namespace(record.what)
    ends = (record.source, record.destination, record.owner)
    yield from filter(None, (*ends, record.move, *record.ids))


def _of_step(record: OwnershipStep) -> Iterator[str]:
    yield from _with_namespace(record.bundle)
    yield from filter(None, (record.broker, record.parent, record.destination))


def _of_change(record: AuditedChange) -> Iterator[str]:
    yield from filter(None, (record.role or record.address, record.proxied))
    if record.path == paths.DYNAMIC_CONFIGURATION:
        yield SETTINGS
    if record.what.startswith(STOPS):
        yield record.broker
    yield from named_by_path(record.path or "")
    if record.path is None:
        for bundle in dict.fromkeys(_BUNDLE.findall(f"{record.what} {record.after}")):
            yield from _with_namespace(unquote(bundle))


def _of_member(record: MemberChange) -> Iterator[str]:
    yield record.of
    yield from filter(None, (record.before,))


def _of_client(record: ClientStep) -> Iterator[str]:
    named = (record.name, record.client, record.address, record.subscription, *record.roles)
    yield from filter(None, named)
    if record.event == "refused" and record.topic:
        yield record.topic


def _of_finding(record: FindingStep) -> Iterator[str]:
    if record.about:
        yield from _with_namespace(record.about)
    if record.what == "sensor":
        yield record.about.partition(" ")[0]  # its broker


def _of_plan(record: PlanStep) -> Iterator[str]:
    yield from (record.plan, *record.orders)
    for bundle, *brokers in record.moves:
        yield from _with_namespace(bundle)
        yield from filter(None, brokers)


def client_kind(record: ClientStep) -> str:
    """The kind under which an archive has a client: `client.attached`, `client.refused`, …"""
    return f"{ClientStep.kind}.{record.event}"


def _documents(path: str) -> Iterator[str]:
    """The document itself and those beside it, for who asks how they were."""
    if path.startswith(f"{paths.ADMIN}/") or path == paths.REFUSED_TOKENS:
        yield from (path, path.rpartition("/")[0])


def named_by_path(path: str) -> Iterator[str]:
    """What a stored document is about."""
    for root in (paths.TOPIC_POLICIES, paths.PARTITIONED_TOPICS, paths.MANAGED_LEDGERS):
        parts = path.removeprefix(f"{root}/").split("/")
        if path.startswith(f"{root}/") and len(parts) >= 4:
            tenant, namespace, domain, topic = parts[:4]
            yield from (tenant, f"{tenant}/{namespace}")
            yield f"{domain}://{tenant}/{namespace}/{paths.decode(topic)}"
    for root in (paths.POLICIES, paths.LOCAL_POLICIES):
        if path.startswith(f"{root}/"):
            parts = path.removeprefix(f"{root}/").split("/")
            yield from (parts[0], "/".join(parts[:2]))
    yield from _documents(path)
    for root in (paths.PINS, paths.CORDONS, paths.GOALS, paths.PAUSE):
        if f"{path}/".startswith(f"{root}/"):
            yield root
    if path.startswith(f"{paths.PINS}/"):
        yield from _with_namespace(paths.decode(paths.last(path)))
    if path.startswith(f"{paths.CORDONS}/"):
        yield paths.decode(paths.last(path))
    if path.startswith(f"{paths.RESOURCE_QUOTAS}/"):
        yield from _with_namespace(path.removeprefix(f"{paths.RESOURCE_QUOTAS}/"))


def _same(record: Decision) -> Hashable:
    """Of skips: a leader says the same every cycle."""
    if record.action != "skip":
        return None
    return (record.broker, record.epoch, record.strategy, record.what, record.code)


def decision_kind(record: Decision) -> str:
    """The kind under which an archive has a decision: `decision.move`, `decision.skip`, …"""
    return f"{Decision.kind}.{record.action}"


ARCHIVED: Catalogue = {
    BrokerLoad.kind: FiguresOf(BROKER, _broker),
    BundleLoad.kind: FiguresOf(BUNDLE, _row("bundle", BUNDLE)),
    TopicLoad.kind: FiguresOf(TOPIC, _row("topic", TOPIC)),
    Throttle.kind: FiguresOf(LIMIT, _limit),
    Decision.kind: EventsOf(_of_decision, _same, decision_kind, decided_ms),
    OwnershipStep.kind: EventsOf(_of_step),
    AuditedChange.kind: EventsOf(_of_change),
    MemberChange.kind: EventsOf(_of_member),
    FindingStep.kind: EventsOf(_of_finding),
    ClientStep.kind: EventsOf(_of_client, kind=client_kind),
    PlanStep.kind: EventsOf(_of_plan),
}
