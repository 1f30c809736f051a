"""The embedded store beside a real ZooKeeper: random programs, compared answer by answer.

Numbers of transactions, sessions and times differ; they are compared by their order.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kit.zookeeper.wire import AUTH, SET_WATCHES, WRITES, HungUpError, WireClient, acl_of, multi_of
from ports import free_port

from loadmanager.kit.zookeeper.embedded.codes import Opcode
from loadmanager.kit.zookeeper.embedded.jute import boolean, buffer, integer, long, text, vector
from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore
from loadmanager.kit.zookeeper.java import JavaZooKeeper

pytestmark = pytest.mark.zookeeper

SEEDS = int(os.environ.get("SEEDS", "12"))
FIRST = int(os.environ.get("SEED", "1"))
STEPS = 120
CLIENTS = 3
OPEN = [(31, "world", "anyone")]


@contextmanager
def embedded() -> Iterator[EmbeddedStore]:
    """A server in a thread of its own."""
    ready, servers, loops = threading.Event(), [], []

    async def main() -> None:
        async with EmbeddedStore() as server:
            stop = asyncio.Event()
            servers.append(server)
            loops.append((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="embedded store")
    thread.start()
    assert ready.wait(60)
    try:
        yield servers[0]
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join()


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """Those of a real server, with nodes that have a time to live, and of ours; both are new."""
    os.environ["JAVA_TOOL_OPTIONS"] = "-Dzookeeper.extendedTypesEnabled=true"
    java = JavaZooKeeper(port=free_port(), tick_ms=100)
    try:
        java.start()
        java.wait_until_ready()
        del os.environ["JAVA_TOOL_OPTIONS"]
        with embedded() as server:
            yield java.port, server.port
    finally:
        os.environ.pop("JAVA_TOOL_OPTIONS", None)
        java.stop()


class Same:
    """Compares what two servers show; remembers which numbers of theirs are the same."""

    def __init__(self) -> None:
        self.zxids: dict[int, int] = {}
        self.sessions: dict[int, int] = {}

    def check(self, theirs: Any, ours: Any, name: str = "") -> None:
        """Assert that both are the same."""
        if isinstance(theirs, dict):
            assert theirs.keys() == ours.keys()
            for key in theirs:
                self.check(theirs[key], ours[key], key)
        elif isinstance(theirs, list | tuple):
            assert len(theirs) == len(ours), (theirs, ours)
            for one, other in zip(theirs, ours, strict=True):
                self.check(one, other)
        elif name in ("czxid", "mzxid", "pzxid"):
            self.zxid(theirs, ours)
        elif name in ("ctime", "mtime"):
            assert abs(theirs - ours) < 60_000, (name, theirs, ours)
        elif name == "owner" and theirs in self.sessions:
            assert self.sessions[theirs] == ours
        else:
            assert theirs == ours, (name, theirs, ours)

    def zxid(self, theirs: int, ours: int) -> None:
        """Transactions of both."""
        assert self.zxids.setdefault(theirs, ours) == ours, (self.zxids, theirs, ours)

    def check_order(self) -> None:
        """The numbers of transactions grow in the same order."""
        pairs = sorted(self.zxids.items())
        assert [ours for _, ours in pairs] == sorted({ours for _, ours in pairs})


NAMES = ("a", "a/b", "a/b/c", "d", "d/e", "d/f", "s", "s/x")
ODD = (
    "",
    "/",
    "relative",
    "/a/",
    "/a//b",
    "/a/./b",
    "/a/..",
    "/\x01",
    "/a\0",
    "/\ue000",
    "/zookeeper",
    "/zookeeper/config",
    "/zookeeper/quota",
)
DATA = (None, b"", b"x", b"longer", bytes(20))
ACLS = (
    OPEN,
    OPEN,
    OPEN,
    OPEN,
    [(1, "world", "anyone")],
    [(31, "auth", "")],
    [(31, "ip", "127.0.0.1")],
    [(31, "ip", "127.0.0.0/8"), (1, "world", "anyone")],
    [(31, "ip", "10.0.0.0/8")],
    [(31, "ip", "nonsense")],
    [(31, "ip", "127.0.0.1/99")],
    [],
    [(31, "world", "somebody")],
    [(31, "odd", "x")],
    [(31, "digest", "ann:abc=")],
    [(31, "digest", "ann")],
    [(3, "world", "anyone"), (3, "world", "anyone")],
    [(31, "digest", "ann:abc="), (1, "world", "anyone")],
    [(17, "auth", ""), (12, "world", "anyone")],
)
USERS = (b"ann:secret", b"bob:", b"carl", b"")


class Program:
    """Chooses requests."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.root = f"/p{seed}"

    def path(self) -> str:
        """A path, rarely an odd one."""
        if self.rng.random() < 0.05:
            return self.rng.choice(ODD)
        if self.rng.random() < 0.05:
            return self.root + self.rng.choice(ODD)
        if self.rng.random() < 0.1:
            return self.root
        return f"{self.root}/{self.rng.choice(NAMES)}"

    def version(self) -> bytes:
        """Mostly any."""
        return integer(self.rng.choice((-1, -1, -1, 0, 0, 1, 2, -2)))

    def flag(self) -> bytes:
        """Whether to watch."""
        return boolean(self.rng.random() < 0.5)

    def creation(self) -> tuple[int, bytes]:
        """A request that creates."""
        kind = self.rng.choice(
            (
                Opcode.CREATE,
                Opcode.CREATE,
                Opcode.CREATE_2,
                Opcode.CREATE_CONTAINER,
                Opcode.CREATE_TTL,
            )
        )
        # A real server ends itself when it is asked for a node with a time to live of another kind.
        flags = {Opcode.CREATE_CONTAINER: (4,), Opcode.CREATE_TTL: (5, 6)}.get(
            kind, (0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 7, -1)
        )
        body = text(self.path()) + buffer(self.rng.choice(DATA))
        body += acl_of(self.rng.choice(ACLS)) + integer(self.rng.choice(flags))
        if kind == Opcode.CREATE_TTL:
            body += long(self.rng.choice((100_000, 1 << 39, 0, -1, 1 << 41)))
        return kind, body

    def operation(self) -> tuple[int, bytes]:
        """One that may be part of a transaction."""
        match self.rng.randrange(5):
            case 0 | 1:
                return self.creation()
            case 2:
                return Opcode.DELETE, text(self.path()) + self.version()
            case 3:
                body = text(self.path()) + buffer(self.rng.choice(DATA)) + self.version()
                return Opcode.SET_DATA, body
            case _:
                return Opcode.CHECK, text(self.path()) + self.version()

    def multi(self) -> tuple[int, bytes]:
        """A transaction."""
        kinds = [self.operation() for _ in range(self.rng.choice((0, 1, 2, 2, 3, 4)))]
        if self.rng.random() < 0.8:  # without those of which one spoils the whole transaction
            kinds = [
                (kind, body)
                for kind, body in kinds
                if kind in (Opcode.DELETE, Opcode.SET_DATA, Opcode.CHECK) or body[-1] < 5
            ]
        return Opcode.MULTI, multi_of(kinds)

    def reads(self) -> tuple[int, bytes]:
        """Many reads at once."""
        kinds = self.rng.choices((Opcode.GET_DATA, Opcode.GET_CHILDREN), k=3)
        return Opcode.MULTI_READ, multi_of([(k, text(self.path()) + self.flag()) for k in kinds])

    def watches(self) -> tuple[int, bytes]:
        """A request about watches."""
        kind = self.rng.choice(
            (Opcode.ADD_WATCH, Opcode.ADD_WATCH, Opcode.REMOVE_WATCHES, Opcode.CHECK_WATCHES)
        )
        choices = (0, 1, 0, 1, 2) if kind == Opcode.ADD_WATCH else (1, 2, 3, 4, 5, 0)
        return kind, text(self.path()) + integer(self.rng.choice(choices))

    def read(self) -> tuple[int, bytes]:
        """A request that reads."""
        kind = self.rng.choice(
            (Opcode.EXISTS, Opcode.GET_DATA, Opcode.GET_CHILDREN, Opcode.GET_CHILDREN_2)
        )
        return kind, text(self.path()) + self.flag()

    def other(self) -> tuple[int, bytes]:
        """The rest."""
        kind = self.rng.choice(
            (
                Opcode.GET_ACL,
                Opcode.SET_ACL,
                Opcode.GET_ALL_CHILDREN_NUMBER,
                Opcode.GET_EPHEMERALS,
                Opcode.SYNC,
                Opcode.WHO_AM_I,
                Opcode.RECONFIG,
            )
        )
        match kind:
            case Opcode.SET_ACL:
                path = f"{self.root}/{self.rng.choice(NAMES)}"  # the root is for all programs
                return kind, text(path) + acl_of(self.rng.choice(ACLS)) + self.version()
            case Opcode.WHO_AM_I:
                return kind, b""
            case Opcode.RECONFIG:
                return kind, text("x") * 3 + long(-1)
            case Opcode.GET_EPHEMERALS:
                return kind, text(self.rng.choice(("", "/", self.root, self.root + "/a")))
        return kind, text(self.path())

    def request(self) -> tuple[int, bytes]:
        """Any; rarely a part of one."""
        make = self.rng.choices(
            (
                self.creation,
                self.operation,
                self.multi,
                self.reads,
                self.watches,
                self.read,
                self.other,
            ),
            (20, 12, 10, 3, 10, 20, 8),
        )[0]
        kind, body = make()
        if kind == Opcode.CHECK:  # alone, it ends a real server's thread
            return Opcode.EXISTS, text(self.path()) + self.flag()
        if self.rng.random() < 0.02 and kind != Opcode.RECONFIG:
            body = body[: self.rng.randrange(len(body) + 1)]
        return kind, body


