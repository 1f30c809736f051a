"""Whatever clients send to the embedded store: it serves the others, and its memory is bounded."""

from __future__ import annotations

import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from kit.zookeeper.store_process import StoreProcess
from kit.zookeeper.wire import SET_WATCHES, HungUpError, WireClient, acl_of, multi_of
from ports import free_port

from loadmanager.kit.zookeeper.embedded.codes import ErrorCode, Opcode
from loadmanager.kit.zookeeper.embedded.connection import FRAME_BYTES_MAX
from loadmanager.kit.zookeeper.embedded.jute import boolean, buffer, integer, long, text, vector
from loadmanager.kit.zookeeper.embedded.sessions import SESSIONS_MAX

OPEN = acl_of([(31, "world", "anyone")])
MB = 1 << 20
SESSION_MS = 600_000
"""Nobody sends pings here, however long an attack takes on a busy machine."""
PROMPT_S = 20.0
"""Others are answered within this, also on a machine that stands still for some seconds."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    """One server for all attacks."""
    process = StoreProcess(free_port(), tmp_path_factory.mktemp("attacked") / "store")
    process.start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def honest(server: StoreProcess) -> Iterator[WireClient]:
    """A client that is connected before, and is served during and after an attack."""
    client = WireClient(server.port, timeout_ms=SESSION_MS)
    assert client.connect()
    before = client.session_id
    yield client
    began_s = time.monotonic()
    assert client.ask(Opcode.EXISTS, text("/") + boolean(False)).code == 0
    assert time.monotonic() - began_s < PROMPT_S
    assert client.session_id == before
    client.ask(Opcode.CLOSE_SESSION, b"")
    client.drop()
    assert server.running
    assert "Traceback" not in server.log.read_text()


def connected(server: StoreProcess) -> WireClient:
    """A client with a session."""
    client = WireClient(server.port, timeout_ms=SESSION_MS)
    assert client.connect()
    return client


def hung_up(sock: socket.socket) -> bool:
    """True if the server closes the connection, after whatever it has sent."""
    sock.settimeout(60)
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.usefixtures("honest")
def test_garbage_costs_its_connection(server: StoreProcess) -> None:
    """Random bytes instead of a request for a session."""
    rng = random.Random(1)
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(b"\xff" + rng.randbytes(rng.randrange(3, 300)))
            assert hung_up(sock)


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize("length", [0, -1, -(1 << 31), FRAME_BYTES_MAX + 1, (1 << 31) - 1])
def test_frames_of_impossible_length_cost_their_connection(
    server: StoreProcess, length: int
) -> None:
    """Before and after a session was given."""
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(struct.pack(">i", length))
        assert hung_up(sock)
    client = connected(server)
    client.socket.sendall(struct.pack(">i", length))
    assert hung_up(client.socket)
    client.drop()


def test_random_requests_cost_nothing_else(server: StoreProcess, honest: WireClient) -> None:
    """Of every type, with random bodies and with bodies that were cut off: each is answered, or
    its client is hung up on.
    """
    rng = random.Random(2)
    kinds = [*Opcode, -10, 0, 10, 20, 102, 108, 99999, -2]
    good = text("/zookeeper/quota") + buffer(b"x") + OPEN + integer(0) + long(-1)
    answered = 0
    client = connected(server)
    for _ in range(3000):
        body = rng.choice((rng.randbytes(rng.randrange(80)), good[: rng.randrange(len(good))]))
        try:
            client.send(integer(1) + integer(rng.choice(kinds)) + body)
            client.send(integer(-2) + integer(Opcode.PING))
            while struct.unpack_from(">i", client.receive())[0] != -2:
                answered += 1
        except (HungUpError, OSError):
            client.drop()
            client = connected(server)
    client.drop()
    assert answered > 1500
    assert honest.ask(Opcode.GET_CHILDREN, text("/") + boolean(False)).code == 0


def test_lists_that_are_longer_than_their_request(server: StoreProcess, honest: WireClient) -> None:
    """A count alone makes the server hold nothing."""
    before = server.process.memory_info().rss
    huge = integer((1 << 31) - 1)
    for body in (long(0) + huge, long(0) + vector([]) * 2 + huge):
        assert honest.ask(Opcode.SET_WATCHES, body, SET_WATCHES).code == ErrorCode.MARSHALLING_ERROR
    body = text("/x") + buffer(b"") + huge
    assert honest.ask(Opcode.CREATE, body).code == ErrorCode.MARSHALLING_ERROR
    assert server.process.memory_info().rss - before < 20 * MB


@contextmanager
def many_files() -> Iterator[None]:
    """As many open files as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("honest")
