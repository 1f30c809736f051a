"""TransferShedder: bring the spread of loads down to a target by moving bundles from the most to
the least loaded broker (PIP-192, PIP-220).

Deviations, on purpose: what a swap brings back always counts (Pulsar counts it in debug mode only),
and brokers that are not available, or whose report is out of date, are never candidates (Pulsar
leaves them in the sorted list, where they waste the cycle).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.columns import plain_sum
from loadmanager.engine.load.reports import TopBundle
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import filters
from loadmanager.engine.strategies.never_sheds import NeverSheds, all_idle
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.from_reports import LoadAverages, with_load_data
from loadmanager.engine.strategies.strategy import Shed, Shedder, Tries
from loadmanager.engine.strategies.worth import not_worth_it
from loadmanager.kit.conf import conf
from loadmanager.kit.text import moment

SWAP_CEILING = 0.75
"""A swap must leave the most loaded broker with less than this part of its throughput."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSettings:
    """TransferShedder."""

    target_std: float = conf(
        "loadBalancerBrokerLoadTargetStd",
        0.25,
        "TransferShedder: the spread (standard deviation) of loads to reach",
        minimum=0,
        dynamic=True,
    )
    brokers_per_cycle_max: int = conf(
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        3,
        "TransferShedder: most pairs of brokers in a cycle",
        minimum=0,
        dynamic=True,
    )
    hits_min: int = conf(
        "loadBalancerSheddingConditionHitCountThreshold",
        3,
        "TransferShedder: acts after more than this many cycles in a row out of balance",
        minimum=0,
        dynamic=True,
    )
    transfer_enabled: bool = conf(
        "loadBalancerTransferEnabled", True, "TransferShedder: choose destinations", dynamic=True
    )
    delay_s: int = conf(
        "loadBalanceSheddingDelayInSeconds",
        180,
        "TransferShedder: seconds without moves after a broker was unloaded",
        minimum=0,
        dynamic=True,
    )


@dataclass(frozen=True, slots=True)
class TransferMemory:
    """TransferShedder's memory."""

    hits: int = 0
    """Cycles in a row in which the cluster was out of balance."""
    load_averages: LoadAverages = field(default_factory=dict)
    """On the modular manager's reports only."""
    cooled: Mapping[str, int] = field(default_factory=dict)
    """brokerId → when it was unloaded, if it has reported after the delay since. This holds even if
    the clock is set back.
    """


@dataclass(slots=True)
class _Stats:
    """Loads of the brokers that count, kept as moves are planned."""

    loads: dict[str, float]
    total: float = field(init=False)
    squares: float = field(init=False)
    moved: bool = False

    def __post_init__(self) -> None:
        loads = np.array(list(self.loads.values()))
        self.total, self.squares = plain_sum(loads), plain_sum(loads * loads)

    @property
    def average(self) -> float:
        return self.total / len(self.loads)

    @property
    def std(self) -> float:
        variance = self.squares / len(self.loads) - self.average**2  # rounding may make it negative
        return math.sqrt(abs(variance) if self.moved else max(0.0, variance))  # as in Pulsar

    def move(self, most: str, least: str, amount: float) -> None:
        """Count a planned move of load; the average stays as it is."""
        self.moved = True
        for broker, after in (
            (most, max(0.0, self.loads[most] - amount)),
            (least, self.loads[least] + amount),
        ):
            self.squares += after * after - self.loads[broker] ** 2
            self.loads[broker] = after


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: TransferMemory) -> Shed:
    own = settings.of(TransferSettings)
    if snapshot.reports and not snapshot.load_data:
        snapshot, averages = with_load_data(snapshot, settings, memory.load_averages)
        memory = replace(memory, load_averages=averages)
    cooled = {
        broker: unloaded_ms
        for broker, unloaded_ms in memory.cooled.items()
        if snapshot.recently_unloaded_brokers_ms.get(broker) == unloaded_ms
    }
    stats = _measure(snapshot, settings, cooled)
    if cooled != memory.cooled:
        memory = replace(memory, cooled=cooled)
    if isinstance(stats, Skip):
        return Shed((), (stats,), memory)
    cycle = _Cycle(snapshot, settings, stats)
    order = sorted(stats.loads, key=lambda broker: (stats.loads[broker], broker))
    unbalanced = (
        stats.std > own.target_std
        or cycle.underloaded(order[0], order[-1])
        or cycle.overloaded(order[-1])
    )
    hits = memory.hits + 1 if unbalanced else 0
    if hits <= own.hits_min:
        text = (
            f"{hits} of more than {own.hits_min} cycles in a row; std "
            f"{stats.std:.4f}, target {own.target_std:g}"
        )
        return Shed((), (Skip("cluster", "HitCount", text),), replace(memory, hits=hits))
    cycle.offload(order)
    unloads = tuple(cycle.unloads)
    return Shed(unloads, tuple(cycle.skipped), replace(memory, hits=0 if unloads else hits))


