"""The journal of a storage that writes: one file in which the pieces of many segments become
durable with one `fdatasync`.

Pieces are appended to the journal, which is synced; the segments are written soon after, without a
sync. When a process has ended, its journals are read, and their pieces are written to their places
in the segments once more. A journal is deleted when its segments have been synced.

The checksum of a record's header begins with that of the journal's name, which nobody outside
knows: so nothing that a client has sent can be taken for a record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crc32c import crc32c

from loadmanager.broker.messaging.segments import is_torn

MAGIC = 0x4C4B
_MAGIC_BYTES = MAGIC.to_bytes(2, "big")
_HEAD = struct.Struct(">HHII")
"""Magic, pieces, bytes and checksum of the body."""
_SUM = struct.Struct(">I")
"""The checksum of the header."""
HEADER_BYTES = _HEAD.size + _SUM.size
_PLACE = struct.Struct(">QIQQI")
"""Log, run, first entry id of the segment, offset in it, length."""
PIECES_MAX = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a piece in a segment."""

    log_id: int
    run: int
    first_id: int
    offset: int

    @property
    def path(self) -> str:
        """The file of the segment."""
        return segment_path(self.log_id, self.run, self.first_id)


def segment_path(log_id: int, run: int, first_id: int) -> str:
    return f"{log_id:016x}/{run:08x}-{first_id:016x}.log"


def index_path(segment: str) -> str:
    """The index of a segment's file."""
    return f"{segment[: -len('.log')]}.index"


def closed_path(log_id: int, run: int) -> str:
    """The file that tells that a run has left everything."""
    return f"{log_id:016x}/{run:08x}.closed"


def write_batch(name: str, pieces: Iterable[tuple[Place, bytes]]) -> bytes:
    """Pieces as records of the journal of that name, `PIECES_MAX` in each."""
    left, records = list(pieces), list[bytes]()
    salt = crc32c(name.encode())
    while left:
        some, left = left[:PIECES_MAX], left[PIECES_MAX:]
        places = [
            _PLACE.pack(place.log_id, place.run, place.first_id, place.offset, len(data))
            for place, data in some
        ]
        body = b"".join([*places, *(data for _, data in some)])
        head = _HEAD.pack(MAGIC, len(some), len(body), crc32c(body))
        records += [head, _SUM.pack(crc32c(head, salt)), body]
    return b"".join(records)


def is_cut_off(name: str, rest: bytes) -> bool:
    """True if what is behind the last whole record was being written. If it is a complete record
    that is damaged, what is in it may have been acknowledged.
    """
    head, salt, size = rest[: _HEAD.size], crc32c(name.encode()), HEADER_BYTES
    if rest[_HEAD.size : HEADER_BYTES] == _SUM.pack(crc32c(head, salt)):
        size += _HEAD.unpack(head)[2]
    return is_torn(rest, 0, size)


def read_batches(name: str, data: bytes) -> Iterator[tuple[int, int, list[tuple[Place, bytes]]]]:
    """The records of the journal of that name: the offset behind each, how many bytes before it are
    damaged, and its pieces. A torn or damaged end is left out.
    """
    salt, at, end = crc32c(name.encode()), 0, 0
    while (at := data.find(_MAGIC_BYTES, at)) >= 0:
        head = data[at : at + _HEAD.size]
        begin = at + HEADER_BYTES
        if begin > len(data) or _SUM.unpack_from(data, begin - _SUM.size)[0] != crc32c(head, salt):
            at += 1
            continue
        _, pieces, length, checksum = _HEAD.unpack(head)
        body, damaged, at = data[begin : begin + length], at - end, begin + length
        if len(body) == length and crc32c(body) == checksum:
            end = at
            yield end, damaged, _pieces(body, pieces)


def _pieces(body: bytes, count: int) -> list[tuple[Place, bytes]]:
    pieces, data_at = [], count * _PLACE.size
    for index in range(count):
        *place, length = _PLACE.unpack_from(body, index * _PLACE.size)
        pieces.append((Place(*place), body[data_at : data_at + length]))
        data_at += length
    return pieces
