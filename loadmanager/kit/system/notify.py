"""systemd's notify protocol: a process tells its service manager that it is ready, that it stops,
and that it works.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path


def notify(state: str) -> None:
    """Send a state such as `READY=1` or `STOPPING=1` to `$NOTIFY_SOCKET`, if that is set."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract socket
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(state.encode(), address)


def watchdog_interval_s() -> float | None:
    """The interval at which to notify the service manager: a third of its `WatchdogSec`.

    None if it does not watch, or watches another process, from which this one has the variables.
    """
    limit_us, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not limit_us.isdigit() or int(limit_us) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(limit_us) / 3e6


async def keep_notifying() -> None:
    """Tell the service manager that the event loop turns, for as long as it does, if it watches."""
    interval_s = watchdog_interval_s()
    while interval_s is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)


class NotifySocket:
    """The service manager's end, as a context manager: a socket at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> NotifySocket:
        """Bind the socket."""
        self._socket.bind(str(self.path))
        self._socket.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._socket.close()

    async def ready(self) -> AsyncIterator[None]:
        """Yields for each process that says it is ready."""
        while True:
            if await asyncio.get_running_loop().sock_recv(self._socket, 1024) == b"READY=1":
                yield
