"""The metadata store: a tree of small values with versions, ephemeral nodes and change
notifications (ZooKeeper, or a fake in memory).

Paths are absolute, without a trailing slash, below whatever root the adapter was given. Every call
may raise `OperationalError` when the store cannot answer within its timeout; the outcome of a write
is then unknown and the caller must read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from loadmanager.core.errors import BadInputError, ConflictError
from loadmanager.ports.session import Lease

VALUE_BYTES_MAX = 1_000_000
"""A value longer than this is refused with `BadInputError` before it is sent (ZooKeeper's
jute.maxbuffer is 1 MiB).
"""
OPERATIONS_MAX = 500
"""A transaction of more is refused with `BadInputError`."""


class VersionConflictError(ConflictError):
    """A compare-and-set found another version, or a create found a node."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node as read.

    `ephemeral_owner` is the session id of an ephemeral node, 0 for a persistent one. `created_txid`
    is the id of the transaction that created the node: no two nodes of one path ever share it.
    """

    value: bytes
    version: int
    ephemeral_owner: int = 0
    created_ms: int = 0
    created_txid: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Create `path`; fails the transaction with `VersionConflictError` when it exists.

    Parents must exist unless the adapter makes them first.
    """

    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Set `path` to `value`; with a `version` only if it is the present one."""

    path: str
    value: bytes
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete `path`; with a `version` only if it is the present one."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the transaction unless `path` exists with `version` (None: exists with any version).

    Fences a leader's writes by its term.
    """

    path: str
    version: int | None = None


Operation = Create | Put | Delete | Check


def check_size(path: str, value: bytes) -> None:
    """Raises `BadInputError` for a value that does not fit."""
    if len(value) > VALUE_BYTES_MAX:
        raise BadInputError(
            f"{path}: {len(value)} bytes do not fit into a node, {VALUE_BYTES_MAX} do"
        )


def check_operations(operations: Sequence[Operation]) -> None:
    """Raises `BadInputError` for a transaction that does not fit."""
    if len(operations) > OPERATIONS_MAX:
        raise BadInputError(
            f"a transaction holds at most {OPERATIONS_MAX} operations, not {len(operations)}"
        )
    total = sum(
        len(operation.value) for operation in operations if isinstance(operation, Create | Put)
    )
    if total > VALUE_BYTES_MAX:
        raise BadInputError(
            f"a transaction holds at most {VALUE_BYTES_MAX} bytes of values, not {total}"
        )


class ChangeKind(Enum):
    """What happened to a node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    RESYNC = "resync"
    """Notifications may have been missed (a new session, a reconnect): read the whole watched tree
    again. The path is the tree's root.
    """


@dataclass(frozen=True, slots=True)
class Change:
    """One notification. The value is not included: read the node."""

    kind: ChangeKind
    path: str

    def is_in(self, root: str) -> bool:
        """Whether the path is `root` or below it."""
        return self.path == root or self.path.startswith(root.rstrip("/") + "/")


class SessionState(Enum):
    """The state of the session as the adapter last heard."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Store(Protocol):
    """What the runtime asks of the metadata store. All methods are called on the event loop."""

    @property
    def lease(self) -> Lease:
        """Proof of the session, advanced by the adapter with each answered heartbeat (several per
        session timeout).
        """
        ...

    @property
    def session_id(self) -> int:
        """Identity of the session, as `Node.ephemeral_owner` shows it.

        It stays while the connection is lost and the session may still live; 0 once the session is
        lost.
        """
        ...

    @property
    def session_timeout_s(self) -> float:
        """The session timeout that the server granted."""
        ...

    async def get(self, path: str) -> Node | None:
        """Read a node; None when there is none."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes concurrently (bounded); the answers in the order of `paths`."""
        ...

    async def children(self, path: str) -> list[str]:
        """Sorted names of the children; empty when the node does not exist."""
        ...

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> bool:
        """Create a node and its missing parents (persistent, empty).

        False when it exists already. Atomic for the node itself.
        """
        ...

    async def put(self, path: str, value: bytes, *, version: int | None = None) -> int:
        """Set a value, creating the node and its parents when `version` is None; returns the new
        version.

        With a `version` this is a compare-and-set: raises `VersionConflictError` when it is another
        one, or the node does not exist.
        """
        ...

    async def delete(self, path: str, *, version: int | None = None) -> bool:
        """Delete a node; False when there is none.

        Raises `VersionConflictError` for another version, `ConflictError` when it has children.
        """
        ...

    async def commit(self, operations: Sequence[Operation]) -> int:
        """Do all or nothing (a ZooKeeper `multi`), at most 500 operations; returns the
        transaction's id.

        Nodes that it created have that id as `Node.created_txid`. Raises `VersionConflictError`
        when any operation fails.
        """
        ...

    def watch(self, root: str) -> AsyncIterator[Change]:
        """Changes of `root` and everything below it, in order, from now on; the first item is a
        RESYNC.

        Bounded: when the reader falls behind, pending changes are dropped and replaced by one
        RESYNC. Ends when the store is closed.
        """
        ...

    def session_states(self) -> AsyncIterator[SessionState]:
        """Session states from now on, the present one first.

        LOST is followed by CONNECTED when a new session stands (with a new `session_id`).
        """
        ...


async def delete_tree(store: Store, path: str) -> None:
    """Delete a node and everything below it; not atomic."""
    await delete_below(store, path)
    await store.delete(path)


async def delete_below(store: Store, path: str) -> None:
    """Delete everything below a node; not atomic.

    An ephemeral node cannot have children: what was put below a persistent node in its place must
    be deleted first.
    """
    for name in await store.children(path):
        await delete_tree(store, f"{path}/{name}")
