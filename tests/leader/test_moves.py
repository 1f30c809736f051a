"""The leader's moves over real parts: each is verified, and what is true is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from clusters.led import Led, led_fleet
from clusters.members import NS

from loadmanager.cli.admin.sentences import clients, lines_of
from loadmanager.engine.history.records import move_record
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.wishes import Pin
from loadmanager.engine.moves.move import NOT_OWNED, Author, Move, MoveState
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.ownership.state_records import StateRecord, UnitState, encode_record
from loadmanager.engine.strategies.plan import Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import Asked, asking
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.kit.history.port import HistoryRecord
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.own_changes import OwnChanges
from loadmanager.leader.ports.mover import Mover, Released
from loadmanager.leader.wishes import PINS_MAX, OperatorWishes

SPANS = [f"{NS}/0x{n:x}0000000_0x{n + 4:x}0000000" for n in (0, 4, 8)]
A, B, C = SPANS
UNIFORM = StrategySettings(
    shedder="UniformLoadShedder", unload_rate_min=0, distribute_evenly=False, grace_period_minutes=0
)


def unload(bundle: str = A, to: str | None = "b2:8080", swap: str | None = None) -> Unload:
    """A move away from broker 1."""
    return Unload(bundle, "b1:8080", to, "test", {"rate": 3.0}, swap)


async def carried_out(
    led: Led, *unloads: Unload, author: Author = Author.CYCLE, within_s: float = 10
) -> list[Move]:
    """These moves, after clients came back within so many seconds."""
    led.moves.decide(unloads, author)
    await led.moves.idle()
    await asyncio.sleep(within_s)
    return led.ended


async def test_a_move_is_verified() -> None:
    """Owner, clients and pause stand beside the reason, in the decisions and in the history."""
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        for index in (1, 2):
            led.fleet.brokers[index].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
        led.fleet.brokers[2].tenant.returned_ms = (0.0, 100.0, 200.0, 900.0)
        (move,) = await carried_out(led, unload())
        assert led.fleet.owners(A) == ["b2:8080"]
        decision = led.load_manager.records.decisions.last(1)[0]
        assert decision.ts == move.ended_at
        assert (decision.kind, decision.reason, decision.why) == (
            "move",
            "test",
            {"rate": 3.0},
        )
        assert msgspec.to_builtins(decision.outcome) == {
            "text": "moved",
            "code": None,
            "owner": "b2:8080",
            "clientsClosed": 4,
            "clientsBack": 4,
            "clientsUnserved": 0,
            "clientsWaitedMs": 905.0,
            "clientsWaitedMeanMs": 305.0,
            "pauseMs": 5.0,
            "unansweredSince": None,
            "clientsBackAt": None,
            "clientsWithinMs": move.outcome.clients_within_ms,
        }
        assert 500 <= (move.outcome.clients_within_ms or 0) < 1_000

        assert led.load_manager.snapshot(led.strategies.value).pause_s == 0.305
        record = move_record(7, "b0:8080", move, epoch=1, cycle=2, life=None)
        assert (record.ts, record.started_at, record.ended_at) == (
            7,
            move.started_at,
            move.ended_at,
        )
        assert (record.action, record.state, record.owner, record.clients_back) == (
            "move",
            "done",
            "b2:8080",
            4,
        )
        assert (record.clients_waited_ms, record.clients_waited_mean_ms) == (905.0, 305.0)
        assert led.view.snapshot(
            led.moves.term.clock.now_ms(),
            led.strategies.value,
            isolation_policies={},
            anti_affinity_groups={},
            failure_domains={},
        ).recently_unloaded_ms.keys() == {A}


async def test_moves_without_clients_say_nothing_of_their_pauses() -> None:
    """Nobody waited: how long a client would have is not known."""
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        (move,) = await carried_out(led, unload())
        assert move.outcome is not None
        assert move.outcome.pause_ms == 5.0
        assert led.load_manager.snapshot(led.strategies.value).pause_s is None


async def test_clients_that_stay_away_are_counted() -> None:
    """For a minute, in which other moves go on."""
    async with led_fleet(3) as led:
        for bundle in (A, B):
            await led.fleet.brokers[1].acquire(bundle)
        led.fleet.brokers[1].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
        led.fleet.brokers[2].tenant.stats[A] = NamespaceBundleStats(consumer_count=1)
        led.move_settings.set(MoveSettings(at_once_max=1))
        await carried_out(led, unload(A), unload(B), within_s=70)
        assert [move.bundle for move in led.ended] == [B, A]
        outcome = led.ended[1].outcome
        assert outcome is not None
        assert (outcome.clients_closed, outcome.clients_back) == (4, 1)


async def test_clients_come_back_at_the_next_owner() -> None:
    """The destination dies right after the move, and cannot be asked: whoever has the bundle then
    is, also when that is minutes later.
    """
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        led.fleet.brokers[1].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
        (move,) = led.moves.decide([Unload(A, "b1:8080", "b2:8080", "test")], Author.CYCLE)
        await led.moves.idle()
        led.fleet.unreachable.add("b2:8080")
        await led.fleet.brokers[2].ownership.release(
            A, reason="test", destination=None, timeout_s=1
        )
        await asyncio.sleep(100)
        assert move.outcome is not None
        assert move.outcome.clients_back in (None, 0)
        await led.fleet.brokers[0].acquire(A)
        led.fleet.brokers[0].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
        await asyncio.sleep(100)
        assert [*led.moves.unverified] == []
        assert (move.outcome.clients_back, move.outcome.clients_back_at) == (4, "b0:8080")
        assert clients(move.outcome).endswith("back at b0:8080")


async def test_what_becomes_of_clients_later_is_not_the_doing_of_a_move() -> None:
    """One goes away by itself; then the destination is lost, and all wait for the next owner."""
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        led.fleet.brokers[1].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
        after = led.fleet.brokers[2].tenant
        after.stats[A], after.served_ms = NamespaceBundleStats(producer_count=3), 300.0
        after.returned_ms = (0.0, 100.0, 200.0)
        (move,) = led.moves.decide([Unload(A, "b1:8080", "b2:8080", "test")], Author.CYCLE)
        await led.moves.idle()
        await asyncio.sleep(1)
        assert move.outcome is not None
        waited_ms = move.outcome.clients_waited_ms
        assert waited_ms is not None
        after.stats[A], after.returned_ms = NamespaceBundleStats(producer_count=2), (0.0, 100.0)
        await asyncio.sleep(3)
        assert (move.outcome.clients_back, move.outcome.clients_within_ms) == (3, 500)
        led.fleet.unreachable.add("b2:8080")
        await led.fleet.brokers[2].ownership.release(
            A, reason="test", destination=None, timeout_s=1
        )
        await led.fleet.brokers[0].acquire(A)
        led.fleet.brokers[0].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
        await asyncio.sleep(100)
        assert [*led.moves.unverified] == []
        assert (move.outcome.clients_back, move.outcome.clients_back_at) == (3, None)
        assert move.outcome.clients_waited_ms == waited_ms


async def test_clients_come_back_at_the_same_destination_in_another_life() -> None:
    """It was restarted: they waited from the move until then, and not since it serves again."""
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        led.fleet.brokers[1].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
        (move,) = led.moves.decide([Unload(A, "b1:8080", "b2:8080", "test")], Author.CYCLE)
        await led.moves.idle()
        after = led.fleet.brokers[2].tenant
        after.stats[A] = NamespaceBundleStats(producer_count=4)
        after.returned_ms, after.served_ms = (0.0, 100.0, 200.0, 900.0), 100.0
        await asyncio.sleep(5)  # it was first asked half a second after the move
        assert move.outcome is not None
        assert move.outcome.clients_back_at is None
        assert move.outcome.clients_waited_ms is not None
        assert 1_300 <= move.outcome.clients_waited_ms <= 1_400


@pytest.mark.parametrize(
    ("arrange", "state", "owner", "text"),
    [
        (
            lambda led: led.fleet.unreachable.add("b1:8080"),
            "failed",
            "b1:8080",
            "cannot be reached",
        ),
        (lambda led: led.fleet.unreachable.add("b2:8080"), "failed", "b1:8080", "repaired"),
        (lambda led: lose(led, "b1:8080"), "done", "b2:8080", "did not finish within 120 s"),
        (lambda led: lose(led, "b1:8080", before=True), "failed", "b1:8080", "did not finish"),
    ],
)
async def test_what_goes_wrong(
    arrange: Callable[[Led], object], state: str, owner: str, text: str
) -> None:
    """The leader reads who owns the bundle, and records that, whatever the answer was. What nobody
    owns is acquired: by the destination or, if it refuses, by the source.
    """
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        arrange(led)
        (move,) = await carried_out(led, unload())
        assert move.outcome is not None
        assert (move.state.value, move.outcome.owner) == (state, owner)
        assert text in move.outcome.text
        silent = move.started_at if "did not finish" in text or "reached" in text else None
        assert move.outcome.unanswered_since == silent
        assert led.fleet.owners(A) == [owner]
        assert led.view.under_way(A, led.moves.term.clock.now_ms()) == (
            "b2:8080" if state == "done" else None
        )


class SlowTaking:
    """A fleet whose brokers take bundles 5 s after they were asked."""

    def __init__(self, led: Led) -> None:
        self._fleet = led.fleet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        await asyncio.sleep(5)
        await self._fleet.acquire_bundle(broker, bundle, epoch=epoch)


async def test_a_move_that_failed_paused_its_clients_until_the_repair() -> None:
    """The source counted its part of that: 5 ms. The destination and then the source were asked to
    take the bundle, for 5 s each.
    """
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        led.fleet.unreachable.add("b2:8080")
        led.moves.orders = replace(led.moves.orders, mover=cast(Mover, SlowTaking(led)))
        (move,) = await carried_out(led, unload(), within_s=60)
        assert (move.state.value, move.outcome and move.outcome.owner) == ("failed", "b1:8080")
        assert move.outcome is not None
        assert move.outcome.pause_ms is not None
        assert move.started_at is not None
        assert move.ended_at is not None
        lasted_ms = move.ended_at - move.started_at
        assert 10_005 <= move.outcome.pause_ms <= lasted_ms + 6
        text = "\n".join(lines_of(led.load_manager.records.decisions.last(1)[0]))
        assert "repaired: b1:8080 owns it; nobody served it for 10 s" in text


def lose(led: Led, broker: str, *, before: bool = False) -> None:
    """The answer of a broker never comes; with `before`, not even the order reaches it."""

    async def release(
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        if not before:
            await led.fleet.release_bundle(owner, bundle, destination, epoch=epoch)
        await asyncio.Event().wait()
        return None

    led.moves.orders = replace(led.moves.orders, release=release)


async def test_a_bundle_that_is_elsewhere_is_left_alone() -> None:
    """A source that does not own it says so; nothing is repaired."""
    async with led_fleet(3) as led:
        (move,) = await carried_out(led, unload())
        assert (move.state, led.fleet.owners(A)) == (MoveState.FAILED, [])
        assert move.outcome is not None
        assert move.outcome.text == "the source did not own it"
        assert move.outcome.code == NOT_OWNED


async def test_a_swap_moves_one_after_the_other() -> None:
    """The bundle that goes out first; if it stays, nothing comes back."""
    for reachable in (True, False):
        async with led_fleet(3) as led:
            await led.fleet.brokers[1].acquire(A)
            await led.fleet.brokers[2].acquire(B)
            if not reachable:
                led.fleet.unreachable.add("b1:8080")
            back = Unload(B, "b2:8080", "b1:8080", "test", {}, "s")
            await carried_out(led, back, unload(swap="s"))
            owners = (led.fleet.owners(A), led.fleet.owners(B))
            if reachable:
                assert owners == (["b2:8080"], ["b1:8080"])
                assert [move.bundle for move in led.ended] == [A, B]
            else:
                assert owners == (["b1:8080"], ["b2:8080"])
                assert {move.state for move in led.ended} == {
                    MoveState.FAILED,
                    MoveState.CANCELLED,
                }


async def test_a_pause_holds_what_the_leader_decides() -> None:
    """It is stored, so that the next leader holds, too; a request of an operator is not held."""
    async with led_fleet(3) as led:
        for bundle in (A, B):
            await led.fleet.brokers[1].acquire(bundle)
        await led.operations.pause(60, "look")
        led.moves.decide([unload(A)], Author.CYCLE)
        await led.operations.move(B, "b2:8080")
        await asyncio.sleep(50)
        assert (led.fleet.owners(A), led.fleet.owners(B)) == (["b1:8080"], ["b2:8080"])
        assert led.operations.list_moves(9).paused.note == "look"
        assert led.operations.list_moves(9).waiting == 1
        other = OperatorWishes(led.store, led.moves.term.clock, Corrupt())
        await other._read(paths.PAUSE)
        assert other.pause() is not None
        await asyncio.sleep(11)  # the pause is over by itself
        assert led.fleet.owners(A) == ["b2:8080"]
        await led.operations.pause(60)
        await led.operations.pause(None)
        assert led.wishes.pause() is None


async def test_what_a_cycle_wanted_is_looked_at_again_by_the_next_one() -> None:
    """Its moves that have not begun are cancelled, so that none goes by figures of before; neither
    those of a plan, nor any while moves are paused.
    """
    async with led_fleet(3) as led:
        for bundle in (A, B):
            await led.fleet.brokers[1].acquire(bundle)
        led.moves.hold_of = lambda _author: "hold"
        (old,) = led.moves.decide([unload(A)], Author.CYCLE)
        (of_a_plan,) = led.moves.decide([unload(B)], Author.PLAN)
        await led.operations.pause(60)
        await led.load_manager.shed()
        assert old.state is MoveState.QUEUED
        await led.operations.pause(None)
        await led.load_manager.shed()
        assert (old.state, of_a_plan.state) == (MoveState.CANCELLED, MoveState.QUEUED)
        assert old.outcome is not None
        assert "plans again" in old.outcome.text


async def test_a_cycle_says_that_its_moves_wait_for_a_pause() -> None:
    """As long as it lasts; one that moves nothing says nothing of it."""
    async with led_fleet(2, strategies=UNIFORM) as led:
        for bundle in (A, B):
            await led.fleet.brokers[0].acquire(bundle)
        await led.operations.pause(6_000)
        await led.shed()
        assert "Paused" not in [skip.code for skip in led.observed[-1].skipped]
        loads = {
            A: NamespaceBundleStats(msg_rate_in=1000),
            B: NamespaceBundleStats(msg_rate_in=9000),
        }
        await led.report(0, loads)
        await led.shed()
        plan = led.observed[-1]
        assert plan.unloads
        assert ("cluster", "Paused") in [(skip.what, skip.code) for skip in plan.skipped]
        assert led.fleet.owners(A) == led.fleet.owners(B) == ["b0:8080"]
        await led.operations.pause(None)
        await led.shed()
        assert led.observed[-1].unloads
        assert "Paused" not in [skip.code for skip in led.observed[-1].skipped]


async def test_a_bundle_of_a_broker_of_the_other_load_manager_has_an_owner() -> None:
    """A modular leader does not say that nobody owns it, as long as its owner's session lives."""
    record = StateRecord(state=UnitState.OWNED, dst_broker="b1:8080", owner_session=77)
    async with led_fleet(3) as led:
        await led.store.create(paths.unit_state(A), encode_record(record))
        await led.store.create(paths.session(77), b"")
        with pytest.raises(OperationalError, match="was not moved to b2:8080"):
            await led.operations.move(A, "b2:8080")
        assert (await led.operations.move(A, "b1:8080")).outcome.owner == "b1:8080"
        await led.store.delete(paths.session(77))
        told = await led.operations.move(A, "b2:8080")
        assert told.outcome.text.startswith(f"{A} has no owner")


