"""The memory of all open topics of a broker."""

from __future__ import annotations

from dataclasses import dataclass

ENTRY_OVERHEAD_BYTES = 128
"""Memory of one entry beside its bytes: its objects and its place in the log."""


@dataclass(slots=True)
class TopicMemory:
    """A running sum, so that a publish need not add up topics."""

    limit_bytes: int
    used_bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether nothing more may be stored."""
        return self.used_bytes >= self.limit_bytes
