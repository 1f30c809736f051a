"""The machine's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `kit.clock.Clock`."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()
