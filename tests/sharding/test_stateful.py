"""Moves of shards whose state takes long to load: prepared at the destination, or not now."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from loadmanager import Moved, NotNow, Shard
from loadmanager.kit.errors import OperationalError
from loadmanager.testing import LocalMember, Members, cluster, virtual

LOAD_S = 5.0
ROWS: dict[str, int] = {}
"""The database."""


class Loads:
    """Loads for `LOAD_S`."""

    def __init__(self) -> None:
        self.opened: list[Shard[Any]] = []

    async def open(self, shard: Shard[Any]) -> dict[str, int]:
        """Load everything."""
        await asyncio.sleep(LOAD_S)
        self.opened.append(shard)
        return {key: row for key, row in ROWS.items() if shard.contains(key)}

    async def close(self, shard: Shard[Any], state: dict[str, int]) -> None:
        """Save."""
        ROWS.update(state)


class Prepares(Loads):
    """Has loaded before."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[Shard[Any]] = []
        self.costs: dict[str, float] = {}
        self.fails = False
        self.not_now = ""
        self.asked = 0

    async def prepare(self, shard: Shard[Any]) -> dict[str, int]:
        """Load everything."""
        assert shard.token == 0
        self.asked += 1
        if self.not_now:
            raise NotNow(self.not_now)
        self.prepared.append(shard)
        await asyncio.sleep(LOAD_S)
        if self.fails:
            raise OSError("no room")
        return {key: row for key, row in ROWS.items() if shard.contains(key)}

    async def open(self, shard: Shard[Any]) -> dict[str, int]:
        """Load what has changed since."""
        assert shard.token > 0
        if shard.prepared is None:
            return await super().open(shard)
        await asyncio.sleep(0.01)
        self.opened.append(shard)
        return shard.prepared | {key: row for key, row in ROWS.items() if shard.contains(key)}

    def cost(self, shard: Shard[Any]) -> float:
        """What a move costs now."""
        if self.not_now:
            raise NotNow(self.not_now)
        return self.costs.get(shard.name, 0.0)


def service(member: LocalMember) -> Prepares:
    """Of a member."""
    assert isinstance(member.service, Prepares)
    return member.service


def key_of(shard: Shard[Any]) -> str:
    """A key in a shard."""
    return next(key for number in range(100_000) if shard.contains(key := f"key {number}"))


async def counted(members: Members, key: str, every_s: float = 0.01) -> float:
    """Count on a key for a minute; returns for how long nobody had it."""
    without = 0
    for _ in range(round(60 / every_s)):
        await asyncio.sleep(every_s)
        owners = members.owners(key)
        if owners:
            with owners[0].member.own(key) as shard:
                shard.state[key] = shard.state.get(key, 0) + 1
        else:
            without += 1
    return without * every_s


@pytest.mark.parametrize(("kind", "pause_s"), [(Loads, LOAD_S), (Prepares, 0.05)])
def test_a_move_pauses_for_what_is_not_prepared(kind: type[Loads], pause_s: float) -> None:
    """While the destination prepares, the source serves; not one count is lost."""

    @virtual
    async def run() -> None:
        ROWS.clear()
        async with cluster(kind, members=2, shards=4) as members:
            source, target = members[0].member, members[1].member
            shard = source.shards[0]
            key = key_of(shard)
            counting = asyncio.ensure_future(counted(members, key))
            await asyncio.sleep(1)
            await source.move(shard, target.address)
            without_s = await counting
            assert without_s == pytest.approx(pause_s, abs=0.06)
            (owner,) = members.owners(key)
            assert owner is members[1]
            assert owner.member.own(key).state[key] == 6_000 - round(without_s * 100)

    run()


@virtual
async def test_a_shard_stays_when_its_destination_cannot_prepare() -> None:
    """It is served all the time; what was prepared has ended."""
    async with cluster(Prepares, members=2, shards=4) as members:
        source, target = members[0].member, members[1]
        service(target).fails = True
        shard = source.shards[0]
        with pytest.raises(OperationalError, match="prepare failed: OSError: no room"):
            await source.move(shard, target.member.address)
        assert source.own(key_of(shard)) is shard
        (left,) = service(target).prepared
        assert left.ended.is_set()


@virtual
async def test_a_member_that_cannot_prepare_is_not_asked_all_the_time() -> None:
    """It gets its share when it can."""
    async with cluster(Prepares, members=2, shards=8) as members:
        joined = await members.start()
        service(joined).not_now = "no room"
        await asyncio.sleep(60)
        assert joined.member.shards == []
        assert 5 <= service(joined).asked <= 7
        service(joined).not_now = ""
        await asyncio.sleep(60)
        assert len(joined.member.shards) == 2


@virtual
async def test_what_was_prepared_in_vain_is_let_go() -> None:
    """The source dies meanwhile: its successor opens the shard, prepared or not."""
    async with cluster(Prepares, members=3, shards=6) as members:
        shard = members[0].member.shards[0]
        moving = asyncio.ensure_future(members[0].member.move(shard, members[1].member.address))
        await asyncio.sleep(LOAD_S / 2)
        await members.kill(0)
        await members.settled()
        await asyncio.sleep(30)
        (prepared,) = service(members[1]).prepared
        owner = await members.owner(key_of(shard))
        mine = owner.member.own(key_of(shard))
        assert (mine is prepared) != prepared.ended.is_set()
        moving.cancel()


