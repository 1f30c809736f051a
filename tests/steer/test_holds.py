"""Holds of moves that wait already, and the memory of the daemon before this one."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from pathlib import Path

import pytest
from steer.fake_pulsar import a_pulsar, failed
from steer.watched import ACT, MANY_MOVES, Clock, Watching, beside, traffic_falls, watching

from loadmanager import cli
from loadmanager.engine.load.wishes import Pause
from loadmanager.engine.moves.move import NOT_SENT, Author
from loadmanager.kit.errors import ConfigError, ConflictError, OperationalError
from loadmanager.leader.may_move import Asker
from loadmanager.steer import settings_file as fleet
from loadmanager.steer.compose import ClusterDaemon
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.options import FleetOptions
from loadmanager.steer.own_balancing import switch_on
from loadmanager.steer.pulsar.client import CONNECTIONS_MAX
from loadmanager.steer.steady import Steady

ONE_A_MINUTE = {**ACT, "loadManagerMovesPerMinuteMax": "1"}
OWN = "loadBalancerSheddingEnabled"
DAY_MS = 86_400_000


async def one_of_several(daemon: Watching) -> None:
    """One move of a cycle is made, and others wait for the pace."""
    daemon.pulsar.switch_off()
    await daemon.work.read()
    await daemon.work.shed()
    queue = daemon.work.moves.queue
    while not daemon.pulsar.moved or queue.running():
        await daemon.work.moves._changed.wait()
    assert queue.waiting > 0


async def minutes_later(daemon: Watching, minutes: int = 3) -> int:
    """The number of moves made in all, that many minutes later."""
    for _ in range(minutes):
        daemon.clock.pass_s(61)
        await daemon.work.read()
        await daemon.work.moves._turn()
        while daemon.work.moves.queue.running():
            await daemon.work.moves._changed.wait()
    return len(daemon.pulsar.moved)


async def test_moves_go_on_at_their_pace(tmp_path: Path) -> None:
    """Without a reason against it, the ones that wait are made: the other tests mean something."""
    async with watching(tmp_path, settings=ONE_A_MINUTE) as daemon:
        await one_of_several(daemon)
        assert await minutes_later(daemon) > 1


async def test_pulsars_own_balancing_stops_moves_that_wait(tmp_path: Path) -> None:
    """The next reading sees it. Once it is off again, they go on."""
    async with watching(tmp_path, settings=ONE_A_MINUTE) as daemon:
        await one_of_several(daemon)
        daemon.pulsar.settings[OWN] = "true"
        await daemon.work.read()
        assert await minutes_later(daemon) == 1
        assert "PulsarBalances" in str(daemon.work.hold.shown_reason())
        daemon.pulsar.switch_off()
        assert await minutes_later(daemon) > 1


async def test_quiet_hours_stop_moves_that_wait(tmp_path: Path) -> None:
    """They begin while moves wait. An operator is told, and may still approve a plan."""
    settings = {**ONE_A_MINUTE, "quietHours": "22:00-06:00"}
    async with watching(tmp_path, settings=settings) as daemon:
        midnight_ms = daemon.clock.at_ms // DAY_MS * DAY_MS
        daemon.clock.at_ms = midnight_ms + (21 * 3600 + 59 * 60 + 50) * 1000
        await one_of_several(daemon)
        assert await minutes_later(daemon) == 1
        assert str(daemon.work.hold.shown_reason()).startswith("QuietHours: no moves in 22:00-06")
        assert daemon.work.hold.refusal(Author.PLAN) is None


@pytest.mark.parametrize(
    ("window", "quiet"),
    [
        ("Mon-Fri 08:00-18:00 Europe/Berlin", True),
        ("Mon-Fri 08:00-18:00 America/New_York", False),
        ("Sat-Sun 00:00-00:00", False),
        ("00:00-00:00", True),
    ],
)
async def test_quiet_hours_have_days_and_zones(tmp_path: Path, window: str, *, quiet: bool) -> None:
    """On a Monday at 11 UTC."""
    settings = {**ONE_A_MINUTE, "quietHours": f"Sat 08:00-09:00, {window}"}
    async with watching(tmp_path, settings=settings) as daemon:
        weeks = daemon.clock.at_ms // (7 * DAY_MS)
        first_monday = 4 * DAY_MS  # the epoch began on a Thursday
        daemon.clock.at_ms = weeks * 7 * DAY_MS + first_monday + 11 * 3_600_000
        assert (daemon.work.hold.quiet() is not None) is quiet


def test_quiet_hours_that_are_none() -> None:
    """Are refused with the form that is expected, and the key."""
    for text in ("22-6", "24:00-06:00", "22:00", "22:60-01:00", "Foo 08:00-09:00"):
        with pytest.raises(ConfigError, match=r"quietHours: .*a window such as"):
            fleet.parse("x", {"pulsar": "http://one:8080", "quietHours": text})


async def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    """Nobody knows then whether Pulsar moves bundles itself: after a few readings nothing moves."""
    async with watching(tmp_path, settings=ONE_A_MINUTE) as daemon:
        await one_of_several(daemon)
        daemon.pulsar.nonsense["/configuration/runtime"] = failed
        daemon.clock.pass_s(30)
        await daemon.work.read()
        assert daemon.work.hold.shown_reason() is None
        assert await minutes_later(daemon) == 1
        assert "the settings are not known" in str(daemon.work.hold.shown_reason())


async def drained(daemon: Watching) -> int:
    """Let a drain make some steps; returns the number of moved bundles."""
    for _ in range(5):
        await daemon.work.operations.step()
        await daemon.work.moves._turn()
        await daemon.work.moves.idle()
    return len(daemon.pulsar.moved)


async def test_a_drain_goes_on_after_a_restart_unless_pulsar_balances(tmp_path: Path) -> None:
    """Its state says why it waits."""
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        async with beside(pulsar, tmp_path, ACT) as daemon:
            await daemon.work.read()
            await daemon.work.operations.cordon(pulsar.brokers[0], drain=True)
        pulsar.settings[OWN] = "true"
        async with beside(pulsar, tmp_path, ACT, epoch=2) as daemon:
            await daemon.work.read()
            assert await drained(daemon) == 0
            (told,) = daemon.work.operations.cordons()
            assert "PulsarBalances" in told.problem
            pulsar.switch_off()
            await daemon.work.read()
            assert await drained(daemon) == 12


async def test_a_drain_waits_for_the_circuit_breaker(tmp_path: Path) -> None:
    """And for neither quiet hours nor the budget."""
    settings = {**ACT, "movesPerHourMax": "0", "quietHours": "00:00-00:00"}
    async with watching(tmp_path, settings=settings) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        await daemon.work.operations.cordon(daemon.pulsar.brokers[0], drain=True)
        acting = daemon.work.acting
        assert daemon.work.hold.breaker.ended("x", "no", daemon.clock.now_ms(), acting.rules())
        assert await drained(daemon) == 0
        await daemon.work.operations.pause(None)
        assert await drained(daemon) == 12


async def kept(folder: Path, text: str) -> None:
    """Wait until it is on the disk."""
    async with asyncio.timeout(60):
        note = FileNote(folder / "acted.json")
        while text.encode() not in (await note.read() or b""):
            await asyncio.sleep(0.01)


async def test_the_budget_outlives_the_daemon(tmp_path: Path) -> None:
    """One move an hour, however often it is started."""
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        settings = {**ACT, "movesPerHourMax": "1"}
        for epoch in (1, 2, 3):
            async with beside(pulsar, tmp_path, settings, epoch=epoch) as daemon:
                daemon.clock.pass_s(60 * epoch)
                await daemon.cycle()
                assert len(pulsar.moved) == 1
                assert str(daemon.work.hold.shown_reason()).startswith(
                    "HourlyBudget: 1 moves an hour"
                )
        async with beside(pulsar, tmp_path, settings, epoch=4) as daemon:
            daemon.clock.pass_s(3700)
            assert "HourlyBudget" not in str(daemon.work.hold.shown_reason())
            await daemon.cycle()
            assert len(pulsar.moved) == 2


async def test_the_breaker_outlives_the_daemon(tmp_path: Path) -> None:
    """Until it closes by itself; after the clock was set back that is no longer than its time."""
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        async with beside(pulsar, tmp_path, ACT) as daemon:
            pulsar.nonsense["/unload"] = failed
            await daemon.cycle()
            assert daemon.work.hold.stopped() is not None
            await kept(tmp_path, "move failed")
        pulsar.nonsense.clear()
        for epoch, passed_s in ((2, 60), (3, -86_400)):
            async with beside(pulsar, tmp_path, ACT, epoch=epoch) as daemon:
                daemon.clock.pass_s(passed_s)
                await daemon.cycle()
                assert "CircuitBreaker" in str(daemon.work.hold.shown_reason())
                assert pulsar.moved == []
                daemon.clock.pass_s(1801)
                await daemon.work.read()
                assert daemon.work.hold.stopped() is None
        async with beside(pulsar, tmp_path, ACT, epoch=4) as daemon:
            await daemon.cycle()
            await daemon.work.operations.pause(None)
            await kept(tmp_path, '"until_ms":0')
        async with beside(pulsar, tmp_path, ACT, epoch=5) as daemon:
            await daemon.cycle()
            assert pulsar.moved != []


async def test_a_move_that_never_began_promises_nothing(tmp_path: Path) -> None:
    """It waits in a pause while traffic falls by itself: the breaker stays closed."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        until_ms = daemon.clock.now_ms() + 600_000
        await daemon.work.moves.cluster.wishes.set_pause(Pause(until_ms, ""), ())
        await daemon.work.shed()
        assert daemon.work.moves.queue.waiting > 0
        await traffic_falls(daemon)
        assert daemon.work.hold.stopped() is None


