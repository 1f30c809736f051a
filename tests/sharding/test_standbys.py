"""Standby copies: who has them, and that they take over first."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from loadmanager import BadInputError, Member, NotNow, Shard
from loadmanager.sharding.standbys import Orders, Owned, StandbyPlan
from loadmanager.testing import LocalMember, Members, cluster, virtual

LOAD_S = 3.0
ROWS: dict[str, int] = {}
"""The database."""


class Rooms:
    """Takes long to load, and follows the database meanwhile."""

    standbys = 1

    def __init__(self) -> None:
        self.opened: list[tuple[Shard[Any], bool]] = []
        """Shards, and whether they were opened from a copy."""
        self.copies: list[Shard[Any]] = []
        self.following: set[Shard[Any]] = set()
        self.overlaps = 0
        self.fails: Exception | None = None

    async def prepare(self, shard: Shard[Any]) -> dict[str, int]:
        """Load everything."""
        if self.fails is not None:
            raise self.fails
        await asyncio.sleep(LOAD_S)
        self.copies.append(shard)
        return dict(ROWS)

    async def follow(self, shard: Shard[Any]) -> None:
        """Keep it current."""
        self.following.add(shard)
        try:
            while True:
                await asyncio.sleep(5)
                shard.prepared.update(ROWS)
        finally:
            self.following.discard(shard)

    async def open(self, shard: Shard[Any]) -> dict[str, int]:
        """From the copy, or everything."""
        self.overlaps += shard in self.following
        copied = shard.prepared is not None
        if not copied:
            await asyncio.sleep(LOAD_S)
        self.opened.append((shard, copied))
        return dict(shard.prepared) if copied else dict(ROWS)

    async def close(self, shard: Shard[Any], state: dict[str, int]) -> None:
        """All is saved."""


def rooms(member: LocalMember) -> Rooms:
    """The service of a member."""
    assert isinstance(member.service, Rooms)
    return member.service


async def copied(members: Members) -> None:
    """Wait until every shard has its copies, on other members."""
    alive = [member for member in members.all if member.alive]
    count = members._options["shards"] * min(1, len(alive) - 1)
    async with asyncio.timeout(300):
        while True:
            copies = [shard.name for each in alive for shard in rooms(each).following]
            if len(copies) == len(set(copies)) == count:
                return
            await asyncio.sleep(1)


@virtual
async def test_a_standby_takes_over_with_what_it_has() -> None:
    """After a death no shard is loaded anew: each opens from its copy, which was current, and whose
    `follow` has ended. What the dead one had goes to all others, and gets new standbys.
    """
    ROWS.clear()
    async with cluster(Rooms, members=3, shards=12) as members:
        await copied(members)
        ROWS["written"] = 1
        await asyncio.sleep(6)
        dead = members[0]
        lost = {shard.name for shard in dead.member.shards}
        began_s = asyncio.get_running_loop().time()
        await members.kill(0)
        await members.settled()
        assert asyncio.get_running_loop().time() - began_s < 12  # the session, and no loading
        for survivor in members.all[1:]:
            taken = [each for each in rooms(survivor).opened if each[0].name in lost]
            assert len(taken) == 2
            for shard, from_copy in taken:
                assert from_copy
                assert shard.token > 0
                assert not shard.ended.is_set()
                assert shard.state == {"written": 1}
            assert rooms(survivor).overlaps == 0
        await copied(members)
        owned = {shard for each in members.all[1:] for shard in each.member.shards}
        assert not owned & {shard for each in members.all for shard in rooms(each).following}


@virtual
async def test_copies_of_a_standby_that_dies_are_made_elsewhere() -> None:
    """And each member has its part of them, also one that joins."""
    async with cluster(Rooms, members=3, shards=12) as members:
        await copied(members)
        await members.kill(2)
        await members.settled()
        await copied(members)
        counts = [len(rooms(each).following) for each in members.all[:2]]
        assert counts == [6, 6]
        joined = await members.start()
        async with asyncio.timeout(300):
            while len(joined.member.shards) < 4 or len(rooms(joined).following) < 2:
                await asyncio.sleep(1)
        await copied(members)
        for each in members.all:
            if each.alive:
                now = rooms(each).following
                assert all(
                    shard.ended.is_set() != (shard in now)
                    for shard in rooms(each).copies
                    if shard.token == 0
                )


@virtual
async def test_a_move_goes_to_the_copy_without_another_one() -> None:
    """`Member.move` to the standby prepares nothing; leaving does the same for all."""
    async with cluster(Rooms, members=3, shards=12) as members:
        await copied(members)
        shard = next(iter(rooms(members[1]).following))
        source = next(
            each.member
            for each in members.all
            for mine in each.member.shards
            if mine.name == shard.name
        )
        (mine,) = (each for each in source.shards if each.name == shard.name)
        before = len(rooms(members[1]).copies)
        await source.move(mine, members[1].member.address)
        assert rooms(members[1]).opened[-1] == (shard, True)
        assert len(rooms(members[1]).copies) == before
        await copied(members)
        leaving = {each.name for each in members[0].member.shards}
        copies = list(rooms(members[0]).following)
        await members[0].stop()
        assert copies
        assert all(copy.ended.is_set() for copy in copies)
        assert rooms(members[0]).following == set()
        await members.settled()
        for each in members.all[1:]:
            assert all(
                from_copy
                for shard, from_copy in rooms(each).opened
                if shard.name in leaving and not shard.ended.is_set()
            )


@virtual
async def test_a_copy_that_fails_is_tried_again_and_costs_nothing_else() -> None:
    """Later each time; shards are served meanwhile, and taken over without a copy."""
    async with cluster(Rooms, members=2, shards=4) as members:
        await copied(members)
        failing = rooms(members[1])
        failing.fails = NotNow("no room")
        for shard in list(failing.following):
            shard.prepared = None  # `follow` raises
        await asyncio.sleep(20)
        assert failing.following == set()
        page = await members[1].member.metrics()
        assert [
            line.rpartition(" ")[2] for line in page.split("\n") if 'hook="follow"' in line
        ] == ["2.0"]
        await members.kill(0)
        await members.settled()
        assert sum(not from_copy for _, from_copy in failing.opened) == 4
        failing.fails = None
        await members.start()
        await copied(members)


@pytest.mark.parametrize(("standbys", "eager"), [(1, False), (4, True), (-1, True), ("1", True)])
def test_standbys_that_are_not_possible_are_refused(standbys: object, eager: bool) -> None:
    """With what is."""
    service = Rooms()
    service.standbys = standbys  # type: ignore[assignment]
    with pytest.raises(BadInputError, match="standbys"):
        Member("zk://h/x", service, address="http://h:1", eager=eager)


def test_a_member_that_fails_to_open_keeps_its_copies_and_gets_no_more() -> None:
    """Copies that are dropped for a moment would all be made anew."""
    holders = dict.fromkeys(SHARDS, "m0")
    before: Orders = {"m1": SHARDS[:1]}
    plan = StandbyPlan(SHARDS, Owned(holders.get, lambda _bundle: True), NAMES, {"m1"})
    plan.keep(before, 1)
    plan.complete(1)
    plan.even_out()
    assert plan.orders()["m1"] == SHARDS[:1]


NAMES = [f"m{number}" for number in range(5)]
SHARDS = [f"s{number:03}" for number in range(100)]


def planned(holders: dict[str, str], members: list[str], before: Orders, count: int) -> Orders:
    """The orders of a plan in which every shard is served."""
    plan = StandbyPlan(SHARDS, Owned(holders.get, lambda bundle: bundle in holders), members)
    plan.keep(before, count)
    plan.complete(count)
    return plan.orders()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_plan_spreads_what_each_member_leaves_behind(count: int) -> None:
    """Over all others, evenly; a second plan changes nothing; after a death, whatever can stay
    does.
    """
    holders = {bundle: NAMES[at % 5] for at, bundle in enumerate(SHARDS)}
    orders = planned(holders, NAMES, {}, count)
    for name in NAMES:
        behind = Counter(
            member for member in NAMES for bundle in orders[member] if holders[bundle] == name
        )
        assert name not in behind
        assert max(behind.values()) - min(behind.values()) <= 1
        assert len(behind) == 4
    assert planned(holders, NAMES, orders, count) == orders
    left = NAMES[1:]
    holders = {
        bundle: next((m for m in left if bundle in orders[m]), holder) if holder == "m0" else holder
        for bundle, holder in holders.items()
    }
    after = planned(holders, left, orders, count)
    for member in left:
        stays = {bundle for bundle in orders[member] if holders[bundle] != member}
        assert stays <= set(after[member])
    assert sum(map(len, after.values())) == 100 * min(count, 3)
    with suppress(KeyError):
        raise AssertionError(after["m0"])
