"""Producers that come back and repeat messages, or number new ones as they like."""

from __future__ import annotations

import pytest
from broker.protocol.driven_broker import BUNDLE, RECEIPT, Broker, Wire
from broker.protocol.test_exclusive_producers import leave
from broker.protocol.test_hostile_clients import a_producer
from broker.protocol.test_stored_topics import Slow
from system.raw import a_send

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.messaging.topic import ProducerAccessMode
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.storage.memory_disk import SharedFiles

STORED_BEFORE = (1 << 64) - 1


async def join(broker: Broker, name: str = "prod", **fields: int) -> tuple[Connection, Wire]:
    """A client with one producer."""
    connection, wire = await broker.connect()
    await broker.say(connection, a_producer(producer_name=name, **fields))
    return connection, wire


def entries(wire: Wire) -> list[int]:
    """The entry ids in the receipts."""
    receipts = [frame.command for frame in wire.frames if frame.command.type == RECEIPT]
    return [command.send_receipt.message_id.entryId for command in receipts]


@pytest.mark.parametrize("left", ["connection", "bundle", "crash"])
async def test_a_client_may_number_new_messages_as_it_likes(left: str) -> None:
    """After it reconnected, it repeats messages, which are not stored again; their receipts name
    the entries that have them, and come in order. Then it sends new ones with lower numbers, such
    as those of the lines of another file: all are stored.
    """
    broker = Slow(SharedFiles())
    await broker.server.open_bundle(BUNDLE, 1)
    first, wire = await join(broker)
    sent = [a_send(number, publish_time_ms=100 + number, producer="prod") for number in range(4)]
    await broker.say(first, *sent)
    if left != "crash":
        first.connection_lost(None)
    if left == "bundle":
        await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=1)
        await broker.settle()
    if left == "crash":
        directory, broker = broker.server.serving.directory, Slow(broker.files)
        broker.server.serving.directory = directory
    if left != "connection":
        await broker.server.open_bundle(BUNDLE, 2)
    second, wire = await join(broker, epoch=1)
    new = [a_send(number, publish_time_ms=200) for number in (0, 1, 0, 0)]
    await broker.say(second, sent[2], sent[3], *new)
    assert entries(wire) == [2, 3, 4, 5, 6, 7]


async def test_a_repeated_message_that_is_long_gone_has_a_receipt_without_an_id() -> None:
    """Nobody keeps it any more, or what its client said of it was another producer's name."""
    broker = Slow(SharedFiles())
    await broker.server.open_bundle(BUNDLE, 1)
    first, _ = await join(broker)
    await broker.say(first, a_send(1, producer="another"), a_send(2, producer="prod"))
    first.connection_lost(None)
    second, wire = await join(broker, epoch=1)
    await broker.say(second, a_send(1, producer="prod"), a_send(2, producer="prod"), a_send(3))
    assert entries(wire) == [STORED_BEFORE, 1, 2]


async def test_de_duplication_goes_by_the_numbers_alone() -> None:
    """A later message with the number of an earlier one is a repeated one."""
    broker = Slow(SharedFiles())
    broker.messaging.set(MessagingSettings(deduplicates=True))
    await broker.server.open_bundle(BUNDLE, 1)
    first, wire = await join(broker)
    sent = (a_send(number, publish_time_ms=number, producer="prod") for number in range(1, 4))
    await broker.say(first, *sent)
    first.connection_lost(None)
    second, wire = await join(broker, epoch=1)
    await broker.say(second, a_send(3, publish_time_ms=9), a_send(4, publish_time_ms=9))
    assert entries(wire) == [2, 3]


async def test_a_producer_that_waited_is_told_its_last_number() -> None:
    """With de-duplication: it was exclusive before another one, for which it had to wait."""
    broker = Slow(SharedFiles())
    broker.messaging.set(MessagingSettings(deduplicates=True))
    await broker.server.open_bundle(BUNDLE, 1)
    waits = int(ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    first, _ = await join(broker, "a", producer_access_mode=waits)
    await broker.say(first, a_send(1), a_send(2))
    second, _ = await join(broker, "b", producer_access_mode=waits)
    await leave(broker, first)
    again, wire = await join(broker, "a", producer_access_mode=waits)
    await leave(broker, second)
    success = wire.frames[-1].command.producer_success
    assert (success.producer_ready, success.last_sequence_id) == (True, 2)
    await broker.say(again, a_send(2), a_send(3))
    assert entries(wire) == [STORED_BEFORE, 2]


async def test_switching_de_duplication_off_stores_what_comes_then() -> None:
    """Also under a number that was used before."""
    broker = Slow(SharedFiles())
    broker.server.rules.set_policies("public/default", {"deduplicationEnabled": True})
    await broker.server.open_bundle(BUNDLE, 1)
    connection, wire = await join(broker)
    await broker.say(connection, a_send(5, publish_time_ms=5), a_send(3, publish_time_ms=6))
    broker.server.rules.set_policies("public/default", {"deduplicationEnabled": False})
    await broker.say(connection, a_send(3, publish_time_ms=7))
    assert entries(wire) == [0, STORED_BEFORE, 1]