async def test_a_move_to_a_broker_that_is_cordoned_meanwhile_is_cancelled() -> None:
    """The operator's wish is no failure of the move: no circuit breaker opens for it."""
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        await led.operations.pause(60, "look")
        led.moves.decide([unload(A)], Author.CYCLE)
        await led.operations.cordon("b2:8080", drain=False)
        await led.operations.pause(None)
        await asyncio.sleep(5)
        assert led.fleet.owners(A) == ["b1:8080"]
        (move,) = led.operations.list_moves(9).moves
        assert move.state is MoveState.CANCELLED
        assert "cordoned meanwhile" in str(move)


async def test_a_pinned_bundle_is_not_moved_back() -> None:
    """Not by a cycle; the pin is taken back if the bundle does not arrive; it ends by itself."""
    async with led_fleet(2, strategies=UNIFORM) as led:
        await led.fleet.brokers[0].acquire(A)
        moved = await led.operations.move(A, "b1:8080", pin_s=600, note="mine")
        assert (moved.state, led.fleet.owners(A)) == (MoveState.DONE, ["b1:8080"])
        assert list(led.operations.pins()) == [A]
        loads = {A: NamespaceBundleStats(msg_rate_in=900), B: NamespaceBundleStats(msg_rate_in=1)}
        await led.report(1, loads)
        await led.shed()
        assert [skip.code for skip in led.observed[-1].skipped] == ["Pinned"]
        assert await led.load_manager.place(A) == "b1:8080"
        led.fleet.unreachable.add("b1:8080")
        with pytest.raises(OperationalError, match="was not moved"):
            await led.operations.move(A, "b0:8080", pin_s=5)
        assert led.operations.pins()[A].broker == "b1:8080"
        await asyncio.sleep(600)
        assert led.operations.pins() == {}
        await led.wishes.forget_old(())
        assert await led.store.children(paths.PINS) == []