def _measure(
    snapshot: ClusterSnapshot, settings: StrategySettings, cooled: dict[str, int]
) -> _Stats | Skip:
    """The loads that count, or why nothing can be decided.

    Adds the brokers that have cooled down since they were unloaded to `cooled`.
    """
    loads: dict[str, float] = {}
    available = snapshot.available
    cool_down_ms = settings.of(TransferSettings).delay_s * 1000
    outdated = False
    for broker in sorted(snapshot.load_data):
        data = snapshot.load_data[broker]
        if 0 < data.updated_at < snapshot.now_ms - settings.report_ttl_s * 1000:
            outdated = True
            continue
        unloaded_ms = snapshot.recently_unloaded_brokers_ms.get(broker)
        if unloaded_ms is not None and cooled.get(broker) != unloaded_ms:
            if data.updated_at - unloaded_ms < cool_down_ms:
                text = f"{broker} was unloaded at {moment(unloaded_ms)}"
                return Skip("cluster", "CoolDown", text)
            cooled[broker] = unloaded_ms
        if broker in available:
            loads[broker] = data.weighted_max_ema
    if not loads:
        return Skip("cluster", "OutDatedData") if outdated else Skip("cluster", "NoBrokers")
    missing = sorted(available - snapshot.load_data.keys())
    if missing:
        return Skip("cluster", "NoLoadData", ", ".join(missing))
    return _Stats(loads)


