"""BalancedShedder: what its moves are worth, and what it does whatever the size of bundles."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from clusters.views import a_report, a_view, without_policies

from loadmanager.engine.history.records import decisions
from loadmanager.engine.load.bundle_traffic import cost_class_of
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.learned import Learned
from loadmanager.engine.load.pending import Pending
from loadmanager.engine.load.reports import (
    NamespaceBundleStats,
    ResourceUsage,
    default_bundle_data,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.load.wishes import Pin, Wishes
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.plan_document import SkipShown
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.balanced import SHEDDER, BalancedMemory

SETTINGS = StrategySettings(shedder="BalancedShedder")
Bundles = dict[str, tuple[float, int]]
"""Bundle → bytes/s and clients."""


def a_cluster(rng: random.Random) -> dict[str, tuple[float, Bundles]]:
    """Broker → CPU usage (a fraction) and its bundles."""
    brokers: dict[str, tuple[float, Bundles]] = {}
    for number in range(rng.choice([2, 5, 12, 13, 25])):
        bundles = {
            f"t/n{number}/0x{at:08x}_0x{at + 1:08x}": (
                rng.random() * 10 ** rng.randrange(3, 7),
                rng.randrange(5),
            )
            for at in range(rng.randrange(0, 30))
        }
        brokers[f"b{number:02}:8080"] = rng.random() * rng.choice([0.3, 1.0]), bundles
    return brokers


@pytest.mark.parametrize("seed", range(40))
def test_every_move_is_worth_its_price_and_overloads_nobody(seed: int) -> None:
    """From a more used to a less used broker that stays less used, and the sum of squares falls."""
    brokers = a_cluster(random.Random(seed))
    plan, _ = cycle.shed(a_snapshot(brokers), SETTINGS, Memories())
    owner = {bundle: name for name, (_, bundles) in brokers.items() for bundle in bundles}
    assert len({unload.bundle for unload in plan.unloads}) == len(plan.unloads)
    for unload in plan.unloads:
        why = {key: float(value) for key, value in unload.why.items()}
        assert owner[unload.bundle] == unload.source != unload.destination
        assert why["gain"] > why["price"] > 0
        assert why["usage"] > why["usageAfter"]
        assert why["usage"] > why["destinationUsageAfter"] > why["destinationUsage"]
        assert why["usageError"] > 0 < why["destinationError"]


def worlds_of_many_bundles() -> dict[str, tuple[int, int, dict[str, tuple[float, Bundles]]]]:
    """Clusters with an imbalance that no single bundle makes."""

    def bundles(of: str, count: int, load: float) -> Bundles:
        return {f"t/{of}/0x{at:08x}_0x{at + 1:08x}": (load, 2) for at in range(count)}

    def cluster(brokers: int, each: int, *, empty: int = 0) -> dict[str, tuple[float, Bundles]]:
        return {
            f"b{number:02}:8080": (0.0 if number < empty else 0.5, bundles(f"n{number}", each, 1e6))
            if number >= empty
            else (0.0, {})
            for number in range(brokers)
        }

    all_on_one = {"b0:8080": (0.75, bundles("n", 600, 1e6)), "b1:8080": (0.0, {})}
    return {
        "60 brokers, 20,000 bundles": (1, 12, cluster(60, 339, empty=1)),
        "20 brokers, 115 each": (1, 12, cluster(20, 121, empty=1)),
        "3 brokers, all on one": (2, 20, {**all_on_one, "b2:8080": (0.0, {})}),
    }


@pytest.mark.parametrize("name", worlds_of_many_bundles())
def test_an_empty_broker_is_filled_whatever_the_size_of_bundles(name: str) -> None:
    """To nine tenths of its share, with no more moves than that takes, and then nothing moves."""
    empty, cycles, brokers = worlds_of_many_bundles()[name]
    work = sum(len(bundles) for _, bundles in brokers.values())
    cost = sum(usage for usage, _ in brokers.values()) / work
    settings = replace(SETTINGS, placement="BalancedPlacement")
    memories, moves = Memories(), 0
    for _ in range(cycles):
        usages = {
            broker: (cost * len(bundles), bundles) for broker, (_, bundles) in brokers.items()
        }
        plan, memories = cycle.shed(a_snapshot(usages), settings, memories)
        moves += len(plan.unloads)
        for unload in plan.unloads:
            bundle = brokers[unload.source][1].pop(unload.bundle)
            brokers[unload.destination or ""][1][unload.bundle] = bundle
    share = work / len(brokers)
    counts = sorted(len(bundles) for _, bundles in brokers.values())
    assert counts[0] >= 0.9 * share
    assert moves <= 1.05 * empty * share
    assert not plan.unloads


@pytest.mark.parametrize("mean", [0.45, 0.6, 0.75, 0.9])
def test_a_difference_is_worth_no_more_in_a_full_cluster(mean: float) -> None:
    """6 points between two brokers are not worth a move, also where both are near overload."""
    names = [f"t/n/0x{at:08x}_0x{at + 1:08x}" for at in range(200)]
    brokers: dict[str, tuple[float, Bundles]] = {}
    for name, part in (("b1:8080", mean + 0.03), ("b2:8080", mean - 0.03)):
        brokers[name] = part, {names.pop(): (1e6, 1) for _ in range(round(part * 100))}
    plan, _ = cycle.shed(a_snapshot(brokers), SETTINGS, Memories())
    assert not plan.unloads


def test_what_is_not_worth_it_says_what_it_looked_at() -> None:
    """What both brokers use, by the model and by their sensors, and how much the model errs."""
    bundles: Bundles = {f"t/n/0x{at:08x}_0x{at + 1:08x}": (1e6, 2) for at in range(9)}
    brokers: dict[str, tuple[float, Bundles]] = {
        "b0:8080": (0.41, bundles),
        "b1:8080": (0.40, {bundle.replace("/n/", "/m/"): load for bundle, load in bundles.items()}),
    }
    plan, _ = cycle.shed(a_snapshot(brokers), SETTINGS, Memories())
    assert plan.unloads == ()
    (skip,) = (skip for skip in plan.skipped if skip.code == "NotWorthIt")
    assert {"usage", "usageMeasured", "usageError", "gain", "price"} <= skip.why.keys()
    assert skip.why["usageMeasured"] == pytest.approx(0.41)
    assert skip.why["destinationMeasured"] == pytest.approx(0.40)
    assert float(skip.why["destinationError"]) > 0
    error = 100 * float(skip.why["usageError"])
    assert f"(sensors: 41.0% and 40.0%; the model may be {error:.1f} points off)" in skip.text
    assert SkipShown.of(skip).why == skip.why
    (record,) = decisions(0, "b0:8080", plan, epoch=1, cycle=1)
    assert record.why == {name: str(value) for name, value in skip.why.items()}


def test_a_placement_says_what_its_broker_uses() -> None:
    """By the model and by its sensors, and what the bundle adds; nothing of the other brokers."""
    bundles: Bundles = {f"t/n/0x{at:08x}_0x{at + 1:08x}": (1e6, 2) for at in range(9)}
    brokers = {"b0:8080": (0.41, bundles), "b1:8080": (0.02, {})}
    settings = replace(SETTINGS, placement="BalancedPlacement", distribute_evenly=False)
    snapshot = a_snapshot(brokers)
    (placed,), _ = cycle.place(snapshot, ["t/x/0x0_0x1"], settings, Memories(), random.Random(1))
    assert placed.broker == "b1:8080"
    assert placed.why.keys() == {"usage", "usageMeasured", "usageError", "usageAfter"}
    assert placed.why["usageMeasured"] == pytest.approx(0.02)
    assert float(placed.why["usageAfter"]) >= float(placed.why["usage"])
    (record,) = decisions(0, "b0:8080", Plan("P", placements=(placed,)), epoch=1, cycle=1)
    assert record.figures == {name: str(value) for name, value in placed.why.items()}
    assert record.why.keys() == {"b0:8080"}


def test_a_placement_counts_what_the_traffic_of_the_bundle_costs() -> None:
    """Not what that of the broker does which takes it."""
    names = [f"t/n/0x{at:08x}_0x{at + 1:08x}" for at in range(9)]
    bundles: Bundles = dict.fromkeys(names, (1e6, 2))
    snapshot = a_snapshot({"b0:8080": (0.41, bundles), "b1:8080": (0.2, {names[0]: (4e6, 2)})})
    learned = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, Learned()).learned
    costs = {cost_class_of("t/n/0x0_0x1"): 2.0, cost_class_of("t/dear/0x0_0x1"): 6.0}
    memories = Memories().remember(SHEDDER, BalancedMemory(model=replace(learned, costs=costs)))
    settings = replace(SETTINGS, placement="BalancedPlacement", distribute_evenly=False)

    def adds(namespace: str) -> float:
        bundle = f"{namespace}/0x0_0x1"
        (placed,), _ = cycle.place(snapshot, [bundle], settings, memories, random.Random(1))
        assert placed.broker == "b1:8080"
        return float(placed.why["usageAfter"]) - float(placed.why["usage"])

    assert adds("t/dear") == pytest.approx(6 * adds("t/usual"), rel=0.02)
    assert adds("t/n") == pytest.approx(2 * adds("t/usual"), rel=0.02)


@pytest.mark.parametrize("later", [False, True])
def test_a_placement_counts_what_bundles_on_their_way_cost(later: bool) -> None:
    """A dear one with half the bytes fills its broker more; `later`: also one that is placed while
    the sums are kept.
    """
    names = [f"t/n/0x{at:08x}_0x{at + 1:08x}" for at in range(18)]
    bundles = [dict.fromkeys(some, (1e6, 2)) for some in (names[:9], names[9:])]
    snapshot = a_snapshot({"b0:8080": (0.41, bundles[0]), "b1:8080": (0.41, bundles[1])})
    learned = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, Learned()).learned
    costs = {cost_class_of("t/dear/0x0_0x1"): 6.0}
    memories = Memories().remember(SHEDDER, BalancedMemory(model=replace(learned, costs=costs)))
    settings = replace(SETTINGS, placement="BalancedPlacement", distribute_evenly=False)
    coming = {"b0:8080": ("t/dear/0x0_0x1", 0.5e6), "b1:8080": ("t/usual/0x0_0x1", 1e6)}
    pending = Pending()
    model = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, memories.of(SHEDDER).model)
    if later:
        pending.work(snapshot.columns, model.costs)
    for broker, (bundle, bytes_s) in coming.items():
        data = default_bundle_data()
        data.short_term_data.msg_throughput_in, data.short_term_data.msg_throughput_out = bytes_s, 0
        pending.add(bundle, broker, data)
    work = pending.work(snapshot.columns, model.costs)
    assert work.tolist() == pytest.approx([3e6, 1e6], rel=0.1)
    waits = snapshot.having(pending=pending)
    (placed,), _ = cycle.place(waits, ["t/x/0x0_0x1"], settings, memories, random.Random(1))
    assert placed.broker == "b1:8080"
    pending.remove(["t/dear/0x0_0x1"])
    assert pending.work(snapshot.columns, model.costs).tolist() == [0.0, work[1]]


def test_a_move_costs_the_longer_its_clients_wait() -> None:
    """A difference that is worth a usual pause is not worth a long one, as it was measured; within
    bounds, and what has no clients costs the same. An empty broker is filled whatever it costs.
    """

    def moves(pause_s: float | None, clients: int, least: float = 0.44) -> int:
        brokers: dict[str, tuple[float, Bundles]] = {}
        for name, part in (("b1:8080", 0.6), ("b2:8080", least)):
            names = (f"t/{name[1]}/0x{at:08x}_0x{at + 1:08x}" for at in range(round(part * 100)))
            brokers[name] = part, dict.fromkeys(names, (1000000.0, clients))
        snapshot = a_snapshot(brokers).having(pause_s=pause_s)
        plan, _ = cycle.shed(snapshot, SETTINGS, Memories())
        assert all(unload.why.get("pauseSeconds") == pause_s for unload in plan.unloads)
        return len(plan.unloads)

    assert moves(0.15, 3) == moves(None, 3) > 0
    assert moves(0.05, 3, least=0.53) == moves(0.0, 3, least=0.53) > 0
    assert moves(0.15, 3, least=0.53) == 0
    assert moves(1.0, 3) == 0 < moves(1e9, 0)
    assert moves(1e9, 3, least=0.0) > 0


def test_a_refused_move_counts_as_not_made() -> None:
    """The next cycle wants it again, for as long as the guards refuse it."""
    snapshot = a_snapshot(a_cluster(random.Random(3)))
    none_may_move = replace(SETTINGS, moves_per_cycle_max=0)
    first, memories = cycle.shed(snapshot, none_may_move, Memories())
    second, _ = cycle.shed(snapshot, none_may_move, memories)
    assert not first.unloads
    assert len(first.skipped) > 1
    assert second.skipped[0] == first.skipped[0]
    assert len(second.skipped) > 1


@pytest.mark.parametrize(
    ("cpu", "minutes", "leave"), [(0.96, 5, True), (0.96, 4.9, False), (0.94, 29, False)]
)
def test_a_full_broker_corrects_a_move_soon(cpu: float, minutes: float, leave: bool) -> None:
    """What a bundle costs may be known only when it has moved: a full broker gives it away after
    five minutes, any other one after the grace period. Strategies of Pulsar wait as Pulsar does.
    """
    brokers: dict[str, tuple[float, Bundles]] = {}
    for name, part in (("b1:8080", cpu), ("b2:8080", 0.4), ("b3:8080", 0.4)):
        names = (f"t/{name[1]}/0x{at:08x}_0x{at + 1:08x}" for at in range(round(part * 100)))
        brokers[name] = part, dict.fromkeys(names, (1e6, 1))
    snapshot = a_snapshot(brokers)
    now_ms = 3_600_000
    moved = dict.fromkeys(brokers["b1:8080"][1], now_ms - round(minutes * 60_000))
    snapshot = snapshot.having(now_ms=now_ms, recently_unloaded_ms=moved)
    plan, _ = cycle.shed(snapshot, SETTINGS, Memories())
    assert {move.source for move in plan.unloads} == ({"b1:8080"} if leave else set())
    staying = {skip.what for skip in plan.skipped if skip.code == "GracePeriod"}
    assert not staying & {move.bundle for move in plan.unloads}
    pulsars, _ = cycle.shed(snapshot, StrategySettings(shedder="ThresholdShedder"), Memories())
    assert pulsars.unloads == ()


def test_other_bundles_leave_where_some_are_pinned() -> None:
    """A pinned bundle is not proposed, so that it keeps no other one from leaving."""
    snapshot = a_snapshot(a_cluster(random.Random(3)))
    free, _ = cycle.shed(snapshot, SETTINGS, Memories())
    pins = {move.bundle: Pin(move.source, 10) for move in free.unloads}
    pinned, _ = cycle.shed(snapshot.having(wishes=Wishes(pins)), SETTINGS, Memories())
    assert pinned.unloads
    assert not {move.bundle for move in pinned.unloads} & pins.keys()
    assert {skip.what for skip in pinned.skipped} <= pins.keys()


@pytest.mark.parametrize("limit", [0.0, 1e-10, 1e6])
def test_a_broker_without_a_limit_takes_bundles(limit: float) -> None:
    """A resource without a limit counts as unused, and as no smaller than that of others."""
    view = ClusterView()
    for name, cpu in (("b1:8080", 92), ("b2:8080", 92), ("b3:8080", 2)):
        stats = {
            f"t/{name[:2]}/0x{at:08x}_0x{at + 1:08x}": NamespaceBundleStats(msg_throughput_in=1e7)
            for at in range(9 if cpu > 50 else 0)
        }
        bandwidth = ResourceUsage(usage=7e5 * (cpu > 50), limit=limit if cpu < 50 else 1e6)
        view.observe(name, a_report(stats, cpu=cpu, bandwidth_in=bandwidth), 1)
    snapshot = without_policies(view, SETTINGS)
    plan, memories = cycle.shed(snapshot, SETTINGS, Memories())
    assert {unload.destination for unload in plan.unloads} == {"b3:8080"}
    balanced_placement = replace(SETTINGS, placement="BalancedPlacement")
    placed, _ = cycle.place(
        snapshot, ["t/n/0x0_0x1"], balanced_placement, memories, random.Random(0)
    )
    assert placed[0].broker == "b3:8080"


def test_a_large_broker_relieves_itself_to_a_small_one() -> None:
    """Sizes are of the resource that is used most: network cards alike do not make a broker with a
    quarter of the cores look nearly as large as the other.
    """
    view, card = ClusterView(), ResourceUsage(usage=1, limit=1e6)
    for name, cores, percent in (("b1:8080", 16, 75), ("b2:8080", 4, 45)):
        used = cores * percent
        stats = {
            f"t/{name[:2]}/0x{at:08x}_0x{at + 1:08x}": NamespaceBundleStats(msg_throughput_in=1e6)
            for at in range(used // 20)
        }
        cpu = ResourceUsage(usage=used, limit=cores * 100)
        view.observe(name, a_report(stats, cpu=cpu, bandwidth_in=card, bandwidth_out=card), 1)
    snapshot = without_policies(view, SETTINGS)
    model = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, Learned())
    assert model.size.tolist() == [1.6, 0.4]
    plan, _ = cycle.shed(snapshot, SETTINGS, Memories())
    assert {unload.destination for unload in plan.unloads} == {"b2:8080"}


@pytest.mark.parametrize(("busy", "leaves"), [(0.6, True), (0.75, False)])
def test_what_a_broker_cannot_do_goes_where_there_is_room(busy: float, leaves: bool) -> None:
    """Also above 85 %, if that is below all that the other one has: a bundle that is 130 % of a
    small broker adds 32.5 points to a large one.
    """
    view, names = ClusterView(), {"b1:8080": 16, "b2:8080": 16, "b3:8080": 4}
    for minute in range(10):
        for name, cores in names.items():
            count = 1 if cores == 4 else round(160 * busy)
            each = 52e6 if cores == 4 else 1e6
            stats = {
                f"t/{name[:2]}/0x{at:08x}_0x{at + 1:08x}": NamespaceBundleStats(
                    msg_throughput_in=each, producer_count=3
                )
                for at in range(count)
            }
            cpu = ResourceUsage(usage=min(10 * count * each / 1e6, 100 * cores), limit=100 * cores)
            view.observe(name, a_report(stats, cpu=cpu), minute)
    plan, _ = cycle.shed(without_policies(view, SETTINGS), SETTINGS, Memories())
    assert ("b3:8080" in {unload.source for unload in plan.unloads}) is leaves


def test_other_bundles_leave_where_a_namespace_is_excluded() -> None:
    """As where some are pinned."""
    brokers = a_cluster(random.Random(3))
    snapshot = a_snapshot(brokers)
    free, _ = cycle.shed(snapshot, SETTINGS, Memories())
    namespace = free.unloads[0].bundle.rpartition("/")[0]
    excluded, _ = cycle.shed(
        snapshot, replace(SETTINGS, excluded_namespaces=(namespace,)), Memories()
    )
    assert not excluded.skipped or excluded.skipped[0].what == "cluster"
    assert namespace not in {move.bundle.rpartition("/")[0] for move in excluded.unloads}


def a_snapshot(brokers: dict[str, tuple[float, Bundles]]) -> ClusterSnapshot:
    """The cluster after each broker's first report."""
    reports = {}
    for name, (usage, bundles) in brokers.items():
        stats = {
            bundle: NamespaceBundleStats(msg_throughput_in=load, consumer_count=clients)
            for bundle, (load, clients) in bundles.items()
        }
        reports[name] = a_report(stats, cpu=usage * 100)
    return without_policies(a_view(reports), SETTINGS)


def test_many_lookups_share_one_model() -> None:
    """Also before the first cycle, when nothing was learned; reports that change make a new one."""
    placing = replace(SETTINGS, placement="BalancedPlacement")
    snapshot = a_snapshot(a_cluster(random.Random(3)))
    models = []
    for number in range(3):
        bundle = f"t/new/0x{number:08x}_0x{number + 1:08x}"
        cycle.place(snapshot, [bundle], placing, Memories(), random.Random(0))
        models.append(snapshot.columns.derived[SETTINGS.weights])
    assert models[0] is models[1] is models[2]
    snapshot.columns.changed(snapshot.columns.names[:1])
    assert not snapshot.columns.derived
