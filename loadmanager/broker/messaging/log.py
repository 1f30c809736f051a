"""The log of a topic; that of a topic in memory is appended at the end, dropped from the front."""

from __future__ import annotations

from typing import Protocol

import msgspec

from loadmanager.broker.messaging.memory import ENTRY_OVERHEAD_BYTES, Memory


class Entry(msgspec.Struct, gc=False):
    """The entry that one SEND stored: its tail as it came, and its number of messages. Never
    changed. A `Struct`, so that the garbage collector need not look at millions of them.
    """

    entry_id: int
    tail: bytes
    messages: int
    messages_before: int
    """Messages of all entries that were appended before this one."""
    bytes_before: int
    """Bytes of all entries that were appended before this one."""
    deliver_at_ms: int
    """When shared subscriptions may deliver it, in ms since the epoch; 0: at once."""


class MessageLog(Protocol):
    """Entries `first_id … end_id − 1`: in memory (`EntryLog`), or stored (`stored_log.StoredLog`).

    Of a stored log some ids may be without an entry.
    """

    memory: Memory
    first_id: int

    @property
    def end_id(self) -> int:
        """The id after the last entry that exists for readers."""
        ...

    def append(
        self,
        tail: bytes,
        messages: int,
        deliver_at_ms: int = 0,
        producer: str = "",
        sequence_id: int = -1,
        *,
        published_ms: int = 0,
    ) -> Entry:
        """Store an entry at the end. The last three are what is known of its producer then."""
        ...

    def get(self, entry_id: int) -> Entry | None:
        """The entry with an id; None when it is not in memory, was dropped, or never existed."""
        ...

    def loading(self, entry_id: int) -> bool:
        """True if an entry that is not in memory exists: it is being read, which takes a while."""
        ...

    def messages_of(self, entry_id: int) -> int:
        """The number of messages in an entry; 0 if it does not exist."""
        ...

    def drop_until(self, entry_id: int, retained_bytes: int) -> None:
        """Drop entries below `entry_id` from the front, but keep so many bytes at least."""
        ...

    def messages_from(self, entry_id: int) -> int:
        """The number of messages in the entries at and above `entry_id`."""
        ...

    def bytes_from(self, entry_id: int) -> int:
        """The number of bytes in the entries at and above `entry_id`."""
        ...

    def close(self) -> None:
        """Forget everything: the topic is not served here any more."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of all entries."""
        ...


class EntryLog:
    """Entries `first_id … end_id − 1`, without gaps. `memory` counts their bytes."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._entries: list[Entry] = []
        self._dropped = 0  # entries at the front of the list that are dropped but not yet deleted
        self._messages = 0  # of all entries ever appended
        self._bytes = 0  # likewise
        self.first_id = 0
        self.bytes = 0

    @property
    def end_id(self) -> int:
        """The id that the next entry gets."""
        return self.first_id + len(self._entries) - self._dropped

    def append(
        self,
        tail: bytes,
        messages: int,
        deliver_at_ms: int = 0,
        producer: str = "",
        sequence_id: int = -1,
        *,
        published_ms: int = 0,
    ) -> Entry:
        """Store an entry at the end."""
        entry = Entry(
            self.end_id, tail, messages, self._messages, self._bytes, deliver_at_ms=deliver_at_ms
        )
        self._entries.append(entry)
        self._messages += messages
        self._bytes += len(tail)
        self.bytes += len(tail)
        self.memory.add(len(tail) + ENTRY_OVERHEAD_BYTES)
        return entry

    def get(self, entry_id: int) -> Entry | None:
        """The entry with an id; None when it was dropped or never existed."""
        if not self.first_id <= entry_id < self.end_id:
            return None
        return self._entries[entry_id - self.first_id + self._dropped]

    def loading(self, entry_id: int) -> bool:
        """Always False: all entries are in memory."""
        return False

    def messages_of(self, entry_id: int) -> int:
        """The number of messages in an entry; 0 if it does not exist."""
        entry = self.get(entry_id)
        return 0 if entry is None else entry.messages

    def close(self) -> None:
        """Forget everything."""
        self.drop_until(self.end_id, -1)

    def drop_until(self, entry_id: int, retained_bytes: int) -> None:
        """Drop entries below `entry_id` from the front until the log holds at most `retained_bytes`
        bytes.

        Amortised constant time per dropped entry.
        """
        bytes_before, first_before = self.bytes, self.first_id
        while self.first_id < min(entry_id, self.end_id) and self.bytes > retained_bytes:
            self.bytes -= len(self._entries[self._dropped].tail)
            self._dropped += 1
            self.first_id += 1
        dropped = self.first_id - first_before
        self.memory.add(self.bytes - bytes_before - dropped * ENTRY_OVERHEAD_BYTES)
        if self._dropped > len(self._entries) // 2:
            del self._entries[: self._dropped]
            self._dropped = 0

    def messages_from(self, entry_id: int) -> int:
        """The number of messages in the entries at and above `entry_id`."""
        entry = self.get(max(entry_id, self.first_id))
        return 0 if entry is None else self._messages - entry.messages_before

    def bytes_from(self, entry_id: int) -> int:
        """The number of bytes in the entries at and above `entry_id`."""
        entry = self.get(max(entry_id, self.first_id))
        return 0 if entry is None else self._bytes - entry.bytes_before
