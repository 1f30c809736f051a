"""One cycle of the leader, pure: snapshot, settings and memory in, plan and memory out.

The live leader and every dry run call these functions.

`shed` decides which bundles leave their brokers; `destinations` where they go, for strategies that
do not say; `place` where unowned bundles belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.load.reports import BrokerLoadData, LocalBrokerData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import max_weighted_usage
from loadmanager.core.strategies import filters, guards, registry
from loadmanager.core.strategies.decision import Placement, Plan, Skip, Unload
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.threshold import weights_of
from loadmanager.core.strategies.strategy import PlacementRule, Shedder


class Rng(Protocol):
    """What decisions need of a random generator, so that a seed fixes every choice."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to stop − 1."""
        ...


def observe(
    broker_id: str,
    report: LocalBrokerData | BrokerLoadData,
    settings: StrategySettings,
    memory: Memory,
) -> Memory:
    """The memory after a broker's report, for a shedder that wants to see every one."""
    shedder = registry.shedder(settings.shedder)
    if shedder.observe is None:
        return memory
    return memory.with_shedder(
        shedder, shedder.observe(broker_id, report, settings, memory.of_shedder(shedder))
    )


def shedder_of(snapshot: ClusterSnapshot, settings: StrategySettings) -> Shedder:
    """The shedder that decides: the configured one, if it can read the reports.

    Raises `ConfigError` for an unknown one.
    """
    shedder = registry.shedder(settings.shedder)
    return (
        registry.EXTENSIBLE_SHEDDER if snapshot.extensible and not shedder.extensible else shedder
    )


def shed(
    snapshot: ClusterSnapshot, settings: StrategySettings, memory: Memory
) -> tuple[Plan, Memory]:
    """Which bundles to move, and why each other one stays: the strategy, then the guards that all
    strategies share.
    """
    shedder = shedder_of(snapshot, settings)
    name = shedder.name
    if not settings.shedding_enabled:
        return Plan(name, skipped=(Skip("cluster", "SheddingDisabled"),)), memory
    snapshot = guards.usable(snapshot, settings)
    unusable = tuple(Skip(broker, reason) for broker, reason in sorted(snapshot.unusable.items()))
    if len(snapshot.available) < 2:
        return Plan(
            name,
            skipped=(
                Skip("cluster", "NoOtherBroker: one broker, or none, has a report that counts"),
                *unusable,
            ),
        ), memory
    answer = shedder.shed(snapshot, settings, memory.of_shedder(shedder))
    allowed, refused = guards.Guards(
        snapshot, settings, filtered=shedder.checks_destinations and snapshot.extensible
    ).admit(answer.unloads)
    planned = {item.bundle: item.destination for item in allowed if item.destination is not None}
    memory = replace(memory.with_shedder(shedder, answer.memory), planned=planned)
    return Plan(name, allowed, skipped=(*answer.skipped, *unusable, *refused)), memory


def destinations(
    snapshot: ClusterSnapshot, plan: Plan, settings: StrategySettings, memory: Memory, rng: Rng
) -> tuple[Plan, Memory]:
    """The plan with a destination for every move that has none; moves planned before count as done.

    A move without a possible destination is dropped.
    """
    snapshot = guards.usable(snapshot, settings).with_to_place(
        move.bundle for move in plan.unloads if move.destination is None
    )
    memory = _advanced(snapshot, settings, memory)
    moves: list[Unload] = []
    refused: list[Skip] = []
    pending = {broker: dict(bundles) for broker, bundles in snapshot.pending.items()}
    for unload in plan.unloads:
        destination = unload.destination
        if destination is None:
            at = replace(snapshot, pending=pending, placing=unload.bundle)
            choice, memory = _place_one(
                at, unload.bundle, settings, memory, rng, leaving=unload.source
            )
            destination = choice.broker
        if destination is None:
            refused.append(Skip(unload.bundle, "NoDestination: no broker qualifies"))
            continue
        pending.setdefault(destination, {})[unload.bundle] = snapshot.data_of(unload.bundle)
        moves.append(msgspec.structs.replace(unload, destination=destination))
    return replace(plan, unloads=tuple(moves), skipped=(*plan.skipped, *refused)), memory


def place(
    snapshot: ClusterSnapshot,
    bundles: Sequence[str],
    settings: StrategySettings,
    memory: Memory,
    rng: Rng,
) -> tuple[list[Placement], Memory]:
    """Where each bundle belongs.

    The rule says in which order; each placement is pending for the next.

    A bundle that is on its way gets the same answer again.
    """
    snapshot = snapshot.with_to_place(bundles)
    memory = _advanced(snapshot, settings, memory)
    placements: dict[str, Placement] = {}
    pending = {broker: dict(waiting) for broker, waiting in snapshot.pending.items()}
    order = registry.placement(settings.placement).order
    first = (
        []
        if order is None
        else [bundle for bundle in order(snapshot.to_place) if bundle in snapshot.to_place]
    )
    for bundle in dict.fromkeys([*first, *bundles]):
        to = next(
            (
                broker
                for broker in sorted(snapshot.available)
                if bundle in snapshot.pending.get(broker, {})
            ),
            None,
        )
        if to is not None:
            others = dict.fromkeys(
                sorted(snapshot.available - {to}), f"UnderWay: it is on its way to {to}"
            )
            placements[bundle] = Placement(bundle, to, (to,), {**snapshot.unusable, **others})
            continue
        choice, memory = _place_one(
            replace(snapshot, pending=pending, placing=bundle), bundle, settings, memory, rng
        )
        if choice.broker is not None:
            pending.setdefault(choice.broker, {})[bundle] = snapshot.data_of(bundle)
        placements[bundle] = choice
    return [placements[bundle] for bundle in bundles], memory


