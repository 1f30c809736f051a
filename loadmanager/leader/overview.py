"""The cluster as the leader sees it, for operators."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    TimeAverageMessageData,
)
from loadmanager.engine.load.usage import max_weighted_usage
from loadmanager.engine.moves.move import move_document
from loadmanager.engine.strategies import registry, story
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.tasks import sleep
from loadmanager.leader.draining import Draining
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.owners_seen import OwnersSeen
from loadmanager.leader.ports.operating import SORTS, Document

AT_ONCE = 5_000
"""Bundles that are looked at before other tasks get their turn."""
RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
_Row = tuple[float, str, str | None, NamespaceBundleStats | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Implements `leader.ports.operating.Overview` for one term."""

    leader: Leader
    since_ms: int
    """When the term began."""
    view: ClusterView
    moves: Moves
    draining: Draining
    owners: OwnersSeen
    strategies: Live[StrategySettings]
    balancing: Callable[[], bool]
    """Whether this leader runs shedding cycles."""
    load_manager: LoadManager

    # Brokers

    def cluster(self, limit: int) -> Document:
        """The leader, the queue of moves, and each broker with its load."""
        brokers, wishes = self.moves.brokers, self.moves.wishes
        names = sorted(brokers.registered | wishes.cordons.keys())
        pause, strategies = wishes.pause(), self.strategies.value
        extensible = self.view.knows_owners
        shedder, placement = registry.acting(strategies, extensible=extensible)
        return {
            "at": self.moves.clock.now_ms(),
            "leader": {
                "broker": self.leader.broker_id,
                "url": self.leader.service_url,
                "epoch": self.leader.epoch,
                "since": self.since_ms,
            },
            "manager": "extensible" if extensible else "modular",
            "shedder": shedder.name,
            "placement": placement.name,
            "balancing": self.balancing() and strategies.shedding_enabled,
            "cycles": self.load_manager.cycles,
            "paused": None if pause is None else {"until": pause.until_ms, "note": pause.note},
            "moves": {"waiting": self.moves.queue.waiting, "running": self.moves.queue.running()},
            "bundles": len(self.owners.seen) + len(self.owners.on_the_way()),
            "total": len(names),
            "brokers": [self._broker(name) for name in names[:limit]],
        }

    def _broker(self, name: str) -> Document:
        report = self.moves.brokers.reports.get(name)
        registered = name in self.moves.brokers.registered
        cordon = self.moves.wishes.cordons.get(name)
        drain = None if cordon is None else self.draining.document(name, cordon)
        state = "active" if report is not None else ("unreadable" if registered else "gone")
        load: LocalBrokerData | BrokerLoadData | None = report
        if self.view.knows_owners:
            load = self.view.load_data.get(name)
        return {
            "broker": name,
            "url": report and report.web_service_url,
            "serviceUrl": report and report.pulsar_service_url,
            "leader": name == self.leader.broker_id,
            "state": state
            if drain is None or (drain["state"] == "cordoned" and not registered)
            else drain["state"],
            "cordon": drain,
            "version": report and report.broker_version_string,
            "startedAt": int(report.start_timestamp) if report and report.start_timestamp else None,
            **self._load(load),
        }

    def _load(self, load: LocalBrokerData | BrokerLoadData | None) -> Document:
        if load is None:
            return dict.fromkeys(LOAD_FIELDS)
        if isinstance(load, LocalBrokerData):
            usage, at_ms = max_weighted_usage(load, self.strategies.value.weights), load.last_update
            bundles, topics = len(load.bundles), load.num_topics
            clients: dict[str, int | None] = {
                "producers": int(load.num_producers),
                "consumers": int(load.num_consumers),
            }
        else:
            usage, at_ms = load.max_resource_usage, load.updated_at
            bundles, topics = int(load.bundle_count), load.topics
            clients = {"producers": None, "consumers": None}
        return {
            "usage": usage,
            "resources": {_camel(name): _resource(getattr(load, name)) for name in RESOURCES},
            **_traffic(load),
            "bundles": bundles,
            "topics": int(topics),
            **clients,
            "reportedAt": int(at_ms) if at_ms else None,
            "reportAgeMs": max(0, self.moves.clock.now_ms() - int(at_ms)) if at_ms else None,
        }

    # Bundles

    async def bundles(
        self, *, sort: str, namespace: str | None, owner: str | None, limit: int
    ) -> Document:
        """The bundles of the last reports, in one of the orders of `SORTS`."""
        if sort not in SORTS:
            raise BadInputError(f"sort={sort[:40]}: one of {', '.join(SORTS)} is allowed")
        at_ms, total = self.moves.clock.now_ms(), 0
        best: list[_Row] = []
        rows = self._rows(owner, namespace, sort, at_ms)
        while part := list(islice(rows, AT_ONCE)):
            total += len(part)
            best = heapq.nsmallest(limit, [*best, *part], key=lambda row: row[:2])
            await sleep(0)
        return {
            "at": at_ms,
            "sort": sort,
            "total": total,
            "bundles": [self._bundle(bundle, broker, stats) for _, bundle, broker, stats in best],
        }

    def _rows(
        self, owner: str | None, namespace: str | None, sort: str, now_ms: int
    ) -> Iterator[_Row]:
        """Every bundle that is wanted: the order's key, its name, its owner, its traffic. A bundle
        that is moving has no owner for a moment, and is there all the same.
        """
        prefix = "" if namespace is None else f"{namespace}/"
        stats_of = self._stats()
        for bundle, seen in list(self.owners.seen.items()):
            if not bundle.startswith(prefix) or owner not in (None, seen.broker):
                continue
            stats = stats_of(bundle, seen.broker)
            if sort == "age":
                key = float(now_ms - seen.since_ms)
            elif stats is None:
                key = -1.0
            else:
                key = stats.rate if sort == "rate" else stats.throughput
            yield -key, bundle, seen.broker, stats
        if owner is None:
            for bundle in sorted(self.owners.on_the_way()):
                if bundle.startswith(prefix):
                    yield 1.0, bundle, None, None

    def _stats(self) -> Callable[[str, str], NamespaceBundleStats | None]:
        """Bundle and owner → the bundle's traffic; None: the owner has not reported it yet, or has
        not measured it yet.
        """
        reports = self.moves.brokers.reports
        published: dict[tuple[str, str], NamespaceBundleStats] = {}
        if self.view.knows_owners:
            published = {
                (broker, top.bundle_name): top.stats
                for broker, tops in self.view.top_bundles.items()
                for top in tops.top_bundles_load_data
            }

        def measured(bundle: str, broker: str) -> NamespaceBundleStats | None:
            if self.view.knows_owners:
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
    ) -> Document:
        seen, move = self.owners.seen.get(bundle), self.moves.queue.move_of(bundle)
        pin = self.moves.wishes.now().pin_of(bundle)
        known = seen if seen is not None and seen.broker == owner else None
        return {
            "bundle": bundle,
            "owner": owner,
            "ownedSince": known and known.since_ms,
            "ownedSinceExact": known is not None and known.exact,
            "movingTo": None if move is None else move.destination,
            "moving": move is not None,
            "pinnedTo": None if pin is None else pin.broker,
            **(dict.fromkeys(TRAFFIC_FIELDS) if stats is None else _traffic(stats)),
            "topics": None if stats is None else int(stats.topics),
            "producers": None if stats is None else int(stats.producer_count),
            "consumers": None if stats is None else int(stats.consumer_count),
        }

    async def bundle(self, bundle: str, replaced_by: Sequence[str], limit: int) -> Document:
        """One bundle: its owner, its load, what replaced it, and the decisions that concern it."""
        owner = await self.moves.owner(bundle)
        stats = None if owner is None else self._stats()(bundle, owner)
        move, pin = self.moves.queue.move_of(bundle), self.moves.wishes.now().pin_of(bundle)
        averages = self.view.bundle_data.get(bundle)
        return {
            "at": self.moves.clock.now_ms(),
            **self._bundle(bundle, owner, stats),
            "replacedBy": list(replaced_by),
            "average": None
            if averages is None
            else {
                "shortTerm": _average(averages.short_term_data),
                "longTerm": _average(averages.long_term_data),
            },
            "pin": None
            if pin is None
            else {"broker": pin.broker, "until": pin.until_ms, "note": pin.note},
            "move": None if move is None else move_document(move),
            "history": self._decisions(bundle, owner, None, None, limit),
        }

    def has_decided_about(self, bundle: str) -> bool:
        """True if a decision that is still kept names this bundle."""
        return any(
            story.names(decision.document(), bundle) for decision in self.load_manager.kept.kept()
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
    ) -> Document:
        """The last decisions with their reasons, newest first."""
        owner = broker
        if bundle is not None and broker is None and (seen := self.owners.seen.get(bundle)):
            owner = seen.broker
        kept = list(self.load_manager.kept.kept())
        return {
            "at": self.moves.clock.now_ms(),
            "keptSince": kept[-1].first_ms if kept else None,
            "decisions": self._decisions(bundle, owner, since_ms, until_ms, limit),
        }

    def _decisions(
        self,
        bundle: str | None,
        broker: str | None,
        since_ms: int | None,
        until_ms: int | None,
        limit: int,
    ) -> list[Document]:
        brokers = () if broker is None else (broker,)
        told: list[Document] = []
        for decision in self.load_manager.kept.kept():
            if (since_ms is not None and decision.last_ms < since_ms) or (
                until_ms is not None and decision.first_ms > until_ms
            ):
                continue
            document = story.concerning(decision.document(), bundle, brokers)
            if document is not None:
                told.append(document)
                if len(told) >= limit:
                    break
        return told


