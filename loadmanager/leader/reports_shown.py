"""The last report of a broker, for operators."""

from __future__ import annotations

from msgspec import structs

from loadmanager.engine.load.reports import (
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
)
from loadmanager.engine.load.usage import Weights, max_weighted_usage
from loadmanager.leader.documents.cluster import ReportShown, Resource, Resources, TrafficShown


def report_shown(
    load: LocalBrokerData | BrokerLoadData, weights: Weights, now_ms: int
) -> ReportShown:
    """What a broker reported, in either load manager; `weights`: of its resources."""
    producers = consumers = None
    if isinstance(load, LocalBrokerData):
        usage, at_ms = max_weighted_usage(load, weights), load.last_update
        bundles, topics = len(load.bundles), load.num_topics
        producers, consumers = int(load.num_producers), int(load.num_consumers)
    else:
        usage, at_ms = load.max_resource_usage, load.updated_at
        bundles, topics = int(load.bundle_count), load.topics
    return ReportShown(
        **structs.asdict(traffic_shown(load)),
        usage=usage,
        resources=Resources(
            cpu=_resource(load.cpu),
            memory=_resource(load.memory),
            direct_memory=_resource(load.direct_memory),
            bandwidth_in=_resource(load.bandwidth_in),
            bandwidth_out=_resource(load.bandwidth_out),
        ),
        bundles=bundles,
        topics=int(topics),
        producers=producers,
        consumers=consumers,
        reported_at=int(at_ms) if at_ms else None,
        report_age_ms=max(0, now_ms - int(at_ms)) if at_ms else None,
    )


def traffic_shown(load: LocalBrokerData | BrokerLoadData | NamespaceBundleStats) -> TrafficShown:
    """The traffic of a broker or a bundle."""
    return TrafficShown(
        rate=load.msg_rate_in + load.msg_rate_out,
        throughput=load.msg_throughput_in + load.msg_throughput_out,
        msg_rate_in=load.msg_rate_in,
        msg_rate_out=load.msg_rate_out,
        msg_throughput_in=load.msg_throughput_in,
        msg_throughput_out=load.msg_throughput_out,
    )


def _resource(used: ResourceUsage) -> Resource:
    fraction = used.percent / 100 if used.limit > 0 else None
    return Resource(usage=used.usage, limit=used.limit, fraction=fraction)
