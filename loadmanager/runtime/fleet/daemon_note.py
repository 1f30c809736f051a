"""Keeps for the next daemon what this one did lately, and recalls what the last one did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from loadmanager.core.errors import LoadManagerError, OperationalError
from loadmanager.core.reason import Reason
from loadmanager.ports.note import Note
from loadmanager.runtime.fleet.acting import Acting
from loadmanager.runtime.tasks import Scope, Steps

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

    note: Callable[[], Note]
    acting: Acting
    unwritten: Unwritten
    scope: Scope
    steps: Steps
    timeout_s: float = TIMEOUT_S
    _was_read: bool = False
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        """Count what an earlier term could not write, whatever the note says."""
        self.acting.on_note.append(self._write_soon)
        if self.unwritten.value is not None:
            self.acting.recall(self.unwritten.value)

    def _write_soon(self, acted: bytes) -> None:
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
            problem = f"{self.note().name}: no answer within {self.timeout_s:g} s"
        if self._was_read:
            text = f"the next daemon would not know of these moves: {problem}"
            why = Reason("NotKept", text)
        else:
            why = Reason("NotRead", f"what was done lately is not known: {problem}")
        self.acting.note_problem = why
        raise OperationalError(str(why))

    async def _read(self) -> None:
        if self._was_read:
            return
        kept = await self.note().read()
        self._was_read = True
        self.acting.recall(kept)
        if self.unwritten.value is not None or (kept and self.acting.steers()):
            self.acting.write_note()  # both in one, without times of a clock that was ahead

    async def _write(self) -> None:
        acted = self.unwritten.value
        if acted is not None:
            await self.note().write(acted)
            if self.unwritten.value is acted:
                self.unwritten.value = None
        self.acting.note_problem = None
