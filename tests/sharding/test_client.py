"""Programs that call members: they know who serves a key without asking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from random import Random

import pytest
from sharding.fenced_database import Counters, Database
from structlog.testing import capture_logs

from loadmanager import Moved
from loadmanager.client import RoutingClient, Table
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.testing import Members, VirtualLoop, cluster, virtual

KEYS = [f"key {number}" for number in range(200)] + ["", "ключ", "\ud800 half", "a/b?c d", "\0"]
ADDRESSES = [f"http://member-{number}" for number in range(5)]


def owners(members: Members) -> dict[str, str]:
    """Key → the address of the member that serves it."""
    return {key: members.owners(key)[0].member.address for key in KEYS if members.owners(key)}


def services() -> partial[Counters]:
    """What makes services."""
    return partial(Counters, Database())


@virtual
async def test_a_client_follows_every_change_without_asking() -> None:
    """After each move, death and restart it knows what the members know; so does one that is fed
    by a member's tables.
    """
    async with (
        cluster(services(), members=3, shards=16) as members,
        members.client() as client,
        RoutingClient(members[2].member.tables()) as fed,
    ):
        for number in range(12):
            if number == 5:
                await members.kill(0)
                await members.settled()
            elif number == 8:
                await members.start()
            else:
                source = max(members.all, key=lambda each: len(each.member.shards))
                target = members[1] if source.number != 1 else members[2]
                shard = source.member.shards[0]
                await source.member.move(shard, target.member.address)
            await asyncio.sleep(0.2)
            assert {key: client.owner(key) for key in KEYS} == owners(members)
            assert {key: fed.owner(key) for key in KEYS} == owners(members)


@virtual
async def test_a_client_is_told_of_no_owner_that_does_not_serve() -> None:
    """Neither of one that is dead, nor of one that is opening."""
    async with cluster(services(), members=2, shards=4) as members, members.client() as client:
        shard = members[0].member.shards[0]
        key = next(key for key in KEYS if shard.contains(key))
        members[0].service.database.slow_s = 5.0  # type: ignore[attr-defined]
        await members.kill(0)
        await asyncio.sleep(12)
        assert client.owner(key) == members[1].member.table().owner(key) == ""
        await members.settled()
        await asyncio.sleep(0.1)
        assert client.owner(key) == ADDRESSES[1]


@virtual
async def test_a_call_arrives_wherever_the_key_is() -> None:
    """Through moves and a death, by redirects and by the table; each is answered by the owner."""
    async with cluster(services(), members=3, shards=8) as members, members.client() as client:
        asked = 0

        async def ask(address: str, key: str) -> str:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0.01)
            member = members.all[ADDRESSES.index(address)]
            if not member.alive:
                raise ConnectionRefusedError(address)
            member.member.own(key)
            return address

        async def call_for_ever(key: str, rng: Random) -> None:
            while True:
                await client.call(
                    key, lambda address: ask(address, key), retry_on=(ConnectionRefusedError,)
                )
                await asyncio.sleep(rng.uniform(0.01, 0.2))

        callers = [asyncio.ensure_future(call_for_ever(key, Random(key))) for key in KEYS[:40]]
        for number in range(20):
            source = members.all[number % 2 + 1].member
            target = members.all[(number + 1) % 2 + 1].member
            if source.shards:
                await source.move(source.shards[0], target.address)
            if number == 10:
                await members.kill(0)
            await asyncio.sleep(2)
        for caller in callers:
            assert not caller.done()
            caller.cancel()
        assert asked > 5_000


@virtual
async def test_a_call_gives_up_after_its_patience() -> None:
    """Without going round in circles between members that name each other."""
    async with cluster(services(), members=2, shards=4) as members, members.client() as client:
        asked: list[str] = []

        async def ask(address: str) -> None:
            asked.append(address)
            raise Moved("key", ADDRESSES[1 - ADDRESSES.index(address)])

        began_s = asyncio.get_running_loop().time()
        with pytest.raises(Moved):
            await client.call("key", ask, patience_s=10)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(10, abs=0.1)
        assert len(asked) < 100

        async def fail(address: str) -> None:
            raise ValueError(address)

        with pytest.raises(ValueError, match="member"):
            await client.call("key", fail)


@virtual
async def test_a_table_is_one_answer() -> None:
    """With all ranges, back and forth; what is no table is refused."""
    async with cluster(services(), members=3, shards=1_000) as members:
        table = members[0].member.table()
        text = table.to_json()
        assert len(text) < 25_000
        assert Table.from_json(text) == table
        assert len(table.ranges) == 1_000
        assert {owner for _, owner in table.ranges} == set(ADDRESSES[:3])
    for wrong in (b"", b"{}", text.replace(b"[0,", b"[9,"), text.replace(b"[0,", b"[")):
        with pytest.raises(BadInputError):
            Table.from_json(wrong)


def test_the_end_of_what_feeds_a_client_leaves_it_what_it_knows() -> None:
    """It does not end with it."""

    async def run() -> None:
        async def tables() -> AsyncIterator[Table]:
            yield Table((0, 1 << 31, 0xFFFFFFFF), ["http://a", "http://b"])

        async with RoutingClient(tables()) as client:
            await asyncio.sleep(1)
            assert {client.owner(key) for key in KEYS} == {"http://a", "http://b"}
        with pytest.raises(RuntimeError, match="async with RoutingClient"):
            RoutingClient(tables()).owner("key")
        with pytest.raises(BadInputError, match="zk://"):
            RoutingClient("redis://there")

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


@virtual
async def test_a_call_that_hangs_ends_with_its_patience() -> None:
    """As one to a process that is stopped; `retry_on` does not make it longer."""
    async with cluster(services(), members=1, shards=4) as members, members.client() as client:

        async def hang(address: str) -> None:
            await asyncio.sleep(1e6)

        loop = asyncio.get_running_loop()
        for retry_on in ((), (TimeoutError,)):
            began_s = loop.time()
            with pytest.raises(TimeoutError, match="http://member-0 has not answered"):
                await client.call("key", hang, patience_s=7, retry_on=retry_on)
            assert loop.time() - began_s == pytest.approx(7, abs=0.1)
        for wrong in (0, -1, float("nan")):
            with pytest.raises(BadInputError, match="patience"):
                await client.call("key", hang, patience_s=wrong)


TABLE = Table((0, 1 << 31, 0xFFFFFFFF), ["http://a", "http://b"])


async def tables(count: int, then: Exception | None) -> AsyncIterator[Table]:
    """So many, then an error or the end."""
    for _ in range(count):
        yield TABLE
    if then is not None:
        raise then


@virtual
async def test_what_feeds_a_client_may_fail() -> None:
    """The caller's block goes on with the last table, and the log says so."""
    with capture_logs() as lines:
        async with RoutingClient(tables(2, OSError("reset"))) as client:
            await asyncio.sleep(1)
            assert client.owner("key") == TABLE.owner("key")
    (line,) = lines
    assert (line["log_level"], line["why"]) == ("error", "OSError: reset")


@virtual
async def test_a_client_is_not_entered_without_a_table() -> None:
    """None comes, or none in time: an error says why."""

    async def silence() -> AsyncIterator[Table]:
        await asyncio.sleep(1e6)
        yield TABLE

    for source, why in (
        (tables(0, None), "the iterator has ended"),
        (tables(0, OSError("refused")), "OSError: refused"),
        (silence(), "none within 30 s"),
    ):
        with pytest.raises(OperationalError, match=f"no table of owners has come: .*{why}"):
            async with RoutingClient(source):
                pytest.fail("it was entered")
