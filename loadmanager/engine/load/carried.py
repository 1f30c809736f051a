"""The load of bundles that were just moved, while their new owner's figures are not true yet.

A Pulsar broker measures once a minute, and its figures of a bundle that has arrived start at 0. For
a while the bundle counts with the load that its old owner reported.
"""

from __future__ import annotations

import msgspec

from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats

RATES = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")


class Carried:
    """Bundle → its load before its move, until a time (ms since the epoch)."""

    def __init__(self) -> None:
        self._loads: dict[str, tuple[NamespaceBundleStats, int]] = {}

    def __len__(self) -> int:
        return len(self._loads)

    def moved(self, bundle: str, load: NamespaceBundleStats, until_ms: int) -> None:
        """A bundle was moved; it had this load."""
        self._loads[bundle] = (load, until_ms)

    def apply(self, report: LocalBrokerData, now_ms: int) -> LocalBrokerData:
        """The report with the load of the bundles that arrived lately, and the sums to match.

        A figure that is already higher than before stays.
        """
        for bundle in [name for name, (_, until) in self._loads.items() if until <= now_ms]:
            del self._loads[bundle]
        arrived = self._loads.keys() & report.last_stats.keys()
        if not arrived:
            return report
        stats, sums = dict(report.last_stats), {name: getattr(report, name) for name in RATES}
        for bundle in sorted(arrived):
            reported, before = stats[bundle], self._loads[bundle][0]
            rates = {name: max(getattr(reported, name), getattr(before, name)) for name in RATES}
            for name in RATES:
                sums[name] += rates[name] - getattr(reported, name)
            stats[bundle] = msgspec.structs.replace(reported, **rates)
        return msgspec.structs.replace(report, last_stats=stats, **sums)
