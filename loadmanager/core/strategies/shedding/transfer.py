"""TransferShedder: bring the spread of loads down to a target by moving bundles from the most to
the least loaded broker (PIP-192, PIP-220).

Deviations, on purpose: what a swap brings back always counts (Pulsar counts it in debug mode only),
and brokers that are not available, or whose report is out of date, are no candidates at all (Pulsar
leaves them in the sorted list, where they waste the cycle).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.decision import Skip, Unload
from loadmanager.core.strategies.filters import Transferability
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.from_reports import LoadAverages, with_load_data
from loadmanager.core.strategies.shedding.selection import Shed
from loadmanager.core.strategies.strategy import Shedder

SWAP_CEILING = 0.75
"""A swap is good when it leaves the most loaded broker with less than this part of
its throughput.
"""


@dataclass(frozen=True, slots=True)
class TransferMemory:
    """What TransferShedder remembers."""

    hits: int = 0
    """Cycles in a row in which the cluster was out of balance."""
    load_averages: LoadAverages = field(default_factory=dict)
    """On the modular manager's reports only."""


@dataclass(slots=True)
class _Stats:
    """Loads of the brokers that count, kept as moves are planned."""

    loads: dict[str, float]
    total: float = field(init=False)
    squares: float = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.loads.values())
        self.squares = sum(load * load for load in self.loads.values())

    @property
    def average(self) -> float:
        return self.total / len(self.loads)

    @property
    def std(self) -> float:
        return math.sqrt(abs(self.squares / len(self.loads) - self.average**2))

    def move(self, most: str, least: str, amount: float) -> None:
        """Count a planned move of load; the average stays as it is."""
        for broker, after in (
            (most, max(0.0, self.loads[most] - amount)),
            (least, self.loads[least] + amount),
        ):
            self.squares += after * after - self.loads[broker] ** 2
            self.loads[broker] = after


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: TransferMemory) -> Shed:
    """One cycle."""
    if snapshot.reports and not snapshot.load_data:
        snapshot, averages = with_load_data(snapshot, settings, memory.load_averages)
        memory = replace(memory, load_averages=averages)
    reason, stats = _measure(snapshot, settings)
    if stats is None:
        return Shed((), (Skip("cluster", reason),), memory)
    order = sorted(stats.loads, key=lambda broker: (stats.loads[broker], broker))
    trigger = (
        stats.std > settings.target_std
        or _underloaded(snapshot, stats, settings, order[0], order[-1])
        or _overloaded(stats, settings, order[-1])
    )
    hits = memory.hits + 1 if trigger else 0
    if hits <= settings.hits_min:
        text = (
            f"HitCount: {hits} of more than {settings.hits_min} cycles in a row; std "
            f"{stats.std:.4f}, target {settings.target_std:g}"
        )
        return Shed((), (Skip("cluster", text),), replace(memory, hits=hits))
    unloads, skipped = _offload(snapshot, settings, stats, order)
    return Shed(tuple(unloads), tuple(skipped), replace(memory, hits=0 if unloads else hits))


def _measure(snapshot: ClusterSnapshot, settings: StrategySettings) -> tuple[str, _Stats | None]:
    """The loads that count, or the reason why nothing can be decided."""
    loads: dict[str, float] = {}
    outdated = False
    for broker in sorted(snapshot.load_data):
        data = snapshot.load_data[broker]
        if 0 < data.updated_at < snapshot.now_ms - settings.report_ttl_s * 1000:
            outdated = True
            continue
        unloaded_ms = snapshot.recently_unloaded_brokers_ms.get(broker)
        if unloaded_ms is not None and data.updated_at - unloaded_ms < settings.delay_s * 1000:
            return f"CoolDown: {broker} was unloaded at {unloaded_ms}", None
        if broker in snapshot.available:
            loads[broker] = data.weighted_max_ema
    if not loads:
        return "OutDatedData" if outdated else "NoBrokers", None
    missing = sorted(snapshot.available - snapshot.load_data.keys())
    if missing:
        return f"NoLoadData: {', '.join(missing)}", None
    return "", _Stats(loads)


def _underloaded(
    snapshot: ClusterSnapshot, stats: _Stats, settings: StrategySettings, least: str, most: str
) -> bool:
    part = min(0.5, max(0.0, settings.target_std / 2))
    low, high = snapshot.load_data[least], snapshot.load_data[most]
    return (
        stats.loads[least] < stats.average * part
        or low.msg_throughput_ema < high.msg_throughput_ema * part
    )


def _overloaded(stats: _Stats, settings: StrategySettings, most: str) -> bool:
    load = stats.loads[most]
    return load > settings.overloaded_percent / 100 and load > stats.average + settings.target_std


