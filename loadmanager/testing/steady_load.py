"""A cluster of the modular manager under noisy but stationary load, in a closed loop with the
leader's own cycle.

It begins skewed: one broker has far more than its share. When the strategy has come to rest, the
noise goes on for twenty cycles; then an empty broker joins, and after it has come to rest again the
noise goes on for twenty more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import cycle, newcomers
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Skip
from loadmanager.engine.strategies.settings import StrategySettings

BROKERS, BUNDLES = 6, 120
SKEW = 0.3
"""The part of all load that the first broker begins with."""
MEAN_USAGE = 0.5
NOISE = 0.1
REST_CYCLES, STILL_CYCLES, CYCLES_MAX = 35, 20, 400
"""Without a move for so many cycles, longer than the grace period: at rest. Then so many more. An
end of patience.
"""
NEWCOMER = "b9:8080"
BYTES_S = 20e6
"""Of a mean bundle."""
MESSAGE_BYTES = 2_000


@dataclass(slots=True)
class Phase:
    """The cycles and moves until the cluster came to rest, and the state at rest."""

    cycles: int = 0
    """Until the last move before the rest."""
    moves: int = 0
    bytes_s: float = 0.0
    """Bytes/s of the moved bundles, summed."""
    gap: float = 0.0
    """The most used broker above the mean, in points, at rest."""
    hottest: float = 0.0
    """Usage of the most used broker at rest, in percent."""
    still_moves: int = 0
    """Moves in the twenty cycles after that."""
    moves_of_one: Counter[str] = field(default_factory=Counter)
    """Bundle → how often it was moved until the rest."""


@dataclass(slots=True)
class BothPhases:
    """Both phases under one shedder."""

    skewed: Phase
    joined: Phase
    share: float
    """What the newcomer carries in the end, as a part of the mean broker's load."""
    why: tuple[Skip, ...]
    """What the decisions say of brokers that stay nearly empty."""


