"""Reads the entries of one stored topic that the cache lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from loadmanager.broker.messaging.log import Entry
from loadmanager.broker.messaging.segments import (
    HEADER_BYTES,
    SegmentIndex,
    entries_in,
    tail_start_in,
)
from loadmanager.broker.messaging.stored_log import StoredLog
from loadmanager.broker.ports.log import Storage
from loadmanager.broker.wire.frames import TAIL_START_BYTES
from loadmanager.kit.errors import CorruptDataError, LoadManagerError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import TopicName

RETRY_S = 1.0

log = get_logger("storage")


class EntryReader:
    """Reads for consumers, one read at a time, and for whoever else needs an entry. `run` starts a
    task; `arrived` is called when consumers may have something to get.
    """

    def __init__(
        self,
        topic: TopicName,
        opened: StoredLog,
        *,
        log_id: int,
        storage: Storage,
        run: Callable[[Callable[[], Coroutine[Any, Any, None]], str], object],
        arrived: Callable[[], None],
    ) -> None:
        self._topic = topic
        self._log = opened
        self._log_id = log_id
        self._storage = storage
        self._run = run
        self._arrived = arrived
        self._wanted: dict[int, None] = {}
        self._loading = False
        self.closed = False
        opened.request = self.want

    def want(self, entry_id: int) -> None:
        """Read an entry, and those behind it, then deliver."""
        self._wanted[entry_id] = None
        if not self._loading and not self.closed:
            self._loading = True
            self._run(self._load, "read")

    async def _load(self) -> None:
        try:
            while self._wanted and not self.closed:
                entry_id = next(iter(self._wanted))
                del self._wanted[entry_id]
                try:
                    await self.fetch(entry_id)
                except LoadManagerError as error:
                    log.warning(
                        "reading failed; it is tried again",
                        topic=str(self._topic),
                        error=str(error),
                    )
                    await asyncio.sleep(RETRY_S)
                self._arrived()
        finally:
            self._loading = False

    async def fetch(self, entry_id: int) -> Entry | None:
        """An entry from the cache or the storage; None if there is none.

        One that is damaged, also after the storage has mended what it can, is logged, and does not
        exist from then on.
        """
        entry, problem = await self._read(entry_id)
        if problem and await self._storage.mend(self._log_id):
            entry, problem = await self._read(entry_id)
        place = self._log.place(entry_id)
        if problem and place is not None:
            log.error(
                "a stored message is lost; the others are served",
                topic=str(self._topic),
                entry=entry_id,
                segment=place.segment.first_id,
                run=place.segment.run,
                offset=place.offset,
                problem=problem,
            )
            self._log.quarantine(entry_id)
            self._storage.lost += 1
        return entry

    async def _read(self, entry_id: int) -> tuple[Entry | None, str]:
        """An entry, if there is one; and why it cannot be read, or nothing."""
        place = self._log.place(entry_id)
        cached = self._log.get(entry_id)
        if cached is not None or place is None:
            return cached, ""
        data = await self._storage.read(self._log_id, place.segment, place.offset, place.size)
        if not data:
            self._lose(place.segment)
            return None, ""
        entries, problem = list[Entry](), "it is not there"
        try:
            entries += entries_in(data)
        except CorruptDataError as error:
            problem = str(error)
        self._log.accept(entries)
        if entries and entries[0].entry_id == entry_id:
            return entries[0], ""
        return None, problem

    async def some(self, entry_id: int) -> list[Entry]:
        """An entry and those behind it that one read gets; none if it cannot be read. They do not
        go into the cache.
        """
        place = self._log.place(entry_id)
        if place is None:
            return []
        data = await self._storage.read(self._log_id, place.segment, place.offset, place.size)
        entries = list[Entry]()
        with suppress(CorruptDataError):
            entries += entries_in(data)
        return entries if entries and entries[0].entry_id == entry_id else []

    def _lose(self, segment: SegmentIndex) -> None:
        """The file of a segment is gone."""
        event = "a file of stored messages is gone; the others are served"
        first, end = segment.first_id, segment.end_id
        log.error(event, topic=str(self._topic), run=segment.run, first=first, last=end - 1)
        for entry_id in range(max(first, self._log.first_id), end):
            self._log.quarantine(entry_id)
        self._storage.lost += 1

    async def tail_start(self, entry_id: int) -> bytes | None:
        """At least `TAIL_START_BYTES` of an entry's tail, or all of it; None if there is none, or
        it is damaged.
        """
        place, cached = self._log.place(entry_id), self._log.get(entry_id)
        if cached is not None or place is None:
            return None if cached is None else cached.tail
        size = min(place.size, HEADER_BYTES + TAIL_START_BYTES)
        data = await self._storage.read(self._log_id, place.segment, place.offset, size)
        return tail_start_in(data, entry_id)
