"""What every strategy promises: tests for the authors of shedders and placement rules.

    from loadmanager.testing.strategy_contract import ShedderContract

    class TestBusiest(ShedderContract):
        strategy = "BusiestShedder"

A test runner finds the tests below in it. They need nothing but the package: their clusters come
from `random` with a seed, which a failure names. The strategy is asked as a leader asks it: within
the cycle, behind the guards that all strategies share.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import msgspec

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import Cordon, Pin, Wishes
from loadmanager.engine.policies.isolation import decode_policies
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Placement, Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import PlacementRule, Shedder, Strategy
from loadmanager.kit.errors import ConfigError
from loadmanager.leader import plugins
from loadmanager.leader.strategy_keys import STRATEGY_KEYS, strategies_of
from loadmanager.testing.odd_clusters import (
    NOW_MS,
    OddBroker,
    OddCluster,
    even_cluster,
    odd_cluster,
)
from loadmanager.testing.steady_load import SteadyCluster, skewed_then_joined

SEED = 1
CASES = 40
CYCLES = 4
"""So many cycles see each odd cluster."""
EAGER = {
    "minUnloadMessage": "0",
    "minUnloadMessageThroughput": "0",
    "loadBalancerBundleUnloadMinThroughputThreshold": "0",
}
"""Small loads count, too: for odd clusters, not for the steady one."""
REST_CYCLES_MAX, STILL_MOVES_MAX, MOVES_OF_ONE_MAX = 120, 2, 4
WORSE_POINTS = 5.0
"""What noise may look like from an even start."""
LARGE = 100
"""Brokers of the cluster whose cycle is timed, and bundles of each."""
CYCLE_S = 1.0
"""CPU seconds for that: ours take a hundredth."""
PROCESS_S = 120.0


def _named(reference: str, registered: Mapping[str, Strategy]) -> Strategy:
    """The strategy of a name in broker.conf, ours or of an installed package, or `module:object` of
    one that is not installed, which is registered. Raises `ConfigError` for what is no such thing.
    """
    plugins.own_settings()
    module, separator, name = reference.partition(":")
    if separator:
        return plugins.register_strategy(getattr(importlib.import_module(module), name))
    if reference not in registered:
        raise ConfigError(f"no installed package has the strategy {reference}")
    return registered[reference]


@contextmanager
def _case(number: int, seed: int, cluster: object) -> Iterator[None]:
    """A failure names the case."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"case {number} of seed {seed}: {cluster}")
        raise


class _StrategyContract:
    """What the tests of both kinds need."""

    kind: ClassVar[str]
    strategy: ClassVar[str]
    """Its name in broker.conf, or `module:object`."""
    settings: ClassVar[Mapping[str, str]] = {}
    """Keys of broker.conf to test it with."""
    seed: ClassVar[int] = SEED
    cases: ClassVar[int] = CASES
    cycle_s: ClassVar[float] = CYCLE_S
    """CPU seconds that a cycle over 10,000 bundles may take."""
    beside: ClassVar[Sequence[str]] = ()
    """Strategies that are asked in the same other process: it costs a second to start one."""

    @classmethod
    def own_keys(cls) -> dict[str, str]:
        """The keys of broker.conf that choose the strategy."""
        raise NotImplementedError

    @classmethod
    def in_force(cls, **keys: str) -> StrategySettings:
        """Its settings, and `keys`."""
        return strategies_of(STRATEGY_KEYS.parse({**cls.own_keys(), **cls.settings, **keys}))

    @classmethod
    def odd(cls) -> Iterator[tuple[int, random.Random, OddCluster]]:
        """The cases: number, random generator, cluster; for both managers if it reads both."""
        rng = random.Random(cls.seed)  # noqa: S311 - repeats
        for number in range(cls.cases):
            for extensible in cls.managers():
                yield number, rng, odd_cluster(rng, extensible=extensible)

    @classmethod
    def managers(cls) -> Sequence[bool]:
        """The managers whose clusters it is asked about: whether that is the extensible one."""
        return (False,)

    @classmethod
    def answers(cls) -> bytes:
        """Everything that it decides about all cases, as bytes."""
        raise NotImplementedError

    def test_same_bytes_in_another_process(self) -> None:
        """The order of sets and of what is hashed is another one there, and changes nothing."""
        there = _digests_elsewhere(self.kind, self._all())
        assert there[self.strategy] == _digest(type(self))

    def _all(self) -> tuple[tuple[str, str], ...]:
        keys = dict.fromkeys(self.beside, "{}")
        keys[self.strategy] = msgspec.json.encode(dict(self.settings)).decode()
        return tuple(sorted(keys.items()))


