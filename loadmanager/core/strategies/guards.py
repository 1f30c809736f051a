"""What holds for every shedder, third parties' included: the guards that stand between an answer
and a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import msgspec

from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.policies import anti_affinity
from loadmanager.core.strategies import filters
from loadmanager.core.strategies.decision import Skip, Unload
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.selection import is_system_namespace


def usable(snapshot: ClusterSnapshot, settings: StrategySettings) -> ClusterSnapshot:
    """The snapshot without the brokers whose reports are older than they may be; a report that does
    not say its age is fresh.
    """
    oldest_ms = snapshot.now_ms - settings.report_ttl_s * 1000
    updated_ms: Mapping[str, float] = (
        {broker: data.updated_at for broker, data in snapshot.load_data.items()}
        if snapshot.extensible
        else {broker: report.last_update for broker, report in snapshot.reports.items()}
    )
    stale = {broker: at_ms for broker, at_ms in updated_ms.items() if 0 < at_ms < oldest_ms}
    if not stale:
        return snapshot
    reasons = {
        broker: f"StaleReport: {(snapshot.now_ms - at_ms) / 1000:.0f} s old, more than "
        f"{settings.report_ttl_s}"
        for broker, at_ms in stale.items()
    }
    return replace(
        snapshot,
        reports={
            broker: report for broker, report in snapshot.reports.items() if broker not in stale
        },
        load_data={
            broker: data for broker, data in snapshot.load_data.items() if broker not in stale
        },
        unusable={**snapshot.unusable, **reasons},
    )


class Guards:
    """The guards of one cycle.

    `filtered`: the shedder has asked the filters for every destination itself, as TransferShedder
    does.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, settings: StrategySettings, *, filtered: bool = False
    ) -> None:
        self._filtered = filtered
        self._snapshot = snapshot
        self._settings = settings
        self._available = snapshot.available
        self._under_way = {bundle for bundles in snapshot.pending.values() for bundle in bundles}
        self._choosy = bool(
            settings.excluded_namespaces
            or snapshot.isolation_policies
            or snapshot.anti_affinity_groups
        )
        self._unfit: dict[str, str] | None = None
        self._allowed: dict[str, Unload] = {}
        self._refused: list[Skip] = []

    def admit(self, unloads: Sequence[Unload]) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
        """The moves that may be, and why each other one may not.

        The moves of a swap are admitted together.
        """
        for asked in together(unloads):
            if len(asked) == 1 and self._plain(asked[0]):
                self._allowed[asked[0].bundle] = asked[0]
                continue
            moves, vetoes = self._judged(asked)
            limit = self._settings.moves_per_cycle_max
            if not vetoes and 0 <= limit < len(self._allowed) + len(moves):
                vetoes = {move.bundle: f"CycleLimit: {limit} moves per cycle" for move in moves}
            if not vetoes:
                self._allowed.update((move.bundle, move) for move in moves)
            for move in moves if vetoes else ():
                self._refused.append(
                    Skip(
                        move.bundle,
                        vetoes.get(
                            move.bundle, f"Swap: {next(iter(vetoes))} must stay, so this one does"
                        ),
                    )
                )
        return tuple(self._allowed.values()), tuple(self._refused)

    def _judged(self, moves: list[Unload]) -> tuple[list[Unload], dict[str, str]]:
        """The moves, and why some must not be.

        A destination that placement would refuse is dropped, so that placement finds another (not
        in a swap).
        """
        moves, vetoes = list(moves), {}
        for index, move in enumerate(moves):
            veto = self._veto(move)
            unfit = self._unfit_for(move) if veto is None else None
            if unfit is not None and move.swap is None and not self._snapshot.extensible:
                moves[index] = msgspec.structs.replace(
                    move,
                    destination=None,
                    why={**move.why, "notTo": f"{move.destination}: {unfit}"},
                )
            elif veto is not None or unfit is not None:
                vetoes[move.bundle] = veto or f"{move.destination}: {unfit}"
        return moves, vetoes

    def _plain(self, unload: Unload) -> bool:
        """Whether nothing can be said against a move; a shortcut, because a cycle over a large
        cluster has thousands of moves like this.
        """
        bundle, report = unload.bundle, self._snapshot.reports.get(unload.source)
        return (
            unload.destination is None
            and report is not None
            and bundle in report.last_stats
            and self._settings.moves_per_cycle_max < 0
            and not self._choosy
            and bundle not in self._allowed
            and bundle not in self._snapshot.recently_unloaded_ms
            and bundle not in self._under_way
            and bundle not in self._snapshot.owners
            and not is_system_namespace(split_bundle_name(bundle)[0])
        )

    def _veto(self, unload: Unload) -> str | None:
        """Why a move must not be, wherever it goes; None when it may."""
        snapshot, namespace = self._snapshot, split_bundle_name(unload.bundle)[0]
        return (
            self._bundle_veto(unload.bundle, namespace)
            or self._broker_veto(unload)
            or (
                self._policy_veto(unload, namespace)
                if snapshot.isolation_policies or snapshot.anti_affinity_groups
                else None
            )
        )

    def _bundle_veto(self, bundle: str, namespace: str) -> str | None:
        """A bundle that is not to be moved now, wherever it is."""
        recently_ms = self._snapshot.recently_unloaded_ms
        if bundle in self._allowed:
            return "AlreadyPlanned: twice in one cycle"
        if namespace in self._settings.excluded_namespaces:
            return "ExcludedNamespace: loadBalancerSheddingExcludedNamespaces"
        if is_system_namespace(namespace):
            return "SystemNamespace: it serves Pulsar itself"
        if bundle in recently_ms:
            return f"GracePeriod: moved at {recently_ms[bundle]}"
        return (
            "UnderWay: its last placement is not in a report yet"
            if bundle in self._under_way
            else None
        )

    def _broker_veto(self, unload: Unload) -> str | None:
        """Brokers that are not there, a source that does not serve the bundle, or a move that is
        none.
        """
        for broker in (unload.source, unload.destination):
            if broker is not None and broker not in self._available:
                return self._snapshot.unusable.get(broker, f"DeadBroker: {broker} is not available")
        if not self._owns(unload.source, unload.bundle):
            return f"NotOwned: {unload.source} does not serve it"
        return (
            f"SameBroker: it is on {unload.source} already"
            if unload.destination == unload.source
            else None
        )

    def _policy_veto(self, unload: Unload, namespace: str) -> str | None:
        """A move that isolation leaves no target for, or that would spread an anti-affinity group
        worse.
        """
        snapshot = self._snapshot
        if (
            snapshot.extensible
            and not self._settings.shed_policy_bundles
            and filters.has_policy(snapshot, namespace)
        ):
            return "PolicyBundle: loadBalancerSheddingBundlesWithPoliciesEnabled is false"
        candidates = filters.may_serve(snapshot, namespace, {})
        if not [broker for broker in candidates if broker != unload.source]:
            return "Isolation: no other broker may serve it"
        group = snapshot.anti_affinity_groups.get(namespace)
        if group is None or snapshot.extensible:
            return None
        counts = anti_affinity.namespaces_of_group(
            group, snapshot.anti_affinity_groups, filters.served(snapshot)
        )
        return (
            None
            if anti_affinity.may_unload(unload.source, candidates, counts)
            else "AntiAffinity: its group is spread as well as it can be"
        )

    def _unfit_for(self, unload: Unload) -> str | None:
        """Why placement would not choose the destination; evenness is not asked.

        None when it might, or there is none.
        """
        snapshot, destination, namespace = (
            self._snapshot,
            unload.destination,
            split_bundle_name(unload.bundle)[0],
        )
        if destination is None or self._filtered:
            return None
        if not snapshot.extensible:
            if self._unfit is None:
                self._unfit = filters.unfit(snapshot, self._settings)
            if destination in self._unfit or not (
                snapshot.isolation_policies or namespace in snapshot.anti_affinity_groups
            ):
                return self._unfit.get(destination)
        rejected: dict[str, str] = {}
        if snapshot.extensible:
            able = filters.extensible(
                snapshot, namespace, self._settings, rejected, leaving=unload.source
            )
        else:
            allowed = filters.may_serve(snapshot, namespace, rejected)
            settings = replace(self._settings, distribute_evenly=False)
            able = filters.modular(
                snapshot, allowed, namespace, settings, rejected, leaving=unload.source
            )
        return (
            None
            if destination in able
            else rejected.get(destination, "Filtered: it is no candidate")
        )

    def _owns(self, broker: str, bundle: str) -> bool:
        snapshot = self._snapshot
        if bundle in snapshot.owners:
            return snapshot.owners[bundle] == broker
        if snapshot.extensible:
            top = snapshot.top_bundles.get(broker)
            return top is not None and any(
                item.bundle_name == bundle for item in top.top_bundles_load_data
            )
        report = snapshot.reports[broker]
        return bundle in report.last_stats or bundle in report.bundles


def together(unloads: Sequence[Unload]) -> Iterator[list[Unload]]:
    """The moves of each swap, which follow one another, and each other move by itself."""
    for swap, moves in groupby(unloads, key=attrgetter("swap")):
        if swap is None:
            for move in moves:
                yield [move]
        else:
            yield list(moves)
