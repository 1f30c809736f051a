"""Group commit: an answer leaves once everything that it may depend on is on the disk.

Transactions change the tree in memory at once. While the file is written, more of them come and are
written together next. Answers and events wait in the order in which they were made, those of reads,
too: a client never sees what a crash could take back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from loadmanager.kit.clock import Clock
from loadmanager.kit.zookeeper.embedded.client import (
    BACKLOG_BYTES_MAX,
    FOOTPRINT_BYTES,
    HELD_BYTES_MAX,
)
from loadmanager.kit.zookeeper.embedded.file import TreeChanges, TreeFile
from loadmanager.kit.zookeeper.embedded.outgoing import (
    ENTRY_BYTES,
    EventFrames,
    Outgoing,
    SharedEvents,
)
from loadmanager.kit.zookeeper.embedded.sessions import TreeSessions
from loadmanager.kit.zookeeper.embedded.tree import NodeTree

TURN_ANSWERS = 500
"""After so many that have waited, it is the turn of requests."""
TAKER_ANSWERS, TAKER_BYTES = 50, 64 << 10
"""After so many for one taker, it is the turn of another."""
TURN_S = 0.005
"""Requests wait no longer than about this for those that have waited."""


class AnswerTaker(Protocol):
    """Where answers go."""

    waiting: deque[Outgoing]
    """What waits for the disk, or for its turn."""
    waiting_bytes: int
    """How much memory its answers take that wait."""
    event_bytes: int
    """How much memory the events take that wait for it, and perhaps for others."""
    paused: bool
    """True while it does not read what it was sent."""

    def take(self, answer: bytes | None) -> None:
        """Send it. None: there is nothing more; hang up."""
        ...

    def dismiss(self) -> None:
        """It is to be hung up on after what waits for it."""
        ...

    def overflow(self) -> None:
        """There is no room for what it should be sent: hang up at once."""
        ...


@dataclass(slots=True)
class AnswerWaits:
    """How long answers, and lists of events, waited for the disk and for their turn since the
    server started, in seconds.
    """

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
        self._takers: dict[AnswerTaker, None] = {}
        """For whom something waits; first whose turn it is."""
        self._waiting_bytes = 0
        self._wanted = asyncio.Event()
        self._stopped = False
        self.waits = AnswerWaits()
        self.writing_since_s: float | None = None
        """When the write began that goes on, on the monotonic clock."""

    @property
    def waiting(self) -> int:
        """How many answers, and lists of events, wait for the disk or for their turn."""
        return sum(len(taker.waiting) for taker in self._takers)

    def send(self, taker: AnswerTaker, answer: bytes | None) -> None:
        """Hand over an answer, or the end, as soon as it may leave, behind what waits for the same
        taker. Hangs up on one for which too much waits.
        """
        if answer is None:
            taker.dismiss()
        if self._durable_zxid >= self._tree.zxid and not taker.waiting:
            self.waits.add(0.0)
            taker.take(answer)
        else:
            size = ENTRY_BYTES + len(answer or b"")
            self._put(taker, Outgoing(*self._since(), answer, size))

    def send_events(
        self, events: Sequence[tuple[AnswerTaker, EventFrames]], shared_bytes: int
    ) -> None:
        """Hand over what the last transaction did to those who watch. `shared_bytes`: how much
        memory that takes, once for all of them.
        """
        shared = SharedEvents(shared_bytes, len(events))
        self._waiting_bytes += shared_bytes
        for taker, frames in events:
            size = ENTRY_BYTES + frames.size
            outgoing = Outgoing(*self._since(), events=frames, shared=shared, event_bytes=size)
            self._put(taker, outgoing)

    def forget(self, taker: AnswerTaker) -> None:
        """It is gone: nothing waits for it any more."""
        while taker.waiting:
            self._leave(taker, taker.waiting.popleft())
        self._takers.pop(taker, None)

    def _since(self) -> tuple[int, float]:
        return self._tree.zxid, self._clock.monotonic_s()

    def _put(self, taker: AnswerTaker, outgoing: Outgoing) -> None:
        most = FOOTPRINT_BYTES if self._waiting_bytes > HELD_BYTES_MAX else BACKLOG_BYTES_MAX
        full = taker.waiting_bytes + taker.event_bytes > most
        self._count(taker, outgoing, 1)
        if full:
            self._leave(taker, outgoing)
            taker.overflow()
            return
        taker.waiting.append(outgoing)
        self._takers[taker] = None
        self._wanted.set()

    def _count(self, taker: AnswerTaker, outgoing: Outgoing, sign: int) -> None:
        taker.waiting_bytes += sign * outgoing.answer_bytes
        taker.event_bytes += sign * outgoing.event_bytes
        self._waiting_bytes += sign * outgoing.answer_bytes

    def _leave(self, taker: AnswerTaker, outgoing: Outgoing) -> None:
        """It waits no more."""
        self._count(taker, outgoing, -1)
        if outgoing.shared is not None:
            outgoing.shared.clients -= 1
            if not outgoing.shared.clients:
                self._waiting_bytes -= outgoing.shared.size

    def wanted(self) -> None:
        """The tree has changed, or a taker reads again."""
        self._wanted.set()

    def stop(self) -> None:
        """Let `run` end once everything is written."""
        self._stopped = True
        self._wanted.set()

    async def run(self) -> None:
        """Write and deliver, until `stop`. Raises `OperationalError` if the file cannot be written:
        what waits then is never answered.
        """
        writing: asyncio.Future[None] | None = None
        while True:
            if writing is not None and writing.done():
                writing.result()
                writing = None
            more = self._deliver_some()
            if writing is None and self._durable_zxid < self._tree.zxid:
                writing = self._begin_write()
            if more:
                await asyncio.sleep(0)
            elif self._stopped and writing is None:
                return
            else:
                await self._wanted.wait()
                self._wanted.clear()

    def _begin_write(self) -> asyncio.Future[None]:
        zxid = self._tree.zxid
        changes = TreeChanges.of(zxid, self._tree.take_changes(), self._sessions.take_changes())
        self.writing_since_s = self._clock.monotonic_s()
        writing = asyncio.get_running_loop().run_in_executor(None, self._file.write, changes)
        writing.add_done_callback(partial(self._written, zxid))
        return writing

    def _written(self, zxid: int, writing: asyncio.Future[None]) -> None:
        self.writing_since_s = None
        if not writing.cancelled() and writing.exception() is None:
            self._durable_zxid = zxid
        self._wanted.set()

    def _deliver_some(self) -> bool:
        """Send what waits no more for the disk, as much as a turn of the loop permits. False: there
        is nothing more.
        """
        until_s = self._clock.monotonic_s() + TURN_S
        sent, more = 0, False
        for taker in list(self._takers):
            sent += self._deliver_to(taker)
            more = more or self._may_leave(taker)
            if sent >= TURN_ANSWERS or self._clock.monotonic_s() > until_s:
                return True
        return more

    def _may_leave(self, taker: AnswerTaker) -> bool:
        return (
            not taker.paused and bool(taker.waiting) and taker.waiting[0].zxid <= self._durable_zxid
        )

    def _deliver_to(self, taker: AnswerTaker) -> int:
        sent = sent_bytes = 0
        while sent < TAKER_ANSWERS and sent_bytes <= TAKER_BYTES and self._may_leave(taker):
            frame = self._next_frame(taker)
            sent += 1
            sent_bytes += len(frame or b"")
            if frame != b"":
                taker.take(frame)
        if taker in self._takers:
            del self._takers[taker]
            if taker.waiting:  # its next turn is after the others'
                self._takers[taker] = None
        return sent

    def _next_frame(self, taker: AnswerTaker) -> bytes | None:
        """What it is sent next; empty: nothing, yet."""
        first = taker.waiting[0]
        if first.events is not None:
            frame = next(first.events.frames, None)
            if frame is not None:
                return frame
        taker.waiting.popleft()
        self._leave(taker, first)
        self.waits.add(max(self._clock.monotonic_s() - first.since_s, 0.0))
        return first.answer if first.events is None else b""
