"""observe, advise, approve and act over a fake cluster: what is moved, and what is not."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from steer.fake_pulsar import NAMESPACE, a_pulsar
from steer.watched import ACT, AGAIN_S, MANY_MOVES, Watching, beside, watching

from loadmanager.engine.history.records import Decision
from loadmanager.engine.load.cluster_view import UNREPORTED_MS_MAX
from loadmanager.engine.moves.move import Author
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.plans.goals import Emptied, Even, PlanLimits
from loadmanager.engine.strategies.plan import Unload
from loadmanager.kit.errors import ConflictError
from loadmanager.kit.text import moment
from loadmanager.lab.deciding import Deciding
from loadmanager.lab.lines import decode_line
from loadmanager.leader.goal_pace import AT_ONCE
from loadmanager.leader.ports.operating import DriftError
from loadmanager.steer import settings_file as fleet
from loadmanager.steer.notices import Notices
from loadmanager.steer.snapshot_line import snapshot_line

APPROVE = {"mode": "approve", "loadManagerMovesPerMinuteMax": "-1"}


def shares(daemon: Watching) -> list[int]:
    """Bundles of each broker."""
    counts = Counter(daemon.pulsar.owners.values())
    return [counts[broker] for broker in daemon.pulsar.brokers]


async def test_advice_has_reasons_and_commands(tmp_path: Path) -> None:
    """Every move as a line for a shell; other strategies decide beside it."""
    settings = {"mode": "advise", "shadowStrategies": "UniformLoadShedder", "minUnloadMessage": "1"}
    async with watching(tmp_path, settings=settings) as daemon:
        await daemon.cycle()
        document = daemon.work.advice.shown(None)
        move = document.plan.unloads[0]
        assert move.reason == "Overloaded"
        span = move.bundle.rpartition("/")[2]
        assert move.command == (
            f"pulsar-admin namespaces unload acme/shop --bundle {span} "
            f"--destinationBroker {move.destination}"
        )
        (shadow,) = document.shadows
        assert shadow.strategy == "UniformLoadShedder"
        assert shadow.plan.unloads
        records = [record for record in daemon.history.records if isinstance(record, Decision)]
        assert {record.action for record in records} >= {"unload", "skip"}
        assert shares(daemon) == [12, 2, 2]


async def test_a_snapshot_is_a_line_for_decide(tmp_path: Path) -> None:
    """`decide` plans what the daemon plans."""
    async with watching(tmp_path, settings={"mode": "advise"}) as daemon:
        await daemon.cycle()
        line = await snapshot_line(daemon.work.picture, daemon.work.watching.reader)
        import random

        import msgspec

        plan = Deciding(random.Random(1)).decide(
            decode_line(msgspec.json.encode(line)),
            daemon.work.load_manager.strategies.value,
            daemon.work.load_manager.splits.value,
        )
        advised = daemon.work.advice.plan
        assert advised is not None
        assert plan.unloads
        assert [move.bundle for move in plan.unloads] == [move.bundle for move in advised.unloads]


@pytest.mark.parametrize("extensible", [False, True])
async def test_act_balances(tmp_path: Path, *, extensible: bool) -> None:
    """On both managers; what was moved stays for the grace period."""
    async with watching(tmp_path, settings=ACT, extensible=extensible) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        moved = list(daemon.pulsar.moved)
        assert moved
        assert max(shares(daemon)) < 12
        assert len({bundle for bundle, _ in moved}) == len(moved)
        for bundle, destination in moved:
            assert daemon.pulsar.owners[bundle] == destination
        ended = [
            record
            for record in daemon.history.records
            if isinstance(record, Decision) and record.action == "move"
        ]
        assert {record.state for record in ended} <= {"done"}
        daemon.clock.pass_s(60)
        await daemon.cycle()
        assert len(dict(daemon.pulsar.moved)) == len(daemon.pulsar.moved)


@pytest.mark.parametrize("extensible", [False, True])
async def test_act_balances_by_default(tmp_path: Path, *, extensible: bool) -> None:
    """With the daemon's own strategies every cycle leaves the brokers more even, until nothing is
    worth a move; then it stays.
    """
    settings = {**ACT, **{name: fleet.DEFAULTS[name] for name in MANY_MOVES}}
    async with watching(tmp_path, settings=settings, extensible=extensible) as daemon:
        daemon.pulsar.switch_off()
        daemon.pulsar.zero_after_move = False
        widest = [max(shares(daemon)) - min(shares(daemon))]
        while True:
            before = len(daemon.pulsar.moved)
            await daemon.cycle()
            daemon.clock.pass_s(60)
            if len(daemon.pulsar.moved) == before:
                break
            widest.append(max(shares(daemon)) - min(shares(daemon)))
        assert widest == sorted(widest, reverse=True)
        assert widest[-1] <= 2
        for _ in range(5):
            await daemon.cycle()
            daemon.clock.pass_s(60)
        assert len(daemon.pulsar.moved) == before


async def test_act_refuses_while_pulsar_balances_itself(tmp_path: Path) -> None:
    """And prints the commands that switch it off."""
    async with watching(tmp_path, settings=ACT) as daemon:
        await daemon.cycle()
        assert daemon.pulsar.moved == []
        reason = str(daemon.work.hold.reason())
        assert "--config loadBalancerSheddingEnabled --value false" in reason
        assert "--config loadBalancerAutoBundleSplitEnabled --value false" in reason
        daemon.pulsar.switch_off()
        await daemon.work.watching.read_policies()
        await daemon.cycle()
        assert daemon.pulsar.moved


async def test_a_plan_waits_for_approval_and_is_carried_out_exactly(tmp_path: Path) -> None:
    """Once."""
    async with watching(tmp_path, settings=APPROVE) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        assert daemon.pulsar.moved == []
        advice = daemon.work.advice.shown(None)
        plan_id = advice.plan_id
        await daemon.work.operations.plans.execute(plan_id)
        await daemon.work.moves.idle()
        planned = [(move.bundle, move.destination) for move in advice.plan.unloads]
        assert daemon.pulsar.moved == planned
        with pytest.raises(DriftError, match="carried out already"):
            await daemon.work.operations.plans.execute(plan_id)


@pytest.mark.parametrize("extensible", [False, True])
async def test_a_goal_is_reached_beside_pulsar(tmp_path: Path, *, extensible: bool) -> None:
    """It is kept when the daemon starts again, within the same limits."""
    async with a_pulsar(3, extensible=extensible) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        async with beside(pulsar, tmp_path, APPROVE) as daemon:
            await daemon.cycle()
            goals = daemon.work.operations.goals
            shown = await goals.propose(Emptied(pulsar.brokers[0]), PlanLimits(moves=7), "weekly")
            assert shown.promise.moves == 7
            assert pulsar.moved == []
            await goals.approve(shown.id)
            await daemon.goal_step()
            assert len(pulsar.moved) == AT_ONCE
        async with beside(pulsar, tmp_path, APPROVE, epoch=2) as daemon:
            await daemon.cycle()
            goals = daemon.work.operations.goals
            assert goals.goal(shown.id).progress.ordered == AT_ONCE
            for _ in range(4):
                await daemon.goal_step()
            ended = goals.goal(shown.id)
            assert ended.ended is not None
            assert (ended.ended.code, ended.progress.ordered) == ("Limits", 7)
            assert len(pulsar.moved) == 7


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_goal_waits_for_bundles_without_an_owner(
    tmp_path: Path, *, comes_back: bool
) -> None:
    """Pulsar has the next lookup place them. One that no client looks up is waited for as long as
    its averages are kept, and not for ever.
    """
    async with watching(tmp_path, (9, 2, 5), settings=APPROVE) as daemon:
        pulsar, clock = daemon.pulsar, daemon.clock
        pulsar.switch_off()
        await daemon.cycle()
        goals, (first, second, gone) = daemon.work.operations.goals, pulsar.brokers
        goal = await goals.propose(Even(15), PlanLimits(), approve=True)
        lost = pulsar.owned(gone)
        await pulsar.stop(gone)
        pulsar.brokers.remove(gone)
        for bundle in lost:
            del pulsar.owners[bundle]
        await daemon.work.read()
        forgotten_ms = clock.now_ms() + UNREPORTED_MS_MAX
        clock.pass_s(300)  # until the breaker closes again
        await daemon.work.read()
        while clock.now_ms() < forgotten_ms - (300_000 if comes_back else 20_000):
            await daemon.goal_step()
            waits = goals.goal(goal.id).waits
            assert waits is not None
            assert "until 5 bundles of brokers that left have an owner" in waits.text
        assert pulsar.moved == []
        if comes_back:
            pulsar.owners |= dict.fromkeys(lost, first)
            await daemon.work.read()
        while (waits := goals.goal(goal.id).waits) and "have an owner" in waits.text:
            await daemon.goal_step()
        assert waits is not None
        assert waits.text.endswith("clients of a broker that left come back")
        assert pulsar.moved == []
        clock.pass_s(round(MoveSettings().warm_up_s))
        await daemon.work.read()
        for _ in range(5):
            await daemon.goal_step()
        assert {destination for _, destination in pulsar.moved} == {second}
        assert (clock.now_ms() < forgotten_ms) is comes_back


async def test_a_goal_that_is_approved_while_a_hold_is_in_force_says_so(tmp_path: Path) -> None:
    """It is carried out later, and nobody is asked to approve another plan meanwhile."""
    async with watching(tmp_path, settings=APPROVE) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        goals, notices = daemon.work.operations.goals, list[str]()
        shown = await goals.propose(Emptied(daemon.pulsar.brokers[0]), PlanLimits())
        breaker, acting = daemon.work.hold.breaker, daemon.work.acting
        now_ms = daemon.work.moves.term.clock.now_ms()
        assert breaker.open("b9 disappeared", now_ms, acting.rules())
        approved = await goals.approve(shown.id)
        assert approved.waits is not None
        assert approved.waits.code == "OnHold"
        assert "b9 disappeared" in approved.waits.text
        assert approved.duration is not None
        assert (approved.duration.done_ms or 0) > breaker.until_ms
        until = moment(breaker.until_ms)
        assert f"; the circuit breaker lets nothing move before {until}" in approved.duration.text
        daemon.work.notices = Notices(lambda kind, text: notices.append(f"{kind} {text}"))
        await goals.step()
        await daemon.work.shed()
        await daemon.work.read()
        assert [text for text in notices if text.startswith("plan ")] == []
        assert daemon.pulsar.moved == []


async def test_a_goal_is_refused_where_nothing_may_move(tmp_path: Path) -> None:
    """It is planned in every mode."""
    async with watching(tmp_path, settings={"mode": "advise"}) as daemon:
        await daemon.cycle()
        goals = daemon.work.operations.goals
        shown = await goals.propose(Even(15), PlanLimits())
        assert shown.promise.moves
        with pytest.raises(ConflictError, match="start the daemon with --mode approve"):
            await goals.approve(shown.id)


async def test_a_plan_that_drifted_is_refused(tmp_path: Path) -> None:
    """A bundle moved meanwhile: its plan names it, and moves nothing."""
    async with watching(tmp_path, settings=APPROVE) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        advice = daemon.work.advice.shown(None)
        first = advice.plan.unloads[0].bundle
        daemon.pulsar.owners[first] = daemon.pulsar.brokers[1]
        with pytest.raises(DriftError, match=f"{first}: {daemon.pulsar.brokers[1]} owns it now"):
            await daemon.work.operations.plans.execute(advice.plan_id)
        assert daemon.pulsar.moved == []


async def test_a_plan_of_an_earlier_start_is_refused(tmp_path: Path) -> None:
    """Its id may not become that of another plan."""
    async with watching(tmp_path, settings=APPROVE, epoch=7) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        plan_id = str(daemon.work.advice.plan_id)
    async with watching(tmp_path, settings=APPROVE, epoch=8) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        assert daemon.work.advice.plan_id != plan_id
        with pytest.raises(DriftError, match="made in term 7"):
            await daemon.work.operations.plans.execute(plan_id)
        assert daemon.pulsar.moved == []


async def test_modes_that_move_nothing_say_so(tmp_path: Path) -> None:
    """Whoever asks for a move by hand is told which mode allows it."""
    async with watching(tmp_path, settings={"mode": "advise"}) as daemon:
        await daemon.cycle()
        bundle = daemon.pulsar.owned(daemon.pulsar.brokers[0])[0]
        with pytest.raises(ConflictError, match="--mode approve"):
            await daemon.work.operations.move(bundle, daemon.pulsar.brokers[1])
        with pytest.raises(ConflictError, match="--mode approve"):
            await daemon.work.operations.cordon(daemon.pulsar.brokers[0], drain=True)


@pytest.mark.parametrize(("miss", "back"), [(1, 0), (0, 1), (1, 2), (0, 3)])
async def test_a_bundle_that_went_elsewhere_is_ordered_again(
    tmp_path: Path, miss: int, back: int
) -> None:
    """As modular brokers do in 7 of 119 moves, and more often on a busy machine."""
    async with watching(tmp_path, (14, 1, 1), settings=APPROVE) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        one, _, three = daemon.pulsar.brokers
        bundle = daemon.pulsar.owned(one)[0]
        daemon.pulsar.miss, daemon.pulsar.back = miss, back
        moved = await daemon.work.operations.move(bundle, three)
        assert moved.state.value == "done"
        assert daemon.pulsar.owners[bundle] == three


@pytest.mark.parametrize("tokens", [False, True])
async def test_the_command_that_closes_the_breaker_goes_where_orders_are_taken(
    tmp_path: Path, *, tokens: bool
) -> None:
    """Without tokens, that is the socket alone."""
    key = {"tokenSecretKey": "data:;base64,c2VjcmV0"} if tokens else {}
    settings = {**ACT, "apiSocket": str(tmp_path / "api.sock"), **key}
    async with watching(tmp_path, settings=settings) as daemon:
        hold = daemon.work.hold
        assert hold.url.startswith("unix:") is not tokens
        if not tokens:
            assert hold.url == f"unix:{tmp_path / 'api.sock'}"


async def test_the_breaker_stops_after_a_move_that_failed(tmp_path: Path) -> None:
    """Moves that wait are cancelled; the end of the pause goes on."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        daemon.pulsar.miss = 1 + len(AGAIN_S)
        await daemon.cycle()
        work = daemon.work
        assert "CircuitBreaker: a move failed" in str(work.hold.reason())
        assert daemon.pulsar.moved == []
        moves = work.operations.list_moves(99).moves
        assert {move.state.value for move in moves} == {"failed", "cancelled"}
        cancelled = [move for move in moves if move.state.value == "cancelled"]
        assert all("CircuitBreaker: a move failed" in str(move) for move in cancelled)
        assert "CircuitBreaker" in work.operations.list_moves(9).paused.note
        await daemon.cycle()
        assert daemon.pulsar.moved == []
        await work.operations.pause(None)
        daemon.clock.pass_s(1900)
        await daemon.cycle()
        assert daemon.pulsar.moved


