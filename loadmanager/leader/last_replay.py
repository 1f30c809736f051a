"""How far off the last replay of a recorded day was, for whoever reads a plan or the headroom.

The nightly analysis measures it (`analyze --replay`), perhaps on another machine; the leader reads
the file that it leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from loadmanager.engine.history import replay_error
from loadmanager.kit.files.small import read_small
from loadmanager.leader.documents.replays import ReplayShown, not_measured

LOOK_S = 600.0
BYTES_MAX = 1 << 16


@dataclass(slots=True)
class LastReplay:
    """Looks at the file now and then."""

    url: Callable[[], str] = str
    """Where it is; empty: nowhere."""
    shown: ReplayShown = field(default_factory=not_measured)

    async def step(self) -> None:
        """`look`, in a thread: a file system may take its time."""
        if url := self.url():
            await asyncio.to_thread(self.look, url)
        else:
            self.shown = not_measured()

    def look(self, url: str) -> None:
        """Read the file. Blocks. Raises `OperationalError` and `CorruptDataError`; what was read
        before stays then.
        """
        data = read_small(url, BYTES_MAX)
        if data is None:
            self.shown = not_measured()
        else:
            self.shown = ReplayShown.of(replay_error.decode(data, url))