def _offload(
    snapshot: ClusterSnapshot, settings: StrategySettings, stats: _Stats, order: list[str]
) -> tuple[list[Unload], list[Skip]]:
    unloads: list[Unload] = []
    skipped: list[Skip] = []
    least_at, most_at, pairs = 0, len(order) - 1, 0
    transferable = Transferability(snapshot, settings)
    while pairs < settings.brokers_per_cycle_max and least_at < most_at:
        least, most = order[least_at], order[most_at]
        if stats.std > settings.target_std or (
            not _underloaded(snapshot, stats, settings, least, most)
            and _overloaded(stats, settings, most)
        ):
            reason = "Overloaded"
        elif _underloaded(snapshot, stats, settings, least, most):
            reason = "Underloaded"
        else:
            break
        most_at -= 1
        moved = _between(snapshot, transferable, stats, most, least, reason=reason, skipped=skipped)
        if moved:
            unloads += moved
            pairs += 1
            least_at += 1
    if not unloads and not skipped:
        skipped.append(Skip("cluster", "Balanced"))
    return unloads, skipped


@dataclass(slots=True)
class _Exchange:
    """What goes and what comes back between two brokers."""

    out: float = 0.0
    back: float = 0.0
    unloads: list[Unload] = field(default_factory=list)


def _between(
    snapshot: ClusterSnapshot,
    transferable: Transferability,
    stats: _Stats,
    most: str,
    least: str,
    *,
    reason: str,
    skipped: list[Skip],
) -> list[Unload]:
    """Bundles of the most loaded broker, in the order in which it published them (ascending), and
    swaps where one is too large.
    """
    tops = snapshot.top_bundles.get(most)
    bundles = tops.top_bundles_load_data if tops else []
    throughput = (
        snapshot.load_data[most].msg_throughput_in + snapshot.load_data[most].msg_throughput_out
    )
    if len(bundles) <= 1:
        skipped.append(
            Skip(
                most,
                "NoLoadData: it published no bundles"
                if not bundles
                else "NoBundles: it published one bundle only",
            )
        )
        return []
    offload = (stats.loads[most] - stats.loads[least]) / 2
    goal = throughput * offload / stats.loads[most] if stats.loads[most] else 0.0
    why: dict[str, float | str] = {
        "load": stats.loads[most],
        "destinationLoad": stats.loads[least],
        "std": stats.std,
        "goalBytesPerSecond": goal,
    }
    exchange, remaining, returning = (
        _Exchange(),
        len(bundles),
        _movable(snapshot, transferable, least, most),
    )
    for bundle in bundles:
        name, load = bundle.bundle_name, bundle.stats.throughput
        if not _may_move(snapshot, transferable, name, most, least):
            continue
        if remaining <= 1:
            break
        if load == 0:
            continue
        swaps: list[tuple[str, float]] = []
        if exchange.out - exchange.back + load > goal:
            if not transferable.transfer_enabled:
                break
            found = _swap(
                throughput - exchange.out + exchange.back - load,
                _throughput(snapshot, least) + exchange.out - exchange.back + load,
                throughput,
                returning,
            )
            if found is None:
                break
            swaps = found
        exchange.unloads += [
            Unload(other, least, most, reason, {**why, "swapFor": name}, swap=name)
            for other, _ in swaps
        ]
        destination = least if transferable.transfer_enabled else None
        exchange.unloads.append(
            Unload(name, most, destination, reason, why, swap=name if swaps else None)
        )
        exchange.out += load
        exchange.back += sum(amount for _, amount in swaps)
        remaining -= 1
    if exchange.out <= 0:
        skipped.append(Skip(most, f"NoBundles: none of its bundles fits, or may go to {least}"))
        return []
    stats.move(
        most,
        least,
        (exchange.out - exchange.back) * stats.loads[most] / throughput if throughput else 0.0,
    )
    return exchange.unloads


def _throughput(snapshot: ClusterSnapshot, broker: str) -> float:
    data = snapshot.load_data[broker]
    return data.msg_throughput_in + data.msg_throughput_out


def _movable(
    snapshot: ClusterSnapshot, transferable: Transferability, source: str, target: str
) -> Iterator[tuple[str, float]]:
    """The bundles that may come back, once each, with their throughput."""
    tops = snapshot.top_bundles.get(source)
    for bundle in tops.top_bundles_load_data if tops else []:
        if bundle.stats.throughput > 0 and _may_move(
            snapshot, transferable, bundle.bundle_name, source, target
        ):
            yield bundle.bundle_name, bundle.stats.throughput


def _may_move(
    snapshot: ClusterSnapshot, transferable: Transferability, bundle: str, owner: str, target: str
) -> bool:
    """Owned by who published it, not moved recently, and allowed to go there."""
    if snapshot.owners.get(bundle, owner) != owner or bundle in snapshot.recently_unloaded_ms:
        return False
    return transferable.allows(bundle, owner, target)


def _swap(
    most: float, least: float, ceiling: float, returning: Iterator[tuple[str, float]]
) -> list[tuple[str, float]] | None:
    """Bundles that come back so that the two brokers end well; None when there are none.

    `most` and `least` are throughputs after the move out.
    """
    chosen: list[tuple[str, float]] = []
    for name, load in returning:
        if most + load < ceiling and least - load < ceiling:
            chosen.append((name, load))
            most, least = most + load, least - load
            if least <= most < SWAP_CEILING * ceiling:
                return chosen
    return None


SHEDDER = Shedder(
    name="TransferShedder", shed=shed, memory=TransferMemory, checks_destinations=True
)
