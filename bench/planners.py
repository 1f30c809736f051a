"""What planners could do that know more than a shedder can: a bound for what is to be had.

`python -m bench planners [--shape equal] [--days 5]`, on the days of `python -m bench shedders`.
All know the true work of each bundle, without noise, have no guards, and know what moves cost. Each
cycle the first three make the moves that lower the objective of `BalancedShedder` by more than a
price: by each bundle's smoothed work up to now; by its mean over the next 15 minutes; over the next
60. Three more know the present and have other habits: they smooth twice as much, act every fifth
minute, or send a broker nothing in its first three minutes. The last one knows the whole day: it
improves the path of one bundle over the brokers after the other, as long as a move saves more
minutes × points of spread than its price. No planner is known to be best, so these are no proofs;
they show what is possible. "near" are the moves within 15 minutes of an event. Moves of the first
20 minutes do not count, as for the shedders.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from bench.shedders import HELD_OUT_SEED, SHAPES
from loadmanager.engine.load.averages import QUICK_WEIGHT
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.strategies.shedding.objective import knee_of, objective
from loadmanager.engine.strategies.shedding.search import MOVES_MAX
from loadmanager.lab.closed_loop import Costs
from loadmanager.lab.days import CPU_OF_A_CORE, DaySize, Kind, make_day, traffic
from loadmanager.lab.measures import WARM_UP_MINUTES, Minute, measure

NEAR_MINUTES = 15
SWEEPS = 8
PRICES = (0.004, 0.008, 0.016, 0.03)
PATH_PRICES = (4, 10, 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """What a planner that takes the best move of each minute knows, and when it acts."""

    name: str
    ahead: int = 0
    """Minutes to come whose mean it knows; 0: it smooths the work up to now."""
    weight: float = QUICK_WEIGHT
    """The weight of the last minute when it smooths."""
    every: int = 1
    """Minutes between its actions."""
    wait: int = 0
    """Minutes in which it moves nothing to a broker that has just come."""


HABITS = (
    Habit(name="knows the present"),
    Habit(name="knows the next 15 minutes", ahead=15),
    Habit(name="knows the next 60 minutes", ahead=60),
    Habit(name="smooths twice as much", weight=QUICK_WEIGHT / 2),
    Habit(name="acts every fifth minute", every=5),
    Habit(name="lets newcomers wait", wait=3),
)
FIGURES = ("spread", "gap", "hot_minutes", "moves", "pause_s")
HEADERS = (*FIGURES, "near")


class World:
    """A day as arrays: `[minute, bundle]` and `[minute, broker]`."""

    def __init__(self, seed: int, shape: DaySize) -> None:
        self.day = day = make_day(seed, shape)
        self.minutes = range(day.minutes)
        carried = traffic(day)
        self.work: Array = np.array([carried.minute(minute) * day.cost for minute in self.minutes])
        names = sorted(day.cores)
        self.limits = np.array([day.cores[name] * CPU_OF_A_CORE for name in names])
        self.live = np.zeros((day.minutes, len(names)), np.bool_)
        self.live[:, [names.index(name) for name in day.brokers]] = True
        for event in day.events:
            self.live[event.minute :, names.index(event.broker)] = event.kind is Kind.JOINS
        at = np.random.default_rng([seed, 2]).permutation(len(day.bundles))
        self.first = np.flatnonzero(self.live[0])[at % len(day.brokers)]
        """The owners before the first minute."""

    def measured(self, paths: Rows) -> tuple[float, ...]:
        """The figures of a day on which bundles had these owners: `[minute, bundle]`."""
        days = []
        for minute in self.minutes:
            now, following = paths[minute], paths[min(minute + 1, len(paths) - 1)]
            came = now != (paths[minute - 1] if minute else self.first)
            there = self.live[minute]
            work = self.work[minute] * (1 + Costs().surge * came)
            usage = np.bincount(now, work, len(there)) / self.limits
            left = (following != now) & self.live[min(minute + 1, len(paths) - 1), now]
            day = Minute(
                usage=usage[there],
                moves=int(left.sum()),
                moved_bytes_s=0,
                again=0,
                pause_s=float(self.day.clients[left].sum() * Costs().pause_s),
                placed=0,
                events=tuple(event for event in self.day.events if event.minute == minute),
            )
            days.append(day)
        figures = measure(days)
        at = [minute for minute, day in enumerate(days) if day.events]
        near = [
            day.moves
            for minute, day in enumerate(days)
            if minute >= WARM_UP_MINUTES and any(0 <= minute - e < NEAR_MINUTES for e in at)
        ]
        return *(float(getattr(figures, name)) for name in FIGURES), float(sum(near))


def main(argv: list[str]) -> int:
    """Print each planner's figures at each price."""
    parser = argparse.ArgumentParser(prog="python -m bench planners", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="equal")
    parser.add_argument("--days", type=int, default=5)
    args = parser.parse_args(argv)
    shape = SHAPES[args.shape]
    worlds = [World(HELD_OUT_SEED + day, shape) for day in range(args.days)]
    print(f"{args.shape}, {args.days} days")
    print("".join(f"{header:>12}" for header in HEADERS))
    for habit in HABITS:
        for price in PRICES:
            _print(worlds, partial(greedy, price=price, habit=habit), f"{habit.name}, {price}")
    for cost in PATH_PRICES:
        _print(worlds, partial(best_paths, price=cost), f"knows the day, {cost}")
    return 0


def _print(worlds: Sequence[World], planner: Callable[[World], Rows], name: str) -> None:
    days = [world.measured(planner(world)) for world in worlds]
    figures = [fmean(column) for column in zip(*days, strict=True)]
    print("".join(f"{figure:12.2f}" for figure in figures), f" {name}", flush=True)


