"""Shards that use much of their member are divided, and go back together when they stay idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from sharding.fenced_database import Counters, Database

from loadmanager import BadInputError, Member, Moved, NotNow, OperationalError, Shard
from loadmanager.engine.bundles.ranges import BundleRange, topic_hash
from loadmanager.engine.strategies.splitting.algorithms import ALGORITHMS
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.errors import ConflictError
from loadmanager.sharding.splitting import boundaries_of, halve
from loadmanager.testing import LocalMember, Members, cluster, virtual

SHARDS = 4
MINUTE_S = 60.0


class Splitting(Counters):
    """Can open any range; notes what is done with it."""

    splits = True

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.calls: list[tuple[str, str, int]] = []
        self.close_s = self.open_s = 0.0
        self.not_now = ""

    async def open(self, shard: Shard[Any]) -> dict[str, int]:
        """Load."""
        await asyncio.sleep(self.open_s)
        self.calls.append(("open", str(shard.range), shard.token))
        return await super().open(shard)

    async def close(self, shard: Shard[Any], state: dict[str, int]) -> None:
        """Save."""
        await asyncio.sleep(self.close_s)
        await super().close(shard, state)
        self.calls.append(("close", str(shard.range), shard.token))

    def cost(self, shard: Shard[Any]) -> float:
        """Nothing, but perhaps not now."""
        if self.not_now:
            raise NotNow(self.not_now)
        return 0.0


def service_of(member: LocalMember) -> Splitting:
    """The one of a member."""
    assert isinstance(member.service, Splitting)
    return member.service


def keys_in(shard: Shard[Any], count: int) -> list[str]:
    """So many keys of a shard, in the order of their hashes."""
    found: Iterator[str] = (key for n in range(100_000) if shard.contains(key := f"key {n}"))
    return sorted((next(found) for _ in range(count)), key=topic_hash)


@asynccontextmanager
async def splitting(members: int = 2, **options: Any) -> AsyncIterator[tuple[Members, Database]]:
    """Members of a service whose shards can be split, over one database."""
    database = Database()
    services = partial(Splitting, database)
    async with cluster(services, members=members, shards=SHARDS, **options) as running:
        yield running, database


async def use(members: Members, rates: Mapping[str, float], seconds: float) -> None:
    """Use keys so often a second, wherever they are."""
    for _ in range(round(seconds)):
        for key, rate in rates.items():
            for owner in members.owners(key):
                with owner.member.own(key, rate - 1) as shard:  # `owners` has counted 1
                    shard.state[key] = shard.state.get(key, 0) + 1
        await asyncio.sleep(1)


@virtual
async def test_a_split_closes_the_shard_and_opens_its_halves() -> None:
    """With the new ranges, a greater token, and what was in memory; everybody follows."""
    async with splitting() as (members, _), members.client() as client:
        first = members[0]
        shard = first.member.shards[0]
        keys = keys_in(shard, 10)
        await use(members, dict.fromkeys(keys, 5.0), 6)
        first.member.table()
        service_of(first).calls.clear()
        await first.member.split(shard)
        (closed, *opened) = service_of(first).calls
        assert closed == ("close", str(shard.range), shard.token)
        halves = [each for each in first.member.shards if each.range.lower in shard.range]
        halves.sort(key=lambda each: each.range.lower)
        assert [("open", str(each.range), each.token) for each in halves] == sorted(opened)
        assert halves[0].range.lower == shard.range.lower
        assert halves[0].range.upper == halves[1].range.lower
        assert halves[1].range.upper == shard.range.upper
        assert halves[0].token == halves[1].token > shard.token
        assert [sum(map(each.contains, keys)) for each in halves] == [5, 5]
        assert shard.ended.is_set()
        await members.settled()
        await asyncio.sleep(0.2)
        for each in members.all:
            assert len(each.member.table().ranges) == SHARDS + 1
            assert {each.member.table().owner(key) for key in keys} == {first.member.address}
        assert {client.owner(key) for key in keys} == {first.member.address}
        for key in keys:
            with first.member.own(key) as half:
                assert half.state[key] == 6
        await first.member.move(halves[1], members[1].member.address)
        await asyncio.sleep(0.2)
        assert {client.owner(key) for key in keys[5:]} == {members[1].member.address}
        assert {client.owner(key) for key in keys[:5]} == {first.member.address}


@virtual
async def test_a_key_moves_nowhere_while_its_shard_is_split() -> None:
    """`own` raises `Moved` without an owner, from the closing until its half is open; `resolve`
    waits; other shards are served. The pause is what `close` and `open` take.
    """
    async with splitting() as (members, _):
        first = members[0]
        shard, other = first.member.shards
        (key,), (elsewhere,) = keys_in(shard, 1), keys_in(other, 1)
        service_of(first).close_s, service_of(first).open_s = 2.0, 3.0
        split = asyncio.ensure_future(first.member.split(shard))
        pause = 0
        await asyncio.sleep(0.05)
        while not split.done():
            with pytest.raises(Moved) as moved:
                first.member.own(key)
            assert not moved.value.owner
            first.member.own(elsewhere)
            pause += 1
            await asyncio.sleep(0.1)
        first.member.own(key)
        assert pause == pytest.approx(50, abs=2)
        assert await members[1].member.resolve(key) == first.member.address


@virtual
async def test_the_old_owner_cannot_write_past_a_split() -> None:
    """What a database sees: all of the old token, then only the new, greater one, which both halves
    have; what was under way for the old one is refused once a half has written that key.
    """
    async with splitting() as (members, database):
        first = members[0]
        shard = first.member.shards[0]
        keys = keys_in(shard, 2)
        await database.put(keys[0], 1, shard.token)
        await first.member.split(shard)
        for key in keys:
            with first.member.own(key) as half:
                assert half.token > shard.token
                await database.put(key, 2, half.token)
        late = database.put(keys[0], 3, shard.token)
        with pytest.raises(Exception, match=keys[0]):
            await late
        assert database.rows[keys[0]] == 2


@virtual
async def test_a_shard_that_uses_much_of_its_member_is_split_until_none_does() -> None:
    """Its keys are half of what a member can do; after four checks it is split, and its halves,
    which use a quarter each, are not. What is asked for without a load of its own is left alone.
    """
    async with splitting(budgets={"requests": 100}) as (members, _):
        first = members[0]
        shard = first.member.shards[0]
        keys = keys_in(shard, 10)
        checks = asyncio.ensure_future(use(members, dict.fromkeys(keys, 5.0), 15 * MINUTE_S))
        await asyncio.sleep(3.9 * MINUTE_S)
        assert len(first.member.table().ranges) == SHARDS
        assert "50% of its member in 3 of more than 3 checks" in str(reasons(first, shard))
        await asyncio.sleep(0.5 * MINUTE_S)
        assert len(first.member.table().ranges) == SHARDS + 1
        await checks
        assert len(first.member.table().ranges) == SHARDS + 1
        (split,) = [each for each in first.member.decisions() if each["kind"] == "split"]
        assert split["reason"] == "PartOfMember"
        text = await first.member.metrics()
        assert 'loadmanager_decisions_total{member="member-0",strategy="ShardSplits"' in text
        assert split["why"]["limit"] == 25.0


@virtual
async def test_one_hot_key_is_never_split_for_ever() -> None:
    """Nor one with a little beside it: its shard stays whole, and the decision says why."""
    async with splitting(budgets={"requests": 100}) as (members, _):
        first = members[0]
        shard = first.member.shards[0]
        hot, *little = keys_in(shard, 20)
        await use(members, {hot: 85.0} | dict.fromkeys(little[:10], 1.0), 15 * MINUTE_S)
        assert len(first.member.table().ranges) == SHARDS
        assert "but one key carries 89%" in str(reasons(first, shard))
        with pytest.raises(ConflictError, match="one key carries"):
            await first.member.split(shard)


@virtual
async def test_splits_follow_weights_and_the_processor() -> None:
    """Without budgets: by the part of the load that a shard has on a busy member. One large key
    gets a half of its own, however many small ones there are.
    """
    async with splitting() as (members, _):
        first = members[0]
        first.cpu_percent = 60.0
        members[1].cpu_percent = 60.0
        shard = first.member.shards[0]
        keys = keys_in(shard, 9)
        weights = {keys[0]: 80.0} | dict.fromkeys(keys[1:], 10.0)
        await use(members, weights, 5 * MINUTE_S)
        (low, high) = sorted(
            (span for span, _ in first.member.table().ranges if span.lower in shard.range),
            key=lambda span: span.lower,
        )
        assert str(low.lower) != str(high.lower)
        owners = [each for each in first.member.shards if each.range == low]
        assert [each.contains(keys[0]) for each in owners] == [True]
        assert not any(owners[0].contains(key) for key in keys[1:])


@virtual
async def test_halves_that_stay_idle_become_one_shard_again() -> None:
    """After an hour, or what is set, wherever they are; never wider than the service began. What
    they had in memory is there, under a greater token.
    """
    settings = {"loadManagerBundleMergeIdleMinutes": "5"}
    async with splitting(settings=settings) as (members, _), members.client() as client:
        first, second = members[0], members[1]
        shard = first.member.shards[0]
        keys = keys_in(shard, 4)
        await use(members, dict.fromkeys(keys, 2.0), 6)
        await first.member.split(shard)
        half = next(each for each in first.member.shards if each.contains(keys[-1]))
        await first.member.move(half, second.member.address)
        token = next(each for each in second.member.shards if each.contains(keys[-1])).token
        await asyncio.sleep(4.9 * MINUTE_S)
        assert len(first.member.table().ranges) == SHARDS + 1
        await asyncio.sleep(2 * MINUTE_S)
        assert len(first.member.table().ranges) == SHARDS
        await asyncio.sleep(12 * MINUTE_S)
        assert first.member.table().ranges[0][0] == shard.range
        assert len(second.member.table().ranges) == SHARDS
        whole = next(each for each in first.member.shards if each.range == shard.range)
        assert whole.token > token
        assert whole.state == dict.fromkeys(keys, 6)
        assert client.owner(keys[0]) == client.owner(keys[-1]) == first.member.address


@virtual
async def test_a_split_that_does_not_suit_is_put_off() -> None:
    """The shard is served as before, and nothing was called."""
    async with splitting() as (members, _):
        first = members[0]
        shard = first.member.shards[0]
        service_of(first).not_now = "a call is on"
        service_of(first).calls.clear()
        with pytest.raises(OperationalError, match=r"not now: a call is on"):
            await first.member.split(shard)
        assert service_of(first).calls == []
        assert shard in first.member.shards


@virtual
async def test_a_half_that_cannot_be_opened_goes_to_another_member() -> None:
    """As any shard; the other one's keys lose nothing."""
    async with splitting() as (members, _):
        first = members[0]
        shard = first.member.shards[0]
        service_of(first).trouble = "cannot open"
        await first.member.split(shard)
        await members.settled()
        halves = [each for each in members[1].member.shards if each.range.lower in shard.range]
        assert len(halves) == 2


