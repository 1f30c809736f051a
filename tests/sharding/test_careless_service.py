"""Services whose hooks and tasks do what they should not: it costs them a shard, for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from loadmanager import Member, Moved, Shard
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.testing import Members, cluster, virtual

Hook = Callable[[Shard[Any]], Awaitable[None]]


async def fine(shard: Shard[Any]) -> None:
    """Do what a hook should do."""


async def fails(shard: Shard[Any]) -> None:
    """As if the database were away."""
    raise OSError("away")


async def hangs(shard: Shard[Any]) -> None:
    """As if the database never answered."""
    await asyncio.Event().wait()


async def is_cancelled(shard: Shard[Any]) -> None:
    """Wait for a task that somebody has cancelled."""
    task = asyncio.ensure_future(asyncio.sleep(100))
    task.cancel()
    await task


async def never_mind(shard: Shard[Any]) -> None:
    """Go on for 500 s after being cancelled."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(100)
    await asyncio.sleep(500)


async def is_slow(shard: Shard[Any]) -> None:
    """Take a few seconds."""
    await asyncio.sleep(5)


class Service:
    """Its hooks can be exchanged."""

    def __init__(self) -> None:
        self.on_open: Hook = fine
        self.on_close: Hook = fine
        self.tried: list[Shard[Any]] = []
        self.closed: list[Shard[Any]] = []

    async def open(self, shard: Shard[Any]) -> None:
        """Open it, if the hook lets it."""
        self.tried.append(shard)
        await self.on_open(shard)

    async def close(self, shard: Shard[Any], state: None) -> None:
        """Close it, likewise."""
        await self.on_close(shard)
        self.closed.append(shard)


def services(**of_the_first: Hook) -> Callable[[], Service]:
    """What makes services; the hooks are those of the first."""
    made: list[Service] = []

    def make() -> Service:
        service = Service()
        if not made:
            vars(service).update(of_the_first)
        made.append(service)
        return service

    return make


def owner_of(members: Members, shard: Shard[Any]) -> Member[Any]:
    """The only one that serves the shard's range now."""
    (owner,) = [
        each.member
        for each in members.all
        if each.alive and shard.name in [mine.name for mine in each.member.shards]
    ]
    return owner


@virtual
async def test_an_open_that_is_cancelled_from_within_costs_that_shard() -> None:
    """Nobody cancelled the member: others get its shards, at once."""
    async with cluster(services(on_open=is_cancelled), members=3, shards=16) as members:
        assert [len(each.member.shards) for each in members.all] == [0, 8, 8]


@virtual
async def test_a_close_that_is_cancelled_from_within_gives_the_shard_up() -> None:
    """The next owner has it at once."""
    async with cluster(services(on_close=is_cancelled), members=2, shards=4) as members:
        source, target = members[0].member, members[1].member
        shard = source.shards[0]
        await source.move(shard, target.address)
        assert owner_of(members, shard) is target


@virtual
async def test_what_a_failed_open_has_started_learns_that_it_failed() -> None:
    """`ended` is set; `check` raises even when the same member has opened the shard again."""
    async with cluster(services(on_open=fails), members=2, shards=2) as members:
        first = members[0]
        first.service.on_open = fine  # type: ignore[attr-defined]
        failed = first.service.tried[0]  # type: ignore[attr-defined]
        assert failed.ended.is_set()
        await asyncio.sleep(400)
        owner = owner_of(members, failed)
        if owner is not first.member:
            (shard,) = (each for each in owner.shards if each.name == failed.name)
            await owner.move(shard, first.member.address)
        with pytest.raises(Moved):
            failed.check()


@virtual
async def test_an_open_that_ends_too_late_changes_nothing() -> None:
    """It goes on in spite of being cancelled; meanwhile the member opened the shard again."""
    async with cluster(services(on_open=never_mind), members=2, shards=2) as members:
        first, second = members[0], members[1].member
        first.service.on_open = fine  # type: ignore[attr-defined]
        late = first.service.tried[0]  # type: ignore[attr-defined]
        (shard,) = (each for each in second.shards if each.name == late.name)
        await second.move(shard, first.member.address)
        again = first.member.shards
        assert [each.name for each in again] == [late.name]
        assert again[0].token > late.token
        await asyncio.sleep(600)
        assert first.member.shards == again
        assert not again[0].ended.is_set()


@virtual
async def test_an_open_during_which_the_session_ends_opens_nothing() -> None:
    """Its shard has ended; another member has it."""

    async def slow(shard: Shard[Any]) -> None:
        await asyncio.sleep(50)

    async with cluster(services(), members=2, shards=2) as members:
        first, second = members[0], members[1].member
        first.service.on_open = slow  # type: ignore[attr-defined]
        shard = second.shards[0]
        move = asyncio.ensure_future(second.move(shard, first.member.address))
        await asyncio.sleep(1)
        opening = first.service.tried[-1]  # type: ignore[attr-defined]
        assert opening.name == shard.name
        first.cut()
        await asyncio.sleep(20)
        assert opening.ended.is_set()
        first.heal()
        with suppress(OperationalError):
            await move
        await members.settled()
        assert opening not in first.member.shards


