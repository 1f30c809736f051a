"""Reads files that operators name: only regular ones, because a pipe may never answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable


def read_file(path: str, bytes_max: int) -> bytes:
    """The first bytes of a regular file. Raises `OSError`, also for anything else than a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.read(bytes_max)


def in_thread(work: Callable[[], None]) -> asyncio.Future[None]:
    """Run work in a thread of its own, which does not keep the process from ending; returns what
    is done when the work is, or has its error.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def run() -> None:
        failed: Exception | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, failed)

    threading.Thread(target=run, name="certificates", daemon=True).start()
    return future