@virtual
async def test_a_close_that_hangs_in_a_split_gives_the_shard_up() -> None:
    """After ten seconds its halves are opened, by the same member; no other shard notices."""
    async with splitting() as (members, _):
        first = members[0]
        shard = first.member.shards[0]
        service_of(first).trouble = "hangs"
        began_s = asyncio.get_running_loop().time()
        await first.member.split(shard)
        service_of(first).trouble = ""
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(10, abs=0.1)
        assert len(first.member.shards) == SHARDS // 2 + 1


@virtual
async def test_a_member_that_dies_in_a_split_leaves_either_the_shard_or_its_halves() -> None:
    """Whenever it dies."""
    for after_s in (0.0, 0.01, 0.5, 1.5, 2.5):
        async with splitting(members=3) as (members, _):
            first = members[0]
            shard = first.member.shards[0]
            service_of(first).close_s = service_of(first).open_s = 1.0
            split = asyncio.ensure_future(first.member.split(shard))
            await asyncio.sleep(after_s)
            await members.kill(0)
            await asyncio.gather(split, return_exceptions=True)
            await members.settled()
            ranges = [span for span, owner in members[1].member.table().ranges if owner]
            assert len(ranges) in (SHARDS, SHARDS + 1)


class Prepares(Splitting):
    """Loads for 5 s, but has prepared."""

    async def prepare(self, shard: Shard[Any]) -> str:
        """Take long."""
        await asyncio.sleep(5)
        return str(shard.range)

    async def open(self, shard: Shard[Any]) -> dict[str, int]:
        """Take long, unless it is prepared."""
        await asyncio.sleep(5 if shard.prepared is None else 0)
        assert shard.prepared in (None, str(shard.range))
        return await super().open(shard)


