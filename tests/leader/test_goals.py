"""Orders to reach goals: within their limits, in their hours, through everything that happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import msgspec
import pytest
from clusters.led import LEADER, Led, Observed, led_fleet, the_members
from clusters.members import NS

from loadmanager.engine.load.cluster_view import UNREPORTED_MS_MAX
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.wishes import Cordon, Pause, Pin
from loadmanager.engine.moves.move import Author, MoveState
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.plans.goals import (
    MOVES_MAX,
    Apart,
    Emptied,
    Even,
    Filled,
    Goal,
    PlanLimits,
    Spare,
)
from loadmanager.engine.plans.order import ORDERS_MAX, PROPOSAL_MS, GoalOrder, Progress
from loadmanager.engine.plans.planner import NOTHING_HELPS, REACHED
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.plan import Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.lost_traffic import LOST, LOST_LEAST
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError
from loadmanager.kit.metadata.leader import Leader, Term
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import Steps
from loadmanager.kit.text import moment
from loadmanager.kit.units import DAY_MS, MINUTE_MS
from loadmanager.leader.draining import Draining
from loadmanager.leader.goal_bars import SOON_MS, refused_by
from loadmanager.leader.goal_ends import FRESH_MAX_S
from loadmanager.leader.goal_pace import AT_ONCE, END_MAX_S
from loadmanager.leader.goal_work import (
    AFTERWARDS_MAX_MS,
    AFTERWARDS_MS,
    LATE_MS,
    TIMES_PROMISED,
)
from loadmanager.leader.goals import LAPSED, TIME_IS_UP, UNCORDONED, TermGoals
from loadmanager.leader.windows import next_open_ms
from loadmanager.member.leading.term import build

COUNT = 16
SPAN = 0x100000000 // COUNT
BUNDLES = [f"{NS}/0x{n * SPAN:08x}_0x{min((n + 1) * SPAN, 0xFFFFFFFF):08x}" for n in range(COUNT)]
STRATEGIES = StrategySettings(
    shedder="BalancedShedder", distribute_evenly=False, grace_period_minutes=0
)
EACH_BYTES, EACH_CLIENTS = 1e6, 3.0
SLOW_S = 4.0
LATER_MINUTES = 15
EACH = NamespaceBundleStats(msg_throughput_in=EACH_BYTES, msg_rate_in=10, producer_count=3)


NO_SIZES: Mapping[str, float] = MappingProxyType({})


class Scene:
    """Brokers 1, 2 and 3 with 16 equal bundles, all of them at broker 1, and a goal's worker."""

    def __init__(self, led: Led) -> None:
        self.led = led
        self.goals = led.operations.goals
        self.bundles = BUNDLES
        self.sizes = NO_SIZES
        """Bundle → its traffic, of those that do not have the usual one."""
        self.lost: set[int] = set()
        self.started_ms: dict[int, int] = {}

    def owned(self, index: int) -> list[str]:
        """The bundles of a broker."""
        return [name for name in self.bundles if self.led.fleet.owners(name) == [f"b{index}:8080"]]

    async def report(self, part: float = 1.0, *, of_second: float = 1.0) -> None:
        """All brokers report what they have: 5 % of CPU for each bundle, 2 % beside; all bundles
        have this part of their usual traffic, and those of broker 2 that part of it.
        """
        await asyncio.sleep(0.01)
        at_ms = self.led.moves.term.clock.now_ms()
        for index in {0, 1, 2, 3} - self.lost:
            has = part * of_second if index == 2 else part
            sizes = {name: has * self.sizes.get(name, 1.0) for name in self.owned(index)}
            stats = {
                name: msgspec.structs.replace(EACH, msg_throughput_in=size * EACH_BYTES)
                for name, size in sizes.items()
            }
            cpu = 2 + 5 * sum(sizes.values())
            started_ms = self.started_ms.get(index, 0)
            await self.led.report(index, stats, cpu=cpu, at_ms=at_ms, started_ms=started_ms)

    async def step(self, part: float = 1.0) -> None:
        """The leader looks, makes the moves of that look, and all report."""
        await self.goals.step()
        await self.led.moves.idle()
        await asyncio.sleep(1)
        await self.report(part)

    async def run(self, order_id: str, steps: int = 30) -> GoalOrder:
        """Go on until the order has ended."""
        for _ in range(steps):
            await self.step()
            order = self.led.wishes.goals[order_id]
            if order.state == "ended":
                return order
        raise AssertionError(self.led.wishes.goals[order_id])


@asynccontextmanager
async def a_scene(sizes: Mapping[str, float] = NO_SIZES) -> AsyncIterator[Scene]:
    """Broker 0 is cordoned, and leads."""
    async with led_fleet(4, bundles=COUNT, strategies=STRATEGIES) as led:
        for name in BUNDLES:
            await led.fleet.brokers[1].acquire(name)
        scene = Scene(led)
        scene.sizes = sizes
        await led.wishes.cordon("b0:8080", Cordon(1), ())
        await scene.report()
        yield scene


async def test_a_goal_is_reached() -> None:
    """Nothing moves before it is approved; afterwards what came stands beside what was promised."""
    async with a_scene() as scene:
        shown = await scene.goals.propose(Even(7), PlanLimits(), "before the sale")
        assert (shown.state, shown.note, shown.waits) == ("proposed", "before the sale", None)
        assert shown.promise.reached
        assert len(shown.moves) == shown.promise.moves >= 8
        await scene.step()
        assert len(scene.owned(1)) == COUNT
        approved = await scene.goals.approve(shown.id)
        assert approved.state == "approved"
        order = await scene.run(shown.id)
        assert order.ended == REACHED
        assert {len(scene.owned(index)) for index in (1, 2, 3)} <= {4, 5, 6, 7}
        assert scene.owned(0) == []
        progress = order.progress
        assert (progress.arrived, progress.failed) == (shown.promise.moves, 0)
        assert progress.ordered == progress.arrived == len(scene.led.ended)
        assert progress.farthest == pytest.approx(shown.promise.curve[-1].farthest, abs=0.02)
        assert progress.clients == EACH_CLIENTS * progress.arrived
        assert {move.author for move in scene.led.ended} == {Author.GOAL}
        assert {move.why["goal"] for move in scene.led.ended} == {shown.id}
        compared = scene.goals.goal(shown.id).compared
        assert compared is not None
        assert (compared.shown, compared.made) == (shown.promise.moves, progress.arrived)
        made = {(move.bundle, move.destination) for move in scene.led.ended}
        as_shown = made & {(move.bundle, move.destination) for move in shown.moves}
        assert compared.as_shown == len(as_shown)
        assert len(compared.others) == len(made - as_shown)


async def test_a_proposal_lapses() -> None:
    """Its figures are those of another cluster by then; who approves it in time is not asked."""
    async with a_scene() as scene:
        shown = await scene.goals.propose(Even(7), PlanLimits())
        assert shown.lapses_ms == shown.made_ms + PROPOSAL_MS
        other = await scene.goals.propose(Even(8), PlanLimits())
        await asyncio.sleep(PROPOSAL_MS / 1000 - 10)
        await scene.report()
        await scene.step()
        assert (await scene.goals.approve(other.id)).lapses_ms is None
        await asyncio.sleep(10)
        with pytest.raises(ConflictError, match="has lapsed: nobody approved it within 60 min"):
            await scene.goals.approve(shown.id)
        await scene.report()
        await scene.goals.step()
        lapsed = scene.goals.goal(shown.id)
        assert (lapsed.state, lapsed.ended, lapsed.lapses_ms) == ("ended", LAPSED, None)
        assert scene.goals.goal(other.id).state == "approved"
        with pytest.raises(ConflictError, match="is ended already: Lapsed: nobody approved"):
            await scene.goals.approve(shown.id)


async def test_it_cannot_begin_in_the_past() -> None:
    """Neither when it is proposed, nor when it is approved; what was now when it was said may."""
    async with a_scene() as scene:
        await asyncio.sleep(FRESH_MAX_S)
        await scene.report()
        now_ms = scene.led.moves.term.clock.now_ms()
        over_ms = now_ms - 15_000
        with pytest.raises(BadInputError, match="the time to begin is over: "):
            await scene.goals.propose(Even(7), PlanLimits(from_ms=over_ms))
        shown = await scene.goals.propose(Even(7), PlanLimits(from_ms=now_ms))
        with pytest.raises(BadInputError, match=f"the time to begin is over: {moment(over_ms)}"):
            await scene.goals.approve(shown.id, over_ms)
        assert scene.goals.goal(shown.id).state == "proposed"
        assert (await scene.goals.approve(shown.id, now_ms)).state == "approved"


async def test_before_is_when_its_moves_began() -> None:
    """Others have moved bundles since it was proposed."""
    async with a_scene() as scene:
        shown = await scene.goals.propose(Even(7), PlanLimits())
        assert shown.progress.before is None
        others = [Unload(name, "b1:8080", "b2:8080", "Drained") for name in scene.owned(1)[:5]]
        scene.led.moves.decide(others, Author.DRAIN)
        await scene.led.moves.idle()
        await asyncio.sleep(FRESH_MAX_S)
        await scene.report()
        await scene.goals.approve(shown.id)
        ended = await scene.run(shown.id)
        before, proposed = ended.progress.before, shown.promise.curve[0].farthest
        assert before is not None
        assert (ended.progress.farthest or 1) < before < proposed - 0.05


async def test_moves_that_were_not_shown_are_named() -> None:
    """What a fresh look makes of a goal is other moves, once bundles are elsewhere."""
    async with a_scene() as scene:
        shown = await scene.goals.propose(Filled("b2:8080"), PlanLimits())
        first = shown.moves[0]
        assert scene.goals.goal(shown.id).compared is not None
        source, there = scene.led.fleet.brokers[1], scene.led.fleet.brokers[3]
        await source.release(first.bundle)
        await there.acquire(first.bundle)
        await scene.report()
        await scene.goals.approve(shown.id)
        await scene.run(shown.id)
        compared = scene.goals.goal(shown.id).compared
        assert compared is not None
        made = {move.bundle: move.destination for move in scene.led.ended}
        assert compared.made == len(made)
        others = made.items() - {move.bundle: move.destination for move in shown.moves}.items()
        assert others
        assert set(compared.others) == {f"{bundle} to {broker}" for bundle, broker in others}
        assert compared.as_shown == len(made) - len(others)


async def test_it_is_judged_again_when_sensors_have_settled() -> None:
    """Some minutes after it has ended, once; by then more may have changed."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        promised = order.promise.curve[-1]
        assert promised.client_seconds == promised.clients == EACH_CLIENTS * promised.moves
        ended = await scene.run(order.id)
        await scene.step()
        assert scene.led.wishes.goals[order.id].afterwards is None
        others = [
            Unload(bundle, f"b{index}:8080", "b2:8080", "Drained")
            for index in (1, 3)
            for bundle in scene.owned(index)[:3]
        ]
        scene.led.moves.decide(others, Author.DRAIN)
        await scene.led.moves.idle()
        await asyncio.sleep(AFTERWARDS_MS / 1000)
        await scene.report()
        await scene.step()
        afterwards = scene.led.wishes.goals[order.id].afterwards
        assert afterwards is not None
        assert afterwards.at_ms >= (ended.ended_ms or 0) + AFTERWARDS_MS
        assert afterwards.farthest > 5 * (ended.progress.farthest or 1)
        await scene.step()
        assert scene.led.wishes.goals[order.id].afterwards == afterwards


async def test_what_a_later_leader_sees_says_nothing_of_an_old_order() -> None:
    """Half an hour after its end, others have moved more."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.run(order.id)
        await asyncio.sleep(AFTERWARDS_MAX_MS / 1000)
        await scene.report()
        await scene.step()
        assert scene.led.wishes.goals[order.id].afterwards is None


