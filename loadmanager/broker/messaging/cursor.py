"""The stored form of a durable subscription's acknowledgements.

The JSON has Pulsar's ideas: a mark below which all is acknowledged, ranges above it, and the batch
indexes of entries that are acknowledged in part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from loadmanager.kit.errors import CorruptDataError

ID_MAX = 1 << 62
CURSOR_BYTES_MAX = 500_000
"""A node of the metadata store holds twice as much."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """`ranges`: first and last id, rising and apart; `ack_sets`: entry id → bit words, whose 1s are
    not acknowledged.
    """

    mark: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    ack_sets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    whole: bool = field(default=True, compare=False)
    """Whether it has everything that is acknowledged."""

    @property
    def end_id(self) -> int:
        """All ids that it knows of are below this one."""
        last = self.ranges[-1][1] if self.ranges else -1
        return max(self.mark, last + 1, max(self.ack_sets, default=-1) + 1)


def write_cursor(cursor: Cursor) -> tuple[bytes, bool]:
    """A cursor as at most `CURSOR_BYTES_MAX` bytes, and whether it has everything that is
    acknowledged. Ranges are left out from the highest on, batches from those that changed last.
    """
    room = CURSOR_BYTES_MAX - 100
    spans = (f"[{first},{last}]" for first, last in cursor.ranges)
    ranges, room = _that_fit(spans, room)
    sets = (f'"{entry}":[{",".join(map(str, words))}]' for entry, words in cursor.ack_sets.items())
    ack_sets, room = _that_fit(sets, room)
    parts = [f'"mark":{cursor.mark}']
    if ranges:
        parts.append(f'"ranges":[{",".join(ranges)}]')
    if ack_sets:
        parts.append(f'"ackSets":{{{",".join(ack_sets)}}}')
    left_out = len(ranges) < len(cursor.ranges) or len(ack_sets) < len(cursor.ack_sets)
    return f"{{{','.join(parts)}}}".encode(), cursor.whole and not left_out


def _that_fit(texts: Iterable[str], room: int) -> tuple[list[str], int]:
    """The first texts for which there is room, with a comma each, and the room that is left."""
    fitting: list[str] = []
    for text in texts:
        room -= len(text) + 1
        if room < 0:
            return fitting, 0
        fitting.append(text)
    return fitting, room


def read_cursor(value: bytes, where: str) -> Cursor:
    """The inverse of `write_cursor`; that of an empty value is at the beginning.

    Raises `CorruptDataError`.
    """
    if not value:
        return Cursor()
    try:
        document = json.loads(value)
        cursor = Cursor(
            document["mark"],
            tuple((first, last) for first, last in document.get("ranges", [])),
            {int(entry): tuple(words) for entry, words in document.get("ackSets", {}).items()},
        )
        edges = [cursor.mark, *(edge for span in cursor.ranges for edge in span), ID_MAX]
        words = [word for ack_set in cursor.ack_sets.values() for word in ack_set]
        if edges != sorted(edges) or edges[0] < 0:
            raise ValueError("its ranges are not in order")
        if not all(type(number) is int for number in (*edges, *words)):
            raise ValueError("it has something else than whole numbers")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptDataError(f"{where} is not a cursor: {error}") from None
    return cursor
