"""BalancedShedder: make all brokers equally used, with the moves that disturb clients least.

The objective is the sum over all brokers of size × (usage² + 4 × (usage above 70 %)² + 10 × (usage
above 100 %)). It is lowest when all brokers are equally used, and an overloaded broker counts most;
in a full cluster the 70 % are more. A move has a price in the same unit: the disruption of moving
an average bundle is worth a difference between brokers, which is a part of their mean usage. So
nothing depends on how many brokers and bundles there are, or how busy they are.

A broker that is far off is brought near the mean: from then on until it is there, moves from it and
to it cost a fraction. That fills a newcomer also with bundles each of which gains next to nothing.

A broker's usage is what `engine.load.usage_model` says, not what its sensors say. A bundle that
moves takes its part along at once. No move makes a broker overloaded, or gives one whose sensor
does not count more than its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from loadmanager.engine.load.learned import NOTHING_LEARNED, Learned
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_fit import fit, just_moved
from loadmanager.engine.load.usage_model import UsageModel
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import lost_traffic, surplus
from loadmanager.engine.strategies.shedding.by_sensors import SHOWN_FULL
from loadmanager.engine.strategies.shedding.lost_traffic import LOST, Came
from loadmanager.engine.strategies.shedding.modelled import FullBrokers, Left, ModelledBrokers
from loadmanager.engine.strategies.shedding.moving import Moving, usages_of
from loadmanager.engine.strategies.shedding.objective import OVERLOAD
from loadmanager.engine.strategies.shedding.search import MOVES_MAX, BestMove, MoveSearch
from loadmanager.engine.strategies.shedding.strained import STRAINED, asked_of, still_strained
from loadmanager.engine.strategies.shedding.surplus import Relief
from loadmanager.engine.strategies.strategy import Shed, Shedder, Tries
from loadmanager.kit.conf import conf
from loadmanager.kit.units import MINUTE_MS

AWAY, BACK, BACK_MS = 0.85, 1.1, 10 * MINUTE_MS
"""Below this part of the usual traffic, some of the clients are away; above the other one, so long
after that at most, they are back, and have yet to become the usual ones.
"""
SHOWN_HIGH = 0.95
"""A broker whose sensor shows more than this is relieved, whatever is not known."""
FULL_FOR_MS, STAYS_FULL = 2 * MINUTE_MS, 0.94
"""A broker stays full if its sensor shows so for so long, and no less than this meanwhile."""
WAITS_MS = 20 * MINUTE_MS
"""Clients that are away again and again for longer than this, never for more than `BACK_MS` as
usual, come and go by nature: nothing waits for them any more but what `DIP` says.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedSettings:
    """BalancedShedder."""

    difference: float = conf(
        "loadManagerBalancedDifferencePercent",
        16.0,
        "BalancedShedder: the difference between two brokers, in percent of the mean usage of all, "
        "that is worth moving a bundle of average size. Lower: more even, more moves. Higher: "
        "calmer",
        minimum=0.1,
        dynamic=True,
    )