async def test_a_pin_goes_with_its_bundle() -> None:
    """A move by an operator takes the pin along, with its end and its note, also the one that a
    part has from before a split; a move that fails leaves the pin where it was.
    """
    part = f"{NS}/0x00000000_0x00000001"
    async with led_fleet(3) as led:
        await led.fleet.brokers[0].acquire(A)
        pinned = await led.operations.move(A, "b1:8080", pin_s=600, note="mine")
        moved = await led.operations.move(A, "b2:8080")
        assert moved.pinned_until == pinned.pinned_until
        await led.operations.move(part, "b1:8080")
        pins = led.operations.pins()
        assert {bundle: pin.broker for bundle, pin in pins.items()} == {
            A: "b2:8080",
            part: "b1:8080",
        }
        assert {pin.note for pin in pins.values()} == {"mine"}
        assert {pin.until for pin in pins.values()} == {pinned.pinned_until}
        led.fleet.unreachable.add("b2:8080")
        with pytest.raises(OperationalError, match="was not moved"):
            await led.operations.move(A, "b0:8080")
        assert led.operations.pins() == pins


async def test_a_pin_whose_broker_is_gone_keeps_nothing_unowned() -> None:
    """Placement takes another broker; a corrupt pin is left out by name."""
    async with led_fleet(2) as led:
        await led.wishes.pin(A, Pin("b9:8080", 10**15), ())
        assert await led.load_manager.place(A) in ("b0:8080", "b1:8080")
        await led.store.put(paths.pin(B), b'{"broker": 7}')
        await led.until(lambda: led.wishes._corrupt.paths == [paths.pin(B)])
        assert list(led.operations.pins()) == [A]
        await led.operations.unpin(A)
        with pytest.raises(NotFoundError):
            await led.operations.unpin(A)


