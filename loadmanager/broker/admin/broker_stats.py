"""Statistics of a broker's topics, as Pulsar's `broker-stats` prints them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from loadmanager.broker.admin.topic_owners import TopicOwners
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.kit.http.operation import operation
from loadmanager.kit.names import TopicName

Document = dict[str, Any]
Topics = Mapping[str, Mapping[str, Document]]

RENAMED = {
    "msgInCounter": "msgInCount",
    "bytesInCounter": "bytesInCount",
    "msgOutCounter": "msgOutCount",
    "bytesOutCounter": "bytesOutCount",
}
"""Name in the stats of a topic → name here."""
RESOURCES = {
    "cpu": "cpu",
    "memory": "memory",
    "directMemory": "directMemory",
    "bandwidth_in": "bandwidthIn",
    "bandwidth_out": "bandwidthOut",
}
"""Name in a metric → name in a load report."""
SHOWN = (
    "publishers",
    "replication",
    "subscriptions",
    "averageMsgSize",
    "msgRateIn",
    "msgRateOut",
    "msgThroughputIn",
    "msgThroughputOut",
    "storageSize",
    "backlogSize",
)


class BrokerStatsRoutes:
    """Statistics of all open topics."""

    def __init__(self, owners: TopicOwners, load_report: Callable[[], bytes]) -> None:
        self._owners = owners
        self._load_report = load_report

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/admin/v2/broker-stats/topics", self.topics),
            web.get("/admin/v2/broker-stats/metrics", self.metrics),
        ]

    @operation(Document)
    async def topics(self, _request: web.Request) -> web.Response:
        """The open topics of this broker with their statistics, by namespace, bundle and domain."""
        return web.json_response(by_namespace(self._owners.host.open_stats()))

    @operation(list[Document])
    async def metrics(self, _request: web.Request) -> web.Response:
        """The traffic, clients and backlog of each namespace on this broker, and the broker's load,
        under Pulsar's names.

        Pulsar's metrics of its own parts are absent; `/metrics` has those of loadmanager.
        """
        report = json.loads(self._load_report())
        namespaces = metrics_of(self._owners.host.open_stats())
        return web.json_response([*namespaces, load_metrics_of(report)])


def load_metrics_of(report: Document) -> Document:
    """The usage of each resource in percent (Pulsar's `getLoadBalancingMetrics`)."""
    usages = {name: report[field] for name, field in RESOURCES.items()}
    return {
        "metrics": {
            f"brk_lb_{name}_usage": 100 * usage["usage"] / usage["limit"] if usage["limit"] else 0.0
            for name, usage in usages.items()
        },
        "dimensions": {
            "broker": report["webServiceUrl"].partition("://")[2].rpartition(":")[0],
            "metric": "loadBalancing",
        },
    }


def by_namespace(bundles: Topics) -> Document:
    """Namespace → range → domain → topic → statistics."""
    tree: Document = {}
    for bundle, topics in sorted(bundles.items()):
        namespace, span = split_bundle_name(bundle)
        for name, stats in sorted(topics.items()):
            domain = TopicName.parse(name).domain
            at = tree.setdefault(namespace, {}).setdefault(span, {}).setdefault(domain, {})
            at[name] = {
                **{field: stats[field] for field in SHOWN},
                **{new: stats[old] for old, new in RENAMED.items()},
                "producerCount": len(stats["publishers"]),
            }
    return tree


def metrics_of(bundles: Topics) -> list[Document]:
    """One entry for each namespace (Pulsar's `NamespaceStats`)."""
    namespaces: dict[str, Document] = {}
    for bundle, topics in sorted(bundles.items()):
        namespace, _ = split_bundle_name(bundle)
        for stats in topics.values():
            subscriptions = stats["subscriptions"].values()
            figures = {
                "brk_in_rate": stats["msgRateIn"],
                "brk_in_tp_rate": stats["msgThroughputIn"],
                "brk_out_rate": stats["msgRateOut"],
                "brk_out_tp_rate": stats["msgThroughputOut"],
                "brk_storage_size": stats["storageSize"],
                "brk_no_of_producers": len(stats["publishers"]),
                "brk_no_of_subscriptions": len(subscriptions),
                "brk_no_of_consumers": sum(
                    len(subscription["consumers"]) for subscription in subscriptions
                ),
                "brk_msg_backlog": sum(
                    subscription["msgBacklog"] for subscription in subscriptions
                ),
            }
            summed = namespaces.setdefault(namespace, dict.fromkeys(figures, 0))
            for name, value in figures.items():
                summed[name] += value
    return [
        {"metrics": figures, "dimensions": {"namespace": namespace}}
        for namespace, figures in namespaces.items()
    ]
