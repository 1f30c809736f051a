"""The tree of the embedded store and its transactions: exact stats, events and errors."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loadmanager.kit.zookeeper.embedded.access import (
    OPEN_ACL,
    AclEntry,
    AclIdentity,
    check_access,
    digest_of,
    expanded,
    without_digests,
)
from loadmanager.kit.zookeeper.embedded.codes import (
    ErrorCode,
    EventKind,
    NodeKind,
    Permission,
    RefusedRequestError,
)
from loadmanager.kit.zookeeper.embedded.paths import check_path, parent_of
from loadmanager.kit.zookeeper.embedded.transactions import (
    COST_BYTES_MAX,
    CheckVersion,
    CreateNode,
    DeleteNode,
    NodeEvent,
    SetAcl,
    SetData,
    Transaction,
    TransactionRefusedError,
    TreeCaller,
    TreeOperation,
)
from loadmanager.kit.zookeeper.embedded.tree import NEVER_USED_S, SYSTEM_PATHS, NodeTree

ME = TreeCaller(7, (AclIdentity("ip", "127.0.0.1"),))
NOW_MS = 1000


def created(path: str, kind: int = 0, data: bytes = b"", ttl_ms: int = -1) -> CreateNode:
    """Creates a node that anybody may change."""
    return CreateNode(path, data, OPEN_ACL, kind, ttl_ms, with_stat=True)


def do(tree: NodeTree, *operations: TreeOperation, now_ms: int = NOW_MS) -> Transaction:
    """Run a transaction of mine."""
    transaction = Transaction(tree, ME, now_ms)
    transaction.run(operations)
    return transaction


def refusal(tree: NodeTree, *operations: TreeOperation) -> tuple[int, ErrorCode]:
    """Which operation is refused, and why."""
    with pytest.raises(TransactionRefusedError) as raised:
        do(tree, *operations)
    return raised.value.index, raised.value.code


def shown(tree: NodeTree) -> dict[str, Any]:
    """All that clients could see, and what is counted."""
    nodes = {
        path: (node.data, node.acl, node.stat(), sorted(node.children), node.owner)
        for path, node in tree._nodes.items()
    }
    return {
        "nodes": nodes,
        "cost": tree.cost,
        "owned": {owner: tree.ephemerals_of(owner) for owner in tree.owners},
        "ending": sorted(tree._ending),
        "zxid": tree.zxid,
    }


def test_a_new_tree_has_what_zookeeper_has() -> None:
    """With the odd cversions of nodes that nobody created."""
    tree = NodeTree()
    assert sorted(tree._nodes) == sorted(SYSTEM_PATHS)
    assert tree.node("").stat() == (0, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0)
    assert tree.node("/zookeeper").stat().cversion == -2
    assert tree.node("/zookeeper/config").acl == (AclEntry(1, AclIdentity("world", "anyone")),)


def test_stats_count_changes() -> None:
    """Of data, of children and of the ACL, each with the number of its transaction."""
    tree = NodeTree()
    do(tree, created("/a", data=b"one"))
    do(tree, created("/a/x"), now_ms=2000)
    do(tree, created("/a/y"), now_ms=3000)
    do(tree, DeleteNode("/a/x", -1), now_ms=4000)
    do(tree, SetData("/a", b"three", 0), now_ms=5000)
    do(tree, SetAcl("/a", OPEN_ACL, 0), now_ms=6000)
    assert tree.node("/a").stat()._asdict() == {
        "czxid": 1,
        "mzxid": 5,
        "ctime_ms": 1000,
        "mtime_ms": 5000,
        "version": 1,
        "cversion": 3,
        "aversion": 1,
        "session": 0,
        "data_length": 5,
        "children": 1,
        "pzxid": 4,
    }
    assert tree.zxid == 6


def test_sequence_numbers_count_creations() -> None:
    """Of all children, also of those that are gone."""
    tree = NodeTree()
    do(tree, created("/q"), created("/q/other"), DeleteNode("/q/other", -1))
    results = Transaction(tree, ME, NOW_MS).run(
        [created("/q/n-", NodeKind.PERSISTENT_SEQUENTIAL), created("/q/", 3), created("/q/n-", 2)]
    )
    assert [done.path for done in results] == [
        "/q/n-0000000001",
        "/q/0000000002",
        "/q/n-0000000003",
    ]


def test_events_come_in_the_order_of_the_changes() -> None:
    """Each change, and that of the parent's children."""
    tree = NodeTree()
    done = do(tree, created("/a"), created("/a/b"), SetData("/a", b"", -1), DeleteNode("/a/b", 0))
    assert [(event.kind, event.path) for event in done.events] == [
        (EventKind.CREATED, "/a"),
        (EventKind.CHILDREN, "/"),
        (EventKind.CREATED, "/a/b"),
        (EventKind.CHILDREN, "/a"),
        (EventKind.CHANGED, "/a"),
        (EventKind.DELETED, "/a/b"),
        (EventKind.CHILDREN, "/a"),
    ]
    assert done.events[0] == NodeEvent(EventKind.CREATED, "/a", OPEN_ACL)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (created("/a"), ErrorCode.NODE_EXISTS),
        (created("/none/x"), ErrorCode.NO_NODE),
        (created("/mine/x"), ErrorCode.NO_CHILDREN_FOR_EPHEMERALS),
        (created("/a/"), ErrorCode.BAD_ARGUMENTS),
        (created("x"), ErrorCode.BAD_ARGUMENTS),
        (created("/x", 9), ErrorCode.BAD_ARGUMENTS),
        (created("/x", NodeKind.TTL), ErrorCode.BAD_ARGUMENTS),
        (created("/x", NodeKind.TTL, ttl_ms=0), ErrorCode.BAD_ARGUMENTS),
        (created("/x", NodeKind.TTL, ttl_ms=1 << 40), ErrorCode.BAD_ARGUMENTS),
        (CreateNode("/x", b"", (), 0), ErrorCode.INVALID_ACL),
        (DeleteNode("/a", -1), ErrorCode.NOT_EMPTY),
        (DeleteNode("/a/b", 1), ErrorCode.BAD_VERSION),
        (DeleteNode("/none", -1), ErrorCode.NO_NODE),
        (DeleteNode("/zookeeper", -1), ErrorCode.BAD_ARGUMENTS),
        (SetData("/a", b"", 3), ErrorCode.BAD_VERSION),
        (SetData("/none", b"", -1), ErrorCode.NO_NODE),
        (SetData("/zookeeper/config", b"", -1), ErrorCode.NO_AUTH),
        (SetAcl("/a", OPEN_ACL, 1), ErrorCode.BAD_VERSION),
        (CheckVersion("/a", 1), ErrorCode.BAD_VERSION),
        (CheckVersion("/none", -1), ErrorCode.NO_NODE),
    ],
    ids=repr,
)
def test_what_is_refused_changes_nothing(operation: TreeOperation, code: ErrorCode) -> None:
    """Alone, and after others in its transaction, which are undone to the last figure."""
    tree = NodeTree()
    do(tree, created("/a"), created("/a/b"), created("/mine", NodeKind.EPHEMERAL), created("/c", 4))
    before = shown(tree)
    assert refusal(tree, operation) == (0, code)
    others = [
        created("/new"),
        created("/new/e", NodeKind.EPHEMERAL_SEQUENTIAL),
        created("/new/t", NodeKind.TTL, ttl_ms=5),
        SetData("/mine", b"longer", -1),
        SetAcl("/c", [AclEntry(1, AclIdentity("world", "anyone"))], -1),
        DeleteNode("/c", -1),
    ]
    assert refusal(tree, *others, operation) == (len(others), code)
    assert shown(tree) == before