class _Cycle:
    """The moves of one cycle as they are planned."""

    def __init__(
        self, snapshot: ClusterSnapshot, settings: StrategySettings, stats: _Stats
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._own = settings.of(TransferSettings)
        self._stats = stats
        self._able_under: dict[tuple[int, str | None], frozenset[str]] = {}
        """Policies of a namespace → the brokers that the filters leave."""
        self.unloads: list[Unload] = []
        self.skipped: list[Skip] = []

    def underloaded(self, least: str, most: str) -> bool:
        """True if a broker has far less load than the average, or far less throughput than the most
        loaded broker.
        """
        part = min(0.5, max(0.0, self._own.target_std / 2))
        low, high = self._snapshot.load_data[least], self._snapshot.load_data[most]
        return (
            self._stats.loads[least] < self._stats.average * part
            or low.msg_throughput_ema < high.msg_throughput_ema * part
        )

    def overloaded(self, most: str) -> bool:
        """True if a broker is above the overload threshold and well above the average."""
        load = self._stats.loads[most]
        return (
            load > self._settings.overloaded_percent / 100
            and load > self._stats.average + self._own.target_std
        )

    def offload(self, order: list[str]) -> None:
        """Plan moves from the most to the least loaded brokers of `order`, pair by pair."""
        least_at, most_at, pairs = 0, len(order) - 1, 0
        while pairs < self._own.brokers_per_cycle_max and least_at < most_at:
            least, most = order[least_at], order[most_at]
            if self._stats.std > self._own.target_std:
                reason = "Overloaded"
            elif self.underloaded(least, most):
                reason = "Underloaded"
            elif self.overloaded(most):
                reason = "Overloaded"
            else:
                break
            most_at -= 1
            if self._move_between(most, least, reason):
                pairs += 1
                least_at += 1
        if not self.unloads and not self.skipped:
            self.skipped.append(Skip("cluster", "Balanced"))

    def _move_between(self, most: str, least: str, reason: str) -> bool:
        """Plan moves of the most loaded broker's bundles, in the ascending order in which it
        published them, but those first of which the other has a copy. A bundle that is too large is
        swapped for others. Returns whether any bundle moves.
        """
        bundles, stats = _copied_first(self._snapshot, most, least), self._stats
        if len(bundles) <= 1:
            single = Skip(most, "NoBundles", "it published one bundle only")
            none = Skip(most, "NoLoadData", "it published no bundles")
            self.skipped.append(single if bundles else none)
            return False
        throughput = _throughput(self._snapshot, most)
        offload = (stats.loads[most] - stats.loads[least]) / 2
        goal = throughput * offload / stats.loads[most] if stats.loads[most] else 0.0
        why: dict[str, float | str] = {
            "load": stats.loads[most],
            "destinationLoad": stats.loads[least],
            "std": stats.std,
            "goalBytesPerSecond": goal,
        }
        out, back, remaining = 0.0, 0.0, len(bundles)
        unloads: list[Unload] = []
        returning = (
            bundle
            for bundle in _published(self._snapshot, least)
            if bundle.stats.throughput > 0 and self._may_move(bundle.bundle_name, least, most)
        )
        for bundle in bundles:
            name, load = bundle.bundle_name, bundle.stats.throughput
            if not self._may_move(name, most, least):
                continue
            if remaining <= 1:
                break
            if load == 0:
                continue
            swapped: list[TopBundle] = []
            if out - back + load > goal:
                if not self._own.transfer_enabled:
                    break
                swapped = _swap(
                    throughput - out + back - load,
                    _throughput(self._snapshot, least) + out - back + load,
                    throughput,
                    returning,
                )
                if not swapped:
                    break
            unloads += [
                Unload(other.bundle_name, least, most, reason, {**why, "swapFor": name}, swap=name)
                for other in swapped
            ]
            destination = least if self._own.transfer_enabled else None
            swap = name if swapped else None
            unloads.append(Unload(name, most, destination, reason, why, swap=swap))
            out += load
            back += plain_sum(np.array([other.stats.throughput for other in swapped]))
            remaining -= 1
        if out <= 0:
            fits = Skip(most, "NoBundles", f"no bundle of it fits, or may go to {least}")
            no_load = Skip(most, "NoLoad", "its load is 0, so that no other broker can have less")
            self.skipped.append(fits if stats.loads[most] else no_load)
            return False
        self.unloads += unloads
        stats.move(
            most, least, (out - back) * stats.loads[most] / throughput if throughput else 0.0
        )
        return True

    def _able(self, namespace: str) -> frozenset[str]:
        """The brokers that the filters leave to a namespace: many namespaces have few policies."""
        policies = filters.policies_of(self._snapshot, namespace)
        able = self._able_under.get(policies)
        if able is None:
            left, _ = filters.extensible(self._snapshot, namespace, self._settings, strict=True)
            able = self._able_under[policies] = frozenset(left)
        return able

    def _may_move(self, bundle: str, owner: str, target: str) -> bool:
        """True if the publishing broker owns the bundle, the bundle was not moved recently, is not
        pinned and not excluded, the filters allow the move (Pulsar
        `TransferShedder.isTransferable`), and it is worth what it costs.
        """
        snapshot = self._snapshot
        if snapshot.owners.get(bundle, owner) != owner or bundle in snapshot.recently_unloaded_ms:
            return False
        if snapshot.wishes.keep(bundle, owner) is not None:
            return False
        namespace = split_bundle_name(bundle)[0]
        if namespace in self._settings.excluded_namespaces:
            return False
        if not self._settings.shed_policy_bundles and filters.has_policy(snapshot, namespace):
            return False
        return target in self._able(namespace) and not self._costs_too_much(bundle, owner, target)

    def _costs_too_much(self, bundle: str, owner: str, target: str) -> bool:
        why = not_worth_it(self._snapshot, bundle, owner, target)
        if why is not None and all(skip.what != bundle for skip in self.skipped):
            self.skipped.append(Skip(bundle, why.code, why.text))
        return why is not None


def _published(snapshot: ClusterSnapshot, broker: str) -> list[TopBundle]:
    top = snapshot.top_bundles.get(broker)
    return top.top_bundles_load_data if top else []


def _copied_first(snapshot: ClusterSnapshot, broker: str, to: str) -> list[TopBundle]:
    bundles, copies = _published(snapshot, broker), snapshot.wishes.copies
    if not copies:
        return bundles
    return sorted(bundles, key=lambda bundle: to not in copies.get(bundle.bundle_name, ()))


def _throughput(snapshot: ClusterSnapshot, broker: str) -> float:
    data = snapshot.load_data[broker]
    return data.msg_throughput_in + data.msg_throughput_out


def _swap(
    most: float, least: float, ceiling: float, returning: Iterator[TopBundle]
) -> list[TopBundle]:
    """Bundles that come back so that both brokers end below the ceiling; empty if none do.

    `most` and `least` are throughputs after the move out. Uses up `returning`.
    """
    chosen: list[TopBundle] = []
    for bundle in returning:
        load = bundle.stats.throughput
        if most + load < ceiling and least - load < ceiling:
            chosen.append(bundle)
            most, least = most + load, least - load
            if least <= most < SWAP_CEILING * ceiling:
                return chosen
    return []


def never_sheds(settings: StrategySettings) -> Iterator[NeverSheds]:
    yield from all_idle(settings)
    target = settings.of(TransferSettings).target_std
    if target >= 0.5:
        why = f"{target:g}: loads from 0 to 1 never spread more than 0.5; nothing is ever shed"
        yield NeverSheds("loadBalancerBrokerLoadTargetStd", why, "lower it: Pulsar has 0.25")


SHEDDER = Shedder(
    name="TransferShedder",
    shed=shed,
    memory=TransferMemory,
    stored=TransferMemory,
    settings=TransferSettings,
    checks_destinations=True,
    never_sheds=never_sheds,
    names_destinations=True,
    tries=(
        Tries("loadBalancerBrokerLoadTargetStd", (0.04, 0.08, 0.25), 0.02, 0.3),
        Tries("loadBalancerSheddingConditionHitCountThreshold", (0, 3), 0, 5, whole=True),
        Tries("loadBalancerMaxNumberOfBrokerSheddingPerCycle", (3, 10), 1, 20, whole=True),
    ),
    fewer_moves="A longer loadBalancerSheddingGracePeriodMinutes or a higher "
    "loadBalancerBrokerLoadTargetStd saves such moves.",
)
