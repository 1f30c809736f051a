"""Ports of loopback for the servers that tests start.

They lie below the range from which the kernel takes the ports of outgoing connections, and each
test process holds a block of its own, so that no two processes choose the same.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

FIRST, LAST, BLOCK = 20_000, 32_768, 128
"""Linux gives outgoing connections 32768 and above."""

_locks: list[IO[str]] = []
_free: list[int] = []


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports that nobody listens on. Each is given once."""
    while True:
        while len(_free) >= count:
            first = _free[0]
            del _free[:count]
            if all(_can_listen(port) for port in range(first, first + count)):
                return first
        _free[:] = _claimed_block()


def free_port() -> int:
    """One port."""
    return free_ports(1)


def _claimed_block() -> range:
    """A block that no other process holds, and this one had not before.

    It is held until the process ends.
    """
    folder = Path(tempfile.gettempdir(), f"loadmanager-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    for first in range(FIRST, LAST - BLOCK + 1, BLOCK):
        file = (folder / str(first)).open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        _locks.append(file)
        return range(first, first + BLOCK)
    raise RuntimeError("no free ports")


def _can_listen(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
