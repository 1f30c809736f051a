"""BalancedShedder where not every bundle may go to every broker, or fits there."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from clusters.views import a_report, without_policies

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.usage_fit import JUST_MOVED_MS
from loadmanager.engine.plans.goals import Emptied, Even, Filled
from loadmanager.engine.plans.planner import plan
from loadmanager.engine.policies.isolation import AutoFailover, IsolationPolicy
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.filters import may_serve
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.balanced import SHEDDER
from loadmanager.kit.units import MINUTE_MS

SETTINGS = replace(
    StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement"),
    distribute_evenly=False,
)
PARTED = {
    tenant: IsolationPolicy(namespaces=[f"{tenant}/.*"], primary=[f"{tenant}[0-9]+"])
    for tenant in ("a", "b")
}


class Cluster:
    """Brokers of one size; a bundle is a part of a broker's CPU, without noise."""

    def __init__(
        self,
        brokers: Mapping[str, list[float]],
        policies: Mapping[str, IsolationPolicy] | None = None,
    ) -> None:
        self.policies = policies or {}
        self.brokers: dict[str, dict[str, float]] = {}
        """brokerId → bundle → its part."""
        for number, (name, parts) in enumerate(brokers.items()):
            of = f"{name[0]}/n{number}"
            self.brokers[f"{name}:8080"] = {
                f"{of}/0x{at:08x}_0x{at + 1:08x}": part for at, part in enumerate(parts)
            }
        self.view, self.memories, self.now_ms = ClusterView(), Memories(), 0

    def minute(self, factor: float = 1.0) -> Plan:
        """All report, and what a cycle decides is done; `factor`: of the usual traffic."""
        self.now_ms += MINUTE_MS
        for name, bundles in self.brokers.items():
            stats = {
                bundle: NamespaceBundleStats(
                    msg_throughput_in=factor * part * 1e8, consumer_count=2
                )
                for bundle, part in bundles.items()
            }
            cpu = min(100 * factor * sum(bundles.values()), 100.0)
            report = a_report(stats, cpu=cpu, last_update=self.now_ms)
            self.view.observe(name, report, self.now_ms)
        snapshot = without_policies(self.view, SETTINGS, self.now_ms)
        snapshot = snapshot.having(isolation_policies=self.policies)
        self.snapshot = snapshot
        made, self.memories = cycle.shed(snapshot, SETTINGS, self.memories)
        for move in made.unloads:
            part = self.brokers[move.source].pop(move.bundle)
            self.brokers[move.destination or ""][move.bundle] = part
            self.view.moved(move.bundle, move.source, self.now_ms)
        return made

    def used(self, group: str = "") -> list[float]:
        """The usage of the brokers whose names begin so, in order."""
        return [
            round(sum(bundles.values()), 3)
            for name, bundles in self.brokers.items()
            if name.startswith(group)
        ]


def parted(low: float) -> Cluster:
    """Two groups of eight brokers; those of one have the mean usage `low`, of the other 0.5."""
    shares = (0, 0.5, 1, 1, 1, 1, 1.5, 2)
    brokers = {
        f"{tenant}{number}": [0.02] * round(share * mean / 0.02)
        for tenant, mean in (("a", low), ("b", 0.5))
        for number, share in enumerate(shares)
    }
    return Cluster(brokers, PARTED)


@pytest.mark.parametrize("low", [0.1, 0.3, 0.48])
def test_groups_that_policies_part_are_evened_each_by_itself(low: float) -> None:
    """No bundle leaves its group, and then nothing moves."""
    cluster = parted(low)
    for _ in range(40):
        for move in cluster.minute().unloads:
            assert move.bundle[0] == move.source[0] == (move.destination or "")[0]
    for group, mean in (("a", low), ("b", 0.5)):
        used = cluster.used(group)
        assert max(used) - min(used) <= 0.02 + 0.16 * mean, used
    assert not any(cluster.minute().unloads for _ in range(10))


@pytest.mark.parametrize("reserved", [1, 6, 20])
def test_reserved_brokers_keep_nobody_from_being_evened(reserved: int) -> None:
    """They are idle, and nothing may go there."""
    brokers = {f"b{number}": [0.03] * 20 for number in range(11)} | {"b11": []}
    brokers |= {f"a{number}": [] for number in range(reserved)}
    cluster = Cluster(brokers, PARTED)
    for _ in range(30):
        cluster.minute()
    assert set(cluster.used("a")) == {0}
    assert min(cluster.used("b")) >= 0.45


def test_a_goal_is_even_within_each_group() -> None:
    """Not between groups, which cannot help each other."""
    cluster = parted(0.2)
    cluster.minute()
    made = plan(cluster.snapshot, SETTINGS, Even(within_points=5))
    assert made.reached
    assert all(move.bundle[0] == (move.destination or "")[0] for move in made.moves)
    assert {move.source[0] for move in made.moves} == {"a", "b"}


