"""A client as the requests see it: a connection with a session."""

from __future__ import annotations

from loadmanager.kit.zookeeper.embedded.access import AclIdentity

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
        self.waiting_bytes = 0

    def take(self, answer: bytes | None) -> None:
        """Send an answer. None: there is nothing more; hang up."""
        raise NotImplementedError

    def overflow(self) -> None:
        """There is no room for what it should be sent: hang up at once."""
        raise NotImplementedError
