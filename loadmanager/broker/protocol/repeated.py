"""The ids under which repeated messages are stored.

A client that reconnects repeats what it has no receipt for. What is stored already is not stored
again; its receipt names the entry that has it: one of the newest, whose metadata name its producer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from loadmanager.broker.messaging.log import Entry
from loadmanager.broker.messaging.stored_log import READ_ENTRIES, StoredLog
from loadmanager.broker.wire.frames import FrameError, metadata_of

LOOK_BACK_ENTRIES = 20 * READ_ENTRIES
LOOK_BACK_BYTES = 32 * 1024 * 1024
"""A client has so much under way at most, unless it is configured for more."""

Repeat = tuple[str, int, int]
"""A producer's name, the sequence id of a SEND, and the number of the chunk in its message."""


async def ids_of(
    log: StoredLog, wanted: set[Repeat], read: Callable[[int], Awaitable[Sequence[Entry]]]
) -> dict[Repeat, int]:
    """Entry ids of repeated messages, as far as the newest entries have them. `read` returns some
    consecutive entries from an id on, none if that one cannot be read.
    """
    entry_ids, left = dict[Repeat, int](), set(wanted)
    end_id, size = log.end_id, 0
    last_id = max(end_id - LOOK_BACK_ENTRIES, log.first_id)
    while left and end_id > last_id and size < LOOK_BACK_BYTES:
        begin_id = at = max(end_id - READ_ENTRIES, last_id)
        while left and at < end_id and size < LOOK_BACK_BYTES:
            entries = [entry for entry in await read(at) if entry.entry_id < end_id]
            for entry in entries:
                size += len(entry.tail)
                if (repeat := _repeat_of(entry)) in left:
                    entry_ids[repeat] = entry.entry_id
                    left.discard(repeat)
            at = entries[-1].entry_id + 1 if entries else at + 1
        end_id = begin_id
    return entry_ids


def _repeat_of(entry: Entry) -> Repeat | None:
    try:
        metadata = metadata_of(entry.tail)
    except FrameError:
        return None
    return metadata.producer_name, metadata.sequence_id, metadata.chunk_id