@dataclass(frozen=True, slots=True)
class BalancedMemory:
    """The model of usage as the shedder learned it, and what it is about."""

    model: Learned = NOTHING_LEARNED
    leaving: Mapping[str, str] = field(default_factory=dict)
    """Bundle → the broker that it left, until that broker's report shows it."""
    far: Mapping[str, int] = field(default_factory=dict)
    """brokerId → the time (ms) since which it is far off, and brought near."""
    away_ms: int = 0
    """When some of the clients were away last."""
    away_since_ms: int = 0
    """When they were away first, again and again since."""
    relief: Mapping[str, Relief] = field(default_factory=dict)
    """brokerId → what it came to that bundles left it while it was full, unexplained."""
    came: Mapping[str, Came] = field(default_factory=dict)
    """Bundle that was moved → where to, and what it carried before."""
    full: Mapping[str, int] = field(default_factory=dict)
    """brokerId → the time (ms) since which its sensor shows that it is full."""
    losing: tuple[str, ...] = ()
    """Brokers that take nothing, because what they have loses its traffic; with the strained."""
    strained: Mapping[str, int] = field(default_factory=dict)
    """brokerId → when (ms) it was strained last, while it takes nothing."""


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: BalancedMemory) -> Shed:
    moved = just_moved(snapshot.recently_unloaded_ms, snapshot.now_ms)
    model = fit(snapshot.columns, snapshot.averages, settings.weights, memory.model, moved=moved)
    doubts = [Skip(doubt.broker, doubt.code, doubt.text) for doubt in model.doubts]
    away_ms, away_since_ms = _away(model, memory, snapshot.now_ms)
    full_ms = _full_since(model, memory, snapshot)
    losing = lost_traffic.losing_brokers(snapshot, memory.came, memory.losing)
    asked = asked_of(snapshot, memory.came, full_ms.keys())
    strained_ms = still_strained(memory.strained, asked, snapshot)
    doubts += [Skip(it, STRAINED.code, STRAINED.text) for it in strained_ms]
    doubts += [Skip(it, LOST.code, LOST.text) for it in losing if it not in strained_ms]
    losing = tuple(sorted({*losing, *strained_ms}))
    if text := _waits(snapshot, model, away_ms, away_since_ms):
        remembered = replace(
            memory,
            model=model.learned,
            away_ms=away_ms,
            away_since_ms=away_since_ms,
            losing=losing,
            strained=strained_ms,
            full=full_ms,
        )
        return Shed((), (Skip("cluster", "TrafficDip", text), *doubts), remembered)
    snapshot = lost_traffic.refusing(snapshot, losing)
    cluster = ModelledBrokers(
        snapshot,
        model,
        settings.of(BalancedSettings).difference / 100,
        Left(leaving=memory.leaving, far=memory.far.keys(), came=memory.came, asked=asked),
        full=FullBrokers(
            [broker for broker, ms in full_ms.items() if snapshot.now_ms - ms >= FULL_FOR_MS],
            _relieved(memory, model, snapshot),
        ),
    )
    by_sensors = cluster.by_sensors
    full = {
        cluster.names[row]: float(by_sensors.shown[row])
        for row in np.flatnonzero(by_sensors.unexplained & by_sensors.full).tolist()
    }
    far = {
        cluster.names[row]: memory.far.get(cluster.names[row], snapshot.now_ms)
        for row in np.flatnonzero(cluster.far).tolist()
    }
    unloads, best = _moves(snapshot, cluster, MoveSearch(snapshot, settings, cluster))
    given = {cluster.names[row]: usage for row, usage in by_sensors.given.items()}
    orders = [(each.bundle, each.source, each.destination or "") for each in unloads]
    averages = snapshot.averages
    came = [(bundle, to, averages.quick_of(bundle, lasting=True)) for bundle, _, to in orders]
    skipped = doubts if unloads else [_why_not(cluster, best), *doubts]
    return Shed(
        tuple(unloads),
        tuple(skipped),
        BalancedMemory(
            model.learned.and_ordered(orders, given),
            cluster.leaving,
            far,
            away_ms,
            away_since_ms,
            surplus.after(memory.relief, full, given, snapshot.now_ms),
            lost_traffic.after(memory.came, came, losing, snapshot.now_ms),
            full_ms,
            losing,
            strained_ms,
        ),
    )


def _relieved(
    memory: BalancedMemory, model: UsageModel, snapshot: ClusterSnapshot
) -> dict[str, bool]:
    """Brokers that were full lately → whether bundles leave them for what the model does not
    explain.
    """
    row_of, measured = snapshot.columns.row_of, model.measured
    return {
        broker: surplus.leaves(relief, float(measured[row_of[broker]]))
        for broker, relief in memory.relief.items()
        if broker in row_of
    }


def _full_since(
    model: UsageModel, memory: BalancedMemory, snapshot: ClusterSnapshot
) -> dict[str, int]:
    """Brokers whose sensors show that they are full → since when (ms)."""
    names, shown = snapshot.columns.names, np.where(model.trusted, model.measured, 0.0)
    return {
        names[row]: memory.full.get(names[row], snapshot.now_ms)
        for row in np.flatnonzero(shown > STAYS_FULL).tolist()
        if shown[row] > SHOWN_FULL or names[row] in memory.full
    }


