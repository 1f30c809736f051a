"""The memory of all open topics of a broker."""

from __future__ import annotations

from dataclasses import dataclass

ENTRY_OVERHEAD_BYTES = 128
"""Memory of one entry beside its bytes: its objects and its place in the log."""
DELAYED_ENTRIES_MAX = 500_000
"""How many entries may wait for their time, of all subscriptions together (about 65 MB). At most
so many are passed over; later entries of a subscription wait, too, then.
"""


@dataclass(slots=True)
class TopicMemory:
    """Running sums, so that a publish need not add up topics."""

    limit_bytes: int
    used_bytes: int = 0
    delayed_entries: int = 0
    delayed_entries_max: int = DELAYED_ENTRIES_MAX

    @property
    def delayed_full(self) -> bool:
        """Whether no more entries may wait for their time."""
        return self.delayed_entries >= self.delayed_entries_max

    @property
    def full(self) -> bool:
        """Whether nothing more may be stored."""
        return self.used_bytes >= self.limit_bytes
