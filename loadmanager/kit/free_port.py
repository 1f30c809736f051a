"""Before a server listens: the family of its sockets, and a check that a port is free."""

from __future__ import annotations

import socket

from loadmanager.kit.errors import OperationalError


def family_of(host: str) -> socket.AddressFamily:
    """The family of sockets that can be bound to a host: a literal IPv6 address has its own."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def require_free_port(host: str, port: int, advice: str) -> None:
    """Raise `OperationalError` with the advice if the port is in use."""
    with socket.socket(family_of(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OperationalError(f"port {port}: {error.strerror}; {advice}") from None