def test_random_transactions_are_undone_exactly() -> None:
    """Whatever was done before the operation that is refused."""
    rng = random.Random(3)
    names = ["/a", "/a/b", "/a/b/c", "/d", "/d/e"]
    undone = 0
    tree = NodeTree()
    for _ in range(3000):
        operations: list[TreeOperation] = []
        for _ in range(rng.randrange(1, 6)):
            path = rng.choice(names)
            operations.append(
                rng.choice(
                    [
                        created(path, rng.choice([0, 0, 0, 1, 2, 3, 4])),
                        DeleteNode(path, rng.choice([-1, 0])),
                        SetData(path, bytes(rng.randrange(9)), rng.choice([-1, 0, 1])),
                    ]
                )
            )
        before = shown(tree)
        transaction = Transaction(tree, ME, NOW_MS)
        try:
            transaction.run(operations)
        except TransactionRefusedError as error:
            assert shown(tree) == before
            assert not transaction.events
            undone += error.index > 0
    assert undone > 300


def test_mere_checks_take_no_number() -> None:
    """They change nothing, and nothing has to be written."""
    tree = NodeTree()
    do(tree, created("/a"))
    do(tree, CheckVersion("/a", 0), CheckVersion("/", -1))
    assert tree.zxid == 1


def test_the_end_of_a_session_takes_its_nodes() -> None:
    """And no others, in one transaction."""
    tree = NodeTree()
    do(tree, created("/e", 1), created("/p"), created("/p/e", 1), created("/p/stays"))
    ending = Transaction(tree, ME, NOW_MS)
    ending.end_session()
    assert sorted(tree.node("/p").children) == ["stays"]
    assert tree.find("/e") is None
    assert tree.owners == []
    assert [event.path for event in ending.events] == ["/e", "/", "/p/e", "/p"]
    assert tree.zxid == 2