async def test_a_bundle_that_was_just_placed_goes_to_the_broker_of_its_pin() -> None:
    """While that takes bundles; a placement under way elsewhere does not count then."""
    async with led_fleet(3) as led:
        first = await led.load_manager.place(A)
        other = next(broker for broker in ("b1:8080", "b2:8080") if broker != first)
        await led.wishes.pin(A, Pin(other, 10**15), ())
        assert await led.load_manager.place(A) == other
        await led.operations.cordon(other, drain=False)
        assert await led.load_manager.place(A) == other  # it is on its way there
        await led.wishes.pin(A, Pin(first, 10**15), ())
        assert await led.load_manager.place(A) == first


async def test_a_pin_that_cannot_be_kept_does_not_make_placements_change() -> None:
    """Isolation keeps the bundle from the broker of its pin: lookups get the same answer."""
    async with led_fleet(8) as led:
        policy = {
            "namespaces": [f"{NS}"],
            "primary": [f"b{number}" for number in range(1, 8)],
            "secondary": [],
            "auto_failover_policy": {"parameters": {"min_limit": "1"}},
        }
        await led.policies.set_isolation_policy("most", {**policy, "unload_scope": "none"})
        await led.wishes.pin(A, Pin("b0:8080", 10**15), ())
        assert len({await led.load_manager.place(A) for _ in range(8)}) == 1