@virtual
async def test_close_is_neither_called_nor_goes_on_without_the_session() -> None:
    """The next owner has opened the shard by then."""
    late: list[Shard[Any]] = []

    async def slow(shard: Shard[Any]) -> None:
        await asyncio.sleep(9)
        late.append(shard)

    for on_close, busy_s in ((slow, 0.0), (fine, 4.9)):
        async with cluster(services(on_close=on_close), members=2, shards=2) as members:
            first = members[0]
            shard = first.member.shards[0]

            async def work(shard: Shard[Any] = shard, busy_s: float = busy_s) -> None:
                with shard:
                    await asyncio.sleep(busy_s)

            first.cut()
            await asyncio.sleep(5.5)
            working = asyncio.ensure_future(work())
            await asyncio.sleep(0)
            move = asyncio.ensure_future(first.member.move(shard, members[1].member.address))
            await asyncio.sleep(20)
            assert owner_of(members, shard) is members[1].member
            assert first.service.closed == []  # type: ignore[attr-defined]
            first.heal()
            await working
            with pytest.raises(ConflictError):
                await move
    assert late == []


@virtual
async def test_move_is_about_one_ownership_and_another_member() -> None:
    """A shard stays where it is sent from; one that has ended does not move its successor."""
    async with cluster(services(), members=2, shards=2) as members:
        source, target = members[0].member, members[1].member
        shard, other = source.shards[0], target.shards[0]
        await source.move(shard, source.address)
        assert source.shards == [shard]
        await source.move(shard, target.address)
        (again,) = (each for each in target.shards if each is not other)
        await target.move(again, source.address)
        with pytest.raises(ConflictError):
            await source.move(shard, target.address)
        assert [each.name for each in source.shards] == [shard.name]


@virtual
async def test_a_killed_member_does_nothing_more() -> None:
    """Its tasks cannot be ended from outside, but they own nothing."""
    async with cluster(services(), members=2, shards=2) as members:
        shard = members[0].member.shards[0]
        key = next(key for key in map(str, range(100)) if shard.contains(key))
        await members.kill(0)
        assert shard.ended.is_set()
        with pytest.raises(Moved):
            members[0].member.own(key)


@virtual
async def test_whoever_moves_a_shard_is_not_cancelled_with_the_member() -> None:
    """Nobody cancelled that task: it gets an error that it can handle."""
    async with cluster(services(on_close=is_slow), members=2, shards=2) as members:
        source = members[0].member
        moving = asyncio.ensure_future(source.move(source.shards[0], members[1].member.address))
        await asyncio.sleep(1)
        await members.kill(0)
        with pytest.raises(OperationalError, match="this member has ended"):
            await moving


