"""The log of a durable topic: its entries are in segments on disk, their places in memory, and the
newest and those just read in a bounded cache.

An entry exists for readers once it is stored (`stored`); `append` only hands it to the writer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from loadmanager.broker.messaging.log import Entry
from loadmanager.broker.messaging.memory import EntryCache, Memory
from loadmanager.broker.messaging.segments import (
    ABSENT,
    ENTRY,
    PRODUCER,
    ZEROS,
    SegmentIndex,
    Sent,
    record,
    total,
)

INDEX_BYTES = 16
READ_BYTES = 512 * 1024
READ_ENTRIES = 500
"""Bytes and entries that are read at once, for a reader that goes on. So many entries are taken
apart in 2 ms.
"""
_keys = count()


@dataclass(frozen=True, slots=True)
class Rollover:
    """The limits at which a segment is finished."""

    entries_max: int
    bytes_max: int
    producers_max: int
    """How many producers' last sequence ids are kept."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes for the end of one segment, from `offset` on; `finished`: its last ones."""

    segment: SegmentIndex
    offset: int
    data: bytes
    finished: bool


class _Named(NamedTuple):
    """What a segment says of a producer, whenever it names it."""

    number: int
    last: Sent
    """Its last message before the segment: also true if a crash cuts off what follows."""


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """The position of a record, and the number of bytes to read from there."""

    segment: SegmentIndex
    offset: int
    size: int


