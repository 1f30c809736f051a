"""The history, to which the runtime adds records."""

from __future__ import annotations

from typing import Protocol

from loadmanager.core.history.records import Record


class History(Protocol):
    """Keeps the records of a broker or a fleet daemon."""

    def append(self, *records: Record) -> None:
        """Append records. Never blocks or raises: when it is full, it drops and counts them."""
        ...
