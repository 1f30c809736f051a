"""What the brokers of the extensible load manager publish, as the reports that plans are made of.

They publish their load and their busiest bundles; who owns which bundle is known of all. What the
busiest ones do not carry of a broker's traffic, its other bundles carry in equal parts: each has
less than any that is published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping

from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData, NamespaceBundleStats
from loadmanager.engine.load.snapshot import ClusterSnapshot


def as_reported(
    snapshot: ClusterSnapshot, owners: Mapping[str, str]
) -> Generator[None, None, ClusterSnapshot]:
    """The snapshot with a report of each broker that has published its load. `owners`: bundle →
    brokerId. It yields after every broker.
    """
    owned: dict[str, list[str]] = defaultdict(list)
    for bundle, broker in owners.items():
        owned[broker].append(bundle)
    yield
    reports: dict[str, LocalBrokerData] = {}
    averages = BundleAverages()
    for broker in sorted(snapshot.load_data):
        stats = _stats(snapshot, broker, sorted(owned[broker]))
        reports[broker] = _report(snapshot.load_data[broker], stats)
        averages.observe(broker, stats)
        yield
    return snapshot.having(
        extensible=False,
        reports=reports,
        bundle_data=averages,
        load_data={},
        top_bundles={},
        owners={},
    )


def _stats(
    snapshot: ClusterSnapshot, broker: str, bundles: list[str]
) -> dict[str, NamespaceBundleStats]:
    load, published = snapshot.load_data[broker], snapshot.top_bundles.get(broker)
    top = {
        bundle.bundle_name: bundle.stats
        for bundle in (published.top_bundles_load_data if published else ())
    }
    stats = {bundle: top[bundle] for bundle in bundles if bundle in top}
    others = [bundle for bundle in bundles if bundle not in top]

    def each(figure: str) -> float:
        carried = sum(getattr(carrier, figure) for carrier in stats.values())
        rest: float = max(0.0, getattr(load, figure) - carried)
        return rest / max(len(others), 1)

    figures = ("msg_throughput_in", "msg_throughput_out", "msg_rate_in", "msg_rate_out")
    share = NamespaceBundleStats(**{figure: each(figure) for figure in figures})
    return {**stats, **dict.fromkeys(others, share)}


def _report(load: BrokerLoadData, stats: Mapping[str, NamespaceBundleStats]) -> LocalBrokerData:
    return LocalBrokerData(
        cpu=load.cpu,
        memory=load.memory,
        direct_memory=load.direct_memory,
        bandwidth_in=load.bandwidth_in,
        bandwidth_out=load.bandwidth_out,
        msg_throughput_in=load.msg_throughput_in,
        msg_throughput_out=load.msg_throughput_out,
        msg_rate_in=load.msg_rate_in,
        msg_rate_out=load.msg_rate_out,
        last_update=load.updated_at,
        last_stats=stats,
        bundles=list(stats),
        num_bundles=len(stats),
        num_topics=load.topics,
    )
