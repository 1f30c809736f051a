"""The metadata store in memory: one tree, any number of sessions over it.

For tests and for embedding; passes the contract tests of the ZooKeeper adapter.

A session behaves like ZooKeeper's: its ephemeral nodes are deleted when it ends, a RESYNC announces
changes that it may have missed, and a timer proves its lease while it is connected. Tests can
suspend, resume and expire it.
"""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from loadmanager.kit.bounded_queue import BoundedQueue
from loadmanager.kit.errors import ConflictError
from loadmanager.kit.metadata.lease import BEATS_MIN, Lease
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    SessionState,
    StoreAwayError,
    VersionConflictError,
    check_operations,
    check_size,
)

HEARTBEATS_PER_TIMEOUT = 8

T = TypeVar("T")


@dataclass(slots=True)
class MemoryTree:
    """The nodes that all sessions share."""

    nodes: dict[str, Node] = field(default_factory=lambda: {"/": Node(b"", 0)})
    sessions: list[MemoryStore] = field(default_factory=list)
    txid: int = 0
    """The id of the last transaction."""
    _session_ids: itertools.count[int] = field(default_factory=lambda: itertools.count(0x1000))
    _below: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Path → the names of its children."""
    _ephemeral: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Session → the paths of its nodes."""

    def session(
        self, *, timeout_s: float = 2.0, clock_s: Callable[[], float] | None = None
    ) -> MemoryStore:
        """A new session; `clock_s` is the monotonic clock of its lease (the loop's by default)."""
        return MemoryStore(self, timeout_s, clock_s or asyncio.get_running_loop().time)

    def next_session_id(self) -> int:
        return next(self._session_ids)

    def children(self, path: str) -> list[str]:
        """The names below a path, sorted."""
        return sorted(self._below.get(path.rstrip("/"), ()))

    def end_session(self, session_id: int) -> None:
        """Remove the ephemeral nodes of a session."""
        ephemeral = sorted(self._ephemeral.pop(session_id, ()))
        self.apply([Delete(path) for path in ephemeral], 0)

    def _set(self, path: str, node: Node | None) -> None:
        """Write a node, or remove it."""
        before, (parent, _, name) = self.nodes.get(path), path.rpartition("/")
        if before is not None and before.ephemeral_owner in self._ephemeral:
            self._ephemeral[before.ephemeral_owner].discard(path)
        if node is None:
            del self.nodes[path]
            self._below[parent].discard(name)
            if not self._below[parent]:
                del self._below[parent]
            return
        self.nodes[path] = node
        self._below[parent].add(name)
        if node.ephemeral_owner:
            self._ephemeral[node.ephemeral_owner].add(path)

    def apply(self, operations: Sequence[Operation], session_id: int) -> None:
        """Do all operations or none, then notify the sessions.

        Raises `ConflictError` or `_NoNodeError` for the first operation that fails.
        """
        self.txid += 1
        before: list[tuple[str, Node | None]] = []
        changes: list[Change] = []
        try:
            for operation in operations:
                before.append((operation.path, self.nodes.get(operation.path)))
                change = self._apply(operation, session_id)
                if change is not None:
                    changes.append(change)
        except ConflictError:
            for path, node in reversed(before[:-1]):
                if self.nodes.get(path) is not node:
                    self._set(path, node)
            raise
        for change in changes:
            for session in self.sessions:
                session.notify(change)

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
                changed = replace(
                    node, value=value, version=node.version + 1, changed_txid=self.txid
                )
                self._set(path, changed)
                return Change(ChangeKind.CHANGED, path)
            case Delete():
                if path in self._below:
                    raise _NotEmptyError(f"{path} has children")
                self._set(path, None)
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
        owner = session_id if operation.ephemeral else 0
        self._set(path, Node(operation.value, 0, owner, self.txid, self.txid))
        return Change(ChangeKind.CREATED, path)


class _NoNodeError(ConflictError):
    """A node is missing."""


class _NotEmptyError(ConflictError):
    """A node has children."""