def _advanced(snapshot: ClusterSnapshot, settings: StrategySettings, memory: Memory) -> Memory:
    """The memory with what the rule in force learns from these reports, once a request."""
    rule = registry.placement(settings.placement)
    if snapshot.extensible or rule.advance is None:
        return memory
    return memory.with_placement(rule, rule.advance(snapshot, settings, memory.of_placement(rule)))


def _rule_for(
    snapshot: ClusterSnapshot, namespace: str, settings: StrategySettings
) -> PlacementRule:
    if snapshot.extensible:
        return registry.EXTENSIBLE_PLACEMENT
    return (
        registry.EXCLUDED_PLACEMENT
        if namespace in settings.excluded_namespaces
        else registry.placement(settings.placement)
    )


def _place_one(
    snapshot: ClusterSnapshot,
    bundle: str,
    settings: StrategySettings,
    memory: Memory,
    rng: Rng,
    *,
    leaving: str | None = None,
) -> tuple[Placement, Memory]:
    """Pulsar's selection pipeline: filters, then the strategy; every broker that drops out has its
    reason.
    """
    rejected: dict[str, str] = {}
    namespace = split_bundle_name(bundle)[0]
    rule = _rule_for(snapshot, namespace, settings)
    if snapshot.extensible:
        able = filters.extensible(snapshot, namespace, settings, rejected, leaving=leaving)
        candidates, memory = _asked(rule, snapshot, able, settings, memory)
        chosen = _choose(candidates, rng)
    else:
        allowed = filters.may_serve(snapshot, namespace, rejected)
        able = filters.modular(snapshot, allowed, namespace, settings, rejected, leaving=leaving)
        allowed = [broker for broker in allowed if broker != leaving]
        candidates, memory = _planned(
            rule, snapshot, bundle, able, settings, memory=memory
        ) or _asked(rule, snapshot, able, settings, memory)
        chosen = _choose(candidates, rng)
        if (
            chosen is not None
            and _overloaded(snapshot, chosen, settings)
            and set(allowed) - set(able)
        ):
            # As Pulsar does: with an overloaded choice the filters after isolation are given up,
            # and the strategy is asked once more.
            rejected = {
                broker: reason for broker, reason in rejected.items() if broker not in allowed
            }
            able = allowed
            candidates, memory = _asked(rule, snapshot, able, settings, memory)
            chosen = _choose(candidates, rng)
    rejected.update(
        (broker, f"{rule.name}: another broker scores better")
        for broker in able
        if broker not in candidates
    )
    return Placement(bundle, chosen, tuple(candidates), {**snapshot.unusable, **rejected}), memory


def _asked(
    rule: PlacementRule,
    snapshot: ClusterSnapshot,
    able: Sequence[str],
    settings: StrategySettings,
    memory: Memory,
) -> tuple[list[str], Memory]:
    """The rule's candidates, as far as the filters left them."""
    candidates, remembered = rule.candidates(snapshot, able, settings, memory.of_placement(rule))
    return [broker for broker in candidates if broker in able], memory.with_placement(
        rule, remembered
    )


def _choose(candidates: Sequence[str], rng: Rng) -> str | None:
    return candidates[rng.randrange(len(candidates))] if candidates else None


def _planned(
    rule: PlacementRule,
    snapshot: ClusterSnapshot,
    bundle: str,
    able: Sequence[str],
    settings: StrategySettings,
    *,
    memory: Memory,
) -> tuple[list[str], Memory] | None:
    """The destination that the shedder planned, for a rule that follows it.

    Another healthy broker if that one is overloaded by now.
    """
    destination = memory.planned.get(bundle)
    if destination is None or destination not in able or rule.follows is None:
        return None
    memory = replace(
        memory, planned={name: broker for name, broker in memory.planned.items() if name != bundle}
    )
    healthy = [broker for broker in able if not _overloaded(snapshot, broker, settings)]
    return ([destination] if destination in healthy or not healthy else healthy), memory


def _overloaded(snapshot: ClusterSnapshot, broker: str, settings: StrategySettings) -> bool:
    report = snapshot.reports.get(broker)
    return (
        report is not None
        and max_weighted_usage(report, weights_of(settings)) > settings.overloaded_percent / 100
    )
