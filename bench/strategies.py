"""One decision of each shedder over large clusters, and the reading of 1,000 reports.

`python -m bench strategies [--repeat 5]`: best of the repeats, milliseconds.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import msgspec

from loadmanager.core.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    TimeAverageMessageData,
    TopBundle,
    TopBundlesLoadData,
    decode_local_broker_data,
)
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies import cycle, registry
from loadmanager.core.strategies.memories import Memories
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.threshold import ThresholdSettings
from loadmanager.core.strategies.shedding.transfer import TransferSettings

SHAPES = ((1000, 100), (162, 667))
EAGER = {
    ThresholdSettings: ThresholdSettings(min_throughput_mib=0),
    TransferSettings: TransferSettings(hits_min=0),
}
REPORT_BUNDLES = 75
"""Makes a report of about 20 KB."""


def main(argv: list[str]) -> int:
    """Measure, and print one line per figure."""
    parser = argparse.ArgumentParser(prog="python -m bench strategies", description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args(argv)
    for brokers, bundles in SHAPES:
        local, extensible = _clusters(brokers, bundles)
        sorting_ms = _best(lambda snapshot=local: _sort(snapshot), 1)
        print(f"sort the bundles, once a snapshot, {brokers:5} brokers   {sorting_ms:8.2f} ms")
        for name in sorted(registry.SHEDDERS):
            snapshot = extensible if registry.SHEDDERS[name].extensible else local
            settings = StrategySettings(shedder=name, own=EAGER)
            best = _best(
                lambda snapshot=snapshot, settings=settings: cycle.shed(
                    snapshot, settings, Memories()
                ),
                args.repeat,
            )
            print(f"{name:20} {brokers:5} brokers x {bundles:4} bundles   {best:8.2f} ms")
    raw = [
        msgspec.json.encode(_report(random.Random(number), f"b{number}", REPORT_BUNDLES))
        for number in range(1000)
    ]
    decode_ms = _best(lambda: [decode_local_broker_data(text) for text in raw], args.repeat)
    print(f"decode 1,000 reports of {len(raw[0]) / 1000:.0f} KB              {decode_ms:8.2f} ms")
    return 0


def _replace_one(snapshot: ClusterSnapshot, report: LocalBrokerData) -> None:
    changed = snapshot.with_report("b0500:8080", report)
    changed.by_throughput("b0500:8080")


def _sort(snapshot: ClusterSnapshot) -> None:
    """Compute the orders of bundles, which a snapshot keeps for all strategies."""
    for broker in snapshot.reports:
        snapshot.by_throughput(broker)
        snapshot.by_rate(broker)


def _best(call: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        began_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - began_s)
    return min(times) * 1000


def _report(rng: random.Random, name: str, bundles: int) -> LocalBrokerData:
    stats = {
        f"tenant/ns-{name}/0x{number:08x}_0x{number + 1:08x}": NamespaceBundleStats(
            msg_rate_in=rng.random() * 1e3,
            msg_throughput_in=rng.random() * 1e6,
            msg_rate_out=rng.random() * 1e3,
            msg_throughput_out=rng.random() * 1e6,
            topics=3,
        )
        for number in range(bundles)
    }
    total = sum(traffic.throughput for traffic in stats.values())
    return LocalBrokerData(
        cpu=ResourceUsage(usage=rng.random() * 100, limit=100),
        bundles=list(stats),
        last_stats=stats,
        msg_throughput_in=total,
        num_bundles=bundles,
    )


def _clusters(brokers: int, bundles: int) -> tuple[ClusterSnapshot, ClusterSnapshot]:
    """The same cluster as each manager sees it."""
    rng = random.Random(1)
    reports = {
        f"b{number:04}:8080": _report(rng, str(number), bundles) for number in range(brokers)
    }
    data: dict[str, BundleData] = {}
    load: dict[str, BrokerLoadData] = {}
    tops: dict[str, TopBundlesLoadData] = {}
    for name, report in reports.items():
        for bundle, traffic in report.last_stats.items():
            average = TimeAverageMessageData(
                max_samples=10,
                num_samples=1,
                msg_throughput_in=traffic.throughput,
                msg_rate_in=traffic.rate,
            )
            data[bundle] = BundleData(short_term_data=average, long_term_data=average)
        load[name] = BrokerLoadData(
            weighted_max_ema=report.cpu.percent / 100,
            msg_throughput_in=report.throughput,
            msg_throughput_ema=report.throughput,
            updated_at=1,
        )
        top = sorted(report.last_stats.items(), key=lambda entry: entry[1].throughput)[-10:]
        tops[name] = TopBundlesLoadData(
            top_bundles_load_data=[
                TopBundle(bundle_name=bundle, stats=traffic) for bundle, traffic in top
            ]
        )
    return (
        ClusterSnapshot(now_ms=1, reports=reports, bundle_data=data),
        ClusterSnapshot(now_ms=1, reports={}, load_data=load, top_bundles=tops),
    )