TRAFFIC_FIELDS = (
    "rate",
    "throughput",
    "msgRateIn",
    "msgRateOut",
    "msgThroughputIn",
    "msgThroughputOut",
)
LOAD_FIELDS = (
    "usage",
    "resources",
    *TRAFFIC_FIELDS,
    "bundles",
    "topics",
    "producers",
    "consumers",
    "reportedAt",
    "reportAgeMs",
)


def _traffic(
    load: LocalBrokerData | BrokerLoadData | NamespaceBundleStats,
) -> dict[str, float]:
    return {
        "rate": load.msg_rate_in + load.msg_rate_out,
        "throughput": load.msg_throughput_in + load.msg_throughput_out,
        "msgRateIn": load.msg_rate_in,
        "msgRateOut": load.msg_rate_out,
        "msgThroughputIn": load.msg_throughput_in,
        "msgThroughputOut": load.msg_throughput_out,
    }


def _average(data: TimeAverageMessageData) -> dict[str, float]:
    return {"rate": data.rate, "throughput": data.throughput, "samples": int(data.num_samples)}


def _resource(resource: Any) -> dict[str, float | None]:
    fraction = resource.percent / 100 if resource.limit > 0 else None
    return {"usage": resource.usage, "limit": resource.limit, "fraction": fraction}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
