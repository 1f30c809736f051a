"""Proves the session to this process: heartbeats, their answers, and the lease.

Heartbeats are sent by a thread of their own, and kazoo's thread extends the lease when an answer
comes. So an event loop that is busy with the requests of clients costs no session. What it sends
to ZooKeeper cannot delay them either: `store.REQUESTS_AT_ONCE_MAX` requests are ahead at most.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo.protocol.states import KazooState

from loadmanager.kit.metadata.lease import Lease
from loadmanager.kit.zookeeper.client import TreeWatchingClient
from loadmanager.kit.zookeeper.outage import OutageLog

HEARTBEATS_PER_TIMEOUT = 8
LEASE_FRACTION = 1 - 1 / HEARTBEATS_PER_TIMEOUT - 0.035
"""The part of the session timeout that an answered heartbeat proves.

The heartbeat is a transaction that checks the root and changes nothing. The ensemble's leader looks
whether the session lives, and answers when a quorum has stored the transaction. So neither a
follower that is cut off from the leader nor a leader that is cut off from the others can answer,
and a later leader, which has the transaction, gives the session a whole timeout from its election.
But the leader learns only from a follower's next ping, each half a tick, which sessions the
follower heard from. So an answer proves an earlier heartbeat, one interval before, if that was
answered `PING_FRACTION` of the timeout before this one was sent. After a pause, the earlier one is
older, and proves less. The remaining 3.5 % are for clocks that run at different rates.
"""
PING_FRACTION = 1 / 20
"""Half a tick, as a part of a session timeout of ten ticks."""
HEARTBEATS_UNANSWERED_MAX = 4
"""After so many unanswered heartbeats in a row the connection counts as dead, at the next one.

That is five eighths of the session timeout after the last answer, which leaves a fifth of it in the
lease to find another server. Heartbeats are counted instead of timed, so that a process that was
paused does not drop a good connection.
"""


class Heartbeat:
    """Keeps the lease of a client's session.

    The lease is extended only while the event loop knows of the session, too (`accept`): a new
    session proves nothing for whoever has not heard yet that the last one is lost.
    """

    def __init__(
        self,
        client: TreeWatchingClient,
        outage: OutageLog,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lease = Lease()
        self._monotonic_s = monotonic_s
        self._client = client
        self._outage = outage
        self._lock = threading.Lock()
        self._connected = False
        self._session_id = 0
        """The session as kazoo's thread knows it; 0: it is lost."""
        self._accepted_id = 0
        """The session as the event loop knows it."""
        self._unanswered = 0
        self._answered_s = self._monotonic_s()
        self._heard: deque[tuple[float, float]] = deque(maxlen=HEARTBEATS_PER_TIMEOUT)
        """When heartbeats of this connection were sent and answered. The first one stands for the
        connection itself: the leader has heard of the session after that was begun, which may be
        long before this process hears of it.
        """
        self._restart = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="zookeeper-heartbeat", daemon=True)

    def start(self) -> None:
        """Send a heartbeat now, and from now on."""
        self.beat()
        self._thread.start()

    def stop(self) -> None:
        """End the lease, and send nothing more. Blocks for a moment."""
        with self._lock:
            self._stopped = True
            self._accepted_id = 0
            self.lease.revoke()
        self._restart.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            restarted = self._restart.wait(self._client.granted_timeout_s / HEARTBEATS_PER_TIMEOUT)
            if self._stopped:
                return
            if restarted:
                self._restart.clear()
            else:
                self.beat()

    def on_state(self, state: str, session_id: int) -> None:
        """The connection has changed. Called in kazoo's thread, before any answer that follows."""
        with self._lock:
            self._connected = state == KazooState.CONNECTED
            self._heard.clear()
            if not self._connected:
                self.lease.unanswered = True
            if state == KazooState.LOST:
                self._session_id = 0
                self.lease.revoke()
            elif self._connected:
                self._session_id = session_id or self._session_id
                self._unanswered = 0
                self._heard.append((self._client.connecting_s, float("-inf")))

    def accept(self, session_id: int) -> None:
        """The event loop has heard which session this is; 0: that it is lost."""
        with self._lock:
            self._accepted_id = 0 if self._stopped else session_id
            if not self._accepted_id:
                self.lease.revoke()
        if session_id:
            self.beat()
            self._restart.set()

    def beat(self) -> None:
        """Send a heartbeat, without waiting for earlier ones; its answer proves the session."""
        now_s = self._monotonic_s()
        with self._lock:
            if self._stopped:
                return
            self.lease.beats += 1
            connected, session_id = self._connected, self._session_id
            dead = connected and self._unanswered >= HEARTBEATS_UNANSWERED_MAX
            if not connected or self._unanswered > 1:
                self.lease.unanswered = True
                self._outage.unanswered(
                    now_s,
                    last_answer_s=self._answered_s,
                    lease_left_s=self.lease.valid_until_s - now_s,
                    error=self._client.last_warning.text or "no answer to a heartbeat",
                    refused=self._client.refused,
                )
            if connected and not dead:
                self._unanswered += 1
        if dead:
            self._client.drop_connection()
        elif connected:
            sent_s = self._monotonic_s()
            result = self._client.write_nothing_async()
            result.rawlink(lambda answer: self._answered(answer, sent_s, session_id))

    def _answered(self, answer: Any, sent_s: float, session_id: int) -> None:
        if not answer.successful() or any(isinstance(result, Exception) for result in answer.value):
            return
        with self._lock:
            self._unanswered = 0
            self._answered_s = self._monotonic_s()
            self.lease.answered(self._answered_s)
            self._outage.answered(self._answered_s)
            self._client.last_warning.text = ""  # not the reason for the next outage
            if session_id and session_id == self._session_id == self._accepted_id:
                self._prove(sent_s, self._client.granted_timeout_s)
            self._heard.append((sent_s, self._answered_s))

    def _prove(self, sent_s: float, timeout_s: float) -> None:
        """Extend the lease: a heartbeat was answered. The leader has heard of those that were
        answered some time before.
        """
        known_s = [
            heard_s
            for heard_s, answered_s in self._heard
            if answered_s <= sent_s - timeout_s * PING_FRACTION
        ]
        if known_s:
            proven_s = min(sent_s, max(known_s) + timeout_s / HEARTBEATS_PER_TIMEOUT)
            self.lease.prove(proven_s, timeout_s * LEASE_FRACTION)
