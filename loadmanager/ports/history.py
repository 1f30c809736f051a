"""Where the runtime records what happened."""

from __future__ import annotations

from typing import Protocol

from loadmanager.core.history.records import Record


class History(Protocol):
    """A journal."""

    def append(self, *records: Record) -> None:
        """Record. Never blocks and never raises: what cannot be kept is dropped and counted."""
        ...
