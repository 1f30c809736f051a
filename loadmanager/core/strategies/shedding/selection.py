"""What all modular shedders share: which bundles may be shed, and greedy choice of the largest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from loadmanager.core.load.reports import TimeAverageMessageData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.decision import Skip, Unload
from loadmanager.core.strategies.memory import Memory

_SYSTEM_NAMESPACE = re.compile(r"pulsar/system|sla-monitor/[^/]+/[^:]+:\d+|pulsar/([^/]+/)?[^:]+:\d+")


@dataclass(frozen=True, slots=True)
class Shed:
    """What one shedder answers: unloads before the guards, reasons for every no, and its memory afterwards."""

    unloads: tuple[Unload, ...]
    skipped: tuple[Skip, ...]
    memory: Memory


@lru_cache(maxsize=100_000)
def is_system_namespace(namespace: str) -> bool:
    """Whether a namespace serves Pulsar itself: the system namespace, heartbeats, SLA monitors."""
    return _SYSTEM_NAMESPACE.fullmatch(namespace) is not None


def sheddable(snapshot: ClusterSnapshot, broker: str) -> list[tuple[str, float]]:
    """The broker's bundles with their short-term throughput (bytes/s); see `sheddable_data`."""
    return sheddable_data(snapshot, broker, lambda data: data.throughput)


def sheddable_data(snapshot: ClusterSnapshot, broker: str, value: Callable[[TimeAverageMessageData], float]) -> list[tuple[str, float]]:
    """The broker's bundles with a value of their short-term average, without unknown, recently moved and system ones; largest first, then by name."""
    known, recently, owners = snapshot.bundle_data, snapshot.recently_unloaded_ms, snapshot.owners
    found = []
    for bundle in snapshot.reports[broker].bundles:
        data = known.get(bundle)
        if data is None or bundle in recently or is_system_namespace(bundle[: bundle.rfind("/")]):
            continue
        if not owners or owners.get(bundle, broker) == broker:
            found.append((-value(data.short_term_data), bundle))
    found.sort()
    return [(bundle, -load) for load, bundle in found]


def take_largest(candidates: list[tuple[str, float]], goal: float) -> list[str]:
    """Bundles from the largest on until their throughput reaches `goal`; at least one if there is one (Pulsar's rule)."""
    chosen: list[str] = []
    moved = 0.0
    for bundle, throughput in candidates:
        if moved >= goal and chosen:
            break
        chosen.append(bundle)
        moved += throughput
    return chosen