@virtual
async def test_a_destination_that_dies_while_it_prepares_holds_nobody_up() -> None:
    """The shard is served where it is."""
    async with cluster(Prepares, members=2, shards=4) as members:
        source, shard = members[0].member, members[0].member.shards[0]
        moving = asyncio.ensure_future(source.move(shard, members[1].member.address))
        await asyncio.sleep(LOAD_S / 2)
        await members.kill(1)
        with pytest.raises(OperationalError, match="is gone"):
            await moving
        assert source.own(key_of(shard)) is shard


@virtual
async def test_moves_of_the_leader_are_prepared_too_and_deaths_are_not() -> None:
    """A member that joins gets its share without a pause."""
    async with cluster(Prepares, members=2, shards=8) as members:
        keys = [key_of(shard) for each in members.all for shard in each.member.shards]
        counting = [asyncio.ensure_future(counted(members, key, 0.04)) for key in keys]
        await members.start()
        assert max(await asyncio.gather(*counting)) < 0.1
        assert len(members[2].member.shards) == 2
        assert len(service(members[2]).prepared) == 2
        await members.kill(2)
        await members.settled()
        assert not any(service(members[number]).prepared for number in (0, 1))


@virtual
async def test_a_service_says_not_now_and_what_is_cheap() -> None:
    """The leader moves nothing that is not to be moved, and the cheapest first."""
    async with cluster(Prepares, members=2, shards=12) as members:
        for each in members.all:
            shards = each.member.shards
            service(each).costs = {shard.name: math.inf for shard in shards[:4]}
            service(each).costs[shards[4].name] = 7.0
        await asyncio.sleep(10)
        await members.start()
        await asyncio.sleep(120)
        got = {shard.name for shard in members[2].member.shards}
        assert len(got) == 4
        costs = service(members[0]).costs | service(members[1]).costs
        assert all(costs.get(name) != math.inf for name in got)
        came = [costs.get(shard.name) for shard in service(members[2]).prepared]
        assert came == [None, None, 7.0, 7.0]


@virtual
async def test_a_busy_member_keeps_what_is_not_to_be_moved() -> None:
    """However busy it is."""
    async with cluster(Prepares, members=2, shards=8) as members:
        busy = members[0]
        busy.cpu_percent = 95.0
        service(busy).costs = {shard.name: math.inf for shard in busy.member.shards}
        before = list(busy.member.shards)
        keys = [key_of(shard) for shard in before]
        for _ in range(7 * 12):
            await asyncio.sleep(5)
            for key in keys:
                busy.member.own(key)
        assert busy.member.shards == before
        service(busy).costs.clear()
        for _ in range(15 * 12):
            await asyncio.sleep(5)
            for key in keys:
                try:
                    busy.member.own(key)
                except Moved:
                    return
        raise AssertionError("nothing has moved")


@virtual
async def test_a_service_says_why_not_now() -> None:
    """The leader's decisions repeat it; whoever asks for a move to such a member gets it."""
    async with cluster(Prepares, members=2, shards=8) as members:
        busy = members[0]
        busy.cpu_percent = 95.0
        service(busy).not_now = "a call is on"
        shards = list(busy.member.shards)
        keys = [key_of(shard) for shard in shards]
        for _ in range(7 * 12):
            await asyncio.sleep(5)
            for key in keys:
                busy.member.own(key)
        assert busy.member.shards == shards
        decisions = [each for member in members.all for each in member.member.decisions()]
        why = {skip["reason"] for each in decisions for skip in each.get("skipped", ())}
        assert any(text.endswith("the service says: not now: a call is on") for text in why), why
        other = members[1].member
        with pytest.raises(OperationalError, match="not now: a call is on"):
            await other.move(other.shards[0], busy.member.address)


@virtual
async def test_a_cost_that_fails_is_none() -> None:
    """It costs neither the member nor the other answers."""
    async with cluster(Prepares, members=2, shards=4) as members:
        service(members[0]).costs = {members[0].member.shards[0].name: "a lot"}  # type: ignore[dict-item]
        await asyncio.sleep(60)
        assert members[0].member._joined.costs.of(members[0].member.shards[0].bundle) == 0.0
        assert len(members[0].member.shards) == 2


class Cancels(Prepares):
    """Its `cost` ends as a task does that somebody has cancelled."""

    def cost(self, shard: Shard[Any]) -> float:
        """None."""
        raise asyncio.CancelledError


@virtual
async def test_a_cost_fails_alone_however_it_fails() -> None:
    """The step that tells the others goes on; the log names the hook."""
    async with cluster(Cancels, members=2, shards=4) as members:
        await asyncio.sleep(30)
        for each in members.all:
            assert each.member._joined.parts.base.steps.failures["tell-costs"] == 0
            assert each.member._joined.host.extra.failures["cost"] > 0


@virtual
async def test_any_text_says_not_now() -> None:
    """It is told in characters that can be written, and not too many."""
    async with cluster(Prepares, members=2, shards=4) as members:
        service(members[0]).not_now = "half \ud800 of it\n" + "and so on " * 100_000
        await asyncio.sleep(30)
        assert members[0].member._joined.parts.base.steps.failures["tell-costs"] == 0
        (why, *_) = (pin.note for pin in members[1].member._joined.costs.stays().values())
        assert "not now: half \\ud800 of it\\nand so on" in why
        assert len(why) < 300