class Pair:
    """One client on each server."""

    def __init__(self, ports: tuple[int, int], same: Same) -> None:
        self.same = same
        self.two = [WireClient(port) for port in ports]
        self.begin()

    def begin(self) -> None:
        """New sessions."""
        for client in self.two:
            client.session_id, client.password = 0, bytes(16)
            assert client.connect()
        theirs, ours = self.two
        assert theirs.granted_ms == ours.granted_ms
        self.same.sessions[theirs.session_id] = ours.session_id

    def ask(self, kind: int, body: bytes, xid: int | None = None) -> int:
        """Ask both; returns the error."""
        answers: list[Any] = []
        for client in self.two:
            try:
                answers.append(client.ask(kind, body, xid))
            except HungUpError:
                answers.append(None)
        theirs, ours = answers
        assert (theirs is None) == (ours is None), (theirs, ours)
        if theirs is None:
            self.resume()
            return 0
        try:
            assert theirs.code == ours.code
            self.same.check(theirs.body, ours.body)
        except AssertionError as error:
            error.add_note(f"request {kind} {body!r}:\ntheirs {theirs}\nours   {ours}")
            raise
        done = {one for one, *_ in theirs.body or ()} if kind == Opcode.MULTI else {kind}
        if theirs.code == 0 and done & WRITES:
            self.same.zxid(theirs.zxid, ours.zxid)
        if kind == Opcode.AUTH and theirs.code:
            self.resume()  # both hang up after a refusal
        return int(theirs.code)

    def resume(self) -> None:
        """Connect again, in the same sessions."""
        for client in self.two:
            client.drop()
            assert client.connect()

    def set_watches(self, program: Program, *, lasting: bool) -> None:
        """As after a reconnect; the client has heard of all, or of the beginning only."""
        lists = [vector(text(program.path()) for _ in range(2)) for _ in range(5 if lasting else 3)]
        heard_all = program.rng.random() < 0.5
        kind = Opcode.SET_WATCHES_2 if lasting else Opcode.SET_WATCHES
        codes = [
            client.ask(
                kind, long(client.last_zxid if heard_all else 0) + b"".join(lists), SET_WATCHES
            ).code
            for client in self.two
        ]
        assert codes[0] == codes[1]

    def end(self) -> None:
        """Close the sessions."""
        self.ask(Opcode.CLOSE_SESSION, b"")
        for client in self.two:
            client.drop()

    def check_events(self) -> int:
        """Both have heard the same; returns how much. Ends of a session delete in any order."""
        for client in self.two:
            client.catch_up()
        theirs, ours = (client.events for client in self.two)
        assert sorted((kind, path) for kind, path, _ in theirs) == sorted(
            (kind, path) for kind, path, _ in ours
        )
        for one, other in zip(sorted(theirs), sorted(ours), strict=True):
            self.same.zxid(one[2], other[2])
        count = len(theirs)
        theirs.clear()
        ours.clear()
        return count


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_random_programs_have_the_same_answers(ports: tuple[int, int], seed: int) -> None:
    """Each answer, error, stat and event, with several clients, sessions that end or are resumed,
    users and watches.
    """
    same, program = Same(), Program(seed)
    pairs = [Pair(ports, same) for _ in range(CLIENTS)]
    pairs[0].ask(Opcode.CREATE, text(program.root) + buffer(b"") + acl_of(OPEN) + integer(0))
    errors: set[int] = set()
    events = 0
    for step in range(STEPS):
        pair = program.rng.choice(pairs)
        chance = program.rng.random()
        if chance < 0.02:
            pair.end()
            pair.begin()
        elif chance < 0.04:
            pair.resume()
        elif chance < 0.08:
            pair.set_watches(program, lasting=program.rng.random() < 0.5)
        elif chance < 0.12:
            body = integer(0) + text("digest") + buffer(program.rng.choice(USERS))
            pair.ask(Opcode.AUTH, body, AUTH)
        elif chance < 0.13:
            pair.ask(Opcode.AUTH, integer(0) + text("odd") + buffer(b"x"), AUTH)
        else:
            errors.add(pair.ask(*program.request()))
        try:
            events += sum(each.check_events() for each in pairs)
        except AssertionError as error:
            error.add_note(f"step {step}")
            raise
    same.check_order()
    for pair in pairs:
        pair.end()
    assert len(errors) + events > 8, "the program meets errors and events"


