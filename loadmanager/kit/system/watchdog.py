"""Ends the process when its event loop stands still.

kazoo keeps the session alive from a thread of its own. A broker whose loop is stuck (in a plug-in
that never returns, or in a write to a full pipe) would therefore keep its locks, its registration
and the leadership for ever, and serve nothing. When the process ends, other brokers take over.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable

from loadmanager.kit.logger import get_logger

SLICE_S = 1.0
TELL_S = 2.0
"""The process ends after this even if the last log line is not written: its pipe may be full."""

log = get_logger("watchdog")


class Watchdog:
    """Counts the slices of time in which the loop did not run.

    Counting slices tells a stuck loop from a paused process (SIGSTOP), which misses one slice.
    """

    def __init__(
        self,
        still_max_s: Callable[[], float],
        *,
        slice_s: float = SLICE_S,
        end: Callable[[], None] = lambda: os._exit(1),
    ) -> None:
        self._still_max_s = still_max_s
        self._slice_s = slice_s
        self._end = end
        self._beats = 0
        self._stopped = threading.Event()

    async def run(self) -> None:
        """Watch this loop until cancelled."""
        watcher = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="watchdog", daemon=True
        )
        watcher.start()
        try:
            while True:
                self._beats += 1
                await asyncio.sleep(self._slice_s / 2)
        finally:
            self._stopped.set()

    def _watch(self, loop_thread: int) -> None:
        beats, slices = self._beats, 0
        while not self._stopped.wait(self._slice_s):
            beats, slices = self._beats, slices + 1 if self._beats == beats else 0
            if slices * self._slice_s >= self._still_max_s():
                teller = threading.Thread(
                    target=self._tell, args=(loop_thread, slices * self._slice_s), daemon=True
                )
                teller.start()
                teller.join(TELL_S)
                self._end()
                return

    def _tell(self, loop_thread: int, still_s: float) -> None:
        frame = sys._current_frames().get(loop_thread)  # noqa: SLF001 - the only way to another thread's stack
        stuck = "".join(traceback.format_stack(frame)) if frame is not None else ""
        log.critical(
            "the event loop stands still; the process ends, so that other brokers get its bundles",
            still_s=still_s,
            stuck=stuck,
        )
