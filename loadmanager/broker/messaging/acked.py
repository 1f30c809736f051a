"""The entries that a subscription has acknowledged above its mark. However many they are, an
operation takes the same time; only to list them takes longer the more ranges they form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice

from loadmanager.broker.messaging.memory import Memory

BLOCK_SHIFT = 10
BLOCK_MASK = (1 << BLOCK_SHIFT) - 1
ACK_SET_BYTES = 200
WORD_BYTES = 40
"""Memory of a set of bit words, and of each word."""

_ONES = re.compile("1+")
Words = tuple[int, ...]


class AckedIds:
    """Entry ids, as bits of blocks of 1,024, and how many messages the entries have."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._block_messages: dict[int, int] = {}
        self._count = 0
        self.messages = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, entry_id: int) -> bool:
        return bool(self._bits.get(entry_id >> BLOCK_SHIFT, 0) >> (entry_id & BLOCK_MASK) & 1)

    def add(self, entry_id: int, messages: int) -> None:
        """Add an entry that is not here, with so many messages."""
        self._add(entry_id >> BLOCK_SHIFT, 1 << (entry_id & BLOCK_MASK), messages)

    def add_range(self, first_id: int, end_id: int, messages_from: Callable[[int], int]) -> None:
        """Add entries `first_id … end_id − 1`, which are not here. `messages_from`: how many
        messages the entries from an id on have.
        """
        while first_id < end_id:
            block = first_id >> BLOCK_SHIFT
            stop = min(end_id, (block + 1) << BLOCK_SHIFT)
            bits = ((1 << (stop - first_id)) - 1) << (first_id & BLOCK_MASK)
            self._add(block, bits, messages_from(first_id) - messages_from(stop))
            first_id = stop

    def _add(self, block: int, bits: int, messages: int) -> None:
        self._bits[block] = self._bits.get(block, 0) | bits
        self._block_messages[block] = self._block_messages.get(block, 0) + messages
        self._count += bits.bit_count()
        self.messages += messages

    def stretch_end(self, entry_id: int) -> int:
        """The first id from this one on that is not here."""
        while True:
            bits = self._bits.get(entry_id >> BLOCK_SHIFT, 0) >> (entry_id & BLOCK_MASK)
            ones = _ones(bits)
            entry_id += ones
            if not ones or entry_id & BLOCK_MASK:
                return entry_id

    def _remove(self, block: int, bits: int, messages: int) -> None:
        self._bits[block] &= ~bits
        self._block_messages[block] -= messages
        self._count -= bits.bit_count()
        self.messages -= messages
        if not self._bits[block]:
            del self._bits[block]
            self.messages -= self._block_messages.pop(block)

    def drop_below(self, first_id: int, end_id: int, messages_of: Callable[[int], int]) -> None:
        """Remove the entries below `end_id`; all that are here are at least `first_id`."""
        last = end_id >> BLOCK_SHIFT
        blocks: Iterable[int] = range(first_id >> BLOCK_SHIFT, last)
        if last - (first_id >> BLOCK_SHIFT) > len(self._bits):
            blocks = [block for block in self._bits if block < last]
        for block in blocks:
            if bits := self._bits.get(block):
                self._remove(block, bits, self._block_messages[block])
        below = self._bits.get(last, 0) & ((1 << (end_id & BLOCK_MASK)) - 1)
        if below:
            base = last << BLOCK_SHIFT
            ids = (base + at for first, end in _stretches(below) for at in range(first, end))
            self._remove(last, below, sum(map(messages_of, ids)))

    def ranges(self, ranges_max: int) -> tuple[tuple[int, int], ...]:
        """First and last ids of the stretches, rising; of too many, the lowest."""
        ranges: list[tuple[int, int]] = []
        for block in sorted(self._bits):
            base = block << BLOCK_SHIFT
            for first, end in _stretches(self._bits[block]):
                if ranges and ranges[-1][1] + 1 == base + first:
                    ranges[-1] = (ranges[-1][0], base + end - 1)
                elif len(ranges) == ranges_max:
                    return tuple(ranges)
                else:
                    ranges.append((base + first, base + end - 1))
        return tuple(ranges)


def _stretches(bits: int) -> Iterable[tuple[int, int]]:
    """First place and the place after the last one of each stretch of 1s."""
    return (match.span() for match in _ONES.finditer(f"{bits:b}"[::-1]))


def _ones(bits: int) -> int:
    """The number of 1s from the lowest place on."""
    return (~bits & (bits + 1)).bit_length() - 1


class AckSets:
    """Batches that are acknowledged in part: entry id → bit words, whose 1s are not acknowledged.

    `memory` counts them; when it is full, none is added, and those messages are delivered again.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._words: dict[int, Words] = {}
        self._used_bytes = 0

    def __len__(self) -> int:
        return len(self._words)

    def get(self, entry_id: int, default: Words = ()) -> Words:
        return self._words.get(entry_id, default)

    def put(self, entry_id: int, words: Words) -> None:
        """Keep the words of an entry, in the place of those that it had."""
        if entry_id in self._words:
            self.pop(entry_id)
        elif self._memory.full:
            return
        self._words[entry_id] = words
        self._count(ACK_SET_BYTES + WORD_BYTES * len(words))

    def pop(self, entry_id: int) -> None:
        """Forget an entry, if it is here."""
        words = self._words.pop(entry_id, None)
        if words is not None:
            self._count(-ACK_SET_BYTES - WORD_BYTES * len(words))

    def drop_below(self, first_id: int, end_id: int) -> None:
        """Forget the entries below `end_id`; all that are here are at least `first_id`."""
        ids: Iterable[int] = range(first_id, end_id)
        if end_id - first_id > len(self._words):
            ids = [entry_id for entry_id in self._words if entry_id < end_id]
        for entry_id in ids:
            self.pop(entry_id)

    def clear(self) -> None:
        self._count(-self._used_bytes)
        self._words.clear()

    def oldest(self, entries_max: int) -> dict[int, Words]:
        """The entries that were changed longest ago, at most `entries_max`."""
        return dict(islice(self._words.items(), entries_max))

    def _count(self, size_bytes: int) -> None:
        self._used_bytes += size_bytes
        self._memory.add(size_bytes)
