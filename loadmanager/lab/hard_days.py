"""Days that nobody chose, harder than real ones: clusters of any shape, and much that goes wrong.

A day of a seed has up to 60 brokers, of which one may be ten times the size of another, bundles
whose cost nothing tells, and up to three of: sensors that lie, dips, flash crowds, a giant, growth,
brokers that join and leave. `overloads` says where a strategy did harm in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadmanager.engine.load.columns import Array
from loadmanager.lab.days import (
    CORES,
    CPU_OF_A_CORE,
    SHOW_LESS,
    DayEvent,
    DayOfLoad,
    DaySize,
    Kind,
    Pattern,
    Swing,
    make_day,
)
from loadmanager.lab.measures import Minute

MINUTES = 100
EVENTS_FROM, EVENTS_TO = 20, 70
LYING = (Kind.LIES, *SHOW_LESS)
LASTS = 5
"""An overload of fewer minutes does not count."""
SIZES = ((1.0,), (0.5, 1.0, 2.0), (1.0, 1.0, 10.0))
BROKERS_MAX, BUNDLES_MAX = 60, 1_000


def hard_day(seed: int, *, brokers_max: int = BROKERS_MAX) -> DayOfLoad:
    """The day of a seed, with so many brokers at most."""
    rng = np.random.default_rng([seed, 6])
    brokers = round(float(np.exp(rng.uniform(np.log(3), np.log(brokers_max)))))
    each = float(np.exp(rng.uniform(np.log(5), np.log(200))))
    bundles = min(int(brokers * each), BUNDLES_MAX)
    day = make_day(seed, DaySize(brokers=brokers, bundles=bundles, minutes=MINUTES, events=False))
    sizes = SIZES[int(rng.choice(3, p=(0.5, 0.3, 0.2)))]
    cores = {name: day.cores[name] * float(rng.choice(sizes)) for name in sorted(day.cores)}
    day = replace(
        day,
        cores=cores,
        cost=_costs(rng, day),
        beside=float(rng.uniform(0, 0.25)),
        lag=float(rng.choice([0.0, 0.5, 0.8])),
    )
    day = _of_usage(day, float(rng.uniform(0.2, 0.7)))
    if rng.random() < 0.25:
        slow = rng.choice(day.brokers, max(brokers // 5, 1), replace=False).tolist()
        day = replace(day, slow={name: float(rng.uniform(1.2, 2)) for name in slow})
    goes_wrong = (_sensor, _sensor, _dip, _crowd, _giant, _growth, _join, _leave, _restart)
    for at in rng.choice(len(goes_wrong), int(rng.integers(1, 4)), replace=False).tolist():
        day = goes_wrong[at](rng, day)
    return replace(day, events=tuple(sorted(day.events, key=lambda event: event.minute)))


Trouble = Callable[[np.random.Generator, DayOfLoad], DayOfLoad]


def _costs(rng: np.random.Generator, day: DayOfLoad) -> Array:
    """What a byte costs: by messages, or by bytes; in some days each bundle its own."""
    cost = day.cost if rng.random() < 0.5 else 1 / day.message_bytes
    if rng.random() < 0.4:
        cost = cost * rng.lognormal(0, float(rng.uniform(0.2, 1.0)), len(cost))
    return cost


def _of_usage(day: DayOfLoad, usage: float) -> DayOfLoad:
    """The day with costs that bring its brokers to this usage on the mean."""
    assert isinstance(day.carried, Pattern)
    limits = sum(day.cores[name] for name in day.brokers) * CPU_OF_A_CORE
    work = max(usage - day.beside, 0.1) * limits
    return replace(day, cost=day.cost * work / (day.carried.base * day.cost).sum())


def _minute(rng: np.random.Generator) -> int:
    return int(rng.integers(EVENTS_FROM, EVENTS_TO))


def _and(day: DayOfLoad, *events: DayEvent) -> DayOfLoad:
    return replace(day, events=(*day.events, *events))


def _sensor(rng: np.random.Generator, day: DayOfLoad) -> DayOfLoad:
    broker, at = str(rng.choice(day.brokers)), _minute(rng)
    wrong = DayEvent(at, LYING[int(rng.integers(len(LYING)))], broker)
    honest = DayEvent(at + int(rng.integers(10, 60)), Kind.HONEST, broker)
    return _and(day, wrong, honest) if rng.random() < 0.5 else _and(day, wrong)


def _dip(rng: np.random.Generator, day: DayOfLoad) -> DayOfLoad:
    some = np.flatnonzero(rng.random(len(day.bundles)) < rng.uniform(0.2, 1))
    dip = Swing(
        minute=_minute(rng),
        minutes=int(rng.integers(1, 10)),
        factor=float(rng.uniform(0.01, 0.5)),
        bundles=some if rng.random() < 0.5 else None,
    )
    return replace(day, changes=(*day.changes, dip))


def _crowd(rng: np.random.Generator, day: DayOfLoad) -> DayOfLoad:
    """Bursts of single bundles."""
    bursts = [
        Swing(
            minute=_minute(rng),
            minutes=int(rng.integers(2, 15)),
            factor=float(rng.uniform(3, 20)),
            bundles=rng.integers(0, len(day.bundles), 1),
        )
        for _ in range(int(rng.integers(1, 12)))
    ]
    return replace(day, changes=(*day.changes, *bursts))


def _giant(rng: np.random.Generator, day: DayOfLoad) -> DayOfLoad:
    """One bundle, which nothing can divide, is much of a broker."""
    assert isinstance(day.carried, Pattern)
    base, at = day.carried.base.copy(), int(rng.integers(len(day.bundles)))
    limit = day.cores[str(rng.choice(day.brokers))] * CPU_OF_A_CORE
    base[at] = float(rng.uniform(0.3, 0.9)) * limit / day.cost[at]
    return replace(day, carried=replace(day.carried, base=base))


def _growth(rng: np.random.Generator, day: DayOfLoad) -> DayOfLoad:
    """Some bundles grow by a tenth every few minutes."""
    some = np.flatnonzero(rng.random(len(day.bundles)) < rng.uniform(0.05, 0.5))
    at, every = _minute(rng), int(rng.integers(5, 15))
    steps = [
        Swing(minute=minute, minutes=MINUTES, factor=1.1, bundles=some)
        for minute in range(at, MINUTES, every)
    ]
    return replace(day, changes=(*day.changes, *steps))


def _join(rng: np.random.Generator, day: DayOfLoad) -> DayOfLoad:
    (newcomer,) = set(day.cores) - set(day.brokers)
    return _and(day, DayEvent(_minute(rng), Kind.JOINS, newcomer))


def _leave(rng: np.random.Generator, day: DayOfLoad) -> DayOfLoad:
    return _and(day, DayEvent(_minute(rng), Kind.DIES, str(rng.choice(day.brokers))))


def _restart(rng: np.random.Generator, day: DayOfLoad) -> DayOfLoad:
    broker, at = str(rng.choice(day.brokers)), _minute(rng)
    back = at + int(rng.integers(1, 6))
    return _and(day, DayEvent(at, Kind.DIES, broker), DayEvent(back, Kind.JOINS, broker))


@dataclass(frozen=True, slots=True)
class Overload:
    """A broker that was overloaded for minutes in a row, and would not have been without moves."""

    broker: str
    begins: int
    minutes: int
    mean: float
    """The mean usage of all brokers meanwhile."""
    undone: float
    """Work that all brokers together could not do meanwhile, in minutes of a usual broker."""
    undone_without: float
    """The same, without moves."""


def overloads(
    day: DayOfLoad, minutes: Sequence[Minute], still: Sequence[Minute]
) -> Iterator[Overload]:
    """The overloads of at least `LASTS` minutes, beside the same day without moves."""
    began: dict[str, int] = {}
    for at in range(len(minutes) + 1):
        now = _only_here(minutes[at], still[at]) if at < len(minutes) else set()
        for broker in sorted(began.keys() - now):
            begins = began.pop(broker)
            if at - begins >= LASTS:
                here, there = minutes[begins:at], still[begins:at]
                mean = float(np.mean([_mean_usage(day, minute) for minute in here]))
                yield Overload(
                    broker, begins, at - begins, mean, undone(day, here), undone(day, there)
                )
        for broker in now - began.keys():
            began[broker] = at


def _mean_usage(day: DayOfLoad, minute: Minute) -> float:
    """What all brokers use of what all have."""
    return float(np.average(minute.usage, weights=[day.cores[name] for name in minute.live]))


def _only_here(minute: Minute, still: Minute) -> set[str]:
    """The brokers that are overloaded, and would not be without moves."""
    without = dict(zip(still.live, still.usage.tolist(), strict=True))
    used = zip(minute.live, minute.usage.tolist(), strict=True)
    return {broker for broker, usage in used if usage > 1 >= without[broker]}


def undone(day: DayOfLoad, minutes: Sequence[Minute]) -> float:
    """Work that brokers could not do, in minutes of a broker of the usual size and speed: what a
    slow one could not do is less of the clients' work.
    """
    return float(
        sum(
            max(usage - 1, 0) * day.cores[broker] / CORES / day.slow.get(broker, 1.0)
            for minute in minutes
            for broker, usage in zip(minute.live, minute.usage.tolist(), strict=True)
        )
    )
