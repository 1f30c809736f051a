"""One cycle of the leader, pure: snapshot, settings and memories in, plan and memories out.

The live leader, `decide` and every dry run call these functions. `shed` decides which bundles leave
their brokers; `destinations` where they go, if the shedder does not say; `place` where unowned
bundles belong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.columns import BrokerRows
from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import filters, guards, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Placement, Plan, Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Strategy
from loadmanager.kit.reason import Reason

SWITCHED_OFF = "the balancer is switched off (loadBalancerSheddingEnabled is false)"
KEPT_MAX = 100
"""So many bundles that shedders passed over are named in a plan."""


class Rng(Protocol):
    """The part of a random generator that decisions use, so that a seed fixes every choice."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to stop − 1."""
        ...


def observe(
    broker_id: str,
    report: LocalBrokerData | BrokerLoadData,
    settings: StrategySettings,
    memories: Memories,
) -> Memories:
    """The memories after a broker's report: both strategies that act may see every one."""
    strategies: tuple[Strategy, ...] = registry.acting(
        settings, extensible=isinstance(report, BrokerLoadData)
    )
    for strategy in strategies:
        if strategy.observe is not None:
            memory = strategy.observe(broker_id, report, settings, memories.of(strategy))
            memories = memories.remember(strategy, memory)
    return memories


def shed(
    snapshot: ClusterSnapshot, settings: StrategySettings, memories: Memories
) -> tuple[Plan, Memories]:
    """Choose bundles to move, and say why every other one stays: the shedder decides, then the
    guards that all shedders share.
    """
    shedder, rule = registry.acting(settings, extensible=snapshot.extensible)
    if shedder.keep is not None:
        memory = shedder.keep(memories.of(shedder), snapshot.available)
        memories = memories.remember(shedder, memory)
    if not settings.shedding_enabled:
        return Plan(
            shedder.name, skipped=(Skip("cluster", "SheddingDisabled", SWITCHED_OFF),)
        ), memories
    snapshot = guards.usable(snapshot, settings)
    unusable = tuple(
        Skip(broker, why.code, why.text) for broker, why in sorted(snapshot.unusable.items())
    )
    if len(snapshot.available) < 2:
        alone = Skip("cluster", "NoOtherBroker", "one broker, or none, has a report that counts")
        return Plan(shedder.name, skipped=(alone, *unusable)), memories
    answer = shedder.shed(snapshot, settings, memories.of(shedder))
    filtered = shedder.checks_destinations and snapshot.extensible
    wanted: Sequence[Unload] = answer.unloads
    if shedder.for_followers and rule.follows != shedder.name:
        wanted = [msgspec.structs.replace(unload, destination=None) for unload in wanted]
    unloads, refused = guards.Guards(snapshot, settings, filtered=filtered).admit(wanted)
    planned = {
        unload.bundle: unload.destination for unload in unloads if unload.destination is not None
    }
    memories = msgspec.structs.replace(memories.remember(shedder, answer.memory), planned=planned)
    refused_names = {skip.what for skip in refused}
    staying = [
        skip for skip in _passed_over(snapshot, settings, answer) if skip.what not in refused_names
    ]
    skipped = (*answer.skipped, *unusable, *refused, *staying[:KEPT_MAX])
    return Plan(shedder.name, unloads, skipped=skipped), memories


def _passed_over(
    snapshot: ClusterSnapshot, settings: StrategySettings, answer: Shed
) -> Iterator[Skip]:
    """The bundles that shedders pass over at brokers that shed bundles or have none to shed: those
    that are pinned, and those that were moved recently.
    """
    keep, recently_ms = snapshot.wishes.keep, snapshot.recently_unloaded_ms
    if not (snapshot.wishes.pins or recently_ms):
        return
    shedding = {unload.source for unload in answer.unloads}
    moving = {unload.bundle for unload in answer.unloads}
    shedding |= {skip.what for skip in answer.skipped if skip.code == "NoBundles"}
    if "cluster" in shedding:
        shedding = set(snapshot.available)
    for broker in sorted(shedding):
        bundles = snapshot.known_bundles(broker)
        pinned = [bundle for bundle in bundles if keep(bundle, broker)]
        for bundle in sorted({*pinned, *(recently_ms.keys() & bundles)} - moving):
            pin = keep(bundle, broker)
            why = (
                guards.pinned(pin) if pin else guards.moved_recently(recently_ms[bundle], settings)
            )
            yield Skip(bundle, why.code, why.text)


