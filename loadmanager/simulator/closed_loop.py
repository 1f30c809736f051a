"""A simulated cluster in a closed loop with the leader's own cycle: each minute the brokers report,
the plan is carried out, and the loads of the next minute follow.

A bundle's load follows it. A move costs its clients a pause, and its new owner a surge while they
connect again. What a broker cannot do, it does not do: above 100 % it reports 100 %.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from loadmanager.core.load.cluster_view import ClusterView
from loadmanager.core.load.columns import Array, Rows
from loadmanager.core.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies import cycle
from loadmanager.core.strategies.memories import Memories
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.simulator.days import CPU_OF_A_CORE, NIC_KBIT_S, Day, Event, Kind, Traffic

MS_PER_MINUTE = 60_000
START_MS = 1_700_000_000_000
NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a move costs, and how wrong sensors are."""

    pause_s: float = 0.15
    """For how long a bundle's clients are without an owner."""
    surge: float = 0.5
    """The new owner does this part of the bundle's work again for one minute."""
    cpu_noise: float = 0.04
    """Standard deviation of the CPU sensor, as a fraction."""
    spikes: float = 0.005
    """How often a CPU sensor shows 25 points too much."""


@dataclass(slots=True)
class Minute:
    """What one minute was like."""

    usage: Array
    """Of the live brokers, as a fraction: what they had to do; more than 1 if it was too much."""
    moves: int
    moved_bytes_s: float
    again: int
    """Bundles that were moved twice within an hour."""
    pause_s: float
    """Seconds that clients were without an owner because of moves, summed over clients."""
    placed: int
    """Bundles of a dead broker that were placed."""
    events: tuple[Event, ...]


class ClosedLoop:
    """One day under one strategy; the same seed gives the same minutes."""

    def __init__(self, day: Day, settings: StrategySettings, costs: Costs | None = None) -> None:
        self._day, self._settings, self._costs = day, settings, costs or Costs()
        self._traffic = Traffic(day)
        self._noise = np.random.default_rng([day.seed, 2])
        self._rng = random.Random(day.seed)  # noqa: S311 - reproducible, not secret
        self._view, self._memories = ClusterView(), Memories()
        self._names = sorted(day.cores)
        self._row = {name: row for row, name in enumerate(self._names)}
        self._live = set(day.brokers)
        self._liars: set[str] = set()
        self._index = {bundle: at for at, bundle in enumerate(day.bundles)}
        # as a cold start leaves them: spread without regard to load
        order = self._noise.permutation(len(day.bundles))
        self._owner: Rows = np.empty(len(order), np.int64)
        self._owner[order] = [
            self._row[day.brokers[at % len(day.brokers)]] for at in range(len(order))
        ]
        self._surge = np.zeros(len(order))
        self._moved_at = np.full(len(order), -(10**6))
        self._bundles_of: dict[int, list[int]] = {}
        self._changed_owners()

    def minute(self, minute: int) -> Minute:
        """Run the next minute."""
        now_ms = START_MS + minute * MS_PER_MINUTE
        events = tuple(event for event in self._day.events if event.minute == minute)
        for event in events:
            self._happens(event, now_ms)
        carried = self._traffic.minute(minute)
        placed = self._place(now_ms, carried)
        usage = self._report(now_ms, carried)
        plan, self._memories = cycle.shed(self._snapshot(now_ms), self._settings, self._memories)
        plan, self._memories = cycle.destinations(
            self._snapshot(now_ms), plan, self._settings, self._memories, self._rng
        )
        self._surge[:] = 0
        moved = [self._index[unload.bundle] for unload in plan.unloads]
        for unload, at in zip(plan.unloads, moved, strict=True):
            assert unload.destination is not None
            self._view.placed(unload.bundle, unload.destination, now_ms)
            self._view.moved(unload.bundle, unload.source, now_ms)
            self._owner[at] = self._row[unload.destination]
        self._surge[moved] = self._costs.surge
        again = int((minute - self._moved_at[moved] <= 60).sum())
        self._moved_at[moved] = minute
        if moved:
            self._changed_owners()
        return Minute(
            usage=usage,
            moves=len(moved),
            moved_bytes_s=float(carried[moved].sum()),
            again=again,
            pause_s=float(self._day.clients[moved].sum() * self._costs.pause_s),
            placed=placed,
            events=events,
        )

    def _snapshot(self, now_ms: int, *, passing: bool = False) -> ClusterSnapshot:
        return self._view.snapshot(
            now_ms,
            self._settings,
            isolation_policies={},
            anti_affinity_groups={},
            failure_domains={},
            passing=passing,
        )

    def _happens(self, event: Event, now_ms: int) -> None:
        if event.kind is Kind.DIES:
            self._live.discard(event.broker)
            self._view.gone(event.broker, now_ms)
            self._owner[self._owner == self._row[event.broker]] = NOBODY
            self._changed_owners()
        elif event.kind is Kind.JOINS:
            self._live.add(event.broker)
        elif event.kind is Kind.LIES:
            self._liars.add(event.broker)
        else:
            self._liars.discard(event.broker)

    def _place(self, now_ms: int, carried: Array) -> int:
        """Lookups of clients have every bundle without an owner placed, the busiest first."""
        unowned = np.flatnonzero(self._owner == NOBODY)
        if not len(unowned) or not self._view.reports:
            return 0
        for at in unowned[np.argsort(-carried[unowned], kind="stable")].tolist():
            bundle = self._day.bundles[at]
            (choice,), self._memories = cycle.place(
                self._snapshot(now_ms, passing=True),
                [bundle],
                self._settings,
                self._memories,
                self._rng,
            )
            if choice.broker is not None:
                self._view.placed(bundle, choice.broker, now_ms)
                self._owner[at] = self._row[choice.broker]
                self._surge[at] = self._costs.surge
        self._changed_owners()
        return len(unowned)

    def _changed_owners(self) -> None:
        order = np.argsort(self._owner, kind="stable")
        owners = self._owner[order]
        starts = np.searchsorted(owners, np.arange(len(self._names) + 1))
        for row in range(len(self._names)):
            self._bundles_of[row] = order[starts[row] : starts[row + 1]].tolist()

    def _report(self, now_ms: int, carried: Array) -> Array:
        """Every live broker reports; returns what they had to do."""
        day, owned = self._day, self._owner != NOBODY
        owner = self._owner[owned]

        def of_brokers(amounts: Array) -> Array:
            return np.bincount(owner, amounts[owned], len(self._names)).astype(np.float64)

        work = of_brokers(carried * day.cost * (1 + self._surge))
        bytes_s, messages = of_brokers(carried), of_brokers(carried / day.message_bytes)
        noise = 1 + self._noise.normal(0, self._costs.cpu_noise, len(self._names))
        spikes = 25.0 * (self._noise.random(len(self._names)) < self._costs.spikes)
        stats = self._stats(carried)
        usages = []
        for broker in sorted(self._live):
            row, limit = self._row[broker], day.cores[broker] * CPU_OF_A_CORE
            usages.append(work[row] / limit)
            points = 100 * work[row] / limit * noise[row] + spikes[row]
            points += 40 * (broker in self._liars)
            report = _report_of(
                broker, ResourceUsage(usage=min(points, 100) * limit / 100, limit=limit)
            )
            report.last_stats = {day.bundles[at]: stats[at] for at in self._bundles_of[row]}
            report.bundles = list(report.last_stats)
            report.num_bundles = report.num_topics = len(report.bundles)
            _set_traffic(report, float(bytes_s[row]), float(messages[row]), now_ms)
            self._view.observe(broker, report, now_ms)
            self._memories = cycle.observe(broker, report, self._settings, self._memories)
        return np.array(usages)

    def _stats(self, carried: Array) -> list[NamespaceBundleStats]:
        halves = (carried / 2).tolist()
        rates = (carried / self._day.message_bytes / 2).tolist()
        return [
            NamespaceBundleStats(
                msg_rate_in=rate,
                msg_rate_out=rate,
                msg_throughput_in=half,
                msg_throughput_out=half,
                consumer_count=clients,
                topics=1,
            )
            for half, rate, clients in zip(halves, rates, self._day.clients.tolist(), strict=True)
        ]


