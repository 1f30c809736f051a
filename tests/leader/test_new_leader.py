"""The memory of a new leader, and its first moves."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from clusters.led import Led, led_fleet
from clusters.members import NS

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.learned import Learned
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.avg import AvgMemory
from loadmanager.engine.strategies.shedding.balanced import BalancedMemory
from loadmanager.engine.strategies.shedding.transfer import TransferMemory
from loadmanager.engine.strategies.strategy import Strategy
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.election import StoreElection
from loadmanager.kit.metadata.store import VersionConflictError
from loadmanager.kit.reason import Reason
from loadmanager.leader.memory_keeper import AGE_MS_MAX, MemoryKeeper
from loadmanager.leader.warm_up import WarmUp
from loadmanager.testing.cluster import LoopTime

A = f"{NS}/0x00000000_0x40000000"
MEMORIES: list[tuple[Strategy, Any]] = [
    (registry.SHEDDERS["AvgShedder"], AvgMemory({"b1:8080": 3}, {"b2:8080": 1})),
    (
        registry.SHEDDERS["BalancedShedder"],
        BalancedMemory(
            Learned({"b1:8080": (5.0, 0.1, 0.0, 0.2, 0.0)}, {7: 1.25}, idle=0.1, level=4e6),
            {"t/n/0x0_0x1": "b1:8080"},
            {"b1:8080": 7},
        ),
    ),
    (registry.SHEDDERS["ThresholdShedder"], {"b1:8080": 0.25}),
    (registry.SHEDDERS["TransferShedder"], TransferMemory(2, {"b1:8080": (0.5, 7.0)})),
    (registry.PLACEMENTS["LeastResourceUsageWithWeight"], {"b1:8080": 0.125}),
    (registry.PLACEMENTS["RoundRobinBrokerSelector"], (4, ("b1:8080", "b2:8080"))),
]


def a_keeper(led: Led, strategy: Strategy | None = None, checks: Any = ()) -> MemoryKeeper:
    """For the settings under which a strategy is used."""
    name = "" if strategy is None else strategy.name
    kind = "placement" if name in registry.PLACEMENTS and name != "AvgShedder" else "shedder"
    led.strategies.set(StrategySettings(**({kind: name} if name else {})))
    return MemoryKeeper(
        store=led.store,
        checks=checks,
        corrupt=Corrupt(),
        strategies=led.strategies,
        clock=led.moves.term.clock,
    )


@pytest.mark.parametrize(("strategy", "memory"), MEMORIES)
async def test_the_memory_of_a_strategy_survives(strategy: Strategy, memory: object) -> None:
    """Every strategy that remembers something finds it again; after an hour it begins anew."""
    async with led_fleet(1) as led:
        await a_keeper(led, strategy).save(Memories().remember(strategy, memory), ClusterView())
        restored = await a_keeper(led, strategy).restore(ClusterView())
        assert restored.of(strategy) == memory
        assert type(restored.of(strategy)) is type(memory)
        await asyncio.sleep(AGE_MS_MAX / 1000 + 1)
        restored = await a_keeper(led, strategy).restore(ClusterView())
        assert restored.of(strategy) == strategy.memory()


async def test_the_memory_of_the_strategy_that_acts_survives() -> None:
    """The extensible manager sheds with TransferShedder where a modular shedder is configured. The
    model is stored beside it: goals go by that.
    """
    balanced, model = registry.SHEDDERS["BalancedShedder"], MEMORIES[1][1]
    shedder, memory = registry.EXTENSIBLE_SHEDDER, TransferMemory(2, {"b1:8080": (0.5, 7.0)})
    view = ClusterView(knows_owners=True)
    async with led_fleet(1) as led:
        memories = Memories().remember(shedder, memory).remember(balanced, model)
        await a_keeper(led).save(memories, view)
        restored = await a_keeper(led).restore(view)
        assert (restored.of(shedder), restored.of(balanced)) == (memory, model)


def test_every_strategy_that_remembers_is_stored() -> None:
    """All of ours."""
    ours = [*registry.SHEDDERS.values(), *registry.PLACEMENTS.values()]
    remembering = {
        strategy.name
        for strategy in ours
        if strategy.memory() is not None and getattr(strategy, "reads", None) is None
    }
    assert remembering == {strategy.name for strategy in ours if strategy.stored is not None}
    assert remembering - {"RoundRobin"} == {strategy.name for strategy, _ in MEMORIES}


async def test_whose_turn_it_is_survives() -> None:
    """As round robin leaves it after placements: the next leader goes on with the next broker."""
    settings = StrategySettings(placement="RoundRobinBrokerSelector")
    async with led_fleet(3) as led:
        for index in range(3):
            await led.report(index, {}, cpu=10)

        def placed(memories: Memories) -> tuple[str | None, Memories]:
            (choice,), memories = cycle.place(
                led.load_manager.snapshot(settings), [A], settings, memories, random.Random(0)
            )
            return choice.broker, memories

        rule = registry.PLACEMENTS[settings.placement]
        first, memories = placed(Memories())
        await a_keeper(led, rule).save(memories, led.view)
        restored = await a_keeper(led, rule).restore(ClusterView())
        second, _ = placed(memories)
        assert placed(restored)[0] == second != first


async def test_a_live_memory_survives() -> None:
    """As a shedder leaves it after a cycle; recent moves, too, and planned destinations."""
    async with led_fleet(2) as led:
        await led.report(1, {A: NamespaceBundleStats(msg_rate_in=900)}, cpu=80)
        await led.shed()
        led.view.moved(A, "b1:8080", led.moves.term.clock.now_ms())
        shedder = registry.SHEDDERS["ThresholdShedder"]
        before = led.load_manager.memories
        assert before.of(shedder)
        await a_keeper(led, shedder).save(before, led.view)
        view = ClusterView()
        restored = await a_keeper(led, shedder).restore(view)
        assert dict(restored.of(shedder)) == dict(before.of(shedder))
        assert view.recent_moves()[0].keys() == {A}
        led.load_manager.memories = restored
        await led.shed()  # it decides with what it was given


async def test_what_is_corrupt_is_left_out_by_name() -> None:
    """The other documents count; another format is not read."""
    strategy = registry.SHEDDERS["ThresholdShedder"]
    path = f"{paths.MEMORIES}/shedder-ThresholdShedder"
    async with led_fleet(1) as led:
        view = ClusterView()
        view.moved(A, "b1:8080", led.moves.term.clock.now_ms())
        await a_keeper(led, strategy).save(Memories().remember(strategy, {"b1:8080": 0.5}), view)
        now_ms = led.moves.term.clock.now_ms()
        wrong = b'{"format": 1, "savedMs": %d, "memory": {"b1:8080": "x"}}' % now_ms
        for value in (b"{", wrong, b"7"):
            await led.store.put(path, value)
            keeper, view = a_keeper(led, strategy), ClusterView()
            restored = await keeper.restore(view)
            assert restored.of(strategy) == {}
            assert keeper.corrupt.paths == [path]
            assert view.recent_moves()[0].keys() == {A}
        await led.store.put(path, b'{"format": 2, "savedMs": 1, "memory": 7}')
        keeper = a_keeper(led, strategy)
        assert (await keeper.restore(ClusterView())).of(strategy) == {}
        assert keeper.corrupt.paths == []


async def test_a_deposed_leader_stores_nothing() -> None:
    """Its writes carry the checks of its term; what did not change is not written again."""
    strategy = registry.SHEDDERS["ThresholdShedder"]
    async with led_fleet(1) as led:
        election = StoreElection(led.store, LoopTime(), broker_id="b0:8080", web_url="")
        term = await election.campaign()
        keeper = a_keeper(led, strategy, term.checks)
        for _ in range(2):
            await keeper.save(Memories().remember(strategy, {"b": 0.5}), ClusterView())
        node = await led.store.get(f"{paths.MEMORIES}/shedder-ThresholdShedder")
        assert node is not None
        assert node.version == 0
        await election.resign()
        with pytest.raises(VersionConflictError):
            await keeper.save(Memories().remember(strategy, {"b": 0.7}), ClusterView())


class Held:
    """Holds a leader for a reason, as the daemon beside a Pulsar cluster may."""

    why: Reason | None = Reason("Incomplete", "1 of 3 brokers answer")

    def reason(self) -> Reason | None:
        """See `LeaderHold`."""
        return self.why


async def test_the_end_of_a_hold_is_told() -> None:
    """Once, and what has ended; it need not be a warm-up."""
    async with led_fleet(3) as led:
        led.hold = held = Held()
        await led.shed()
        held.why = None
        await led.shed()
        await led.shed()
        reasons = [str(skip.reason) for plan in led.observed for skip in plan.skipped]
        assert reasons[0] == "Incomplete: 1 of 3 brokers answer"
        assert [reason for reason in reasons if "Over" in reason] == [
            "HoldOver: Incomplete no longer holds cycles"
        ]


async def test_nothing_moves_before_a_quorum_has_reported() -> None:
    """The decisions say so, and when it is over: with the quorum, or after a bounded time."""
    for enough in (True, False):
        async with led_fleet(3) as led:
            led.move_settings.set(MoveSettings(warm_up_s=60))
            led.hold = WarmUp(
                brokers=led.fleet.brokers[0].brokers,
                heard=lambda: led.feed.heard,
                settings=led.move_settings,
                clock=led.moves.term.clock,
                began_s=led.moves.term.clock.monotonic_s(),
            )
            await led.report(1, {A: NamespaceBundleStats()})
            await led.shed()
            (skip,) = led.observed[-1].skipped
            assert skip.reason.startswith("WarmUp: 1 of 3 brokers have reported since the term")
            assert led.load_manager.cycles == 0
            if enough:
                await led.report(2, {f"{NS}/0x40000000_0x80000000": NamespaceBundleStats()})
            else:
                await asyncio.sleep(60)
            await led.shed()
            assert led.load_manager.cycles == 1
            reasons = [
                item.skipped[0].reason.partition(":")[0]
                for item in led.load_manager.records.decisions.last(5)
            ]
            assert reasons[-2:] == ["HoldOver", "WarmUp"]
