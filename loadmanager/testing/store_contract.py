"""The contract of every metadata store, as tests for pytest (which is not installed with us).

    pytest.register_assert_rewrite("loadmanager.testing.store_contract")  # in conftest.py
    from loadmanager.testing.store_contract import StoreContract

    class TestMyStore(StoreContract):
        async def open(self): ...

The subclass opens stores and expires their sessions; pytest-asyncio runs the tests, in its mode
`auto`. A session timeout of one or two seconds makes them quick.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from loadmanager.kit.errors import BadInputError, ConflictError, OperationalError
from loadmanager.kit.metadata.store import (
    VALUE_BYTES_MAX,
    Change,
    ChangeKind,
    Check,
    Create,
    Delete,
    Operation,
    Put,
    SessionState,
    Store,
    VersionConflictError,
    delete_tree,
)
from loadmanager.sharding.member import Member
from loadmanager.sharding.shards import Shard
from loadmanager.sharding.system_time import SystemTime
from loadmanager.testing.cluster import LocalMember, SetSampler

DEADLINE_S = 60.0
SHARDS = 4


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for a condition, which may be asynchronous."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = condition()
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.01)
    raise AssertionError(what)


async def next_of(items: AsyncIterator[Any]) -> Any:
    """The next item."""
    async with asyncio.timeout(DEADLINE_S):
        return await anext(items)


async def skip_to(items: AsyncIterator[Any], wanted: Any) -> Any:
    """The next item that equals `wanted`."""
    async with asyncio.timeout(DEADLINE_S):
        async for item in items:
            if item == wanted:
                return item
    raise AssertionError(f"ended before {wanted}")


class StoreContract:
    """Tests over `self.open()`; all stores of one test share their data."""

    closing: AsyncExitStack
    """What a test leaves; `open` pushes the end of each store."""

    async def open(self) -> Store:
        """A store with a session of its own."""
        raise NotImplementedError

    async def close(self, store: Store) -> None:
        """End a store's session."""
        raise NotImplementedError

    async def expire(self, store: Store) -> None:
        """Expire a store's session; the store begins another one by itself."""
        raise NotImplementedError

    async def cut(self, store: Store) -> None:
        """Let the store reach its servers no more, until its session has ended."""
        pytest.skip("cut() says how a store is cut off; without it, its lease is not tested")

    @pytest.fixture
    async def stack(self) -> AsyncIterator[AsyncExitStack]:
        """Closes what a test opened."""
        async with AsyncExitStack() as self.closing:
            yield self.closing

    @pytest.fixture
    async def store(self, stack: AsyncExitStack) -> Store:
        """One store."""
        return await self.open()

    async def test_reads_what_was_created(self, store: Store) -> None:
        """A node is created with its parents, once."""
        assert await store.get("/a/b/c") is None
        assert await store.create("/a/b/c", b"1")
        assert not await store.create("/a/b/c", b"2")
        node = await store.get("/a/b/c")
        assert node is not None
        assert (node.value, node.version, node.ephemeral_owner) == (b"1", 0, 0)
        assert await store.children("/a") == ["b"]
        assert await store.children("/none") == []

    async def test_children_are_sorted_and_direct(self, store: Store) -> None:
        """Only direct children are listed, in the order of their names."""
        for name in ("b", "a", "b/x", "c"):
            await store.create(f"/p/{name}", b"")
        assert await store.children("/p") == ["a", "b", "c"]

    async def test_put_counts_versions(self, store: Store) -> None:
        """A put creates, then counts the version up."""
        assert await store.put("/v/x", b"1") == 0
        assert await store.put("/v/x", b"2") == 1
        assert await store.put("/v/x", b"3", version=1) == 2

    async def test_compare_and_set_refuses_other_versions(self, store: Store) -> None:
        """A put or delete with another version, or of a missing node, fails and changes nothing."""
        await store.put("/v", b"1")
        with pytest.raises(VersionConflictError):
            await store.put("/v", b"2", version=1)
        with pytest.raises(VersionConflictError):
            await store.put("/none", b"2", version=0)
        with pytest.raises(VersionConflictError):
            await store.delete("/v", version=7)
        node = await store.get("/v")
        assert node is not None
        assert (node.value, node.version) == (b"1", 0)

    async def test_one_of_many_writers_wins(self, store: Store) -> None:
        """Of concurrent compare-and-sets with the same version exactly one succeeds."""
        other = await self.open()
        await store.put("/race", b"")
        attempts = [
            side.put("/race", str(turn).encode(), version=0)
            for turn in range(8)
            for side in (store, other)
        ]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert [result for result in results if not isinstance(result, VersionConflictError)] == [1]

    async def test_many_writers_of_a_new_node_all_succeed(self, store: Store) -> None:
        """Concurrent puts of one new node all take effect, though only one can create it."""
        await asyncio.gather(*(store.put("/new/deep/node", b"x") for _ in range(10)))
        node = await store.get("/new/deep/node")
        assert node is not None
        assert node.version == 9

    async def test_delete(self, store: Store) -> None:
        """A node with children cannot be deleted; `delete_tree` deletes it with its children."""
        await store.create("/d/e/f", b"")
        with pytest.raises(ConflictError):
            await store.delete("/d")
        await delete_tree(store, "/d")
        assert await store.get("/d") is None
        assert not await store.delete("/d")

    async def test_get_many_keeps_the_order(self, store: Store) -> None:
        """Answers come in the order of the paths, with None for what is missing."""
        paths = [f"/many/{number}" for number in range(300)]
        await asyncio.gather(*(store.create(path, path.encode()) for path in paths[::2]))
        nodes = await store.get_many(paths)
        assert [node.value.decode() if node else None for node in nodes] == [
            path if at % 2 == 0 else None for at, path in enumerate(paths)
        ]

    async def test_too_long_values_are_refused(self, store: Store) -> None:
        """A value longer than a node can hold is refused; the longest possible value is not."""
        with pytest.raises(BadInputError):
            await store.put("/long", bytes(VALUE_BYTES_MAX + 1))
        with pytest.raises(BadInputError):
            await store.create("/long", bytes(VALUE_BYTES_MAX + 1))
        with pytest.raises(BadInputError):
            await store.commit([Create("/l1", bytes(VALUE_BYTES_MAX)), Create("/l2", b"1")])
        with pytest.raises(BadInputError):
            await store.commit([Check("/long")] * 501)
        await store.put("/long", bytes(VALUE_BYTES_MAX))
        node = await store.get("/long")
        assert node is not None
        assert len(node.value) == VALUE_BYTES_MAX

    async def test_nodes_name_the_transactions_that_made_and_changed_them(
        self, store: Store
    ) -> None:
        """Their ids are those that `commit` returns, and grow."""
        await store.create("/t", b"")
        made = await store.commit([Create("/t/a", b"1")])
        node = await store.get("/t/a")
        assert node is not None
        assert (node.created_txid, node.changed_txid) == (made, made)
        changed = await store.commit([Put("/t/a", b"2", 0), Put("/t/a", b"3", 1)])
        node = await store.get("/t/a")
        assert node is not None
        assert (node.created_txid, node.changed_txid, node.version) == (made, changed, 2)
        assert changed > made

    async def test_a_transaction_can_require_that_a_node_is_absent(self, store: Store) -> None:
        """By creating and deleting it, which changes nothing."""
        await store.create("/t", b"")
        absent: list[Operation] = [Create("/t/a", b""), Delete("/t/a")]
        await store.commit([*absent, Create("/t/b", b"")])
        await store.create("/t/a", b"", ephemeral=True)
        with pytest.raises(VersionConflictError):
            await store.commit([*absent, Create("/t/c", b"")])
        assert await store.children("/t") == ["a", "b"]

    async def test_transactions_do_all(self, store: Store) -> None:
        """Every operation of a transaction takes effect."""
        await store.put("/t/old", b"old")
        await store.put("/t/gone", b"")
        await store.commit(
            [
                Check("/t/old", 0),
                Put("/t/old", b"new", 0),
                Create("/t/made", b"m", ephemeral=True),
                Delete("/t/gone"),
            ]
        )
        old, made, gone = await store.get_many(["/t/old", "/t/made", "/t/gone"])
        assert old is not None
        assert made is not None
        assert (old.value, old.version, made.ephemeral_owner, gone) == (
            b"new",
            1,
            store.session_id,
            None,
        )

    @pytest.mark.parametrize(
        "failing",
        [
            Check("/t/a", 9),
            Check("/t/none"),
            Put("/t/a", b"", 9),
            Put("/t/none", b""),
            Create("/t/a", b""),
            Create("/x/y", b""),
            Delete("/t/none"),
            Delete("/t"),
        ],
        ids=repr,
    )
    async def test_transactions_do_nothing_when_one_part_fails(
        self, store: Store, failing: Any
    ) -> None:
        """A failing operation at any position undoes the others."""
        await store.put("/t/a", b"1")
        for operations in (
            [Put("/t/a", b"2"), Create("/t/new", b""), failing],
            [failing, Put("/t/a", b"2")],
        ):
            with pytest.raises(VersionConflictError):
                await store.commit(operations)
        node = await store.get("/t/a")
        assert node is not None
        assert (node.value, node.version, await store.children("/t")) == (b"1", 0, ["a"])

    async def test_ephemeral_nodes_go_with_their_session(self, store: Store) -> None:
        """Closing a store deletes its ephemeral nodes, and no others."""
        other = await self.open()
        assert other.session_id not in (0, store.session_id)
        await other.create("/e/mine", b"", ephemeral=True)
        await other.create("/e/stays", b"")
        node = await store.get("/e/mine")
        assert node is not None
        assert node.ephemeral_owner == other.session_id
        with pytest.raises(ConflictError):
            await other.create("/e/mine/child", b"")
        await self.close(other)
        await until(lambda: self._is(store.children("/e"), ["stays"]), "the ephemeral node is gone")

    @staticmethod
    async def _is(answer: Awaitable[Any], wanted: Any) -> bool:
        return bool(await answer == wanted)

    # Watches

    async def test_watch_tells_every_change_below_in_order(self, store: Store) -> None:
        """After a RESYNC, a watch reports every change below its root, of any session."""
        other = await self.open()
        changes = store.watch("/w")
        assert await next_of(changes) == Change(ChangeKind.RESYNC, "/w")
        await other.create("/w", b"")
        await other.create("/wrong", b"")
        await store.create("/w/a/b", b"")
        await other.put("/w/a/b", b"1")
        await other.delete("/w/a/b")
        changes_seen = [await next_of(changes) for _ in range(5)]
        assert changes_seen == [
            Change(ChangeKind.CREATED, "/w"),
            Change(ChangeKind.CREATED, "/w/a"),
            Change(ChangeKind.CREATED, "/w/a/b"),
            Change(ChangeKind.CHANGED, "/w/a/b"),
            Change(ChangeKind.DELETED, "/w/a/b"),
        ]

    async def test_watches_of_nested_roots_are_independent(self, store: Store) -> None:
        """Two watches with nested roots each see their changes, also after a third has ended."""
        outer, inner, again = store.watch("/n"), store.watch("/n/m"), store.watch("/n")
        for changes in (outer, inner, again):
            await next_of(changes)
        await again.aclose()  # type: ignore[attr-defined]
        await store.create("/n/m/x", b"")
        await skip_to(inner, Change(ChangeKind.CREATED, "/n/m/x"))
        await skip_to(outer, Change(ChangeKind.CREATED, "/n/m/x"))

    async def test_watch_of_everything(self, store: Store) -> None:
        """The root can be watched."""
        changes = store.watch("/")
        await next_of(changes)
        await store.create("/any", b"")
        await skip_to(changes, Change(ChangeKind.CREATED, "/any"))

    async def test_watch_ends_with_the_store(self, store: Store) -> None:
        """Closing the store ends watches and states; later ones end at once."""
        other = await self.open()
        changes, states = other.watch("/c"), other.session_states()
        await next_of(changes)
        await next_of(states)
        await self.close(other)
        async with asyncio.timeout(DEADLINE_S):
            assert [change async for change in changes] == []
            assert [state async for state in states if state is not SessionState.LOST] == []
            assert [change async for change in other.watch("/c")] == []
        assert other.session_id == 0 or not other.lease.held(self.now_s())
        with pytest.raises(OperationalError):
            await other.get("/c")

    # The session

    def now_s(self) -> float:
        """The clock of the leases."""
        return time.monotonic()

    async def test_lease_is_proven_again_and_again(self, store: Store) -> None:
        """The lease is held and extended, and never exceeds a session timeout."""
        first_s = store.lease.valid_until_s
        assert store.lease.held(self.now_s())
        await until(lambda: store.lease.valid_until_s > first_s, "the lease advances")
        assert store.lease.valid_until_s <= self.now_s() + store.session_timeout_s

    async def test_expired_session_is_lost_and_a_new_one_follows(self, store: Store) -> None:
        """LOST, no ephemeral nodes, CONNECTED with a new id, and a RESYNC of each watch."""
        other = await self.open()
        states, changes = other.session_states(), other.watch("/x")
        assert await next_of(states) is SessionState.CONNECTED
        await next_of(changes)
        before = other.session_id
        await other.create("/x/mine", b"", ephemeral=True)
        await skip_to(changes, Change(ChangeKind.CREATED, "/x/mine"))
        await self.expire(other)
        await skip_to(states, SessionState.LOST)
        await skip_to(states, SessionState.CONNECTED)
        await skip_to(changes, Change(ChangeKind.RESYNC, "/x"))
        assert other.session_id not in (0, before)
        assert await store.get("/x/mine") is None
        await until(lambda: other.lease.held(self.now_s()), "the new session is proven")
        await store.create("/x/later", b"")
        await skip_to(changes, Change(ChangeKind.CREATED, "/x/later"))

    async def test_transactions_have_growing_ids(self, store: Store) -> None:
        """Whoever writes, and in whichever session: the tokens of shards are such ids."""
        other, last = await self.open(), 0
        for number in range(20):
            writer = (store, other)[number % 2]
            if number == 10:
                await self._begin_another_session(other)
            await writer.create(f"/ids/{number}", b"")
            node = await store.get(f"/ids/{number}")
            assert node is not None
            assert node.created_txid > last
            last = node.created_txid

    async def _begin_another_session(self, store: Store) -> None:
        before = store.session_id
        await self.expire(store)
        await until(lambda: store.session_id not in (0, before), "a new session")

    async def test_a_lease_ends_before_its_session(self, store: Store) -> None:
        """While somebody may serve by its lease, its ephemeral nodes are there: nobody else has
        them. This is what proves that a shard has one owner.
        """
        other = await self.open()
        await other.create("/mine", b"", ephemeral=True)
        await self.cut(other)
        while await store.get("/mine") is not None:
            await asyncio.sleep(0.01)
        assert not other.lease.held(self.now_s())

    async def test_members_of_a_service_share_its_shards(self, store: Store) -> None:
        """Each shard has one owner; when a session ends, others have it, with greater tokens."""
        other = await self.open()
        async with AsyncExitStack() as running:
            members = [
                await running.enter_async_context(_member(number, each))
                for number, each in enumerate((store, other))
            ]
            await until(
                lambda: _open(members) == SHARDS and members[1].shards,
                "all shards are served, by both",
            )
            before, lost = _tokens(members), {shard.name for shard in members[1].shards}
            await self.expire(other)

            def served_again() -> bool:
                after = _tokens(members)
                return (
                    after.keys() == before.keys()
                    and _open(members) == SHARDS
                    and all(after[name] > before[name] for name in lost)
                    and all(after[name] >= before[name] for name in before)
                )

            await until(served_again, "what was lost is served again, under greater tokens")
            assert lost


def _open(members: Sequence[Member[None]]) -> int:
    return sum(len(member.shards) for member in members)


def _tokens(members: Sequence[Member[None]]) -> dict[str, int]:
    return {shard.name: shard.token for member in members for shard in member.shards}


class _Nothing:
    async def open(self, shard: Shard[None]) -> None:
        """No state."""

    async def close(self, shard: Shard[None], state: None) -> None:
        """No state."""


@asynccontextmanager
async def _member(number: int, store: Store) -> AsyncIterator[Member[None]]:
    address = f"http://member-{number}"
    member = Member("zk://nowhere/service", _Nothing(), address=address, shards=SHARDS, eager=True)
    local = LocalMember(number, _Nothing(), member)
    try:
        await member._join(store, SystemTime(), lambda _own: SetSampler(local))
        yield member
    finally:
        await member.__aexit__(None, None, None)