class TreeClient(ABC):
    """The part of `kit.metadata.store.Store` that every client of a `MemoryTree` needs.

    `_run` takes an operation to the tree; the subclasses say when it arrives, and whether it fails.
    """

    def __init__(self, tree: MemoryTree, timeout_s: float) -> None:
        self._tree = tree
        self._timeout_s = timeout_s
        self._lease = Lease()
        self._session_id = 0
        self._state = SessionState.LOST
        self._states: list[BoundedQueue[SessionState]] = []
        self._watches: list[tuple[str, BoundedQueue[Change]]] = []
        self.closed = False

    @abstractmethod
    async def _run(self, operation: Callable[[], T], *, transaction: bool = False) -> T:
        """The operation's result. Raises what it raises, or `StoreAwayError`."""

    @abstractmethod
    def _install(self, root: str, queue: BoundedQueue[Change]) -> None:
        """Begin to notify a watch of `root`, with a RESYNC first."""

    def _become(self, state: SessionState) -> None:
        self._state = state
        for queue in self._states:
            queue.put(state)

    # Session

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def session_id(self) -> int:
        """Identity of the present session, 0 without one."""
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        return self._timeout_s

    async def session_states(self) -> AsyncIterator[SessionState]:
        if self.closed:
            return
        queue: BoundedQueue[SessionState] = BoundedQueue(SessionState.LOST)
        queue.put(self._state)
        self._states.append(queue)
        try:
            async for state in queue:
                yield state
        finally:
            self._states.remove(queue)

    async def watch(self, root: str) -> AsyncIterator[Change]:
        if self.closed:
            return
        queue = BoundedQueue(Change(ChangeKind.RESYNC, root))
        self._watches.append((root, queue))
        if self._state is SessionState.CONNECTED:
            self._install(root, queue)
        try:
            async for change in queue:
                yield change
        finally:
            self._watches.remove((root, queue))

    # Operations

    def _apply(self, operations: Sequence[Operation]) -> int:
        """Change the tree in the present session; returns the transaction's id."""
        self._tree.apply(operations, self._session_id)
        return self._tree.txid

    async def get(self, path: str) -> Node | None:
        return await self._run(lambda: self._tree.nodes.get(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if not paths:
            return []
        return await self._run(lambda: [self._tree.nodes.get(path) for path in paths])

    async def children(self, path: str) -> list[str]:
        return await self._run(lambda: self._tree.children(path))

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> bool:
        check_size(path, value)
        try:
            await self._run(lambda: self._apply([Create(path, value, ephemeral)]))
        except VersionConflictError:
            return False
        except _NoNodeError:
            await self.create(path.rpartition("/")[0], b"")
            return await self.create(path, value, ephemeral=ephemeral)
        return True

    async def put(self, path: str, value: bytes, *, version: int | None = None) -> int:
        check_size(path, value)

        def put() -> int | None:
            if version is None and path not in self._tree.nodes:
                return None
            try:
                self._apply([Put(path, value, version)])
            except _NoNodeError as error:
                raise VersionConflictError(str(error)) from None
            return self._tree.nodes[path].version

        new_version = await self._run(put)
        if new_version is None:
            return 0 if await self.create(path, value) else await self.put(path, value)
        return new_version

    async def delete(self, path: str, *, version: int | None = None) -> bool:

        def delete() -> bool:
            if path not in self._tree.nodes:
                return False
            self._apply([Delete(path, version)])
            return True

        return await self._run(delete)

    async def commit(self, operations: Sequence[Operation]) -> int:
        check_operations(operations)
        try:
            return await self._run(lambda: self._apply(operations), transaction=True)
        except ConflictError as error:
            raise VersionConflictError(str(error)) from None


class MemoryStore(TreeClient):
    """Implements `kit.metadata.store.Store`. An asynchronous context manager, as the real one."""

    def __init__(self, tree: MemoryTree, timeout_s: float, clock_s: Callable[[], float]) -> None:
        super().__init__(tree, timeout_s)
        self._clock_s = clock_s
        self._loop = asyncio.get_running_loop()
        self._beat: asyncio.TimerHandle | None = None
        self.answers_lost = 0
        """How many of the next transactions take effect but lose their answer."""

    async def __aenter__(self) -> MemoryStore:
        """Begin the session."""
        self._tree.sessions.append(self)
        self.resume()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session; its ephemeral nodes are deleted at once."""
        self.closed = True
        self._lease.revoke()
        if self._beat is not None:
            self._beat.cancel()
        self._tree.sessions.remove(self)
        self._tree.end_session(self._session_id)
        for _root, changes in self._watches:
            changes.close()
        for states in self._states:
            states.close()

    # What tests do to a session

    def suspend(self) -> None:
        """Lose the connection: no operation is answered, and the lease runs out by itself."""
        if self._beat is not None:
            self._beat.cancel()
        self._lease.unanswered, self._lease.beats = True, BEATS_MIN
        self._become(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Connect again: in the same session if it has not expired, else in a new one."""
        if not self._session_id:
            self._session_id = self._tree.next_session_id()
        self._become(SessionState.CONNECTED)
        self._heartbeat()
        for root, queue in self._watches:
            self._install(root, queue)

    def expire(self) -> None:
        """Expire the session: its ephemeral nodes are deleted, and the client learns of it.

        The next `resume` begins a new session.
        """
        expired, self._session_id = self._session_id, 0
        self.suspend()
        self._tree.end_session(expired)
        self._lease.revoke()
        self._become(SessionState.LOST)

    def _heartbeat(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        self._lease.prove(self._clock_s(), self._timeout_s)
        self._beat = self._loop.call_later(
            self._timeout_s / HEARTBEATS_PER_TIMEOUT, self._heartbeat
        )

    # How operations and notifications travel: at once

    def _install(self, root: str, queue: BoundedQueue[Change]) -> None:
        queue.put(Change(ChangeKind.RESYNC, root))

    def notify(self, change: Change) -> None:
        """Pass on a change of the tree, while connected; `resume` announces a RESYNC otherwise."""
        if self._state is SessionState.CONNECTED:
            for root, queue in self._watches:
                if change.is_in(root):
                    queue.put(change)

    async def _run(self, operation: Callable[[], T], *, transaction: bool = False) -> T:
        """Let other tasks run first, as every operation of a real store does."""
        await asyncio.sleep(0)
        if self.closed or self._state is not SessionState.CONNECTED:
            raise StoreAwayError("the metadata store does not answer")
        result = operation()
        if transaction and self.answers_lost:
            self.answers_lost -= 1
            raise StoreAwayError("the answer of the metadata store was lost")
        return result
