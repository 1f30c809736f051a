"""A node of the tree, and what clients are shown of it."""

from __future__ import annotations

from typing import NamedTuple

from loadmanager.kit.zookeeper.embedded.access import Acl
from loadmanager.kit.zookeeper.embedded.codes import NodeKind

CONTAINER_OWNER = -(1 << 63)
"""The owner of a container, which is no session."""
_EXTENDED = 0xFF << 56
"""The highest byte of the owner of a node that has a time to live; the others are that time."""
TTL_MS_MAX = (1 << 40) - 1
NODE_COST_BYTES, ENTRY_COST_BYTES = 800, 200
"""About what a node takes in memory beside its path, which is there twice, and its data; and an
entry of its ACL.
"""


class TreeStat(NamedTuple):
    """What clients are shown beside the data, in the order of the wire."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    session: int
    data_length: int
    children: int
    pzxid: int


class TreeNode:
    """A node. `creations` counts the children that were ever created in it; `owner` is the session
    of an ephemeral node, 0 for a persistent one, and says what kind any other is.
    """

    __slots__ = (
        "acl", "aversion", "children", "creations", "ctime_ms", "czxid", "data", "mtime_ms",
        "mzxid", "owner", "pzxid", "version",
    )  # fmt: skip

    def __init__(self, data: bytes | None, acl: Acl, owner: int, zxid: int, time_ms: int) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = time_ms
        self.version = self.creations = self.aversion = 0
        self.children: set[str] = set()

    def stat(self) -> TreeStat:
        """What clients are shown. Its cversion counts creations and deletions of children."""
        count = len(self.children)
        return TreeStat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            2 * self.creations - count,
            self.aversion,
            self.session,
            len(self.data or b""),
            count,
            self.pzxid,
        )

    def cost(self, path: str) -> int:
        """About how many bytes of memory it takes."""
        return (
            NODE_COST_BYTES
            + ENTRY_COST_BYTES * len(self.acl)
            + 2 * len(path)
            + len(self.data or b"")
        )

    @property
    def session(self) -> int:
        """The session that it ends with, or 0."""
        return 0 if self.container or self.ttl_ms else self.owner

    @property
    def container(self) -> bool:
        """True if it ends some time after its last child."""
        return self.owner == CONTAINER_OWNER

    @property
    def ttl_ms(self) -> int:
        """For how long it lives without children and changes; 0: forever."""
        extended = self.owner & _EXTENDED == _EXTENDED
        return self.owner & TTL_MS_MAX if extended else 0


def owner_for(kind: NodeKind, session_id: int, ttl_ms: int) -> int:
    """The owner of a new node."""
    if kind.ephemeral:
        return session_id
    if kind is NodeKind.CONTAINER:
        return CONTAINER_OWNER
    return _signed(_EXTENDED | ttl_ms) if kind.ends_unchanged else 0


def _signed(bits: int) -> int:
    return bits - (1 << 64)
