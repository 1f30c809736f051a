"""A simulated cluster in a closed loop with the leader's own cycle: each minute the brokers report,
the plan is carried out, and the loads of the next minute follow.

A bundle's load follows it. A move costs its clients a pause, and its new owner a surge while they
connect again. What a broker cannot do, it does not do: above 100 % it reports 100 %.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.modelled import PAUSE_S
from loadmanager.kit.units import MINUTE_MS
from loadmanager.lab.brokers import NOBODY, Fleet, MinuteReports
from loadmanager.lab.day_rules import NO_RULES, in_force
from loadmanager.lab.days import DayEvent, DayOfLoad, Kind, traffic
from loadmanager.lab.measures import FLAP_MINUTES, Minute

START_MS = 1_700_000_000_000
UNMOVED_NOISE = 0.02
"""Standard deviation of a sensor that does not follow its broker, as a fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs of a move, and the error of sensors."""

    pause_s: float = PAUSE_S
    """For how long a bundle's clients are without an owner."""
    surge: float = 0.5
    """The new owner does this part of the bundle's work again for one minute."""
    cpu_noise: float = 0.04
    """Standard deviation of the CPU sensor, as a fraction."""
    spikes: float = 0.005
    """How often a CPU sensor shows 25 points too much."""


class Sensors:
    """The CPU sensors of a day: noisy, late, and wrong when an event says so."""

    def __init__(self, day: DayOfLoad, costs: Costs, noise: np.random.Generator) -> None:
        self._day, self._costs, self._noise = day, costs, noise
        self._wrong: dict[str, DayEvent] = {}
        self._stuck: dict[str, float] = {}
        self._lately: deque[Array] = deque(maxlen=day.late_minutes + 2)
        self.untrusted: set[str] = set()

    def happens(self, event: DayEvent) -> None:
        """A sensor is wrong from now on, or right again."""
        self._wrong.pop(event.broker, None)
        self._stuck.pop(event.broker, None)
        self.untrusted.discard(event.broker)
        if event.kind is Kind.UNTRUSTED:
            self.untrusted.add(event.broker)
        elif event.kind is not Kind.HONEST:
            self._wrong[event.broker] = event

    def minute(self, minute: int, used: Array, names: Sequence[str]) -> list[float]:
        """What they show, as a fraction, of what is used."""
        if not self._lately:
            self._lately.extend([used] * (self._day.late_minutes + 1))
        self._lately.append(used)
        before, then = self._lately[0], self._lately[1]
        late = (1 - self._day.lag) * then + self._day.lag * before
        noise = 1 + self._noise.normal(0, self._costs.cpu_noise, len(used))
        spikes = 0.25 * (self._noise.random(len(used)) < self._costs.spikes)
        shown: list[float] = (late * noise + spikes).tolist()
        for broker, event in self._wrong.items():
            at = names.index(broker)
            if event.kind in (Kind.STICKS, Kind.STUCK_LOW):
                low = 0.2 if event.kind is Kind.STUCK_LOW else shown[at]
                shown[at] = self._stuck.setdefault(broker, low)
            elif event.kind is Kind.UNMOVED:
                low = self._stuck.setdefault(broker, 0.75 * shown[at])
                shown[at] = low * (1 + UNMOVED_NOISE * float(self._noise.normal()))
            elif event.kind is Kind.JUMPS:
                shown[at] += 0.3 if self._noise.random() < 0.5 else -0.3
            elif event.kind is Kind.DRIFTS:
                shown[at] -= min(0.005 * (minute - event.minute), 0.4)
            else:
                shown[at] += 0.4 if event.kind is Kind.LIES else -0.3
        if step := self._day.step:
            shown = [round(each / step) * step for each in shown]
        return [min(max(each, 0.0), 1.0) for each in shown]


