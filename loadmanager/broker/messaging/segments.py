"""The bytes of stored topics: records, the segments that they form, and what is left of a segment
after a crash.

A segment is a sequence of records with rising entry ids. A record is a header with a checksum of
its own, then the tail of a SEND as it came, with a checksum in the header. Records of another kind
name producers: an entry's header has the producer's number in its segment and its sequence id, so
that the last sequence id of every producer survives its topic's owner. Each segment begins with
the producers of the one before, with the times of their last messages.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from loadmanager.broker.messaging.log import Entry
from loadmanager.kit.errors import CorruptDataError

MAGIC = 0x4C47
_HEAD = struct.Struct(">HHIIIQQqI")
"""The fields of `_Head`."""
_SUM = struct.Struct(">I")
HEADER_BYTES = _HEAD.size + _SUM.size
ENTRY, PRODUCER = 0, 1
ABSENT = (1 << 64) - 1
"""The offset of an entry that cannot be read any more."""
ID_MAX = 1 << 63
SECTOR_BYTES = 512
"""A disk writes so many bytes as a whole."""
ZEROS = bytes(SECTOR_BYTES)
"""Behind an entry that ends like this, its producer is named once more, with the same numbers: then
a segment does not end in zeros, unless a write was cut off.
"""
GAP_ENTRIES_MAX = 1_000_000
_INDEX = struct.Struct(">IQQQI")
"""Checksum of what follows, first entry id, entries, bytes of the segment, bytes of producers."""
_MAGIC_BYTES = MAGIC.to_bytes(2, "big")


class _Head(NamedTuple):
    """The header of a record."""

    magic: int
    kind: int
    length: int
    """Bytes of what follows."""
    checksum: int
    """Of what follows."""
    messages: int
    entry_id: int
    time_ms: int
    """When to deliver the entry; of a producer, the publish time of its last message."""
    sequence_id: int
    producer: int
    """The producer's number in the segment."""


def record(
    kind: int,
    data: bytes,
    *,
    entry_id: int = 0,
    messages: int = 0,
    deliver_at_ms: int = 0,
    sequence_id: int = -1,
    producer: int = 0,
) -> bytes:
    """The header of a record; `data` follows it."""
    head = _HEAD.pack(
        MAGIC,
        kind,
        len(data),
        crc32c(data),
        messages,
        entry_id,
        deliver_at_ms,
        sequence_id,
        producer,
    )
    return head + _SUM.pack(crc32c(head))


class Sent(NamedTuple):
    """What is known of a producer's last message."""

    sequence_id: int = -1
    published_ms: int = 0
    """No message of the producer has a later publish time; `ANY_TIME`: that is not known."""


ANY_TIME = (1 << 63) - 1


def latest(known_ms: int, published_ms: int) -> int:
    """The publish time of the latest message, of those before and one more."""
    return published_ms if known_ms == ANY_TIME else max(known_ms, published_ms)