def _report_of(broker: str, cpu: ResourceUsage) -> LocalBrokerData:
    return LocalBrokerData(
        web_service_url=f"http://{broker}",
        pulsar_service_url=f"pulsar://{broker}",
        broker_id=broker,
        load_manager_class_name=(
            "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
        ),
        cpu=cpu,
    )


def _set_traffic(report: LocalBrokerData, bytes_s: float, messages: float, now_ms: int) -> None:
    kbit_s = bytes_s / 2 * 8 / 1000
    report.bandwidth_in = ResourceUsage(usage=kbit_s, limit=NIC_KBIT_S)
    report.bandwidth_out = ResourceUsage(usage=kbit_s, limit=NIC_KBIT_S)
    report.msg_throughput_in = report.msg_throughput_out = bytes_s / 2
    report.msg_rate_in = report.msg_rate_out = messages / 2
    report.last_update = now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What a day was like, for clients and for operators."""

    spread: float
    """Standard deviation of the brokers' usage in points, mean over the minutes."""
    gap: float
    """The most used broker above the mean, in points, mean over the minutes."""
    hot_minutes: int
    """Minutes of brokers above 85 %."""
    moves: int
    moved_bytes: float
    """Bytes/s of the moved bundles, summed."""
    again: int
    """Bundles that were moved a second time within an hour."""
    pause_s: float
    """Seconds that clients were without an owner because of moves, summed over clients."""
    settle_minutes: float
    """Minutes after an event until the spread is as on average before it, at most 60; the mean."""


HOT = 0.85
SETTLE_MINUTES_MAX = 60
WARM_UP_MINUTES = 20
"""Not measured: averages begin empty."""


def run(day: Day, settings: StrategySettings, costs: Costs | None = None) -> list[Minute]:
    """All minutes of a day."""
    loop = ClosedLoop(day, settings, costs)
    return [loop.minute(minute) for minute in range(day.shape.minutes)]


def measure(minutes: list[Minute]) -> Measures:
    """What the minutes after the first were like."""
    spreads = np.array([minute.usage.std() * 100 for minute in minutes])
    measured = minutes[WARM_UP_MINUTES:]
    usual = float(np.median(spreads[WARM_UP_MINUTES:])) * 1.1
    settled = []
    for at, minute in enumerate(minutes):
        if minute.events and at >= WARM_UP_MINUTES:
            calm = np.flatnonzero(spreads[at : at + SETTLE_MINUTES_MAX] <= usual)
            settled.append(float(calm[0]) if len(calm) else SETTLE_MINUTES_MAX)
    return Measures(
        spread=float(spreads[WARM_UP_MINUTES:].mean()),
        gap=float(
            np.mean([(minute.usage.max() - minute.usage.mean()) * 100 for minute in measured])
        ),
        hot_minutes=sum(int((minute.usage > HOT).sum()) for minute in measured),
        moves=sum(minute.moves for minute in measured),
        moved_bytes=sum(minute.moved_bytes_s for minute in measured),
        again=sum(minute.again for minute in measured),
        pause_s=sum(minute.pause_s for minute in measured),
        settle_minutes=float(np.mean(settled)) if settled else 0.0,
    )