async def test_it_looks_again_after_every_few_moves() -> None:
    """So many at once, and the next ones after fresh reports; it says what it waits for."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, at_once_max=1))
        await scene.goals.step()
        text = f"{AT_ONCE} of its moves wait for their turn"
        assert scene.goals.goal(order.id).waits == Reason("OwnMoves", text)
        await scene.led.moves.idle()
        scene.led.move_settings.set(MoveSettings(warm_up_s=0))
        assert len(scene.led.ended) == AT_ONCE
        for _ in range(5):
            await scene.goals.step()
            at_work = scene.goals.at_work()
            assert at_work is not None
            assert at_work.code == "GoalAtWork"
            waits = scene.goals.goal(order.id).waits
            assert waits is not None
            assert waits.code == "Reports"
            assert "b1:8080, b2:8080, b3:8080 have reported what the last" in waits.text
        assert len(scene.led.ended) == AT_ONCE  # nobody has reported yet
        await asyncio.sleep(1)
        await scene.report()
        await scene.goals.step()
        await scene.led.moves.idle()
        assert AT_ONCE < len(scene.led.ended) <= 2 * AT_ONCE
        assert (await scene.run(order.id)).ended == REACHED


@pytest.mark.parametrize(
    "limits",
    [
        PlanLimits(moves=3),
        PlanLimits(traffic=3.5 * EACH_BYTES),
        PlanLimits(clients=3 * EACH_CLIENTS),
        PlanLimits(client_seconds=3 * EACH_CLIENTS),  # of 1 s, while no pause was measured
    ],
)
async def test_no_limit_is_passed(limits: PlanLimits) -> None:
    """And the order says that it ended there."""
    async with a_scene() as scene:
        shown = await scene.goals.propose(Even(7), limits, approve=True)
        assert (shown.promise.ends.code, shown.promise.moves) == ("Limits", 3)
        order = await scene.run(shown.id)
        assert order.ended is not None
        if limits.client_seconds is None:
            assert order.ended.code == "Limits"
            assert len(scene.led.ended) == 3
        else:  # no move was measured to cost anybody anything, so that more fit
            assert order.ended.code == "BeyondPromise"
            assert len(scene.led.ended) == TIMES_PROMISED * 3
            assert order.progress.client_seconds <= limits.client_seconds


@pytest.mark.parametrize("goal", [Even(7), Emptied("b1:8080"), Filled("b2:8080")], ids=str)
@pytest.mark.parametrize("moves", [12, MOVES_MAX])
async def test_what_fitted_into_its_limits_bounds_what_is_made(goal: Goal, moves: int) -> None:
    """Moves that cost less than was expected are no reason for more than twice those on the curve
    that somebody approved.
    """
    async with a_scene() as scene:
        limits = PlanLimits(client_seconds=EACH_CLIENTS, moves=moves)
        shown = await scene.goals.propose(goal, limits, approve=True)
        assert (shown.promise.ends.code, shown.promise.moves) == ("Limits", 1)
        order = await scene.run(shown.id)
        assert order.ended is not None
        assert order.ended.code == "BeyondPromise"
        assert order.ended.text.startswith("1 move was promised, and the goal is not reached af")
        assert order.progress.arrived == len(scene.led.ended) == TIMES_PROMISED


@pytest.mark.parametrize("goal", [Even(7), Emptied("b1:8080")], ids=str)
async def test_a_limit_of_seconds_holds_where_clients_wait_longer_than_was_expected(
    goal: Goal,
) -> None:
    """The first move measures; then at most half of what is left is risked at once."""
    async with a_scene() as scene:
        for broker in scene.led.fleet.brokers:
            broker.tenant.stats = dict.fromkeys(BUNDLES, EACH)
            broker.tenant.returned_ms = (SLOW_S * 1000,) * int(EACH_CLIENTS)
        limits = PlanLimits(client_seconds=3.4 * EACH_CLIENTS * SLOW_S)
        order = await scene.goals.propose(goal, limits, approve=True)
        assert order.promise.moves > 3
        at_once = list[int]()
        for _ in range(30):
            before = len(scene.led.ended)
            await scene.step()
            at_once += [len(scene.led.ended) - before]
        ended = scene.led.wishes.goals[order.id]
        assert ended.ended is not None
        assert ended.ended.code == "Limits"
        assert [count for count in at_once if count] == [1, 1, 1]
        assert ended.progress.client_seconds == pytest.approx(3 * EACH_CLIENTS * SLOW_S, rel=0.1)


async def test_a_limit_of_seconds_waits_for_the_clients_of_the_last_moves() -> None:
    """What they wait counts in full before the next moves; some may never come."""
    async with a_scene() as scene:
        for broker in scene.led.fleet.brokers[1:]:
            broker.tenant.stats = dict.fromkeys(BUNDLES, EACH)
            broker.tenant.returned_ms = (100.0,)
        for broker in scene.led.fleet.brokers[2:]:
            alone = msgspec.structs.replace(EACH, producer_count=1)
            broker.tenant.stats = dict.fromkeys(BUNDLES, alone)
        limits = PlanLimits(client_seconds=100 * EACH_CLIENTS)
        order = await scene.goals.propose(Even(7), limits, approve=True)
        for _ in range(int(FRESH_MAX_S) - 5):
            await scene.step()
            assert scene.led.wishes.goals[order.id].progress.ordered == 1
            text = "the clients of 1 of its moves are not all back"
            assert scene.goals.goal(order.id).waits == Reason("Clients", text)
        assert (await scene.run(order.id, steps=200)).ended == REACHED


async def a_swap(scene: Scene) -> str:
    """Two brokers with two large bundles each, of which none helps alone; an approved order."""
    for index in (2, 3):
        for name in BUNDLES[:2] if index == 2 else BUNDLES[4:]:
            await scene.led.fleet.brokers[1].release(name)
            await scene.led.fleet.brokers[index].acquire(name)
    await scene.led.wishes.cordon("b3:8080", Cordon(1), ())
    parts = {1: (10, 5), 2: (8, 2), 3: ()}
    for _ in range(30):  # until averages are what it is
        await asyncio.sleep(30)
        now_ms = scene.led.moves.term.clock.now_ms()
        for index, parts_of in parts.items():
            stats = {
                name: msgspec.structs.replace(EACH, msg_throughput_in=part * EACH_BYTES)
                for name, part in zip(scene.owned(index), parts_of, strict=False)
            }
            await scene.led.report(index, stats, cpu=2 + 5 * sum(parts_of), at_ms=now_ms)
    order = await scene.goals.propose(Even(5), PlanLimits(), approve=True)
    assert [move.destination for move in order.moves] == ["b2:8080", "b1:8080"]
    return order.id


async def test_a_swap_is_made_one_after_the_other() -> None:
    """The bundle that makes room, or goes where both have room, is there first."""
    async with a_scene() as scene:
        await a_swap(scene)
        await scene.goals.step()
        await scene.led.moves.idle()
        first, second = scene.led.ended
        assert (first.destination, second.destination) == ("b2:8080", "b1:8080")
        assert first.swap == second.swap == first.bundle
        assert (first.ended_at or 0) <= (second.started_at or 0)


async def test_the_other_bundle_of_a_refused_swap_may_move_later() -> None:
    """Guards refuse both; for one of them, the next plan finds something else."""
    async with a_scene() as scene:
        bundles = scene.owned(1)[:2]
        swap = [Unload(bundle, "b1:8080", "b2:8080", "Even", swap=bundles[0]) for bundle in bundles]
        later_ms = scene.led.moves.term.clock.now_ms() + DAY_MS
        await scene.led.wishes.pin(bundles[1], Pin("b1:8080", later_ms), ())
        planning = scene.goals.planning
        moves, skips = cycle.admitted(planning.snapshot(Even(5)), STRATEGIES, swap)
        assert (moves, {skip.what for skip in skips}) == ((), set(bundles))
        passing, for_good = refused_by(skips)
        assert (passing, list(for_good)) == ({}, [bundles[1]])


async def test_what_has_no_clients_is_not_made_one_by_one() -> None:
    """A limit of seconds is not touched by it."""
    async with a_scene() as scene:
        nobody = msgspec.structs.replace(EACH, producer_count=0)
        await asyncio.sleep(0.01)
        at_ms = scene.led.moves.term.clock.now_ms()
        await scene.led.report(1, dict.fromkeys(BUNDLES, nobody), cpu=82, at_ms=at_ms)
        await scene.goals.propose(Even(7), PlanLimits(client_seconds=1), approve=True)
        await scene.goals.step()
        await scene.led.moves.idle()
        assert len(scene.led.ended) == AT_ONCE


async def test_seconds_of_pause_count_by_what_its_own_moves_cost() -> None:
    """Or by what was measured here, if that is longer; before its first move, what was promised
    counts in place of theirs. A pause is assumed where there is no other.
    """
    async with a_scene() as scene:
        within, limits = scene.goals.planning.within, PlanLimits(client_seconds=10)
        assert within(limits, Progress()).clients == 10
        assert within(limits, Progress(), 2.5).clients == 4
        assert within(limits, Progress(), 0.5).clients == 20
        moved = Progress(moved=1, clients=2, client_seconds=4)
        assert within(limits, moved, 2.5).clients == 3
        short = Progress(moved=1, clients=8, client_seconds=4)
        assert within(limits, short, 2.5).clients == 12
        free = Progress(moved=1, clients=8, client_seconds=0)
        assert within(limits, free, 2.5).clients == 10


async def test_the_next_leader_counts_pauses_as_the_goals_own_moves_took() -> None:
    """It has measured none itself. A goal that ends at a limit says what was used of it."""
    async with a_scene() as scene:
        limits = PlanLimits(client_seconds=10)
        order = await scene.goals.propose(Emptied("b1:8080"), limits)
        await scene.goals.approve(order.id)
        stored = scene.led.wishes.goals[order.id]
        promise = msgspec.structs.replace(
            stored.promise,
            curve=tuple(msgspec.structs.replace(it, moves=COUNT) for it in stored.promise.curve),
        )
        progress = Progress(ordered=6, arrived=6, moved=6, clients=120, client_seconds=9)
        stored = msgspec.structs.replace(stored, promise=promise, progress=progress)
        await scene.led.wishes.set_goal(order.id, stored, ())
        another_leader(scene)
        shown = scene.goals.goal(order.id)
        assert (shown.pause_source, shown.pause_seconds) == ("goal", 0.075)
        await scene.step()
        assert scene.led.wishes.goals[order.id].progress.ordered > progress.ordered
        used = msgspec.structs.replace(progress, client_seconds=9.9)
        stored = msgspec.structs.replace(stored, progress=used, under_way=())
        await scene.led.wishes.set_goal(order.id, stored, ())
        another_leader(scene)
        ended = (await scene.run(order.id)).ended
        assert ended is not None
        assert ended.code == "Limits"
        assert "used: 9.9 of 10 client-seconds, by 120 clients; one more" in ended.text
        assert "counts as 0.0825 s: the mean of what its own moves took" in ended.text


@pytest.mark.parametrize("stay", [BUNDLES[0], str(NS), NS.tenant])
async def test_what_stays_is_left_alone(stay: str) -> None:
    """A bundle, a namespace or a tenant."""
    async with a_scene() as scene:
        shown = await scene.goals.propose(Even(7), PlanLimits(stay=(stay,)), approve=True)
        if shown.promise.moves:
            await scene.run(shown.id)
        assert BUNDLES[0] in scene.owned(1)
        assert (len(scene.owned(1)) == COUNT) is (stay != BUNDLES[0])


async def test_the_halves_of_a_bundle_that_stays_stay() -> None:
    """It is split after the goal was approved."""
    async with a_scene() as scene:
        limits = PlanLimits(stay=(BUNDLES[0],))
        order = await scene.goals.propose(Even(7), limits, approve=True)
        halves = await scene.led.fleet.brokers[1].ownership.split(BUNDLES[0], [SPAN // 2], "test")
        scene.bundles = [*halves, *BUNDLES[1:]]
        await scene.report()
        assert (await scene.run(order.id)).ended == REACHED
        assert len(halves) == 2
        assert set(halves) < set(scene.owned(1))


async def test_a_newcomer_is_filled_and_a_broker_emptied() -> None:
    """The latter is cordoned with the approval, so that nothing comes back."""
    async with a_scene() as scene:
        filled = await scene.goals.propose(Filled("b2:8080"), PlanLimits(), approve=True)
        assert (await scene.run(filled.id)).ended == REACHED
        assert scene.owned(2)
        assert not scene.owned(3)
        emptied = await scene.goals.propose(Emptied("b2:8080"), PlanLimits())
        assert "b2:8080" not in scene.led.wishes.cordons
        await scene.goals.approve(emptied.id)
        assert scene.led.wishes.cordons["b2:8080"].note == f"emptied by goal {emptied.id}"
        ended = await scene.run(emptied.id)
        assert ended.ended == REACHED
        assert scene.owned(2) == []
        promised = emptied.promise.curve[-1].farthest
        assert promised > 0.1
        assert ended.progress.farthest == pytest.approx(promised, abs=0.02)


GRACE_MINUTES = 30


async def just_moved(scene: Scene) -> int:
    """All bundles came to broker 1 a moment ago; returns until when (ms) they stay there."""
    scene.led.strategies.set(replace(STRATEGIES, grace_period_minutes=GRACE_MINUTES))
    now_ms = scene.led.moves.term.clock.now_ms()
    scene.led.view.know_moves(dict.fromkeys(BUNDLES, now_ms), {})
    return now_ms + GRACE_MINUTES * 60_000


async def test_what_must_leave_leaves_although_it_came_a_moment_ago() -> None:
    """For any other goal the grace period holds."""
    async with a_scene() as scene:
        await just_moved(scene)
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        assert (await scene.run(order.id)).ended == REACHED
        assert scene.owned(1) == []


async def test_a_goal_waits_until_bundles_may_move_again() -> None:
    """It says so, also before it is approved, and then goes on by itself."""
    async with a_scene() as scene:
        until_ms = await just_moved(scene)
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        assert order.promise.reached
        assert order.promise.later is not None
        assert order.promise.later.text.startswith(f"{order.promise.moves} bundles that")
        await scene.step()
        waits = scene.goals.goal(order.id).waits
        assert waits is not None
        assert waits.code == "GracePeriod"
        assert moment(until_ms) in waits.text
        for _ in range(GRACE_MINUTES - 1):
            await asyncio.sleep(60)
            await scene.step()
        assert len(scene.owned(1)) == COUNT
        await asyncio.sleep(60)
        await scene.report()
        ended = await scene.run(order.id)
        assert ended.ended == REACHED
        assert ended.progress.arrived <= order.promise.moves + 2


async def test_what_was_shown_is_waited_for() -> None:
    """No others are moved in place of two large bundles that wait for their grace periods."""
    large = BUNDLES[:2]
    sizes = dict.fromkeys(BUNDLES, 0.6) | dict.fromkeys(large, 4.0)
    async with a_scene(sizes) as scene:
        scene.led.strategies.set(replace(STRATEGIES, grace_period_minutes=GRACE_MINUTES))
        now_ms = scene.led.moves.term.clock.now_ms()
        scene.led.view.know_moves(dict.fromkeys(large, now_ms), {})
        until = moment(now_ms + GRACE_MINUTES * 60_000)
        order = await scene.goals.propose(Even(10), PlanLimits(), approve=True)
        assert order.promise.reached
        assert set(large) < {move.bundle for move in order.moves}
        free = order.promise.moves - len(large)
        for _ in range(GRACE_MINUTES - 1):
            await asyncio.sleep(60)
            await scene.step()
        assert 0 < len(scene.led.ended) <= free + 2
        waits = scene.goals.goal(order.id).waits
        text = "2 bundles that would have to move were moved lately; they wait for their grace "
        assert waits == Reason("GracePeriod", f"{text}periods, the first until {until}")
        await asyncio.sleep(60)
        await scene.report()
        ended = await scene.run(order.id)
        assert ended.ended == REACHED
        assert ended.progress.arrived <= order.promise.moves + 2


async def test_a_goal_waits_while_the_clients_are_away() -> None:
    """It says so, and goes on with figures that count."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.report(part=0.1)
        await scene.goals.step()
        waits = scene.goals.goal(order.id).waits
        assert waits is not None
        assert waits.code == "TrafficDip"
        assert len(scene.owned(1)) == COUNT
        await asyncio.sleep(10)
        await scene.report()
        ended = await scene.run(order.id)
        assert ended.ended == REACHED


