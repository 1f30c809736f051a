"""Changes of the tree, all or none. The order of the checks is that of ZooKeeper's
`PrepRequestProcessor`, because it decides which error a client gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from loadmanager.kit.zookeeper.embedded.access import (
    Acl,
    AclEntry,
    AclIdentity,
    check_access,
    expanded,
)
from loadmanager.kit.zookeeper.embedded.codes import (
    ErrorCode,
    EventKind,
    NodeKind,
    Permission,
    RefusedRequestError,
)
from loadmanager.kit.zookeeper.embedded.nodes import (
    ENTRY_COST_BYTES,
    TTL_MS_MAX,
    TreeNode,
    TreeStat,
    owner_for,
)
from loadmanager.kit.zookeeper.embedded.paths import check_path, parent_of
from loadmanager.kit.zookeeper.embedded.tree import SYSTEM_PATHS, NodeTree

VERSION_MAX = (1 << 31) - 1
COST_BYTES_MAX = 512 << 20
"""About how much memory all nodes may take. Beyond it, nodes can be deleted only."""


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Creates a node. `with_stat`: its stat is wanted, too. `ttl_ms` is −1 without a limit."""

    path: str
    data: bytes | None
    acl: Sequence[AclEntry]
    kind: int
    ttl_ms: int = -1
    with_stat: bool = False


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Deletes a node of this version; −1: of any."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class SetData:
    """Changes the data of a node of this version; −1: of any."""

    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetAcl:
    """Changes the ACL of a node whose ACL has this version; −1: any."""

    path: str
    acl: Sequence[AclEntry]
    version: int


@dataclass(frozen=True, slots=True)
class CheckVersion:
    """Requires that a node is there and has this version; −1: any."""

    path: str
    version: int


TreeOperation = CreateNode | DeleteNode | SetData | SetAcl | CheckVersion


class TreeCaller(NamedTuple):
    """Who asks."""

    session_id: int
    identities: Sequence[AclIdentity]


class OperationResult(NamedTuple):
    """The path of a node that was created, and the stat of one that was changed."""

    path: str | None
    stat: TreeStat | None


class NodeEvent(NamedTuple):
    """Something that happened to a node. Only those hear of it whom its ACL permits to read."""

    kind: EventKind
    path: str
    acl: Acl


class TransactionRefusedError(Exception):
    """The operation at `index` was refused with `code`; nothing has changed."""

    def __init__(self, index: int, code: ErrorCode) -> None:
        super().__init__(f"operation {index}: {code.name}")
        self.index = index
        self.code = code