async def test_a_move_that_did_not_begin_opens_no_breaker(tmp_path: Path) -> None:
    """Its destination left before: nothing was tried that could fail."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        source = daemon.pulsar.brokers[0]
        bundle = daemon.pulsar.owned(source)[0]
        gone = Unload(bundle, source, "127.0.0.1:1", "Gain")
        (move,) = daemon.work.moves.decide([gone], Author.CYCLE)
        await daemon.work.moves.idle()
        assert (move.state.value, move.started_at) == ("failed", None)
        assert daemon.work.hold.breaker.opened == 0


async def test_the_breaker_stops_when_the_publish_rate_drops(tmp_path: Path) -> None:
    """Looked at once Pulsar has measured again."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        assert daemon.pulsar.moved
        for bundle in daemon.pulsar.rates:
            daemon.pulsar.rates[bundle] = 50
        daemon.clock.pass_s(120 + 91)
        await daemon.work.read()
        assert "the cluster gets 800 messages/s, 1600 before" in str(daemon.work.hold.reason())


async def test_the_breaker_stops_when_a_broker_disappears(tmp_path: Path) -> None:
    """Also between two plans."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        gone = daemon.pulsar.brokers[1]
        await daemon.pulsar.stop(gone)
        daemon.clock.pass_s(76)  # less, and it may only be slow
        await daemon.cycle()
        reason = str(daemon.work.hold.reason())
        assert f"{gone} disappeared; moves go on at " in reason
        assert "loadmanager admin --url http://127.0.0.1:1 moves resume" in reason
        assert daemon.pulsar.moved == []
        daemon.pulsar.brokers.remove(gone)
        daemon.clock.pass_s(209)
        await daemon.cycle()
        assert daemon.pulsar.moved == []
        daemon.clock.pass_s(2)
        await daemon.cycle()
        assert {destination for _, destination in daemon.pulsar.moved} <= set(daemon.pulsar.brokers)
        assert daemon.pulsar.moved


async def test_a_move_that_failed_because_its_broker_left(tmp_path: Path) -> None:
    """No alarm of half an hour: moves wait until all is steady, as for any broker that leaves."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        daemon.pulsar.miss = 1 + len(AGAIN_S)
        await daemon.cycle()
        assert "CircuitBreaker: a move failed" in str(daemon.work.hold.reason())
        (move,) = (
            each
            for each in daemon.work.operations.list_moves(99).moves
            if each.state.value == "failed"
        )
        await daemon.pulsar.stop(move.source)
        daemon.clock.pass_s(76)
        await daemon.work.read()
        assert f"BrokersLeft: {move.source} disappeared" in str(daemon.work.hold.stopped())


