"""One cycle of the leader, pure: snapshot, settings and memory in, plan and memory out. The live leader and every dry run call these functions.

`shed` decides which bundles leave their brokers; `destinations` where they go, for strategies that do not say; `place` where unowned bundles belong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.load.reports import BundleData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import max_weighted_usage
from loadmanager.core.policies import anti_affinity, eligibility, isolation
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.decision import Placement, Plan, Skip, Unload
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.threshold import weights_of

SYSTEM_NAMESPACE = "pulsar/system"


class Rng(Protocol):
    """What decisions need of a random generator, so that a seed fixes every choice."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to stop − 1."""
        ...


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: Memory) -> tuple[Plan, Memory]:
    """Which bundles to move, and why each other one stays: the strategy, then the guards that all strategies share."""
    name = registry.short_name(settings.shedder)
    if not settings.shedding_enabled:
        return Plan(name, skipped=(Skip("cluster", "SheddingDisabled"),)), memory
    if len(snapshot.available) < 2:
        return Plan(name, skipped=(Skip("cluster", "NoOtherBroker: there is one broker, or none"),)), memory
    answer = registry.shedder(settings.shedder)(snapshot, settings, memory)
    allowed: dict[str, Unload] = {}
    refused: list[Skip] = []
    available = snapshot.available
    for unload in answer.unloads:
        if unload.bundle in allowed:
            veto: str | None = "AlreadyPlanned: twice in one cycle"
        elif 0 <= settings.moves_per_cycle_max <= len(allowed):
            veto = f"CycleLimit: {settings.moves_per_cycle_max} moves per cycle"
        else:
            veto = _veto(snapshot, settings, unload, available)
        if veto is None:
            allowed[unload.bundle] = unload
        else:
            refused.append(Skip(unload.bundle, veto))
    return Plan(name, tuple(allowed.values()), skipped=(*answer.skipped, *refused)), answer.memory


def _veto(snapshot: ClusterSnapshot, settings: StrategySettings, unload: Unload, available: set[str]) -> str | None:
    """Why a move must not be, whatever the strategy says; None when it may."""
    if settings.excluded_namespaces and split_bundle_name(unload.bundle)[0] in settings.excluded_namespaces:
        return "ExcludedNamespace: loadBalancerSheddingExcludedNamespaces"
    if unload.source not in available or (unload.destination is not None and unload.destination not in available):
        return f"DeadBroker: {unload.source} or {unload.destination} is not available"
    if snapshot.reports and (snapshot.isolation_policies or snapshot.anti_affinity_groups):
        return _policy_veto(snapshot, unload)
    return None


def _policy_veto(snapshot: ClusterSnapshot, unload: Unload) -> str | None:
    """A move that isolation leaves no target for, or that would spread an anti-affinity group worse."""
    namespace = split_bundle_name(unload.bundle)[0]
    candidates = isolation.allowed(namespace, snapshot.brokers, snapshot.isolation_policies, snapshot.reports, {})
    if not [broker for broker in candidates if broker != unload.source]:
        return "Isolation: no other broker may serve it"
    group = snapshot.anti_affinity_groups.get(namespace)
    if group is None:
        return None
    counts = anti_affinity.namespaces_of_group(group, snapshot.anti_affinity_groups, _served(snapshot))
    return None if anti_affinity.may_unload(unload.source, candidates, counts) else "AntiAffinity: its group is spread as well as it can be"


def _served(snapshot: ClusterSnapshot) -> dict[str, list[str]]:
    """Reported and pending bundles of every broker."""
    return {broker: [*snapshot.reports[broker].bundles, *snapshot.pending.get(broker, {})] for broker in snapshot.brokers}


def destinations(snapshot: ClusterSnapshot, plan: Plan, settings: StrategySettings, memory: Memory, rng: Rng) -> tuple[Plan, Memory]:
    """The plan with a destination for every move that has none; moves planned before count as done. A move without a possible destination is dropped."""
    moves: list[Unload] = []
    refused: list[Skip] = []
    pending: dict[str, Mapping[str, BundleData]] = dict(snapshot.pending)
    for unload in plan.unloads:
        destination = unload.destination
        if destination is None:
            others = replace(snapshot, reports={b: r for b, r in snapshot.reports.items() if b != unload.source}, pending=pending)
            choice, memory = _place_one(others, unload.bundle, settings, memory, rng)
            destination = choice.broker
        if destination is None:
            refused.append(Skip(unload.bundle, "NoDestination: no broker qualifies"))
            continue
        pending[destination] = {**pending.get(destination, {}), unload.bundle: snapshot.data_of(unload.bundle)}
        moves.append(replace(unload, destination=destination))
    return replace(plan, unloads=tuple(moves), skipped=(*plan.skipped, *refused)), memory