def test_two_thousand_silent_connections(server: StoreProcess) -> None:
    """New clients are served beside them: the oldest without a session give way."""
    before = server.process.memory_info().rss
    with many_files(), ExitStack() as stack:
        for _ in range(2000):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            sock.settimeout(60)
        for _ in range(20):
            client = connected(server)
            assert client.ask(Opcode.EXISTS, text("/") + boolean(False)).code == 0
            client.ask(Opcode.CLOSE_SESSION, b"")
            client.drop()
        assert server.process.memory_info().rss - before < 60 * MB


def test_sessions_that_nobody_resumes(server: StoreProcess, honest: WireClient) -> None:
    """As many as there may be, with the longest timeout. New clients are served: sessions without
    a connection and without a node give way.
    """
    owner, other = connected(server), connected(server)
    body = text("/owned") + buffer(b"") + OPEN + integer(1)
    assert owner.ask(Opcode.CREATE, body).code == 0
    owner.drop()
    begin = integer(0) + long(0) + integer(SESSION_MS) + long(0) + buffer(bytes(16))
    for _ in range(SESSIONS_MAX // 200):
        with ExitStack() as stack:
            socks = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                for _ in range(200)
            ]
            for sock in socks:
                sock.sendall(struct.pack(">i", len(begin)) + begin)
            for sock in socks:
                sock.settimeout(60)
                assert sock.recv(4)
    late = connected(server)
    assert late.ask(Opcode.EXISTS, text("/owned") + boolean(False)).code == 0
    assert "too many sessions; ended the idlest" in server.log.read_text()
    assert owner.connect(), "it has a node"
    for client in (owner, other, late):
        assert client.ask(Opcode.EXISTS, text("/") + boolean(False)).code == 0
        client.ask(Opcode.CLOSE_SESSION, b"")
        client.drop()
    assert honest.ask(Opcode.EXISTS, text("/owned") + boolean(False)).code == ErrorCode.NO_NODE


@pytest.mark.usefixtures("honest")
def test_requests_that_never_end(server: StoreProcess) -> None:
    """Three hundred clients each send all of the longest request but its last byte."""
    before = server.process.memory_info().rss
    with ExitStack() as stack:
        for _ in range(300):
            # with a session: who has none is hung up on after a while
            client = WireClient(server.port, timeout_ms=SESSION_MS)
            stack.callback(client.drop)
            assert client.connect()
            try:
                client.socket.sendall(
                    struct.pack(">i", FRAME_BYTES_MAX) + bytes(FRAME_BYTES_MAX - 1)
                )
            except ConnectionError:
                continue
        assert server.word(b"ruok") == b"imok"
        assert server.process.memory_info().rss - before < 250 * MB
    assert "clients make the store hold too much" in server.log.read_text()


def test_a_client_that_does_not_read(server: StoreProcess, honest: WireClient) -> None:
    """It asks for gigabytes: no more is done than it reads, and it is not heard of until then."""
    body = text("/large") + buffer(bytes(1_000_000)) + OPEN + integer(0)
    assert honest.ask(Opcode.CREATE, body).code == 0
    before = server.process.memory_info().rss
    greedy = connected(server)
    request = integer(1) + integer(Opcode.GET_DATA) + text("/large") + boolean(False)
    many = integer(1) + integer(Opcode.MULTI_READ)
    many += multi_of([(Opcode.GET_DATA, text("/large") + boolean(False))] * 4000)
    frames = b"".join(struct.pack(">i", len(each)) + each for each in [request] * 3000 + [many])
    greedy.socket.settimeout(3)
    with pytest.raises(TimeoutError):  # the server has stopped reading
        greedy.socket.sendall(frames * 100)
    assert server.process.memory_info().rss - before < 60 * MB
    assert honest.ask(Opcode.GET_DATA, text("/large") + boolean(False)).code == 0
    greedy.drop()
    client = connected(server)
    assert client.ask(Opcode.MULTI_READ, many[8:]).code == ErrorCode.SYSTEM_ERROR
    client.drop()
    assert honest.ask(Opcode.DELETE, text("/large") + integer(-1)).code == 0


