"""Tells the service manager how the daemon is: systemd's notify protocol, one datagram to
`$NOTIFY_SOCKET`.
"""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1` or the like; nothing happens where nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract socket
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(state.encode(), address)
