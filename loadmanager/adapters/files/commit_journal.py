"""The journal of a storage that writes: one file in which the pieces of many segments become
durable with one `fdatasync`.

Pieces are appended to the journal, which is synced; the segments are written soon after, without a
sync. When a process has ended, its journals are read, and their pieces are written to their places
in the segments once more. A journal is deleted when its segments have been synced.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crc32c import crc32c

MAGIC = 0x4C4A
_HEAD = struct.Struct(">HHII")
"""Magic, pieces, bytes and checksum of what follows."""
_PLACE = struct.Struct(">QIQQI")
"""Log, run, first entry id of the segment, offset in it, length."""
PIECES_MAX = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece of a segment begins."""

    log_id: int
    run: int
    first_id: int
    offset: int

    @property
    def path(self) -> str:
        """The file of the segment."""
        return segment_path(self.log_id, self.run, self.first_id)


def segment_path(log_id: int, run: int, first_id: int) -> str:
    """The file of a segment."""
    return f"{log_id:016x}/{run:08x}-{first_id:016x}.log"


def write_batch(pieces: Iterable[tuple[Place, bytes]]) -> bytes:
    """Pieces as records of a journal, `PIECES_MAX` in each."""
    left, records = list(pieces), list[bytes]()
    while left:
        some, left = left[:PIECES_MAX], left[PIECES_MAX:]
        places = [
            _PLACE.pack(place.log_id, place.run, place.first_id, place.offset, len(data))
            for place, data in some
        ]
        body = b"".join([*places, *(data for _, data in some)])
        records += [_HEAD.pack(MAGIC, len(some), len(body), crc32c(body)), body]
    return b"".join(records)


def read_batches(data: bytes) -> Iterator[tuple[int, list[tuple[Place, bytes]]]]:
    """The records of a journal, each with the offset behind it, up to the first that is torn."""
    at = 0
    while at + _HEAD.size <= len(data):
        magic, pieces, length, checksum = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        body = data[at : at + length]
        if magic != MAGIC or len(body) < length or crc32c(body) != checksum:
            return
        at += length
        yield at, _pieces(body, pieces)


def _pieces(body: bytes, count: int) -> list[tuple[Place, bytes]]:
    found, data_at = [], count * _PLACE.size
    for index in range(count):
        *place, length = _PLACE.unpack_from(body, index * _PLACE.size)
        found.append((Place(*place), body[data_at : data_at + length]))
        data_at += length
    return found
