"""Fair turns on a real connection: how much work of others a client waits behind, counted in
looks at a clock that each advance it.
"""

from __future__ import annotations

import asyncio
import inspect

import pytest
from broker.protocol.driven_broker import Broker, OwnsAll, Wire
from limits.driven import DrivenClock
from system.raw import CONNECT

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.connection import LOOK_FRAMES, SLOWED_MAX, Connection
from loadmanager.broker.protocol.server import HANDLERS, BrokerServer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.names import TopicName
from loadmanager.limits.turns import TURN_NS

LOOK_NS = 80_000
"""What one look at the clock costs: about what `LOOK_FRAMES` frames do."""
PER_TURN = LOOK_FRAMES * TURN_NS // LOOK_NS
PONG = encode(pong=pb.CommandPong())
PING = encode(ping=pb.CommandPing())
ATTACKERS = 8
PINGS = 2_000
"""What each of so many connections asks at once."""


class WorkingClock(DrivenClock):
    """Each look at the time takes time, as if work were done."""

    def monotonic_ns(self) -> int:
        self.now_ns += LOOK_NS
        return self.now_ns


def test_what_is_spawned_is_a_coroutine() -> None:
    """A task of Python 3.12 and later takes nothing else, of generators that are awaited."""

    async def work() -> None:
        return None

    turns = Busy().server.serving.turns
    working = work()
    stepped = turns.in_turns(working, turns.party(None))
    assert inspect.iscoroutine(stepped)
    stepped.close()
    working.close()


class Counting(Wire):
    """A transport that counts PONGs, however many there are."""

    def __init__(self) -> None:
        super().__init__()
        self.pongs = 0

    def write(self, data: bytes) -> None:
        self.pongs += data.count(PONG)


class Busy(Broker):
    """A broker whose work takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = WorkingClock()
        self.server = BrokerServer(
            self.messaging, clock=self.clock, spawn=self.spawn, throttling=self.throttling
        )
        self.server.serving.directory = OwnsAll(self.server.fence_all)

    def of(self, role: str) -> tuple[Connection, Counting]:
        """A client of a role that has said CONNECT."""
        connection, wire = Connection(self.server.serving, HANDLERS), Counting()
        connection.connection_made(wire)
        connection.roles = (role,)
        connection.data_received(CONNECT)
        return connection, wire


async def answered(wire: Counting, count: int) -> int:
    """Let the loop turn until a client has so many answers; returns the turns of the loop."""
    turns = 0
    while wire.pongs < count:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 1_000_000, "it is never answered"
    return turns


@pytest.mark.parametrize(
    ("roles", "connections"), [(1, ATTACKERS), (ATTACKERS, ATTACKERS), (1, 25 * ATTACKERS)]
)
async def test_a_neighbour_waits_behind_a_bounded_amount_of_work(
    roles: int, connections: int
) -> None:
    """Connections bring 16,000 requests in one turn of the loop, before a neighbour's one: it is
    answered behind a few turns of work, not behind all of them, however many connections a role
    has. All the others are answered, too.
    """
    broker = Busy()
    others = [broker.of(f"attacker-{number % roles}") for number in range(connections)]
    pings = PINGS * ATTACKERS // connections
    neighbour, wire = broker.of("honest")
    await asyncio.sleep(0)
    for number in range(1, 6):
        before = sum(other.pongs for _, other in others)
        for connection, _ in others:
            connection.data_received(PING * pings)
        neighbour.data_received(PING)
        await answered(wire, number)
        for _ in range(3):
            await asyncio.sleep(0)
        behind = sum(other.pongs for _, other in others) - before
        assert behind <= (roles + 6) * PER_TURN, number
    for _, other in others:
        await answered(other, 5 * pings)


async def test_a_connection_is_not_read_while_much_waits() -> None:
    """What waits for its turn is bounded, and is read on afterwards."""
    broker = Busy()
    connection, wire = broker.of("busy")
    sent = 0
    while wire.reading:
        connection.data_received(PING * PINGS)
        sent += PINGS
        assert sent <= 20 * PINGS
    await answered(wire, sent)
    assert wire.reading


class Waits(OwnsAll):
    """Answers nothing before the test says so; `asked` counts."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.answers = asyncio.Event()

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        self.asked += 1
        await self.answers.wait()
        return 0


async def test_a_role_has_a_bounded_number_of_requests_in_progress() -> None:
    """Over all its connections; those of other roles go on, and all are answered in the end."""
    broker = Busy()
    broker.messaging.set(MessagingSettings(requests_per_role_max=10))
    directory = broker.server.serving.directory = Waits()
    asked = encode(
        partition_metadata=pb.CommandPartitionedTopicMetadata(
            topic="persistent://public/default/t", request_id=1
        )
    )
    clients = [broker.of("greedy") for _ in range(3)]
    for connection, _ in clients:
        connection.data_received(asked * 20)
    for _ in range(200):
        await asyncio.sleep(0)
    assert directory.asked == 10
    other, _ = broker.of("modest")
    other.data_received(asked)
    for _ in range(200):
        await asyncio.sleep(0)
    assert directory.asked == 11
    directory.answers.set()
    for _ in range(20_000):
        await asyncio.sleep(0)
    assert directory.asked == 61


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    """Its requests end without it, and nobody waits for a connection that is gone."""
    broker = Busy()
    broker.messaging.set(MessagingSettings(requests_per_role_max=1))
    directory = broker.server.serving.directory = Waits()
    asked = encode(
        partition_metadata=pb.CommandPartitionedTopicMetadata(
            topic="persistent://public/default/t", request_id=1
        )
    )
    clients = [broker.of("greedy") for _ in range(3)]
    for connection, _ in clients:
        connection.data_received(asked)
    for connection, _ in clients[:2]:
        connection.connection_lost(None)
    directory.answers.set()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert directory.asked == 2


async def test_who_is_refused_too_often_is_slowed_and_then_closed() -> None:
    """Each refusal beyond the rate costs its connection a pause; after some of them it is closed.
    Another role is served.
    """
    broker = Busy()
    broker.messaging.set(MessagingSettings(refusals_per_s=1))
    connection, wire = broker.of("refused")
    for _ in range(9):
        connection.refused()
    connection.data_received(PING)
    assert wire.pongs == 1, "so many are allowed at once"
    connection.refused()
    connection.data_received(PING)
    assert wire.pongs == 1, "it pauses"
    other, others = broker.of("other")
    other.data_received(PING)
    assert others.pongs == 1
    for _ in range(SLOWED_MAX):
        connection.take_turn()
        connection.refused()
    assert wire.closed
    assert not others.closed
