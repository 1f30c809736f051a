"""All clusters of this daemon at a glance, for the page and the API of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import convert, structs

from loadmanager.engine.load.usage import max_weighted_usage
from loadmanager.steer.documents import ClustersShown, ClusterSummary, Mode
from loadmanager.steer.settings_file import ClusterSettings
from loadmanager.steer.work import FleetWork

STARTS = "it starts"


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

    def leads(self, work: FleetWork) -> None:
        """It leads now."""
        self.work, self.waits, self.problem = work, STARTS, ""

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
        weights = work.load_manager.strategies.value.weights
        usages = [
            max_weighted_usage(picture.reports[broker], weights)
            for broker in sorted(picture.answering & picture.reports.keys())
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
            held=None if hold is None else str(hold),
            open_goals=sum(order.state != "ended" and not order.drain for order in goals),
            read_at=picture.brokers_ms,
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
            each.summary() if each.settings.name == me or each.allows(token) else each.by_name()
            for each in self.standings
        ]
        return ClustersShown(name=me, clusters=sorted(summaries, key=_rank))


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
