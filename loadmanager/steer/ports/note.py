"""A few kilobytes that outlive the process that leads."""

from __future__ import annotations

from typing import Protocol

from loadmanager.kit.errors import OperationalError

NOTE_BYTES_MAX = 900_000


def check_size(name: str, value: bytes) -> None:
    """Raise `OperationalError` for a value that is too long for a note."""
    if len(value) > NOTE_BYTES_MAX:
        raise OperationalError(f"{name}: {len(value)} bytes; at most {NOTE_BYTES_MAX} are kept")


class Note(Protocol):
    """One value. Both raise `OperationalError` when it cannot be read or kept now."""

    @property
    def name(self) -> str:
        """The place of the note, for operators."""
        ...

    async def read(self) -> bytes | None:
        """Read the value; returns None before the first `write`."""
        ...

    async def write(self, value: bytes) -> None:
        """Replace the value; more than `NOTE_BYTES_MAX` bytes are refused."""
        ...