def test_a_session_that_is_not_heard_of_ends(ports: tuple[int, int]) -> None:
    """Its nodes go, watchers hear of it, and its id and password are worth nothing."""
    same = Same()
    watcher = Pair(ports, same)
    silent = []
    for port in ports:
        client = WireClient(port, timeout_ms=4000)
        assert client.connect()
        assert client.granted_ms == 4000
        body = text("/gone") + buffer(b"") + acl_of(OPEN) + integer(1)
        assert client.ask(Opcode.CREATE, body).code == 0
        silent.append(client)
    same.sessions[silent[0].session_id] = silent[1].session_id
    watcher.ask(Opcode.EXISTS, text("/gone") + boolean(True))
    until_s = time.monotonic() + 60
    while not all(client.events for client in watcher.two):
        assert time.monotonic() < until_s
        time.sleep(0.05)
        for client in watcher.two:
            client.catch_up()
    assert watcher.check_events() == 1
    watcher.ask(Opcode.EXISTS, text("/gone") + boolean(True))
    for client in silent:
        with pytest.raises(HungUpError):
            client.receive()
        client.drop()
        assert not client.connect()
    watcher.end()


def test_a_wrong_password_resumes_nothing(ports: tuple[int, int]) -> None:
    """And does not end the session of whoever has the right one."""
    for port in ports:
        client = WireClient(port)
        assert client.connect()
        thief = WireClient(port, session_id=client.session_id, password=b"x" * 16)
        assert not thief.connect()
        client.drop()
        assert client.connect()
        assert client.ask(Opcode.CLOSE_SESSION, b"").code == 0
        client.drop()


def test_a_client_of_the_future_is_not_served(ports: tuple[int, int]) -> None:
    """One that has seen a later transaction than there is is hung up on."""
    for port in ports:
        client = WireClient(port, last_zxid=1 << 40)
        with pytest.raises(HungUpError):
            client.connect()
