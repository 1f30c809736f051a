"""The traffic of many bundles is taken in slices, and may change meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from clusters.members import Tenant

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.member.telemetry import BUNDLE_LOADS, bundle_samples
from loadmanager.member.traffic import BUNDLES_AT_ONCE, bundle_traffic

MANY = 10 * BUNDLES_AT_ONCE


class Counted(Mapping[str, NamespaceBundleStats]):
    """Counts how much was computed."""

    def __init__(self, bundles: list[str]) -> None:
        self.bundles = dict.fromkeys(bundles, NamespaceBundleStats(topics=1))
        self.computed = 0

    def __getitem__(self, bundle: str) -> NamespaceBundleStats:
        self.computed += 1
        return self.bundles[bundle]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.bundles))

    def __len__(self) -> int:
        return len(self.bundles)


class Many(Tenant):
    """Has as many bundles as are given."""

    def __init__(self, traffic: Counted) -> None:
        super().__init__()
        self.traffic = traffic

    def bundle_stats(self) -> Mapping[str, NamespaceBundleStats]:
        return self.traffic


async def test_other_tasks_get_their_turn() -> None:
    """After so many bundles each; a bundle that closes between two slices is left out."""
    traffic = Counted([f"b{number}" for number in range(MANY)])
    seen: list[int] = []

    async def other() -> None:
        while True:
            seen.append(traffic.computed)
            traffic.bundles.pop("b999", None)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    taken = await bundle_traffic(Many(traffic))
    task.cancel()
    assert set(range(BUNDLES_AT_ONCE, MANY, BUNDLES_AT_ONCE)) <= set(seen)
    assert list(taken) == [f"b{number}" for number in range(MANY - 1)]


def test_samples_compute_a_bundle_when_it_is_taken() -> None:
    """A page in slices computes in slices, too; a bundle that has closed is not shown."""
    traffic = Counted(["b0", "b1", "b2"])
    samples = bundle_samples(traffic)
    first = [next(samples) for _ in BUNDLE_LOADS]
    assert (traffic.computed, {sample.labels[0] for sample in first}) == (1, {("bundle", "b0")})
    del traffic.bundles["b1"]
    assert {sample.labels[0] for sample in samples} == {("bundle", "b2")}
