"""Before a server listens: the family of its sockets, and a check that a port is free."""

from __future__ import annotations

import errno
import socket

from loadmanager.kit.errors import OperationalError


def family_of(host: str) -> socket.AddressFamily:
    """The family of sockets that can be bound to a host: a literal IPv6 address has its own."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def not_bound(host: str, port: int, error: OSError, advice: str) -> str:
    """Why a server cannot listen there, for people: the address may be wrong, or the port taken,
    for which the advice is.
    """
    if isinstance(error, socket.gaierror):
        return f"{host} is no address, and no name that is known here ({error.strerror})"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; 127.0.0.1, and 0.0.0.0 for all of them, are"
    if error.errno == errno.EACCES:
        return f"port {port}: {error.strerror}; ports below 1024 are for root"
    return f"port {port}: {error.strerror}; {advice}"


def require_free_port(host: str, port: int, advice: str) -> None:
    """Raise `OperationalError` if nobody can listen there, with the advice for a port in use."""
    with socket.socket(family_of(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OperationalError(not_bound(host, port, error, advice)) from None