def test_another_number_of_shards_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise whoever raises it believes that there are more now."""

    @virtual
    async def run() -> None:
        async with cluster(services(), members=1, shards=4) as members:
            assert "another number of shards" not in capsys.readouterr().out
            members._options["shards"] = 8
            await members.start()
            assert "another number of shards" in capsys.readouterr().out
            members._options["shards"] = 4
            await members.settled()

    run()


@virtual
async def test_a_member_that_was_away_for_a_moment_opens_its_shards_again() -> None:
    """Its session goes on, and so do its claims: nobody else can have them, and nobody asks."""
    async with cluster(services(), members=3, shards=6) as members:
        before = {each.number: sorted(map(str, each.member.shards)) for each in members.all}
        assert all(before.values())
        for each in members.all:
            each.cut()
        await asyncio.sleep(9.9)
        assert not any(each.member.shards for each in members.all)
        for each in members.all:
            each.heal()
        await members.settled()


class Figures(Service):
    """Has bugs in all it says of its shards, from the start."""

    def load(self, shard: Shard[Any]) -> dict[str, float]:
        """Fail."""
        raise ZeroDivisionError("a bug")

    def cost(self, shard: Shard[Any]) -> float:
        """Fail."""
        raise ZeroDivisionError("a bug")


def test_bugs_in_what_a_service_says_cost_only_those_answers() -> None:
    """Members start and serve; what `own` counts is a load all the same; the log names each hook of
    the service once, and the metrics count all failures.
    """

    @virtual
    async def run() -> None:
        async with cluster(Figures, members=2, shards=4, budgets={"requests": 100}) as members:
            first = members[0].member
            shard = first.shards[0]
            key = next(key for key in map(str, range(100)) if shard.contains(key))
            for _ in range(20):
                first.own(key, 50.0)
                await asyncio.sleep(1)
            text = await first.metrics()
            for hook in ("load", "cost"):
                (line,) = (line for line in text.splitlines() if f'hook="{hook}"' in line)
                assert float(line.rpartition(" ")[2]) > 5
            (usage,) = (line for line in text.splitlines() if 'feature="max"' in line)
            assert float(usage.rpartition(" ")[2]) == pytest.approx(0.5, abs=0.1)

    with capture_logs() as lines:
        run()
    failed = [line["hook"] for line in lines if line["event"] == "a hook of the service failed"]
    assert sorted(failed) == ["cost", "cost", "load", "load"]  # of two members


TRIES: dict[Hook, list[float]] = {fails: [0, 10, 30, 70, 150], hangs: [0, 70, 150, 250]}
"""When a member gets its next shard that fails all the time: after 10 s, then 20, up to 5 minutes,
beside the 60 s of an `open` that hangs.
"""


class Preparing(Service):
    """Has a standby copy of each shard."""

    standbys = 1

    async def prepare(self, shard: Shard[Any]) -> None:
        """There is nothing to prepare."""


@virtual
@pytest.mark.parametrize(("kind", "hook"), [(Service, fails), (Preparing, hangs)])
async def test_a_newcomer_that_cannot_open_gets_no_shard_again_and_again(
    hook: Hook, kind: type[Service]
) -> None:
    """Its failures count together, and each time it is another shard, which then goes to a member
    that can open it: none is dark for longer than one `open`.
    """
    async with cluster(kind, members=2, shards=12) as members:
        await asyncio.sleep(5)
        newcomer, began_s = await members.start(), asyncio.get_running_loop().time()
        tries: dict[str, float] = {}

        async def on_open(shard: Shard[Any]) -> None:
            assert shard.name not in tries
            tries[shard.name] = asyncio.get_running_loop().time() - began_s
            await hook(shard)

        newcomer.service.on_open = on_open  # type: ignore[attr-defined]
        dark_s = 0.0
        while asyncio.get_running_loop().time() - began_s < 300:
            await asyncio.sleep(1)
            shares = [len(each.member.shards) for each in members.all]
            dark_s += 12 - sum(shares)
        assert list(tries.values()) == pytest.approx(TRIES[hook], abs=3)
        assert dark_s < len(tries) * (63 if hook is hangs else 3)
        newcomer.service.on_open = fine  # type: ignore[attr-defined]
        await asyncio.sleep(200)
        assert len(newcomer.member.shards) >= 2


@virtual
async def test_a_shard_that_nobody_can_open_keeps_no_newcomer_from_its_share() -> None:
    """It is the shard's failure, not that of all who try."""
    made: list[Service] = []

    async def on_open(shard: Shard[Any]) -> None:
        if shard.contains("poison"):
            raise OSError("damaged")

    def make() -> Service:
        made.append(Service())
        made[-1].on_open = on_open
        return made[-1]

    async with cluster(make, members=2, shards=8, settle=False) as members:
        await asyncio.sleep(100)
        assert sum(len(each.member.shards) for each in members.all) == 7
        newcomer = await members.start()
        await asyncio.sleep(15)
        assert newcomer.member.shards


class Following(Preparing):
    """Pays no heed to being cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Shard[Any]] = []

    async def follow(self, shard: Shard[Any]) -> None:
        """Go on for a minute."""
        self.copies.append(shard)
        until_s = asyncio.get_running_loop().time() + 60
        while (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left_s)


@virtual
async def test_a_follow_that_goes_on_when_it_is_cancelled_is_left_to_itself() -> None:
    """What its member has to serve is opened from nothing, after 5 s; a member with such ones can
    leave. The log and a metric name the hook.
    """
    async with cluster(Following, members=3, shards=6) as members:
        await asyncio.sleep(10)
        loop, dead = asyncio.get_running_loop(), members[0]
        lost = {shard.name for shard in dead.member.shards}
        with capture_logs() as lines:
            began_s = loop.time()
            await members.kill(0)
            assert loop.time() - began_s < 6
            began_s = loop.time()
            await members.settled()
        assert loop.time() - began_s < 17  # the session, and 5 s
        for each in members.all[1:]:
            copies: list[Shard[Any]] = each.service.copies  # type: ignore[attr-defined]
            taken = {shard.name for shard in each.member.shards} & lost
            assert taken
            assert not {*copies} & {*each.member.shards}
            assert all(copy.ended.is_set() for copy in copies if copy.name in taken)
        (text,) = {line["error"] for line in lines if line.get("hook") == "follow"}
        assert text == "the service's follow went on for 5 s after it was cancelled"
        assert 'hook="follow"' in await members[1].member.metrics()
        began_s = loop.time()
        await members[1].stop()
        assert loop.time() - began_s < 12
        await members.settled()
        assert len(members[2].member.shards) == 6
