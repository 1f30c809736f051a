"""A cluster whose brokers serve what they can, and report each minute what they served."""

from __future__ import annotations

import random
from collections.abc import Callable

from clusters.views import a_report, without_policies

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats, ResourceUsage
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.balanced import SHEDDER, BalancedMemory
from loadmanager.engine.strategies.shedding.modelled import FullBrokers, Left, ModelledBrokers
from loadmanager.kit.units import MINUTE_MS

SETTINGS = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")
BROKERS, EACH, SPACES = 6, 12, 6
CHEAP = 0
"""The namespace whose bytes cost next to nothing, where a test says so."""

Times = Callable[[int, int], float]
"""(minute, namespace) → how many times its usual traffic it has."""


class ServingCluster:
    """Brokers with bundles of equal traffic, which report what they serve each minute.

    `cost`: the part of a broker's CPU that a bundle uses; `card`: the same of its network card.
    """

    def __init__(self, times: Times, *, cost: float = 0.04, noise: float = 0.01) -> None:
        self.times, self.cost, self.noise, self.card = times, cost, noise, 0.0
        self.cheap = False
        self.owner = {
            f"t/n{at % SPACES}/0x{number:04x}{at:04x}_0x{number:04x}{at + 1:04x}": number
            for number in range(BROKERS)
            for at in range(EACH)
        }
        self.dear: dict[str, float] = {}
        """Bundle → how many times the CPU it costs."""
        self.lies: dict[str, float] = {}
        """Bundle → what a report claims of it, as a multiple, in this minute only."""
        self.wanted: dict[int, float] = {}
        """Broker → the part of its CPU that is asked for."""
        self.limits: dict[int, float] = {}
        """Broker → the CPU that it says to have, as a multiple; what it uses stays right."""
        self.top = 1.0
        """What the sensors end at, without any noise."""
        self.catch_up = 1.0
        """How many times its traffic a bundle has in the two minutes after it came."""
        self.boot: list[float] = []
        """What each sensor showed on average since its machine was started, long ago; empty: they
        show what is used now.
        """
        self._came: dict[str, int] = {}
        self.view, self.memories, self.minute = ClusterView(), Memories(), 0
        self._random = random.Random(3)

    def next(self) -> Plan:
        """All report, and moves are made."""
        snapshot, now_ms = self.reported(), self.minute * MINUTE_MS
        plan, self.memories = cycle.shed(snapshot, SETTINGS, self.memories)
        for move in plan.unloads:
            assert move.destination is not None
            self.owner[move.bundle] = int(move.destination[1])
            self._came[move.bundle] = self.minute
            self.view.placed(move.bundle, move.destination, now_ms)
            self.view.moved(move.bundle, move.source, now_ms)
        self.lies = {}
        return plan

    def reported(self) -> ClusterSnapshot:
        """A minute later, when all have reported."""
        self.minute += 1
        for number in range(BROKERS):
            self._report(number, self.minute * MINUTE_MS)
        return without_policies(self.view, SETTINGS, self.minute * MINUTE_MS)

    def modelled(self, *, in_a_cycle: bool) -> ModelledBrokers:
        """After the next reports, without moves."""
        memory: BalancedMemory = self.memories.of(SHEDDER)
        snapshot = self.reported()
        model = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, memory.model)
        full = FullBrokers((), {}) if in_a_cycle else None
        return ModelledBrokers(snapshot, model, 0.16, Left(), full=full)

    def moves(self, minutes: int) -> int:
        """How many are made in so many minutes."""
        return sum(len(self.next().unloads) for _ in range(minutes))

    def _report(self, number: int, now_ms: int) -> None:
        bundles = [bundle for bundle, owner in self.owner.items() if owner == number]
        times = {
            bundle: self.times(self.minute, int(bundle[3]))
            * (self.catch_up if self.minute - self._came.get(bundle, -9) <= 2 else 1.0)
            for bundle in bundles
        }
        work = {
            bundle: self.cost
            * self.dear.get(bundle, 1.0)
            * (0.01 if self.cheap and bundle[3] == str(CHEAP) else 1.0)
            * times[bundle]
            for bundle in bundles
        }
        wanted = self.wanted[number] = sum(work.values())
        served = 1 / max(wanted, 1.0)
        stats = {
            bundle: NamespaceBundleStats(
                msg_throughput_in=1e6
                * served
                * times[bundle]
                * self._random.uniform(0.97, 1.03)
                * self.lies.get(bundle, 1.0),
                msg_rate_in=1000.0,
                consumer_count=2,
            )
            for bundle in bundles
        }
        shown = min(wanted, 1.0) + self._random.gauss(0, self.noise)
        if self.boot:
            self.boot[number] += (shown - self.boot[number]) / (2000 + self.minute)
            shown = self.boot[number]
        used = 100 * min(max(shown, 0.01), self.top)
        cpu = ResourceUsage(usage=used, limit=100 * self.limits.get(number, 1.0))
        report = a_report(stats, cpu=cpu, last_update=now_ms)
        report.msg_throughput_in = sum(each.msg_throughput_in for each in stats.values())
        if self.card:
            used = self.card * sum(times.values())
            report.bandwidth_in = ResourceUsage(usage=1e6 * used, limit=1e6)
        self.view.observe(f"b{number}:8080", report, now_ms)


def codes(plan: Plan) -> set[str]:
    """Of what was not done."""
    return {skip.code for skip in plan.skipped}
