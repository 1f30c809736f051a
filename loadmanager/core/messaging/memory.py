"""How much memory all open topics of a broker take together."""

from __future__ import annotations

from dataclasses import dataclass

ENTRY_OVERHEAD_BYTES = 128
"""What one entry takes beside its bytes: the objects that hold it, and its place in the log."""


@dataclass(slots=True)
class TopicMemory:
    """Counted as entries come and go, so that publishing never sums topics."""

    limit_bytes: int
    used_bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether nothing more may be stored."""
        return self.used_bytes >= self.limit_bytes
