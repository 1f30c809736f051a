"""What an author of a service may rely on where something is slow, doubled, or taken away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from loadmanager import BadInputError, Member, Moved, Shard
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.metadata.store import Create
from loadmanager.testing import LocalMember, Members, cluster, virtual

LOADS_S = 40.0


class Slow:
    """Its `open` takes as long as it is told."""

    def __init__(self, opens_s: float = 0.0) -> None:
        self.opens_s = opens_s
        self.opened: dict[str, float] = {}

    async def open(self, shard: Shard[Any]) -> str:
        """Load."""
        await asyncio.sleep(self.opens_s)
        self.opened[shard.name] = now_s()
        return "loaded"

    async def close(self, shard: Shard[Any], state: str) -> None:
        """Nothing to save."""


def now_s() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


def key_of(shard: Shard[Any]) -> str:
    """A key in a shard."""
    return next(key for number in range(100_000) if shard.contains(key := f"key {number}"))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The lines of `logging`, where no program has configured structlog."""
    before = structlog.get_config()
    structlog.reset_defaults()
    with caplog.at_level(logging.INFO):
        yield caplog
    structlog.configure(**before)


def texts(lines: pytest.LogCaptureFixture) -> str:
    """All lines."""
    return "\n".join(line.getMessage() for line in lines.records)


async def join(members: Members, number: int, **fields: Any) -> LocalMember:
    """One more member, with an address and options of its own."""
    service = Slow()
    options: dict[str, Any] = {"address": f"http://member-{number}", "shards": 4, **fields}
    member = LocalMember(number, service, Member("zk://nowhere/service", service, **options))
    await member.start(members._tree)
    members.all.append(member)
    return member


def test_nobody_is_sent_to_an_owner_that_does_not_serve_yet(
    lines: pytest.LogCaptureFixture,
) -> None:
    """`Moved` names nobody while the destination loads; `move` and `resolve` wait for it, and so
    does the pause that is told.
    """

    @virtual
    async def run() -> None:
        async with cluster(Slow, members=3, shards=6) as members:
            source, target, third = (each.member for each in members.all)
            members[1].service.opens_s = LOADS_S  # type: ignore[attr-defined]
            shard = source.shards[0]
            key, began_s = key_of(shard), now_s()
            moving = asyncio.ensure_future(source.move(shard, target.address))
            await asyncio.sleep(LOADS_S / 2)
            for member in (source, target, third):
                with pytest.raises(Moved) as moved:
                    member.own(key)
                assert moved.value.owner == ""
            resolving = [asyncio.ensure_future(each.resolve(key)) for each in (source, third)]
            assert [await each for each in resolving] == [target.address] * 2
            assert now_s() - began_s >= LOADS_S
            await moving
            assert target.own(key).state == "loaded"

    run()
    (released,) = (line for line in texts(lines).split("\n") if "pause_ms=4" in line)
    assert "destination='member-1'" in released


def test_a_member_that_loads_for_too_long_is_told_as_what_it_is() -> None:
    """`move` says that the destination has not opened the shard, in words of shards."""

    @virtual
    async def run() -> None:
        async with cluster(Slow, members=2, shards=4) as members:
            members[1].service.opens_s = 1e6  # type: ignore[attr-defined]
            source = members[0].member
            shard = source.shards[0]
            await source.move(shard, members[1].member.address)
            assert await source.resolve(key_of(shard)) == source.address

    run()


@virtual
async def test_a_second_member_with_an_address_is_refused_at_once() -> None:
    """The first one goes on; the text says what to do."""
    async with cluster(Slow, members=2, shards=4) as members:
        began_s, before = now_s(), members[0].member.shards
        with pytest.raises(OperationalError, match="give each member an address of its own"):
            await join(members, 0)
        assert now_s() - began_s < 2
        assert members[0].member.shards == before


LONG = "http://" + "h" * 510 + ":1"
"""With 512 characters between the slashes: the longest."""


@pytest.mark.parametrize(
    "address",
    [
        LONG.replace(":1", ":11"),
        "http:// h:1",
        "http://h:1/\n",
        "http://h\t:1",
        "http://bücher:1",
        "http://h:0",
        "http://h:x",
        "http://[h:1",
        "http://h:1/path",
        "h:1",
    ],
)
def test_an_address_that_others_could_not_read_is_refused(address: str) -> None:
    """At once, and the text shows no more of it than fits a line."""
    with pytest.raises(BadInputError, match=r"http://10\.0\.0\.7:8080 is expected") as refused:
        Member("zk://nowhere/x", Slow(), address=address)
    assert len(str(refused.value)) < 300


