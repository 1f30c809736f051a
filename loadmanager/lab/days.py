"""Synthetic days: what every bundle carries in every minute, and what happens to the brokers.

A day is made from a seed, and the same seed makes the same day. Sizes of bundles follow Zipf's law;
tenants have a day pattern with a phase of their own; there is slow and fast noise, there are
bursts, a tenant that doubles and one that grows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.bundles.ranges import bundle_name, equal_boundaries
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.lab.day_rules import DayRules

MINUTES_PER_DAY = 24 * 60
CPU_OF_A_CORE = 100.0
"""CPU is in percent of one core, as in load reports."""
CORES = 8
NIC_KBIT_S = 10_000_000.0
USAGE_OF_ALL = 0.55
"""The mean usage of all brokers that the base load makes."""

ZIPF = 0.7
LARGEST = 0.15
"""The largest bundle as a part of a broker's load: larger ones would have been split."""
DAY_AMPLITUDE = 0.35
WEEKEND = 0.7
SLOW_NOISE, SLOW_KEPT = 0.35, 0.985
"""Slow noise of a bundle: a standard deviation in e-folds, and what is left of it after
a minute.
"""
FAST_NOISE = 0.1
BURSTS_PER_MINUTE = 0.0004


class Kind(Enum):
    """The kind of an event at a broker."""

    DIES = "dies"
    JOINS = "joins"
    """A new broker, or one that comes back: it has no bundles."""
    LIES = "lies"
    """Its CPU sensor shows 40 points too much."""
    LOW = "shows less"
    """Its CPU sensor shows 30 points too little."""
    STUCK_LOW = "stuck at 20 %"
    STICKS = "sticks"
    """Its CPU sensor shows for ever what it shows now."""
    DRIFTS = "drifts"
    """Its CPU sensor shows half a point less each minute, up to 40 points."""
    UNMOVED = "unmoved"
    """Its CPU sensor shows three quarters of what it shows now, whatever happens, with noise."""
    JUMPS = "jumps"
    """Its CPU sensor shows 30 points too much or too little, each minute by chance."""
    UNTRUSTED = "untrusted"
    """It says itself that its CPU sensor is not to be trusted: a limit of 0."""
    HONEST = "honest again"


SHOW_LESS = (
    Kind.LOW,
    Kind.STUCK_LOW,
    Kind.STICKS,
    Kind.DRIFTS,
    Kind.UNMOVED,
    Kind.UNTRUSTED,
)
"""Sensors that are wrong, and may make a broker look as if it had room."""


@dataclass(frozen=True, slots=True)
class DayEvent:
    """An event at the beginning of a minute."""

    minute: int
    kind: Kind
    broker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """Traffic that is so many times as much for a while."""

    minute: int
    minutes: int
    factor: float
    bundles: Rows | None = None
    """None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySize:
    """The size of a synthetic day, and its events."""

    brokers: int = 20
    bundles: int = 800
    minutes: int = 240
    unequal: bool = False
    """Brokers of half, single and double size."""
    events: bool = True
    """A broker dies and comes back, a new one joins, brokers restart one after the other."""
    lies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The traffic pattern of a synthetic day's bundles."""

    minutes: int
    tenants: Rows
    """The tenant of each bundle, as a number."""
    base: Array
    """Bytes/s in and out of each bundle, without pattern and noise."""
    phases: Array
    """The phase of each tenant, as a part of a day."""
    doubles: tuple[int, int]
    """A tenant, and the minute in which it begins to double."""
    grows: int
    """A tenant that grows by three fifths over the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOfLoad:
    """One day's load and events; arrays are indexed by bundle, in the order of `bundles`."""

    seed: int
    minutes: int
    brokers: tuple[str, ...]
    """The brokers at the beginning."""
    cores: dict[str, float]
    """brokerId → cores, also of brokers that join later."""
    bundles: tuple[str, ...]
    clients: Rows
    """Producers and consumers of each bundle."""
    cost: Array
    """CPU for each byte/s, in percent of one core."""
    message_bytes: Array
    events: tuple[DayEvent, ...]
    carried: Pattern | NDArray[np.float32]
    """What the bundles carry: made from a pattern, or recorded as bytes/s, `[minute, bundle]`."""
    beside: float = 0.0
    """What a broker uses beside its bundles, as a fraction."""
    lag: float = 0.0
    """The part of a CPU sensor's figure that is the last minute's."""
    late_minutes: int = 0
    """CPU sensors show what was so long before."""
    step: float = 0.0
    """CPU sensors show multiples of this part of a CPU; 0: any value."""
    slow: Mapping[str, float] = field(default_factory=dict)
    """brokerId → how many times the work costs there, which nothing says."""
    changes: tuple[Swing, ...] = ()
    owners: tuple[str, ...] = ()
    """The broker of each bundle at the beginning; empty: spread without regard to load."""
    opens: tuple[int, ...] = ()
    """The minute in which each bundle is created, and placed; empty: all are there from the start.
    """
    rules: tuple[DayRules, ...] = ()
    """What binds the leader beside its settings, in order of time."""


