"""What a durable subscription has acknowledged, as it is stored.

The JSON has Pulsar's ideas: a mark below which all is acknowledged, ranges above it, and the batch
indexes of entries that are acknowledged in part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from loadmanager.core.errors import CorruptDataError

ID_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class Cursor:
    """`ranges`: first and last id, rising and apart; `ack_sets`: entry id → bit words, whose 1s are
    not acknowledged.
    """

    mark: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    ack_sets: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def end_id(self) -> int:
        """All ids that it knows of are below this one."""
        return max(self.mark, self.ranges[-1][1] + 1 if self.ranges else 0)


def ranges_of(ids: Iterable[int], ranges_max: int) -> tuple[tuple[int, int], ...]:
    """Ids as ranges; of too many, the lowest."""
    ranges: list[tuple[int, int]] = []
    for entry_id in sorted(ids):
        if ranges and ranges[-1][1] + 1 == entry_id:
            ranges[-1] = (ranges[-1][0], entry_id)
        elif len(ranges) == ranges_max:
            break
        else:
            ranges.append((entry_id, entry_id))
    return tuple(ranges)


def write_cursor(cursor: Cursor) -> bytes:
    """A cursor as bytes."""
    value: dict[str, object] = {"mark": cursor.mark}
    if cursor.ranges:
        value["ranges"] = [list(span) for span in cursor.ranges]
    if cursor.ack_sets:
        value["ackSets"] = {str(entry): list(words) for entry, words in cursor.ack_sets.items()}
    return json.dumps(value, separators=(",", ":")).encode()


def read_cursor(value: bytes, where: str) -> Cursor:
    """The inverse of `write_cursor`; that of an empty value is at the beginning.

    Raises `CorruptDataError`.
    """
    if not value:
        return Cursor()
    try:
        found = json.loads(value)
        cursor = Cursor(
            found["mark"],
            tuple((first, last) for first, last in found.get("ranges", [])),
            {int(entry): tuple(words) for entry, words in found.get("ackSets", {}).items()},
        )
        edges = [cursor.mark, *(edge for span in cursor.ranges for edge in span), ID_MAX]
        words = [word for ack_set in cursor.ack_sets.values() for word in ack_set]
        if edges != sorted(edges) or edges[0] < 0:
            raise ValueError("its ranges are not in order")
        if not all(type(number) is int for number in (*edges, *words)):
            raise ValueError("it has something else than whole numbers")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptDataError(f"{where} is no cursor: {error}") from None
    return cursor
