"""Lets connections and subscriptions go on when limits release them; owns the one timer for all
limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loadmanager.kit.clock import Clock
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.schedule import Resumable

SLICE_NS = 20_000
"""After this much work the other tasks of the event loop get their turn, so that a throttled topic
does not slow down its neighbours.
"""


class Resumer:
    """Asks a broker's limits who may go on. Call `settle` after each event, and `release` when
    limits have changed; both set the timer.

    One that fails while it goes on is told to `failed`; the others go on.
    """

    def __init__(
        self, limits: BrokerThrottling, clock: Clock, failed: Callable[[str, Exception], None]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._failed = failed
        self._resuming = False
        self._stopped = False
        self._timer: asyncio.Handle | None = None
        self._timer_ns: int | None = None
        """For when the timer is set."""

    def stop(self) -> None:
        """Release nobody any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def settle(self) -> None:
        """Resume those whose last hold ended, for `SLICE_NS` or so."""
        if self._resuming:
            return
        self._resuming = True
        began_ns = 0
        try:
            while (resumable := self._limits.next_ready()) is not None:
                began_ns = began_ns or self._clock.monotonic_ns()
                self._go_on(resumable)
                if self._clock.monotonic_ns() - began_ns > SLICE_NS:
                    self._set_timer(began_ns)  # the rest is due at once
                    break
        finally:
            self._resuming = False
            self._set_timer(self._limits.next_wakeup_ns())

    def release(self) -> None:
        """Release those for whom there are tokens now, and resume them, for `SLICE_NS` or so."""
        if self._resuming or self._stopped:
            return
        self._resuming = True
        began_ns = now_ns = self._clock.monotonic_ns()
        try:
            while (resumable := self._limits.release(now_ns)) is not None:
                self._go_on(resumable)
                now_ns = self._clock.monotonic_ns()
                if now_ns - began_ns > SLICE_NS:
                    self._set_timer(began_ns)  # the rest is due at once
                    break
        finally:
            self._resuming = False
            self._set_timer(self._limits.next_wakeup_ns())

    def _go_on(self, resumable: Resumable) -> None:
        try:
            resumable.go_on()
        except Exception as error:  # noqa: BLE001 - contained: the others must go on all the same
            self._failed("resuming a connection or subscription failed", error)

    def _set_timer(self, at_ns: int | None) -> None:
        """Set the timer, unless it is set for this or an earlier moment."""
        if at_ns is None or self._stopped:
            return
        if self._timer_ns is not None and self._timer_ns <= at_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = at_ns
        # Up to whole milliseconds, as event loops count: a timer that fires early would spin until
        # the moment comes.
        delay_ms = -(-(at_ns - self._clock.monotonic_ns()) // 1_000_000)
        loop = asyncio.get_running_loop()
        if delay_ms > 0:
            self._timer = loop.call_later(delay_ms / 1000, self._fire)
        else:
            self._timer = loop.call_soon(self._after_others)

    def _after_others(self) -> None:
        """Due at once, after what the sockets have: callbacks of this turn of the loop still run
        before it looks at them.
        """
        self._timer = asyncio.get_running_loop().call_soon(self._fire)

    def _fire(self) -> None:
        self._timer = self._timer_ns = None
        self.release()
