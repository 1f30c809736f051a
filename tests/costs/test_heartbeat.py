"""What heartbeats cost, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.protocol.states import KazooState

from loadmanager.kit.zookeeper.heartbeat import (
    HEARTBEATS_PER_TIMEOUT,
    HEARTBEATS_UNANSWERED_MAX,
    Heartbeat,
)
from loadmanager.kit.zookeeper.outage import OutageLog

SESSION = 7


class Answer:
    """The answer to a transaction."""

    value: tuple[object, ...] = ()

    def successful(self) -> bool:
        return True


class Client:
    """Counts the transactions of heartbeats, and answers them or not."""

    connecting_s = 0.0
    granted_timeout_s = 8.0
    last_warning = SimpleNamespace(text="")

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.sent = self.dropped = 0
        self.refused = False

    def write_nothing_async(self) -> Any:
        self.sent += 1

        def rawlink(told: Callable[[Any], None]) -> None:
            if self.answers:
                told(Answer())

        return SimpleNamespace(rawlink=rawlink)

    def drop_connection(self) -> None:
        self.dropped += 1


def connected(client: Any) -> Heartbeat:
    """Heartbeats of a session that has just begun, without their thread."""
    heartbeat = Heartbeat(client, OutageLog("zk"), monotonic_s=lambda: 1.0)
    heartbeat.on_state(KazooState.CONNECTED, SESSION)
    return heartbeat


@pytest.mark.parametrize("beats", [10, 1000])
def test_a_heartbeat_is_one_transaction(beats: int) -> None:
    """Budget: 1 request for each, and 8 times that are kept."""
    client = Client(answers=True)
    heartbeat = connected(client)
    for _ in range(beats):
        heartbeat.beat()
    assert client.sent == beats
    assert len(heartbeat._heard) <= HEARTBEATS_PER_TIMEOUT == 8


def test_heartbeats_without_answers_end() -> None:
    """Budget: 4 requests that no answer came to; then the connection is given up."""
    client = Client(answers=False)
    heartbeat = connected(client)
    for _ in range(100):
        heartbeat.beat()
    assert client.sent == HEARTBEATS_UNANSWERED_MAX == 4
    assert client.dropped == 100 - client.sent