async def test_a_broker_that_was_drained_may_leave(tmp_path: Path) -> None:
    """Its end was announced; what it had is elsewhere already."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        leaving = daemon.pulsar.brokers[1]
        await daemon.work.operations.cordon(leaving, drain=True)
        await daemon.work.operations.step()
        await daemon.work.moves.idle()
        assert daemon.pulsar.owned(leaving) == []
        await daemon.work.read()
        await daemon.pulsar.stop(leaving)
        daemon.pulsar.brokers.remove(leaving)
        daemon.clock.pass_s(76)
        await daemon.work.read()
        assert daemon.work.hold.reason() is None


async def test_a_broker_that_was_never_read_does_not_hold_the_others(tmp_path: Path) -> None:
    """Nothing goes there or comes from there, and the plan says so. Half of them must answer."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        _, two, three = daemon.pulsar.brokers
        await daemon.pulsar.stop(two)
        await daemon.cycle()
        assert daemon.work.hold.reason() is None
        assert {destination for _, destination in daemon.pulsar.moved} == {three}
        plan = daemon.work.advice.plan
        assert plan is not None
        assert any(skip.what == two and "NoReport" in skip.reason for skip in plan.skipped)
        await daemon.pulsar.stop(three)
        await daemon.work.read()
        assert "Incomplete: 1 of 3 brokers answer" in str(daemon.work.hold.reason())


