"""The history, to which the runtime adds records."""

from __future__ import annotations

from typing import ClassVar, Protocol


class HistoryRecord(Protocol):
    """One record: a `msgspec.Struct` that is encoded as a line of JSON."""

    kind: ClassVar[str]
    ts: int
    """Milliseconds since the epoch."""


class LoadRecord(HistoryRecord, Protocol):
    """A record of a time that ended at `ts`."""

    interval_ms: int


class History(Protocol):
    """Keeps the records of a broker or a fleet daemon."""

    def append(self, *records: HistoryRecord) -> None:
        """Append records. Never blocks or raises: when it is full, it drops and counts them."""
        ...
