"""What all modular shedders share: which bundles may be shed, and greedy choice of the largest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.decision import Skip, Unload

_SYSTEM_NAMESPACE = re.compile(
    r"pulsar/system|sla-monitor/[^/]+/[^:]+:\d+|pulsar/([^/]+/)?[^:]+:\d+"
)


@dataclass(frozen=True, slots=True)
class Shed:
    """A shedder's answer: moves before the guards, reasons for every no, its memory afterwards."""

    unloads: tuple[Unload, ...]
    skipped: tuple[Skip, ...]
    memory: Any


@lru_cache(maxsize=100_000)
def is_system_namespace(namespace: str) -> bool:
    """Whether a namespace serves Pulsar itself: the system namespace, heartbeats, SLA monitors."""
    return _SYSTEM_NAMESPACE.fullmatch(namespace) is not None


def sheddable(
    snapshot: ClusterSnapshot, broker: str, loads: Iterable[tuple[str, float]]
) -> Iterator[tuple[str, float]]:
    """Of the broker's bundles with their loads, those that may be shed: not the recently moved, the
    system's, and those that somebody else owns by now.
    """
    recently, owners = snapshot.recently_unloaded_ms, snapshot.owners
    for bundle, load in loads:
        if (
            bundle not in recently
            and owners.get(bundle, broker) == broker
            and not is_system_namespace(split_bundle_name(bundle)[0])
        ):
            yield bundle, load


def take_largest(candidates: Iterable[tuple[str, float]], goal: float) -> list[str]:
    """Bundles from the largest on until their throughput reaches `goal`; at least one if there is
    one (Pulsar's rule).
    """
    chosen: list[str] = []
    moved = 0.0
    for bundle, throughput in candidates:
        if moved >= goal and chosen:
            break
        chosen.append(bundle)
        moved += throughput
    return chosen
