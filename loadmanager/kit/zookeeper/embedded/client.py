"""A client as the requests see it: a connection with a session."""

from __future__ import annotations

from collections import deque

from loadmanager.kit.zookeeper.embedded.access import AclIdentity
from loadmanager.kit.zookeeper.embedded.outgoing import Outgoing

BACKLOG_BYTES_MAX = 32 << 20
"""A client that does not read its events is hung up on then; it connects again and catches up."""
FOOTPRINT_BYTES = 256 << 10
"""A connection that holds more is counted against what all may hold."""
HELD_BYTES_MAX = 128 << 20
"""How much all connections may make us hold: requests that are not complete, unread answers."""


class StoreClient:
    """Who asks, and where answers go. Each connection is one; it watches as itself."""

    def __init__(self, address: str) -> None:
        """`address`: the IP address that it connects from."""
        self.session_id = 0
        self.identities: list[AclIdentity] = [AclIdentity("ip", address)]
        self.waiting: deque[Outgoing] = deque()
        self.waiting_bytes = self.event_bytes = 0
        self.paused = False
        """True while it does not read what it was sent: what waits for it goes on waiting."""

    def take(self, answer: bytes | None) -> None:
        """Send an answer. None: there is nothing more; hang up."""
        raise NotImplementedError

    def dismiss(self) -> None:
        """It is to be hung up on after what waits for it."""
        raise NotImplementedError

    def overflow(self) -> None:
        """There is no room for what it should be sent: hang up at once."""
        raise NotImplementedError
