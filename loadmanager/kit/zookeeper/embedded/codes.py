"""ZooKeeper's numbers for requests, errors, events and kinds of nodes.

Source: `ZooDefs`, `KeeperException.Code`, `Watcher.Event` and `CreateMode` of ZooKeeper 3.9.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Opcode(IntEnum):
    """The kind of a request."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    CREATE_2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES_2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11
    ERROR = -1


class ErrorCode(IntEnum):
    """Why a request was refused."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123
    QUOTA_EXCEEDED = -125


class EventKind(IntEnum):
    """What happened to a node."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4
    """A child was created or deleted."""


class WatchMode(IntFlag):
    """How long a watch lasts, and for what."""

    ONCE = 1
    PERSISTENT = 2
    RECURSIVE = 4
    """Persistent, and for all that is below."""


class Permission(IntFlag):
    """What an ACL permits."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class NodeKind(IntEnum):
    """How long a node lives, and whether its name gets a number."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    TTL = 5
    TTL_SEQUENTIAL = 6

    @property
    def ephemeral(self) -> bool:
        """True if it ends with its session."""
        return self in (NodeKind.EPHEMERAL, NodeKind.EPHEMERAL_SEQUENTIAL)

    @property
    def sequential(self) -> bool:
        """True if its name gets a number."""
        return self in (
            NodeKind.PERSISTENT_SEQUENTIAL,
            NodeKind.EPHEMERAL_SEQUENTIAL,
            NodeKind.TTL_SEQUENTIAL,
        )

    @property
    def ends_unchanged(self) -> bool:
        """True if it ends when it was not changed for its time to live."""
        return self in (NodeKind.TTL, NodeKind.TTL_SEQUENTIAL)


class RefusedRequestError(Exception):
    """A request that is answered with an error; nothing has changed."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code
