"""Looks once a minute for what the nightly report would find, and tells when it begins and ends;
and who is lost, at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings.finding import KINDS, FindingShown, Kind
from loadmanager.engine.findings.held_connections import LimitedConnection
from loadmanager.engine.findings.lost import lost
from loadmanager.engine.findings.throttling import INACCURATE, HeldLimit
from loadmanager.engine.findings.uneven import Stay
from loadmanager.engine.findings.watch import Look, Watch
from loadmanager.engine.load.usage import max_weighted_usage
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.conf import Live
from loadmanager.kit.telemetry import Sample, gauge
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.documents.findings import FindingChange, FindingsShown
from loadmanager.leader.events import EventHub
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.members import TermMembers
from loadmanager.leader.ports.operating import Findings
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.limits.report import BrokerHolds, HoldingLimit

LOOK_S = 60.0

FINDINGS = gauge("loadmanager_findings", "As leader: what is wrong now, by kind", "kind")


@dataclass(slots=True, kw_only=True)
class TermFindings:
    """Implements `leader.ports.operating.Findings` for one term."""

    leading: PresentLeader
    brokers: Brokers
    members: TermMembers
    load_manager: LoadManager
    splits: Live[SplitSettings]
    events: EventHub
    record: Callable[[Sequence[FindingShown], int, Kind | None], None]
    """Records what was found wrong at a look, when that was, and for which kind alone it was
    looked; None: for all.
    """
    watch: Watch = field(default_factory=Watch, init=False)
    _findings: list[FindingShown] = field(default_factory=list, init=False)
    _looked_ms: int | None = field(default=None, init=False)

    async def step(self) -> None:
        """Look, and tell of what has changed."""
        holding = {} if self.leading.holds is None else await self.leading.holds()
        backlogs = None if self.leading.backlogs is None else await self.leading.backlogs()
        view, now_ms = self.load_manager.cluster.view, self.load_manager.term.clock.now_ms()
        look = Look(
            now_ms=now_ms,
            strategies=self.load_manager.strategies.value,
            splits=self.splits.value,
            loads=view.load_data if view.knows_owners else view.reports,
            published=view.traffic(),
            doubts=self.load_manager.usage.doubts,
            doubted_since=self.load_manager.usage.doubted_since,
            delays=self.brokers.delays,
            leaders=self.members.leader_changes(),
            holding=held_limits(holding),
            connections=limited_connections(holding, now_ms),
            backlogs={} if backlogs is None else backlogs.brokers,
            holders=holders_of_subscriptions(holding),
            disks={name: self.load_manager.cluster.disks(name) for name in self.brokers.registered},
            unserved=self.members.unserved(),
            lost=self.members.lost(),
            usages=usages_of(self.load_manager),
            stays=stays_of(self.load_manager),
        )
        self._looked_ms = now_ms
        self._take(self.watch.step(look), now_ms)

    def look_at_members(self) -> None:
        """Tell at once who was lost, what is known of them, and who is back."""
        gone = lost(self.members.lost())
        if gone != [it for it in self._findings if it.kind == "lost"]:
            others = [it for it in self._findings if it.kind != "lost"]
            self._take([*gone, *others], self.load_manager.term.clock.now_ms(), "lost")

    def _take(self, findings: list[FindingShown], now_ms: int, only: Kind | None = None) -> None:
        before, self._findings = self._findings, findings
        self.record(self._findings, now_ms, only)
        for finding in _without(self._findings, before):
            self._tell(FindingChange(at=now_ms, state="began", finding=finding))
        for finding in _without(before, self._findings):
            self._tell(FindingChange(at=now_ms, state="ended", finding=finding))

    def _tell(self, change: FindingChange) -> None:
        self.events.publish("finding", lambda: change)

    def shown(self) -> FindingsShown:
        """What was wrong at the last look, and who is lost now: that is not looked for."""
        gone = lost(self.members.lost())
        return FindingsShown(
            at=self.load_manager.term.clock.now_ms(),
            looked_at=self._looked_ms,
            findings=[*gone, *(it for it in self._findings if it.kind != "lost")],
        )


def usages_of(load_manager: LoadManager) -> dict[str, float]:
    """What each broker uses, by its last report."""
    view, weights = load_manager.cluster.view, load_manager.strategies.value.weights
    if view.knows_owners:
        return {name: load.max_resource_usage for name, load in view.load_data.items()}
    return {name: max_weighted_usage(it, weights) for name, it in view.reports.items()}


def stays_of(load_manager: LoadManager) -> list[Stay]:
    """Why bundles stayed in the last cycle, if that moved nothing, as its decision says it."""
    decisions = load_manager.records.decisions.newest_first()
    last = next((it.shown() for it in decisions if it.kind == "shed"), None)
    if last is None or last.unloads or not isinstance(last.skipped, list):
        return []
    return [Stay(it.what, it.code, it.reason) for it in last.skipped]


def _without(these: Sequence[FindingShown], others: Sequence[FindingShown]) -> list[FindingShown]:
    there = {(it.kind, it.about) for it in others}
    return [it for it in these if (it.kind, it.about) not in there]


def held_limits(holds: Mapping[str, BrokerHolds]) -> dict[str, list[HeldLimit]]:
    """Broker → its limits that hold somebody now."""
    return {
        broker: [
            HeldLimit(
                limit.name,
                limit.level,
                limit.configured_messages_per_s,
                limit.configured_bytes_per_s,
                limit.waiters_total,
            )
            for limit in each.limits
            if _holds(limit)
        ]
        for broker, each in holds.items()
    }


def limited_connections(
    holds: Mapping[str, BrokerHolds], now_ms: int
) -> dict[str, list[LimitedConnection]]:
    """Broker → the connections that its limits hold."""
    return {
        broker: [
            LimitedConnection(
                it.client,
                now_ms - round(it.held_ago_ms),
                {
                    name: now_ms - round(it.limits_held_ago_ms.get(name, it.held_ago_ms))
                    for name in it.limits
                },
                it.topics,
                it.others_total,
            )
            for it in each.connections
        ]
        for broker, each in holds.items()
    }


def holders_of_subscriptions(
    holds: Mapping[str, BrokerHolds],
) -> dict[tuple[str, str], Sequence[str]]:
    """Topic and subscription → the limits that hold it."""
    return {
        (it.topic, it.subscription): it.limits
        for _, each in sorted(holds.items())
        for it in each.subscriptions
    }


def _holds(limit: HoldingLimit) -> bool:
    """Whether somebody waits, or as much passes as may: one that held somebody for a moment in the
    last ten seconds does not.
    """
    return limit.queue_length > 0 or (limit.error is not None and limit.error >= -INACCURATE)


def samples(findings: Findings | None) -> Iterator[Sample]:
    """The leader's metric of what is wrong."""
    if findings is None:
        return
    kinds = [finding.kind for finding in findings.shown().findings]
    for kind in KINDS:
        yield FINDINGS.sample(kinds.count(kind), kind)
