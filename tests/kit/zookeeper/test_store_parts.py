"""Watches, sessions, records, commits and the file of the embedded store, each alone."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.zookeeper.embedded.access import OPEN_ACL
from loadmanager.kit.zookeeper.embedded.client import BACKLOG_BYTES_MAX, HELD_BYTES_MAX
from loadmanager.kit.zookeeper.embedded.codes import (
    ErrorCode,
    EventKind,
    RefusedRequestError,
    WatchMode,
)
from loadmanager.kit.zookeeper.embedded.commits import TAKER_ANSWERS, TURN_ANSWERS, TreeCommits
from loadmanager.kit.zookeeper.embedded.connections import StoreConnections
from loadmanager.kit.zookeeper.embedded.file import TreeChanges, TreeFile
from loadmanager.kit.zookeeper.embedded.jute import (
    JuteReader,
    MalformedRecordError,
    boolean,
    buffer,
    integer,
    long,
    text,
    vector,
)
from loadmanager.kit.zookeeper.embedded.outgoing import ENTRY_BYTES, EventFrames, Outgoing
from loadmanager.kit.zookeeper.embedded.sessions import (
    ROOM_SESSIONS,
    SESSIONS_MAX,
    TreeSession,
    TreeSessions,
)
from loadmanager.kit.zookeeper.embedded.transactions import (
    CreateNode,
    DeleteNode,
    NodeEvent,
    SetData,
    Transaction,
    TreeCaller,
)
from loadmanager.kit.zookeeper.embedded.tree import NodeTree
from loadmanager.kit.zookeeper.embedded.watches import COST_BYTES_MAX, TreeWatches
from loadmanager.kit.zookeeper.embedded.words import StoreFigures, answer_to, is_word

# Watches


def concerned(watches: TreeWatches, kind: EventKind, path: str) -> list[Any]:
    """Who hears of an event."""
    groups = watches.concerned(NodeEvent(kind, path, OPEN_ACL))
    return list(dict.fromkeys(watcher for group in groups for watcher in group.watchers))


def test_a_watch_is_for_one_event() -> None:
    """Of the data or of the children; a lasting one stays."""
    watches = TreeWatches()
    watches.add(watches.data, "/a", "once", WatchMode.ONCE)
    watches.add(watches.children, "/a", "lister", WatchMode.ONCE)
    watches.add_lasting("/a", "lasting", WatchMode.PERSISTENT)
    assert concerned(watches, EventKind.CHILDREN, "/a") == ["lister", "lasting"]
    assert concerned(watches, EventKind.CHILDREN, "/a") == ["lasting"]
    assert concerned(watches, EventKind.CHANGED, "/a") == ["once", "lasting"]
    assert concerned(watches, EventKind.CHANGED, "/a") == ["lasting"]


def test_a_deletion_is_told_once() -> None:
    """To those who watch the data, the children or both."""
    watches = TreeWatches()
    for table in (watches.data, watches.children):
        watches.add(table, "/a", "both", WatchMode.ONCE)
    watches.add(watches.children, "/a", "lister", WatchMode.ONCE)
    assert concerned(watches, EventKind.DELETED, "/a") == ["both", "lister"]
    assert concerned(watches, EventKind.DELETED, "/a") == []
    assert watches.data.cost == watches.children.cost == 0


def test_a_watch_of_a_tree_hears_of_all_below() -> None:
    """Not of lists of children, and not of names that begin alike."""
    watches = TreeWatches()
    watches.add_lasting("/a", "tree", WatchMode.RECURSIVE)
    watches.add_lasting("/", "all", WatchMode.RECURSIVE)
    assert concerned(watches, EventKind.CREATED, "/a/b/c") == ["tree", "all"]
    assert concerned(watches, EventKind.CHANGED, "/ab") == ["all"]
    assert concerned(watches, EventKind.CHILDREN, "/a") == []
    watches.forget("tree")
    assert concerned(watches, EventKind.CREATED, "/a") == ["all"]


def test_modes_of_one_watcher_end_one_by_one() -> None:
    """As the request removeWatches says."""
    watches = TreeWatches()
    for mode in (WatchMode.ONCE, WatchMode.PERSISTENT, WatchMode.RECURSIVE):
        watches.add(watches.data, "/a", "me", mode)
    assert watches.data.remove("/a", "me", WatchMode.RECURSIVE)
    assert not watches.data.remove("/a", "me", WatchMode.RECURSIVE)
    assert concerned(watches, EventKind.CREATED, "/a/b") == []
    assert watches.data.has("/a", "me", WatchMode.ONCE)
    assert len(watches.data) == 1


def test_watches_are_bounded_by_their_memory() -> None:
    """Long paths count."""
    watches = TreeWatches()
    path = "x" * 1_000_000
    for number in range(COST_BYTES_MAX // 1_001_000):
        watches.add(watches.data, f"/{number}{path}", "me", WatchMode.ONCE)
    with pytest.raises(RefusedRequestError) as refused:
        watches.add(watches.data, f"/one-more{path}", "me", WatchMode.ONCE)
    assert refused.value.code is ErrorCode.QUOTA_EXCEEDED
    assert watches.data.cost <= COST_BYTES_MAX
    watches.forget("me")
    assert watches.data.cost == 0


# Sessions


def test_sessions_end_when_nothing_is_heard_of_them() -> None:
    """Counted from the last time; what was no fault of theirs does not count."""
    sessions = TreeSessions([], now_s=0.0, time_ms=0)
    session = sessions.begin(10_000, now_s=0.0)
    assert session is not None
    assert sessions.overdue(9.9) == []
    session.touch(9.9)
    assert sessions.overdue(19.8) == []
    sessions.postpone(5.0)
    assert sessions.overdue(24.8) == []
    assert sessions.overdue(24.9) == [session.id]


def test_a_session_is_resumed_by_its_password() -> None:
    """And by no other; with the timeout that is asked for then."""
    sessions = TreeSessions([], now_s=0.0, time_ms=0)
    session = sessions.begin(1, now_s=0.0)
    assert session is not None
    assert session.timeout_ms == 500
    assert sessions.resume(session.id, b"x" * 16, 1000, 0.1) is None
    assert sessions.resume(session.id + 1, session.password, 1000, 0.1) is None
    assert sessions.resume(session.id, session.password, 10_000_000, 0.1) is session
    assert session.timeout_ms == 600_000
    sessions.end(session.id)
    assert sessions.resume(session.id, session.password, 1000, 0.1) is None


def test_stored_sessions_have_their_whole_timeout_again() -> None:
    """And new ones get other ids, whatever the clock says."""
    stored = [TreeSession((1 << 56) + (1 << 50), b"p" * 16, 2000)]
    sessions = TreeSessions(stored, now_s=100.0, time_ms=5)
    assert sessions.overdue(101.9) == []
    session = sessions.begin(1000, 100.0)
    assert session is not None
    assert session.id > stored[0].id


def test_sessions_are_bounded() -> None:
    """Those of clients that come and go without an end."""
    sessions = TreeSessions([], now_s=0.0, time_ms=0)
    for _ in range(SESSIONS_MAX):
        assert sessions.begin(1000, 0.0) is not None
    assert sessions.full
    assert sessions.begin(1000, 0.0) is None


def test_the_idlest_sessions_make_room() -> None:
    """Those of which nothing was heard for longest, whatever their timeouts are."""
    sessions = TreeSessions([], now_s=0.0, time_ms=0)
    begun = [sessions.begin(1000 * (1 + number % 7), number / 10) for number in range(1000)]
    ids = [session.id for session in begun if session is not None]
    assert begun[3] is not None
    begun[3].touch(1000.0)
    idlest = sessions.idlest(lambda each: each != ids[1])
    assert idlest == [ids[0], ids[2], *ids[4 : ROOM_SESSIONS + 2]]


# Records


def test_records_are_read_as_they_were_written() -> None:
    """In their order, to the end."""
    data = integer(-5) + long(1 << 40) + boolean(True) + buffer(None) + buffer(b"x") + text("ä")
    reader = JuteReader(data + vector([integer(1), integer(2)]))
    assert (reader.integer(), reader.long(), reader.boolean()) == (-5, 1 << 40, True)
    assert (reader.buffer(), reader.buffer(), reader.text()) == (None, b"x", "ä")
    assert reader.vector(reader.integer) == [1, 2]
    assert reader.at_end


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", integer(5) + b"1234", integer(-2), integer(1 << 30)]
)
def test_records_that_are_none(data: bytes) -> None:
    """They are refused, whatever their lengths promise."""
    with pytest.raises(MalformedRecordError):
        JuteReader(data).text()


@pytest.mark.parametrize("count", [1, 1 << 30])
def test_lists_that_are_none(count: int) -> None:
    """Longer than their record, or with an item that is cut off."""
    reader = JuteReader(integer(count) + b"\0\0")
    with pytest.raises(MalformedRecordError):
        reader.vector(reader.text)


# Commits


class Taker:
    """Where answers go."""

    def __init__(self) -> None:
        self.waiting: deque[Outgoing] = deque()
        self.waiting_bytes = self.event_bytes = 0
        self.paused = False
        self.overflows = 0
        self.answers: list[bytes | None] = []

    def take(self, answer: bytes | None) -> None:
        """An answer."""
        self.answers.append(answer)

    def dismiss(self) -> None:
        """It is to be hung up on."""

    def overflow(self) -> None:
        """More than may wait."""
        self.overflows += 1


class HeldFile:
    """A file whose writes wait until the test lets them pass, or fail."""

    def __init__(self) -> None:
        self.written: list[TreeChanges] = []
        self.passes = threading.Semaphore(0)
        self.error: OperationalError | None = None

    def write(self, changes: TreeChanges) -> None:
        """In a thread."""
        assert self.passes.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        self.written.append(changes)


def change(tree: NodeTree, path: str) -> None:
    """A transaction."""
    Transaction(tree, TreeCaller(0, ()), 0).run([CreateNode(path, b"", OPEN_ACL, 0)])


CLOCK: Any = SimpleNamespace(monotonic_s=lambda: 0.0)


async def until(condition: Any) -> None:
    """Wait."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_no_answer_leaves_before_what_it_depends_on_is_written() -> None:
    """Answers to reads wait, too, behind those before them; what comes during a write is written
    together.
    """
    tree, file, taker = NodeTree(), HeldFile(), Taker()
    commits = TreeCommits(tree, TreeSessions([], 0.0, 0), file, CLOCK)  # type: ignore[arg-type]
    commits.send(taker, b"read before")
    assert taker.answers == [b"read before"]
    running = asyncio.create_task(commits.run())
    change(tree, "/a")
    commits.send(taker, b"wrote a")
    commits.send(taker, b"read after")
    await until(lambda: commits.writing_since_s is not None)
    for name in "bcd":
        change(tree, f"/{name}")
        commits.send(taker, f"wrote {name}".encode())
    assert taker.answers == [b"read before"]
    assert taker.waiting_bytes > 0
    file.passes.release()
    await until(lambda: len(taker.answers) == 3)
    assert taker.answers[1:] == [b"wrote a", b"read after"]
    file.passes.release()
    await until(lambda: len(taker.answers) == 6)
    assert [changes.zxid for changes in file.written] == [1, 4]
    assert taker.waiting_bytes == 0
    commits.stop()
    await running