def _away(model: UsageModel, memory: BalancedMemory, now_ms: int) -> tuple[int, int]:
    """When some of the clients were away last, and first in a row of such times."""
    if model.part_of_usual >= AWAY:
        return memory.away_ms, memory.away_since_ms
    again = memory.away_ms > 0 and now_ms - memory.away_ms <= BACK_MS
    return now_ms, memory.away_since_ms if again else now_ms


def _waits(
    snapshot: ClusterSnapshot, model: UsageModel, away_ms: int, away_since_ms: int
) -> str | None:
    """Why nothing moves: clients are away, or just back, so that the figures are those of a moment.
    A part of them that is away is no reason to leave a broker overloaded.
    """
    sends = f"the clients send {model.part_of_usual:.0%} of their usual traffic"
    if model.dip is not None:
        return f"{sends}: these figures say nothing"
    if model.misjudges and not (model.trusted & (model.measured > SHOWN_HIGH)).any():
        return f"{sends}, and {model.misjudges}"
    if float(model.used.max(initial=0.0)) > OVERLOAD:
        return None
    if away_ms - away_since_ms > WAITS_MS and snapshot.now_ms - away_ms <= BACK_MS:
        return None
    if model.part_of_usual < AWAY:
        return f"{sends}: some of them are away, or held by limits, and may come back"
    if model.part_of_usual > BACK and snapshot.now_ms - away_ms < BACK_MS:
        return f"{sends}: those that were away, or held, have just come back"
    return None


def _moves(
    snapshot: ClusterSnapshot, cluster: ModelledBrokers, search: MoveSearch
) -> tuple[list[Unload], BestMove | None]:
    """The moves of a cycle, and the best one that was not worth it."""
    unloads: list[Unload] = []
    moving = Moving(snapshot, cluster, search)
    while len(unloads) < MOVES_MAX:
        best = moving.worth_it()
        if best is None:
            return unloads, moving.not_made
        source, destination = cluster.names[best.source], cluster.names[best.destination]
        at, gains, prices = search.with_others(best)
        bundles, why = moving.make(best, at)
        if snapshot.pause_s is not None:
            why["pauseSeconds"] = snapshot.pause_s
        for bundle, gain, price in zip(bundles, gains.tolist(), prices.tolist(), strict=True):
            why_of = {"gain": gain, "price": price, **why}
            unloads.append(Unload(bundle, source, destination, "Gain", why_of))
            cluster.leaving[bundle] = source
    return unloads, None


def _why_not(cluster: ModelledBrokers, best: BestMove | None) -> Skip:
    if best is None:
        text = "no bundle of a busy broker may move to a less used one"
        return Skip("cluster", "NoBundles", text)
    used = [cluster.fields(row) for row in (best.source, best.destination)]
    source, destination = (
        f"{cluster.names[row]} at {usage:.1%}"
        for row, (usage, _, _) in zip((best.source, best.destination), used, strict=True)
    )
    sensors = " and ".join(f"{measured:.1%}" for _, measured, _ in used)
    error = 100 * max(error for _, _, error in used)
    worth = "would make them no more even"
    if best.gain > 0:
        worth = f"gains {best.gain / best.price:.0%} of what it costs clients"
    text = (
        f"the best move, from {source} to {destination}, {worth} "
        f"(sensors: {sensors}; the model may be {error:.1f} points off)"
    )
    before, other = usages_of(cluster, best)
    figures = {"gain": best.gain, "price": best.price, **before, **other}
    return Skip("cluster", "NotWorthIt", text, figures)


SHEDDER = Shedder(
    name="BalancedShedder",
    shed=shed,
    memory=BalancedMemory,
    stored=BalancedMemory,
    settings=BalancedSettings,
    extensible=False,
    goes_with="BalancedPlacement",
    names_destinations=True,
    tries=(Tries("loadManagerBalancedDifferencePercent", (8, 16, 32), 4, 150),),
    fewer_moves="A higher loadManagerBalancedDifferencePercent saves such moves.",
    more_even=(
        "A lower loadManagerBalancedDifferencePercent makes it more even, with more moves. Try it"
    ),
)
