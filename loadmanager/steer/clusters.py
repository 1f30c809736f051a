"""All clusters of this daemon at a glance, for the page and the API of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import convert, structs

from loadmanager.engine.history.records import BrokerLoad
from loadmanager.engine.load.usage import max_weighted_usage
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive import Archive
from loadmanager.steer.documents import ClustersShown, ClusterSummary, Mode
from loadmanager.steer.settings_file import ClusterSettings
from loadmanager.steer.work import FleetWork

STARTS = "it starts"
OLD_MS = 120_000
"""A broker whose loads ended longer before a moment than this, and than they took, was not there.
"""
NOT_HERE = "its archive is not open: this daemon does not lead there now, or keeps no history"
NOT_THEN = "this daemon recorded nothing then"


@dataclass(slots=True, kw_only=True)
class ClusterStanding:
    """One cluster of the daemon, also while it does not lead."""

    settings: ClusterSettings
    port: int = 0
    allows: Callable[[str], bool] = lambda _token: False
    """Whether a bearer's token, which may be empty, may read of this cluster."""
    work: FleetWork | None = None
    """None: it does not lead."""
    waits: str = STARTS
    """Why it does not lead, as far as that is in order."""
    problem: str = ""
    """Why it does not lead, else."""

    archive: Archive | None = None
    """What it has recorded; None while it does not lead."""

    def leads(self, work: FleetWork, archive: Archive | None) -> None:
        """It leads now."""
        self.work, self.archive, self.waits, self.problem = work, archive, STARTS, ""

    def no_longer_leads(self) -> None:
        """It leads no more."""
        self.work = self.archive = None

    def by_name(self) -> ClusterSummary:
        """For somebody who may not read of it."""
        return ClusterSummary(name=self.settings.name, port=self.port)

    def summary(self) -> ClusterSummary:
        """What it is like now."""
        mode = convert(self.settings.fleet.mode, Mode)
        if self.work is None:
            return structs.replace(
                self.by_name(),
                mode=mode,
                state="problem" if self.problem else "waits",
                why=self.problem or self.waits,
            )
        work, picture, hold = self.work, self.work.picture, self.work.hold.shown_reason()
        weights, usage = work.load_manager.strategies.value.weights, work.load_manager.usage
        answering = sorted(picture.answering & picture.reports.keys())
        usages = [
            usage.counted(broker, max_weighted_usage(picture.reports[broker], weights))
            for broker in answering
        ]
        goals = work.moves.cluster.wishes.goals.values()
        problem = picture.problems.get("brokers")
        if problem is None and picture.brokers_ms is not None and not usages:
            problem = "no broker answers"
        return structs.replace(
            self.by_name(),
            mode=mode,
            state="problem" if problem else "leads",
            why=problem,
            brokers=len(picture.registered),
            lowest_usage=min(usages, default=None),
            highest_usage=max(usages, default=None),
            modelled=sum(broker in usage.doubts for broker in answering),
            held=None if hold is None else str(hold),
            open_goals=sum(order.state != "ended" and not order.drain for order in goals),
            read_at=picture.brokers_ms,
        )

    async def summary_then(self, at_ms: int) -> ClusterSummary:
        """What it was like at a moment, by what this daemon recorded."""
        if self.archive is None:
            return structs.replace(self.by_name(), state="waits", why=NOT_HERE)
        try:
            moment = await self.archive.ask(lambda file: file.moment(at_ms, (BrokerLoad.kind,)))
        except OperationalError as error:
            return structs.replace(self.by_name(), state="problem", why=str(error))
        fresh = [it for it in moment.loads if at_ms - it.ts <= max(it.span_ms, OLD_MS)]
        usages = [
            figures[it.columns.index("usage")] for it in fresh for figures in it.figures.values()
        ]
        return structs.replace(
            self.by_name(),
            state="leads" if moment.recorded else "waits",
            why=None if moment.recorded else NOT_THEN,
            brokers=len(usages),
            lowest_usage=min(usages, default=None),
            highest_usage=max(usages, default=None),
            read_at=max((it.ts for it in fresh), default=None),
        )


@dataclass(slots=True)
class FleetClusters:
    """The clusters of this daemon."""

    standings: list[ClusterStanding] = field(default_factory=list)

    def add(self, settings: ClusterSettings) -> ClusterStanding:
        """A further cluster."""
        self.standings.append(ClusterStanding(settings=settings))
        return self.standings[-1]

    def shown(self, me: str, token: str) -> ClustersShown:
        """The worst first. A bearer of `token` may read of the cluster `me`; those of which he may
        not are last, by name and port alone.
        """
        summaries = [
            each.summary() if self._may_read(each, me, token) else each.by_name()
            for each in self.standings
        ]
        return ClustersShown(name=me, clusters=sorted(summaries, key=_rank))

    async def shown_then(self, me: str, token: str, at_ms: int) -> ClustersShown:
        """The same at a moment, by what was recorded: no mode, no hold and no goals, which are not.
        The clusters are those of now.
        """
        summaries = [
            await each.summary_then(at_ms) if self._may_read(each, me, token) else each.by_name()
            for each in self.standings
        ]
        return ClustersShown(name=me, clusters=sorted(summaries, key=_rank))

    def _may_read(self, cluster: ClusterStanding, me: str, token: str) -> bool:
        return cluster.settings.name == me or cluster.allows(token)


def _rank(cluster: ClusterSummary) -> tuple[bool, bool, bool, bool, float, str]:
    """The order of clusters: trouble, what nothing may be moved in, by the fullest broker."""
    return (
        cluster.state is None,
        cluster.state != "problem",
        cluster.state != "leads",
        cluster.held is None,
        math.inf if cluster.highest_usage is None else -cluster.highest_usage,
        cluster.name,
    )