async def test_clients_that_are_away_do_not_become_usual_by_looks() -> None:
    """A goal looks every few seconds, and cycles once a minute: a dip would be over in one."""
    async with a_scene() as scene:
        scene.led.strategies.set(replace(STRATEGIES, shedding_enabled=False))
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        for _ in range(100):
            await scene.report(part=0.3)
            await scene.goals.step()
            assert waiting_code(scene, order.id) == "TrafficDip"
            await asyncio.sleep(SOON_MS / 1000)
        for _ in range(20):
            await scene.report(part=0.3)
            await scene.led.shed()
        await scene.report(part=0.3)
        await scene.goals.step()
        assert waiting_code(scene, order.id) != "TrafficDip"  # that is usual now


async def test_a_goal_that_waits_holds_up_nothing() -> None:
    """Neither the leader's own cycles nor another goal."""
    async with a_scene() as scene:
        await just_moved(scene)
        one = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        assert not scene.goals.at_work()
        two = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        assert (await scene.run(two.id, steps=10)).ended == REACHED
        assert scene.goals.goal(one.id).state == "approved"


async def test_a_goal_that_waits_ends_in_time() -> None:
    """And says for what it waited."""
    async with a_scene() as scene:
        await just_moved(scene)
        now_ms = scene.led.moves.term.clock.now_ms()
        limits = PlanLimits(until_ms=now_ms + 300_000)
        order = await scene.goals.propose(Even(7), limits, approve=True)
        await scene.step()
        await asyncio.sleep(300)
        await scene.goals.step()
        ended = scene.goals.goal(order.id).ended
        assert ended is not None
        assert ended.code == TIME_IS_UP.code
        assert ended.text.startswith(f"{TIME_IS_UP.text}; it waited: GracePeriod")
        assert len(scene.owned(1)) == COUNT


async def test_what_could_not_help_later_either_is_not_waited_for() -> None:
    """All is as even as it can be, although bundles were moved a moment ago."""
    async with a_scene() as scene:
        await just_moved(scene)
        stay = PlanLimits(stay=(str(NS),))
        order = await scene.goals.propose(Even(7), stay, approve=True)
        assert (order.promise.moves, order.promise.later) == (0, None)
        ended = await scene.run(order.id, steps=1)
        text = f"{NOTHING_HELPS.text}; 16 of 16 bundles are to stay"
        assert ended.ended == Reason(NOTHING_HELPS.code, text)


async def test_a_goal_waits_for_moves_of_others() -> None:
    """Until these have ended, nothing else leaves their broker."""
    async with a_scene() as scene:
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=0))
        other = Unload("another/one/0x00000000_0xffffffff", "b1:8080", "b3:8080", "Drained")
        scene.led.moves.decide([other], Author.DRAIN)
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        assert order.promise.reached
        for _ in range(3):
            await scene.goals.step()
            await asyncio.sleep(10)
        waits = scene.goals.goal(order.id).waits
        assert waits == Reason("MovesWait", "earlier moves from b1:8080 have not ended")
        scene.led.moves.cancel(None)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0))
        assert (await scene.run(order.id)).ended == REACHED


async def test_a_goal_waits_for_bundles_that_are_on_their_way() -> None:
    """They are not in a report yet, so that they cannot leave; but not for ever."""
    async with a_scene() as scene:
        now_ms = scene.led.moves.term.clock.now_ms
        coming = "public/other/0x00000000_0xffffffff"
        scene.led.view.placed(coming, "b2:8080", now_ms())
        order = await scene.goals.propose(Emptied("b2:8080"), PlanLimits(), approve=True)
        await scene.step()
        waits = scene.goals.goal(order.id).waits
        assert waits is not None
        assert waits.code == "UnderWay"
        await asyncio.sleep(60)
        await scene.report()
        assert (await scene.run(order.id)).ended == REACHED