async def test_pins_that_are_over_leave_room() -> None:
    """For as many as there may be; pins that last do not."""
    async with led_fleet(1) as led:
        until_ms = led.moves.term.clock.now_ms() + 10**7
        for number in range(PINS_MAX):
            await led.wishes.pin(f"{NS}/{number}", Pin("b0:8080", until_ms), ())
        await led.until(lambda: len(led.wishes.pins) == PINS_MAX)
        with pytest.raises(ConflictError, match="1000 bundles are pinned"):
            await led.wishes.pin(A, Pin("b0:8080", 10**15), ())
        await asyncio.sleep(10**4)
        await led.wishes.pin(A, Pin("b0:8080", 10**15), ())
        await led.until(lambda: list(led.wishes.pins) == [A])


async def test_what_operators_may_not_ask() -> None:
    """A destination that is unknown or cordoned, the last broker, durations without end."""
    async with led_fleet(2) as led:
        await led.fleet.brokers[0].acquire(A)
        with pytest.raises(ConflictError, match="not active: the brokers are b0:8080, b1:8080"):
            await led.operations.move(A, "b9:8080")
        with pytest.raises(NotFoundError):
            await led.operations.cordon("b9:8080", drain=False)
        await led.operations.cordon("b1:8080", drain=False, note="disk")
        with pytest.raises(ConflictError, match="is cordoned"):
            await led.operations.move(A, "b1:8080")
        with pytest.raises(ConflictError, match="last broker"):
            await led.operations.cordon("b0:8080", drain=False)
        with pytest.raises(BadInputError):
            await led.operations.pause(0)
        with pytest.raises(BadInputError):
            await led.operations.pause(5, "x" * 501)
        await led.operations.uncordon("b1:8080")
        with pytest.raises(NotFoundError):
            await led.operations.uncordon("b1:8080")
        owned = await led.operations.move(A, "b0:8080")
        assert (owned.state, owned.outcome.text) == (None, "b0:8080 owns it already")
        free = await led.operations.move(B, "b1:8080")
        assert "its next lookup places it on b1:8080" in free.outcome.text
        assert await led.load_manager.place(B) == "b1:8080"


