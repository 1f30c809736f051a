"""Silent connections to the real ZooKeeper, and the log of outages."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from kazoo.exceptions import BadArgumentsError, ConnectionLoss, SessionExpiredError
from structlog.testing import capture_logs
from system.proxy import Proxy

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.store import SessionState
from loadmanager.kit.zookeeper.embedded.records import connect_answer
from loadmanager.kit.zookeeper.java import JavaZooKeeper
from loadmanager.kit.zookeeper.outage import REFUSED, OutageLog
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore, _value_of
from loadmanager.testing.store_contract import next_of, until

SESSION_MS = 2000


def through(*ports: int, chroot: str = "", session_ms: int = SESSION_MS) -> ZooKeeperSettings:
    """The settings of an ensemble at these ports."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return ZooKeeperSettings(url=f"zk:{hosts}/{chroot}", session_timeout_ms=session_ms)


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port at which connections wait forever, as behind a firewall that drops packets."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fills the queue of connections that nobody accepts
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.zookeeper
async def test_dead_connection_is_left_and_the_session_kept(
    zookeeper_server: JavaZooKeeper,
) -> None:
    """The store leaves a silent connection for another server before its lease runs out."""
    port, now_s = zookeeper_server.port, asyncio.get_running_loop().time
    with Proxy(port) as one, Proxy(port) as two:
        async with ZooKeeperStore(through(one.port, two.port, session_ms=8_000)) as store:
            states, session_id = store.session_states(), store.session_id
            assert await next_of(states) is SessionState.CONNECTED
            used, other = (one, two) if one.connections else (two, one)
            assert not other.connections
            used.hold()
            held_s = now_s()
            assert await next_of(states) is SessionState.SUSPENDED
            assert now_s() - held_s < store.session_timeout_s
            assert await next_of(states) is SessionState.CONNECTED
            assert other.connections == 1
            assert await store.get("/") is not None
            assert store.session_id == session_id
            used.restore()


@pytest.mark.zookeeper
async def test_only_server_is_connected_to_again(zookeeper_server: JavaZooKeeper) -> None:
    """With one silent server the store makes new connections until one works."""
    with Proxy(zookeeper_server.port) as proxy:
        async with ZooKeeperStore(through(proxy.port)) as store:
            made = proxy.connections
            proxy.hold()
            await until(lambda: proxy.connections > made, "another connection is made")
            proxy.restore()
            now_s = asyncio.get_running_loop().time
            await until(lambda: store.lease.held(now_s()), "a session is proven again")


@pytest.mark.zookeeper
async def test_server_that_accepts_no_connection_costs_no_session(
    zookeeper_server: JavaZooKeeper,
) -> None:
    """A server that drops packets takes only its share of the session timeout."""
    with Proxy(zookeeper_server.port) as proxy, black_hole() as hole:
        async with ZooKeeperStore(through(hole, proxy.port, session_ms=8_000)) as store:
            session_id, states = store.session_id, store.session_states()
            assert await next_of(states) is SessionState.CONNECTED
            for _ in range(4):
                proxy.flap(60, 60)  # the present connection ends; the next one lives
                assert await next_of(states) is SessionState.SUSPENDED
                assert await next_of(states) is SessionState.CONNECTED
                assert await store.get("/") is not None
            assert store.session_id == session_id


@pytest.mark.zookeeper
async def test_connection_whose_first_request_is_not_answered_costs_no_session(
    zookeeper_server: JavaZooKeeper,
) -> None:
    """A connection that a starting ZooKeeper accepts and forgets is given up for a new one."""
    with Proxy(zookeeper_server.port) as proxy:
        async with ZooKeeperStore(through(proxy.port, session_ms=30_000)) as store:
            states, session_id = store.session_states(), store.session_id
            assert await next_of(states) is SessionState.CONNECTED
            made = proxy.connections
            proxy.forget_next()
            assert await next_of(states) is SessionState.SUSPENDED
            assert await next_of(states) is SessionState.CONNECTED
            assert proxy.connections == made + 2
            assert store.session_id == session_id


