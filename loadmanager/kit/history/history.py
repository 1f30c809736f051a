"""Implements `kit.history.port.History`: records are encoded at once, kept in a bounded buffer, and
written by a thread soon after.

A write blocks while the disk does, so the event loop never writes. What waits for the disk is in a
spool, which outlives a process that is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.files.worker import Worker
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.layout import cluster_folder, day_of, safe_name
from loadmanager.kit.history.port import HistoryRecord
from loadmanager.kit.history.segment_writer import SegmentWriter
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.history.shipping import Shipper
from loadmanager.kit.history.spool import Spool
from loadmanager.kit.logger import get_logger
from loadmanager.kit.telemetry import Sample, counter, gauge

FLUSH_S = 0.05
"""How often the buffer is written to the disk."""
STAYS_S = 60.0
"""After a failure, it counts as written again once it did not fail for so long."""
CLOSE_S = 10.0
"""How long a stop waits for the disk."""
SHIP_AT_CLOSE_S = 10.0
LOOK_MS = 1000
"""Interval of the check for old segments, which are sealed even if nothing is recorded."""

RECORDS = counter("loadmanager_history_records", "Records written to the history")
DROPPED_RECORDS = counter("loadmanager_history_dropped_records", "Records that could not be kept")
SEALED = counter("loadmanager_history_sealed_segments", "Segments sealed")
DROPPED_SEGMENTS = counter(
    "loadmanager_history_dropped_segments", "Segments deleted to keep within the limit"
)
DROPPED_UNSHIPPED = counter(
    "loadmanager_history_dropped_unshipped_segments",
    "Segments deleted to keep within the limit before they were shipped",
)
SHIPPED = counter("loadmanager_history_shipped_segments", "Segments copied to the URL")
SHIP_FAILURES = counter("loadmanager_history_ship_failures", "Attempts to ship that failed")
SPOOL_ERRORS = counter(
    "loadmanager_history_spool_errors", "Times that the spool could not keep or read records"
)
BYTES = gauge("loadmanager_history_bytes", "Bytes of compressed segments on this disk")

log = get_logger("history")


class FileHistory:
    """The history of one broker.

    Whatever the disk does, the broker goes on: what cannot be written is dropped, counted and
    logged once.
    """

    def __init__(
        self,
        settings: HistorySettings,
        *,
        cluster: str,
        broker: str,
        clock: Clock,
        archive: Archive | None = None,
        close_s: float = CLOSE_S,
    ) -> None:
        """`archive`: it gets all records, too, and begins and ends with this history."""
        self._close_s, self.archive = close_s, archive
        self._disk, self._far = Worker("history"), Worker("ship-history")
        self._settings = settings
        self._clock = clock
        root = Path(settings.directory) / cluster_folder(safe_name(cluster))
        self._spool = Spool(root, broker)
        self._segments = SegmentWriter(
            root,
            broker,
            segment_bytes_max=settings.segment_bytes_max,
            segment_ms_max=settings.segment_minutes_max * 60_000,
            bytes_max=settings.bytes_max,
        )
        self._shipper = Shipper(settings.ship_url) if settings.ship_url else None
        self._encoder = msgspec.json.Encoder()
        self._buffer: dict[tuple[str, str], list[bytes]] = {}
        self._buffered_bytes = 0
        self._looked_ms = 0
        self._failing, self._failed_s = False, 0.0
        """`_failed_s`: when it failed last."""
        self._closed = False
        self._lock = asyncio.Lock()
        self._shipping = asyncio.Lock()
        self.written = 0
        self.dropped = 0
        self.shipped = 0
        self.ship_failures = 0

    def append(self, *records: HistoryRecord) -> None:
        """Keep records for the next write; must not be called after `close`."""
        if self._closed:
            self.dropped += len(records)
            return
        if self.archive is not None:
            self.archive.append(*records)
        for record in records:
            line = self._encoder.encode(record)
            if self._buffered_bytes + len(line) > self._settings.buffer_bytes_max:
                self.dropped += 1
                continue
            self._buffered_bytes += len(line)
            day = day_of(record.ts)
            self._buffer.setdefault((record.kind, day), []).append(line)
            self._spool.append(record.kind, day, line)

    async def start(self) -> None:
        """Seal the segments of an earlier process, and write what is left in its spool."""
        if self.archive is not None:
            self.archive.start()
        try:
            sealed = await self._disk.run(self._recover)
            if sealed:
                log.info("segments of an earlier run sealed", segments=sealed)
        except OSError as error:
            self._failed(error)

    def _recover(self) -> int:
        sealed = self._segments.recover(self._clock.now_ms(), self._spool.left_behind())
        self._spool.forget()
        self._segments.compress(self._clock.now_ms())
        self._segments.retain()
        return sealed

    async def flush(self) -> None:
        """Write the buffer, seal the segments that are due, delete the oldest beyond the limit."""
        now_ms = self._clock.now_ms()
        if not self._buffer and 0 <= now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        async with self._lock:
            buffer, self._buffer, self._buffered_bytes = self._buffer, {}, 0
            self._spool.switch()
            count, before = sum(len(lines) for lines in buffer.values()), self._segments.lines
            try:
                await self._disk.run(lambda: self._write(buffer))
            except OSError as error:
                self._failed(error)
                return
            finally:
                written = self._segments.lines - before
                self.written += written
                self.dropped += count - written
            quiet_s = self._clock.monotonic_s() - self._failed_s
            if self._failing and written and quiet_s >= STAYS_S:
                self._failing = False
                log.info("the history can be written again", dropped=self.dropped)

    def _write(self, batch: dict[tuple[str, str], list[bytes]]) -> None:
        now_ms = self._clock.now_ms()
        try:
            self._segments.write(batch, now_ms)
        finally:
            self._spool.written()
        if self._segments.seal_due(now_ms):
            self._segments.retain()

    def _failed(self, error: OSError) -> None:
        self._failed_s = self._clock.monotonic_s()
        if not self._failing:
            self._failing = True
            log.error(
                "the history cannot be written or compressed",
                directory=self._settings.directory,
                error=str(error),
            )

    async def ship(self) -> None:
        """Copy sealed segments to the URL.

        Raises `OperationalError` when that fails; it is tried again.
        """
        shipper = self._shipper
        if shipper is None:
            return
        async with self._shipping:
            try:
                self.shipped += await self._far.run(lambda: shipper.ship(self._segments))
            except OperationalError:
                self.ship_failures += 1
                raise

    async def close(self) -> None:
        """Write and seal everything, then ship it within `SHIP_AT_CLOSE_S`.

        Waits for the disk no longer than the constructor was told; what the disk has not taken by
        then stays in the spool.
        """
        # First, so that records of the last moments are counted as dropped.
        self._closed = True
        if self.archive is not None:
            await self.archive.close()
        try:
            async with asyncio.timeout(self._close_s):
                await self._write_all()
        except TimeoutError:
            log.error(
                "the disk of the history does not answer; the next start of this broker writes "
                "what is in memory",
                directory=self._settings.directory,
                waited_s=self._close_s,
            )
        else:
            await self._ship_the_rest()
        self._disk.close()
        self._far.close()

    async def _write_all(self) -> None:
        await self.flush()
        async with self._lock:
            try:
                await self._disk.run(self._segments.close)
            except OSError as error:
                self._failed(error)
            self._spool.close()

    async def _ship_the_rest(self) -> None:
        try:
            async with asyncio.timeout(SHIP_AT_CLOSE_S):
                await self.ship()
        except (OperationalError, TimeoutError) as error:
            if self._shipper is not None and isinstance(error, TimeoutError):
                self._shipper.stop()
            log.warning(
                "the last segments were not shipped; the next start of this broker ships them",
                error=str(error),
            )

    def samples(self) -> Iterator[Sample]:
        """The history's metrics."""
        segments = self._segments
        yield RECORDS.sample(self.written)
        yield DROPPED_RECORDS.sample(self.dropped)
        yield SEALED.sample(segments.sealed)
        yield DROPPED_SEGMENTS.sample(segments.dropped)
        yield DROPPED_UNSHIPPED.sample(segments.dropped_unshipped)
        yield SHIPPED.sample(self.shipped)
        yield SHIP_FAILURES.sample(self.ship_failures)
        yield SPOOL_ERRORS.sample(self._spool.errors)
        yield BYTES.sample(segments.bytes_on_disk)
        if self.archive is not None:
            yield from self.archive.samples()