@dataclass(slots=True)
class SegmentIndex:
    """The places of a segment's entries. It takes 16 bytes of memory for each entry."""

    run: int
    """Which opening of the topic wrote it."""
    first_id: int
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    """Where the record of each entry begins; `ABSENT` where it cannot be read."""
    messages: array[int] = field(default_factory=lambda: array("Q"))
    """How many messages the entries of the segment up to each one hold."""
    size: int = 0
    """Bytes of all records."""
    producers: dict[str, Sent] = field(default_factory=dict)
    """Producer → its last message at the end of the segment, in order of first appearance."""

    @property
    def end_id(self) -> int:
        """The id after the last entry."""
        return self.first_id + len(self.offsets)

    def messages_before(self, entry_id: int) -> int:
        """The number of messages in the segment's entries below `entry_id`."""
        at = min(entry_id - self.first_id, len(self.messages)) - 1
        return self.messages[at] if at >= 0 else 0


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of a segment that cannot be read; `torn`: its end, which was being written."""

    offset: int
    size: int
    torn: bool


def scan(
    data: bytes,
    run: int,
    first_id: int,
    bound: int = ID_MAX,
    *,
    publish_time_of: Callable[[bytes], int] = lambda tail: ANY_TIME,
) -> tuple[SegmentIndex, list[Damage]]:
    """Find the entries of a segment, and the last messages of its producers, up to the entry
    `bound`. `publish_time_of`: that of a message.

    What is damaged is passed over, up to the next record that is whole. While a record's header is
    whole, nothing in it is taken for a record: a client wrote that.
    """
    index, damages, at = SegmentIndex(run, first_id), list[Damage](), 0
    names: dict[int, str] = {}
    last: dict[str, tuple[int, int, int]] = {}
    while at < len(data):
        head = _whole(data, at, index)
        if head is None:
            damaged_head = _head(data, at)
            behind = at + HEADER_BYTES + (0 if damaged_head is None else damaged_head.length)
            resumed_at = _next_whole(data, at + 1 if damaged_head is None else behind, index)
            torn = resumed_at == len(data) and is_torn(data, at, behind)
            damages.append(Damage(at, resumed_at - at, torn=torn))
            if not torn and damaged_head is not None and damaged_head.kind == ENTRY:
                _pass_over(
                    index, min(damaged_head.entry_id + 1, bound)
                )  # a consumer may have it: keep its id
            at = resumed_at
            continue
        _, kind, length, _, messages, entry_id, time_ms, sequence_id, producer = head
        if kind == ENTRY and entry_id >= bound:
            break
        end = at + HEADER_BYTES + length
        if kind == PRODUCER:
            names[producer] = data[at + HEADER_BYTES : end].decode("utf-8", "replace")
            index.producers[names[producer]] = Sent(sequence_id, time_ms or ANY_TIME)
        else:
            _pass_over(index, entry_id)
            index.offsets.append(at)
            index.messages.append((index.messages[-1] if index.messages else 0) + messages)
            if producer in names:
                last[names[producer]] = sequence_id, at + HEADER_BYTES, end
        at = index.size = end
    for name, (sequence_id, begin, end) in last.items():
        time_ms = publish_time_of(data[begin:end]) or ANY_TIME
        time_ms = latest(index.producers[name].published_ms, time_ms)
        index.producers[name] = Sent(sequence_id, time_ms)
    return index, damages


def _pass_over(index: SegmentIndex, entry_id: int) -> None:
    """Mark the missing entries below this one: they cannot be read any more."""
    before = index.messages[-1] if index.messages else 0
    if entry_id - index.end_id <= GAP_ENTRIES_MAX:
        for _ in range(entry_id - index.end_id):
            index.offsets.append(ABSENT)
            index.messages.append(before)


def is_torn(data: bytes, at: int, end: int) -> bool:
    """True if the last record of some data, which is to reach from `at` to `end`, was being
    written: it is shorter, or ends in zeros, which a file system may leave. If it is complete,
    with a wrong checksum, somebody may have been told that it is stored.
    """
    return end > len(data) or not any(data[max(at, len(data) - SECTOR_BYTES) :])


def is_one_record(data: bytes) -> bool:
    """True if some records are a single one."""
    head = _head(data, 0)
    return head is not None and HEADER_BYTES + head.length == len(data)


def is_in_one_sector(offset: int, size: int) -> bool:
    """True if a disk writes these bytes of a file all at once."""
    return offset // SECTOR_BYTES == (offset + size - 1) // SECTOR_BYTES


def _head(data: bytes, at: int) -> _Head | None:
    """The header that begins there; None unless it is whole."""
    if at + HEADER_BYTES > len(data) or data[at : at + 2] != _MAGIC_BYTES:
        return None
    if _SUM.unpack_from(data, at + _HEAD.size)[0] != crc32c(memoryview(data)[at : at + _HEAD.size]):
        return None
    return _Head._make(_HEAD.unpack_from(data, at))


def _whole(data: bytes, at: int, index: SegmentIndex) -> _Head | None:
    """The header of the record that begins there; None unless the record is whole."""
    head = _head(data, at)
    if head is None:
        return None
    gap = head.entry_id - index.end_id
    if head.kind > PRODUCER or (head.kind == ENTRY and not 0 <= gap <= GAP_ENTRIES_MAX):
        return None
    body = at + HEADER_BYTES
    end = body + head.length
    return (
        head if end <= len(data) and crc32c(memoryview(data)[body:end]) == head.checksum else None
    )


def _next_whole(data: bytes, at: int, index: SegmentIndex) -> int:
    """The position of the next whole record; the end of the data without one."""
    while (at := data.find(_MAGIC_BYTES, at)) >= 0:
        if _whole(data, at, index) is not None:
            return at
        at += 1
    return len(data)


def entries_in(data: bytes) -> Iterator[Entry]:
    """The entries of consecutive records, up to the first that is cut off.

    Raises `CorruptDataError` for a record whose checksum is wrong.
    """
    at = 0
    while at + HEADER_BYTES <= len(data):
        magic, kind, length, checksum, messages, entry_id, deliver_at_ms, _, _ = _HEAD.unpack_from(
            data, at
        )
        body = at + HEADER_BYTES
        head_sum = _SUM.unpack_from(data, at + _HEAD.size)[0]
        if magic != MAGIC or head_sum != crc32c(data[at : at + _HEAD.size]):
            raise CorruptDataError("the header of a record is damaged")
        if body + length > len(data):
            return
        tail = data[body : body + length]
        if crc32c(tail) != checksum:
            raise CorruptDataError(f"entry {entry_id} is damaged")
        if kind == ENTRY:
            yield Entry(entry_id, tail, messages, 0, 0, deliver_at_ms)
        at = body + length


def tail_start_in(data: bytes, entry_id: int) -> bytes | None:
    """Return as much of an entry's tail as the beginning of its record has; None when it is not
    the record of that entry. The tail's checksum is not looked at.
    """
    head = _head(data, 0)
    if head is None or (head.kind, head.entry_id) != (ENTRY, entry_id):
        return None
    return data[HEADER_BYTES : HEADER_BYTES + head.length]


def write_index(index: SegmentIndex) -> bytes:
    """A finished segment's index as bytes: reading it replaces a scan."""
    ids = {name: sent.sequence_id for name, sent in index.producers.items()}
    times = {name: sent.published_ms for name, sent in index.producers.items()}
    producers = json.dumps(ids).encode()
    numbers = b"".join(_little(values).tobytes() for values in (index.offsets, index.messages))
    head = _INDEX.pack(0, index.first_id, len(index.offsets), index.size, len(producers))[4:]
    body = head + producers + numbers + json.dumps(times).encode()
    return _SUM.pack(crc32c(body)) + body


def read_index(data: bytes, run: int) -> SegmentIndex | None:
    """The inverse of `write_index`; None when it is damaged."""
    if len(data) < _INDEX.size or crc32c(data[4:]) != _SUM.unpack_from(data)[0]:
        return None
    _, first_id, entries, size, named = _INDEX.unpack_from(data)
    at = _INDEX.size + named
    end = at + 16 * entries
    if len(data) < end:
        return None
    offsets, messages = array("Q"), array("Q")
    offsets.frombytes(data[at : at + 8 * entries])
    messages.frombytes(data[at + 8 * entries : end])
    times = json.loads(data[end:] or b"{}")  # an index of version 0.3.0 has none
    producers = {
        name: Sent(sequence_id, times.get(name, ANY_TIME))
        for name, sequence_id in json.loads(data[_INDEX.size : at]).items()
    }
    return SegmentIndex(run, first_id, _little(offsets), _little(messages), size, producers)


def _little(values: array[int]) -> array[int]:
    """Numbers of this machine as little-endian ones, and back."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values


def total(indexes: Iterable[SegmentIndex]) -> int:
    """Bytes of some segments."""
    return sum(index.size for index in indexes)
