"""The traffic of all bundles of a broker, in slices that hold the event loop for about 2 ms."""

from __future__ import annotations

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.tasks import sleep
from loadmanager.member.ports.hosting import Hosting

BUNDLES_AT_ONCE = 100


async def bundle_traffic(hosting: Hosting) -> dict[str, NamespaceBundleStats]:
    """Bundle → traffic; bundles that close meanwhile may be in it."""
    stats = hosting.bundle_stats()
    taken: dict[str, NamespaceBundleStats] = {}
    for number, bundle in enumerate(list(stats), 1):
        present = stats.get(bundle)
        if present is not None:
            taken[bundle] = present
        if number % BUNDLES_AT_ONCE == 0:
            await sleep(0)
    return taken
