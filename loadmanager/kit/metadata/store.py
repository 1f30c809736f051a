"""The metadata store: a tree of small values with versions, ephemeral nodes and notifications.

Its adapters are ZooKeeper and a tree in memory. Paths are absolute, without a trailing slash, and
relative to the adapter's root. Every call may raise `StoreAwayError` when the store does not
answer within its timeout; then the outcome of a write is unknown, and the caller must read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from loadmanager.kit.errors import BadInputError, ConflictError, OperationalError
from loadmanager.kit.metadata.lease import Lease

VALUE_BYTES_MAX = 1_000_000
"""The maximum length of a value, within ZooKeeper's jute.maxbuffer of 1 MiB."""
OPERATIONS_MAX = 500
"""The maximum number of operations in a transaction."""


class VersionConflictError(ConflictError):
    """A compare-and-set found another version, or a create found an existing node."""


class StoreAwayError(OperationalError):
    """The store does not answer, or has ended the session; it may answer soon."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node as read.

    `ephemeral_owner` is the session id of an ephemeral node, 0 for a persistent node.
    `created_txid` is the id of the transaction that created the node; a node that is deleted and
    created again has another one. `changed_txid` is the id of the transaction that wrote its value.
    """

    value: bytes
    version: int
    ephemeral_owner: int = 0
    created_txid: int = 0
    changed_txid: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Create `path`, whose parent must exist; fails if `path` exists."""

    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Set `path` to `value`; fails if a `version` is given and is not the present one."""

    path: str
    value: bytes
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete `path`; fails if a `version` is given and is not the present one."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Fail unless `path` exists with `version` (None: with any version)."""

    path: str
    version: int | None = None


Operation = Create | Put | Delete | Check


def check_size(path: str, value: bytes) -> None:
    """Raise `BadInputError` for a value that is too long."""
    if len(value) > VALUE_BYTES_MAX:
        raise BadInputError(f"{path}: {len(value)} bytes; a node holds at most {VALUE_BYTES_MAX}")


def check_operations(operations: Sequence[Operation]) -> None:
    """Raise `BadInputError` for a transaction that is too large."""
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
    """The kind of a node's change."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    RESYNC = "resync"
    """Notifications may have been missed (a reconnect, a slow reader): the reader must read the
    whole watched tree again. The path is the tree's root.
    """


@dataclass(frozen=True, slots=True)
class Change:
    """One notification, without the node's value."""

    kind: ChangeKind
    path: str

    def is_in(self, root: str) -> bool:
        """True if the path is `root` or below it."""
        return self.path == root or self.path.startswith(root.rstrip("/") + "/")


class SessionState(Enum):
    """The state of the session, as far as the adapter knows."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Store(Protocol):
    """A client of the metadata store with a session. All methods are called on the event loop."""

    @property
    def lease(self) -> Lease:
        """Proof of the session, advanced by the adapter with each answered heartbeat (several per
        session timeout).
        """
        ...

    @property
    def session_id(self) -> int:
        """The session id, as in `Node.ephemeral_owner`; 0 once the session is lost.

        It stays while only the connection is lost.
        """
        ...

    @property
    def session_timeout_s(self) -> float:
        """The session timeout that the server granted."""
        ...

    async def get(self, path: str) -> Node | None:
        """Read a node; None if it does not exist."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes, a bounded number at once; returns them in the order of `paths`."""
        ...

    async def children(self, path: str) -> list[str]:
        """Sorted names of the children; empty when the node does not exist."""
        ...

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> bool:
        """Create a node, after its missing parents (persistent, empty); False if it exists."""
        ...

    async def put(self, path: str, value: bytes, *, version: int | None = None) -> int:
        """Set a value; returns the node's new version.

        Without a `version`, creates the node and its parents if they are missing. With a `version`
        this is a compare-and-set, which raises `VersionConflictError` if the node has another
        version or does not exist.
        """
        ...

    async def delete(self, path: str, *, version: int | None = None) -> bool:
        """Delete a node; False if it does not exist.

        Raises `VersionConflictError` for another version, `ConflictError` if it has children.
        """
        ...

    async def commit(self, operations: Sequence[Operation]) -> int:
        """Do all operations or none (a ZooKeeper `multi`); returns the transaction's id.

        The id is the `Node.created_txid` of the nodes that it creates. Raises
        `VersionConflictError` when any operation fails.
        """
        ...

    def watch(self, root: str) -> AsyncIterator[Change]:
        """Changes of `root` and everything below it, in order: first a RESYNC, then from now on.

        If the reader is too slow, one RESYNC replaces the pending changes. Ends when the store is
        closed.
        """
        ...

    def session_states(self) -> AsyncIterator[SessionState]:
        """The present session state, then each change.

        CONNECTED after LOST means a new session, with a new `session_id`. A reader has dealt with
        a loss when it asks for the next state; before, the lease is not held in a new session.
        """
        ...


async def delete_tree(store: Store, path: str) -> None:
    """Delete a node and everything below it, however deep; not atomic."""
    await _delete_all(store, [path])


async def delete_below(store: Store, path: str) -> None:
    """Delete everything below a node; not atomic.

    For a persistent node where an ephemeral one belongs: its children keep it from being deleted.
    """
    await _delete_all(store, [f"{path}/{name}" for name in await store.children(path)])


async def _delete_all(store: Store, paths: list[str]) -> None:
    remaining = [(path, True) for path in reversed(paths)]
    while remaining:
        path, has_children = remaining.pop()
        if has_children:
            children = await store.children(path)
            remaining += [(path, False), *((f"{path}/{name}", True) for name in reversed(children))]
            continue
        try:
            await store.delete(path)
        except ConflictError:  # somebody added children meanwhile
            remaining.append((path, True))
