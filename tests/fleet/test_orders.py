"""What is looked at before each order, and what becomes of orders that are not sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fleet.fake_pulsar import Nonsense, failed, html, loop, refused
from fleet.watched import ACT, Watching, watching

from loadmanager.core.moves.move import Move

OWN = "loadBalancerSheddingEnabled"


def ordered(daemon: Watching) -> int:
    """How many orders the cluster got."""
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
        await daemon.work.load_manager.shed()
        await daemon.work.moves.idle()
        assert ordered(daemon) == 0
        state, text = ended(daemon)[0]
        assert state == "failed"
        assert text.startswith("not sent: the settings are not known: ")
        assert daemon.work.acting.reason() is None


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
        await daemon.work.load_manager.shed()
        await daemon.work.moves.idle()
        assert ("failed", "not sent: another daemon may lead") in ended(daemon)
        assert daemon.work.acting.reason() is None
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
        assert "PulsarBalances" in str(work.hold.told())
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
