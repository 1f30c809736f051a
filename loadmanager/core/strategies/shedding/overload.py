"""OverloadShedder: shed from brokers above a fixed usage (Pulsar `impl.OverloadShedder`)."""

from __future__ import annotations

from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import max_usage
from loadmanager.core.strategies.decision import Skip, Unload
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.selection import Shed, sheddable, take_largest
from loadmanager.core.strategies.strategy import Shedder

MARGIN = 0.05
"""A broker is brought this far below the threshold."""


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: None) -> Shed:
    """One cycle; a usage equal to the threshold is overloaded."""
    threshold = settings.overloaded_percent / 100
    unloads: list[Unload] = []
    skipped: list[Skip] = []
    for broker in snapshot.brokers:
        report = snapshot.reports[broker]
        usage = max_usage(report)
        if usage < threshold:
            skipped.append(Skip(broker, f"NotOverloaded: usage {usage:.4f} is below {threshold:g}"))
        elif len(report.bundles) <= 1:
            skipped.append(
                Skip(
                    broker,
                    "SoleBundle: it serves one bundle only"
                    if report.bundles
                    else "NoBundles: it serves no bundle",
                )
            )
        else:
            goal = report.throughput * (usage - threshold + MARGIN)
            chosen = take_largest(sheddable(snapshot, broker, snapshot.by_throughput(broker)), goal)
            if not chosen:
                skipped.append(
                    Skip(
                        broker, "NoBundles: all of its bundles were moved recently or are excluded"
                    )
                )
            why = {"usage": usage, "threshold": threshold, "goalBytesPerSecond": goal}
            unloads += [Unload(bundle, broker, None, "Overloaded", why) for bundle in chosen]
    return Shed(tuple(unloads), tuple(skipped), memory)


SHEDDER = Shedder(name="OverloadShedder", shed=shed, extensible=False)
