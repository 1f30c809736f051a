"""The clock that is passed to all code that needs the time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall time for records and reports, monotonic time for durations and leases."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds of the same clock as `monotonic_s`."""
        ...
