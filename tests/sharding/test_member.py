"""The library, as an author of a service uses it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
from sharding.fenced_database import Counters, Database, StaleTokenError

from loadmanager import Member, Moved, Shard
from loadmanager.kit.errors import BadInputError, ConfigError, ConflictError, OperationalError
from loadmanager.sharding.host import LEAVE_S
from loadmanager.sharding.words import of_shards
from loadmanager.testing import Members, cluster, virtual

KEYS = [f"key {number}" for number in range(50)] + [
    "",
    "a/b?c",
    "persistent://x",
    "ключ",
    "k" * 5_000,
]


def a_database() -> tuple[Database, partial[Counters]]:
    """A database, and what makes services on it."""
    database = Database()
    return database, partial(Counters, database)


@virtual
async def test_every_key_has_one_owner_whatever_its_text() -> None:
    """Eager: without being asked for, evenly."""
    async with cluster(a_database()[1], members=3, shards=16) as members:
        assert sorted(len(member.member.shards) for member in members.all) == [5, 5, 6]
        for key in KEYS:
            (owner,) = members.owners(key)
            shard = owner.member.own(key)
            assert shard.contains(key)
            assert shard.token > 0
            for other in members.all:
                assert await other.member.resolve(key) == owner.member.address
                if other is not owner:
                    with pytest.raises(Moved) as moved:
                        other.member.own(key)
                    assert (moved.value.key, moved.value.owner) == (key, owner.member.address)


@virtual
async def test_without_eager_a_shard_is_opened_when_somebody_asks() -> None:
    """Nobody has it before; the first question finds an owner."""
    async with cluster(a_database()[1], members=2, shards=4, eager=False) as members:
        await asyncio.sleep(60)
        assert not any(member.member.shards for member in members.all)
        with pytest.raises(Moved) as moved:
            members[1].member.own("kitchen")
        assert moved.value.owner == ""
        owner = await members.owner("kitchen")
        assert await members[0].member.resolve("kitchen") == owner.member.address
        assert sum(len(member.member.shards) for member in members.all) == 1


@virtual
async def test_a_killed_member_is_replaced_within_its_session() -> None:
    """All of its shards have owners again, with greater tokens, when its session has ended."""
    async with cluster(a_database()[1], members=3, shards=16) as members:
        tokens = {shard.name: shard.token for shard in members[1].member.shards}
        began_s = asyncio.get_running_loop().time()
        await members.kill(1)
        await members.settled()
        assert 10 <= asyncio.get_running_loop().time() - began_s < 12
        again = [shard for number in (0, 2) for shard in members[number].member.shards]
        taken = {shard.name: shard.token for shard in again if shard.name in tokens}
        assert taken.keys() == tokens.keys()
        assert all(taken[name] > tokens[name] for name in tokens)


@virtual
async def test_a_key_is_not_owned_without_a_proof() -> None:
    """From the instant on at which the lease has run out, even before anybody has noticed."""
    async with cluster(a_database()[1], members=2, shards=4) as members:
        member = members[0].member
        shard = member.shards[0]
        key = next(key for key in KEYS if shard.contains(key))
        lease = members[0]._store._lease
        members[0].cut()
        lease.revoke()
        with pytest.raises(Moved):
            member.own(key)
        with pytest.raises(Moved):
            shard.check()
        members[0].heal()


@virtual
async def test_what_is_lost_is_not_saved() -> None:
    """Somebody else may have opened it by then; tasks that work for it are told."""
    database, counters = a_database()
    async with cluster(counters, members=2, shards=4) as members:
        for shard in (lost := members[0].member.shards):
            shard.state["mine"] = 1
        members[0].cut()
        async with asyncio.timeout(60):
            await lost[0].ended.wait()
        assert not members[0].member.shards
        await members.settled()
        members[0].heal()
        await asyncio.sleep(30)
        assert database.rows == {}
        assert all(shard.ended.is_set() for shard in lost)


@virtual
async def test_a_member_that_leaves_gives_its_shards_to_others_at_once() -> None:
    """What it had in memory is where it was."""
    _, counters = a_database()
    async with cluster(counters, members=2, shards=8) as members:
        for _ in range(3):
            for key in KEYS:
                with (await members.owner(key)).member.own(key) as shard:
                    shard.state[key] = shard.state.get(key, 0) + 1
        await members[0].stop()
        await members.settled()
        for key in KEYS:
            assert (await members.owner(key)).member.own(key).state[key] == 3


@virtual
async def test_a_member_that_joins_gets_its_share() -> None:
    """Also after a rolling restart, with no more moves than that takes."""
    async with cluster(a_database()[1], members=2, shards=16) as members:
        await members.start()
        await asyncio.sleep(60)
        assert sorted(len(member.member.shards) for member in members.all) == [5, 5, 6]
        opened = sum(member.service.opened for member in members.all)  # type: ignore[attr-defined]
        assert opened == 16 + 5
        for number in range(3):
            await members[number].stop()
            await members.settled()
            await members.start()
            await asyncio.sleep(60)
        counts = sorted(len(member.member.shards) for member in members.all if member.alive)
        assert sum(counts) == 16
        assert counts[0] >= 16 / 3 / 2


@virtual
async def test_shards_with_load_move_away_from_a_busy_member() -> None:
    """However small the service is; those that nobody uses stay."""
    async with cluster(a_database()[1], members=3, shards=30) as members:
        busy = members[0]
        busy.cpu_percent = 90.0
        idle = {shard.name for shard in busy.member.shards[8:]}
        used = [
            next(key for number in range(10_000) if shard.contains(key := f"user {number}"))
            for shard in busy.member.shards[:8]
        ]
        for _ in range(15 * 60):
            await asyncio.sleep(1)
            for key in used:
                for member in members.owners(key):
                    member.member.own(key, weight=0.5)
        assert idle <= {shard.name for shard in busy.member.shards}
        assert any(not busy.owns(key) for key in used)


@virtual
async def test_a_shard_goes_where_it_is_sent() -> None:
    """Its `with` blocks end before it is closed, and `ended` tells those who work for it."""
    _, counters = a_database()
    async with cluster(counters, members=2, shards=4) as members:
        source, target = members[0].member, members[1].member
        shard = source.shards[0]
        key = next(key for key in KEYS if shard.contains(key))

        async def work() -> None:
            with source.own(key) as mine:
                await mine.ended.wait()
                await asyncio.sleep(LEAVE_S / 2)
                mine.state[key] = 7

        working = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        await source.move(shard, target.address)
        await working
        assert members.owners(key) == [members[1]]
        assert target.own(key).state[key] == 7
        with pytest.raises(Moved):
            shard.check()
        with pytest.raises(BadInputError, match="no member now"):
            await target.move(target.shards[0], "http://nobody:80")


@virtual
async def test_a_close_that_hangs_gives_the_shard_up() -> None:
    """After ten seconds; the other shards and the member are as before."""
    _, counters = a_database()
    async with cluster(counters, members=2, shards=4) as members:
        source, target = members[0].member, members[1].member
        members[0].service.trouble = "hangs"  # type: ignore[attr-defined]
        shard, *others = source.shards
        began_s = asyncio.get_running_loop().time()
        await source.move(shard, target.address)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(10, abs=1)
        assert source.shards == others
        members[0].service.trouble = ""  # type: ignore[attr-defined]


@virtual
async def test_a_member_that_cannot_open_shards_leaves_no_key_without_an_owner() -> None:
    """Others get them; when it can, it gets new ones."""
    _, counters = a_database()
    made: list[Counters] = []

    def service() -> Counters:
        made.append(counters(trouble="" if made else "cannot open"))
        return made[-1]

    async with cluster(service, members=3, shards=16) as members:
        assert not members[0].member.shards
        made[0].trouble = ""
        await asyncio.sleep(600)
        await members.kill(2)
        await members.settled()
        assert members[0].member.shards


class SplitCounters(Counters):
    """Can load any range."""

    splits = True


@pytest.mark.parametrize("seed", range(6))
def test_no_two_owners_and_no_stale_write_whatever_happens(seed: int) -> None:
    """Members are killed, cut off, healed, started and told to move and split shards, which are
    merged again when nobody uses them; clients go on writing. At no moment do two serve a key, and
    the database refuses nothing but what a cut-off member wrote.
    """

    @virtual
    async def run() -> None:
        rng, database = Random(seed), Database(slow_s=0.05)
        async with cluster(
            partial(SplitCounters, database),
            members=3,
            shards=8,
            settings={
                "loadBalancerSplitIntervalMinutes": "0.1",
                "loadManagerBundleMergeIdleMinutes": "0.2",
            },
        ) as members:
            clients = [asyncio.ensure_future(client(members, key, Random(key))) for key in KEYS[:8]]
            cut: set[int] = set()
            for _ in range(25):
                await asyncio.sleep(rng.uniform(0, 8))
                await trouble(members, cut, rng)
            for number in cut:
                members[number].heal()
            await members.settled()
            await asyncio.sleep(20)
            for task in clients:
                task.cancel()
            written = [task.result() for task in clients if task.done() and not task.cancelled()]
            assert written == []
            assert all(count > 20 for count in database.rows.values())
            assert len(database.rows) == 8

    moves: list[Shard[Any]] = []
    changes: set[str] = set()

    async def client(members: Members, key: str, rng: Random) -> None:
        while True:
            await asyncio.sleep(rng.uniform(0.05, 0.5))
            owners = members.owners(key)
            assert len(owners) <= 1, (key, owners)
            for owner in owners:
                await write(owner.member, owner.service.database, key)  # type: ignore[attr-defined]

    async def write(member: Member[Any], database: Database, key: str) -> None:
        with member.own(key) as shard:
            value = shard.state[key] = shard.state.get(key, database.rows.get(key, 0)) + 1
            try:
                await database.put(key, value, shard.token)
            except StaleTokenError:
                with pytest.raises(Moved):
                    shard.check()

    async def trouble(members: Members, cut: set[int], rng: Random) -> None:
        alive = [member for member in members.all if member.alive and member.number not in cut]
        kind = rng.choice(("kill", "cut", "heal", "start", "move", "move", "split"))
        if kind == "kill" and len(alive) > 2:
            await members.kill(rng.choice(alive).number)
        elif kind == "cut" and len(alive) > 2:
            number = rng.choice(alive).number
            members[number].cut()
            cut.add(number)
        elif kind == "heal" and cut:
            members[cut.pop()].heal()
        elif kind == "start" and len(alive) < 4:
            await members.start()
        elif kind == "split":
            source = rng.choice(alive)
            if source.member.shards:
                shard = rng.choice(source.member.shards)
                with suppress(ConflictError, OperationalError):  # lost meanwhile, or one key
                    await source.member.split(shard)
                    changes.add("split")
        elif kind == "move":
            source, target = rng.choice(alive), rng.choice(alive)
            if source is not target and source.member.shards:
                shard = rng.choice(source.member.shards)
                with suppress(ConflictError, OperationalError, BadInputError):  # lost meanwhile
                    await source.member.move(shard, target.member.address)
                    moves.append(shard)

    run()
    assert moves
    assert "split" in changes


@pytest.mark.parametrize(
    ("store", "fields", "text"),
    [
        ("127.0.0.1:2181", {}, "a store such as zk://"),
        ("etcd://127.0.0.1/x", {}, "a store such as zk://"),
        ("zk://127.0.0.1:2181", {}, "no path: name the service"),
        ("zk://127.0.0.1:2181/a/../b", {}, "names between its slashes"),
        ("zk://127.0.0.1:2181/a//b", {}, "names between its slashes"),
        ("zk://127.0.0.1:2181/a\ud800", {}, "names between its slashes"),
        ("zk://a b/x", {}, "the store's URL = "),
        ("zk://127.0.0.1/x", {"shards": 1.5}, "1 to 10000 shards"),
        ("zk://127.0.0.1/x", {"settings": {"metadataStoreUrl": "zk:h"}}, "the first argument"),
        ("zk://127.0.0.1:2181/", {}, "no path: name the service"),
        ("zk://127.0.0.1/x", {"address": "ws://h:1"}, "an address such as http://"),
        ("zk://127.0.0.1/x", {"address": "10.0.0.7:8080"}, "an address such as http://"),
        ("zk://127.0.0.1/x", {"shards": 0}, "1 to 10000 shards"),
        ("zk://127.0.0.1/x", {"settings": {"brokerServicePor": "1"}}, "brokerServicePor"),
        ("zk://127.0.0.1/x", {"settings": {"metadataStoreSessionTimeoutMillis": "x"}}, "Millis"),
        ("zk://127.0.0.1/x", {"settings": {"metadataStoreSessionTimeoutMillis": 4000}}, "text is"),
        (
            "zk://127.0.0.1/x",
            {"eager": True, "settings": {"loadManagerClassName": "ModularLoadManagerImpl"}},
            "nothing is eager",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_once(store: str, fields: dict[str, Any], text: str) -> None:
    """With words that say what is expected."""
    with pytest.raises((BadInputError, ConfigError), match=text):
        Member(store, Counters(Database()), **{"address": "http://h:1", **fields})


def test_a_shard_counts_no_more_keys_than_it_may() -> None:
    """The load of all others is one figure."""
    shard: Shard[None] = Shard("service/shards/0x00000000_0xffffffff", 1, lambda _: True)
    for number in range(5_000):
        shard.count(str(number), 1.0)
    shard.end_period(10.0)
    assert len(shard.rates) <= 1_001
    assert sum(shard.rates.values()) == pytest.approx(500)


@virtual
async def test_a_check_after_a_move_names_the_next_owner() -> None:
    """As `own` does: whoever was inside can be sent on."""
    async with cluster(a_database()[1], members=2, shards=4) as members:
        source, target = members[0].member, members[1].member
        shard = source.shards[0]
        await source.move(shard, target.address)
        with pytest.raises(Moved, match=f"'{shard.range}' is served by {target.address}") as moved:
            shard.check()
        assert (moved.value.key, moved.value.owner) == (shard.name, target.address)


@virtual
async def test_what_is_over_is_told_as_such() -> None:
    """A shard that ended is not entered again, and a member that has left says so."""
    async with cluster(a_database()[1], members=2, shards=4) as members:
        source, target = members[0].member, members[1].member
        shard = source.shards[0]
        await source.move(shard, target.address)
        with pytest.raises(Moved, match=target.address), shard:
            pytest.fail("it was entered")
        assert shard.users == 0
        await members[0].stop()
        with pytest.raises(OperationalError, match="this member has left"):
            await source.resolve("key")
        with pytest.raises(Moved, match="nobody yet"):
            source.own("key")


@virtual
async def test_a_test_that_waits_in_vain_is_told_for_what() -> None:
    """With the shards that are open nowhere."""
    async with cluster(a_database()[1], members=1, shards=4, settle=False, eager=False) as members:
        with pytest.raises(TimeoutError, match="4 shards are open nowhere within 120 s: 0x0"):
            await members.settled()


def test_a_test_that_waits_for_a_thread_is_told_so() -> None:
    """Time would stand still for it."""

    @virtual
    async def run() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="for a thread or a socket"):
        run()


def test_errors_and_lines_have_the_words_of_a_service() -> None:
    """Those that stand in texts of what a member shares with a broker."""
    texts = {
        "the destination did not take the bundle; the next lookup places it": "the destination did "
        "not take the shard; the leader or the next request places it",
        "this broker goes on serving for 3.0 s": "a member goes on serving for 3.0 s",
        "until ZooKeeper answers, this broker serves only stored topics that are open": "until "
        "ZooKeeper answers, this member serves nothing",
        "metadataStoreUrl = 'zk:x'": "the store's URL = 'zk:x'",
        "kind=bundle_load": "kind=shard_load",
    }
    assert {text: of_shards(text) for text in texts} == texts
