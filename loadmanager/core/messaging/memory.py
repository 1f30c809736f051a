"""The memory of all open topics of a broker."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadmanager.core.messaging.log import Entry

ENTRY_OVERHEAD_BYTES = 128
"""Memory of one entry beside its bytes: its objects and its place in the log."""
DELAYED_ENTRIES_MAX = 500_000
DELAYED_SHARE = 10
DELAYED_RESERVED = 1_000
"""How many entries may wait for their time, of all subscriptions together (about 65 MB), and of one
subscription: a tenth of that, and so many even when the others take all the rest. At most so many
are passed over; later entries of a subscription wait, too, then.
"""


@dataclass(slots=True)
class TopicMemory:
    """Running sums, so that a publish need not add up topics."""

    limit_bytes: int
    used_bytes: int = 0
    delayed_entries: int = 0
    delayed_entries_max: int = DELAYED_ENTRIES_MAX
    delayed_reserved: int = DELAYED_RESERVED

    def delayed_full(self, entries: int) -> bool:
        """True if a subscription that already holds this many entries may hold no more."""
        if entries < self.delayed_reserved:
            return False
        share = self.delayed_entries_max // DELAYED_SHARE
        return entries >= share or self.delayed_entries >= self.delayed_entries_max

    @property
    def full(self) -> bool:
        """True if nothing more may be stored."""
        return self.used_bytes >= self.limit_bytes


class EntryCache:
    """Entries of durable topics that were written or read last, at most `limit_bytes` of them."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[tuple[int, int], Entry] = OrderedDict()

    def put(self, key: tuple[int, int], entry: Entry) -> None:
        """Keep an entry; the oldest make room. The newest is always kept."""
        size = len(entry.tail) + ENTRY_OVERHEAD_BYTES
        replaced = self._entries.pop(key, None)
        if replaced is not None:
            self.used_bytes -= len(replaced.tail) + ENTRY_OVERHEAD_BYTES
        self._entries[key] = entry
        self.used_bytes += size
        while self.used_bytes > self.limit_bytes and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self.used_bytes -= len(oldest.tail) + ENTRY_OVERHEAD_BYTES

    def get(self, key: tuple[int, int]) -> Entry | None:
        """An entry, if it is here."""
        return self._entries.get(key)