def admitted(
    snapshot: ClusterSnapshot, settings: StrategySettings, unloads: Sequence[Unload]
) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
    """The moves of another planner that the guards let go where they are to go, and why not the
    others.
    """
    judge = guards.Guards(guards.usable(snapshot, settings), settings)
    allowed, refused = judge.admit(unloads)
    unfit = tuple(Skip(bundle, why.code, why.text) for bundle, why in judge.unfit.items())
    return tuple(move for move in allowed if move.destination is not None), (*refused, *unfit)


def destinations(
    snapshot: ClusterSnapshot,
    plan: Plan,
    settings: StrategySettings,
    memories: Memories,
    rng: Rng,
) -> tuple[Plan, Memories]:
    """The plan with a destination for every move; each move is pending for the next.

    A move without a possible destination is dropped.
    """
    snapshot = guards.usable(snapshot, settings).with_to_place(
        unload.bundle for unload in plan.unloads if unload.destination is None
    )
    _, rule = registry.acting(settings, extensible=snapshot.extensible)
    memories = _advance(rule, snapshot, settings, memories)
    if not plan.unloads:
        return plan, memories
    snapshot = snapshot.planning()
    unloads: list[Unload] = []
    refused: list[Skip] = []
    for unload in plan.unloads:
        destination = unload.destination
        if destination is None:
            choice, memories = _place(
                snapshot,
                unload.bundle,
                settings,
                memories,
                rng,
                acting=rule,
                leaving=unload.source,
            )
            destination = choice.broker
        if destination is None:
            refused.append(Skip(unload.bundle, "NoDestination", "no broker qualifies"))
            continue
        snapshot.add_placement(unload.bundle, destination)
        unloads.append(msgspec.structs.replace(unload, destination=destination))
    return replace(plan, unloads=tuple(unloads), skipped=(*plan.skipped, *refused)), memories


def place(
    snapshot: ClusterSnapshot,
    bundles: Sequence[str],
    settings: StrategySettings,
    memories: Memories,
    rng: Rng,
) -> tuple[list[Placement], Memories]:
    """Choose brokers for bundles; each placement is pending for the next.

    The placement rule says in which order. A bundle that is on its way stays on its way, unless it
    could not be opened there.
    """
    under_way = {bundle: snapshot.under_way.broker_of(bundle) for bundle in bundles}
    snapshot = snapshot.with_to_place(bundles)
    if len(bundles) > 1:
        snapshot = snapshot.planning()
    _, rule = registry.acting(settings, extensible=snapshot.extensible)
    memories = _advance(rule, snapshot, settings, memories)
    ordered: Sequence[str] = []
    if rule.order and len(bundles) > 1:
        waiting = snapshot.to_place
        ordered = rule.order({name: waiting[name] for name in under_way if name in waiting})
    placements: dict[str, Placement] = {}
    for bundle in dict.fromkeys([*(name for name in ordered if name in under_way), *bundles]):
        broker = under_way[bundle]
        refused = broker is not None and snapshot.wishes.refuses_it(broker, bundle)
        if broker is not None and broker in snapshot.available and not refused:
            placements[bundle] = _stays_under_way(snapshot, bundle, broker)
            continue
        choice, memories = _place(snapshot, bundle, settings, memories, rng, acting=rule)
        if choice.broker is not None and len(bundles) > 1:
            snapshot.add_placement(bundle, choice.broker)
        placements[bundle] = choice
    return [placements[bundle] for bundle in bundles], memories


def _stays_under_way(snapshot: ClusterSnapshot, bundle: str, broker: str) -> Placement:
    why = Reason("UnderWay", f"it is on its way to {broker}")
    others = dict.fromkeys(sorted(snapshot.available - {broker}), why)
    return Placement(bundle, broker, (broker,), {**snapshot.unusable, **others})