def place(
    snapshot: ClusterSnapshot, bundles: Sequence[str], settings: StrategySettings, memory: Memory, rng: Rng
) -> tuple[list[Placement], Memory]:
    """Where each bundle belongs; each placement counts as pending for the next."""
    placements: list[Placement] = []
    pending: dict[str, Mapping[str, BundleData]] = dict(snapshot.pending)
    for bundle in bundles:
        choice, memory = _place_one(replace(snapshot, pending=pending), bundle, settings, memory, rng)
        if choice.broker is not None:
            pending[choice.broker] = {**pending.get(choice.broker, {}), bundle: snapshot.data_of(bundle)}
        placements.append(choice)
    return placements, memory


def _place_one(snapshot: ClusterSnapshot, bundle: str, settings: StrategySettings, memory: Memory, rng: Rng) -> tuple[Placement, Memory]:
    """Pulsar's selection pipeline: filters, then the strategy; every broker that drops out has its reason."""
    rejected: dict[str, str] = {}
    namespace = split_bundle_name(bundle)[0]
    may_serve = isolation.allowed(namespace, sorted(snapshot.available), snapshot.isolation_policies, snapshot.reports, rejected)
    able = _filtered(snapshot, may_serve, namespace, settings, rejected) if snapshot.reports else may_serve
    if namespace in settings.excluded_namespaces and able:
        chosen = able[memory.round_robin % len(able)]
        return Placement(bundle, chosen, (chosen,), rejected), replace(memory, round_robin=memory.round_robin + 1)
    candidates, memory = registry.placement(settings.placement)(snapshot, able, settings, memory)
    chosen_or_none = candidates[rng.randrange(len(candidates))] if candidates else None
    if chosen_or_none is not None and _overloaded(snapshot, chosen_or_none, settings) and set(may_serve) - set(able):
        # As Pulsar does: with an overloaded choice the filters after isolation are given up, and the strategy is asked once more.
        rejected = {broker: reason for broker, reason in rejected.items() if broker not in may_serve}
        able = may_serve
        candidates, memory = registry.placement(settings.placement)(snapshot, able, settings, memory)
        chosen_or_none = candidates[rng.randrange(len(candidates))] if candidates else None
    name = registry.short_name(settings.placement)
    rejected.update((broker, f"{name}: another broker scores better") for broker in able if broker not in candidates)
    return Placement(bundle, chosen_or_none, tuple(candidates), rejected), memory


def _filtered(
    snapshot: ClusterSnapshot, may_serve: list[str], namespace: str, settings: StrategySettings, rejected: dict[str, str]
) -> list[str]:
    """Topic limit, anti-affinity, evenness, load manager class, version. If nobody is left, all that may serve the namespace are (Pulsar's rule)."""
    reasons: dict[str, str] = {}
    able = _below_topic_limit(snapshot, may_serve, settings, reasons)
    group = snapshot.anti_affinity_groups.get(namespace)
    if group is not None:
        counts = anti_affinity.namespaces_of_group(group, snapshot.anti_affinity_groups, _served(snapshot))
        able = anti_affinity.least_of_group(able, counts, snapshot.failure_domains, reasons)
    if settings.distribute_evenly or namespace == SYSTEM_NAMESPACE:
        able = _fewest_of_namespace(snapshot, able, namespace, reasons)
    able = eligibility.same_load_manager(able, snapshot.reports, settings.load_manager_class, reasons)
    if settings.prefer_later_versions:
        able = eligibility.newest_version(able, snapshot.reports, reasons)
    if not able:
        return may_serve
    rejected.update(reasons)
    return able


def _overloaded(snapshot: ClusterSnapshot, broker: str, settings: StrategySettings) -> bool:
    report = snapshot.reports.get(broker)
    return report is not None and max_weighted_usage(report, weights_of(settings)) > settings.overloaded_percent / 100


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
