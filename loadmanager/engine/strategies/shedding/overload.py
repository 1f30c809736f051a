"""OverloadShedder: shed from brokers above a fixed usage (Pulsar `impl.OverloadShedder`)."""

from __future__ import annotations

from collections.abc import Iterator

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.never_sheds import NeverSheds, all_idle, not_exceeded
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.selection import shed_largest
from loadmanager.engine.strategies.strategy import Shed, Shedder, Tries

MARGIN = 0.05
"""A broker is brought this far below the threshold."""


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: None) -> Shed:
    """One cycle; a usage equal to the threshold is overloaded."""
    threshold = settings.overloaded_percent / 100
    unloads: list[Unload] = []
    skipped: list[Skip] = []
    columns = snapshot.columns
    for broker, usage in zip(columns.names, columns.usage(settings.weights).tolist(), strict=True):
        if usage < threshold:
            text = f"usage {usage:.4f} is below {threshold:g}"
            skipped.append(Skip(broker, "NotOverloaded", text))
            continue
        goal = snapshot.reports[broker].throughput * (usage - threshold + MARGIN)
        moves, skips = shed_largest(
            snapshot, broker, goal, {"usage": usage, "threshold": threshold}
        )
        unloads += moves
        skipped += skips
    return Shed(tuple(unloads), tuple(skipped), memory)


def never_sheds(settings: StrategySettings) -> Iterator[NeverSheds]:
    yield from all_idle(settings)
    yield from not_exceeded(
        "loadBalancerBrokerOverloadedThresholdPercentage", settings.overloaded_percent
    )


SHEDDER = Shedder(
    name="OverloadShedder",
    shed=shed,
    extensible=False,
    never_sheds=never_sheds,
    tries=(Tries("loadBalancerBrokerOverloadedThresholdPercentage", (70, 75, 80, 85), 60, 95),),
)