def _advance(
    rule: PlacementRule, snapshot: ClusterSnapshot, settings: StrategySettings, memories: Memories
) -> Memories:
    """The memories with what the configured placement rule learns from the reports."""
    if snapshot.extensible or rule.advance is None:
        return memories
    return memories.remember(rule, rule.advance(snapshot, settings, memories.of(rule)))


def _place(
    snapshot: ClusterSnapshot,
    bundle: str,
    settings: StrategySettings,
    memories: Memories,
    rng: Rng,
    *,
    acting: PlacementRule,
    leaving: str | None = None,
) -> tuple[Placement, Memories]:
    """Choose a broker for one bundle: the filters, then the placement rule, then chance (Pulsar's
    selection pipeline).
    """
    if snapshot.placing != bundle:
        snapshot = snapshot.having(placing=bundle)
    namespace = split_bundle_name(bundle)[0]
    excluded = namespace in settings.excluded_namespaces
    rule = registry.EXCLUDED_PLACEMENT if excluded else acting
    able, allowed, rejected = filters.able(snapshot, namespace, settings, leaving=leaving)
    pin = snapshot.wishes.pin_of(bundle)
    if pin is not None and pin.broker in allowed:
        why = Reason("Pinned", f"to {pin.broker}")
        others = dict.fromkeys(snapshot.available - {pin.broker}, why)
        return Placement(bundle, pin.broker, (pin.broker,), others), memories
    candidates, memories = _planned(rule, snapshot, able, memories) or _candidates(
        rule, snapshot, able, settings, memories
    )
    chosen = _choose(candidates, rng)
    if (
        chosen
        and _overloaded(snapshot, chosen, settings)
        and (acting is not rule or (not rule.follows and set(allowed) - set(able)))
    ):
        # As Pulsar does: if the choice is overloaded, only the isolation filter stays in force, and
        # the configured rule chooses once more, also for an excluded namespace. A rule that follows
        # a shedder chooses the same once more.
        able, rule = allowed, acting
        rejected = {broker: why for broker, why in rejected.items() if broker not in allowed}
        candidates, memories = _candidates(rule, snapshot, able, settings, memories)
        chosen = _choose(candidates, rng)

    def outscored() -> dict[str, Reason]:
        better = Reason(rule.name, "another broker scores better")
        return {broker: better for broker in able if broker not in candidates}

    reasons = filters.Reasons(snapshot.unusable, rejected, outscored)
    figures: Mapping[str, float | str] = {}
    if rule.why is not None and chosen is not None and leaving is None:
        figures = rule.why(snapshot, chosen, settings, memories.of(rule))
    return Placement(bundle, chosen, candidates, reasons, figures), memories


def _candidates(
    rule: PlacementRule,
    snapshot: ClusterSnapshot,
    able: Sequence[str],
    settings: StrategySettings,
    memories: Memories,
) -> tuple[Sequence[str], Memories]:
    """The rule's candidates, without brokers that the filters removed."""
    candidates, memory = rule.candidates(snapshot, able, settings, memories.of(rule))
    if not isinstance(candidates, BrokerRows):
        candidates = [broker for broker in candidates if broker in able]
    return candidates, memories.remember(rule, memory)


def _planned(
    rule: PlacementRule,
    snapshot: ClusterSnapshot,
    able: Sequence[str],
    memories: Memories,
) -> tuple[Sequence[str], Memories] | None:
    """The destination that the shedder planned, if the rule follows one."""
    destination = memories.planned.get(snapshot.placing or "")
    if destination is None or destination not in able or rule.follows is None:
        return None
    planned = {
        bundle: broker for bundle, broker in memories.planned.items() if bundle != snapshot.placing
    }
    return [destination], msgspec.structs.replace(memories, planned=planned)


def _choose(candidates: Sequence[str], rng: Rng) -> str | None:
    return candidates[rng.randrange(len(candidates))] if candidates else None


def _overloaded(snapshot: ClusterSnapshot, broker: str, settings: StrategySettings) -> bool:
    if snapshot.extensible:
        return False
    columns = snapshot.columns
    overloaded = columns.overloaded(settings.weights, settings.overloaded_percent)
    return len(overloaded) > 0 and columns.row_of[broker] in overloaded