@virtual
async def test_halves_are_prepared_before() -> None:
    """At the same member, while the whole shard is served."""
    async with cluster(partial(Prepares, Database()), members=2, shards=SHARDS) as members:
        first = members[0].member
        shard = first.shards[0]
        split = asyncio.ensure_future(first.split(shard))
        await asyncio.sleep(4.9)
        assert shard in first.shards
        await asyncio.sleep(0.3)
        await split
        halves = [each for each in first.shards if each.range.lower in shard.range]
        assert [each.prepared for each in halves] == [str(each.range) for each in halves]
        with pytest.raises(ConflictError, match="is not this member's"):
            await first.split(shard)


@virtual
async def test_a_service_that_does_not_say_so_is_never_split() -> None:
    """However much a shard is used; nor can settings or a program have it split."""
    async with cluster(
        partial(Counters, Database()), members=2, shards=SHARDS, budgets={"requests": 100}
    ) as members:
        shard = members[0].member.shards[0]
        keys = keys_in(shard, 10)
        await use(members, dict.fromkeys(keys, 10.0), 6 * MINUTE_S)
        assert len(members[0].member.table().ranges) == SHARDS
        with pytest.raises(BadInputError, match="splits = True"):
            await members[0].member.split(shard)
    with pytest.raises(BadInputError, match="splits = True"):
        Member(
            "zk://nowhere/service",
            Counters(Database()),
            address="http://a",
            settings={"loadBalancerAutoBundleSplitEnabled": "true"},
        )


