"""What a heartbeat's answer proves after a process stood still."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.protocol.states import KazooState

from loadmanager.kit.metadata.lease import STOOD_STILL, UNPROVEN
from loadmanager.kit.zookeeper.heartbeat import LEASE_FRACTION, Heartbeat

TIMEOUT_S = 8.0


class Server:
    """Stands for kazoo's client: heartbeats are answered when the test says so."""

    granted_timeout_s = TIMEOUT_S
    last_warning = SimpleNamespace(text="")
    refused = False

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any], None]] = []
        self.connecting_s = 100.0

    def write_nothing_async(self) -> Any:
        """A heartbeat."""
        return SimpleNamespace(rawlink=self.waiting.append)

    def answer(self) -> None:
        """Answer all."""
        while self.waiting:
            self.waiting.pop(0)(SimpleNamespace(successful=lambda: True, value=[True]))


@pytest.mark.parametrize("held_back", [False, True])
def test_a_pause_is_not_proven_by_the_heartbeat_after_it(*, held_back: bool) -> None:
    """The leader may not have heard of it, if the follower goes silent then: for the leader, the
    session ends a timeout after the heartbeat before the pause. So it is when the network held all
    heartbeats back meanwhile.
    """
    now = SimpleNamespace(s=100.0)
    server: Any = Server()
    outage: Any = SimpleNamespace(unanswered=lambda *_, **__: None, answered=lambda _: None)
    beats = Heartbeat(server, outage, lambda: now.s)
    beats.on_state(KazooState.CONNECTED, 7)
    beats.accept(7)
    server.answer()
    assert beats.lease.valid_until_s == pytest.approx(100.0 + TIMEOUT_S * LEASE_FRACTION)
    for _ in range(8):
        now.s += TIMEOUT_S / 8
        beats.beat()
        server.answer()
        assert beats.lease.valid_until_s == pytest.approx(now.s + TIMEOUT_S * LEASE_FRACTION)
    last_s = now.s
    for _ in range(3):
        now.s += TIMEOUT_S / 8
        if held_back:
            beats.beat()
    now.s += TIMEOUT_S / 8
    beats.beat()
    server.answer()
    assert beats.lease.valid_until_s < last_s + TIMEOUT_S
    now.s += TIMEOUT_S / 8
    beats.beat()
    server.answer()
    assert beats.lease.valid_until_s == pytest.approx(now.s + TIMEOUT_S * LEASE_FRACTION)


def test_a_pause_while_it_connects_is_not_proven() -> None:
    """The leader heard of the session when the connection was begun; the process stood still, and
    heard of the connection later.
    """
    now = SimpleNamespace(s=100.0 + TIMEOUT_S / 2)
    server: Any = Server()
    outage: Any = SimpleNamespace(unanswered=lambda *_, **__: None, answered=lambda _: None)
    beats = Heartbeat(server, outage, lambda: now.s)
    beats.on_state(KazooState.CONNECTED, 7)
    beats.accept(7)
    server.answer()
    assert beats.lease.valid_until_s < server.connecting_s + TIMEOUT_S
    now.s += TIMEOUT_S / 8
    beats.beat()
    server.answer()
    assert beats.lease.valid_until_s == pytest.approx(now.s + TIMEOUT_S * LEASE_FRACTION)


def test_a_process_that_stood_still_does_not_blame_the_store() -> None:
    """Nor does one that runs say that it stood still: it sent heartbeats in vain."""
    for frozen, why in ((True, STOOD_STILL), (False, UNPROVEN)):
        now = SimpleNamespace(s=100.0)
        server: Any = Server()
        outage: Any = SimpleNamespace(unanswered=lambda *_, **__: None, answered=lambda _: None)
        beats = Heartbeat(server, outage, lambda now=now: now.s)
        beats.on_state(KazooState.CONNECTED, 7)
        beats.accept(7)
        server.answer()
        assert beats.lease.held(now.s)
        if frozen:
            now.s += 2 * TIMEOUT_S
        else:
            beats.on_state(KazooState.SUSPENDED, 7)
        beats.beat()
        while beats.lease.held(now.s):
            now.s += TIMEOUT_S / 8
            beats.beat()
        assert beats.lease.why_not_held == why
