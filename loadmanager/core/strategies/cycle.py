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
from loadmanager.core.policies import anti_affinity
from loadmanager.core.strategies import filters, registry
from loadmanager.core.strategies.decision import Placement, Plan, Skip, Unload
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.placement import least_resource_usage, round_robin
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.threshold import weights_of


class Rng(Protocol):
    """What decisions need of a random generator, so that a seed fixes every choice."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to stop − 1."""
        ...


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: Memory) -> tuple[Plan, Memory]:
    """Which bundles to move, and why each other one stays: the strategy, then the guards that all strategies share."""
    name = registry.short_name(settings.shedder)
    if snapshot.extensible and name in registry.MODULAR_SHEDDERS:
        name = "TransferShedder"  # as Pulsar's extensible manager does, which knows no other
    if not settings.shedding_enabled:
        return Plan(name, skipped=(Skip("cluster", "SheddingDisabled"),)), memory
    if len(snapshot.available) < 2:
        return Plan(name, skipped=(Skip("cluster", "NoOtherBroker: there is one broker, or none"),)), memory
    answer = registry.shedder(name)(snapshot, settings, memory)
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
    planned = {item.bundle: item.destination for item in allowed.values() if item.destination is not None}
    return Plan(name, tuple(allowed.values()), skipped=(*answer.skipped, *refused)), replace(answer.memory, planned=planned)


def _veto(snapshot: ClusterSnapshot, settings: StrategySettings, unload: Unload, available: set[str]) -> str | None:
    """Why a move must not be, whatever the strategy says; None when it may."""
    if settings.excluded_namespaces and split_bundle_name(unload.bundle)[0] in settings.excluded_namespaces:
        return "ExcludedNamespace: loadBalancerSheddingExcludedNamespaces"
    if unload.source not in available or (unload.destination is not None and unload.destination not in available):
        return f"DeadBroker: {unload.source} or {unload.destination} is not available"
    return _policy_veto(snapshot, unload) if snapshot.isolation_policies or snapshot.anti_affinity_groups else None


def _policy_veto(snapshot: ClusterSnapshot, unload: Unload) -> str | None:
    """A move that isolation leaves no target for, or that would spread an anti-affinity group worse."""
    namespace = split_bundle_name(unload.bundle)[0]
    candidates = filters.may_serve(snapshot, namespace, {})
    if not [broker for broker in candidates if broker != unload.source]:
        return "Isolation: no other broker may serve it"
    if unload.destination is not None and unload.destination not in candidates:
        return f"Isolation: {unload.destination} may not serve it"
    if snapshot.extensible:
        return None  # anti-affinity is among the filters that the shedder asked
    group = snapshot.anti_affinity_groups.get(namespace)
    if group is None:
        return None
    counts = anti_affinity.namespaces_of_group(group, snapshot.anti_affinity_groups, filters.served(snapshot))
    return None if anti_affinity.may_unload(unload.source, candidates, counts) else "AntiAffinity: its group is spread as well as it can be"


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
    rule, name = registry.placement(settings.placement), registry.short_name(settings.placement)
    if snapshot.extensible:
        able = filters.extensible(snapshot, namespace, settings, rejected)
        rule, name = least_resource_usage.candidates, "LeastResourceUsageWithWeight"  # the only one of that manager
        candidates, memory = rule(snapshot, able, settings, memory)
        chosen = _choose(candidates, rng)
    else:
        allowed = filters.may_serve(snapshot, namespace, rejected)
        able = filters.modular(snapshot, allowed, namespace, settings, rejected)
        if namespace in settings.excluded_namespaces:
            rule, name = round_robin.candidates, "RoundRobinBrokerSelector"
        candidates, memory = _planned(snapshot, bundle, able, settings, memory) or rule(snapshot, able, settings, memory)
        chosen = _choose(candidates, rng)
        if chosen is not None and _overloaded(snapshot, chosen, settings) and set(allowed) - set(able):
            # As Pulsar does: with an overloaded choice the filters after isolation are given up, and the strategy is asked once more.
            rejected = {broker: reason for broker, reason in rejected.items() if broker not in allowed}
            able = allowed
            candidates, memory = rule(snapshot, able, settings, memory)
            chosen = _choose(candidates, rng)
    rejected.update((broker, f"{name}: another broker scores better") for broker in able if broker not in candidates)
    return Placement(bundle, chosen, tuple(candidates), rejected), memory


def _choose(candidates: Sequence[str], rng: Rng) -> str | None:
    return candidates[rng.randrange(len(candidates))] if candidates else None


def _planned(
    snapshot: ClusterSnapshot, bundle: str, able: Sequence[str], settings: StrategySettings, memory: Memory
) -> tuple[list[str], Memory] | None:
    """AvgShedder's own placement honours the destination that it planned when it shed the bundle; another healthy broker if that is overloaded by now."""
    destination = memory.planned.get(bundle)
    if destination is None or destination not in able or registry.short_name(settings.placement) != "AvgShedder":
        return None
    memory = replace(memory, planned={name: broker for name, broker in memory.planned.items() if name != bundle})
    healthy = [broker for broker in able if not _overloaded(snapshot, broker, settings)]
    return ([destination] if destination in healthy or not healthy else healthy), memory


def _overloaded(snapshot: ClusterSnapshot, broker: str, settings: StrategySettings) -> bool:
    report = snapshot.reports.get(broker)
    return report is not None and max_weighted_usage(report, weights_of(settings)) > settings.overloaded_percent / 100
