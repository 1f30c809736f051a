"""Heartbeats and the lease, on the wire to a real ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kit.zookeeper.spy import Spy, spying

from loadmanager.kit.metadata.store import SessionState
from loadmanager.kit.zookeeper.heartbeat import (
    HEARTBEATS_PER_TIMEOUT,
    HEARTBEATS_UNANSWERED_MAX,
    LEASE_FRACTION,
)
from loadmanager.kit.zookeeper.java import JavaZooKeeper
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import REQUESTS_AT_ONCE_MAX, ZooKeeperStore
from loadmanager.testing.store_contract import until

pytestmark = pytest.mark.zookeeper
WAIT_S = 60.0


def settings_of(spy: Spy, session_ms: int) -> ZooKeeperSettings:
    """The settings of a server behind a spy."""
    return ZooKeeperSettings(url=f"zk:127.0.0.1:{spy.port}", session_timeout_ms=session_ms)


def block_until(true: Callable[[], bool]) -> None:
    """Wait in the event loop's thread, which does nothing else meanwhile."""
    end_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.01)


async def test_the_lease_counts_from_the_sending_of_a_heartbeat(
    zookeeper_server: JavaZooKeeper,
) -> None:
    """However late the answer comes: the server may have counted from the arrival."""
    with spying(zookeeper_server.port) as spy:
        async with ZooKeeperStore(settings_of(spy, 8_000)) as store:
            await until(lambda: len(spy.txids) >= 1, "a first answer")
            before, proven_s = len(spy.heartbeats_s), store.lease.proven_until_s
            spy.hold_answers(True)
            await until(lambda: len(spy.heartbeats_s) > before, "a heartbeat that waits")
            # The event loop has no part in this: nothing else is sent before the answer comes.
            block_until(lambda: time.monotonic() > spy.heartbeats_s[-1] + 0.6)
            spy.hold_answers(False)
            block_until(lambda: store.lease.proven_until_s > proven_s)
            proves_s = store.session_timeout_s * LEASE_FRACTION
            assert store.lease.proven_until_s - proves_s <= spy.heartbeats_s[-1]
            assert store.lease.answered_s > spy.heartbeats_s[-1] + 0.5


async def test_heartbeats_are_transactions(zookeeper_server: JavaZooKeeper) -> None:
    """Each has an id of its own, which a quorum has to store: a leader without one cannot."""
    with spying(zookeeper_server.port) as spy:
        async with ZooKeeperStore(settings_of(spy, 2_000)) as store:
            await until(lambda: len(spy.txids) >= 4, "answers")
            assert await store.get("/") is not None
        assert all(one < other for one, other in zip(spy.txids, spy.txids[1:], strict=False))


async def test_heartbeats_need_no_turn_of_the_event_loop(
    zookeeper_server: JavaZooKeeper,
) -> None:
    """An event loop that is busy for more than a session timeout keeps its session."""
    with spying(zookeeper_server.port) as spy:
        async with ZooKeeperStore(settings_of(spy, 4_000)) as store:
            began_s, before = time.monotonic(), len(spy.heartbeats_s)
            block_until(lambda: len(spy.heartbeats_s) > before + HEARTBEATS_PER_TIMEOUT + 2)
            busy_s = time.monotonic() - began_s
            assert busy_s > store.session_timeout_s
            block_until(lambda: store.lease.proven_until_s > began_s + store.session_timeout_s)


async def test_few_requests_are_ahead_of_a_heartbeat(zookeeper_server: JavaZooKeeper) -> None:
    """Whatever clients make this broker ask: tens of thousands of reads wait for their turn, also
    when nobody waits for their answers any more.
    """
    with spying(zookeeper_server.port) as spy:
        async with ZooKeeperStore(settings_of(spy, 20_000)) as store:
            spy.hold_answers(True)
            asked = [
                asyncio.create_task(store.get_many([f"/missing/{n}" for n in range(16)]))
                for _ in range(1_000)
            ]
            await until(
                lambda: max(spy.ahead, default=0) >= REQUESTS_AT_ONCE_MAX,
                "a heartbeat behind reads",
            )
            for task in asked[:500]:
                task.cancel()
            spy.hold_answers(False)
            done = await asyncio.gather(*asked, return_exceptions=True)
            assert [None] * 16 in done
        # other heartbeats, pings and the watches' installation need no turn
        assert max(spy.ahead) <= REQUESTS_AT_ONCE_MAX + HEARTBEATS_UNANSWERED_MAX


async def test_a_silent_connection_is_left_after_four_heartbeats(
    zookeeper_server: JavaZooKeeper,
) -> None:
    """They are counted. What is left of the lease is for the next server."""
    with spying(zookeeper_server.port) as spy:
        async with ZooKeeperStore(settings_of(spy, 2_000)) as store:
            await until(lambda: len(spy.txids) >= 2, "answers")
            spy.hold_answers(True)
            before = len(spy.txids)
            await until(lambda: store.lease.unanswered, "two that have no answer")
            await until(lambda: spy.ended > 0, "the connection is left")
            unanswered = len(spy.heartbeats_s) - before
            spy.hold_answers(False)
            await until(lambda: not store.lease.unanswered, "answers on the next connection")
    # one more if it was sent before the answers were held
    assert HEARTBEATS_UNANSWERED_MAX <= unanswered <= HEARTBEATS_UNANSWERED_MAX + 1
    left = LEASE_FRACTION - (HEARTBEATS_UNANSWERED_MAX + 1) / HEARTBEATS_PER_TIMEOUT
    assert left > 0.2


async def test_a_new_session_proves_nothing_before_the_loss_was_dealt_with(
    zookeeper_server: JavaZooKeeper,
) -> None:
    """Whoever has not heard yet that the session is lost still has what it owned. A reader has
    dealt with the loss when it asks for the next state.
    """
    with spying(zookeeper_server.port) as spy:
        async with ZooKeeperStore(settings_of(spy, 4_000)) as store:
            states, first_id = store.session_states(), store.session_id
            assert await anext(states) is SessionState.CONNECTED
            await asyncio.to_thread(end_session, spy.target_port, store._client.client_id)
            assert [await anext(states) for _ in range(2)] == [
                SessionState.SUSPENDED,
                SessionState.LOST,
            ]
            await until(lambda: store.session_id not in (0, first_id), "a new session")
            before = len(spy.txids)
            await until(lambda: len(spy.txids) > before + 3, "answers to heartbeats")
            assert not store.lease.held(time.monotonic())
            assert await anext(states) is SessionState.CONNECTED
            await until(lambda: store.lease.held(time.monotonic()), "the new session is proven")


def end_session(port: int, identity: tuple[int, bytes]) -> None:
    """Close a session from another connection, as its expiry would."""
    thief = KazooClient(f"127.0.0.1:{port}", client_id=identity, timeout=1.0)
    thief.start()
    thief.stop()
    thief.close()
