"""A check that a port is free, before a server starts in another process."""

from __future__ import annotations

import socket

from loadmanager.kit.errors import OperationalError


def require_free_port(host: str, port: int, advice: str) -> None:
    """Raise `OperationalError` with the advice if the port is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OperationalError(f"port {port}: {error.strerror}; {advice}") from None
