"""The cluster as the leader sees it, for operators."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from msgspec import structs

from loadmanager.engine.load.headroom import measurable_from
from loadmanager.engine.load.reports import (
    NUMBER_MAX,
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    TimeAverageMessageData,
)
from loadmanager.engine.strategies import registry
from loadmanager.kit.addresses import AdvertisedListener, BrokerAddress, is_address
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.model import Shape
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import sleep
from loadmanager.kit.units import MIB
from loadmanager.leader import story
from loadmanager.leader.documents.cluster import (
    BrokerShown,
    BrokerState,
    BundleShown,
    BundlesShown,
    ClusterShown,
    DiskShown,
    HeadroomShown,
    LeaderShown,
    MovesCount,
    ReportShown,
    TrafficShown,
)
from loadmanager.leader.documents.decisions import (
    AverageShown,
    AveragesShown,
    BundleStory,
    DecisionShown,
    DecisionsShown,
)
from loadmanager.leader.documents.loss import LossShown, LostBundle
from loadmanager.leader.documents.moves import PauseShown, PinShown
from loadmanager.leader.draining import Draining
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.loss import rehomed
from loadmanager.leader.moves import Moves
from loadmanager.leader.owner_tracker import OwnerTracker
from loadmanager.leader.ports.operating import SORTS
from loadmanager.leader.reports_shown import report_shown, traffic_shown

AT_ONCE = 5_000
"""Bundles that are looked at before other tasks get their turn."""
LOST_MAX = 100_000
"""Bundles of one broker that are placed when it is asked where they would go."""
_Row = tuple[float, str, str | None, NamespaceBundleStats | None]


@dataclass(frozen=True, slots=True)
class Balancing:
    """Whether cycles run and may move something; `mode` and `hold`: of a daemon, see
    `ClusterShown`.
    """

    on: bool
    mode: str | None = None
    hold: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TermOverview:
    """Implements `leader.ports.operating.Overview` for one term."""

    leader: Leader
    since_ms: int
    """When the term began."""
    moves: Moves
    draining: Draining
    owners: OwnerTracker
    balancing: Callable[[], Balancing]
    load_manager: LoadManager

    # Brokers

    def cluster(self, limit: int, *, listener: str = "", secure: bool = False) -> ClusterShown:
        """See the port."""
        brokers, wishes = self.moves.cluster.brokers, self.moves.cluster.wishes
        names = sorted(brokers.registered | wishes.cordons.keys())
        strategies, extensible = (
            self.load_manager.strategies.value,
            self.moves.cluster.view.knows_owners,
        )
        shedder, placement = registry.acting(strategies, extensible=extensible)
        queue, balancing = self.moves.queue, self.balancing()
        return ClusterShown(
            at=self.moves.term.clock.now_ms(),
            leader=LeaderShown(
                broker=self.leader.broker_id,
                url=self.leader.service_url,
                epoch=self.leader.epoch,
                since=self.since_ms,
            ),
            manager="extensible" if extensible else "modular",
            shedder=shedder.name,
            placement=placement.name,
            balancing=balancing.on and strategies.shedding_enabled,
            mode=balancing.mode,
            hold=None if balancing.hold is None else str(balancing.hold),
            cycles=self.load_manager.cycles,
            paused=PauseShown.of(wishes.pause()),
            moves=MovesCount(waiting=queue.waiting, running=queue.running()),
            bundles=len(self.owners.by_bundle),
            awaited=len(self.owners.on_the_way()),
            total=len(names),
            brokers=[self._broker(name, listener, secure) for name in names[:limit]],
            headroom=self._headroom(),
            replay=self.moves.cluster.replay.shown,
            fleet=self.moves.cluster.fleet,
        )

    def _headroom(self) -> HeadroomShown | None:
        headroom = self.load_manager.usage.headroom
        if headroom is None:
            return None
        room = headroom.room
        errors = [error for _, error in self.load_manager.usage.usages.values()]
        return HeadroomShown(
            resource=headroom.resource,
            below_percent=self.load_manager.strategies.value.overloaded_percent,
            times=min(room.times, NUMBER_MAX),
            times_without_one=min(room.times_without_one, NUMBER_MAX),
            carried_percent=round(100 * room.carried_usage, 2),
            measurable_from_percent=round(100 * measurable_from(errors), 2),
            at_least=min(room.least, NUMBER_MAX),
            at_least_without_one=min(room.least_without_one, NUMBER_MAX),
            cordoned=headroom.closed,
            looks=headroom.looks,
            since=headroom.since_ms,
            last=headroom.last_ms,
        )

    def _broker(self, name: str, listener: str, secure: bool) -> BrokerShown:
        report = self.moves.cluster.brokers.reports.get(name)
        registered = name in self.moves.cluster.brokers.registered
        cordon = self.moves.cluster.wishes.cordons.get(name)
        drain = None if cordon is None else self.draining.shown(name, cordon)
        state: BrokerState = (
            "active" if report is not None else ("unreadable" if registered else "gone")
        )
        if drain is not None and (drain.state != "cordoned" or registered):
            state = drain.state
        load: LocalBrokerData | BrokerLoadData | None = report
        if self.moves.cluster.view.knows_owners:
            load = self.moves.cluster.view.load_data.get(name)
        modelled, error = self.load_manager.usage.usages.get(name, (None, None))
        weights, now_ms = self.load_manager.strategies.value.weights, self.moves.term.clock.now_ms()
        figures = _fields(
            ReportShown, None if load is None else report_shown(load, weights, now_ms)
        )
        if figures["usage"] is not None:
            figures["usage"] = self.load_manager.usage.counted(name, figures["usage"])
        return BrokerShown(
            broker=name,
            modelled=modelled,
            model_error=error,
            sensor=self.load_manager.usage.doubts.get(name),
            url=_url(self.moves.cluster.brokers.address(name), listener, secure),
            service_url=None if report is None else report.pulsar_service_url,
            leader=name == self.leader.broker_id,
            state=state,
            cordon=drain,
            version=None if report is None else report.broker_version_string,
            started_at=int(report.start_timestamp) if report and report.start_timestamp else None,
            disks=_disks(self.moves.cluster.disks(name)),
            **figures,
        )

    # Bundles

    async def bundles(
        self, *, sort: str, namespace: str | None, owner: str | None, limit: int
    ) -> BundlesShown:
        """The bundles of the last reports, in one of the orders of `SORTS`."""
        order = next((each for each in SORTS if each == sort), None)
        if order is None:
            raise BadInputError(f"sort={sort[:40]}: one of {', '.join(SORTS)} is allowed")
        at_ms, total = self.moves.term.clock.now_ms(), 0
        best: list[_Row] = []
        rows = self._rows(owner, namespace, sort, at_ms)
        while part := list(islice(rows, AT_ONCE)):
            total += len(part)
            best = heapq.nsmallest(limit, [*best, *part], key=lambda row: row[:2])
            await sleep(0)
        return BundlesShown(
            at=at_ms,
            sort=order,
            total=total,
            bundles=[self._bundle(bundle, broker, stats) for _, bundle, broker, stats in best],
        )

    def _rows(
        self, owner: str | None, namespace: str | None, sort: str, now_ms: int
    ) -> Iterator[_Row]:
        """Every bundle that is wanted: the order's key, its name, its owner, its traffic. A bundle
        that is moving has no owner for a moment, and is there all the same.
        """
        prefix = "" if namespace is None else f"{namespace}/"
        stats_of = self._stats()
        for bundle, tracked in list(self.owners.by_bundle.items()):
            if not bundle.startswith(prefix) or owner not in (None, tracked.broker):
                continue
            stats = stats_of(bundle, tracked.broker)
            if sort == "age":
                key = float(now_ms - tracked.since_ms)
            elif stats is None:
                key = -1.0
            else:
                key = stats.rate if sort == "rate" else stats.throughput
            yield -key, bundle, tracked.broker, stats
        if owner is None:
            for bundle in sorted(self.owners.on_the_way()):
                if bundle.startswith(prefix):
                    yield 1.0, bundle, None, None

    def _stats(self) -> Callable[[str, str], NamespaceBundleStats | None]:
        """Bundle and owner → the bundle's traffic; None: the owner has not reported it yet, or has
        not measured it yet.
        """
        reports = self.moves.cluster.brokers.reports
        published: dict[tuple[str, str], NamespaceBundleStats] = {}
        if self.moves.cluster.view.knows_owners:
            published = {
                (broker, top.bundle_name): top.stats
                for broker, tops in self.moves.cluster.view.top_bundles.items()
                for top in tops.top_bundles_load_data
            }

        def measured(bundle: str, broker: str) -> NamespaceBundleStats | None:
            if self.moves.cluster.view.knows_owners:
                stats = published.get((broker, bundle))
            else:
                report = reports.get(broker)
                stats = None if report is None else report.last_stats.get(bundle)
            if stats is None or stats.rate > 0 or stats.throughput > 0:
                return stats
            return stats if self.owners.measured(bundle, broker) else None

        return measured

    def _bundle(
        self, bundle: str, owner: str | None, stats: NamespaceBundleStats | None
    ) -> BundleShown:
        tracked, move = self.owners.by_bundle.get(bundle), self.moves.queue.move_of(bundle)
        pin = self.moves.cluster.wishes.now().pin_of(bundle)
        current = tracked if tracked is not None and tracked.broker == owner else None
        return BundleShown(
            bundle=bundle,
            owner=owner,
            owned_since=None if current is None else current.since_ms,
            owned_since_exact=current is not None and current.exact,
            moving=move is not None,
            moving_to=None if move is None else move.destination,
            pinned_to=None if pin is None else pin.broker,
            topics=None if stats is None else int(stats.topics),
            producers=None if stats is None else int(stats.producer_count),
            consumers=None if stats is None else int(stats.consumer_count),
            **_fields(TrafficShown, None if stats is None else traffic_shown(stats)),
        )

    async def bundle(self, bundle: str, replaced_by: Sequence[str], limit: int) -> BundleStory:
        """One bundle: its owner, its load, what replaced it, and the decisions that concern it."""
        owner = await self.moves.orders.owner(bundle)
        stats = None if owner is None else self._stats()(bundle, owner)
        pin, averages = (
            self.moves.cluster.wishes.now().pin_of(bundle),
            self.moves.cluster.view.bundle_data.get(bundle),
        )
        return BundleStory(
            **structs.asdict(self._bundle(bundle, owner, stats)),
            at=self.moves.term.clock.now_ms(),
            replaced_by=list(replaced_by),
            average=None
            if averages is None
            else AveragesShown(
                short_term=_average(averages.short_term_data),
                long_term=_average(averages.long_term_data),
            ),
            pin=None if pin is None else PinShown.of(pin),
            move=self.moves.queue.move_of(bundle),
            history=self._decisions(bundle, owner, None, None, limit),
            elsewhere=await self._elsewhere(self._bundle(bundle, owner, stats)),
        )

    async def _elsewhere(self, bundle: BundleShown) -> LostBundle | None:
        if bundle.owner is None:
            return None
        try:
            total = await rehomed(self.load_manager, [bundle.owner], [bundle], 1)
        except BadInputError:
            return None
        return total.bundles[0]

    def has_decided_about(self, bundle: str) -> bool:
        """True if a decision that is still kept names this bundle."""
        return any(
            story.names(decision.shown(), bundle)
            for decision in self.load_manager.records.decisions.newest_first()
        )

    async def loss(self, brokers: Sequence[str], limit: int) -> LossShown:
        """See the port."""
        lost = sorted({*brokers})
        registered = self.moves.cluster.brokers.registered
        if unknown := [broker for broker in lost if broker not in registered]:
            there = ", ".join(sorted(registered)[:10])
            raise BadInputError(f"no broker {unknown[0][:100]}; there are {there}")
        of = [
            await self.bundles(sort="rate", namespace=None, owner=each, limit=LOST_MAX)
            for each in lost
        ]
        bundles = [bundle for listed in of for bundle in listed.bundles]
        bundles.sort(key=lambda each: (-(each.rate or 0.0), each.bundle))
        total = await rehomed(self.load_manager, lost, bundles, limit)
        return LossShown(
            at=self.moves.term.clock.now_ms(),
            brokers=lost,
            total=sum(listed.total for listed in of),
            bundles=total.bundles,
            destinations=[total.destinations[name] for name in sorted(total.destinations)],
            homeless=total.homeless,
            remaining=total.remaining,
            overloaded_percent=self.load_manager.strategies.value.overloaded_percent,
        )

    # Decisions

    def decisions(
        self,
        *,
        bundle: str | None,
        broker: str | None,
        since_ms: int | None,
        until_ms: int | None,
        limit: int,
    ) -> DecisionsShown:
        """The last decisions with their reasons, newest first."""
        owner = broker
        if bundle is not None and broker is None and (tracked := self.owners.by_bundle.get(bundle)):
            owner = tracked.broker
        recent = list(self.load_manager.records.decisions.newest_first())
        return DecisionsShown(
            at=self.moves.term.clock.now_ms(),
            kept_since=recent[-1].first_ms if recent else None,
            decisions=self._decisions(bundle, owner, since_ms, until_ms, limit),
        )

    def _decisions(
        self,
        bundle: str | None,
        broker: str | None,
        since_ms: int | None,
        until_ms: int | None,
        limit: int,
    ) -> list[DecisionShown]:
        brokers = () if broker is None else (broker,)
        shown_decisions: list[DecisionShown] = []
        for decision in self.load_manager.records.decisions.newest_first():
            if (since_ms is not None and decision.last_ms < since_ms) or (
                until_ms is not None and decision.first_ms > until_ms
            ):
                continue
            shown = story.concerning(decision.shown(), bundle, brokers)
            if shown is not None:
                shown_decisions.append(shown)
                if len(shown_decisions) >= limit:
                    break
        return shown_decisions


def _url(broker: BrokerAddress | None, listener: str, secure: bool) -> str | None:
    """Where a broker's API is for the clients of a listener; None: nowhere that it says."""
    if broker is None:
        return None
    plain, tls = broker.web_url, broker.web_url_tls
    if listener:
        its = broker.listeners.get(listener, AdvertisedListener())
        plain, tls = its.web_url, its.web_url_tls
    url = tls if secure else plain or tls
    return url if is_address(url, ("http", "https")) else None


def _fields(kind: type[Shape], part: Shape | None) -> dict[str, Any]:
    """The fields of a part of another shape; without it all are None."""
    return dict.fromkeys(kind.__struct_fields__) if part is None else structs.asdict(part)


def _average(data: TimeAverageMessageData) -> AverageShown:
    return AverageShown(rate=data.rate, throughput=data.throughput, samples=int(data.num_samples))


def _disks(disks: Mapping[str, ResourceUsage]) -> list[DiskShown]:
    return [
        DiskShown(
            stored=stored,
            used_bytes=round(used.usage) * MIB,
            size_bytes=round(used.limit) * MIB,
        )
        for stored, used in sorted(disks.items(), key=lambda it: (-it[1].percent, it[0]))
    ]
