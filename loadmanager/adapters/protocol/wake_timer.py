"""The one timer behind everything that waits for a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loadmanager.core.throttling.wakeups import Wakeups


class WakeTimer:
    """Runs the wake-ups when they are due; must be armed first where an event loop runs.

    A wake-up that raises is told to `failed` and does not keep the others from theirs.
    """

    def __init__(self, wakeups: Wakeups, failed: Callable[[str, Exception], None]) -> None:
        self._wakeups = wakeups
        self._failed = failed
        self._handle: asyncio.Handle | None = None
        wakeups.on_earlier = self._arm

    def stop(self) -> None:
        """Wake nobody any more."""
        self._wakeups.on_earlier = lambda at_ns: None
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self, at_ns: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        # Up to whole milliseconds, as event loops count: a timer that fires early would spin until
        # the moment comes.
        delay_ms = -(-(at_ns - self._wakeups.clock()) // 1_000_000)
        loop = asyncio.get_running_loop()
        if delay_ms > 0:
            self._handle = loop.call_later(delay_ms / 1000, self._fire)
        else:
            self._handle = loop.call_soon(self._after_others)

    def _after_others(self) -> None:
        """Due at once, after what the sockets have: callbacks of this turn of the loop still run
        before it looks at them.
        """
        self._handle = asyncio.get_running_loop().call_soon(self._fire)

    def _fire(self) -> None:
        self._handle = None
        try:
            self._wakeups.run()
        except Exception as error:  # noqa: BLE001 - contained: the others must be woken all the same
            self._failed("a wake-up of a limit failed", error)
        at_ns = self._wakeups.next_ns()
        if at_ns is not None:
            self._arm(at_ns)
