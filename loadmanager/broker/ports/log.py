"""The storage of durable topics: logs of records that survive the broker which wrote them.

Every opening of a log is a *run* with segments of its own. A run that another one follows is
fenced first: from then on nothing that it writes is acknowledged. Which runs a log has is in the
metadata store (`broker.ports.directory.LogRecord`), and is changed by compare-and-set only.

All methods may raise `OperationalError` when the storage does not answer or is full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadmanager.broker.messaging.segments import SegmentIndex
from loadmanager.broker.messaging.stored_log import Piece
from loadmanager.kit.errors import OperationalError


class FencedError(OperationalError):
    """Another opening of the log has begun: this one's writes are not acknowledged any more."""


class StorageTimeoutError(OperationalError):
    """The storage did not answer in time. What it was asked to do may still happen."""


class StoodStillError(StorageTimeoutError):
    """This process stood still meanwhile, frozen or without a CPU: that says nothing of the
    storage.
    """


Batch = Mapping[int, Sequence[Piece]]
"""Number of a log → what to write to the ends of its segments."""


@dataclass(frozen=True, slots=True)
class Run:
    """One opening of a log, the first entry id that it gave, and the storage that writes it."""

    number: int
    first_id: int
    writer: str
    """See `Storage.writer`."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The record of a log in the metadata store."""

    log_id: int
    """The ledger id of its messages, for good."""
    life: int
    """The token of the bundle's life that opened it last. No earlier life may."""
    first_id: int = 0
    """Entries below are deleted."""
    runs: tuple[Run, ...] = ()
    """The runs that wrote something, and the present one."""
    version: int = -1
    """The version of the record, which every change names; −1: there is no record yet."""


class Sizes(Protocol):
    """Knows how large logs are."""

    async def bytes_of(self, log_ids: Sequence[int]) -> int:
        """The bytes of all segments of these logs, but for what only a journal has so far; none of
        a log that is gone. Serving does not wait for it.
        """
        ...


class Storage(Protocol):
    """Keeps logs, each known by a number. All methods are called on the event loop."""

    sizes: Sizes
    lost: int
    """Stored messages, and files of them, that readers could not read, even after `mend`: they
    count them here.
    """

    @property
    def writer(self) -> str:
        """The name under which this process opens runs, which no other process has or had."""
        ...

    async def open(
        self, log_id: int, runs: Sequence[Run], first_id: int
    ) -> tuple[list[SegmentIndex], int]:
        """Fence the last one of a log's runs, and find what they wrote from `first_id` on; returns
        the segments in order and the id after the last entry. Both are durable then.

        Tails that were being written are left out; damage is logged and counted.
        """
        ...

    async def append(self, batch: Batch) -> set[int]:
        """Write to the ends of segments; when it returns, the data is as durable as the storage is
        configured to make it. One call at a time.

        Returns the logs that another opening has fenced, or whose files somebody deleted or cut:
        what was written to them is not to be acknowledged. After an error all logs of the batch
        must be opened again.
        """
        ...

    async def look(self, runs: Mapping[int, int]) -> set[int]:
        """Which of these logs (number of a log → its run) another opening has fenced, or may have.

        Those that it does not return were this process's when it was called.
        """
        ...

    async def probe(self) -> None:
        """Write something that nobody needs, as a commit does. Raises as a commit does."""
        ...

    async def read(self, log_id: int, segment: SegmentIndex, offset: int, size: int) -> bytes:
        """At most `size` bytes of a segment; none if its file is gone."""
        ...

    async def mend(self, log_id: int) -> bool:
        """Bring what this process has written to a log to its segments once more, as far as it is
        in another place, too. True if there was something to bring: what was read as damaged may be
        whole now.
        """
        ...

    async def trim(self, log_id: int, first_id: int) -> None:
        """Delete the segments that have no entry from `first_id` on."""
        ...

    async def close(self, log_id: int, segments: Sequence[SegmentIndex]) -> None:
        """The log is not written any more; keep the index of the run's last segment for the next
        opening, which is the quicker for it.
        """
        ...

    async def delete(self, log_id: int) -> None:
        """Delete a log with all that it has."""
        ...