def make_day(seed: int, shape: DaySize) -> DayOfLoad:
    """The day of a seed."""
    rng = np.random.default_rng(seed)
    names = [_broker(number) for number in range(shape.brokers + 1)]
    sizes = rng.choice([0.5, 1.0, 1.0, 2.0], len(names)) if shape.unequal else np.ones(len(names))
    cores = {name: CORES * float(size) for name, size in zip(names, sizes, strict=True)}
    tenant_count = max(4, shape.bundles // 50)
    tenants = np.sort(rng.integers(0, tenant_count, shape.bundles))
    base = rng.permutation(np.arange(1, shape.bundles + 1) ** -ZIPF)
    base = np.minimum(base / base.sum(), LARGEST / shape.brokers)
    cost = rng.lognormal(0, 0.35, tenant_count)[tenants]
    everything = sum(cores[name] for name in names[:-1]) * CPU_OF_A_CORE * USAGE_OF_ALL
    bytes_per_core = 40e6
    base *= everything / CPU_OF_A_CORE * bytes_per_core / base.sum()
    cost *= everything / (base * cost).sum()
    return DayOfLoad(
        seed=seed,
        minutes=shape.minutes,
        brokers=tuple(names[:-1]),
        cores=cores,
        bundles=_names(tenants),
        clients=1 + rng.poisson(base / base.mean() * 12),
        cost=cost,
        message_bytes=rng.lognormal(math.log(1024), 0.8, tenant_count)[tenants],
        carried=Pattern(
            minutes=shape.minutes,
            tenants=tenants,
            base=base,
            phases=rng.random(tenant_count),
            doubles=(int(rng.integers(tenant_count)), int(rng.integers(shape.minutes // 2 + 1))),
            grows=int(rng.integers(tenant_count)),
        ),
        events=_events(rng, shape, names),
    )


def _broker(number: int) -> str:
    return f"broker-{number:04d}:8080"


def _names(tenants: Rows) -> tuple[str, ...]:
    """Names of bundles: a namespace for each tenant, divided evenly."""
    names: list[str] = []
    for tenant in range(int(tenants.max()) + 1):
        count = int((tenants == tenant).sum())
        if count:
            edges = equal_boundaries(count)
            names += [
                bundle_name(f"tenant-{tenant}/events", f"0x{low:08x}_0x{high:08x}")
                for low, high in zip(edges, edges[1:], strict=False)
            ]
    return tuple(names)


def _events(rng: np.random.Generator, shape: DaySize, names: list[str]) -> tuple[DayEvent, ...]:
    events: list[DayEvent] = []
    minutes = shape.minutes
    if shape.events:
        dies = names[int(rng.integers(shape.brokers))]
        at = int(minutes * rng.uniform(0.15, 0.25))
        events += [DayEvent(at, Kind.DIES, dies), DayEvent(at + minutes // 8, Kind.JOINS, dies)]
        events.append(DayEvent(int(minutes * 0.45), Kind.JOINS, names[-1]))
        start = int(minutes * rng.uniform(0.6, 0.7))
        for number, name in enumerate(names[: max(shape.brokers // 4, 1)]):
            if name != dies:
                restart = start + 4 * number
                events += [
                    DayEvent(restart, Kind.DIES, name),
                    DayEvent(restart + 2, Kind.JOINS, name),
                ]
    if shape.lies:
        liar, at = names[int(rng.integers(shape.brokers))], int(minutes * rng.uniform(0.1, 0.8))
        events += [DayEvent(at, Kind.LIES, liar), DayEvent(at + 60, Kind.HONEST, liar)]
    return tuple(
        sorted(
            (event for event in events if event.minute < minutes), key=lambda event: event.minute
        )
    )


class RecordedTraffic:
    """The recorded traffic of bundles."""

    def __init__(self, carried: NDArray[np.float32]) -> None:
        self._carried = carried

    def minute(self, minute: int) -> Array:
        """Bytes/s of each bundle, in and out together."""
        carried: Array = self._carried[minute].astype(np.float64)
        return carried


def traffic(day: DayOfLoad) -> SyntheticTraffic | RecordedTraffic:
    """The traffic of a day's bundles, minute by minute."""
    if isinstance(day.carried, Pattern):
        return SyntheticTraffic(day.carried, day.seed)
    return RecordedTraffic(day.carried)


class SyntheticTraffic:
    """The traffic of a synthetic day's bundles."""

    def __init__(self, pattern: Pattern, seed: int) -> None:
        self._pattern = pattern
        self._rng = np.random.default_rng([seed, 1])
        count = len(pattern.base)
        self._slow = self._rng.normal(0, SLOW_NOISE, count)
        self._bursts = np.ones(count)
        self._burst_minutes = np.zeros(count, np.int64)

    def minute(self, minute: int) -> Array:
        """Bytes/s of each bundle, in and out together. Ask for one minute after the other."""
        pattern, rng = self._pattern, self._rng
        part = minute / MINUTES_PER_DAY
        by_tenant = 1 + DAY_AMPLITUDE * np.sin(2 * np.pi * (part + pattern.phases))
        if (part % 7) >= 5:
            by_tenant *= WEEKEND
        tenant, since = pattern.doubles
        by_tenant[tenant] *= 1 + min(max((minute - since) / 30, 0), 1)
        by_tenant[pattern.grows] *= 1 + 0.6 * minute / pattern.minutes
        self._slow = SLOW_KEPT * self._slow + rng.normal(
            0, SLOW_NOISE * math.sqrt(1 - SLOW_KEPT**2), len(self._slow)
        )
        self._burst(rng)
        noise = np.exp(self._slow + rng.normal(0, FAST_NOISE, len(self._slow)))
        carried: Array = pattern.base * by_tenant[pattern.tenants] * noise * self._bursts
        return carried

    def _burst(self, rng: np.random.Generator) -> None:
        begins = np.flatnonzero(rng.random(len(self._bursts)) < BURSTS_PER_MINUTE)
        self._burst_minutes -= 1
        self._bursts[self._burst_minutes <= 0] = 1.0
        self._burst_minutes[begins] = rng.integers(5, 30, len(begins))
        self._bursts[begins] = rng.uniform(1.5, 4, len(begins))