@pytest.mark.parametrize("giants", [5, 6, 20, 60])
def test_what_fits_nowhere_hides_nobody(giants: int) -> None:
    """Each of the most used brokers has one bundle, which is more than any other has room for."""
    brokers = {f"a{number}": [0.92] for number in range(giants)}
    brokers |= {f"b{number}": [0.035] * 20 for number in range(13)} | {"b13": []}
    cluster = Cluster(brokers)
    for _ in range(25):
        cluster.minute()
    assert min(cluster.used("b")) >= 0.5


@pytest.mark.parametrize("minutes", [3, 5])
def test_clients_that_come_and_go_by_nature(minutes: int) -> None:
    """Jobs that run every few minutes keep a new broker empty for half an hour at most."""
    cluster = Cluster({f"b{number}": [0.02] * 30 for number in range(3)} | {"b3": []})
    held = 0
    for minute in range(60):
        made = cluster.minute(1.0 if minute // minutes % 2 == 0 else 0.6)
        held += any(skip.code == "TrafficDip" for skip in made.skipped)
    assert held > 10
    assert min(cluster.used()) >= 0.36


def test_clients_that_are_away_once_are_waited_for() -> None:
    """A few are away for some minutes: nothing moves until they are back."""
    cluster = Cluster({f"b{number}": [0.02] * 30 for number in range(3)})
    for _ in range(30):
        cluster.minute()
    cluster.brokers["b3:8080"] = {}
    for _ in range(3):
        assert [skip.code for skip in cluster.minute(0.7).skipped] == ["TrafficDip"]
    for _ in range(12):
        cluster.minute()
    assert cluster.used()[3] > 0.2


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("since_ms", [4_000, JUST_MOVED_MS])
def test_moves_are_no_dip(since_ms: int, *, arrived: bool) -> None:
    """Half of the traffic was just moved: it is in no report yet, or with little of what it has."""
    cluster = Cluster({f"b{number}": [0.02] * 30 for number in range(3)} | {"b3": []})
    for _ in range(30):
        cluster.minute()
    moved = [(name, bundle) for name, has in cluster.brokers.items() for bundle in sorted(has)[:12]]
    for name, bundle in moved:
        part = cluster.brokers[name].pop(bundle)
        cluster.view.moved(bundle, name, cluster.now_ms + MINUTE_MS - since_ms)
        if arrived:
            cluster.brokers["b3:8080"][bundle] = 0.1 * part
    made = cluster.minute()
    learned = cluster.memories.of(SHEDDER).model
    ends = plan(cluster.snapshot, SETTINGS, Even(within_points=5), learned=learned).ends
    dips = since_ms >= JUST_MOVED_MS
    assert ("TrafficDip" in {skip.code for skip in made.skipped}) is dips
    assert (ends.code == "TrafficDip") is dips


def any_policies(rng: random.Random) -> dict[str, IsolationPolicy]:
    """Some that overlap, name nobody or everybody, or fail over to secondary brokers."""

    def brokers(most: int) -> list[str]:
        return [f"b{rng.randrange(14)}" for _ in range(rng.randrange(most))]

    return {
        f"p{number}": IsolationPolicy(
            namespaces=[f"t{rng.randrange(5)}/.*"],
            primary=[*brokers(4), *(["b.*"] if rng.random() < 0.1 else [])],
            secondary=brokers(3),
            auto_failover_policy=AutoFailover(parameters={"min_limit": str(rng.randrange(4))}),
        )
        for number in range(rng.randrange(1, 6))
    }


@pytest.mark.parametrize("seed", range(60))
def test_no_bundle_goes_where_policies_forbid_it(seed: int) -> None:
    """Whatever the policies are; of a cycle, and of plans towards goals."""
    rng, view = random.Random(seed), ClusterView()
    names = [f"b{number}:8080" for number in range(rng.randrange(1, 14))]
    for number, name in enumerate(names):
        stats = {
            f"t{rng.randrange(6)}/n{number}/0x{at:08x}_0x{at + 1:08x}": NamespaceBundleStats(
                msg_throughput_in=rng.random() * 1e7, consumer_count=1
            )
            for at in range(rng.randrange(25))
        }
        used = sum(each.msg_throughput_in for each in stats.values()) / 1e6
        persistent = rng.random() > 0.1
        view.observe(
            name, a_report(stats, cpu=min(used, 100), persistent_topics_enabled=persistent), 1
        )
    snapshot = without_policies(view, SETTINGS, MINUTE_MS)
    snapshot = snapshot.having(isolation_policies=any_policies(rng))
    moves = list(cycle.shed(snapshot, SETTINGS, Memories())[0].unloads)
    for goal in (Even(within_points=3), Filled(broker=names[0]), Emptied(broker=names[0])):
        moves += plan(snapshot, SETTINGS, goal).moves
    for move in moves:
        assert move.destination in may_serve(snapshot, move.bundle.rpartition("/")[0])[0]
