"""Implements `kit.clock.Clock`."""

from __future__ import annotations

import time


class SystemTime:
    """The clocks of the system."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def monotonic_ns(self) -> int:
        """Nanoseconds of the same clock."""
        return time.monotonic_ns()