def test_containers_and_nodes_with_a_time_to_live_end() -> None:
    """Once they have no children: containers that had some, others after a time."""
    tree = NodeTree()
    do(tree, created("/used", 4), created("/used/x"), created("/new", 4))
    do(tree, created("/ttl", NodeKind.TTL, ttl_ms=500), created("/ttl/x"))
    later_ms = NOW_MS + 501
    assert tree.over(later_ms) == []
    do(tree, DeleteNode("/used/x", -1), DeleteNode("/ttl/x", -1))
    assert tree.over(NOW_MS) == ["/used"]
    assert tree.over(later_ms) == ["/ttl", "/used"]
    assert "/new" in tree.over(NOW_MS + int(NEVER_USED_S * 1000) + 1)
    do(tree, SetData("/ttl", b"again", -1), now_ms=later_ms)
    assert tree.over(later_ms) == ["/used"]
    assert tree.node("/ttl").stat().session == 0


def test_too_much_is_refused_and_deleting_is_not() -> None:
    """Beyond the memory for all nodes."""
    tree = NodeTree()
    do(tree, created("/a", data=b"x"), created("/e", NodeKind.EPHEMERAL))
    tree.cost = COST_BYTES_MAX
    assert refusal(tree, created("/b")) == (0, ErrorCode.QUOTA_EXCEEDED)
    assert refusal(tree, SetData("/a", b"xx", -1)) == (0, ErrorCode.QUOTA_EXCEEDED)
    do(tree, SetData("/a", b"y", -1))
    do(tree, DeleteNode("/a", -1))
    do(tree, created("/b"))


def test_the_number_below_a_node() -> None:
    """Of all levels; a name that begins alike does not count."""
    tree = NodeTree()
    do(tree, created("/a"), created("/a/b"), created("/a/b/c"), created("/ab"))
    assert tree.count_below("/a") == 2
    assert tree.count_below("/") == 4 + len(SYSTEM_PATHS) - 1


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/..", "/a/./b", "/a/..", "/\0", "/a\x1f",
             "/\x7f", "/\ud800", "/\uf8ff", "/\ufff0", "/😀", "/a\n"]
)  # fmt: skip
def test_paths_that_no_node_has(path: str) -> None:
    """By the rules of ZooKeeper's `PathUtils`."""
    with pytest.raises(RefusedRequestError):
        check_path(path)


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/...", "/.a", "/a.", "/ä", "/a b", "/\uf900"])
def test_paths_that_nodes_have(path: str) -> None:
    """Dots are good within names."""
    check_path(path)


def test_parents() -> None:
    """The root is the parent of itself, as at a real server."""
    assert [parent_of(path) for path in ("/", "/a", "/a/b")] == ["/", "/", "/a"]


ANN = digest_of(b"ann:secret")
HERE = AclIdentity("ip", "10.1.2.3")


@pytest.mark.parametrize(
    ("entry", "good"),
    [
        (AclIdentity("world", "anyone"), True),
        (ANN, True),
        (digest_of(b"ann:other"), False),
        (AclIdentity("ip", "10.1.2.3"), True),
        (AclIdentity("ip", "10.1.0.0/16"), True),
        (AclIdentity("ip", "10.2.0.0/16"), False),
        (AclIdentity("ip", "::1"), False),
    ],
)
def test_who_may(entry: AclIdentity, *, good: bool) -> None:
    """By world, user and network; only what the entry permits."""
    acl = (AclEntry(Permission.READ | Permission.WRITE, entry),)
    assert expanded(acl, (ANN, HERE)) == acl
    refusals = {}
    for permission in (Permission.WRITE, Permission.ADMIN):
        try:
            check_access(acl, permission, (ANN, HERE))
        except RefusedRequestError as error:
            refusals[permission] = error.code
    no = ErrorCode.NO_AUTH
    assert refusals == {Permission.ADMIN: no} | ({} if good else {Permission.WRITE: no})


def test_digests_are_those_of_zookeeper() -> None:
    """As in kazoo's test of its super user, whose password is test."""
    assert digest_of(b"super:test") == ("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=")


def test_auth_stands_for_the_users_of_the_connection() -> None:
    """And shows nobody their digests."""
    (entry,) = expanded([AclEntry(31, AclIdentity("auth", ""))], (HERE, ANN))
    assert entry == (31, ANN)
    assert without_digests((entry,)) == ((31, ("digest", "ann:x")),)
    with pytest.raises(RefusedRequestError):
        expanded([AclEntry(31, AclIdentity("auth", ""))], (HERE,))
