"""Small clusters with any loads at all, of which the same seed makes the same ones."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    TimeAverageMessageData,
    TopBundle,
    TopBundlesLoadData,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot

NOW_MS = 10_000_000
STALE_MS = NOW_MS - 1_900_000
BROKERS_MAX = BUNDLES_MAX = 6
CPUS = (0.0, 1.0, 50.0, 100.0, 130.0)
LOADS = (0.0, 0.0, 1.0, 1e6, 1e9)
COMMON = 0.3
"""How often a figure is one of those above rather than any."""


@dataclass(frozen=True, slots=True)
class OddBroker:
    """CPU in percent, bytes/s of each bundle, and whether its report is too old to count."""

    cpu: float
    loads: tuple[float, ...]
    stale: bool = False


@dataclass(frozen=True, slots=True)
class OddCluster:
    """brokerId → broker; broker number n serves the namespace `t/n<n>`."""

    brokers: Mapping[str, OddBroker]
    extensible: bool = False

    @property
    def owner(self) -> dict[str, str]:
        """Bundle → its broker."""
        return {bundle: name for name in sorted(self.brokers) for bundle in self.bundles_of(name)}

    @property
    def stale(self) -> set[str]:
        """The brokers whose reports do not count."""
        return {name for name, broker in self.brokers.items() if broker.stale}

    def bundles_of(self, name: str) -> dict[str, float]:
        """A broker's bundles, and their bytes/s."""
        loads = sorted(self.brokers[name].loads)
        return {
            f"t/n{name[1:].partition(':')[0]}/0x{number:08x}_0x{number + 1:08x}": load
            for number, load in enumerate(loads)
        }

    def snapshot(self, moved_lately: Collection[str] = (), *, order: int = 0) -> ClusterSnapshot:
        """What a strategy sees of it; `order` shuffles every mapping."""
        names = sorted(self.brokers)
        random.Random(order).shuffle(names)  # noqa: S311 - repeats
        common: dict[str, Any] = {
            "now_ms": NOW_MS,
            "recently_unloaded_ms": dict.fromkeys(sorted(moved_lately), NOW_MS),
        }
        if self.extensible:
            return ClusterSnapshot(
                extensible=True,
                reports={},
                load_data={name: self._load_data(name) for name in names},
                top_bundles={name: self._top_bundles(name) for name in names},
                **common,
            )
        data: dict[str, BundleData] = {}
        for name in names:
            data |= {bundle: _averages(load) for bundle, load in self.bundles_of(name).items()}
        reports = {name: self._report(name) for name in names}
        return ClusterSnapshot(reports=reports, bundle_data=data, **common)

    def _updated_ms(self, name: str) -> int:
        return STALE_MS if self.brokers[name].stale else NOW_MS

    def _report(self, name: str) -> LocalBrokerData:
        bundles = self.bundles_of(name)
        total = sum(bundles.values())
        return LocalBrokerData(
            cpu=ResourceUsage(usage=self.brokers[name].cpu, limit=100),
            bundles=list(bundles),
            last_stats={bundle: _stats(load) for bundle, load in bundles.items()},
            msg_throughput_in=total,
            msg_rate_in=total / 1000,
            last_update=self._updated_ms(name),
        )

    def _load_data(self, name: str) -> BrokerLoadData:
        total = sum(self.brokers[name].loads)
        return BrokerLoadData(
            weighted_max_ema=self.brokers[name].cpu / 100,
            msg_throughput_in=total,
            msg_throughput_ema=total,
            updated_at=self._updated_ms(name),
        )

    def _top_bundles(self, name: str) -> TopBundlesLoadData:
        tops = [
            TopBundle(bundle_name=bundle, stats=_stats(load))
            for bundle, load in self.bundles_of(name).items()
        ]
        return TopBundlesLoadData(top_bundles_load_data=tops)


def _stats(load: float) -> NamespaceBundleStats:
    return NamespaceBundleStats(msg_throughput_in=load, msg_rate_in=load / 1000, topics=2)


def _averages(load: float) -> BundleData:
    average = TimeAverageMessageData(
        max_samples=10, num_samples=1, msg_throughput_in=load, msg_rate_in=load / 1000
    )
    return BundleData(short_term_data=average, long_term_data=average)


def odd_cluster(rng: random.Random, *, extensible: bool = False) -> OddCluster:
    """Up to six brokers with up to six bundles each; one report of ten is too old."""
    return OddCluster(
        {
            f"b{number}:8080": OddBroker(
                rng.choice(CPUS) if rng.random() < COMMON else rng.uniform(0, 130),
                tuple(_load(rng) for _ in range(rng.randint(0, BUNDLES_MAX))),
                rng.random() < 0.1,
            )
            for number in range(rng.randint(0, BROKERS_MAX))
        },
        extensible,
    )


def _load(rng: random.Random) -> float:
    return rng.choice(LOADS) if rng.random() < COMMON else rng.uniform(0, 1e9)


def even_cluster(rng: random.Random, *, extensible: bool = False) -> OddCluster:
    """Two to six brokers with the same load, below what any strategy calls too much."""
    loads = tuple(_load(rng) for _ in range(rng.randint(1, 5)))
    broker = OddBroker(rng.uniform(0, 84), loads)
    return OddCluster(
        {f"b{number}:8080": broker for number in range(rng.randint(2, 6))}, extensible
    )
