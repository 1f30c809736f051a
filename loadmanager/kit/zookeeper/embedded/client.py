"""A client as the requests see it: a connection with a session."""

from __future__ import annotations

from loadmanager.kit.zookeeper.embedded.access import AclIdentity


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