async def test_who_drains_a_broker_that_another_had_cordoned() -> None:
    """Is named, and so is the other one with the note."""

    def asked_by(role: str) -> Asked:
        return Asked(roles=(role,), address="10.0.0.1", over="http", what="PUT x")

    async with led_fleet(3) as led:
        with asking(asked_by("bob")):
            await led.operations.cordon("b1:8080", drain=False, note="disk looks odd")
        with asking(asked_by("alice")):
            shown = await led.operations.cordon("b1:8080", drain=True)
        assert (shown.by, shown.note) == ("alice", "bob had cordoned it: disk looks odd")
        with asking(asked_by("carol")):
            shown = await led.operations.cordon("b1:8080", drain=True)
        assert shown.by == "alice"


async def test_a_drain() -> None:
    """Its bundles leave at the pace of the queue, and no new one comes; progress and time left are
    told; it survives a change of the leader; the broker stays cordoned.
    """
    async with led_fleet(3, bundles=16) as led:
        spans = [
            f"{NS}/{span}" for span in (await led.fleet.brokers[0].namespaces.bundles(NS)).ranges
        ]
        for span in spans[:9]:
            await led.fleet.brokers[1].acquire(span)
        led.move_settings.set(MoveSettings(per_minute_max=3))
        began = await led.operations.cordon("b1:8080", drain=True, note="disk")
        assert (began.state, began.total, began.left) == ("draining", 9, None)
        await led.draining.step()
        await asyncio.sleep(30)
        (half,) = led.operations.cordons()
        assert (half.left, half.moved, half.state) == (6, 3, "draining")
        assert half.seconds_left == pytest.approx(60, abs=5)
        assert {await led.load_manager.place(span) for span in spans[9:]} <= {"b0:8080", "b2:8080"}
        for _ in range(40):
            await asyncio.sleep(5)
            await led.draining.step()
        (done,) = led.operations.cordons()
        assert (done.left, done.moved, done.state, done.seconds_left) == (
            0,
            9,
            "drained",
            0,
        )
        assert not led.fleet.brokers[1].ownership.owned()
        assert {move.author for move in led.ended} == {Author.DRAIN}
        other = OperatorWishes(led.store, led.moves.term.clock, Corrupt())
        await other._read(paths.cordon("b1:8080"))
        assert other.cordons["b1:8080"].drain


