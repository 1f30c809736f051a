"""The checks before each order, and the end of orders that are not sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from steer.fake_pulsar import Nonsense, failed, html, loop, refused
from steer.watched import ACT, Watching, watching

from loadmanager.engine.load.wishes import Pause
from loadmanager.engine.moves.move import Move

OWN = "loadBalancerSheddingEnabled"


def ordered(daemon: Watching) -> int:
    """The number of orders that the cluster got."""
    return sum(line.startswith("PUT") for line in daemon.pulsar.log)


def ended(daemon: Watching) -> list[tuple[str, str]]:
    """State and text of the moves that have ended, the newest first."""
    moves: list[Move] = list(daemon.work.moves.queue.ended)
    return [(move.state.value, move.outcome.text if move.outcome else "") for move in moves]


@pytest.mark.parametrize("answer", [failed, html, loop, refused])
async def test_settings_that_cannot_be_read_before_an_order(
    tmp_path: Path, answer: Nonsense
) -> None:
    """Pulsar may balance itself by then: nothing is sent, and that is nobody's failure."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        daemon.pulsar.settings[OWN] = "true"
        daemon.pulsar.nonsense["/configuration/runtime"] = answer
        daemon.clock.pass_s(60)
        await daemon.work.shed()
        await daemon.work.moves.idle()
        assert ordered(daemon) == 0
        state, text = ended(daemon)[0]
        assert state == "failed"
        assert text.startswith("not sent: the settings are not known: ")
        assert daemon.work.hold.stopped() is None


async def test_a_lock_that_is_not_proven_at_an_order_opens_no_breaker(tmp_path: Path) -> None:
    """The order is not sent; the next ones are."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        asked = []

        def leads() -> bool:
            asked.append(1)
            return len(asked) > 1

        daemon.client.leads = leads
        await daemon.work.shed()
        await daemon.work.moves.idle()
        assert ("failed", "not sent: another daemon may lead") in ended(daemon)
        assert daemon.work.hold.stopped() is None
        assert daemon.pulsar.moved


async def test_a_broker_that_leaves_while_its_settings_are_read(tmp_path: Path) -> None:
    """Its own shedding is on, and nobody could switch it off any more: it does not count."""
    async with watching(tmp_path, settings=ACT) as daemon:
        pulsar, work = daemon.pulsar, daemon.work
        pulsar.switch_off()
        leaves, stays = pulsar.brokers[-1], pulsar.brokers[0]
        asked, gate = asyncio.Event(), asyncio.Event()
        gate.set()

        async def on_settings(broker: str) -> dict[str, str]:
            if broker != leaves:
                return {}
            asked.set()
            await gate.wait()
            return {OWN: "true"}

        pulsar.on_settings = on_settings
        await work.read()
        assert "PulsarBalances" in str(work.hold.shown_reason())
        asked.clear()
        gate.clear()
        reading = asyncio.create_task(work.watching.read_settings())
        await asked.wait()
        for bundle in pulsar.owned(leaves):
            pulsar.owners[bundle] = stays
        pulsar.brokers = pulsar.brokers[:-1]
        await work.watching.read_brokers()
        gate.set()
        await reading
        assert work.picture.own_balancing() == []
        assert work.picture.problems == {}


async def pulsar_on(daemon: Watching, _destination: str) -> None:
    """Somebody switches Pulsar's own shedding on."""
    daemon.pulsar.settings[OWN] = "true"


async def settings_gone(daemon: Watching, _destination: str) -> None:
    """Nobody knows what is on."""
    daemon.pulsar.nonsense["/configuration/runtime"] = failed


async def paused(daemon: Watching, _destination: str) -> None:
    """An operator stops the moves."""
    until_ms = daemon.clock.now_ms() + 600_000
    await daemon.work.moves.cluster.wishes.set_pause(Pause(until_ms, "stop"), ())


async def breaker_opens(daemon: Watching, _destination: str) -> None:
    """Another move failed, say."""
    acting = daemon.work.acting
    assert daemon.work.hold.breaker.ended("x", "no", daemon.clock.now_ms(), acting.rules())


async def quiet_begins(daemon: Watching, _destination: str) -> None:
    """At midnight."""
    daemon.clock.pass_s(60)


async def cordoned(daemon: Watching, destination: str) -> None:
    """An operator wants nothing more there."""
    await daemon.work.operations.cordon(destination, drain=False)


async def lock_lost(daemon: Watching, _destination: str) -> None:
    """Another daemon may lead."""
    daemon.client.leads = lambda: False


MEANWHILE = {
    pulsar_on: "PulsarBalances",
    settings_gone: "the settings are not known",
    paused: "moves are paused: stop",
    breaker_opens: "CircuitBreaker",
    quiet_begins: "QuietHours",
    cordoned: "was cordoned meanwhile",
    lock_lost: "another daemon may lead",
}
FOR_OPERATORS, LATE = (paused, breaker_opens, quiet_begins, cordoned), "00:00-12:00"


@asynccontextmanager
async def missing(folder: Path, happens: Any) -> AsyncIterator[Watching]:
    """A cluster where bundles come back; after the first order something happens."""
    settings = {**ACT, "movesPerHourMax": "1", "quietHours": LATE}
    async with watching(folder, settings=settings) as daemon:
        daemon.clock.at_ms = daemon.clock.at_ms // 86_400_000 * 86_400_000 - 30_000
        daemon.pulsar.switch_off()
        daemon.pulsar.back = 2
        await daemon.work.read()

        async def on_unload(destination: str, done: bool) -> None:
            if not done and ordered(daemon) == 1:
                await happens(daemon, destination)

        daemon.pulsar.on_unload = on_unload
        yield daemon


@pytest.mark.parametrize("happens", MEANWHILE)
async def test_a_move_is_not_ordered_again_after_that(tmp_path: Path, happens: Any) -> None:
    """Its first order was sent: it has failed. What holds moves is no failure of moves."""
    async with missing(tmp_path, happens) as daemon:
        await daemon.work.shed()
        await daemon.work.moves.idle()
        assert ordered(daemon) == 1
        ((state, text),) = ended(daemon)
        assert state == "failed"
        assert text.startswith("not ordered again: ")
        assert MEANWHILE[happens] in text
        assert daemon.work.hold.breaker.opened == (happens is breaker_opens)


async def third_leaves(daemon: Watching, destination: str) -> None:
    """A broker that has nothing to do with the move."""
    await daemon.pulsar.stop(next(b for b in daemon.pulsar.brokers[1:] if b != destination))
    daemon.clock.pass_s(76)
    await daemon.work.read()


async def test_a_move_is_not_ordered_again_when_a_third_broker_left(tmp_path: Path) -> None:
    """It has failed; that is no fault of moves, and no alarm."""
    async with missing(tmp_path, third_leaves) as daemon:
        await daemon.work.shed()
        await daemon.work.moves.idle()
        assert ordered(daemon) == 1
        ((state, text),) = ended(daemon)
        assert state == "failed"
        assert text.startswith("not ordered again: BrokersLeft: ")
        assert daemon.work.hold.breaker.opened == 0
        assert "BrokersLeft" in str(daemon.work.hold.stopped())


@pytest.mark.parametrize("happens", FOR_OPERATORS)
async def test_an_operators_move_is_ordered_again(tmp_path: Path, happens: Any) -> None:
    """It would begin then, too."""
    async with missing(tmp_path, happens) as daemon:
        pulsar = daemon.pulsar
        moved = await daemon.work.operations.move(
            pulsar.owned(pulsar.brokers[0])[0], pulsar.brokers[1]
        )
        assert (moved.state.value, ordered(daemon)) == ("done", 3)
