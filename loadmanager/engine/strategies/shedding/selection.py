"""The bundles that a modular shedder may shed, and the choice of the largest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.kit.names import MONITORING_PREFIXES, is_monitoring_bundle, no_monitoring_bundle


def sheddable(
    snapshot: ClusterSnapshot, broker: str, loads: Iterable[tuple[str, float]]
) -> Iterator[tuple[str, float]]:
    """The bundles of `loads` that the broker may shed.

    Excludes bundles that were moved recently, that another broker owns by now, that belong to their
    broker (heartbeats, SLA monitors), and that operators pinned to it.
    """
    may_shed = movable(snapshot, broker)
    return ((bundle, load) for bundle, load in loads if may_shed(bundle))


def movable(
    snapshot: ClusterSnapshot, broker: str, stays_since_ms: float = -math.inf
) -> Callable[[str], bool]:
    """A test for bundles that the broker may shed; `stays_since_ms`: of those that were moved
    within the grace period, those stay that were moved after this time.
    """
    recently_ms, owners = snapshot.recently_unloaded_ms, snapshot.owners
    keep = snapshot.wishes.keep

    def may_shed(bundle: str) -> bool:
        return (
            recently_ms.get(bundle, -math.inf) <= stays_since_ms
            and keep(bundle, broker) is None
            and (not owners or owners.get(bundle, broker) == broker)
            and not (bundle.startswith(MONITORING_PREFIXES) and is_monitoring_bundle(bundle))
        )

    return may_shed


def plainly_movable(snapshot: ClusterSnapshot, bundles: Sequence[str]) -> bool:
    """True if `movable` is true for all of the bundles; may be False by mistake. It is faster: a
    cycle over a large cluster asks for thousands.
    """
    return undisturbed(snapshot, bundles) and no_monitoring_bundle(bundles)


def undisturbed(snapshot: ClusterSnapshot, bundles: Sequence[str]) -> bool:
    """True if none of the bundles was moved lately, is pinned, or belongs to another broker by now;
    may be False by mistake.
    """
    if snapshot.owners or snapshot.wishes.pins:
        return False
    recently = snapshot.recently_unloaded_ms
    return not recently or recently.keys().isdisjoint(bundles)


def shed_largest(
    snapshot: ClusterSnapshot, broker: str, goal: float, why: Mapping[str, float | str]
) -> tuple[list[Unload], list[Skip]]:
    """Unload a broker's largest bundles until their throughput reaches `goal` (bytes/s).

    Unloads at least one bundle if any may be shed (Pulsar's rule).
    """
    bundles = snapshot.reports[broker].bundles
    if len(bundles) <= 1:
        sole = Skip(broker, "SoleBundle", "it serves one bundle only")
        return [], [sole if bundles else Skip(broker, "NoBundles", "it serves no bundle")]
    why = {**why, "goalBytesPerSecond": goal}
    loads = snapshot.by_throughput(broker)
    chosen = loads.reaching(goal)
    if not (loads.plain and undisturbed(snapshot, chosen)):
        may_shed = movable(snapshot, broker)
        chosen, moved = [], 0.0
        for bundle, throughput in loads:
            if may_shed(bundle):
                chosen.append(bundle)
                moved += throughput
                if moved >= goal:
                    break
    unloads = [Unload(bundle, broker, None, "Overloaded", why) for bundle in chosen]
    if unloads:
        return unloads, []
    text = "all of its bundles were moved recently, or have to stay"
    return [], [Skip(broker, "NoBundles", text)]