class SteadyCluster:
    """The cluster and its leader."""

    def __init__(
        self,
        settings: StrategySettings,
        seed: int,
        brokers: int = BROKERS,
        skew: float = SKEW,
    ) -> None:
        self._settings, self._rng = settings, random.Random(seed)  # noqa: S311 - repeats
        self._view, self.memories = ClusterView(), Memories()
        self._now_ms = 1_700_000_000_000
        self.brokers = [f"b{number}:8080" for number in range(brokers)]
        width = (1 << 32) // BUNDLES
        names = [
            f"t/n{number % 8}/0x{number * width:08x}_0x{(number + 1) * width:08x}"
            for number in range(BUNDLES)
        ]
        sizes = [(rank + 1) ** -0.5 for rank in range(BUNDLES)]
        scale = BYTES_S * BUNDLES / sum(sizes)
        self._rng.shuffle(sizes)
        self._base = {name: size * scale for name, size in zip(names, sizes, strict=True)}
        self._capacity = sum(self._base.values()) / brokers / MEAN_USAGE
        self.owner: dict[str, str] = {}
        placed = 0.0
        for number, name in enumerate(names):
            skewed = placed < skew * sum(self._base.values())
            placed += self._base[name]
            at = 0 if skewed else number % brokers if skew == 0 else 1 + number % (brokers - 1)
            self.owner[name] = self.brokers[at]
        self.why: tuple[Skip, ...] = ()

    def usages(self) -> dict[str, float]:
        """The load of each broker without noise, as a part of its capacity."""
        carried = dict.fromkeys(self.brokers, 0.0)
        for bundle, broker in self.owner.items():
            carried[broker] += self._base[bundle]
        return {broker: load / self._capacity for broker, load in carried.items()}

    @property
    def gap(self) -> float:
        """The most used broker above the mean, without noise, in points."""
        usages = self.usages().values()
        return 100 * (max(usages) - sum(usages) / len(usages))

    def cycle(self) -> dict[str, float]:
        """Every broker reports, and the plan is carried out; moved bundles and their bytes/s."""
        self._now_ms += 60_000
        loads = {
            bundle: base * (1 + NOISE * self._rng.uniform(-1, 1))
            for bundle, base in self._base.items()
        }
        for broker in self.brokers:
            report = self._report(broker, loads)
            self._view.observe(broker, report, self._now_ms)
            self.memories = cycle.observe(broker, report, self._settings, self.memories)
        plan, self.memories = cycle.shed(self._snapshot(), self._settings, self.memories)
        plan, self.memories = cycle.destinations(
            self._snapshot(), plan, self._settings, self.memories, self._rng
        )
        self.why = newcomers.left_out(self._snapshot(), plan)
        for unload in plan.unloads:
            assert unload.destination is not None, "a final plan has destinations"
            self.owner[unload.bundle] = unload.destination
            self._view.placed(unload.bundle, unload.destination, self._now_ms)
            self._view.moved(unload.bundle, unload.source, self._now_ms)
        return {unload.bundle: loads[unload.bundle] for unload in plan.unloads}

    def leave(self, brokers: Sequence[str]) -> None:
        """Brokers stop; the next lookups have their bundles placed."""
        self.brokers = [broker for broker in self.brokers if broker not in brokers]
        for broker in brokers:
            self._view.gone(broker, self._now_ms)
        for bundle in [name for name, owner in self.owner.items() if owner in brokers]:
            (choice,), self.memories = cycle.place(
                self._snapshot(passing=True), [bundle], self._settings, self.memories, self._rng
            )
            assert choice.broker is not None, "there are brokers"
            self.owner[bundle] = choice.broker
            self._view.placed(bundle, choice.broker, self._now_ms)

    def _snapshot(self, *, passing: bool = False) -> ClusterSnapshot:
        return self._view.snapshot(
            self._now_ms,
            self._settings,
            isolation_policies={},
            anti_affinity_groups={},
            failure_domains={},
            passing=passing,
        )

    def _report(self, broker: str, loads: dict[str, float]) -> LocalBrokerData:
        stats = {
            bundle: NamespaceBundleStats(
                msg_throughput_in=loads[bundle] / 2,
                msg_throughput_out=loads[bundle] / 2,
                msg_rate_in=loads[bundle] / 2 / MESSAGE_BYTES,
                msg_rate_out=loads[bundle] / 2 / MESSAGE_BYTES,
                producer_count=1,
                consumer_count=1,
                topics=2,
            )
            for bundle, owner in self.owner.items()
            if owner == broker
        }
        total = sum(loads[bundle] for bundle in stats)
        used = min(100.0, 100 * total / self._capacity)
        kbit_s = ResourceUsage(usage=total / 2 * 8 / 1000, limit=self._capacity * 8 / 1000)
        return LocalBrokerData(
            web_service_url=f"http://{broker}",
            pulsar_service_url=f"pulsar://{broker}",
            cpu=ResourceUsage(usage=used, limit=100),
            bandwidth_in=kbit_s,
            bandwidth_out=kbit_s,
            last_stats=stats,
            bundles=sorted(stats),
            num_bundles=len(stats),
            msg_throughput_in=total / 2,
            msg_throughput_out=total / 2,
            msg_rate_in=total / 2 / MESSAGE_BYTES,
            msg_rate_out=total / 2 / MESSAGE_BYTES,
            last_update=self._now_ms,
        )

    def come_to_rest(self) -> Phase:
        """Cycles until nothing has moved for a while, and twenty more."""
        phase, quiet = Phase(), 0
        for number in range(1, CYCLES_MAX + 1):
            moved = self.cycle()
            phase.moves += len(moved)
            phase.bytes_s += sum(moved.values())
            phase.moves_of_one.update(moved.keys())
            quiet = 0 if moved else quiet + 1
            if moved:
                phase.cycles = number
            if quiet == REST_CYCLES:
                break
        phase.hottest, phase.gap = 100 * max(self.usages().values()), self.gap
        phase.still_moves = sum(len(self.cycle()) for _ in range(STILL_CYCLES))
        return phase


def skewed_then_joined(settings: StrategySettings, seed: int = 1) -> BothPhases:
    """Both phases."""
    steady = SteadyCluster(settings, seed)
    skewed = steady.come_to_rest()
    steady.brokers.append(NEWCOMER)
    joined = steady.come_to_rest()
    usages = steady.usages()
    share = usages[NEWCOMER] / (sum(usages.values()) / len(usages))
    return BothPhases(skewed, joined, share, steady.why)


def resized(settings: StrategySettings, seed: int = 1) -> tuple[Phase, Phase]:
    """From five brokers at rest to ten, and from these to five again."""
    steady = SteadyCluster(settings, seed, brokers=5)
    steady.come_to_rest()
    others = [f"c{number}:8080" for number in range(5)]
    steady.brokers += others
    grown = steady.come_to_rest()
    steady.leave(others)
    return grown, steady.come_to_rest()