@pytest.mark.zookeeper
async def test_outage_is_logged_once_with_what_to_look_at(
    zookeeper_server: JavaZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """One line at the beginning, one at the end, and none for kazoo's retries."""
    now_s = asyncio.get_running_loop().time
    begun_s = now_s()
    with Proxy(zookeeper_server.port) as proxy, capture_logs() as logs:
        async with ZooKeeperStore(through(proxy.port, session_ms=5_000)) as store:
            made = proxy.connections
            proxy.cut()
            await until(lambda: not store.lease.held(now_s()), "the lease ends")
            await until(lambda: proxy.connections > made + 3, "some retries")
            proxy.restore()
            await until(lambda: store.lease.held(now_s()), "a session is proven again")
            await until(lambda: len(logs) > 1, "that is said")
            assert not store._client.last_warning.text, "a later outage would show this one's error"
    lost, back = logs
    assert lost["servers"] == f"127.0.0.1:{proxy.port}"
    assert lost["setting"] == "metadataStoreUrl"
    assert "goes on serving for" in lost["effect"]
    assert lost["last_error"]
    assert back["event"] == "ZooKeeper answers again"
    # Counted from the last answer, which may have arrived after the cut on a slow machine.
    assert lost["for_s"] <= back["after_s"] <= round(now_s() - begun_s, 1)
    assert [record for record in caplog.records if record.name.startswith("kazoo")] == []


@pytest.mark.zookeeper
async def test_request_says_what_to_look_at(zookeeper_server: JavaZooKeeper) -> None:
    """What callers get during an outage is a sentence for operators."""
    with Proxy(zookeeper_server.port) as proxy:
        async with ZooKeeperStore(through(proxy.port)) as store:
            proxy.hold()
            asking = asyncio.ensure_future(store.get("/"))
            await until(lambda: not store.lease.held(asyncio.get_running_loop().time()), "an end")
            proxy.cut()
            with pytest.raises(OperationalError, match=r"does not answer .*metadataStoreUrl"):
                await asking
            proxy.restore()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionLoss(), "ZooKeeper does not answer (ConnectionLoss): check that "),
        (SessionExpiredError(), "this broker's session with ZooKeeper has ended; try again"),
        (BadArgumentsError("x"), "ZooKeeper: BadArgumentsError x"),
    ],
)
def test_errors_of_kazoo_are_sentences(error: Exception, text: str) -> None:
    """An operator need not know kazoo's names."""
    answer = SimpleNamespace(successful=lambda: False, exception=error)
    with pytest.raises(OperationalError) as raised:
        _value_of(answer, "metadataStoreUrl")
    assert str(raised.value).startswith(text)


def test_long_outage_is_said_once_a_minute() -> None:
    """During an outage there is one line a minute; the first contains how long the lease holds."""
    outage = OutageLog("zoo:2181")
    with capture_logs() as logs:
        for now_s in range(100, 231):
            lease_left_s = 130.0 - now_s
            outage.unanswered(now_s, last_answer_s=99.0, lease_left_s=lease_left_s, error="refused")
        outage.answered(231.0)
    assert [line.get("for_s") for line in logs] == [1.0, 61.0, 121.0, None]
    assert logs[0]["effect"] == "this broker goes on serving for 30.0 s without an answer"
    assert logs[1]["effect"] == (
        "until ZooKeeper answers, this broker serves only stored topics that are open"
    )
    assert logs[3]["after_s"] == 132.0


def test_link_that_comes_and_goes_is_said_once_a_minute() -> None:
    """Outages within a minute share a line, which contains their number."""
    outage = OutageLog("zoo:2181")
    with capture_logs() as logs:
        for now_s in range(100, 170, 2):
            outage.unanswered(now_s, last_answer_s=now_s - 1, lease_left_s=3.0, error="reset")
            outage.answered(now_s + 1)
    assert [line.get("losses") for line in logs] == [None, None, 30, None]


async def test_a_store_that_refuses_sessions_is_said_to_answer() -> None:
    """Its address is right; what it lacks is room."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        answer = connect_answer(None, says_read_only=True)
        writer.write(len(answer).to_bytes(4, "big") + answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        settings = ZooKeeperSettings(url=f"zk:{host}:{port}", operation_timeout_s=6)
        with pytest.raises(OperationalError, match="answers, but refuses new sessions"):
            async with ZooKeeperStore(settings):
                pass


def test_an_outage_says_that_sessions_are_refused() -> None:
    """In place of asking whether ZooKeeper runs."""
    outage = OutageLog("zoo:2181")
    with capture_logs() as logs:
        outage.unanswered(100.0, last_answer_s=99.0, lease_left_s=1.0, error="x", refused=True)
    assert logs[0]["event"] == REFUSED