def reasons(member: LocalMember, shard: Shard[Any]) -> list[str]:
    """Why a shard stays whole, the newest first."""
    return [
        skip["reason"]
        for decision in member.member.decisions()
        for skip in decision.get("skipped", ())
        if skip["what"] == str(shard.range)
    ]


def test_a_boundary_divides_the_load_or_there_is_none() -> None:
    """Each side gets a fifth, at least."""
    whole = BundleRange(0, 0xFFFFFFFF)
    keys = sorted((f"key {n}" for n in range(100)), key=topic_hash)
    ((place,), why) = halve(whole, dict.fromkeys(keys, 1.0))
    assert (why, sum(topic_hash(key) < place for key in keys)) == ("", 50)
    assert halve(whole, {}) == ((), "nothing is known of the load of its keys")
    assert halve(whole, {"a": 1.0}) == ((), "one key carries 100% of its load")
    assert halve(whole, {"a": 80.1, "b": 19.9})[0] == ()
    ((place,), _) = halve(whole, {"a": 80.0, "b": 20.0})
    assert min(map(topic_hash, "ab")) < place <= max(map(topic_hash, "ab"))


def test_a_package_may_choose_the_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """If its algorithm is the one in force; its answers are checked."""
    monkeypatch.setitem(ALGORITHMS, "first_key", lambda span, keys, limits: [min(hashes) + 1])
    monkeypatch.setitem(ALGORITHMS, "edge", lambda span, keys, limits: [span.lower])
    span, loads = BundleRange(0, 0xFFFFFFFF), dict.fromkeys("abc", 1.0)
    hashes = sorted(map(topic_hash, loads))
    settings = SplitSettings()
    assert boundaries_of("first_key", span, loads, settings) == ((hashes[0] + 1,), "")
    assert boundaries_of("edge", span, loads, settings)[1] == "edge splits at its edge"
    assert boundaries_of(settings.algorithm, span, loads, settings)[1] == ""


class StandsBy(Prepares):
    """Each shard has a copy elsewhere."""

    standbys = 1


@virtual
async def test_halves_have_standbys_too() -> None:
    """Made for their ranges; when their member dies, they are opened from those."""
    async with cluster(partial(StandsBy, Database()), members=3, shards=SHARDS) as members:
        first = members[0].member
        shard = first.shards[0]
        await first.split(shard)
        await asyncio.sleep(60)
        await members.kill(0)
        await members.settled()
        halves = [
            each
            for member in members.all[1:]
            for each in member.member.shards
            if each.range.lower in shard.range
        ]
        assert sorted(each.prepared for each in halves) == sorted(
            str(each.range) for each in halves
        )
        assert len(halves) == 2
