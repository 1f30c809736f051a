"""A cluster whose physics are not those of replays: what recorded days are compared with.

A replay takes usage for an idle part and a cost for each byte of a class of namespaces. Here CPU
goes by bytes, messages and clients, with other sizes of messages for each namespace and hour; what
brokers use beside it differs and drifts; some machines are slow; much work at once is done a little
cheaper; garbage is collected; a sensor shows the mean of two minutes and has errors that last; a
moved bundle's clients come back bit by bit and then catch up; some orders of moves fail. The
decisions are the leader's own cycle.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from loadmanager.engine.bundles.ranges import bundle_name, equal_boundaries
from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.units import MINUTE_MS
from loadmanager.lab.brokers import NOBODY, Fleet, MinuteReports
from loadmanager.lab.days import CPU_OF_A_CORE
from loadmanager.lab.measures import Measures, Minute, measure

START_MS = 1_690_000_020_000
CORES = 4.0
USED = 0.5
"""The mean usage by traffic at the usual hour."""
NOTHING = ResourceUsage()


@dataclass(frozen=True, kw_only=True)
class WorldKind:
    """A kind of cluster."""

    name: str
    brokers: int
    spaces: int
    """Namespaces."""
    bundles: int
    """Of each namespace."""
    idle: tuple[float, float]
    """Between these is what brokers use beside traffic."""
    skew: float
    """How unequal namespaces are: the power of Zipf's law."""
    settings: StrategySettings
    moves_per_hour: int = 10**6
    """More are not begun."""
    fails: float = 0.0
    """The part of the moves that fail."""
    aged: bool = False
    """Whether reports are those of the minute before, as a daemon reads them."""


BALANCED = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")
KINDS = (
    WorldKind(
        name="few big bundles",
        brokers=6,
        spaces=12,
        bundles=4,
        idle=(0.02, 0.05),
        skew=0.9,
        settings=StrategySettings(shedder="ThresholdShedder"),
    ),
    WorldKind(
        name="many small bundles, idle CPU",
        brokers=12,
        spaces=60,
        bundles=16,
        idle=(0.15, 0.25),
        skew=0.6,
        settings=StrategySettings(shedder="AvgShedder", placement="AvgShedder"),
    ),
    WorldKind(
        name="daemon beside a Pulsar",
        brokers=8,
        spaces=24,
        bundles=8,
        idle=(0.08, 0.15),
        skew=0.8,
        settings=BALANCED,
        moves_per_hour=60,
        fails=0.03,
        aged=True,
    ),
)


@dataclass
class LivedDay:
    """A day of such a cluster: what it recorded, and what truly happened."""

    loads: list[BrokerLoad | BundleLoad] = field(default_factory=list)
    minutes: list[Minute] = field(default_factory=list)

    @property
    def truth(self) -> Measures:
        """By the work that was there, whatever sensors showed."""
        return measure(self.minutes)


class OtherWorld:
    """One cluster; `day` lives a day of it. The same seed makes the same cluster."""

    def __init__(self, kind: WorldKind, seed: int) -> None:
        self.kind = kind
        rng = np.random.default_rng([seed, 77])
        edges = equal_boundaries(kind.bundles)
        self.names = tuple(
            bundle_name(f"tenant-{space % 5}/app-{space:02}", f"0x{low:08x}_0x{high:08x}")
            for space in range(kind.spaces)
            for low, high in zip(edges, edges[1:], strict=False)
        )
        self.space = np.repeat(np.arange(kind.spaces), kind.bundles)
        sizes = (1.0 + np.arange(kind.spaces)) ** -kind.skew
        parts = sizes[self.space] * rng.lognormal(0, 0.5, len(self.names))
        self.message = rng.choice([150.0, 700.0, 3_000.0, 12_000.0], kind.spaces)
        self.phase = rng.uniform(0, 1, kind.spaces)
        self.clients = rng.integers(2, 60, len(self.names))
        self.brokers = [f"10.1.0.{number + 1}:8080" for number in range(kind.brokers)]
        self.idle = rng.uniform(*kind.idle, kind.brokers)
        self.speed = np.where(rng.random(kind.brokers) < 0.2, 1.35, 1.0)
        work = USED * kind.brokers * CORES * CPU_OF_A_CORE * parts / parts.sum()
        per_byte = 0.5 + 0.5 * 2_000 / self.message[self.space]
        self.bytes = work / per_byte / 1e-6
        self.per_byte = 0.5e-6
        self.per_message = 1e-3

    def day(self, number: int, settings: StrategySettings, minutes: int) -> LivedDay:
        """A day under these settings; the traffic of a day is the same under all."""
        return _Lived(self, number, settings, minutes).all()


