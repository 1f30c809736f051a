"""Strategies with a fault each, which the contract must find."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.selection import sheddable
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Shedder

WHY = {"bytes": 1.0}


def of_broker(snapshot: ClusterSnapshot, broker: str, **fields: Any) -> Shed:
    """The largest bundle of a broker leaves it."""
    largest = [bundle for bundle, _ in sheddable(snapshot, broker, snapshot.by_throughput(broker))]
    unloads = tuple(
        Unload(
            **{"bundle": bundle, "source": broker, "destination": None, "reason": "Busy"}
            | {"why": WHY}
            | fields
        )
        for bundle in largest[:1]
    )
    return Shed(unloads, () if unloads else (Skip(broker, "NoBundles"),), None)


def busiest(snapshot: ClusterSnapshot, brokers: Iterable[str]) -> str:
    """The first of the busiest."""
    return max(brokers, key=lambda broker: snapshot.reports[broker].throughput)


def restless(snapshot: ClusterSnapshot, _settings: StrategySettings, _memory: None) -> Shed:
    """Always moves something."""
    return of_broker(snapshot, busiest(snapshot, sorted(snapshot.brokers)))


def silent(_snapshot: ClusterSnapshot, _settings: StrategySettings, _memory: None) -> Shed:
    """Moves nothing, and does not say why."""
    return Shed((), (), None)


def without_numbers(snapshot: ClusterSnapshot, _settings: StrategySettings, _memory: None) -> Shed:
    """Moves without saying what was compared."""
    return of_broker(snapshot, busiest(snapshot, sorted(snapshot.brokers)), why={})


def as_listed(snapshot: ClusterSnapshot, _settings: StrategySettings, _memory: None) -> Shed:
    """Goes by the order in which brokers are listed."""
    usable = [broker for broker in snapshot.reports if broker in snapshot.available]
    return of_broker(snapshot, usable[0])


def as_hashed(snapshot: ClusterSnapshot, _settings: StrategySettings, _memory: None) -> Shed:
    """Goes by the order of a set."""
    return of_broker(snapshot, next(iter(set(snapshot.brokers))))


def stubborn(snapshot: ClusterSnapshot, _settings: StrategySettings, _memory: None) -> Shed:
    """Names its largest bundle though that is pinned, so that no other one goes."""
    broker = busiest(snapshot, sorted(snapshot.brokers))
    recent = snapshot.recently_unloaded_ms
    names = [name for name, _ in snapshot.by_throughput(broker) if name not in recent]
    unloads = tuple(Unload(name, broker, None, "Busy", WHY) for name in names[:1])
    return Shed(unloads, (Skip(broker, "NoBundles"),), None)


def scribbling(snapshot: ClusterSnapshot, _settings: StrategySettings, _memory: None) -> Shed:
    """Changes a report."""
    for report in snapshot.reports.values():
        report.msg_rate_in += 1
    return Shed((), (Skip("cluster", "Even"),), None)


def by_chance(
    _snapshot: ClusterSnapshot, brokers: Sequence[str], _settings: StrategySettings, _memory: None
) -> tuple[list[str], None]:
    """Throws dice of its own."""
    return ([random.choice(brokers)] if brokers else []), None


def shedder(function: Any) -> Shedder:
    """It as an object."""
    return Shedder(name=f"Faulty_{function.__name__}", shed=function, extensible=False)


RESTLESS, SILENT, WITHOUT_NUMBERS, AS_LISTED, AS_HASHED, STUBBORN, SCRIBBLING = map(
    shedder, (restless, silent, without_numbers, as_listed, as_hashed, stubborn, scribbling)
)
BY_CHANCE = PlacementRule(name="Faulty_by_chance", candidates=by_chance)