class ShedderContract(_StrategyContract):
    """The tests of a shedder. Destinations come from the placement rule that goes with it."""

    kind = "shedder"
    newcomers_share: ClassVar[float] = 0.0
    """The part of the mean load that an empty broker which joins gets at least."""

    @classmethod
    def own_keys(cls) -> dict[str, str]:
        shedder = _named(cls.strategy, registry.SHEDDERS)
        assert isinstance(shedder, Shedder), f"{cls.strategy} is no shedder"
        follows = {rule.follows: rule.name for rule in registry.PLACEMENTS.values()}
        rule = shedder.goes_with or follows.get(shedder.name) or StrategySettings().placement
        return {
            "loadBalancerLoadSheddingStrategy": shedder.name,
            "loadBalancerLoadPlacementStrategy": rule,
        }

    @classmethod
    def managers(cls) -> Sequence[bool]:
        shedder = _named(cls.strategy, registry.SHEDDERS)
        return (False, True) if isinstance(shedder, Shedder) and shedder.extensible else (False,)

    @classmethod
    def plans(cls, snapshot: ClusterSnapshot, **keys: str) -> list[Plan]:
        """Some cycles over an unchanged cluster, with destinations."""
        settings, memories, plans = cls.in_force(**{**EAGER, **keys}), Memories(), []
        for _ in range(CYCLES):
            plan, memories = cycle.shed(snapshot, settings, memories)
            final, memories = cycle.destinations(
                snapshot,
                plan,
                settings,
                memories,
                random.Random(cls.seed),  # noqa: S311 - repeats
            )
            plans.append(final)
        return plans

    @classmethod
    def answers(cls) -> bytes:
        plans = [cls.plans(cluster.snapshot()) for _, _, cluster in cls.odd()]
        steady = SteadyCluster(cls.in_force(), cls.seed)
        moved = [list(steady.cycle()) for _ in range(2 * CYCLES)]
        return msgspec.json.encode([repr(plans), moved, steady.owner])

    def test_moves_what_the_source_serves(self) -> None:
        """Each bundle once, from its broker to another one whose report counts, with a reason in
        one word and its numbers; nothing that was moved a moment ago. Where nothing moves, the plan
        says why.
        """
        for number, rng, cluster in self.odd():
            lately = _some(rng, cluster.owner)
            with _case(number, self.seed, cluster):
                for plan in self.plans(cluster.snapshot(lately)):
                    moved = [unload.bundle for unload in plan.unloads]
                    assert len(moved) == len(set(moved)), "a bundle moves twice in one cycle"
                    assert not lately.intersection(moved), "what was moved lately moves again"
                    for unload in plan.unloads:
                        assert cluster.owner[unload.bundle] == unload.source
                        assert unload.destination in cluster.brokers
                        assert unload.destination != unload.source
                        assert not {unload.source, unload.destination} & cluster.stale
                        assert unload.reason, "a move has a reason"
                        assert unload.why, "a move has numbers"
                    assert plan.unloads or plan.skipped, "every no has a reason"

    def test_same_answer_for_the_same_cluster(self) -> None:
        """Again, and whatever the order in which brokers and bundles are listed."""
        for number, _, cluster in self.odd():
            with _case(number, self.seed, cluster):
                plans = self.plans(cluster.snapshot())
                assert self.plans(cluster.snapshot()) == plans, "not the same answer again"
                assert self.plans(cluster.snapshot(order=1)) == plans, "it depends on an order"

    def test_leaves_its_arguments_as_they_are(self) -> None:
        """The snapshot belongs to the leader."""
        for number, _, cluster in self.odd():
            with _case(number, self.seed, cluster):
                snapshot, untouched = cluster.snapshot(), cluster.snapshot()
                self.plans(snapshot)
                assert snapshot == untouched

    def test_pinned_bundles_stay(self) -> None:
        """And others go in their place: as where they were moved a moment ago. The plan names each
        at a broker that sheds.
        """
        for number, rng, cluster in self.odd():
            owner, chosen = cluster.owner, _some(rng, cluster.owner)
            pins = {bundle: Pin(owner[bundle], NOW_MS + 1) for bundle in chosen}
            with _case(number, self.seed, cluster):
                plans = self.plans(replace(cluster.snapshot(), wishes=Wishes(pins)))
                lately = self.plans(cluster.snapshot(chosen))
                assert [_left(plan) for plan in plans] == [_left(plan) for plan in lately]
                for plan in plans:
                    pinned = {skip.what for skip in plan.skipped if skip.code == "Pinned"}
                    shedding = {unload.source for unload in plan.unloads}
                    assert {bundle for bundle in chosen if owner[bundle] in shedding} <= pinned

    def test_operators_have_the_last_word(self) -> None:
        """Nothing goes to a cordoned broker, moves in an excluded namespace, goes where isolation
        does not allow it, or above the cap of a cycle.
        """
        for number, rng, cluster in self.odd():
            cordoned, primary = (f"b{rng.randrange(6)}:8080" for _ in range(2))
            policy = f'{{"p": {{"namespaces": ["t/n3"], "primary": ["{primary[:2]}"]}}}}'
            snapshot = replace(
                cluster.snapshot(),
                isolation_policies=decode_policies(policy.encode()),
                wishes=Wishes(cordons={cordoned: Cordon(NOW_MS)}),
            )
            cap = rng.randint(0, 3)
            keys = {
                "loadManagerMovesPerCycleMax": str(cap),
                "loadBalancerSheddingExcludedNamespaces": "t/n1",
                "loadBalancerSheddingBundlesWithPoliciesEnabled": "true",
            }
            with _case(number, self.seed, (cluster, cordoned, primary, cap)):
                for plan in self.plans(snapshot, **keys):
                    assert len(plan.unloads) <= cap
                    for unload in plan.unloads:
                        namespace = unload.bundle.rpartition("/")[0]
                        assert namespace != "t/n1"
                        assert unload.destination != cordoned
                        assert (unload.destination == primary) == (namespace == "t/n3")

    def test_idle_between_equal_brokers(self) -> None:
        """There is nothing to gain."""
        rng = random.Random(self.seed)  # noqa: S311 - repeats
        for number in range(self.cases):
            for extensible in self.managers():
                cluster = even_cluster(rng, extensible=extensible)
                with _case(number, self.seed, cluster):
                    assert not any(plan.unloads for plan in self.plans(cluster.snapshot()))

    def test_comes_to_rest(self) -> None:
        """Under load that only trembles, a skewed cluster comes to rest within 120 cycles, no worse
        than it was; no bundle goes to and fro. A broker that joins gets its `newcomers_share`.
        """
        settings = self.in_force()
        before = SteadyCluster(settings, self.seed).gap
        outcome = skewed_then_joined(settings, self.seed)
        for phase in (outcome.skewed, outcome.joined):
            assert phase.cycles <= REST_CYCLES_MAX, f"moves go on for {phase.cycles} cycles"
            assert phase.still_moves <= STILL_MOVES_MAX, "moves begin again by themselves"
            most = max(phase.moves_of_one.values(), default=0)
            assert most <= MOVES_OF_ONE_MAX, f"one bundle was moved {most} times"
        assert outcome.skewed.gap <= before, "it is worse than before"
        assert outcome.share >= self.newcomers_share, "the broker that joined stays too empty"

    def test_an_even_cluster_stays_even(self) -> None:
        """Noise moves little, and makes nothing worse."""
        steady = SteadyCluster(self.in_force(), self.seed, skew=0)
        before = steady.gap
        phase = steady.come_to_rest()
        assert phase.gap <= before + WORSE_POINTS
        assert phase.still_moves <= STILL_MOVES_MAX

    def test_a_large_cluster_takes_little_time(self) -> None:
        """A leader does nothing else meanwhile: a cycle that takes too long is refused."""
        for extensible in self.managers():
            settings, snapshot = self.in_force(), _large(extensible=extensible)
            assert _cpu_s(lambda: cycle.shed(snapshot, settings, Memories())) < self.cycle_s  # noqa: B023 - called at once


