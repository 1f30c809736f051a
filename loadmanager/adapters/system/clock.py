"""The machine's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `ports.clock.Clock`."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def monotonic_ns(self) -> int:
        """Nanoseconds of the monotonic clock."""
        return time.monotonic_ns()
