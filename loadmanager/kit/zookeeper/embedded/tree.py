"""The tree of nodes in memory: reading it, and the single changes that transactions are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from loadmanager.kit.zookeeper.embedded.access import OPEN_ACL, READ_ONLY_ACL, Acl
from loadmanager.kit.zookeeper.embedded.codes import ErrorCode, RefusedRequestError
from loadmanager.kit.zookeeper.embedded.nodes import ENTRY_COST_BYTES, TreeNode
from loadmanager.kit.zookeeper.embedded.paths import ROOT, name_of, parent_of

SYSTEM_PATHS = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""Always there, as clients of ZooKeeper expect; not to be deleted."""
NEVER_USED_S = 300.0
"""A container that never had a child lives so long."""


class NodeTree:
    """All nodes by their paths. `zxid` is the number of the last transaction.

    Every change is done by a `Transaction`, which undoes it if a later one is refused. What has
    changed since `take_changes` is remembered for the file.
    """

    def __init__(self, nodes: Iterable[tuple[str, TreeNode]] = (), zxid: int = 0) -> None:
        """The nodes of an earlier tree, parents before children; none: a new tree."""
        self.zxid = zxid
        self.cost = 0
        """About how many bytes of memory the nodes take."""
        self._nodes: dict[str, TreeNode] = {}
        self._owned: dict[int, set[str]] = {}
        self._ending: set[str] = set()
        self._changed: set[str] = set()
        for path, node in nodes:
            self._insert(path, node)
        if not self._nodes:
            self._begin()

    def _begin(self) -> None:
        for path in SYSTEM_PATHS:
            last = path == SYSTEM_PATHS[-1]
            node = TreeNode(b"", READ_ONLY_ACL if last else OPEN_ACL, 0, 0, 0)
            node.aversion = -1 if last else 0
            self._insert(path, node)
            self._changed.add(path)

    def _insert(self, path: str, node: TreeNode) -> None:
        self._nodes[path] = node
        self.cost += node.cost(path)
        if path != ROOT:
            self._nodes[parent_of(path)].children.add(name_of(path))
        if node.session:
            self._owned.setdefault(node.session, set()).add(path)
        elif node.owner:
            self._ending.add(path)

    # Reading

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, path: str) -> TreeNode:
        """The node; an empty path is the root's, too. Raises `RefusedRequestError`."""
        node = self.find(path)
        if node is None:
            raise RefusedRequestError(ErrorCode.NO_NODE)
        return node

    def find(self, path: str) -> TreeNode | None:
        """The node, if there is one."""
        return self._nodes.get(path or ROOT)

    def count_below(self, path: str) -> int:
        """How many nodes are below a path."""
        prefix = path.rstrip(ROOT) + ROOT
        return sum(other.startswith(prefix) for other in self._nodes) - (path == ROOT)

    def ephemerals_of(self, session_id: int) -> list[str]:
        """The paths of the nodes that end with a session, sorted."""
        return sorted(self._owned.get(session_id, ()))

    @property
    def owners(self) -> list[int]:
        """The sessions that have nodes."""
        return sorted(self._owned)

    def over(self, now_ms: int) -> list[str]:
        """The containers and nodes with a time to live that are at their end, sorted."""
        return sorted(path for path in self._ending if _is_over(self._nodes[path], now_ms))

    # Changes

    def add(self, path: str, node: TreeNode, zxid: int) -> None:
        """Add a node to its parent, which is there."""
        self._insert(path, node)
        parent = self._nodes[parent_of(path)]
        parent.creations += 1
        parent.pzxid = zxid
        self._changed.update((path, parent_of(path)))

    def take_back(self, path: str, parent_pzxid: int) -> None:
        """Undo `add`."""
        self.remove(path, parent_pzxid)
        self._nodes[parent_of(path)].creations -= 1

    def remove(self, path: str, zxid: int) -> TreeNode:
        """Remove a node, which is there and has no children."""
        node = self._nodes.pop(path)
        self.cost -= node.cost(path)
        parent = self._nodes[parent_of(path)]
        parent.children.discard(name_of(path))
        parent.pzxid = zxid
        self._ending.discard(path)
        if node.session:
            owned = self._owned[node.session]
            owned.discard(path)
            if not owned:
                del self._owned[node.session]
        self._changed.update((path, parent_of(path)))
        return node

    def put_back(self, path: str, node: TreeNode, parent_pzxid: int) -> None:
        """Undo `remove`."""
        self._insert(path, node)
        self._nodes[parent_of(path)].pzxid = parent_pzxid

    def write(self, path: str, data: bytes | None, version: int, zxid: int, time_ms: int) -> None:
        """Change the data of a node, which is there."""
        node = self._nodes[path]
        self.cost += len(data or b"") - len(node.data or b"")
        node.data, node.version, node.mzxid, node.mtime_ms = data, version, zxid, time_ms
        self._changed.add(path)

    def permit(self, path: str, acl: Acl, version: int) -> None:
        """Change the ACL of a node, which is there."""
        node = self._nodes[path]
        self.cost += ENTRY_COST_BYTES * (len(acl) - len(node.acl))
        node.acl, node.aversion = acl, version
        self._changed.add(path)

    def take_changes(self) -> Iterator[tuple[str, TreeNode | None]]:
        """The paths that may have changed since the last call, with their nodes as they are."""
        changed, self._changed = self._changed, set()
        for path in changed:
            yield path, self._nodes.get(path)


def _is_over(node: TreeNode, now_ms: int) -> bool:
    if node.children:
        return False
    unchanged_ms = now_ms - node.mtime_ms
    if node.container:
        return node.creations > 0 or unchanged_ms > NEVER_USED_S * 1000
    return unchanged_ms > node.ttl_ms
