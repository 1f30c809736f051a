"""A few kilobytes that outlive the process that leads."""

from __future__ import annotations

from typing import Protocol

NOTE_BYTES_MAX = 900_000


class Note(Protocol):
    """One value. Both raise `OperationalError` when it cannot be read or kept now."""

    @property
    def name(self) -> str:
        """Where it is, for operators."""
        ...

    async def read(self) -> bytes | None:
        """Read the value; returns None before the first `write`."""
        ...

    async def write(self, value: bytes) -> None:
        """Replace the value; more than `NOTE_BYTES_MAX` bytes are refused."""
        ...