class PlacementContract(_StrategyContract):
    """The tests of a placement rule."""

    kind = "placement"

    @classmethod
    def own_keys(cls) -> dict[str, str]:
        rule = _named(cls.strategy, registry.PLACEMENTS)
        assert isinstance(rule, PlacementRule), f"{cls.strategy} is no placement rule"
        keys = {"loadBalancerLoadPlacementStrategy": rule.name}
        return keys | ({"loadBalancerLoadSheddingStrategy": rule.follows} if rule.follows else {})

    @classmethod
    def placed(
        cls, snapshot: ClusterSnapshot, bundles: Sequence[str], *, times: int = 1
    ) -> list[list[Placement]]:
        """The choices for bundles of one request, so many times."""
        settings, memories, placed = cls.in_force(), Memories(), []
        rng = random.Random(cls.seed)  # noqa: S311 - repeats
        for _ in range(times):
            choices, memories = cycle.place(snapshot, bundles, settings, memories, rng)
            placed.append(choices)
        return placed

    @classmethod
    def answers(cls) -> bytes:
        placed = [
            cls.placed(cluster.snapshot(), _bundles(rng), times=CYCLES)
            for _, rng, cluster in cls.odd()
        ]
        texts = [
            [each.bundle, each.broker, [*each.candidates], sorted(map(repr, each.rejected.items()))]
            for requests in placed
            for choices in requests
            for each in choices
        ]
        return msgspec.json.encode(texts)

    def test_chooses_of_the_brokers_that_it_is_given(self) -> None:
        """There is a reason for each that was not chosen, and one answer for a bundle that is named
        twice.
        """
        for number, rng, cluster in self.odd():
            with _case(number, self.seed, cluster):
                (answers,) = self.placed(cluster.snapshot(), _bundles(rng))
                for answer in answers:
                    assert {*answer.candidates, *answer.rejected} == set(cluster.brokers)
                    assert not set(answer.candidates) & set(answer.rejected)
                    assert (answer.broker in answer.candidates) == bool(cluster.brokers)
                    same = next(other for other in answers if other.bundle == answer.bundle)
                    assert answer == same

    def test_same_answer_for_the_same_cluster(self) -> None:
        """Again, and whatever the order in which brokers and bundles are listed."""
        for number, rng, cluster in self.odd():
            bundles = _bundles(rng)
            with _case(number, self.seed, cluster):
                placed = self.placed(cluster.snapshot(), bundles)
                assert self.placed(cluster.snapshot(), bundles) == placed
                assert self.placed(cluster.snapshot(order=1), bundles) == placed

    def test_operators_have_the_last_word(self) -> None:
        """A pinned bundle goes where it is pinned, one of an isolated namespace to its brokers, and
        no other one there, nor to a cordoned broker.
        """
        for number, rng, cluster in self.odd():
            if len(cluster.brokers) < 3:
                continue
            cordoned, pinned, primary = rng.sample(sorted(cluster.brokers), 3)
            bundle, free, isolated = (f"t/n{at}/0xf0000000_0xffffffff" for at in (0, 1, 3))
            policy = f'{{"p": {{"namespaces": ["t/n3"], "primary": ["{primary[:2]}"]}}}}'
            snapshot = replace(
                cluster.snapshot(),
                isolation_policies=decode_policies(policy.encode()),
                wishes=Wishes(
                    {bundle: Pin(pinned, NOW_MS + 1)}, cordons={cordoned: Cordon(NOW_MS)}
                ),
            )
            with _case(number, self.seed, (cluster, cordoned, pinned, primary)):
                ((first, second, third),) = self.placed(snapshot, [bundle, free, isolated])
                assert (first.broker, third.broker) == (pinned, primary)
                assert second.broker in cluster.brokers.keys() - {cordoned, primary}

    def test_a_large_cluster_takes_little_time(self) -> None:
        """A lookup waits meanwhile, and the leader does nothing else."""
        settings, snapshot = self.in_force(), _large(extensible=False)
        rng, bundles = random.Random(self.seed), ["t/new/0x00000000_0xffffffff"]  # noqa: S311 - repeats
        took_s = _cpu_s(lambda: cycle.place(snapshot, bundles, settings, Memories(), rng))
        assert took_s < self.cycle_s