async def test_a_dead_destination_gets_nothing(tmp_path: Path) -> None:
    """It died since it was read, and Pulsar still lists it: a bundle sent there would be lost."""
    async with watching(tmp_path, settings=APPROVE) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        plan_id = str(daemon.work.advice.plan_id)
        for broker in daemon.pulsar.brokers[1:]:
            await daemon.pulsar.stop(broker)
        before = dict(daemon.pulsar.owners)
        await daemon.work.operations.plans.execute(plan_id)
        await daemon.work.moves.idle()
        assert daemon.pulsar.owners == before
        moves = daemon.work.operations.list_moves(99).moves
        assert {move.state.value for move in moves} == {"failed", "cancelled"}
        assert not any("PUT" in line for line in daemon.pulsar.log)


async def test_moved_load_counts_although_pulsar_reports_none_yet(tmp_path: Path) -> None:
    """Figures of a bundle that has arrived start at 0: without them more would be moved there."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        for bundle, _ in daemon.pulsar.moved:
            daemon.pulsar.rates[bundle] = 0.0
        daemon.clock.pass_s(30)
        await daemon.work.read()
        reports = daemon.work.picture.reports
        assert sum(report.msg_rate_in for report in reports.values()) == pytest.approx(1600)
        daemon.clock.pass_s(120)
        await daemon.work.read()
        assert sum(report.msg_rate_in for report in reports.values()) < 1600


async def test_policies_bind_the_daemon(tmp_path: Path) -> None:
    """On Pulsar a named destination beats isolation: the daemon itself must keep to it."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        one = daemon.pulsar.brokers[0]
        daemon.pulsar.isolation = {
            "p": {
                "namespaces": [NAMESPACE],
                "primary": [one.replace(".", "\\.")],
                "secondary": [],
                "auto_failover_policy": {
                    "policy_type": "min_available",
                    "parameters": {"min_limit": "1", "usage_threshold": "80"},
                },
            }
        }
        await daemon.cycle()
        assert daemon.pulsar.moved == []
        skipped = daemon.work.advice.plan
        assert skipped is not None
        assert any("Isolation" in skip.reason for skip in skipped.skipped)


async def test_a_pause_and_pins_outlive_the_daemon(tmp_path: Path) -> None:
    """They are in a file; a pause ends by itself."""
    async with watching(tmp_path, settings=ACT) as daemon:
        await daemon.work.operations.pause(600, "deploy")
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        await daemon.work.shed()
        async with asyncio.timeout(60):
            while not daemon.work.moves.queue.waiting:
                await asyncio.sleep(0.01)
        assert daemon.pulsar.moved == []
        daemon.clock.pass_s(601)
        daemon.work.moves.wake()
        await daemon.work.moves.idle()
        pause = daemon.work.moves.cluster.wishes.pause()
        assert pause is None
