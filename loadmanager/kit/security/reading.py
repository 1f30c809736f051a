"""Reads files that operators name: only regular ones, because a pipe may never answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable

from loadmanager.kit.private_files import open_regular


def read_file(path: str, bytes_max: int) -> bytes:
    """The first bytes of a regular file. Raises `OSError`, also for anything else than a file."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
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