async def test_a_drain_that_a_bundle_comes_to() -> None:
    """A bundle that the broker gets while the last ones leave (a lookup was under way when it was
    cordoned, say) moves, too, and is counted: until the broker says that it has none, it is not
    drained.
    """
    async with led_fleet(3, bundles=16) as led:
        spans = [
            f"{NS}/{span}" for span in (await led.fleet.brokers[0].namespaces.bundles(NS)).ranges
        ]
        for span in spans[:2]:
            await led.fleet.brokers[1].acquire(span)
        await led.operations.cordon("b1:8080", drain=True)
        await led.draining.step()
        await led.moves.idle()
        await led.fleet.brokers[1].acquire(spans[2])
        (told,) = led.operations.cordons()
        assert (told.total, told.left, told.moved, told.state) == (2, 0, 2, "draining")
        await led.draining.step()
        await led.moves.idle()
        await led.draining.step()
        (told,) = led.operations.cordons()
        assert (told.total, told.left, told.moved, told.state) == (2, 0, 3, "drained")
        assert not led.fleet.brokers[1].ownership.owned()


async def test_a_drain_counts_what_others_move_away() -> None:
    """Also while its own moves are paused, and wait: what is left there is right."""
    async with led_fleet(3, bundles=16) as led:
        spans = [
            f"{NS}/{span}" for span in (await led.fleet.brokers[0].namespaces.bundles(NS)).ranges
        ]
        for span in spans[:3]:
            await led.fleet.brokers[1].acquire(span)
        await led.operations.pause(600)
        await led.operations.cordon("b1:8080", drain=True)
        await led.draining.step()
        moved = await led.operations.move(spans[0], "b2:8080")
        assert moved.state is MoveState.DONE
        (told,) = led.operations.cordons()
        assert (told.total, told.left, told.moved, told.problem) == (3, 2, 0, "moves are paused")


