"""Group commit: an answer leaves once everything that it may depend on is on the disk.

Transactions change the tree in memory at once. While the file is written, more of them come and are
written together next. Answers and events wait in the order in which they were made, those of reads,
too: a client never sees what a crash could take back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from loadmanager.kit.clock import Clock
from loadmanager.kit.zookeeper.embedded.client import (
    BACKLOG_BYTES_MAX,
    FOOTPRINT_BYTES,
    HELD_BYTES_MAX,
)
from loadmanager.kit.zookeeper.embedded.file import TreeChanges, TreeFile
from loadmanager.kit.zookeeper.embedded.sessions import TreeSessions
from loadmanager.kit.zookeeper.embedded.tree import NodeTree

ENTRY_BYTES = 200
"""About what a waiting answer takes in memory beside its bytes."""
TURN_ANSWERS = 500
"""After so many that have waited, it is the turn of other connections."""


class AnswerTaker(Protocol):
    """Where answers go."""

    waiting_bytes: int
    """How much memory those take that wait for the disk."""

    def take(self, answer: bytes | None) -> None:
        """Send it. None: there is nothing more; hang up."""
        ...

    def overflow(self) -> None:
        """There is no room for what it should be sent: hang up at once."""
        ...


@dataclass(slots=True)
class AnswerWaits:
    """How long answers and events waited for the disk since the server started, in seconds."""

    count: int = 0
    sum_s: float = 0.0
    longest_s: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.sum_s += seconds
        self.longest_s = max(self.longest_s, seconds)


class TreeCommits:
    """Writes a tree and its sessions to a file."""

    def __init__(
        self, tree: NodeTree, sessions: TreeSessions, file: TreeFile, clock: Clock
    ) -> None:
        self._tree = tree
        self._sessions = sessions
        self._file = file
        self._clock = clock
        self._durable_zxid = tree.zxid
        self._waiting: deque[tuple[int, float, AnswerTaker, bytes | None]] = deque()
        self._waiting_bytes = 0
        self._wanted = asyncio.Event()
        self._stopped = False
        self.waits = AnswerWaits()
        self.writing_since_s: float | None = None
        """When the write began that goes on, on the monotonic clock."""

    @property
    def waiting(self) -> int:
        """How many answers and events wait for the disk."""
        return len(self._waiting)

    def send(self, taker: AnswerTaker, answer: bytes | None) -> None:
        """Hand over an answer, or the end, as soon as it may leave, behind what waits for the same
        taker. Hangs up on one for which too much waits.
        """
        if self._durable_zxid >= self._tree.zxid and not taker.waiting_bytes:
            self.waits.add(0.0)
            taker.take(answer)
            return
        if self._is_full_for(taker):
            taker.overflow()
            return
        self._count(taker, answer, 1)
        self._waiting.append((self._tree.zxid, self._clock.monotonic_s(), taker, answer))
        self._wanted.set()

    def _is_full_for(self, taker: AnswerTaker) -> bool:
        most = FOOTPRINT_BYTES if self._waiting_bytes > HELD_BYTES_MAX else BACKLOG_BYTES_MAX
        return taker.waiting_bytes > most

    def _count(self, taker: AnswerTaker, answer: bytes | None, sign: int) -> None:
        size = sign * (ENTRY_BYTES + len(answer or b""))
        taker.waiting_bytes += size
        self._waiting_bytes += size

    def wanted(self) -> None:
        """The tree has changed."""
        self._wanted.set()

    def stop(self) -> None:
        """Let `run` end once everything is written."""
        self._stopped = True
        self._wanted.set()

    async def run(self) -> None:
        """Write, until `stop`. Raises `OperationalError` if the file cannot be written: what waits
        then is never answered.
        """
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._durable_zxid < self._tree.zxid:
                await self._write()
            elif self._stopped:
                return

    async def _write(self) -> None:
        zxid = self._tree.zxid
        changes = TreeChanges.of(zxid, self._tree.take_changes(), self._sessions.take_changes())
        self.writing_since_s = self._clock.monotonic_s()
        try:
            await asyncio.to_thread(self._file.write, changes)
        finally:
            self.writing_since_s = None
        self._durable_zxid = zxid
        self._wanted.set()  # more may have come meanwhile
        await self._deliver()

    async def _deliver(self) -> None:
        """Send what waited for this write, some in each turn of the loop."""
        sent = 0
        while self._waiting and self._waiting[0][0] <= self._durable_zxid:
            _, since_s, taker, answer = self._waiting.popleft()
            self.waits.add(max(self._clock.monotonic_s() - since_s, 0.0))
            self._count(taker, answer, -1)
            taker.take(answer)
            sent += 1
            if sent % TURN_ANSWERS == 0:
                await asyncio.sleep(0)