def changed(day: DayOfLoad, carried: Array, minute: int) -> Array:
    """The traffic of a minute with the changes of a day."""
    for change in day.changes:
        if change.minute <= minute < change.minute + change.minutes:
            carried = carried.copy()
            if change.bundles is None:
                carried *= change.factor
            else:
                carried[change.bundles] *= change.factor
    return carried


class ClosedLoop:
    """One day under one strategy; the same seed gives the same minutes."""

    def __init__(
        self, day: DayOfLoad, settings: StrategySettings, costs: Costs | None = None
    ) -> None:
        self._day, self._settings, self._costs = day, settings, costs or Costs()
        self._traffic = traffic(day)
        self._noise = np.random.default_rng([day.seed, 2])
        self._rng = random.Random(day.seed)  # noqa: S311 - reproducible, not secret
        self._view, self.memories = ClusterView(), Memories()
        self.plan = Plan(settings.shedder)
        """That of the last cycle."""
        self._live = set(day.brokers)
        self._sensors = Sensors(day, self._costs, self._noise)
        self._index = {bundle: at for at, bundle in enumerate(day.bundles)}
        self._opens = np.array(day.opens or np.zeros(len(day.bundles)), np.int64)
        owner = np.where(self._opens > 0, NOBODY, self._cold_start())
        self._fleet = Fleet(day.cores, day.bundles, owner)
        self._surge = np.zeros(len(day.bundles))
        self._moved_at = np.full(len(day.bundles), -(10**6))
        self._rules = NO_RULES

    def _cold_start(self) -> Rows:
        """Owners at the beginning; spread without regard to load, if the day does not say."""
        day, names = self._day, sorted(self._day.cores)
        if day.owners:
            return np.array([names.index(broker) for broker in day.owners], np.int64)
        order = self._noise.permutation(len(day.bundles))
        owner: Rows = np.empty(len(order), np.int64)
        rows = [names.index(broker) for broker in day.brokers]
        owner[order] = [rows[at % len(rows)] for at in range(len(order))]
        return owner

    def minute(self, minute: int) -> Minute:
        """Run the next minute."""
        now_ms = START_MS + minute * MINUTE_MS
        events = tuple(event for event in self._day.events if event.minute == minute)
        for event in events:
            self._happens(event, now_ms)
        carried = changed(self._day, self._traffic.minute(minute), minute)
        ordered = self._obey(minute, now_ms)
        placed = self._place(minute, now_ms, carried) - len(ordered)
        usage = self._report(now_ms, minute, carried)
        plan = self.decide(now_ms)
        self._surge[:] = 0
        decided = [self._index[unload.bundle] for unload in plan.unloads]
        for unload, at in zip(plan.unloads, decided, strict=True):
            assert unload.destination is not None
            self._view.placed(unload.bundle, unload.destination, now_ms)
            self._view.moved(unload.bundle, unload.source, now_ms)
            self._fleet.move([at], self._fleet.row_of[unload.destination])
        self._surge[decided] = self._costs.surge
        moved = [*ordered, *decided]
        again = int((minute - self._moved_at[moved] <= FLAP_MINUTES).sum())
        self._moved_at[moved] = minute
        return Minute(
            usage=usage,
            moves=len(moved),
            moved_bytes_s=float(carried[moved].sum()),
            again=again,
            pause_s=float(self._day.clients[moved].sum() * self._costs.pause_s),
            placed=placed,
            events=events,
            carried=float(carried.sum()),
            live=tuple(sorted(self._live)),
        )

    def decide(self, now_ms: int) -> Plan:
        """The leader's cycle."""
        snapshot = self._snapshot(now_ms)
        plan, memories = cycle.shed(snapshot, self._settings, self.memories)
        self.plan, self.memories = cycle.destinations(
            snapshot, plan, self._settings, memories, self._rng
        )
        return self.plan

    def _snapshot(self, now_ms: int, *, passing: bool = False) -> ClusterSnapshot:
        snapshot = self._view.snapshot(
            now_ms,
            self._settings,
            isolation_policies=self._rules.policies,
            anti_affinity_groups=self._rules.groups,
            failure_domains=self._rules.failure_domains,
            wishes=self._rules.wishes,
            passing=passing,
        )
        return snapshot.having(pause_s=self._costs.pause_s)

    def _happens(self, event: DayEvent, now_ms: int) -> None:
        if event.kind is Kind.DIES:
            self._live.discard(event.broker)
            self._view.gone(event.broker, now_ms)
            dead = self._fleet.row_of[event.broker]
            self._fleet.move(np.flatnonzero(self._fleet.owner == dead), NOBODY)
        elif event.kind is Kind.JOINS:
            self._live.add(event.broker)
        else:
            self._sensors.happens(event)

    def _obey(self, minute: int, now_ms: int) -> list[int]:
        """Take up new rules: bundles leave brokers that are drained, and those that are not where
        they are pinned to, and have no owner until they are placed. Returns them.
        """
        before, self._rules = self._rules, in_force(self._day.rules, minute)
        if self._rules is before or not self._rules.wishes:
            return []
        fleet, owner = self._fleet, self._fleet.owner
        drained = [fleet.row_of[name] for name in self._rules.drained if name in self._live]
        leaving = set(np.flatnonzero(np.isin(owner, drained)).tolist())
        for at, bundle in enumerate(self._day.bundles if self._rules.pins else ()):
            pin = self._rules.wishes.pin_of(bundle)
            if pin is not None and pin.broker in self._live:
                leaving |= {at} if owner[at] not in (NOBODY, fleet.row_of[pin.broker]) else set()
        for at in leaving:
            self._view.moved(self._day.bundles[at], fleet.names[owner[at]], now_ms)
        fleet.move(sorted(leaving), NOBODY)
        return sorted(leaving)

    def _place(self, minute: int, now_ms: int, carried: Array) -> int:
        """Lookups of clients have every bundle without an owner placed, the busiest first."""
        unowned = np.flatnonzero((self._fleet.owner == NOBODY) & (self._opens <= minute))
        if not len(unowned) or not self._view.reports:
            return 0
        for at in unowned[np.argsort(-carried[unowned], kind="stable")].tolist():
            bundle = self._day.bundles[at]
            (choice,), self.memories = cycle.place(
                self._snapshot(now_ms, passing=True),
                [bundle],
                self._settings,
                self.memories,
                self._rng,
            )
            if choice.broker is not None:
                self._view.placed(bundle, choice.broker, now_ms)
                self._fleet.move([at], self._fleet.row_of[choice.broker])
                self._surge[at] = self._costs.surge
        return len(unowned)

    def _report(self, now_ms: int, minute: int, carried: Array) -> Array:
        """Every live broker reports; returns what they had to do."""
        day, fleet = self._day, self._fleet
        limits = np.array(fleet.limits)
        slow = np.array([day.slow.get(name, 1.0) for name in fleet.names])
        work = slow * fleet.of(carried * day.cost * (1 + self._surge)) + day.beside * limits
        shown = self._sensors.minute(minute, work / limits, fleet.names)
        reports = MinuteReports(fleet, carried, day.message_bytes, day.clients)
        usages = []
        for broker in sorted(self._live):
            row = fleet.row_of[broker]
            limit = fleet.limits[row]
            usages.append(work[row] / limit)
            cpu = ResourceUsage(usage=shown[row] * limit, limit=limit)
            if broker in self._sensors.untrusted:
                cpu = ResourceUsage()
            report = reports.of(row, cpu, now_ms)
            self._view.observe(broker, report, now_ms)
            self.memories = cycle.observe(broker, report, self._settings, self.memories)
        return np.array(usages)


def run(day: DayOfLoad, settings: StrategySettings, costs: Costs | None = None) -> list[Minute]:
    """All minutes of a day."""
    loop = ClosedLoop(day, settings, costs)
    return [loop.minute(minute) for minute in range(day.minutes)]