def _some(rng: random.Random, bundles: Mapping[str, str]) -> frozenset[str]:
    """About a third of them."""
    return frozenset(bundle for bundle in sorted(bundles) if rng.random() < 0.3)


def _left(plan: Plan) -> list[tuple[str, str]]:
    return [(unload.bundle, unload.source) for unload in plan.unloads]


def _bundles(rng: random.Random) -> list[str]:
    return [f"t/n{rng.randrange(6)}/0xf0000000_0xffffffff" for _ in range(rng.randint(0, 6))]


def _large(*, extensible: bool) -> ClusterSnapshot:
    """One hundred brokers with one hundred bundles each, unevenly used."""
    rng = random.Random(SEED)  # noqa: S311 - repeats
    brokers = {
        f"b{number:03d}:8080": OddBroker(
            rng.uniform(0, 100), tuple(rng.uniform(0, 1e7) for _ in range(LARGE))
        )
        for number in range(LARGE)
    }
    return OddCluster(brokers, extensible).snapshot()


def _cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds, the least of three times: what else runs on this machine does not count."""
    took = []
    for _ in range(3):
        began_s = time.process_time()
        work()
        took.append(time.process_time() - began_s)
    return min(took)


def _digest(contract: type[_StrategyContract]) -> str:
    return hashlib.sha256(contract.answers()).hexdigest()


@functools.cache
def _digests_elsewhere(kind: str, strategies: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Strategy → the digest of its answers in a process with another seed of hashes."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, kind, msgspec.json.encode(strategies).decode()],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        timeout=PROCESS_S,
    )
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=dict[str, str])


def _main(kind: str, strategies: str) -> None:
    base = {each.kind: each for each in (ShedderContract, PlacementContract)}[kind]
    digests = {}
    for name, settings in msgspec.json.decode(strategies, type=list[tuple[str, str]]):
        fields = {"strategy": name, "settings": msgspec.json.decode(settings)}
        digests[name] = _digest(type("There", (base,), fields))
    sys.stdout.write(msgspec.json.encode(digests).decode())


if __name__ == "__main__":
    _main(*sys.argv[1:])
