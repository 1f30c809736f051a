"""The guards that stand between what a shedder answers and a plan.

They hold for every shedder, third parties' included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec
import numpy as np

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.columns import BrokerRows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import Pin
from loadmanager.engine.policies import anti_affinity
from loadmanager.engine.strategies import filters
from loadmanager.engine.strategies.grace import stays_since_ms
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.worth import not_worth_it
from loadmanager.kit.names import is_monitoring_namespace, no_monitoring_bundle
from loadmanager.kit.reason import Reason, joined
from loadmanager.kit.text import moment
from loadmanager.kit.units import MINUTE_MS


def usable(snapshot: ClusterSnapshot, settings: StrategySettings) -> ClusterSnapshot:
    """The snapshot without brokers whose reports are older than `report_ttl_s`.

    A report without a time counts as fresh.
    """
    oldest_ms = snapshot.now_ms - settings.report_ttl_s * 1000
    if snapshot.extensible:
        names: Sequence[str] = list(snapshot.load_data)
        updated_ms = np.array([data.updated_at for data in snapshot.load_data.values()], np.float64)
    else:
        names, updated_ms = snapshot.columns.names, snapshot.columns.updated_ms
    old = np.flatnonzero((updated_ms > 0) & (updated_ms < oldest_ms)).tolist()
    stale = {
        names[row]: Reason(
            "StaleReport",
            f"{(snapshot.now_ms - updated_ms[row]) / 1000:.0f} s old, more than "
            f"{settings.report_ttl_s}",
        )
        for row in old
    }
    if not stale:
        return snapshot
    return snapshot.without(stale)


class Guards:
    """The guards of one cycle.

    `filtered`: the shedder has applied the filters to every destination itself, as TransferShedder
    does.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, settings: StrategySettings, *, filtered: bool = False
    ) -> None:
        self._filtered = filtered
        self._snapshot = snapshot
        self._settings = settings
        self._available = snapshot.available
        self._under_way = snapshot.under_way.bundles
        self._busy = set(snapshot.leaving.values())
        self._has_policies = bool(snapshot.isolation_policies or snapshot.anti_affinity_groups)
        self._fit_all = not snapshot.extensible and filters.fit_all(snapshot, settings)
        self._able_under: dict[object, tuple[Sequence[str], filters.Reasons]] = {}
        """Source, policies of a namespace → the brokers that the filters leave; why not others."""
        self._open_to: dict[object, tuple[BrokerRows, Mapping[str, Reason]]] = {}
        """Policies of a namespace → `filters.open_to`."""
        self._left_by: dict[int, tuple[BrokerRows, Mapping[str, Reason]]] = {}
        """Isolation policy → `filters.may_serve`: many namespaces have few policies."""
        self._counts: dict[str, dict[str, int]] = {}
        """Anti-affinity group → `filters.group_counts`."""
        self._allowed: dict[str, Unload] = {}
        self._refused: list[Skip] = []
        self.unfit: dict[str, Reason] = {}
        """Bundle → why it may not go where the shedder wants it: it leaves for another broker."""

    def admit(self, unloads: Sequence[Unload]) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
        """The allowed moves, and the reason why each other one is refused.

        The moves of a swap are allowed or refused together.
        """
        if self._harmless(unloads):
            return tuple(unloads), ()
        for moves in together(unloads):
            self._judge(moves)
        return tuple(self._allowed.values()), tuple(self._refused)

    def _harmless(self, unloads: Sequence[Unload]) -> bool:
        """Fast path: true if no guard could refuse any of these moves.

        A cycle over a large cluster has thousands of them.
        """
        snapshot, settings = self._snapshot, self._settings
        if (
            settings.moves_per_cycle_max >= 0
            or settings.excluded_namespaces
            or self._has_policies
            or snapshot.owners
            or snapshot.extensible
            or snapshot.wishes
            or snapshot.leaving
        ):
            return False
        names = [unload.bundle for unload in unloads]
        bundles = set(names)
        if (
            len(bundles) < len(names)
            or not bundles.isdisjoint(snapshot.recently_unloaded_ms)
            or not bundles.isdisjoint(self._under_way)
            or {unload.destination for unload in unloads} != {None}
        ):
            return False
        begin = 0
        for source, moves in groupby([unload.source for unload in unloads]):
            end = begin + len(list(moves))
            if not self._plainly_owns(source, names[begin:end]):
                return False
            begin = end
        return True

    def _plainly_owns(self, source: str, bundles: list[str]) -> bool:
        """True if a broker serves all of the bundles and none of them is a monitoring bundle; may
        be False by mistake.

        Of the largest bundles of a broker, that is known from the order by throughput.
        """
        report = self._snapshot.reports.get(source)
        if report is None:
            return False
        largest = self._snapshot.by_throughput(source)
        if largest.plain and largest.first(len(bundles)) == bundles:
            return True
        return report.last_stats.keys() >= set(bundles) and no_monitoring_bundle(bundles)

    def _judge(self, moves: list[Unload]) -> None:
        vetoes: dict[str, Reason] = {}
        for index, move in enumerate(moves):
            veto = self._veto(move)
            unfit = self._unfit_reason(move) if veto is None else None
            if unfit is not None and move.swap is None and not self._snapshot.extensible:
                # The bundle leaves all the same; placement finds another destination.
                self.unfit[move.bundle] = unfit
                why = {**move.why, "notTo": f"{move.destination}: {unfit}"}
                moves[index] = msgspec.structs.replace(move, destination=None, why=why)
            elif unfit is not None:
                text = joined(str(move.destination), unfit.text)
                vetoes[move.bundle] = Reason(unfit.code, text)
            elif veto is not None:
                vetoes[move.bundle] = veto
        limit = self._settings.moves_per_cycle_max
        if not vetoes and 0 <= limit < len(self._allowed) + len(moves):
            full = Reason("CycleLimit", f"{limit} moves per cycle")
            vetoes = {move.bundle: full for move in moves}
        if not vetoes:
            self._allowed.update((move.bundle, move) for move in moves)
            return
        partner = Reason("Swap", f"{next(iter(vetoes))} must stay, so this one does")
        for move in moves:
            veto = vetoes.get(move.bundle, partner)
            self._refused.append(Skip(move.bundle, veto.code, veto.text))

    def _veto(self, unload: Unload) -> Reason | None:
        """Why a bundle must stay; None if it may leave."""
        namespace = split_bundle_name(unload.bundle)[0]
        return (
            self._bundle_veto(unload, namespace)
            or self._broker_veto(unload)
            or self._wish_veto(unload)
            or self._cost_veto(unload)
            or (self._policy_veto(unload, namespace) if self._has_policies else None)
        )

    def _bundle_veto(self, unload: Unload, namespace: str) -> Reason | None:
        bundle = unload.bundle
        moved_ms = self._snapshot.recently_unloaded_ms.get(bundle)
        if bundle in self._allowed:
            return Reason("AlreadyPlanned", "twice in one cycle")
        if namespace in self._settings.excluded_namespaces:
            return Reason("ExcludedNamespace", "loadBalancerSheddingExcludedNamespaces")
        if is_monitoring_namespace(namespace):
            return Reason("MonitoringNamespace", "its broker's heartbeat or SLA monitor")
        if moved_ms is not None and moved_ms > self._stays_since_ms(unload.source):
            return moved_recently(moved_ms, self._settings)
        if bundle in self._under_way:
            return Reason("UnderWay", "its last placement is not in a report yet")
        return None

    def _stays_since_ms(self, source: str) -> float:
        return stays_since_ms(self._snapshot, source, self._settings.weights)

    def _broker_veto(self, unload: Unload) -> Reason | None:
        """An unavailable broker, a source that does not own the bundle, or a destination that is
        the source.
        """
        for broker in (unload.source, unload.destination):
            if broker is not None and broker not in self._available:
                dead = Reason("DeadBroker", f"{broker} is not available")
                return self._snapshot.unusable.get(broker, dead)
        if not self._owns(unload.source, unload.bundle):
            return Reason("NotOwned", f"{unload.source} does not serve it")
        if unload.destination == unload.source:
            return Reason("SameBroker", f"it is on {unload.source} already")
        return None

    def _wish_veto(self, unload: Unload) -> Reason | None:
        """An operator pinned the bundle, or earlier moves wait at the source."""
        pin = self._snapshot.wishes.keep(unload.bundle, unload.source)
        if pin is not None:
            return pinned(pin)
        if unload.source in self._busy:
            return Reason("MovesWait", f"earlier moves from {unload.source} have not ended")
        return None

    def _cost_veto(self, unload: Unload) -> Reason | None:
        """Its owner says that a move takes long, and it is not worth it. Modular brokers say no
        such thing.
        """
        if not (self._snapshot.extensible and self._snapshot.wishes.costs):
            return None
        return not_worth_it(self._snapshot, unload.bundle, unload.source, unload.destination)

    def _policy_veto(self, unload: Unload, namespace: str) -> Reason | None:
        """Isolation leaves no other broker, or an anti-affinity group would be spread worse."""
        snapshot = self._snapshot
        if (
            snapshot.extensible
            and not self._settings.shed_policy_bundles
            and filters.has_policy(snapshot, namespace)
        ):
            return Reason("PolicyBundle", "loadBalancerSheddingBundlesWithPoliciesEnabled is false")
        if self._filtered:
            return None
        candidates, _ = self._may_serve(namespace)
        if len(candidates) == (unload.source in candidates):
            return Reason("Isolation", "no other broker may serve it")
        group = snapshot.anti_affinity_groups.get(namespace)
        if group is None or snapshot.extensible:
            return None
        counts = self._counts.get(group)
        if counts is None:
            counts = self._counts[group] = filters.group_counts(snapshot, group)
        if anti_affinity.may_unload(unload.source, candidates, counts):
            return None
        return Reason("AntiAffinity", "its group is spread as well as it can be")

    def _unfit_reason(self, unload: Unload) -> Reason | None:
        """Why placement would refuse the planned destination, even distribution not considered.

        None if placement may choose it, or if no destination is planned.
        """
        destination = unload.destination
        if destination in self._snapshot.wishes.cordons:
            return filters.CORDONED  # placement takes one if nobody else may serve: no move has to
        if destination is None:
            return None
        if self._snapshot.wishes.refuses(destination, unload.bundle):
            return filters.REFUSES
        if self._filtered or self._fit_all:
            return None
        able, rejected = self._able(unload)
        if destination in able:
            return None
        return rejected.of(destination) or Reason("Filtered", "placement would not choose it")

    def _able(self, unload: Unload) -> tuple[Sequence[str], filters.Reasons]:
        """The brokers that the filters leave to a bundle, and why not the others."""
        snapshot, settings, source = self._snapshot, self._settings, unload.source
        namespace = split_bundle_name(unload.bundle)[0]
        policies = filters.policies_of(snapshot, namespace)
        able = self._able_under.get((source, policies))
        if able is None:
            if snapshot.extensible:
                left, rejected = filters.extensible(snapshot, namespace, settings, leaving=source)
                able = left, filters.Reasons(rejected)
            else:
                if policies not in self._open_to:
                    self._open_to[policies] = filters.open_to(snapshot, namespace, leaving=source)
                allowed, closed = self._open_to[policies]
                left, rejected = filters.modular(
                    snapshot, allowed, namespace, settings, leaving=source, evenness=False
                )
                able = left, filters.Reasons(closed, rejected)
            self._able_under[source, policies] = able
        return able

    def _may_serve(self, namespace: str) -> tuple[BrokerRows, Mapping[str, Reason]]:
        policy, _ = filters.policies_of(self._snapshot, namespace)
        left = self._left_by.get(policy)
        if left is None:
            left = self._left_by[policy] = filters.may_serve(self._snapshot, namespace)
        return left

    def _owns(self, broker: str, bundle: str) -> bool:
        snapshot = self._snapshot
        if bundle in snapshot.owners:
            return snapshot.owners[bundle] == broker
        if snapshot.extensible:
            top = snapshot.top_bundles.get(broker)
            return top is not None and any(
                published.bundle_name == bundle for published in top.top_bundles_load_data
            )
        return snapshot.reports[broker].carries(bundle)


def pinned(pin: Pin) -> Reason:
    """The reason why a pinned bundle stays."""
    note = pin.note and f", {pin.note}"
    return Reason("Pinned", f"to {pin.broker} until {moment(pin.until_ms)}{note}")


def moved_recently(at_ms: int, settings: StrategySettings) -> Reason:
    """The reason why a bundle stays that was moved at this time (ms since the epoch)."""
    until = moment(at_ms + round(settings.grace_period_minutes * MINUTE_MS))
    return Reason("GracePeriod", f"moved at {moment(at_ms)}; it stays until {until} at most")


def together(unloads: Sequence[Unload]) -> Iterator[list[Unload]]:
    """Group the moves: those of one swap together, every other move alone."""
    for swap, moves in groupby(unloads, key=attrgetter("swap")):
        if swap is None:
            for move in moves:
                yield [move]
        else:
            yield list(moves)