def test_watchers_of_twenty_thousand_nodes(server: StoreProcess, honest: WireClient) -> None:
    """Three clients watch each node, and all nodes; each hears of every change, once a watch."""
    count, size = 20_000, 500
    honest.ask(Opcode.CREATE, text("/many") + buffer(b"") + OPEN + integer(0))
    paths = [f"/many/{number:05}" for number in range(count)]
    watchers = [connected(server) for _ in range(3)]
    for start in range(0, count, size):
        body = multi_of(
            [
                (Opcode.CREATE, text(path) + buffer(b"") + OPEN + integer(0))
                for path in paths[start : start + size]
            ]
        )
        assert honest.ask(Opcode.MULTI, body).code == 0
    for watcher in watchers:
        for start in range(0, count, 10_000):
            lists = vector(map(text, paths[start : start + 10_000])), vector([]), vector([])
            body = long(1 << 60) + b"".join(lists)
            assert watcher.ask(Opcode.SET_WATCHES, body, SET_WATCHES).code == 0
    readers = [
        threading.Thread(target=_read_events, args=(each, count), name="reader")
        for each in watchers
    ]
    for reader in readers:
        reader.start()
    for start in range(0, count, size):
        body = multi_of(
            [(Opcode.DELETE, text(path) + integer(-1)) for path in paths[start : start + size]]
        )
        assert honest.ask(Opcode.MULTI, body).code == 0
    for reader in readers:
        reader.join(120)
    for watcher in watchers:
        assert [(kind, path) for kind, path, _ in watcher.events] == [(2, path) for path in paths]
        watcher.drop()


def _read_events(client: WireClient, count: int) -> None:
    while len(client.events) < count:
        client.catch_up()


def test_a_transaction_that_hundreds_watch(server: StoreProcess, honest: WireClient) -> None:
    """A hundred clients watch all, and eight thousand changes come at once: others are served while
    the events are sent, and each client gets all of them, in order.
    """
    count = 8000
    honest.ask(Opcode.CREATE, text("/all") + buffer(b"") + OPEN + integer(0))
    watchers = [connected(server) for _ in range(100)]
    for watcher in watchers:
        assert watcher.ask(Opcode.ADD_WATCH, text("/") + integer(1)).code == 0
    before = server.process.memory_info().rss
    operations = [(Opcode.SET_DATA, text("/all") + buffer(b"") + integer(-1))] * (count - 1)
    operations.append((Opcode.CREATE, text("/all/last") + buffer(b"") + OPEN + integer(0)))
    assert honest.ask(Opcode.MULTI, multi_of(operations)).code == 0
    reader = threading.Thread(target=_read_of_all, args=(watchers, count), name="reader")
    reader.start()
    served = 0
    while reader.is_alive():
        assert honest.ask(Opcode.EXISTS, text("/all") + boolean(False)).code == 0
        served += 1
    assert served > 10
    assert server.process.memory_info().rss - before < 100 * MB
    for watcher in watchers:
        assert [path for _, path, _ in watcher.events] == ["/all"] * (count - 1) + ["/all/last"]
        watcher.drop()
    for path in ("/all/last", "/all"):
        assert honest.ask(Opcode.DELETE, text(path) + integer(-1)).code == 0


def _read_of_all(clients: list[WireClient], count: int) -> None:
    for client in clients:
        _read_events(client, count)


def test_a_watcher_that_does_not_read_is_hung_up_on(
    server: StoreProcess, honest: WireClient
) -> None:
    """Its events are not kept for it without a bound: when it returns, it is told of them."""
    silent = connected(server)
    name = "/" + "n" * 60_000  # an event has the whole path
    assert silent.ask(Opcode.ADD_WATCH, text("/") + integer(1)).code == 0
    honest.ask(Opcode.CREATE, text(name) + buffer(b"") + OPEN + integer(0))
    before = server.process.memory_info().rss
    for _ in range(40):
        body = multi_of([(Opcode.SET_DATA, text(name) + buffer(b"") + integer(-1))] * 16)
        assert honest.ask(Opcode.MULTI, body).code == 0
    assert server.process.memory_info().rss - before < 100 * MB
    assert "does not read what it is sent" in server.log.read_text()
    assert hung_up(silent.socket)
    silent.drop()
    assert honest.ask(Opcode.DELETE, text(name) + integer(-1)).code == 0


def test_identities_are_bounded(server: StoreProcess) -> None:
    """A connection cannot be known as any number of users."""
    client = connected(server)
    codes = []
    for number in range(100):
        body = integer(0) + text("digest") + buffer(f"user{number}:x".encode())
        codes.append(client.ask(Opcode.AUTH, body, -4).code)
        if codes[-1]:
            break
    assert codes[-1] == ErrorCode.AUTH_FAILED
    assert 50 < len(codes) < 100
    assert hung_up(client.socket)
    client.drop()
