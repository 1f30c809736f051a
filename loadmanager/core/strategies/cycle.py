"""One cycle of the leader, pure: snapshot, settings and memory in, plan and memory out. The live leader and every dry run call these two functions.

`shed` decides which bundles leave their brokers and where each of them goes; `place` decides where unowned bundles belong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.load.reports import BundleData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.decision import Placement, Plan, Skip, Unload
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.settings import StrategySettings


class Rng(Protocol):
    """What decisions need of a random generator, so that a seed fixes every choice."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to stop − 1."""
        ...


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: Memory, rng: Rng) -> tuple[Plan, Memory]:
    """Which bundles to move, from where to where, and why each other one stays."""
    name = registry.short_name(settings.shedder)
    if not settings.shedding_enabled:
        return Plan(name, skipped=(Skip("cluster", "SheddingDisabled"),)), memory
    if len(snapshot.reports) < 2:
        return Plan(name, skipped=(Skip("cluster", "NoOtherBroker"),)), memory
    answer = registry.shedder(settings.shedder)(snapshot, settings, memory)
    moves, refused = _with_destinations(snapshot, settings, answer.unloads, rng)
    return Plan(name, tuple(moves), skipped=(*answer.skipped, *refused)), answer.memory


def _with_destinations(
    snapshot: ClusterSnapshot, settings: StrategySettings, unloads: Sequence[Unload], rng: Rng
) -> tuple[list[Unload], list[Skip]]:
    """The guards that all shedders share, and a destination for each move; the moves of this cycle count as done when the next is placed."""
    moves: list[Unload] = []
    refused: list[Skip] = []
    seen: set[str] = set()
    pending: dict[str, Mapping[str, BundleData]] = dict(snapshot.pending)
    for unload in unloads:
        namespace = split_bundle_name(unload.bundle)[0]
        if unload.bundle in seen:
            refused.append(Skip(unload.bundle, "AlreadyPlanned"))
        elif namespace in settings.excluded_namespaces:
            refused.append(Skip(unload.bundle, "ExcludedNamespace"))
        elif len(moves) >= settings.moves_per_cycle_max:
            refused.append(Skip(unload.bundle, f"CycleLimit: {settings.moves_per_cycle_max} moves per cycle"))
        else:
            others = replace(snapshot, reports={b: r for b, r in snapshot.reports.items() if b != unload.source}, pending=pending)
            choice = _place_one(others, unload.bundle, settings, rng) if unload.destination is None else None
            destination = unload.destination or (choice.broker if choice else None)
            if destination is None:
                refused.append(Skip(unload.bundle, "NoDestination"))
                continue
            seen.add(unload.bundle)
            pending[destination] = {**pending.get(destination, {}), unload.bundle: snapshot.data_of(unload.bundle)}
            moves.append(replace(unload, destination=destination))
    return moves, refused


def place(snapshot: ClusterSnapshot, bundles: Sequence[str], settings: StrategySettings, rng: Rng) -> list[Placement]:
    """Where each bundle belongs; each placement counts as pending for the next."""
    placements: list[Placement] = []
    pending: dict[str, Mapping[str, BundleData]] = dict(snapshot.pending)
    for bundle in bundles:
        choice = _place_one(replace(snapshot, pending=pending), bundle, settings, rng)
        if choice.broker is not None:
            pending[choice.broker] = {**pending.get(choice.broker, {}), bundle: snapshot.data_of(bundle)}
        placements.append(choice)
    return placements


def _place_one(snapshot: ClusterSnapshot, bundle: str, settings: StrategySettings, rng: Rng) -> Placement:
    """Pulsar's modular selection pipeline: topic limit, evenness, then the strategy; every broker that drops out has its reason."""
    rejected: dict[str, str] = {}
    able = _below_topic_limit(snapshot, snapshot.brokers, settings, rejected)
    if settings.distribute_evenly:
        able = _fewest_of_namespace(snapshot, able, split_bundle_name(bundle)[0], rejected)
    candidates = registry.placement(settings.placement)(snapshot, able, settings)
    name = registry.short_name(settings.placement)
    rejected.update((broker, f"{name}: another broker scores better") for broker in able if broker not in candidates)
    chosen = candidates[rng.randrange(len(candidates))] if candidates else None
    return Placement(bundle, chosen, tuple(candidates), rejected)


def _below_topic_limit(snapshot: ClusterSnapshot, brokers: list[str], settings: StrategySettings, rejected: dict[str, str]) -> list[str]:
    """Brokers whose topics, with those of pending placements, do not exceed the maximum; all of them if every one does."""
    topics = {b: snapshot.reports[b].num_topics + sum(data.topics for data in snapshot.pending.get(b, {}).values()) for b in brokers}
    able = [broker for broker in brokers if topics[broker] <= settings.broker_topics_max]
    if not able:
        return brokers
    rejected.update((broker, f"MaxTopics: {topics[broker]:g} topics") for broker in brokers if broker not in able)
    return able


def _fewest_of_namespace(snapshot: ClusterSnapshot, brokers: list[str], namespace: str, rejected: dict[str, str]) -> list[str]:
    """Brokers that have the fewest bundles of a namespace, reported and pending."""
    prefix = f"{namespace}/"
    counts = {
        broker: len({name for name in (*snapshot.reports[broker].bundles, *snapshot.pending.get(broker, {})) if name.startswith(prefix)})
        for broker in brokers
    }
    least = min(counts.values(), default=0)
    rejected.update(
        (broker, f"DistributeEvenly: it has {counts[broker]} bundles of {namespace}, another has {least}")
        for broker in brokers
        if counts[broker] > least
    )
    return [broker for broker in brokers if counts[broker] == least]