async def test_the_same_moves_are_the_same_plan(tmp_path: Path) -> None:
    """In `approve`, until it has expired; other moves are another plan."""
    settings = {"mode": "approve"} | {name: fleet.DEFAULTS[name] for name in MANY_MOVES}
    async with watching(tmp_path, settings=settings) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        ids = []
        for seconds in (0, 30, 601):
            daemon.clock.pass_s(seconds)
            await daemon.work.read()
            await daemon.work.shed()
            ids.append(daemon.work.advice.plan_id)
        assert ids[0] is not None
        assert ids[0] == ids[1] != ids[2]
        daemon.pulsar.spread([2, 12, 2])
        daemon.clock.pass_s(30)
        await daemon.work.read()
        await daemon.work.shed()
        assert daemon.work.advice.plan_id not in (None, *ids)


async def test_since_when_a_bundle_is_where_it_is(tmp_path: Path) -> None:
    """Known exactly for what came later, not for what the daemon found."""
    async with watching(tmp_path, (13, 3), settings=ACT) as daemon:
        await daemon.work.read()
        seen = daemon.work.owners.by_bundle
        assert not any(one.exact for one in seen.values())
        bundle, there = min(daemon.pulsar.owners), daemon.pulsar.brokers[1]
        daemon.pulsar.owners[bundle] = there
        await daemon.work.read()
        assert (seen[bundle].broker, seen[bundle].exact) == (there, True)