async def test_what_a_guard_refuses_for_now_is_tried_again() -> None:
    """The report of the only destination is too old; when it comes, the goal goes on."""
    async with a_scene() as scene:
        scene.led.strategies.set(replace(STRATEGIES, report_ttl_s=100))
        await scene.led.wishes.cordon("b3:8080", Cordon(1), ())
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        scene.lost.add(2)
        await asyncio.sleep(200)
        await scene.report()
        for _ in range(COUNT // AT_ONCE + 2):
            await scene.step()
        waits = scene.goals.goal(order.id).waits
        assert waits is not None
        assert waits.code == "StaleReport"
        assert len(scene.owned(1)) == COUNT
        scene.lost.clear()
        await asyncio.sleep(60)
        await scene.report()
        assert (await scene.run(order.id)).ended == REACHED


async def test_a_cordoned_broker_is_not_filled() -> None:
    """It takes nothing. Who orders that is told what to do; an order that is carried out waits."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Filled("b2:8080"), PlanLimits())
        await scene.led.operations.cordon("b2:8080", drain=False)
        with pytest.raises(ConflictError, match="uncordon it first"):
            await scene.goals.approve(order.id)
        with pytest.raises(ConflictError, match="loadmanager admin brokers uncordon b2:8080"):
            await scene.goals.propose(Filled("b2:8080"), PlanLimits())
        assert [order.state for order in scene.led.wishes.goals.values()] == ["proposed"]
        await scene.led.operations.uncordon("b2:8080")
        await scene.goals.approve(order.id)
        await scene.led.operations.cordon("b2:8080", drain=False)
        await scene.step()
        waits = scene.goals.goal(order.id).waits
        assert waits is not None
        assert waits.code == "Cordoned"
        await scene.led.operations.uncordon("b2:8080")
        assert (await scene.run(order.id)).ended == REACHED


async def test_what_cannot_be_approved_leaves_nothing() -> None:
    """The last broker that takes bundles cannot be emptied."""
    async with a_scene() as scene:
        for name in ("b2:8080", "b3:8080"):
            await scene.led.wishes.cordon(name, Cordon(1), ())
        with pytest.raises(ConflictError, match="the last broker"):
            await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        assert not scene.led.wishes.goals
        assert "b1:8080" not in scene.led.wishes.cordons


async def test_progress_is_shown_while_moves_are_under_way() -> None:
    """Move by move, with the evenness that they come to; nothing is written for that."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, at_once_max=1, per_minute_max=2))
        await scene.goals.step()
        stored = scene.led.wishes.goals[order.id]
        before = scene.goals.goal(order.id)
        assert (before.progress.arrived, before.under_way) == (0, AT_ONCE)
        await asyncio.sleep(5)
        shown = scene.goals.goal(order.id)
        arrived = COUNT - len(scene.owned(1))
        assert 0 < arrived < AT_ONCE
        assert (shown.progress.arrived, shown.under_way) == (arrived, AT_ONCE - arrived)
        assert shown.progress.farthest is not None
        assert before.progress.farthest is not None
        assert shown.progress.farthest < before.progress.farthest
        assert scene.led.wishes.goals[order.id] == stored
        scene.led.move_settings.set(MoveSettings(warm_up_s=0))
        await scene.led.moves.idle()
        await scene.goals.step()
        settled = scene.goals.goal(order.id).progress
        assert settled.arrived == AT_ONCE
        assert settled.farthest is not None
        assert settled.farthest < shown.progress.farthest


async def test_a_broker_whose_emptying_is_stopped_stays_cordoned() -> None:
    """Else all that left would come back; the answer says so, until somebody lifts it. A move that
    was under way counts when it has ended.
    """
    async with a_scene() as scene:
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        assert order.stays_cordoned is None
        await scene.goals.step()
        stopped = await scene.goals.stop(order.id)
        assert stopped.stays_cordoned == "b1:8080"
        await scene.led.moves.idle()
        await scene.goals.step()
        shown = scene.goals.goal(order.id)
        assert (shown.progress.arrived, shown.under_way) == (COUNT - len(scene.owned(1)), 0)
        await scene.led.operations.uncordon("b1:8080")
        assert scene.goals.goal(order.id).stays_cordoned is None


async def test_an_order_to_empty_a_broker_ends_with_its_cordon() -> None:
    """As a drain does: bundles would come back while others leave."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        await scene.goals.step()
        await scene.led.operations.uncordon("b1:8080")
        await scene.goals.step()
        await scene.led.moves.idle()
        shown = await scene.run(order.id)
        assert shown.ended == UNCORDONED
        assert scene.owned(1)


@pytest.mark.parametrize(
    ("goal", "stay", "text"),
    [
        (Even(7), "publik", "publik is not there: the tenants are public"),
        (Even(7), f"{NS.tenant}/nobody", f"the namespaces are {NS}"),
        (Even(7), f"{NS}/0x00000000_0x00000001", f"the bundles are {NS}/0x"),
        (Apart((NS.tenant, "acme")), NS.tenant, "acme is not there"),
    ],
)
async def test_names_of_nothing_are_refused(goal: Goal, stay: str, text: str) -> None:
    """What was meant would not be left alone; the text has what is there."""
    async with a_scene() as scene:
        with pytest.raises(BadInputError, match=text):
            await scene.goals.propose(goal, PlanLimits(stay=(stay,)))


async def drain_step(scene: Scene) -> None:
    """A look of the drain, and its moves."""
    await asyncio.sleep(5)
    await scene.led.operations.step()
    await scene.led.moves.idle()


async def test_a_drain_is_an_order_to_empty_a_broker() -> None:
    """With what was promised beside what came; bundles go where the plan says. It waits for no
    other goal, and ends with the cordon.
    """
    async with a_scene() as scene:
        later = scene.led.moves.term.clock.now_ms() + 10_000_000
        await scene.goals.propose(Even(7), PlanLimits(from_ms=later), approve=True)
        await scene.led.operations.cordon("b1:8080", drain=True, note="disk")
        await drain_step(scene)
        (order,) = [order for order in scene.goals.list().goals if order.drain]
        assert (order.goal, order.note, order.state) == (Emptied("b1:8080"), "disk", "approved")
        assert (order.promise.moves, order.promise.reached) == (COUNT, True)
        assert len(scene.owned(2)) == len(scene.owned(3)) == COUNT / 2
        assert all("usageAfter" in move.why for move in scene.led.ended)
        assert not scene.goals.at_work()
        await drain_step(scene)
        shown = scene.goals.goal(order.id)
        assert (shown.progress.arrived, shown.progress.failed, shown.under_way) == (COUNT, 0, 0)
        assert shown.waits is not None
        assert shown.waits.code == "Drained"
        await scene.led.operations.uncordon("b1:8080")
        assert scene.goals.goal(order.id).ended == REACHED


async def test_a_drain_says_that_moves_are_paused() -> None:
    """And not that its moves wait for their turn."""
    async with a_scene() as scene:
        until_ms = scene.led.moves.term.clock.now_ms() + 600_000
        await scene.led.wishes.set_pause(Pause(until_ms), ())
        await scene.led.operations.cordon("b1:8080", drain=True)
        await asyncio.sleep(5)
        await scene.led.operations.step()
        (order,) = scene.goals.list().goals
        assert order.under_way
        assert order.waits == Reason("Paused", f"moves are paused until {moment(until_ms)}")
        await scene.led.wishes.set_pause(None, ())
        await drain_step(scene)
        assert waiting_code(scene, order.id) != "Paused"


async def test_a_stopped_drain_leaves_the_cordon() -> None:
    """And says so; a lifted cordon ends the order, too."""
    async with a_scene() as scene:
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=2))
        for lifted in (False, True):
            await scene.led.operations.cordon("b1:8080", drain=True)
            await scene.led.operations.step()
            await asyncio.sleep(5)
            (order,) = [order for order in scene.goals.list().goals if order.state == "approved"]
            if lifted:
                await scene.led.operations.uncordon("b1:8080")
            else:
                stopped = await scene.goals.stop(order.id)
                assert stopped.stays_cordoned == "b1:8080"
            await scene.led.moves.idle()
            ended = scene.goals.goal(order.id).ended
            assert ended is not None
            assert ended.code == "Stopped"
            assert [cordon.state for cordon in scene.led.operations.cordons()][1:] == (
                [] if lifted else ["cordoned"]
            )
        assert COUNT - len(scene.owned(1)) == 2


async def test_the_next_leader_counts_a_drain_on() -> None:
    """It knows how many have left before."""
    async with a_scene() as scene:
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=2))
        await scene.led.operations.cordon("b1:8080", drain=True)
        await scene.led.operations.step()
        await asyncio.sleep(5)
        another_leader(scene)
        scene.led.moves.cancel(None, "the leader died")
        draining = Draining(goals=scene.goals, leads=lambda broker: True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0))
        await draining.step()
        await scene.led.moves.idle()
        told = draining.shown("b1:8080", scene.led.wishes.cordons["b1:8080"])
        assert (told.moved, told.failed, told.left) == (COUNT, 0, 0)
        assert scene.owned(1) == []


async def test_a_drain_without_a_plan_goes_by_the_placement_rule() -> None:
    """While a new leader does not know the load, say: the broker cannot wait."""
    async with a_scene() as scene:
        scene.goals.hold = lambda: Reason("WarmUp", "1 of 4 brokers have reported")
        await scene.led.operations.cordon("b1:8080", drain=True)
        await drain_step(scene)
        assert scene.owned(1) == []
        (order,) = scene.goals.list().goals
        assert (order.promise.ends.code, order.promise.moves) == ("ByPlacement", 0)


async def test_how_long_it_takes_is_said_before_and_after_it_began() -> None:
    """By what is assumed at first, then by the moves and the looks of this term."""
    async with a_scene() as scene:
        now_ms = scene.led.moves.term.clock.now_ms()
        limits = PlanLimits(until_ms=now_ms + DAY_MS)
        order = await scene.goals.propose(Even(7), limits)
        takes = order.duration
        assert takes is not None
        assert (takes.moves, takes.moves_measured) == (order.promise.moves, 0)
        assert takes.look_seconds == FRESH_MAX_S
        batches = -(-order.promise.moves // AT_ONCE)
        assert takes.looks == batches - 1
        assert takes.seconds is not None
        assert takes.seconds > takes.looks * FRESH_MAX_S + END_MAX_S
        assert (takes.ends_measured, takes.end_seconds) == (0, END_MAX_S)
        assert takes.done_ms is not None
        assert takes.done_ms >= now_ms + takes.seconds * 1000
        assert f"until {moment(takes.done_ms)} if nothing else keeps it waiting" in takes.text
        assert "as is assumed: none was made yet in this term" in takes.text
        await scene.goals.approve(order.id)
        await scene.step()
        await scene.goals.step()
        left = scene.goals.goal(order.id).duration
        assert left is not None
        assert 0 < left.moves < order.promise.moves
        assert left.moves_measured >= AT_ONCE
        assert left.looks_measured == 1
        assert left.look_seconds < FRESH_MAX_S
        assert left.text.startswith("what is left takes about ")
        await scene.led.moves.idle()
        another_leader(scene)
        by_next = scene.goals.goal(order.id).duration
        assert by_next is not None
        assert (by_next.looks_measured, by_next.look_seconds) == (0, left.look_seconds)
        stored = scene.led.wishes.goals[order.id]
        more = scene.goals.work.pace.shown(stored, stored.progress, under_way=AT_ONCE + 1)
        assert more is not None
        assert "; 1 wait for fresh reports of 1 s, as under the leader before; " in more.text
        await scene.run(order.id)
        assert scene.goals.goal(order.id).duration is None
        other = (await scene.goals.propose(Emptied("b2:8080"), PlanLimits())).duration
        assert other is not None
        assert other.ends_measured == 1
        assert 0 < other.end_seconds < END_MAX_S


async def test_how_long_it_takes_counts_moves_that_wait_beyond_what_was_promised() -> None:
    """All that were promised are made; two more wait for their turn."""
    async with a_scene() as scene:
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=1))
        await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        ((_, order),) = scene.led.wishes.goals.items()
        made = msgspec.structs.replace(order.progress, arrived=order.promise.moves)
        assert scene.goals.work.pace.shown(order, made) is None
        takes = scene.goals.work.pace.shown(order, made, under_way=2)
        assert takes is not None
        assert takes.moves == 2
        assert takes.seconds is not None
        assert takes.seconds >= 60


@pytest.mark.parametrize("windowed", [False, True])
async def test_what_may_not_be_done_in_time_is_said(windowed: bool) -> None:
    """When it is proposed: its end is too near, or its hours are too short until then."""
    async with a_scene() as scene:
        now_ms = scene.led.moves.term.clock.now_ms()
        hour = 3_600_000
        until = PlanLimits(until_ms=now_ms + (20 * hour if windowed else 60_000))
        if windowed:
            opens = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(hours=2)
            closes = opens + timedelta(minutes=1)
            window = f"{opens:%H:%M}-{closes:%H:%M}"
            until = msgspec.structs.replace(until, windows=(window,))
        takes = (await scene.goals.propose(Even(7), until)).duration
        assert takes is not None
        assert takes.done_ms is None
        assert takes.text.startswith(
            f"it may not be done by {moment(until.until_ms or 0)}: it takes"
        )
        assert (" of its windows (" in takes.text) is windowed


async def test_how_long_it_takes_counts_the_moves_of_the_last_minute() -> None:
    """Where they have used up the pace, nothing begins before it is free again."""
    async with a_scene() as scene:
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=2))
        others = [Unload(name, "b1:8080", "b2:8080", "Drained") for name in BUNDLES[:2]]
        began_ms = scene.led.moves.term.clock.now_ms()
        scene.led.moves.decide(others, Author.DRAIN)
        await scene.led.moves.idle()
        await asyncio.sleep(10)
        await scene.report()
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        takes = order.duration
        assert takes is not None
        assert takes.done_ms is not None
        assert takes.done_ms >= began_ms + 60_000 + 1000 * (takes.seconds or 0)
        text = "2 moves have begun in the last minute, and loadManagerMovesPerMinuteMax is 2"
        assert f"; {text}: the next may begin at " in takes.text
        assert f" beside its waits; it is done at {moment(takes.done_ms)} if " in takes.text
        free = takes.text.partition("may begin at ")[2].partition(" ")[0]
        assert moment(began_ms + 60_000) <= free <= moment(began_ms + 70_000)
        await scene.goals.step()
        waits = scene.goals.goal(order.id).waits
        assert waits is not None
        assert waits.code == "OwnMoves"
        assert waits.text.startswith(
            f"{AT_ONCE} of its moves wait for their turn; {text}: the next"
        )


@pytest.mark.parametrize("minutes", [GRACE_MINUTES - 1, GRACE_MINUTES + 10])
async def test_how_long_it_takes_counts_the_grace_of_its_bundles(minutes: int) -> None:
    """What cannot be done in its time is said when it is proposed, and while it waits."""
    async with a_scene() as scene:
        until_ms = await just_moved(scene)
        now_ms = scene.led.moves.term.clock.now_ms()
        end_ms = now_ms + minutes * MINUTE_MS
        order = await scene.goals.propose(Even(7), PlanLimits(until_ms=end_ms))
        takes = order.duration
        assert takes is not None
        assert (
            f"they wait for their grace periods, the first until {moment(until_ms)}" in takes.text
        )
        in_time = end_ms > until_ms
        assert takes.text.startswith(f"it may not be done by {moment(end_ms)}") is not in_time
        assert takes.done_ms is None if not in_time else (takes.done_ms or 0) > until_ms
        await scene.goals.approve(order.id)
        await scene.step()
        shown = scene.goals.goal(order.id)
        assert shown.waits is not None
        assert shown.waits.code == "GracePeriod"
        useless = f"; that is after its end at {moment(end_ms)}: it moves nothing more"
        assert (useless in shown.waits.text) is not in_time
        assert shown.duration is not None
        assert (shown.duration.done_ms is None) is not in_time


async def test_how_long_it_takes_counts_a_pause() -> None:
    """And that after a broker was lost."""
    async with a_scene() as scene:
        now_ms = scene.led.moves.term.clock.now_ms()
        order = await scene.goals.propose(Even(7), PlanLimits(until_ms=now_ms + 30 * MINUTE_MS))
        paused_ms = now_ms + 20 * MINUTE_MS
        await scene.led.wishes.set_pause(Pause(paused_ms), ())
        paused = scene.goals.goal(order.id).duration
        assert paused is not None
        assert paused.seconds is not None
        assert paused.done_ms == paused_ms + round(paused.seconds * 1000)
        assert f"; moves are paused until {moment(paused_ms)} (" in paused.text
        paused_ms = now_ms + 40 * MINUTE_MS
        await scene.led.wishes.set_pause(Pause(paused_ms), ())
        waits = (await scene.goals.approve(order.id)).waits
        assert waits is not None
        text = f"moves are paused until {moment(paused_ms)}; that is after its end at "
        assert waits.text.startswith(text)
        await scene.led.wishes.set_pause(None, ())
        scene.led.move_settings.set(MoveSettings(warm_up_s=90))
        scene.goals.work.steady.look()
        await lose(scene, 1)
        lost_ms = scene.led.moves.term.clock.now_ms()
        await scene.goals.step()
        lost = scene.goals.goal(order.id).duration
        assert lost is not None
        assert lost.done_ms is not None
        assert lost.seconds is not None
        assert lost.done_ms >= lost_ms + 90_000 + lost.seconds * 1000
        assert "after a broker was lost" in lost.text


async def test_hours_begins_and_ends_are_kept() -> None:
    """A plan waits for its time and its hours, and says so; it ends when its time is up."""
    async with a_scene() as scene:
        now_ms = scene.led.moves.term.clock.now_ms()
        limits = PlanLimits(from_ms=now_ms + 20_000, until_ms=now_ms + 60_000)
        order = await scene.goals.propose(Even(7), limits, approve=True)
        await scene.goals.step()
        assert scene.goals.goal(order.id).waits == Reason("NotYet", "its time has not come")
        assert not scene.goals.at_work()
        await asyncio.sleep(60)
        await scene.goals.step()
        ended = scene.goals.goal(order.id)
        assert ended.ended is not None
        assert (ended.state, ended.ended.code) == ("ended", TIME_IS_UP.code)
        assert ended.ended.text.endswith("it waited: NotYet: its time has not come")
        assert len(scene.owned(1)) == COUNT
        hour = (now_ms // 3_600_000 + 5) % 24
        window = f"{hour:02}:00-{hour:02}:30"
        order = await scene.goals.propose(Even(7), PlanLimits(windows=(window,)), approve=True)
        await scene.step()
        assert scene.goals.goal(order.id).waits == Reason("OutsideWindows", window)
        assert len(scene.owned(1)) == COUNT


async def test_windows_that_never_open_in_its_time_are_refused() -> None:
    """When it is proposed and when it is approved, with the next one and what to change."""
    async with a_scene() as scene:
        now_ms = scene.led.moves.term.clock.now_ms()
        minute = now_ms // 60_000
        windows = (f"{clock(minute + 120)}-{clock(minute + 150)}",)
        text = f"the next one opens at {moment((minute + 120) * 60_000)}: say a later --by"
        limits = PlanLimits(windows=windows, until_ms=now_ms + 3_600_000)
        with pytest.raises(BadInputError, match=text):
            await scene.goals.propose(Even(7), limits)
        assert not scene.led.wishes.goals
        begins_ms = (minute + 150) * 60_000
        limits = PlanLimits(windows=windows, from_ms=begins_ms, until_ms=begins_ms + 3_600_000)
        with pytest.raises(BadInputError, match="the next one opens at"):
            await scene.goals.propose(Even(7), limits, approve=True)
        limits = PlanLimits(windows=windows, until_ms=now_ms + 4 * 3_600_000)
        order = await scene.goals.propose(Even(7), limits)
        with pytest.raises(BadInputError, match="the next one opens at"):
            await scene.goals.approve(order.id, begins_ms)
        assert scene.goals.goal(order.id).state == "proposed"
        await scene.goals.approve(order.id)


async def test_an_order_without_an_end_ends_after_a_day() -> None:
    """Counted from when it may begin."""
    async with a_scene() as scene:
        now_ms = scene.led.moves.term.clock.now_ms()
        order = await scene.goals.propose(Even(7), PlanLimits())
        assert order.limits.until_ms is None
        approved = await scene.goals.approve(order.id, now_ms + 5_000)
        assert approved.limits.from_ms == now_ms + 5_000
        assert approved.limits.until_ms == now_ms + 5_000 + DAY_MS


async def test_a_time_that_never_comes_is_refused() -> None:
    """When it is approved, too; and then no broker is cordoned for it."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits())
        with pytest.raises(BadInputError, match="up to the year 9999"):
            await scene.goals.approve(order.id, 10**29)
        assert scene.goals.goal(order.id).state == "proposed"
        assert "b1:8080" not in scene.led.wishes.cordons


async def test_it_is_paused_and_stopped() -> None:
    """A pause holds it; once it is stopped, moves that wait are not made."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        until_ms = scene.led.moves.term.clock.now_ms() + 60_000
        await scene.led.wishes.set_pause(Pause(until_ms), ())
        await scene.goals.step()
        assert scene.goals.goal(order.id).waits == Reason(
            "Paused", f"moves are paused until {moment(until_ms)}"
        )
        await scene.led.wishes.set_pause(None, ())
        await scene.goals.step()
        assert scene.goals.at_work() == Reason("GoalAtWork", f"goal {order.id} is carried out")
        stopped = await scene.goals.stop(order.id)
        assert (stopped.state, stopped.ended) == ("ended", Reason("Stopped", "by an operator"))
        await scene.led.moves.idle()
        await scene.step()
        await scene.step()
        assert len(scene.led.ended) == AT_ONCE
        assert any(move.state is MoveState.CANCELLED for move in scene.led.ended)
        assert scene.goals.at_work() is None
        with pytest.raises(ConflictError, match="has ended already"):
            await scene.goals.stop(order.id)
        with pytest.raises(ConflictError, match="is ended already"):
            await scene.goals.approve(order.id)


def hours(now_ms: int) -> PlanLimits:
    """The minute in which we are, and one a quarter of an hour later, as the hours of a plan."""
    minute = now_ms // 60_000
    begins = (minute, minute + LATER_MINUTES)
    return PlanLimits(windows=tuple(f"{clock(at)}-{clock(at + 1)}" for at in begins))


def clock(minute: int) -> str:
    """The time of the day, UTC."""
    return f"{minute // 60 % 24:02}:{minute % 60:02}"


def until(now_ms: int) -> PlanLimits:
    """A plan that is to be done in a minute."""
    return PlanLimits(until_ms=now_ms + 60_000)


@pytest.mark.parametrize("limits_at", [hours, until])
async def test_moves_that_wait_are_not_made_when_the_time_is_over(
    limits_at: Callable[[int], PlanLimits],
) -> None:
    """An order with hours goes on in the next ones, with the same bundles."""
    async with a_scene() as scene:
        limits = limits_at(scene.led.moves.term.clock.now_ms())
        order = await scene.goals.propose(Even(7), limits, approve=True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, at_once_max=1, per_minute_max=2))
        await scene.goals.step()
        await asyncio.sleep(60)
        await scene.goals.step()
        await asyncio.sleep(5)  # one may have begun in the same second
        made = COUNT - len(scene.owned(1))
        await asyncio.sleep(600)
        await scene.goals.step()
        assert COUNT - len(scene.owned(1)) == made < AT_ONCE
        shown = scene.goals.goal(order.id)
        if limits.windows:
            assert shown.waits == Reason("OutsideWindows", ", ".join(limits.windows))
            scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=-1))
            await asyncio.sleep(60 * LATER_MINUTES - 665 - 60)
            await scene.report()
            assert (await scene.run(order.id)).ended == REACHED
        else:
            assert shown.ended is not None
            assert shown.ended.code == TIME_IS_UP.code
            assert shown.ended.text.startswith(f"{TIME_IS_UP.text}; it waited: OwnMoves: ")
            assert shown.progress.failed == AT_ONCE - made


async def test_a_long_pause_leaves_no_bundle_behind() -> None:
    """Moves that waited too long for the end of a pause are planned again."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        await scene.goals.step()
        until_ms = scene.led.moves.term.clock.now_ms() + 3_600_000
        await scene.led.wishes.set_pause(Pause(until_ms), ())
        await asyncio.sleep(3601)
        await scene.report()
        assert (await scene.run(order.id)).ended == REACHED
        assert any(move.state is MoveState.EXPIRED for move in scene.led.ended)
        assert scene.owned(1) == []


async def test_a_destination_that_is_cordoned_meanwhile_leaves_no_bundle_behind() -> None:
    """Its moves are made to others."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        await scene.goals.step()
        await scene.led.wishes.cordon("b2:8080", Cordon(1), ())
        assert (await scene.run(order.id)).ended == REACHED
        assert any(move.state is MoveState.CANCELLED for move in scene.led.ended)
        assert scene.owned(1) == []


async def test_a_move_that_an_operator_cancelled_is_not_made() -> None:
    """Nor is it planned again."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        await scene.goals.step()
        waiting = [move for move in scene.led.moves.queue.open_moves() if move.started_at is None]
        scene.led.moves.cancel(waiting[-1].id)
        ended = await scene.run(order.id)
        assert ended.ended is not None
        assert "cancelled by an operator" in ended.ended.text
        assert scene.owned(1) == [waiting[-1].bundle]


async def test_a_full_queue_costs_nothing() -> None:
    """The order waits for room, and nothing counts against its limits."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(moves=12), approve=True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=0, queue_max=1))
        other = Unload("another/one/0x00000000_0xffffffff", "b2:8080", "b3:8080", "Drained")
        scene.led.moves.decide([other], Author.DRAIN)
        for _ in range(5):
            await scene.goals.step()
            await asyncio.sleep(1)
        shown = scene.goals.goal(order.id)
        assert shown.waits is not None
        assert (shown.waits.code, shown.progress.ordered) == ("QueueFull", 0)
        scene.led.moves.cancel(None)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0))
        assert (await scene.run(order.id)).ended == REACHED


@pytest.mark.parametrize("stop_first", [True, False])
async def test_what_is_stopped_stays_so_while_the_leader_looks(*, stop_first: bool) -> None:
    """Both read and write the order."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        await scene.step()
        work = [scene.goals.step(), scene.goals.stop(order.id)]
        await asyncio.gather(*(reversed(work) if stop_first else work))
        await scene.led.moves.idle()
        left = len(scene.owned(1))
        assert left >= COUNT - 2 * AT_ONCE
        await scene.step()
        await scene.step()
        assert scene.goals.goal(order.id).ended == Reason("Stopped", "by an operator")
        assert len(scene.owned(1)) == left


async def test_a_broker_whose_report_is_old_is_not_empty() -> None:
    """It is asked before anybody says so."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        await asyncio.sleep(0.01)
        at_ms = scene.led.moves.term.clock.now_ms()
        await scene.led.report(1, {}, cpu=2, at_ms=at_ms)
        await scene.goals.step()
        waits = scene.goals.goal(order.id).waits
        assert waits is not None
        assert waits.code == "NotReported"
        with pytest.raises(ConflictError, match="serves 16 bundles that"):
            await scene.goals.propose(Emptied("b1:8080"), PlanLimits())
        await scene.report()
        assert (await scene.run(order.id)).ended == REACHED


async def test_nothing_is_planned_before_the_load_is_known() -> None:
    """A new leader would say that all is even."""
    async with a_scene() as scene:
        scene.goals.hold = lambda: Reason("WarmUp", "1 of 4 brokers have reported")
        with pytest.raises(ConflictError, match="yet: WarmUp"):
            await scene.goals.propose(Even(7), PlanLimits())


def another_leader(scene: Scene) -> None:
    """It knows nothing but what is stored."""
    scene.goals = TermGoals(checks=(), load_manager=scene.led.load_manager, moves=scene.led.moves)


async def test_another_leader_counts_what_really_moved() -> None:
    """Queued moves died with the leader before; no limit is passed, and none is wasted."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(moves=8), approve=True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=2))
        await scene.goals.step()
        await asyncio.sleep(5)
        another_leader(scene)
        scene.led.moves.cancel(None, "the leader died")
        scene.led.move_settings.set(MoveSettings(warm_up_s=0))
        await scene.report()
        await scene.goals.step()
        shown = scene.goals.goal(order.id)
        assert (shown.waits and shown.waits.code, shown.under_way) == ("EarlierLeader", AT_ONCE)
        await asyncio.sleep(LATE_MS / 1000)
        await scene.goals.step()
        progress = scene.led.wishes.goals[order.id].progress
        assert (progress.arrived, progress.failed) == (2, AT_ONCE - 2)
        by_next = scene.goals.goal(order.id).compared
        assert by_next is not None
        assert (by_next.shown, by_next.made, by_next.as_shown) == (8, 2, 2)
        assert progress.clients == 2 * EACH_CLIENTS
        ended = await scene.run(order.id)
        assert ended.ended is not None
        assert ended.ended.code == "Limits"
        assert (ended.progress.arrived, ended.under_way) == (8, ())
        assert len(scene.owned(1)) == COUNT - 8
        in_all = scene.goals.goal(order.id).compared
        assert in_all is not None
        assert (in_all.shown, in_all.made) == (8, 8)
        at_first = {(move.bundle, move.destination) for move in order.moves}
        places = {name: owner for name in BUNDLES for owner in scene.led.fleet.owners(name)}
        assert in_all.as_shown == len(at_first & places.items())


async def test_a_move_that_a_dead_leader_ordered_may_still_be_made() -> None:
    """It counts; owners that cannot be read count as nothing yet."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(moves=AT_ONCE), approve=True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=2))
        await scene.goals.step()
        await asyncio.sleep(5)
        another_leader(scene)
        await scene.goals.step()
        scene.led.move_settings.set(MoveSettings(warm_up_s=0))
        await scene.led.moves.idle()
        await scene.goals.step()
        progress = scene.led.wishes.goals[order.id].progress
        assert (progress.arrived, progress.moved) == (AT_ONCE, AT_ONCE)
        assert len(scene.led.ended) == AT_ONCE


@pytest.mark.parametrize(("said", "leaves"), [(False, False), (True, False), (False, True)])
async def test_a_goal_that_stays_as_far_does_not_move_for_ever(*, said: bool, leaves: bool) -> None:
    """Somebody takes back what arrives: nobody approved more than `AT_ONCE` moves, unless a limit
    was said.
    """
    async with a_scene() as scene:
        limits = PlanLimits(moves=12) if said else PlanLimits()
        order = await scene.goals.propose(Filled("b2:8080", 0.3), limits, approve=True)
        assert TIMES_PROMISED * order.promise.moves < AT_ONCE
        scene.goals.work.steady.look()
        if leaves:
            await a_broker_without_bundles_leaves(scene)
        for _ in range(14):
            await scene.goals.step()
            await scene.led.moves.idle()
            for name in scene.owned(2):
                await scene.led.fleet.brokers[2].release(name)
                await scene.led.fleet.brokers[1].acquire(name)
            for _ in range(6):
                await asyncio.sleep(61)
                await scene.report()
        ended = scene.goals.goal(order.id).ended
        assert ended is not None
        moved = len(scene.led.ended)
        assert (moved, ended.code) == ((12, "Limits") if said else (AT_ONCE, "BeyondPromise"))
        why = "b3:8080 has left" if leaves else "the load changes, or is known no better"
        assert said or f"is not reached after {AT_ONCE}: {why}; propose it again" in ended.text


async def test_nothing_more_goes_where_bundles_lose_their_traffic() -> None:
    """Whoever came to a newcomer has no clients there: the goal waits, and says for what."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Filled("b2:8080"), PlanLimits(), approve=True)
        assert order.promise.moves > LOST_LEAST
        for _ in range(10):
            await scene.goals.step()
            await scene.led.moves.idle()
            for _ in range(6):
                await asyncio.sleep(61)
                await scene.report(of_second=0.0)
        assert len(scene.owned(2)) == order.promise.moves
        shown = scene.goals.goal(order.id)
        assert shown.state == "approved"
        assert shown.waits == Reason(LOST.code, f"b2:8080: {LOST.text}")


async def a_broker_without_bundles_leaves(scene: Scene) -> None:
    """The third one; the leader knows what it had."""
    assert not scene.owned(3)
    scene.goals.work.steady.departures = scene.led.fleet.brokers[0].brokers.departures
    scene.lost.add(3)
    await scene.led.store.delete("/loadbalance/brokers/b3:8080")
    await scene.led.until(lambda: "b3:8080" not in scene.led.fleet.brokers[0].brokers.reports)


async def lose(scene: Scene, index: int) -> list[str]:
    """A broker dies; returns its bundles, which nobody owns then."""
    lost, broker = scene.owned(index), f"b{index}:8080"
    assert lost
    scene.lost.add(index)
    await scene.led.store.delete(f"/loadbalance/brokers/{broker}")
    await scene.led.until(lambda: broker not in scene.led.fleet.brokers[0].brokers.reports)
    scene.led.fleet.unreachable.add(broker)
    for name in lost:
        await scene.led.fleet.brokers[index].release(name)
    return lost


def no_more_before(lost: list[str]) -> Reason:
    """Why a goal waits while these bundles have no owner."""
    count = len(lost)
    some = (
        "1 bundle of brokers that left has"
        if count == 1
        else (f"{count} bundles of brokers that left have")
    )
    text = f"it moves nothing more until {some} an owner"
    return Reason("Unsteady", text)


async def test_a_broker_is_lost_in_the_middle() -> None:
    """Nothing more is moved until its bundles are at other brokers, and these have reported them.
    The rest of the plan is for those that are left.
    """
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        lost, left = await lose(scene, 3), scene.owned(1)
        assert len(left) - len(scene.owned(2)) > 4
        for _ in range(20):
            await scene.step()
            assert scene.goals.goal(order.id).waits == no_more_before(lost)
        placed = {name: await scene.led.load_manager.place(name) for name in lost}
        for _ in range(10):
            await scene.step()
            assert scene.goals.goal(order.id).waits == no_more_before(lost)
        assert scene.owned(1) == left
        for name, broker in placed.items():
            await scene.led.fleet.brokers[int(broker[1])].acquire(name)
        ended = await scene.run(order.id)
        assert ended.ended == REACHED
        assert scene.owned(1) != left
        assert abs(len(scene.owned(1)) - len(scene.owned(2))) <= 3


async def test_a_loss_is_told_while_a_goal_waits_for_something_else() -> None:
    """What it waited for goes by figures of before."""
    async with a_scene() as scene:
        bundle, source, there = BUNDLES[0], scene.led.fleet.brokers[1], scene.led.fleet.brokers[3]
        await source.release(bundle)
        await there.acquire(bundle)
        await scene.report()
        await just_moved(scene)
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        assert waiting_code(scene, order.id) == "GracePeriod"
        lost = await lose(scene, 3)
        assert lost == [bundle]
        await scene.goals.step()
        assert scene.goals.goal(order.id).waits == no_more_before(lost)


async def test_clients_of_a_lost_broker_come_back_with_what_has_waited() -> None:
    """The reports of the first minutes show it, and no move follows them."""
    async with a_scene() as scene:
        scene.led.move_settings.set(MoveSettings(warm_up_s=120))
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        while not scene.owned(3):  # all report to the leader first
            await scene.step()
        lost = await lose(scene, 3)
        await scene.step()
        for name in lost:
            await scene.led.fleet.brokers[2].acquire(name)
        left, told_of = scene.owned(1), set[str]()
        for _ in range(100):
            await scene.step()
            waits = scene.goals.goal(order.id).waits
            assert waits is not None
            told_of.add(waits.text.partition("until ")[2].partition("Z")[2])
        assert scene.owned(1) == left
        assert told_of - {""} == {": clients of a broker that left come back"}
        assert (await scene.run(order.id, steps=200)).ended == REACHED
        assert scene.owned(1) != left


@asynccontextmanager
async def the_next_term(scene: Scene) -> AsyncIterator[Scene]:
    """Another term of the same broker: the view begins with the reports that are there."""
    led = scene.led
    next_leader = Leader(LEADER.broker_id, LEADER.service_url, 2)
    parts = await build(led.parts.leads, Term(next_leader), led.fleet.scope, Steps())
    led.fleet.scope.spawn(parts.moves.run(), "moves of the next term")
    with parts.feed, parts.owners:
        after = Scene(Led(led.fleet, parts, Observed()))
        after.lost = scene.lost
        yield after


async def began(scene: Scene, part: float = 1.0) -> None:
    """A new leader counts what the last one had ordered, from fresh reports, and moves nothing."""
    owned = scene.owned(1)
    await scene.report(part)
    for _ in range(SOON_MS // 1000):
        await scene.step(part)
    assert scene.owned(1) == owned


def waits_for(scene: Scene, order_id: str) -> str:
    """Why an order waits."""
    waits = scene.goals.goal(order_id).waits
    return "" if waits is None else waits.text


@pytest.mark.parametrize(
    "strategies",
    [
        replace(STRATEGIES, shedding_enabled=False),
        replace(STRATEGIES, shedder="ThresholdShedder", shedding_enabled=False),
        replace(STRATEGIES, shedder="OverloadShedder"),
    ],
    ids=["off", "another one, off", "another one"],
)
async def test_a_new_leader_in_a_dip_knows_of_the_dip(strategies: StrategySettings) -> None:
    """By the model that the leader before stored, though it was not BalancedShedder that acted."""
    async with a_scene() as scene:
        scene.led.strategies.set(strategies)
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.report(part=0.3)
        await scene.led.shed()
        await scene.goals.step()
        assert waiting_code(scene, order.id) == "TrafficDip"
        async with the_next_term(scene) as after:
            await began(after, part=0.3)
            assert waiting_code(after, order.id) == "TrafficDip"
            await after.report()
            assert (await after.run(order.id)).ended == REACHED


async def test_a_new_leader_knows_what_the_last_moves_cost() -> None:
    """It plans by that, and assumes nothing."""
    async with a_scene() as scene:
        for broker in scene.led.fleet.brokers:
            broker.tenant.stats = dict.fromkeys(BUNDLES, EACH)
            broker.tenant.returned_ms = (250.0,) * int(EACH_CLIENTS)
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        assert order.pause_source == "assumed"
        await scene.run(order.id)
        await scene.led.shed()
        before = scene.led.moves.pauses.expected()
        assert before.source == "moves"
        async with the_next_term(scene) as after:
            await after.report()
            other = await after.goals.propose(Emptied("b2:8080"), PlanLimits())
            assert (other.pause_source, other.pause_seconds) == ("moves", before.measured_s)
            assert other.promise.pause_s == pytest.approx(before.seconds, rel=0.01)


def waiting_code(scene: Scene, order_id: str) -> str:
    """The code of why an order waits."""
    waits = scene.goals.goal(order_id).waits
    return "" if waits is None else waits.code


COME_BACK = ": clients of a broker that left come back"


async def test_a_leader_that_was_lost_before_the_term_is_waited_for() -> None:
    """What it had is to be placed and reported first, and its clients come back."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        lost, left = await lose(scene, 3), scene.owned(1)
        scene.led.move_settings.set(MoveSettings(warm_up_s=120))
        async with the_next_term(scene) as after:
            assert not after.led.view.reports.keys() & {"b3:8080"}
            await began(after)
            for _ in range(20):
                await after.step()
                assert after.goals.goal(order.id).waits == no_more_before(lost)
            for name in lost:
                await after.led.fleet.brokers[2].acquire(name)
            await after.report()
            for _ in range(115):
                await after.step()
            assert after.owned(1) == left
            assert waits_for(after, order.id).endswith(COME_BACK)
            assert (await after.run(order.id, steps=200)).ended == REACHED
            assert after.owned(1) != left


async def test_bundles_that_were_placed_before_the_term_are_not_moved_at_once() -> None:
    """They were lost, and placed and reported a moment ago: nobody knows their load there."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        lost = await lose(scene, 3)
        for name in lost:
            await scene.led.fleet.brokers[1].acquire(name)
        await scene.report()
        left = scene.owned(1)
        scene.led.move_settings.set(MoveSettings(warm_up_s=120))
        async with the_next_term(scene) as after:
            await began(after)
            for _ in range(100):
                await after.step()
            assert after.owned(1) == left
            assert waits_for(after, order.id).endswith(COME_BACK)
            assert (await after.run(order.id, steps=200)).ended == REACHED


async def test_bundles_that_the_last_term_moved_have_their_grace() -> None:
    """Those whose moves were under way: where they are, says their owner."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.goals.step()
        await scene.led.moves.idle()
        moved = {move.bundle for move in scene.led.ended}
        await scene.report()
        strategies = replace(STRATEGIES, grace_period_minutes=10)
        scene.led.strategies.set(strategies)
        async with the_next_term(scene) as after:
            assert not after.led.view.recent_moves()[0]
            await after.goals.step()
            assert after.led.wishes.goals[order.id].progress.moved == len(moved)
            snapshot = after.led.load_manager.snapshot(strategies)
            assert snapshot.recently_unloaded_ms.keys() == moved


async def test_a_new_term_waits_for_a_report_of_each_broker() -> None:
    """A quorum is enough for cycles; nobody waits longer than for the load to be known."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=120))
        async with the_next_term(scene) as after:
            after.lost.add(2)  # it says nothing
            await began(after)
            for _ in range(90):
                await after.step()
                text = waits_for(after, order.id)
                assert "until b2:8080 has reported to this leader, or " in text
            assert len(after.owned(1)) == COUNT
            after.lost.clear()
            await after.report()
            for _ in range(SOON_MS // 1000):
                await after.step()
            assert len(after.owned(1)) < COUNT


async def test_a_broker_that_never_reports_is_waited_for_no_longer_than_the_warm_up() -> None:
    """It may have nothing new to say."""
    async with a_scene() as scene:
        await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        scene.led.move_settings.set(MoveSettings(warm_up_s=120))
        async with the_next_term(scene) as after:
            after.lost.add(2)
            for _ in range(125):
                await after.step()
            assert len(after.owned(1)) < COUNT


async def test_a_loss_that_only_the_book_tells_of_is_waited_for() -> None:
    """The new leader's broker has begun since."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        lost, left = await lose(scene, 3), scene.owned(1)
        members = the_members(scene.led, scene.led.moves)
        await members.step()
        scene.led.fleet.brokers[0].brokers.departed.clear()
        scene.led.move_settings.set(MoveSettings(warm_up_s=60))
        async with the_next_term(scene) as after:
            book = the_members(after.led, after.led.moves)
            await book.restore()
            after.goals.work.steady.unserved = book.unserved
            await began(after)
            for _ in range(60):
                await after.step()
                assert after.goals.goal(order.id).waits == no_more_before(lost)
            for name in lost:
                await after.led.fleet.brokers[2].acquire(name)
            await after.report()
            for _ in range(50):
                await after.step()
            assert after.owned(1) == left
            assert waits_for(after, order.id).endswith(COME_BACK)
            assert (await after.run(order.id, steps=200)).ended == REACHED


@pytest.mark.parametrize("cordoned", [True, False])
async def test_nobody_waits_after_a_broker_that_was_drained(*, cordoned: bool) -> None:
    """Its clients are elsewhere already; also if its cordon has ended, and it had no bundle."""
    async with a_scene() as scene:
        scene.led.move_settings.set(MoveSettings(warm_up_s=120))
        await scene.goals.step()
        if cordoned:
            await scene.led.wishes.cordon("b3:8080", Cordon(1), ())
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await a_broker_without_bundles_leaves(scene)
        for _ in range(10):
            await scene.step()
        assert scene.owned(2)
        assert scene.goals.goal(order.id).progress.arrived > 0
        assert scene.goals.work.steady.changes_since(order.made_ms) == "b3:8080 has left"


async def test_without_an_end_it_ends_a_day_after_its_first_window_opens() -> None:
    """A window of some days of the week may open later than tomorrow."""
    async with a_scene() as scene:
        now_ms = scene.led.moves.term.clock.now_ms()
        days = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(days=3)
        window = f"{days:%A} 22:00-23:00"
        order = await scene.goals.propose(Even(7), PlanLimits(windows=(window,)), approve=True)
        assert order.limits.until_ms == next_open_ms((window,), now_ms) + DAY_MS
        assert order.waits == Reason("OutsideWindows", window)


async def test_bundles_that_no_lookup_asks_for_are_not_waited_for_for_ever() -> None:
    """Their clients are gone: as long as averages of such bundles are kept, and no longer."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        lost, left = await lose(scene, 3), scene.owned(1)
        await asyncio.sleep(UNREPORTED_MS_MAX / 1000 - 10)
        await scene.step()
        assert scene.goals.goal(order.id).waits == no_more_before(lost)
        assert scene.owned(1) == left
        await asyncio.sleep(10)
        assert (await scene.run(order.id)).ended == REACHED
        assert scene.owned(1) != left


async def test_a_broker_is_emptied_although_another_one_is_lost() -> None:
    """Also after a goal that waits for the lost bundles: it is about to stop."""
    async with a_scene() as scene:
        even = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        lost = await lose(scene, 3)
        await scene.step()
        made = scene.goals.goal(even.id).progress.ordered
        emptied = await scene.goals.propose(Emptied("b1:8080"), PlanLimits(), approve=True)
        for _ in range(20):
            await scene.step()
        assert scene.owned(1) == []
        assert scene.owned(2) == [name for name in BUNDLES if name not in lost]
        assert scene.goals.goal(emptied.id).progress.arrived == COUNT - made
        assert scene.goals.goal(even.id).progress.ordered == made


async def test_it_does_not_end_while_bundles_have_no_owner() -> None:
    """The brokers that are left look even."""
    async with a_scene() as scene:
        order_id = await looks_reached(scene)
        lost = await lose(scene, 3)
        for _ in range(20):
            await scene.step()
        until = waits_until(scene, order_id)
        assert until == f"{len(lost)} bundles of brokers that left have an owner"
        for name, index in zip(lost, (1, 2) * len(lost), strict=False):
            await scene.led.fleet.brokers[index].acquire(name)
        assert (await scene.run(order_id)).ended == REACHED


def waits_until(scene: Scene, order_id: str) -> str:
    """What an order that looks reached waits for."""
    shown = scene.goals.goal(order_id)
    assert (shown.state, shown.waits and shown.waits.code) == ("approved", "Unsteady"), shown
    looks, _, until = (shown.waits.text if shown.waits else "").partition("; it waits until ")
    assert looks == "it looks reached"
    return until


async def looks_reached(scene: Scene) -> str:
    """Go on with a goal until it looks reached; returns its id."""
    order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
    for _ in range(20):
        await scene.goals.step()
        waits = scene.goals.goal(order.id).waits
        if waits is not None and waits.code == "Unsteady":
            return order.id
        await scene.led.moves.idle()
        await asyncio.sleep(1)
        await scene.report()
    raise AssertionError(scene.goals.goal(order.id))


async def test_one_look_does_not_end_it() -> None:
    """The next one is at new reports of all brokers, or half a minute later."""
    async with a_scene() as scene:
        order_id = await looks_reached(scene)
        scene.lost.add(3)
        for _ in range(5):
            await scene.step()
        until = waits_until(scene, order_id)
        assert until == "b3:8080 has reported once more, and it looks so again"
        scene.lost.clear()
        await scene.report()
        await scene.goals.step()
        assert scene.goals.goal(order_id).ended == REACHED


async def test_a_broker_that_has_nothing_new_to_say_is_not_waited_for_for_ever() -> None:
    """Brokers report what has changed."""
    async with a_scene() as scene:
        order_id = await looks_reached(scene)
        scene.lost.update((0, 1, 2, 3))
        await asyncio.sleep(FRESH_MAX_S)
        await scene.goals.step()
        assert scene.goals.goal(order_id).ended == REACHED


@pytest.mark.parametrize("change", ["left", "joined", "started anew"])
async def test_it_does_not_end_before_brokers_that_come_or_go_have_settled(change: str) -> None:
    """For as long as a new leader warms up: sensors and clients are on their way."""
    async with a_scene() as scene:
        if change == "joined":
            await scene.led.store.delete("/loadbalance/brokers/b0:8080")
            scene.lost.add(0)
        scene.led.move_settings.set(MoveSettings(warm_up_s=120))
        await scene.goals.step()
        await asyncio.sleep(120)
        await scene.report()
        order_id = await looks_reached(scene)
        changed_ms = scene.led.moves.term.clock.now_ms()
        if change == "left":
            scene.lost.add(0)
            await scene.led.store.delete("/loadbalance/brokers/b0:8080")
        elif change == "joined":
            scene.lost.clear()
        else:
            scene.started_ms[0] = changed_ms
        await scene.report()
        for _ in range(100):
            await scene.step()
        until = waits_until(scene, order_id)
        assert until.endswith(f", if the brokers stay the same: b0:8080 has {change}")
        await asyncio.sleep(20)
        await scene.report()
        await scene.run(order_id)
        assert scene.goals.goal(order_id).ended == REACHED


async def test_it_does_not_end_while_moves_are_under_way() -> None:
    """Whoever ordered them."""
    async with a_scene() as scene:
        order_id = await looks_reached(scene)
        scene.led.move_settings.set(MoveSettings(warm_up_s=0, per_minute_max=0))
        other = Unload("another/one/0x00000000_0xffffffff", "b2:8080", "b3:8080", "Drained")
        scene.led.moves.decide([other], Author.DRAIN)
        for _ in range(10):
            await scene.goals.step()
            await asyncio.sleep(1)
            await scene.report()
        until = waits_until(scene, order_id)
        assert until == "1 move that waits or is under way has ended"
        scene.led.moves.cancel(None)
        assert (await scene.run(order_id)).ended == REACHED


async def uneven_afterwards(scene: Scene) -> None:
    """Others undo what a goal has reached; its end is some minutes ago."""
    others = [
        Unload(bundle, f"b{index}:8080", "b2:8080", "Drained")
        for index in (1, 3)
        for bundle in scene.owned(index)[:3]
    ]
    scene.led.moves.decide(others, Author.DRAIN)
    await scene.led.moves.idle()
    await asyncio.sleep(AFTERWARDS_MS / 1000)
    await scene.report()
    await scene.step()


async def test_a_goal_that_is_not_reached_any_more_goes_on() -> None:
    """It said so too early, or more has changed since: its time and its limits allow more."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        first = await scene.run(order.id)
        await uneven_afterwards(scene)
        again = scene.led.wishes.goals[order.id]
        assert (again.state, again.ended, again.ended_ms) == ("approved", None, None)
        assert again.afterwards is not None
        assert again.afterwards.reached is False
        second = await scene.run(order.id)
        assert second.ended == REACHED
        assert second.progress.arrived > first.progress.arrived
        await asyncio.sleep(AFTERWARDS_MS / 1000)
        await scene.report()
        await scene.step()
        last = scene.led.wishes.goals[order.id]
        assert last.afterwards is not None
        assert (last.state, last.afterwards.reached) == ("ended", True)


async def test_a_goal_that_may_not_go_on_says_that_it_is_not_reached_any_more() -> None:
    """Its limits are used up, or another goal was approved after it."""
    for limits, other in ((PlanLimits(moves=10), False), (PlanLimits(), True)):
        async with a_scene() as scene:
            order = await scene.goals.propose(Even(7), limits, approve=True)
            assert order.promise.reached
            ended = await scene.run(order.id)
            if other:
                await asyncio.sleep(1)
                later = PlanLimits(from_ms=scene.led.moves.term.clock.now_ms() + 3_600_000)
                await scene.goals.propose(Emptied("b3:8080"), later, approve=True)
            else:
                progress = msgspec.structs.replace(ended.progress, moved=10)
                used_up = msgspec.structs.replace(ended, progress=progress)
                await scene.led.wishes.set_goal(order.id, used_up, ())
            await uneven_afterwards(scene)
            shown = scene.goals.goal(order.id)
            assert (shown.state, shown.ended) == ("ended", REACHED)
            assert shown.afterwards is not None
            assert shown.afterwards.reached is False


async def test_it_is_not_reached_already_while_bundles_have_no_owner() -> None:
    """Their broker is lost; who asks is told when that counts."""
    async with a_scene() as scene:
        scene.lost.add(1)
        await scene.led.store.delete("/loadbalance/brokers/b1:8080")
        await scene.led.until(lambda: "b1:8080" not in scene.led.view.reports)
        with pytest.raises(ConflictError, match=f"{COUNT} bundles of brokers that left have an ow"):
            await scene.goals.propose(Even(7), PlanLimits())


async def test_moves_that_fail_end_it() -> None:
    """After so many in a row, with what went wrong; none is tried twice."""
    async with a_scene() as scene:
        order = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        scene.led.fleet.unreachable.add("b1:8080")
        ended = await scene.run(order.id)
        assert ended.ended is not None
        assert ended.ended.code == "MovesFail"
        assert "cannot be reached" in ended.ended.text
        assert ended.progress.failed == len({move.bundle for move in scene.led.ended}) == 10


async def test_limits_that_allow_no_move_are_refused() -> None:
    """Nothing is stored, and no broker is cordoned that nothing would leave."""
    async with a_scene() as scene:
        with pytest.raises(BadInputError, match="allow no move"):
            await scene.goals.propose(
                Emptied("b1:8080"), PlanLimits(clients=EACH_CLIENTS / 2), approve=True
            )
        assert not scene.led.wishes.goals
        assert "b1:8080" not in scene.led.wishes.cordons


async def test_one_goal_at_a_time() -> None:
    """In the order of their approvals."""
    async with a_scene() as scene:
        one = await scene.goals.propose(Filled("b2:8080"), PlanLimits(), approve=True)
        await asyncio.sleep(1)
        two = await scene.goals.propose(Even(7), PlanLimits(), approve=True)
        await scene.step()
        waits = scene.goals.goal(two.id).waits
        assert waits == Reason("OneAtATime", f"goal {one.id} is carried out")
        await scene.run(one.id)
        assert (await scene.run(two.id)).ended == REACHED


async def test_what_is_there_already_needs_no_order() -> None:
    """Nothing waits for an approval then."""
    async with a_scene() as scene:
        shown = await scene.goals.propose(Even(100), PlanLimits(), approve=True)
        assert (shown.state, shown.ended, shown.moves) == ("ended", REACHED, [])


@pytest.mark.parametrize(
    ("goal", "limits", "error", "text"),
    [
        (Even(0), PlanLimits(), BadInputError, "0 points"),
        (Filled("nobody:1"), PlanLimits(), NotFoundError, "nobody:1 is not active: .*b1:8080"),
        (Emptied("nobody:1"), PlanLimits(), NotFoundError, "not active"),
        (Apart(("one",)), PlanLimits(), BadInputError, "name two"),
        (Spare(), PlanLimits(windows=("never",)), BadInputError, "such as"),
        (Spare(), PlanLimits(until_ms=1), BadInputError, "is over"),
        (Spare(), PlanLimits(clients=1e30), BadInputError, "0 or more, and less than 1e\\+18"),
    ],
)
async def test_what_cannot_be_planned_is_refused(
    goal: Goal, limits: PlanLimits, error: type[Exception], text: str
) -> None:
    """And nothing is stored."""
    async with a_scene() as scene:
        with pytest.raises(error, match=text):
            await scene.goals.propose(goal, limits)
        assert scene.led.wishes.goals == {}


async def test_orders_are_bounded() -> None:
    """The oldest that ended gives way, then the oldest that nobody approved."""
    async with a_scene() as scene:
        first = await scene.goals.propose(Even(50), PlanLimits())
        for _ in range(ORDERS_MAX):
            await scene.goals.propose(Even(7), PlanLimits())
        assert len(scene.led.wishes.goals) == ORDERS_MAX
        with pytest.raises(NotFoundError):
            scene.goals.goal(first.id)
        assert len(scene.goals.list().goals) == ORDERS_MAX


class PublishedScene(Scene):
    """The same in the extensible manager: brokers publish their load, and three bundles each."""

    async def report(self, idle: int | None = None) -> None:
        """All brokers publish."""
        await asyncio.sleep(0.01)
        at_ms = self.led.moves.term.clock.now_ms()
        for index in range(4):
            stats = dict.fromkeys(self.owned(index), EACH)
            await self.led.publish(index, stats, cpu=2 + 5 * len(stats), at_ms=at_ms)


@asynccontextmanager
async def a_published_scene() -> AsyncIterator[Scene]:
    """As `a_scene`."""
    strategies = replace(STRATEGIES, bundles_in_report_max=3)
    async with led_fleet(4, bundles=COUNT, strategies=strategies, extensible=True) as led:
        for name in BUNDLES:
            await led.fleet.brokers[1].acquire(name)
        scene = PublishedScene(led)
        await led.wishes.cordon("b0:8080", Cordon(1), ())
        await scene.report()
        yield scene


@pytest.mark.parametrize("goal", [Even(7), Filled("b2:8080"), Emptied("b1:8080")], ids=str)
async def test_goals_are_reached_in_the_extensible_manager(goal: Goal) -> None:
    """Although only the busiest bundles are published: the others carry the rest."""
    async with a_published_scene() as scene:
        order = await scene.goals.propose(goal, PlanLimits(), approve=True)
        assert order.promise.reached
        ended = await scene.run(order.id)
        assert (ended.ended, ended.progress.failed) == (REACHED, 0)
        assert ended.progress.arrived >= order.promise.moves > 0
        if isinstance(goal, Even):
            assert {len(scene.owned(index)) for index in (1, 2, 3)} <= {4, 5, 6, 7}


async def test_a_drain_in_the_extensible_manager() -> None:
    """It goes by the plan, too."""
    async with a_published_scene() as scene:
        await scene.led.operations.cordon("b1:8080", drain=True)
        await drain_step(scene)
        assert scene.owned(1) == []
        assert len(scene.owned(2)) == len(scene.owned(3)) == COUNT / 2