async def test_a_drain_by_the_other_leader() -> None:
    """A broker refuses the orders of the leader of another load manager: this one only looks."""
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(B)
        await led.report(1, {}, manager="ExtensibleLoadManagerImpl")
        await led.operations.cordon("b1:8080", drain=True)
        await led.draining.step()
        (told,) = led.operations.cordons()
        assert (told.left, told.state) == (1, "draining")
        assert told.problem == "it runs the other load manager, whose leader drains it"
        assert not [*led.moves.queue.open_moves()]
        await led.report(1, {})
        await led.draining.step()
        assert [move.bundle for move in led.moves.queue.open_moves()] == [B]


class Records:
    """A history that keeps the records in a list."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def append(self, *records: HistoryRecord) -> None:
        """Keep them."""
        self.records += records


async def test_a_cordon_until_a_restart() -> None:
    """It ends, which is recorded, when a later process of the broker registers, and not before; a
    broker that somebody cordoned without an end stays cordoned.
    """
    async with led_fleet(3) as led:
        reports = led.fleet.brokers[0].brokers.reports
        for broker in ("b1:8080", "b2:8080"):
            reports[broker].start_timestamp = 1_000
        told = await led.operations.cordon("b1:8080", drain=True, until_restart=True)
        assert told.until_restart
        await led.operations.cordon("b2:8080", drain=False)
        kept = await led.operations.cordon("b2:8080", drain=True, until_restart=True)
        assert not kept.until_restart
        history = Records()
        led.operations.draining.own_changes = OwnChanges("b0:8080", SystemClock(), history)
        await led.operations.step()
        assert led.wishes.cordons.keys() == {"b1:8080", "b2:8080"}
        gone = reports.pop("b1:8080")
        await led.operations.step()
        assert led.wishes.cordons.keys() == {"b1:8080", "b2:8080"}
        gone.start_timestamp = reports["b2:8080"].start_timestamp = 2_000
        reports["b1:8080"] = gone
        assert history.records == []
        await led.operations.step()
        assert led.wishes.cordons.keys() == {"b2:8080"}
        (change,) = history.records
        assert (change.path, change.after) == (paths.cordon("b1:8080"), None)
        assert '"drain": true' in str(change.before)


async def test_a_drain_that_cannot_go_on_says_why() -> None:
    """And its moves that wait are cancelled with the cordon."""
    async with led_fleet(2, bundles=16) as led:
        spans = [
            f"{NS}/{span}" for span in (await led.fleet.brokers[0].namespaces.bundles(NS)).ranges
        ]
        for span in spans[:3]:
            await led.fleet.brokers[1].acquire(span)
        await led.operations.cordon("b1:8080", drain=True)
        led.fleet.unreachable.add("b1:8080")
        await led.draining.step()
        assert "cannot be reached" in led.operations.cordons()[0].problem
        led.fleet.unreachable.clear()
        await led.operations.pause(600)
        await led.draining.step()
        assert led.moves.queue.waiting == 3
        await led.operations.uncordon("b1:8080")
        assert led.moves.queue.waiting == 0
        assert {move.state for move in led.ended} == {MoveState.CANCELLED}
        assert len(led.fleet.brokers[1].ownership.owned()) == 3


async def test_moves_end_with_the_term() -> None:
    """What waits is cancelled, and recorded; what had begun may have come to anything."""
    async with led_fleet(3) as led:
        await led.operations.pause(600)
        led.moves.decide([unload()], Author.CYCLE)
        led.moves.decide([unload(B)], Author.CYCLE)
        _, begun = led.moves.queue.open_moves()
        begun.started_at = 7
        task = asyncio.ensure_future(led.moves.run())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert [move.state for move in led.ended] == [MoveState.CANCELLED] * 2
        assert [move.outcome and move.outcome.text for move in led.ended] == [
            "the leader's term ended; it had not begun",
            "the leader's term ended; what came of it is not known",
        ]