class Clocks(Clock):
    """A clock that can be set, and one that goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.on_s = 5.0

    def monotonic_s(self) -> float:
        """Seconds."""
        return self.on_s

    def both(self, seconds: float) -> None:
        """Time passes."""
        self.on_s += seconds
        self.pass_s(seconds)


@pytest.mark.parametrize("step_s", [-7200, -3, 3, 7200])
def test_a_clock_that_is_set(step_s: float) -> None:
    """It is told once; small corrections, and time that passes, are not."""
    clock = Clocks()
    steady = Steady(clock)
    clock.both(3600)
    clock.pass_s(1.5)
    steady.check()
    clock.pass_s(step_s)
    with pytest.raises(OperationalError, match=re.escape(f"{step_s:+.0f} s")):
        steady.check()
    steady.check()


async def test_an_order_that_waited_for_a_connection(tmp_path: Path) -> None:
    """It is not sent if the lock was lost meanwhile."""
    async with watching(tmp_path, settings=ACT) as daemon:
        pulsar, client = daemon.pulsar, daemon.client
        pulsar.switch_off()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            there = f"127.0.0.1:{silent.getsockname()[1]}"
            reads = [asyncio.create_task(client.get("/", there)) for _ in range(CONNECTIONS_MAX)]
            leads, asked = [True], []

            def may() -> bool:
                asked.append(leads[0])
                return leads[0]

            client.leads = may
            bundle = min(pulsar.owners)
            order = asyncio.create_task(
                client.send("PUT", f"/admin/v2/namespaces/{bundle}/unload", pulsar.brokers[0])
            )
            for _ in range(100):
                await asyncio.sleep(0)
            assert asked == []
            leads[0] = False
            for read in reads:
                read.cancel()
            with pytest.raises(OperationalError, match="not sent"):
                await order
        assert (asked, pulsar.moved) == ([False], [])


async def test_a_daemon_that_is_stopped_before_it_has_read_anything(tmp_path: Path) -> None:
    """It does not know what is off: everything is switched on."""
    async with watching(tmp_path) as daemon:
        daemon.pulsar.switch_off()
        values = {"pulsar": daemon.pulsar.url(), "mode": "act", "restorePulsarOnStop": "true"}
        cluster = ClusterDaemon(fleet.parse("c", values), FleetOptions(tmp_path), 0)
        await cluster._hand_back(daemon.client, daemon.work)
        assert daemon.pulsar.settings[OWN] == "true"


def test_credentials_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The daemon says so and does not start."""
    missing = tmp_path / "token"
    given = ["--pulsar", "http://127.0.0.1:1", "--token-file", str(missing)]
    assert cli.main(["fleet", *given, "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) == 2
    assert f"{missing} cannot be read: No such file" in capsys.readouterr().err


async def test_settings_of_which_nothing_was_heard(tmp_path: Path) -> None:
    """A daemon that stood still knows nothing, and asks before its next order."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        await daemon.work.shed()
        while daemon.work.moves.queue.running():
            await daemon.work.moves._changed.wait()
        daemon.clock.pass_s(80)
        assert "the settings are not known" in str(daemon.work.hold.shown_reason())
        assert daemon.work.hold.refusal(Author.OPERATOR) is not None


async def test_an_order_after_pulsar_was_switched_on(tmp_path: Path) -> None:
    """Between the last reading and the order: it is not sent, and that is no failure."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        daemon.pulsar.settings[OWN] = "true"
        await daemon.work.shed()
        queue = daemon.work.moves.queue
        while not queue.ended:
            await daemon.work.moves._changed.wait()
        assert daemon.pulsar.moved == []
        outcome = queue.ended[0].outcome
        assert outcome is not None
        assert outcome.text.startswith("not sent: PulsarBalances")
        assert outcome.code == NOT_SENT
        assert daemon.work.hold.stopped() is None
        daemon.pulsar.switch_off()
        daemon.clock.pass_s(60)
        await daemon.cycle()
        assert daemon.pulsar.moved


async def test_moves_that_were_never_made_cost_no_budget(tmp_path: Path) -> None:
    """They waited in a pause until they expired, however often."""
    settings = {**ACT, "movesPerHourMax": "4"}
    async with watching(tmp_path, settings=settings) as daemon:
        daemon.pulsar.switch_off()
        until_ms = daemon.clock.now_ms() + 3_000_000
        await daemon.work.moves.cluster.wishes.set_pause(Pause(until_ms, ""), ())
        for _ in range(3):
            await daemon.work.read()
            await daemon.work.shed()
            assert 0 < daemon.work.moves.queue.waiting <= 4
            daemon.clock.pass_s(900)
            await daemon.work.read()
            await daemon.work.moves._turn()
        daemon.clock.pass_s(900)
        await daemon.cycle()
        assert len(daemon.pulsar.moved) == 4


async def test_approve_has_a_breaker_too(tmp_path: Path) -> None:
    """It holds drains and approved plans; plans are made, and an operator may move."""
    async with watching(tmp_path, settings={**ACT, "mode": "approve"}) as daemon:
        pulsar, work = daemon.pulsar, daemon.work
        pulsar.switch_off()
        await work.read()
        pulsar.nonsense["/unload"] = failed
        await work.operations.cordon(pulsar.brokers[0], drain=True)
        await drained(daemon)
        assert sum("/unload" in line for line in pulsar.log) == 1
        assert "CircuitBreaker" in str(work.hold.shown_reason())
        assert work.hold.breaker.opened == 1
        daemon.clock.pass_s(60)
        await work.read()
        await work.shed()
        plan = work.advice.plan_id
        assert plan is not None
        with pytest.raises(ConflictError, match="CircuitBreaker"):
            await work.operations.plans.execute(plan)
        pulsar.nonsense.clear()
        moved = await work.operations.move(pulsar.owned(pulsar.brokers[0])[0], pulsar.brokers[1])
        assert moved.state.value == "done"


async def test_a_drain_of_a_broker_that_does_not_answer_once(tmp_path: Path) -> None:
    """It is not gone as long as the cluster lists it."""
    async with watching(tmp_path, settings=ONE_A_MINUTE) as daemon:
        pulsar, work = daemon.pulsar, daemon.work
        pulsar.switch_off()
        await work.read()
        await work.operations.cordon(pulsar.brokers[0], drain=True)
        await work.operations.step()
        await minutes_later(daemon, 1)
        pulsar.nonsense["/load-report"] = failed
        await work.read()
        await work.operations.step()
        (told,) = work.operations.cordons()
        assert (told.state, told.active) == ("draining", True)
        assert told.left == len(pulsar.owned(pulsar.brokers[0])) > 0
        pulsar.brokers = pulsar.brokers[1:]
        await work.read()
        (told,) = work.operations.cordons()
        assert (told.state, told.left) == ("stopped", 0)


async def test_an_operators_move_that_may_not_begin(tmp_path: Path) -> None:
    """It is refused at once, ended when Pulsar is switched on, and ended when nobody waits for it;
    it is spared by the breaker.
    """
    settings = {**ACT, "loadManagerMovesPerSourceMax": "1"}
    async with watching(tmp_path, settings=settings) as daemon:
        pulsar, work = daemon.pulsar, daemon.work
        pulsar.switch_off()
        await work.read()
        ordered, stuck = asyncio.Event(), asyncio.Event()

        async def on_unload(_destination: str, done: bool) -> None:
            if not done:
                ordered.set()
                await stuck.wait()

        pulsar.on_unload = on_unload
        one, two, three = pulsar.owned(pulsar.brokers[0])[:3]
        there = pulsar.brokers[1]
        first = asyncio.create_task(work.operations.move(one, there))
        await ordered.wait()
        gone = asyncio.create_task(work.operations.move(two, there))
        waits = asyncio.create_task(work.operations.move(three, there))
        while work.moves.queue.waiting < 2:
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert {move.bundle for move in work.moves.queue.open_moves()} == {one, three}
        work.hold.breaker.ended("x", "no", daemon.clock.now_ms(), work.acting.rules())
        work.acting._opened()
        assert work.moves.queue.waiting == 1
        pulsar.settings[OWN] = "true"
        await work.read()
        await work.moves._turn()
        with pytest.raises(OperationalError, match="PulsarBalances"):
            await waits
        with pytest.raises(ConflictError, match="PulsarBalances"):
            await work.operations.move(three, there)
        stuck.set()
        await first
        assert [bundle for bundle, _ in pulsar.moved] == [one]


async def test_a_bundle_that_is_split_is_not_moved(tmp_path: Path) -> None:
    """Until its broker was read again."""
    settings = {**ACT, "loadBalancerNamespaceBundleMaxTopics": "10"}
    async with watching(tmp_path, settings=settings) as daemon:
        pulsar, work = daemon.pulsar, daemon.work
        pulsar.switch_off()
        too_big = pulsar.owned(pulsar.brokers[0])[0]
        pulsar.topics_of[too_big] = 12
        await work.read()
        await work.splitting.step()
        assert too_big not in pulsar.owners
        await work.shed()
        await work.moves.idle()
        assert {move.state.value for move in work.operations.list_moves(99).moves} == {"done"}
        assert work.hold.stopped() is None
        assert work.split_orders.is_busy(too_big, pulsar.brokers[0])
        daemon.clock.pass_s(30)
        await work.read()
        assert not work.split_orders.is_busy(too_big, pulsar.brokers[0])


async def test_a_bundle_that_left_before_its_move_opens_no_breaker(tmp_path: Path) -> None:
    """Somebody else moved it, or split it."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        for bundle in daemon.pulsar.owners:
            daemon.pulsar.owners[bundle] = daemon.pulsar.brokers[2]
        await daemon.work.shed()
        await daemon.work.moves.idle()
        states = {move.state.value for move in daemon.work.operations.list_moves(99).moves}
        assert "failed" in states
        assert daemon.work.hold.stopped() is None


async def test_what_was_moved_stays_after_a_restart(tmp_path: Path) -> None:
    """Whoever moved it; until the grace period is over."""
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        bundle = pulsar.owned(pulsar.brokers[0])[0]
        async with beside(pulsar, tmp_path, ACT) as daemon:
            await daemon.work.read()
            await daemon.work.operations.move(bundle, pulsar.brokers[1])
            await kept(tmp_path, bundle)
        for name in pulsar.owners:
            pulsar.owners[name] = pulsar.brokers[1]
        async with beside(pulsar, tmp_path, ACT, epoch=2) as daemon:
            daemon.clock.pass_s(60)
            await daemon.cycle()
            assert len(pulsar.moved) > 1
            assert bundle not in dict(pulsar.moved[1:])


async def test_a_goodbye_reads_once_more(tmp_path: Path) -> None:
    """Pulsar's own was switched off after the last reading: it is switched on all the same."""
    async with watching(tmp_path, settings=ACT) as daemon:
        await daemon.work.read()
        daemon.pulsar.switch_off()
        values = {"pulsar": daemon.pulsar.url(), "mode": "act", "restorePulsarOnStop": "true"}
        cluster = ClusterDaemon(fleet.parse("c", values), FleetOptions(tmp_path), 0)
        await cluster._hand_back(daemon.client, daemon.work)
        assert daemon.pulsar.settings[OWN] == "true"


async def test_a_goodbye_of_which_a_part_fails(tmp_path: Path) -> None:
    """The other switch is on all the same."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        daemon.pulsar.nonsense[f"/{OWN}/true"] = failed
        values = {"pulsar": daemon.pulsar.url(), "mode": "act", "restorePulsarOnStop": "true"}
        cluster = ClusterDaemon(fleet.parse("c", values), FleetOptions(tmp_path), 0)
        await cluster._hand_back(daemon.client, daemon.work)
        assert daemon.pulsar.settings[OWN] == "false"
        assert daemon.pulsar.settings["loadBalancerAutoBundleSplitEnabled"] == "true"
        with pytest.raises(OperationalError, match=OWN):
            await switch_on(daemon.client, "c")


def test_basic_credentials_without_a_password(tmp_path: Path) -> None:
    """They are refused at the start."""
    path = tmp_path / "basic"
    path.write_text("secret\n")
    values = {"pulsar": "http://127.0.0.1:1", "basicFile": str(path)}
    cluster = ClusterDaemon(fleet.parse("c", values), FleetOptions(tmp_path), 0)
    with contextlib.ExitStack() as stack, pytest.raises(ConfigError, match="user:password"):
        cluster.listen(stack)


async def test_who_waits_for_what(tmp_path: Path) -> None:
    """The whole table: what an operator moves waits for Pulsar's own balancing and a second daemon
    only, and only moves of cycles, and splits, wait for quiet hours to end and for the note.
    """
    async with a_pulsar(3) as pulsar, beside(pulsar, tmp_path, ACT) as daemon:
        rules = daemon.work.hold.rules()
    everybody = set(Asker)
    assert [everybody - rule.stops for rule in rules] == [
        {Asker.DECISION},
        {Asker.DECISION},
        {Asker.OPERATOR},
        {Asker.OPERATOR},
        {Asker.DECISION, Asker.OPERATOR},
        everybody - {Asker.CYCLE, Asker.SPLIT},
        everybody - {Asker.CYCLE, Asker.SPLIT},
    ]