def greedy(world: World, price: float, habit: Habit) -> Rows:
    """The move with the largest gain first, while it is worth its price: `[minute, bundle]`."""
    work, owner, paths = world.work, world.first.copy(), []
    smoothed = work[0].copy()
    for minute in world.minutes:
        ahead = habit.ahead
        expected = work[minute : minute + ahead].mean(axis=0) if ahead else smoothed
        _place(world, minute, owner, expected)
        paths.append(owner.copy())
        smoothed += habit.weight * (work[minute] - smoothed)
        if minute + 1 < len(world.minutes) and minute % habit.every == 0:
            after = work[minute + 1 : minute + 1 + ahead].mean(axis=0) if ahead else smoothed
            takers = world.live[max(minute - habit.wait, 0) : minute + 1].all(axis=0)
            _shed(world, world.live[minute], np.flatnonzero(takers), owner, after, price)
    return np.array(paths)


def _place(world: World, minute: int, owner: Rows, work: Array) -> None:
    """Bundles of dead brokers, the largest first, go where they add least to the objective."""
    there = np.flatnonzero(world.live[minute])
    homeless = np.flatnonzero(~world.live[minute, owner])
    served = np.flatnonzero(world.live[minute, owner])
    carried = np.bincount(owner[served], work[served], len(world.limits))
    size = world.limits / world.limits.mean()
    for bundle in homeless[np.argsort(-work[homeless], kind="stable")].tolist():
        before = carried[there] / world.limits[there]
        after = (carried[there] + work[bundle]) / world.limits[there]
        taker = there[int((size[there] * (objective(after) - objective(before))).argmin())]
        owner[bundle] = taker
        carried[taker] += work[bundle]


def _shed(
    world: World, live: NDArray[np.bool_], takers: Rows, owner: Rows, work: Array, price: float
) -> None:
    limits, size = world.limits, world.limits / world.limits.mean()
    carried = np.bincount(owner, work, len(limits))
    knee = knee_of(carried[live] / limits[live], size[live])
    moved = np.zeros(len(owner), np.bool_)
    for _ in range(MOVES_MAX):
        usage = carried / limits
        worth = objective(usage, knee)
        relief = size[owner] * (worth[owner] - objective(usage[owner] - work / limits[owner], knee))
        after = objective((carried[takers, None] + work) / limits[takers, None], knee)
        gain = relief - size[takers, None] * (after - worth[takers, None])
        gain[:, moved] = 0
        gain[takers[:, None] == owner] = 0
        row, bundle = divmod(int(gain.argmax()), len(owner))
        if gain[row, bundle] <= price:
            return
        carried[owner[bundle]] -= work[bundle]
        carried[takers[row]] += work[bundle]
        owner[bundle], moved[bundle] = takers[row], True


def best_paths(world: World, price: float) -> Rows:
    """The owners of all bundles, after some rounds in which each bundle's path was improved."""
    owner, began = world.first.copy(), []
    for minute in world.minutes:
        _place(world, minute, owner, world.work[minute])
        began.append(owner.copy())
    paths, minutes = np.array(began), np.array(world.minutes)
    surge, brokers = Costs().surge, len(world.limits)

    def works(bundle: int) -> Array:
        path = paths[:, bundle]
        came = np.diff(path, prepend=world.first[bundle]) != 0
        work: Array = world.work[:, bundle] * (1 + surge * came) / world.limits[path]
        return work

    usage = np.zeros((len(minutes), brokers))
    for bundle in range(paths.shape[1]):
        usage[minutes, paths[:, bundle]] += works(bundle)
    prices = np.where(minutes > WARM_UP_MINUTES, float(price), 0.0)
    for _ in range(SWEEPS):
        counts = world.live.sum(axis=1)
        mean = (usage * world.live).sum(axis=1) / counts
        spread = np.sqrt((((usage - mean[:, None]) ** 2) * world.live).sum(axis=1) / counts)
        weight = 100 / (2 * np.maximum(spread, 0.004) * counts)
        for bundle in np.argsort(-world.work.mean(axis=0)).tolist():
            usage[minutes, paths[:, bundle]] -= works(bundle)
            more = world.work[:, bundle, None] / world.limits
            stay, come = (
                weight[:, None] * (2 * (usage - mean[:, None]) * part + part**2)
                for part in (more, more * (1 + surge))
            )
            paths[:, bundle] = _path(world.live, int(world.first[bundle]), stay, come, prices)
            usage[minutes, paths[:, bundle]] += works(bundle)
    return paths


def _path(
    live: NDArray[np.bool_], first: int, stay: Array, come: Array, prices: Array
) -> list[int]:
    """The cheapest path of a bundle: what it costs to stay at each broker, or to come to it."""
    costs = np.full(live.shape[1], np.inf)
    costs[first] = 0.0
    begun: list[Rows] = []
    for minute, price in enumerate(prices.tolist()):
        best, lost = int(costs.argmin()), int(np.where(live[minute], np.inf, costs).argmin())
        placed = not live[minute, lost] and costs[lost] <= costs[best] + price
        if placed:  # its broker died: any live one may have it, and that is no move
            source, moving = lost, costs[lost] + come[minute]
        else:
            source, moving = best, costs[best] + price + come[minute]
            moving = np.where(live[max(minute - 1, 0)], moving, np.inf)
        staying = costs + stay[minute]
        stays = staying <= moving
        costs = np.where(live[minute], np.where(stays, staying, moving), np.inf)
        begun.append(np.where(stays, np.arange(len(costs)), source))
    path = [int(costs.argmin())]
    for sources in reversed(begun[1:]):
        path.append(int(sources[path[-1]]))
    return path[::-1]
