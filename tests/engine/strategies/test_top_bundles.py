"""The busiest bundles of a report are those of a plain sort."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from clusters.views import without_policies

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.from_reports import top_bundles

SETTINGS = replace(StrategySettings(), excluded_namespaces=frozenset({"t/excluded"}))
NOTHING_KNOWN = without_policies(ClusterView(), SETTINGS, 0)


def some_stats(rng: random.Random) -> dict[str, NamespaceBundleStats]:
    """Bundles of a report, many of which Pulsar's comparison takes for equal."""
    return {
        f"t/{rng.choice(['a', 'b', 'excluded'])}/0x{at:08x}_0x{at + 1:08x}": NamespaceBundleStats(
            msg_throughput_in=rng.choice([0, 0, 1e5, 1.4e5, 1e6 * rng.random()]),
            msg_throughput_out=rng.choice([0, 0, 1e5, 1e6 * rng.random()]),
            msg_rate_in=rng.choice([0, 40, 49, 100]),
            topics=rng.choice([0, 1, 500]),
            cache_size=rng.choice([0, 0, 100_000]),
        )
        for at in rng.sample(range(1_000), rng.choice([0, 1, 2, 30]))
    }


def plainly(stats: dict[str, NamespaceBundleStats], count: int) -> list[str]:
    """The last `count` names of a sort by the figures in steps, then by name."""

    def key(name: str) -> tuple[float, ...]:
        of = stats[name]
        return (
            math.floor(of.msg_throughput_in / 1e5 + 0.5),
            math.floor(of.msg_throughput_out / 1e5 + 0.5),
            math.floor((of.msg_rate_in + of.msg_rate_out) / 100 + 0.5),
            (of.topics + of.consumer_count + of.producer_count) // 500,
            of.cache_size // 100_000,
        )

    busy = [
        name
        for name, of in sorted(stats.items())
        if of.msg_throughput_in + of.msg_throughput_out > 0 and not name.startswith("t/excluded/")
    ]
    busy.sort(key=key)
    return busy if count < 0 else busy[max(len(busy) - count, 0) :]


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 10, 100])
def test_the_busiest_are_those_of_a_plain_sort(count: int) -> None:
    """Also where the last of them equals the first that is left out: the later name goes first."""
    for seed in range(300):
        stats = some_stats(random.Random(seed))
        top = top_bundles(NOTHING_KNOWN, stats, SETTINGS, count).top_bundles_load_data
        assert [bundle.bundle_name for bundle in top] == plainly(stats, count)
        assert all(bundle.stats == stats[bundle.bundle_name] for bundle in top)