@virtual
async def test_the_longest_address_is_read_by_all() -> None:
    """Its member gets its share, and the others name it."""
    async with cluster(Slow, members=1, shards=4) as members:
        longest = await join(members, 1, address=LONG, eager=True)
        await members.settled()
        await asyncio.sleep(30)
        assert longest.member.shards
        key = key_of(longest.member.shards[0])
        assert await members[0].member.resolve(key) == LONG


@virtual
async def test_a_restarted_member_waits_for_the_session_of_the_one_that_was_killed() -> None:
    """Nobody answers for that one; it joins as soon as its session has ended."""
    async with cluster(Slow, members=2, shards=4) as members:
        await members.kill(0)
        began_s = now_s()
        again = await join(members, 0, eager=True)
        assert now_s() - began_s < 12
        await asyncio.sleep(60)
        assert again.member.shards


def test_a_member_is_entered_before_it_is_used() -> None:
    """The text says how."""
    member = Member("zk://nowhere/x", Slow(), address="http://h:1")
    for use in (lambda: member.own("key"), lambda: member.shards):
        with pytest.raises(RuntimeError, match="async with Member"):
            use()
    with pytest.raises(AttributeError):
        member.nothing  # type: ignore[attr-defined]  # noqa: B018


def empty(tree: MemoryTree) -> None:
    """As if somebody had begun with an empty ZooKeeper."""
    for path in sorted(tree.nodes, reverse=True)[:-1]:
        tree._set(path, None)


def test_an_emptied_store_is_told_and_the_service_begins_anew(
    lines: pytest.LogCaptureFixture,
) -> None:
    """Tokens begin again, which a database may refuse: nobody has to find that out."""

    @virtual
    async def run() -> None:
        async with cluster(Slow, members=2, shards=4) as members:
            assert "the store was empty" in texts(lines)
            for member in members.all:
                member.cut()
            await asyncio.sleep(20)
            empty(members._tree)
            for member in members.all:
                member.heal()
            await asyncio.sleep(1)
            assert texts(lines).count("the store is another one than before") == 2
            await members.settled()
            assert len(members._tree.children("/service_unit_state/service/shards")) == 4

    run()


def test_a_member_that_says_something_else_of_eager_is_told(
    lines: pytest.LogCaptureFixture,
) -> None:
    """Whichever leads decides, so nobody can rely on it."""

    @virtual
    async def run() -> None:
        async with cluster(Slow, members=2, shards=4) as members:
            assert "same of eager" not in texts(lines)
            await join(members, 2, eager=False)
            assert "same of eager" in texts(lines)

    run()


@virtual
async def test_an_open_that_hangs_at_the_start_holds_up_no_other_member() -> None:
    """The others serve their shards at once, and get its own when its limit has passed."""
    made: list[Slow] = []

    def make() -> Slow:
        made.append(Slow(1e6 if not made else 0.0))
        return made[-1]

    async with cluster(make, members=3, shards=90, settle=False) as members:
        await asyncio.sleep(3)
        assert [len(each.member.shards) for each in members.all] == [0, 30, 30]
        await asyncio.sleep(65)
        assert [len(each.member.shards) for each in members.all] == [0, 45, 45]


@virtual
async def test_what_a_dead_member_leaves_goes_to_the_others_evenly() -> None:
    """Again and again."""
    async with cluster(Slow, members=5, shards=60) as members:
        for number, left in ((0, [15] * 4), (1, [20] * 3), (2, [30] * 2)):
            await members.kill(number)
            await members.settled()
            assert [len(each.member.shards) for each in members.all if each.alive] == left


class _Counted(dict[str, Any]):
    """Counts how often all of it is looked at."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


@virtual
async def test_the_store_in_memory_looks_at_what_a_request_is_about() -> None:
    """Not at every node, or a test with thousands of shards takes minutes."""
    tree = MemoryTree()
    tree.nodes = nodes = _Counted(tree.nodes)
    async with tree.session() as store:
        await store.create("/a/b", b"", ephemeral=True)
        await store.commit([Create("/a/c", b""), Create("/a/d", b"")])
        assert await store.children("/a") == ["b", "c", "d"]
    assert tree.children("/a") == ["c", "d"]
    assert nodes.walks == 0