class StoredLog:
    """Implements `broker.messaging.log.MessageLog` for one life of a durable topic.

    `segments` are those of earlier openings, `next_id` is the first id of this one, number `run`.
    """

    def __init__(
        self,
        memory: Memory,
        cache: EntryCache,
        segments: Sequence[SegmentIndex],
        *,
        run: int,
        next_id: int,
        rollover: Rollover,
    ) -> None:
        self.memory = memory
        self.run = run
        self.request: Callable[[int], None] = lambda entry_id: None
        """Called for an entry that a reader needs and the cache lacks."""
        self._cache, self._key, self._rollover = cache, next(_keys), rollover
        self._segments = [*segments, SegmentIndex(run, next_id)]
        self._firsts = [segment.first_id for segment in self._segments]
        self.producers = OrderedDict(segments[-1].producers) if segments else OrderedDict()
        """Producer → its last message, the one that was silent longest first."""
        self._named: dict[str, _Named] = {}
        """The producers that the active segment names."""
        self.first_id = self._firsts[0]
        self.end_id = self.next_id = next_id
        self.bytes = total(segments)
        self._unwritten: list[bytes] = []
        self._pieces: list[Piece] = []
        self._unstored_bytes = 0
        self._counted = 0
        self._count_memory()

    @property
    def segments(self) -> Sequence[SegmentIndex]:
        """All segments, oldest first; the last one is active."""
        return self._segments

    # Writing

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
        """Give an entry its id and hand it to the writer."""
        active, limits = self._segments[-1], self._rollover
        if len(active.offsets) >= limits.entries_max or active.size >= limits.bytes_max:
            active = self._roll()
        named = self._named.get(producer) or self._introduce(producer)
        self.producers[producer] = Sent(sequence_id, published_ms)
        self.producers.move_to_end(producer)
        entry_id = self.next_id
        head = record(
            ENTRY,
            tail,
            entry_id=entry_id,
            messages=messages,
            deliver_at_ms=deliver_at_ms,
            sequence_id=sequence_id,
            producer=named.number,
        )
        active.offsets.append(active.size)
        active.messages.append((active.messages[-1] if active.messages else 0) + messages)
        self._write(head, tail)
        if tail.endswith(ZEROS):  # or damage would look like a write that was cut off
            self._write_name(producer, named)
        entry = Entry(entry_id, tail, messages, 0, 0, deliver_at_ms)
        self.next_id = entry_id + 1
        self._unstored_bytes += len(tail)
        self.memory.add(len(tail) + INDEX_BYTES)
        self._counted += len(tail) + INDEX_BYTES
        self._cache.put((self._key, entry_id), entry)
        return entry

    def _write(self, *parts: bytes) -> None:
        size = sum(len(part) for part in parts)
        self._unwritten += parts
        self._segments[-1].size += size
        self.bytes += size

    def _introduce(self, producer: str) -> _Named:
        """Name a producer in the active segment; the first time, with all that are remembered.

        What is said of it is true before the entry that follows: a crash may leave the name and cut
        off the entry.
        """
        if not self._named:
            for name, last in list(self.producers.items()):
                if name != producer:
                    self._name(name, last)
        named = self._name(producer, self.producers.setdefault(producer, Sent()))
        self.producers.move_to_end(producer)
        while len(self.producers) > max(self._rollover.producers_max, 1):
            self.producers.popitem(last=False)
        return named

    def _name(self, producer: str, last: Sent) -> _Named:
        named = self._named[producer] = _Named(len(self._named), last)
        self._write_name(producer, named)
        return named

    def _write_name(self, producer: str, named: _Named) -> None:
        name = producer.encode()
        self._write(
            record(
                PRODUCER,
                name,
                deliver_at_ms=named.last.published_ms,
                sequence_id=named.last.sequence_id,
                producer=named.number,
            ),
            name,
        )

    def _roll(self) -> SegmentIndex:
        self._segments[-1].producers = dict(self.producers)
        self._cut_piece(finished=True)
        self._segments.append(SegmentIndex(self.run, self.next_id))
        self._firsts.append(self.next_id)
        self._named.clear()
        return self._segments[-1]

    def _cut_piece(self, *, finished: bool) -> None:
        if self._unwritten or finished:
            data = b"".join(self._unwritten)
            self._unwritten.clear()
            active = self._segments[-1]
            self._pieces.append(Piece(active, active.size - len(data), data, finished))

    def take(self) -> tuple[list[Piece], int, int]:
        """The pieces that the writer has to store next, the id after their last entry, and the
        bytes of their messages. `stored` must be called before the next call.
        """
        self._cut_piece(finished=False)
        pieces, self._pieces = self._pieces, []
        return pieces, self.next_id, self._unstored_bytes

    def stored(self, end_id: int, tail_bytes: int) -> None:
        """The entries below `end_id` are stored, of so many bytes: they exist for readers."""
        self.end_id = end_id
        self._unstored_bytes -= tail_bytes
        self.memory.add(-tail_bytes)
        self._counted -= tail_bytes

    def close(self) -> None:
        """The topic is not served here any more."""
        self.memory.add(-self._counted)
        self._counted = 0

    def _count_memory(self) -> None:
        counted = INDEX_BYTES * sum(len(segment.offsets) for segment in self._segments)
        self.memory.add(counted - self._counted)
        self._counted = counted

    # Reading

    def get(self, entry_id: int) -> Entry | None:
        """The entry, if it is in the cache."""
        if not self.first_id <= entry_id < self.end_id:
            return None
        return self._cache.get((self._key, entry_id))

    def loading(self, entry_id: int) -> bool:
        """True if the entry exists and is not in memory; its reading is requested."""
        if self.place(entry_id) is None:
            return False
        self.request(entry_id)
        return True

    def _segment_of(self, entry_id: int) -> SegmentIndex:
        return self._segments[max(bisect_right(self._firsts, entry_id) - 1, 0)]

    def place(self, entry_id: int) -> ReadSpan | None:
        """The place where an entry is stored; None if it does not exist."""
        if not self.first_id <= entry_id < self.end_id:
            return None
        segment = self._segment_of(entry_id)
        at = entry_id - segment.first_id
        if not 0 <= at < len(segment.offsets) or segment.offsets[at] == ABSENT:
            return None
        offset, following = segment.offsets[at], at + 1
        while following < len(segment.offsets) and segment.offsets[following] == ABSENT:
            following += 1
        end = segment.offsets[following] if following < len(segment.offsets) else segment.size
        ahead = at + READ_ENTRIES
        ahead_end = segment.offsets[ahead] if ahead < len(segment.offsets) else segment.size
        ahead_end = segment.size if ahead_end == ABSENT else ahead_end
        return ReadSpan(segment, offset, max(end, min(offset + READ_BYTES, ahead_end)) - offset)

    def accept(self, entries: Sequence[Entry]) -> None:
        """Entries were read, the first one for somebody: the cache keeps it longest."""
        for entry in reversed(entries):
            if self.first_id <= entry.entry_id < self.end_id:
                self._cache.put((self._key, entry.entry_id), entry)

    def quarantine(self, entry_id: int) -> None:
        """An entry cannot be read: for its readers it does not exist."""
        segment = self._segment_of(entry_id)
        segment.offsets[entry_id - segment.first_id] = ABSENT

    def messages_of(self, entry_id: int) -> int:
        """The number of messages in an entry; 0 if it does not exist."""
        segment = self._segment_of(entry_id)
        return segment.messages_before(entry_id + 1) - segment.messages_before(entry_id)

    def _before(self, entry_id: int) -> tuple[int, int]:
        """Messages and bytes between `first_id` and an entry."""
        at = max(bisect_right(self._firsts, entry_id) - 1, 0)
        segment, earlier = self._segments[at], self._segments[:at]
        messages = sum(other.messages[-1] for other in earlier if other.messages)
        place = self.place(entry_id)
        within = place.offset if place is not None else segment.size
        return messages + segment.messages_before(entry_id), total(earlier) + within

    def messages_from(self, entry_id: int) -> int:
        """The number of messages in the entries at and above `entry_id`."""
        return self._before(self.end_id)[0] - self._before(max(entry_id, self.first_id))[0]

    def bytes_from(self, entry_id: int) -> int:
        """The bytes that the entries at and above `entry_id` take."""
        if entry_id >= self.end_id:
            return 0
        return self.bytes - self._before(max(entry_id, self.first_id))[1]

    # Trimming

    def drop_until(self, entry_id: int, retained_bytes: int) -> None:
        """Drop segments whose entries are all below `entry_id`, while more than `retained_bytes`
        are left; those that are dropped are to be deleted (`place` finds them no more).
        """
        while len(self._segments) > 1:
            first = self._segments[0]
            if len(self._segments) == 2 and not self._segments[1].offsets:
                return  # the producers' last sequence ids are in it
            if self._firsts[1] > entry_id or self.bytes - first.size < retained_bytes:
                return
            del self._segments[0], self._firsts[0]
            self.first_id = self._firsts[0]
            self.bytes -= first.size
            counted = INDEX_BYTES * len(first.offsets)
            self.memory.add(-counted)
            self._counted -= counted