async def test_what_cannot_be_written_is_never_answered() -> None:
    """`run` says why."""
    tree, file, taker = NodeTree(), HeldFile(), Taker()
    commits = TreeCommits(tree, TreeSessions([], 0.0, 0), file, CLOCK)  # type: ignore[arg-type]
    change(tree, "/a")
    commits.send(taker, b"wrote a")
    file.error = OperationalError("the disk is full")
    file.passes.release()
    with pytest.raises(OperationalError, match="the disk is full"):
        await commits.run()
    assert taker.answers == []


async def test_others_are_answered_while_much_is_delivered() -> None:
    """What waited for a large write leaves in many turns; who waits for none of it is served
    between them, and nobody's answers change their order.
    """
    tree, file, taker, other = NodeTree(), HeldFile(), Taker(), Taker()
    commits = TreeCommits(tree, TreeSessions([], 0.0, 0), file, CLOCK)  # type: ignore[arg-type]
    change(tree, "/a")
    events = [str(number).encode() for number in range(5 * TURN_ANSWERS)]
    for event in events:
        commits.send(taker, event)
    file.passes.release()
    running = asyncio.create_task(commits.run())
    while not taker.answers:
        await asyncio.sleep(0)
    assert len(taker.answers) < len(events)
    commits.send(other, b"pong")
    commits.send(taker, b"after")
    assert other.answers == [b"pong"]
    commits.stop()
    await running
    assert taker.answers == [*events, b"after"]


