"""The metadata store in memory: one tree, any number of sessions over it.

For tests and for embedding; passes the contract tests of the real one.

A session behaves as ZooKeeper's does: its ephemeral nodes go when it ends, changes that it may have
missed are announced by a RESYNC, and its lease is proven by a timer while it is connected. Tests
can suspend, resume and expire it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from loadmanager.core.errors import ConflictError, OperationalError
from loadmanager.ports.session import Lease
from loadmanager.ports.store import (
    Change,
    ChangeKind,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    SessionState,
    VersionConflictError,
    check_operations,
    check_size,
)

HEARTBEATS_PER_TIMEOUT = 8
PENDING_MAX = 100_000

T = TypeVar("T")


@dataclass(slots=True)
class MemoryTree:
    """The nodes that all sessions share."""

    nodes: dict[str, Node] = field(default_factory=lambda: {"/": Node(b"", 0)})
    sessions: list[MemoryStore] = field(default_factory=list)
    txid: int = 0
    """The id of the last transaction."""
    _session_ids: itertools.count[int] = field(default_factory=lambda: itertools.count(0x1000))

    def session(
        self, *, timeout_s: float = 2.0, clock_s: Callable[[], float] | None = None
    ) -> MemoryStore:
        """A new session; `clock_s` is the monotonic clock of its lease (the loop's by default)."""
        return MemoryStore(self, timeout_s, clock_s or asyncio.get_running_loop().time)

    def next_session_id(self) -> int:
        """An id that no session had before."""
        return next(self._session_ids)

    def children(self, path: str) -> list[str]:
        """Sorted names of the children."""
        prefix = path.rstrip("/") + "/"
        return sorted(
            name
            for node in self.nodes
            if node.startswith(prefix) and (name := node[len(prefix) :]) and "/" not in name
        )

    def end_session(self, session_id: int) -> None:
        """Remove the ephemeral nodes of a session."""
        gone = [
            path for path, node in self.nodes.items() if node.ephemeral_owner == session_id != 0
        ]
        self.apply([Delete(path) for path in gone], 0)

    def apply(self, operations: Sequence[Operation], session_id: int) -> None:
        """All or nothing, then tell every watch.

        Raises `ConflictError` or `_NoNodeError` for the first operation that fails.
        """
        self.txid += 1
        before = dict(self.nodes) if len(operations) > 1 else None
        changes: list[Change] = []
        try:
            for operation in operations:
                change = self._apply(operation, session_id)
                if change is not None:
                    changes.append(change)
        except ConflictError:
            if before is not None:
                self.nodes = before
            raise
        for change in changes:
            for session in self.sessions:
                session.tell(change)

    def _apply(self, operation: Operation, session_id: int) -> Change | None:
        path = operation.path
        node = self.nodes.get(path)
        if isinstance(operation, Create):
            return self._create(operation, session_id)
        if node is None:
            raise _NoNodeError(f"{path} does not exist")
        if operation.version is not None and operation.version != node.version:
            raise VersionConflictError(f"{path} has changed meanwhile")
        match operation:
            case Put(value=value):
                self.nodes[path] = Node(
                    value,
                    node.version + 1,
                    node.ephemeral_owner,
                    node.created_ms,
                    node.created_txid,
                )
                return Change(ChangeKind.CHANGED, path)
            case Delete():
                if self.children(path):
                    raise _NotEmptyError(f"{path} has children")
                del self.nodes[path]
                return Change(ChangeKind.DELETED, path)
            case Check():
                return None

    def _create(self, operation: Create, session_id: int) -> Change:
        path = operation.path
        parent = self.nodes.get(path.rpartition("/")[0] or "/")
        if path in self.nodes:
            raise VersionConflictError(f"{path} exists")
        if parent is None:
            raise _NoNodeError(f"the parent of {path} does not exist")
        if parent.ephemeral_owner:
            raise ConflictError(f"the parent of {path} is ephemeral")
        self.nodes[path] = Node(
            operation.value, 0, session_id if operation.ephemeral else 0, created_txid=self.txid
        )
        return Change(ChangeKind.CREATED, path)


class _NoNodeError(ConflictError):
    """A node is missing."""


class _NotEmptyError(ConflictError):
    """A node has children."""


class MemoryStore:
    """Implements `ports.store.Store`. An asynchronous context manager, as the real one."""

    def __init__(self, tree: MemoryTree, timeout_s: float, clock_s: Callable[[], float]) -> None:
        self._tree = tree
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._loop = asyncio.get_running_loop()
        self._lease = Lease()
        self._session_id = 0
        self._state = SessionState.LOST
        self._beat: asyncio.TimerHandle | None = None
        self._watches: list[tuple[str, _Queue[Change]]] = []
        self._states: list[_Queue[SessionState]] = []
        self._closed = False
        self.answers_lost = 0
        """So many answers of the next transactions are lost, after they took effect."""

    async def __aenter__(self) -> MemoryStore:
        """Begin the session."""
        self._tree.sessions.append(self)
        self.resume()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session: its ephemeral nodes go at once."""
        self._closed = True
        self._lease.revoke()
        if self._beat is not None:
            self._beat.cancel()
        self._tree.sessions.remove(self)
        self._tree.end_session(self._session_id)
        for entry in self._watches:
            entry[1].close()
        for states in self._states:
            states.close()

    # What tests do to a session

    def suspend(self) -> None:
        """The connection is lost: nothing is answered, the lease runs out by itself."""
        if self._beat is not None:
            self._beat.cancel()
        self._become(SessionState.SUSPENDED)

    def resume(self) -> None:
        """The connection is back, in the same session if it has not expired, else in a new one."""
        if not self._session_id:
            self._session_id = self._tree.next_session_id()
        self._become(SessionState.CONNECTED)
        self._heartbeat()
        for root, queue in self._watches:
            queue.put(Change(ChangeKind.RESYNC, root))

    def expire(self) -> None:
        """The server gives the session up: ephemeral nodes go, and the client hears of it (the next
        `resume` begins a new session).
        """
        ended, self._session_id = self._session_id, 0
        self.suspend()
        self._tree.end_session(ended)
        self._lease.revoke()
        self._become(SessionState.LOST)

    def _become(self, state: SessionState) -> None:
        self._state = state
        for queue in self._states:
            queue.put(state)

    def _heartbeat(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        self._lease.prove(self._clock_s(), self._timeout_s)
        self._beat = self._loop.call_later(
            self._timeout_s / HEARTBEATS_PER_TIMEOUT, self._heartbeat
        )

    # Session

    @property
    def lease(self) -> Lease:
        """Proof of the session."""
        return self._lease

    @property
    def session_id(self) -> int:
        """Identity of the present session, 0 without one."""
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        """As given."""
        return self._timeout_s

    async def session_states(self) -> AsyncIterator[SessionState]:
        """Session states from now on."""
        if self._closed:
            return
        queue: _Queue[SessionState] = _Queue(SessionState.LOST)
        queue.put(self._state)
        self._states.append(queue)
        try:
            async for state in queue:
                yield state
        finally:
            self._states.remove(queue)

    # Watches

    async def watch(self, root: str) -> AsyncIterator[Change]:
        """Changes of `root` and everything below it."""
        if self._closed:
            return
        resync = Change(ChangeKind.RESYNC, root)
        entry: tuple[str, _Queue[Change]] = (root, _Queue(resync))
        self._watches.append(entry)
        if self._state is SessionState.CONNECTED:
            entry[1].put(resync)
        try:
            async for change in entry[1]:
                yield change
        finally:
            self._watches.remove(entry)

    def tell(self, change: Change) -> None:
        """The tree changed. A session that is not connected hears nothing, and a RESYNC later."""
        if self._state is SessionState.CONNECTED:
            for root, queue in self._watches:
                if change.path == root or change.path.startswith(root.rstrip("/") + "/"):
                    queue.put(change)

    # Operations

    async def _turn(self) -> None:
        """As a real one, every operation lets others run first; without a connection there is no
        answer.
        """
        await asyncio.sleep(0)
        if self._closed or self._state is not SessionState.CONNECTED:
            raise OperationalError("the metadata store does not answer")

    async def get(self, path: str) -> Node | None:
        """Read a node."""
        await self._turn()
        return self._tree.nodes.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes."""
        await self._turn()
        return [self._tree.nodes.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        """Sorted names of the children."""
        await self._turn()
        return self._tree.children(path)

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> bool:
        """Create a node with its parents; False when it exists."""
        check_size(path, value)
        await self._turn()
        if path in self._tree.nodes:
            return False
        parent = path.rpartition("/")[0]
        if parent and parent not in self._tree.nodes:
            await self.create(parent, b"")
        try:
            self._tree.apply([Create(path, value, ephemeral)], self._session_id)
        except VersionConflictError:  # created by somebody else while the parents were made
            return False
        return True

    async def put(self, path: str, value: bytes, *, version: int | None = None) -> int:
        """Set a value; see the port."""
        check_size(path, value)
        await self._turn()
        if version is None and path not in self._tree.nodes:
            return 0 if await self.create(path, value) else await self.put(path, value)
        try:
            self._tree.apply([Put(path, value, version)], self._session_id)
        except _NoNodeError as error:
            raise VersionConflictError(str(error)) from None
        return self._tree.nodes[path].version

    async def delete(self, path: str, *, version: int | None = None) -> bool:
        """Delete a node; False when there is none."""
        await self._turn()
        try:
            self._tree.apply([Delete(path, version)], self._session_id)
        except _NoNodeError:
            return False
        return True

    async def delete_tree(self, path: str) -> None:
        """Delete a node and everything below it."""
        for name in await self.children(path):
            await self.delete_tree(f"{path}/{name}")
        await self.delete(path)

    async def commit(self, operations: Sequence[Operation]) -> int:
        """All or nothing."""
        check_operations(operations)
        await self._turn()
        try:
            self._tree.apply(operations, self._session_id)
        except ConflictError as error:
            raise VersionConflictError(str(error)) from None
        if self.answers_lost:
            self.answers_lost -= 1
            raise OperationalError("the answer of the metadata store was lost")
        return self._tree.txid


class _Queue(Generic[T]):
    """Bounded: a reader that falls behind finds `overflow` instead of what it missed."""

    def __init__(self, overflow: T) -> None:
        self._items: asyncio.Queue[T | None] = asyncio.Queue()
        self._overflow = overflow

    def put(self, item: T) -> None:
        if self._items.qsize() >= PENDING_MAX:
            while not self._items.empty():
                self._items.get_nowait()
            item = self._overflow
        self._items.put_nowait(item)

    def close(self) -> None:
        self._items.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[T]:
        while (item := await self._items.get()) is not None:
            yield item
