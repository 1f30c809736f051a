"""The kernel ends a service at a signal until there is something to end in order.

This module is loaded before all others: it imports nothing that takes long.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import threading
from collections.abc import Callable
from typing import Any

SERVICES = ("standalone", "store", "broker", "fleet")
"""The commands that run until a signal comes."""

_taken = [signal.SIGTERM, signal.SIGINT]
_first: list[threading.Thread] = []
"""The thread of `end_at_once`."""
_hangup: list[Any] = []
"""What SIGHUP did before `ignore_hangup`."""
_next: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
"""What that thread does next."""


def taken() -> list[signal.Signals]:
    """The signals that end this process."""
    return _taken


def end_at_once(*, hangup: bool) -> None:
    """Have the kernel end this process at a signal, as long as there is nothing to end in order.
    `hangup`: SIGHUP is one of them, as when a terminal is closed, unless it is ignored (`nohup`).

    To be called before threads begin, which inherit that they take no signals: one thread alone
    takes them, now and later.
    """
    if hangup and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        _taken.append(signal.SIGHUP)
    for number in _taken:
        signal.signal(number, signal.SIG_DFL)
    if os.getpid() == 1:  # the first one of a container: the kernel ends it only by a handler
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal.restype = ctypes.c_void_p
        for number in _taken:
            libc.signal(number, ctypes.cast(libc["_exit"], ctypes.c_void_p))
    signal.pthread_sigmask(signal.SIG_BLOCK, _taken)
    _first.append(threading.Thread(target=_take_first, name="signals", daemon=True))
    _first[0].start()


def ignore_hangup() -> None:
    """Ignore SIGHUP until there is somebody who reads a file again."""
    _hangup.append(signal.signal(signal.SIGHUP, signal.SIG_IGN))


def hangup_as_before() -> None:
    """Undo `ignore_hangup`: there is nothing to read again."""
    while _hangup:
        signal.signal(signal.SIGHUP, _hangup.pop())


def first_thread(watch: Callable[[], None]) -> threading.Thread | None:
    """The thread of `end_at_once`, which runs `watch` from now on; None if there is none."""
    if not _first:
        return None
    _next.put(watch)
    return _first.pop()


def _take_first() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _taken)
    watch = _next.get()
    signal.pthread_sigmask(signal.SIG_BLOCK, _taken)
    watch()