async def test_what_waits_for_one_write_is_bounded() -> None:
    """For one taker, and for all together: only who waits for much is hung up on then."""
    tree, file = NodeTree(), HeldFile()
    commits = TreeCommits(tree, TreeSessions([], 0.0, 0), file, CLOCK)  # type: ignore[arg-type]
    change(tree, "/a")
    event = b"x" * (1 << 20)
    many = [Taker() for _ in range(1 + HELD_BYTES_MAX // BACKLOG_BYTES_MAX)]
    small = Taker()
    commits.send(small, b"a")
    for taker in many:
        for _ in range(100):
            commits.send(taker, event)
    assert all(taker.overflows for taker in many)
    assert sum(taker.waiting_bytes for taker in many) < HELD_BYTES_MAX + BACKLOG_BYTES_MAX
    assert max(taker.waiting_bytes for taker in many) < BACKLOG_BYTES_MAX + 2 * len(event)
    commits.send(small, b"b")
    file.passes.release()
    commits.stop()
    await commits.run()
    assert (small.answers, small.overflows) == ([b"a", b"b"], 0)
    assert {taker.waiting_bytes for taker in many} == {0}


async def test_events_that_many_wait_for_are_held_once() -> None:
    """A hundred clients wait for forty megabytes of the same events: nobody is hung up on. They
    come in turns, in order and before later answers; who does not read keeps nobody waiting.
    """
    tree, file = NodeTree(), HeldFile()
    commits = TreeCommits(tree, TreeSessions([], 0.0, 0), file, CLOCK)  # type: ignore[arg-type]
    change(tree, "/a")
    events = [b"%d" % number for number in range(100)]
    size, many = 10 << 20, [Taker() for _ in range(100)]
    slow, gone, *others = many
    slow.paused = True
    for _ in range(4):
        commits.send_events([(each, EventFrames(iter(events), size >> 2)) for each in many], size)
    commits.forget(gone)
    for each in others:
        commits.send(each, b"after")
    assert not any(each.overflows for each in many)
    file.passes.release()
    running = asyncio.create_task(commits.run())
    await until(lambda: any(each.answers for each in others))
    counts = [len(each.answers) for each in others]
    assert max(counts) - min(counts) <= TAKER_ANSWERS, "each has its turn"
    await until(lambda: others[-1].answers[-1:] == [b"after"])
    assert all(each.answers == [*events * 4, b"after"] for each in others)
    assert slow.answers == gone.answers == []
    assert (slow.event_bytes, gone.event_bytes) == (size + 4 * ENTRY_BYTES, 0)
    slow.paused = False
    commits.wanted()
    commits.stop()
    await running
    assert slow.answers == events * 4
    assert commits.waiting == commits._waiting_bytes == slow.event_bytes == 0


async def test_who_does_not_read_events_is_hung_up_on() -> None:
    """At a bound that counts what it waits for as if nobody else did."""
    tree, file = NodeTree(), HeldFile()
    commits = TreeCommits(tree, TreeSessions([], 0.0, 0), file, CLOCK)  # type: ignore[arg-type]
    change(tree, "/a")
    slow, size = Taker(), BACKLOG_BYTES_MAX // 4
    for _ in range(5):
        commits.send_events([(slow, EventFrames(iter([b"x"]), size))], size)
    assert slow.overflows == 1
    assert slow.event_bytes == 4 * (size + ENTRY_BYTES)


# Connections


class CountedConnection:
    """One that counts how often it is asked what it holds."""

    address = "127.0.0.1:1"

    def __init__(self, footprint: int) -> None:
        self._bytes = footprint
        self.looks = self.aborts = 0

    @property
    def footprint(self) -> int:
        """How much it holds."""
        self.looks += 1
        return self._bytes

    def abort(self) -> None:
        """Hang up."""
        self.aborts += 1


async def test_what_all_hold_is_looked_at_once_per_turn() -> None:
    """However often connections ask: fifteen thousand events for each of many watchers are as many
    questions. Those that hold most are hung up on, until the others hold no more than all may.
    """
    keeper = StoreConnections(*[None] * 3, 100, (0, "", 0))  # type: ignore[arg-type]
    shares = [HELD_BYTES_MAX // 4 - 100 + number for number in (3, 1, 2)]
    connections = [
        CountedConnection(share) for share in (*shares, *[HELD_BYTES_MAX // 4 - 100] * 3)
    ]
    for each in connections:
        assert keeper.opened(each)  # type: ignore[arg-type]
    for _ in range(10_000):
        keeper.relieve()
    await asyncio.sleep(0)
    assert [each.looks for each in connections] == [1] * 6
    assert [each.aborts for each in connections] == [1, 0, 1, 0, 0, 0]
    keeper.relieve()
    await asyncio.sleep(0)
    assert [each.looks for each in connections] == [2] * 6


# The file


def stored(file: TreeFile, tree: NodeTree, sessions: Iterable[Any] = ()) -> None:
    """Write what has changed."""
    file.write(TreeChanges.of(tree.zxid, tree.take_changes(), sessions))


def test_the_file_gives_back_what_was_written(tmp_path: Path) -> None:
    """Data, null, ACLs, kinds, versions, counts, sessions and the number."""
    file = TreeFile(tmp_path / "new" / "folder")
    tree, sessions = file.open()
    assert sessions == []
    caller = TreeCaller(9, ())
    operations = [
        CreateNode("/a", None, OPEN_ACL, 0),
        CreateNode("/a/e", b"x", OPEN_ACL, 1),
        CreateNode("/a/c", b"", OPEN_ACL, 4),
        CreateNode("/a/t", b"", OPEN_ACL, 5, 77),
        CreateNode("/a/gone", b"", OPEN_ACL, 0),
    ]
    Transaction(tree, caller, 5).run(operations)
    stored(file, tree, [(9, TreeSession(9, b"p" * 16, 700))])
    Transaction(tree, caller, 6).run([DeleteNode("/a/gone", 0), SetData("/a/c", b"new", 0)])
    stored(file, tree, [(8, None)])
    file.close()
    again, sessions = file.open()
    assert [(each.id, each.password, each.timeout_ms) for each in sessions] == [(9, b"p" * 16, 700)]
    assert again.zxid == tree.zxid == 2
    assert again.cost == tree.cost
    assert again._nodes.keys() == tree._nodes.keys()
    for path, node in tree._nodes.items():
        other = again.node(path)
        assert (other.data, other.acl, other.stat()) == (node.data, node.acl, node.stat()), path
        assert (other.owner, other.children) == (node.owner, node.children)
    assert again.ephemerals_of(9) == ["/a/e"]
    assert again.over(1000) == ["/a/t"]
    file.close()
    assert file.path.stat().st_mode & 0o077 == 0, "for its user alone"


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """Its message names the file."""
    file = TreeFile(tmp_path)
    tree, _ = file.open()
    change(tree, "/a")
    stored(file, tree)
    assert file._database is not None
    file._database.execute("UPDATE number SET value = 2 WHERE name = 'format'")
    file.close()
    with pytest.raises(OperationalError, match=r"tree\.sqlite was written by a newer version"):
        file.open()


def test_a_file_with_an_orphan_is_refused(tmp_path: Path) -> None:
    """A damaged file is not served by half."""
    file = TreeFile(tmp_path)
    tree, _ = file.open()
    change(tree, "/a")
    change(tree, "/a/b")
    stored(file, tree)
    assert file._database is not None
    file._database.execute("DELETE FROM node WHERE path = '/a'")
    file.close()
    with pytest.raises(OperationalError, match="is damaged"):
        file.open()


# Words


def test_words() -> None:
    """They show what monitoring reads."""
    figures = StoreFigures(
        port=2181,
        data_dir="/data",
        tick_ms=100,
        connections=("/127.0.0.1:5[1](queued=0,recved=3,sent=4)",),
        requests=3,
        answers=4,
        waiting=1,
        mean_ms=0.5,
        longest_ms=7,
        zxid=255,
        nodes=5,
        watches=2,
        ephemerals=1,
        sessions=1,
        cost_bytes=4000,
    )
    assert answer_to(b"ruok", figures) == b"imok"
    server = answer_to(b"srvr", figures).decode()
    assert "Latency min/avg/max: 0/0.5000/7\n" in server
    assert "Zxid: 0xff\n" in server
    assert "Mode: standalone\n" in server
    assert " /127.0.0.1:5[1]" in answer_to(b"stat", figures).decode()
    assert "zk_znode_count\t5\n" in answer_to(b"mntr", figures).decode()
    assert "tickTime=100\n" in answer_to(b"conf", figures).decode()
    assert is_word(b"envi")
    assert not is_word(b"\0\0\0\x2d")
