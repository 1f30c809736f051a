"""Ends in the middle: of a broker while a plan is carried out, and of the daemon at any point."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web
from steer.fake_pulsar import NAMESPACE, NONSENSE, RANGES, SPANS, FakePulsar, Nonsense, a_pulsar
from steer.watched import ACT, Watching, beside, watching


async def cycle_until(daemon: Watching, cut: asyncio.Event) -> None:
    """A cycle that is abandoned as soon as `cut` is set."""
    cycle = asyncio.ensure_future(daemon.cycle())
    async with asyncio.timeout(60):
        await cut.wait()
    cycle.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cycle


def cut_at(pulsar: FakePulsar, number: int, *, done: bool) -> asyncio.Event:
    """Set at an unload, before or after it has happened; its answer never comes."""
    cut, calls = asyncio.Event(), Counter[bool]()

    async def on_unload(_destination: str, is_done: bool) -> None:
        calls[is_done] += 1
        if is_done is done and calls[is_done] == number:
            cut.set()
            await asyncio.Event().wait()

    pulsar.on_unload = on_unload
    return cut


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_daemon_that_is_killed_leaves_nothing_half_done(
    tmp_path: Path, number: int, *, done: bool, extensible: bool
) -> None:
    """Before an unload, or when its answer is under way: the next start reads what is, goes on, and
    moves nothing a second time that has arrived.
    """
    async with a_pulsar(3, extensible=extensible) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        cut = cut_at(pulsar, number, done=done)
        async with beside(pulsar, tmp_path, ACT) as daemon:
            await cycle_until(daemon, cut)
        assert len(pulsar.moved) == number - (not done)
        pulsar.on_unload = FakePulsar.on_unload
        async with beside(pulsar, tmp_path, ACT, epoch=2) as daemon:
            await daemon.cycle()
            assert daemon.work.hold.reason() is None
            moves = daemon.work.operations.list_moves(99).moves
            assert {move.state.value for move in moves} <= {"done"}
        shares = Counter(pulsar.owners.values())
        assert set(shares) == set(pulsar.brokers)
        assert max(shares.values()) < 12
        assert len(dict(pulsar.moved)) == len(pulsar.moved)


@pytest.mark.parametrize("done", [False, True])
async def test_a_daemon_that_is_killed_at_a_split(tmp_path: Path, *, done: bool) -> None:
    """Before it, or when its answer is under way: the next start reads the boundaries, and splits
    nothing a second time. The order was sent: it is repeated after the grace period only.
    """
    settings = {**ACT, "loadBalancerNamespaceBundleMaxTopics": "10"}
    too_big = f"{NAMESPACE}/{RANGES[3]}"
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        pulsar.topics_of[too_big] = 12
        cut = asyncio.Event()

        async def on_split(is_done: bool) -> None:
            if is_done is done:
                cut.set()
                await asyncio.Event().wait()

        pulsar.on_split = on_split
        async with beside(pulsar, tmp_path, settings) as daemon:
            await daemon.cycle()
            step = asyncio.ensure_future(daemon.work.splitting.step())
            await cut.wait()
            step.cancel()
        assert (too_big not in pulsar.owners) is done
        pulsar.on_split = FakePulsar.on_split
        async with beside(pulsar, tmp_path, settings, epoch=2) as daemon:
            await daemon.cycle()
            await daemon.work.splitting.step()
            assert (too_big not in pulsar.owners) is done
            daemon.clock.pass_s(31 * 60)
            await daemon.work.read()
            await daemon.work.splitting.step()
        assert len(pulsar.edges) - 1 == SPANS + 1
        assert too_big not in pulsar.owners


async def test_an_answer_that_is_lost_after_the_move(tmp_path: Path) -> None:
    """The bundle has moved, and its answer is HTML, or the connection ends, or nothing comes in
    time: the daemon looks who owns it, and the plan goes on. Nothing is moved a second time.
    """

    async def page(_destination: str, is_done: bool) -> None:
        if is_done:
            raise web.HTTPBadGateway(text="<html>Bad gateway</html>")

    async def cut(_destination: str, is_done: bool) -> None:
        if is_done:
            raise asyncio.CancelledError

    async def silence(_destination: str, is_done: bool) -> None:
        if is_done:
            await asyncio.Event().wait()

    for number, fault in enumerate((page, cut, silence)):
        settings = {**ACT, "requestTimeoutSeconds": "2" if fault is silence else "60"}
        async with watching(tmp_path / str(number), settings=settings) as daemon:
            pulsar = daemon.pulsar
            pulsar.switch_off()
            pulsar.on_unload = fault
            await daemon.cycle()
            moves = daemon.work.operations.list_moves(99).moves
            assert len(moves) > 1
            assert {move.state.value for move in moves} == {"done"}
            assert daemon.work.hold.reason() is None
            assert len(dict(pulsar.moved)) == len(pulsar.moved) == len(moves)
            for bundle, destination in pulsar.moved:
                assert pulsar.owners[bundle] == destination


async def test_a_broker_that_is_killed_in_the_middle_of_a_plan(tmp_path: Path) -> None:
    """The move to it fails, the others are cancelled, and nothing more goes there. Once it has left
    and the circuit breaker is closed, the daemon goes on with those that live.
    """
    async with watching(tmp_path, settings=ACT) as daemon:
        pulsar = daemon.pulsar
        pulsar.switch_off()
        dead: list[str] = []

        async def on_unload(destination: str, is_done: bool) -> None:
            if is_done and not dead:
                dead.append(destination)
                await pulsar.stop(destination)

        pulsar.on_unload = on_unload
        await daemon.cycle()
        moves = daemon.work.operations.list_moves(99).moves
        states = Counter(move.state.value for move in moves)
        assert states["failed"] == 1
        assert states["cancelled"] == len(moves) - 1 > 0
        assert "CircuitBreaker" in str(daemon.work.hold.reason())
        for _ in range(3):
            daemon.clock.pass_s(30)
            await daemon.cycle()
        assert [destination for _, destination in pulsar.moved] == dead

        living = [broker for broker in pulsar.brokers if broker not in dead]
        for bundle, owner in pulsar.owners.items():
            pulsar.owners[bundle] = living[1] if owner in dead else owner
        pulsar.brokers = living
        daemon.clock.pass_s(1800)
        await daemon.cycle()
        assert daemon.work.hold.reason() is None
        assert len(pulsar.moved) > 1
        assert {destination for _, destination in pulsar.moved[1:]} <= set(living)
        assert set(pulsar.owners.values()) == set(living)


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_an_order_that_gets_nonsense_ends_the_plan(
    tmp_path: Path, nonsense: Nonsense
) -> None:
    """From the second order on: one move is made, one fails, the others are cancelled. An operator
    who has mended it lets moves go on.
    """
    async with watching(tmp_path, settings=ACT) as daemon:
        pulsar = daemon.pulsar
        pulsar.switch_off()

        async def on_unload(_destination: str, is_done: bool) -> None:
            if is_done:
                pulsar.nonsense["/unload"] = nonsense

        pulsar.on_unload = on_unload
        await daemon.cycle()
        moves = daemon.work.operations.list_moves(99).moves
        states = Counter(move.state.value for move in moves)
        assert (states["done"], states["failed"]) == (1, 1)
        assert states["cancelled"] == len(moves) - 2 > 0
        assert len(pulsar.moved) == 1
        assert "a move failed" in str(daemon.work.hold.reason())
        pulsar.nonsense.clear()
        pulsar.on_unload = FakePulsar.on_unload
        await daemon.work.operations.pause(None)
        assert daemon.work.hold.reason() is None
        daemon.clock.pass_s(31 * 60)
        await daemon.cycle()
        assert len(pulsar.moved) > 1