class _Lived:
    """One day while it is lived."""

    def __init__(
        self, world: OtherWorld, number: int, settings: StrategySettings, minutes: int
    ) -> None:
        self.world, self.kind, self.settings = world, world.kind, settings
        self.number, self.length = number, minutes
        self.traffic = np.random.default_rng([number, 1])
        self.noise = np.random.default_rng([number, 2])
        self.rng = random.Random(number)
        count, brokers = len(world.names), self.kind.brokers
        names = world.brokers
        owner = np.random.default_rng([5]).permutation(count) % brokers
        self.fleet = Fleet(dict.fromkeys(names, CORES), world.names, owner)
        self.limit = CORES * CPU_OF_A_CORE
        self.view, self.memories = ClusterView(), Memories()
        self.walk = np.zeros(self.kind.spaces)
        self.away = np.zeros(count)
        """The part of a bundle's clients that are not back yet; less than 0: they catch up."""
        self.error, self.before = np.zeros(brokers), np.zeros(brokers)
        self.drift = np.zeros(brokers)
        self.begun: list[int] = []
        self.dead: dict[int, int] = {}
        """Row of a broker → the minute in which it comes back."""
        self.last: list[tuple[str, object]] = []
        self.crash = self.traffic.integers(60, minutes - 60) if number % 3 == 2 else -1
        self.crashed = int(self.traffic.integers(0, brokers))
        self.jobs = [
            (int(self.traffic.integers(0, self.kind.spaces)), int(at))
            for at in self.traffic.integers(0, minutes, 3)
        ]

    def all(self) -> LivedDay:
        lived = LivedDay()
        for minute in range(self.length):
            self._minute(minute, lived)
        return lived

    def _carried(self, minute: int) -> tuple[Array, Array]:
        """Bytes/s of each bundle, and the sizes of its messages."""
        world, at = self.world, (minute + 360) / 1440
        self.walk = 0.99 * self.walk + self.traffic.normal(0, 0.03, self.kind.spaces)
        shape = 1 + 0.35 * np.sin(2 * np.pi * (at + 0.4 * world.phase))
        shape += 0.12 * np.sin(4 * np.pi * (at + world.phase))
        factor = shape * np.exp(self.walk)
        for space, begins in self.jobs:
            if begins <= minute < begins + 15:
                factor[space] *= 3
        carried = world.bytes * factor[world.space]
        carried *= self.traffic.lognormal(0, 0.08, len(carried))
        sizes = world.message * (1 + 0.3 * np.sin(2 * np.pi * (at * 3 + world.phase)))
        self.away *= np.where(self.away > 0, 0.35, 0.2)
        self.away[np.abs(self.away) < 0.02] = 0
        return carried * (1 - self.away), sizes[world.space]

    def _work(self, carried: Array, sizes: Array) -> Array:
        """What each broker uses, as a fraction."""
        world = self.world
        work = carried * world.per_byte + carried / sizes * world.per_message
        work += 0.02 * world.clients
        used = world.speed * self.fleet.of(work) / self.limit
        used = used**0.94 * 0.5**0.06  # as much at a half; more at once is cheaper
        self.drift = 0.995 * self.drift + self.noise.normal(0, 0.001, len(used))
        garbage = 0.05 * (self.noise.random(len(used)) < 0.12)
        return np.asarray(used + world.idle + self.drift + garbage, np.float64)

    def _shown(self, used: Array) -> Array:
        before, self.before = self.before if self.before.any() else used, used
        self.error = 0.6 * self.error + self.noise.normal(0, 0.012, len(used))
        return np.clip(((used + before) / 2 + self.error).round(3), 0.0, 1.0)

    def _minute(self, minute: int, lived: LivedDay) -> None:
        now_ms = START_MS + (self.number * 1440 + minute) * MINUTE_MS
        self._lives(minute, now_ms)
        carried, sizes = self._carried(minute)
        if (self.fleet.owner == NOBODY).any():
            self._place(carried, now_ms)
        used = self._work(carried, sizes)
        shown = self._shown(used)
        reports = MinuteReports(self.fleet, carried, sizes, self.world.clients)
        live = [row for row in range(self.kind.brokers) if row not in self.dead]
        told: list[tuple[str, object]] = []
        for row in live:
            cpu = ResourceUsage(usage=shown[row] * self.limit, limit=self.limit)
            told.append((self.fleet.names[row], reports.of(row, cpu, now_ms)))
        seen = (self.last or told) if self.kind.aged else told
        for name, report in seen:
            if self.fleet.row_of[name] not in self.dead:
                self.view.observe(name, report, now_ms)
                self.memories = cycle.observe(name, report, self.settings, self.memories)
        self.last = told
        lived.loads += self._records(live, shown, carried, sizes, now_ms + MINUTE_MS)
        moves = self._shed(minute, now_ms, carried)
        lived.minutes.append(
            Minute(
                used[live],
                moves,
                0.0,
                0,
                0.0,
                0,
                (),
                float(carried.sum()),
                tuple(self.fleet.names[row] for row in live),
            )
        )

    def _lives(self, minute: int, now_ms: int) -> None:
        """A broker crashes, and is back after 12 minutes."""
        if minute == self.crash:
            self.dead[self.crashed] = minute + 12
            self.view.gone(self.fleet.names[self.crashed], now_ms)
            self.fleet.move(np.flatnonzero(self.fleet.owner == self.crashed), NOBODY)
        for row in [row for row, back in self.dead.items() if back == minute]:
            del self.dead[row]

    def _snapshot(self, now_ms: int, *, passing: bool = False) -> object:
        return self.view.snapshot(
            now_ms,
            self.settings,
            isolation_policies={},
            anti_affinity_groups={},
            failure_domains={},
            passing=passing,
        )

    def _place(self, carried: Array, now_ms: int) -> None:
        for at in np.flatnonzero(self.fleet.owner == NOBODY).tolist():
            bundle = self.world.names[at]
            (choice,), self.memories = cycle.place(
                self._snapshot(now_ms, passing=True),
                [bundle],
                self.settings,
                self.memories,
                self.rng,
            )
            if choice.broker is not None:
                self.view.placed(bundle, choice.broker, now_ms)
                self.fleet.move([at], self.fleet.row_of[choice.broker])
                self.away[at] = 0.6

    def _shed(self, minute: int, now_ms: int, carried: Array) -> int:
        snapshot = self._snapshot(now_ms)
        plan, memories = cycle.shed(snapshot, self.settings, self.memories)
        plan, self.memories = cycle.destinations(snapshot, plan, self.settings, memories, self.rng)
        self.begun = [at for at in self.begun if minute - at < 60]
        moved = 0
        for unload in plan.unloads:
            if unload.destination is None or len(self.begun) >= self.kind.moves_per_hour:
                continue
            self.begun.append(minute)
            if self.noise.random() < self.kind.fails:
                continue
            at = self.world.names.index(unload.bundle)
            self.view.placed(unload.bundle, unload.destination, now_ms)
            self.view.moved(unload.bundle, unload.source, now_ms)
            self.fleet.move([at], self.fleet.row_of[unload.destination])
            self.away[at] = 0.6
            moved += 1
        caught = (self.away > 0) & (self.away < 0.1)
        self.away[caught] = -0.15
        return moved

    def _records(
        self, live: list[int], shown: Array, carried: Array, sizes: Array, ts: int
    ) -> Iterator[BrokerLoad | BundleLoad]:
        names, owner = self.fleet.names, self.fleet.owner.tolist()
        for row in live:
            usage = float(shown[row])
            yield BrokerLoad(
                ts=ts,
                broker=names[row],
                interval_ms=MINUTE_MS,
                usage=usage,
                cpu=ResourceUsage(usage=usage * self.limit, limit=self.limit),
                memory=NOTHING,
                direct_memory=NOTHING,
                bandwidth_in=NOTHING,
                bandwidth_out=NOTHING,
            )
        figures = zip(
            self.world.names, owner, carried.tolist(), (carried / sizes).tolist(), strict=True
        )
        for at, (bundle, row, bytes_s, messages) in enumerate(figures):
            if row != NOBODY:
                yield BundleLoad(
                    ts=ts,
                    broker=names[row],
                    interval_ms=MINUTE_MS,
                    bundle=bundle,
                    msg_throughput_in=bytes_s / 2,
                    msg_throughput_out=bytes_s / 2,
                    msg_rate_in=messages / 2,
                    msg_rate_out=messages / 2,
                    producers=1,
                    consumers=int(self.world.clients[at]),
                )
