"""Keeps for the next daemon what this one did lately, and recalls what the last one did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.steer.ports.note import Note

TIMEOUT_S = 10.0
"""An order waits no longer for the note: its move has a time limit, too."""


@dataclass(slots=True)
class Unwritten:
    """The value that is not in the note yet. It outlives a term, because the next one
    must know it.
    """

    value: bytes | None = None


@dataclass(slots=True, kw_only=True)
class DaemonNote:
    """The note of one daemon. It is read before it is written first, and there is one write at a
    time: an older one never comes after a newer one.
    """

    note: Note
    unwritten: Unwritten
    scope: Scope
    steps: Steps
    on_read: list[Callable[[bytes | None], None]] = field(default_factory=list)
    """Called with what was read, before the first write."""
    problem: Reason | None = None
    """Why the note could not be written, or read; None: it could."""
    timeout_s: float = TIMEOUT_S
    _was_read: bool = False
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def write_soon(self, acted: bytes) -> None:
        """Have the value written soon; if that fails, it is tried again at each reading."""
        self.unwritten.value = acted
        self.scope.spawn(self.steps.run("write-note", self.write), "write-note")

    async def write(self) -> None:
        """Write what is not written yet. Raises `OperationalError` when the note cannot be read or
        written now; cycles move nothing then.
        """
        try:
            async with asyncio.timeout(self.timeout_s), self._one_at_a_time:
                await self._read()
                await self._write()
            return
        except LoadManagerError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"{self.note.name}: no answer within {self.timeout_s:g} s"
        if self._was_read:
            text = f"the next daemon would not know of these moves: {problem}"
            self.problem = Reason("NotKept", text)
        else:
            self.problem = Reason("NotRead", f"what was done lately is not known: {problem}")
        raise OperationalError(str(self.problem))

    async def _read(self) -> None:
        if self._was_read:
            return
        stored = await self.note.read()
        self._was_read = True
        for listener in self.on_read:
            listener(stored)

    async def _write(self) -> None:
        acted = self.unwritten.value
        if acted is not None:
            await self.note.write(acted)
            if self.unwritten.value is acted:
                self.unwritten.value = None
        self.problem = None
