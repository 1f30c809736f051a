"""SIGTERM and SIGINT end a service, whatever it does at that moment; so does SIGHUP where no file
is read again at it.

Before a service has an event loop, the kernel ends it. From then on a thread of its own takes the
signals, tells the loop, and ends the process if the loop stands still (in a call to a file system
that does not answer, say), or if the orderly end takes too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from loadmanager.kit.logger import get_logger
from loadmanager.kit.system.first_signals import first_thread, taken

ANSWER_S = 10.0
"""The loop must run within this after a signal."""
SAME_S = 1.0
"""A further signal within this is the same request: `timeout`, say, signals a process and then its
group, with the process in it.
"""
TELL_S = 2.0
"""The process ends after this even if its last log line is not written: its pipe may be full."""

log = get_logger("ending")


class Ending:
    """Takes the signals of this process while its `with` block runs, in the main thread.

    `within_s` says how long an orderly end may take; after that the process is ended.
    """

    def __init__(
        self,
        within_s: Callable[[], float],
        *,
        answer_s: float = ANSWER_S,
        same_s: float = SAME_S,
    ) -> None:
        self._within_s, self._answer_s, self._same_s = within_s, answer_s, same_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_signal: Callable[[], object] = lambda: None
        self._closed = False
        self._asked = self._answered = 0
        self._before: dict[signal.Signals, Any] = {}
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()

    @property
    def signalled(self) -> bool:
        """True once a signal has come."""
        return self._asked > 0

    def listen(self, on_signal: Callable[[], object]) -> None:
        """From now on, have the running loop call this at each signal."""
        self._loop, self._on_signal = asyncio.get_running_loop(), on_signal

    def __enter__(self) -> Ending:
        """The thread begins."""
        signal.pthread_sigmask(signal.SIG_BLOCK, taken())
        self._thread = first_thread(self._watch)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)
            self._thread.start()
        self._ready.wait()
        # Without `end_at_once`, a library's thread may be given a signal; then this one runs.
        self._before = {number: signal.signal(number, self._forward) for number in taken()}
        return self

    def __exit__(self, *_: object) -> None:
        """The signals do again what they did before."""
        assert self._thread is not None, "it was entered"
        self._closed = True
        signal.pthread_kill(self._thread.ident or 0, signal.SIGTERM)
        self._thread.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, taken())

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        assert self._thread is not None, "it was entered"
        signal.pthread_kill(self._thread.ident or 0, number)

    def _watch(self) -> None:
        self._ready.set()
        number = signal.sigwait(taken())
        if self._closed:
            return
        began_s = time.monotonic()
        within_s = self._within_s()
        self._tell(number)
        while True:
            busy = self._answered < self._asked
            left_s = began_s + (min(self._answer_s, within_s) if busy else within_s)
            again = signal.sigtimedwait(taken(), max(left_s - time.monotonic(), 0))
            if self._closed:
                return
            if again is not None and time.monotonic() < began_s + self._same_s:
                continue
            still = self._answered < self._asked
            if again is not None and not still:
                self._tell(number)
            elif again is not None or still or time.monotonic() >= began_s + within_s:
                self._end(number, time.monotonic() - began_s)

    def _tell(self, number: int) -> None:
        if self._loop is None:
            os._exit(128 + number)
        self._asked += 1
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is about to end
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._answered += 1
        self._on_signal()

    def _end(self, number: int, after_s: float) -> None:
        teller = threading.Thread(
            target=log.critical,
            args=("the process did not end in order; it ends now",),
            kwargs={"after_s": round(after_s, 1)},
            daemon=True,
        )
        teller.start()
        teller.join(TELL_S)
        os._exit(128 + number)