class Transaction:
    """One transaction: `run` it, or `end_session`; then `events` has what happened."""

    def __init__(self, tree: NodeTree, caller: TreeCaller, now_ms: int) -> None:
        self._tree = tree
        self._caller = caller
        self._now_ms = now_ms
        self._zxid = tree.zxid + 1
        self._undo: list[Callable[[], object]] = []
        self.events: list[NodeEvent] = []

    def run(self, operations: Sequence[TreeOperation]) -> list[OperationResult]:
        """Do all operations. Raises `TransactionRefusedError` after undoing what was done.

        A transaction of mere checks changes nothing, and takes no number.
        """
        results = []
        for index, operation in enumerate(operations):
            try:
                results.append(self._do(operation))
            except RefusedRequestError as refusal:
                self._take_back()
                raise TransactionRefusedError(index, refusal.code) from None
            except BaseException:
                self._take_back()
                raise
        if self._undo:
            self._tree.zxid = self._zxid
        return results

    def end_session(self) -> None:
        """Delete all nodes of the caller's session. Takes a number in any case."""
        for path in self._tree.ephemerals_of(self._caller.session_id):
            self._remove(path)
        self._tree.zxid = self._zxid

    def end_node(self, path: str) -> None:
        """Delete a container or a node whose time to live is over."""
        self._remove(path)
        self._tree.zxid = self._zxid

    def _take_back(self) -> None:
        for step in reversed(self._undo):
            step()
        self._undo.clear()
        self.events.clear()

    def _do(self, operation: TreeOperation) -> OperationResult:
        match operation:
            case CreateNode():
                return self._create(operation)
            case DeleteNode():
                return self._delete(operation)
            case SetData():
                return self._set_data(operation)
            case SetAcl():
                return self._set_acl(operation)
            case CheckVersion():
                return self._check(operation)

    def _create(self, wanted: CreateNode) -> OperationResult:
        kind = _kind_of(wanted)
        parent_path = parent_of(wanted.path)
        acl = expanded(wanted.acl, self._caller.identities)
        parent = self._permitted(parent_path, Permission.CREATE)
        path = wanted.path
        if kind.sequential:
            path += f"{parent.creations:010d}"
        check_path(path)
        if self._tree.find(path) is not None:
            raise RefusedRequestError(ErrorCode.NODE_EXISTS)
        if parent.session:
            raise RefusedRequestError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
        owner = owner_for(kind, self._caller.session_id, wanted.ttl_ms)
        node = TreeNode(wanted.data, acl, owner, self._zxid, self._now_ms)
        self._require_memory(node.cost(path))
        self._undo.append(partial(self._tree.take_back, path, parent.pzxid))
        self._tree.add(path, node, self._zxid)
        self._happened(EventKind.CREATED, path, acl)
        self._happened(EventKind.CHILDREN, parent_path, parent.acl)
        return OperationResult(path, node.stat() if wanted.with_stat else None)

    def _delete(self, wanted: DeleteNode) -> OperationResult:
        if wanted.path in SYSTEM_PATHS:
            raise RefusedRequestError(ErrorCode.BAD_ARGUMENTS)
        self._permitted(parent_of(wanted.path), Permission.DELETE)
        node = self._tree.node(wanted.path)
        _next_version(node.version, wanted.version)
        if node.children:
            raise RefusedRequestError(ErrorCode.NOT_EMPTY)
        self._remove(wanted.path)
        return OperationResult(None, None)

    def _remove(self, path: str) -> None:
        parent_path = parent_of(path)
        parent = self._tree.node(parent_path)
        parent_pzxid = parent.pzxid
        node = self._tree.remove(path, self._zxid)
        self._undo.append(partial(self._tree.put_back, path, node, parent_pzxid))
        self._happened(EventKind.DELETED, path, node.acl)
        self._happened(EventKind.CHILDREN, parent_path, parent.acl)

    def _set_data(self, wanted: SetData) -> OperationResult:
        check_path(wanted.path)
        node = self._permitted(wanted.path, Permission.WRITE)
        version = _next_version(node.version, wanted.version)
        self._require_memory(len(wanted.data or b"") - len(node.data or b""))
        before = (wanted.path, node.data, node.version, node.mzxid, node.mtime_ms)
        self._undo.append(partial(self._tree.write, *before))
        self._tree.write(wanted.path, wanted.data, version, self._zxid, self._now_ms)
        self._happened(EventKind.CHANGED, wanted.path, node.acl)
        return OperationResult(None, node.stat())

    def _set_acl(self, wanted: SetAcl) -> OperationResult:
        check_path(wanted.path)
        acl = expanded(wanted.acl, self._caller.identities)
        node = self._permitted(wanted.path, Permission.ADMIN)
        version = _next_version(node.aversion, wanted.version)
        self._require_memory(ENTRY_COST_BYTES * (len(acl) - len(node.acl)))
        self._undo.append(partial(self._tree.permit, wanted.path, node.acl, node.aversion))
        self._tree.permit(wanted.path, acl, version)
        return OperationResult(None, node.stat())

    def _check(self, wanted: CheckVersion) -> OperationResult:
        check_path(wanted.path)
        node = self._permitted(wanted.path, Permission.READ)
        _next_version(node.version, wanted.version)
        return OperationResult(None, None)

    def _permitted(self, path: str, permission: Permission) -> TreeNode:
        node = self._tree.node(path)
        check_access(node.acl, permission, self._caller.identities)
        return node

    def _require_memory(self, cost: int) -> None:
        if cost > 0 and self._tree.cost + cost > COST_BYTES_MAX:
            raise RefusedRequestError(ErrorCode.QUOTA_EXCEEDED)

    def _happened(self, kind: EventKind, path: str, acl: Acl) -> None:
        self.events.append(NodeEvent(kind, path, acl))


def _kind_of(wanted: CreateNode) -> NodeKind:
    try:
        kind = NodeKind(wanted.kind)
    except ValueError:
        raise RefusedRequestError(ErrorCode.BAD_ARGUMENTS) from None
    good = 0 < wanted.ttl_ms <= TTL_MS_MAX if kind.ends_unchanged else wanted.ttl_ms < 0
    if not good:
        raise RefusedRequestError(ErrorCode.BAD_ARGUMENTS)
    return kind


def _next_version(version: int, expected: int) -> int:
    """The version after a change, if the present one is expected. It is never −1, which stands for
    any version.
    """
    if expected not in (-1, version):
        raise RefusedRequestError(ErrorCode.BAD_VERSION)
    following = version + 1 if version < VERSION_MAX else -VERSION_MAX - 1
    return 0 if following == -1 else following
