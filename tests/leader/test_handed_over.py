"""A move whose leader goes before its clients are back: the next leader counts them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clusters.led import Led, led_fleet, the_members
from clusters.members import NS

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.moves.move import Author, Move
from loadmanager.engine.strategies.plan import Unload
from loadmanager.leader.moves import Moves

A = f"{NS}/0x00000000_0x40000000"


async def moved(led: Led) -> Move:
    """A move of a bundle of four clients, one of which is back."""
    await led.fleet.brokers[1].acquire(A)
    led.fleet.brokers[1].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
    led.fleet.brokers[2].tenant.stats[A] = NamespaceBundleStats(producer_count=1)
    (move,) = led.moves.decide([Unload(A, "b1:8080", "b2:8080", "test")], Author.CYCLE)
    await led.moves.idle()
    await led.until(lambda: move.outcome is not None and move.outcome.clients_back == 1)
    return move


async def a_step(led: Led) -> None:
    """The first leader stores what it knows."""
    members = the_members(led, led.moves)
    await members.restore()
    await members.step()


async def test_the_next_leader_goes_on() -> None:
    """Also when the bundle has moved on meanwhile: the move is recorded once, by the next one."""
    async with led_fleet(3) as led:
        move = await moved(led)
        assert [*led.moves.unverified] == [move.id]
        await a_step(led)
        assert led.moves.handed_over == {move.id}
        of = led.moves
        cluster = replace(of.cluster, view=ClusterView())
        after = Moves(term=of.term, cluster=cluster, orders=of.orders, settings=of.settings)
        recorded = list[Move]()
        after.on_record.append(lambda move, _life: recorded.append(move))
        await led.fleet.brokers[2].ownership.release(
            A, reason="test", destination=None, timeout_s=1
        )
        await led.fleet.brokers[0].acquire(A)
        led.fleet.brokers[0].tenant.stats[A] = NamespaceBundleStats(producer_count=4)
        await the_members(led, after).restore()
        assert cluster.view.recent_moves() == ({A: move.ended_at}, {"b1:8080": move.ended_at})
        for limit, listed in ((10, [move.id]), (0, [])):
            shown = after.shown(limit)
            assert [it.id for it in shown.moves] == shown.taken_up == listed
        await led.until(lambda: bool(recorded))
        (again,) = recorded
        assert again.outcome is not None
        assert (again.id, again.outcome.clients_closed) == (move.id, 4)
        assert again.outcome.clients_back == 4
        assert not after.unverified
        assert [it.outcome for it in after.shown(10).moves] == [again.outcome]
        assert not led.moves.shown(10).taken_up


@pytest.mark.parametrize("stored", [False, True])
async def test_a_term_that_ends_meanwhile(stored: bool) -> None:
    """It records what it knows, unless the next leader does."""
    async with led_fleet(3) as led:
        move = await moved(led)
        if stored:
            await a_step(led)
    assert [each.id for each in led.ended] == ([] if stored else [move.id])
