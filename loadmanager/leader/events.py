"""Tells those who listen at the leader what happens in the cluster.

Nobody who listens slows the broker: an event is put into a bounded queue for each listener, and a
listener that is too slow is told how many events it has lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.model import encoded
from loadmanager.leader.documents.events import Lost

EVENTS_MAX = 1_000
"""Events that a listener which comes back can have again."""
QUEUE_MAX = 1_000
LISTENERS_MAX = 64


@dataclass(slots=True, eq=False)
class Event:
    """One event. Its JSON is made once, when the first listener gets it."""

    id: str
    kind: str
    details: Callable[[], object] | None
    _json: bytes = b""

    def json(self) -> bytes:
        if self.details is not None:
            self._json, self.details = encoded(self.details()), None
        return self._json


@dataclass(slots=True, eq=False)
class EventQueue:
    """Implements `leader.ports.operating.EventStream`."""

    _queue: deque[Event]
    _lost: int = 0
    _closed: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, event: Event) -> None:
        """Add an event; the oldest ones give way."""
        if len(self._queue) >= QUEUE_MAX:
            self._queue.popleft()
            self._lost += 1
        self._queue.append(event)
        self._wake.set()

    def close(self) -> None:
        """End after the events that wait."""
        self._closed = True
        self._wake.set()

    async def next(self) -> tuple[str, str, bytes] | None:
        """The next event: its id, its kind and its JSON; None when there are no more."""
        while True:
            if self._lost:
                lost, self._lost = self._lost, 0
                return "", "lost", encoded(Lost(lost=lost))
            if self._queue:
                event = self._queue.popleft()
                return event.id, event.kind, event.json()
            if self._closed:
                return None
            self._wake.clear()
            await self._wake.wait()


class EventHub:
    """Implements `leader.ports.operating.Events`: the events of this broker's terms as leader."""

    def __init__(self) -> None:
        self._recent: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._queues: list[EventQueue] = []
        self._number = 0
        self._epoch = 0

    def begin(self, epoch: int) -> None:
        """A term begins: its events have ids of their own."""
        self._recent.clear()
        self._epoch, self._number = epoch, 0

    def publish(self, kind: str, details: Callable[[], object]) -> None:
        """Tell all listeners; `details` is called when the first one gets the event."""
        self._number += 1
        event = Event(f"{self._epoch}-{self._number}", kind, details)
        self._recent.append(event)
        for queue in self._queues:
            queue.put(event)

    def publish_changes(self, changes: Sequence[ChangeShown]) -> None:
        """Tell all listeners of changes."""
        for change in changes:
            self.publish("change", partial(copy, change))

    def listen(self, after: str | None) -> EventQueue:
        """Begin after the event of that id, as far as it is kept; None: now.

        Raises `OperationalError` when there are too many listeners.
        """
        if len(self._queues) >= LISTENERS_MAX:
            raise OperationalError(f"{LISTENERS_MAX} listen already; try again")
        queue = EventQueue(deque())
        if after is not None:
            missed, lost = self._since(after)
            queue = EventQueue(deque(missed), lost)
        self._queues.append(queue)
        return queue

    def _since(self, after: str) -> tuple[list[Event], int]:
        """The events after one, and how many of them are not kept any more.

        All that are kept if it is of another term: what came between is not known.
        """
        epoch, _, number = after.partition("-")
        last_number = (
            int(number) if number.isascii() and number.isdecimal() and len(number) < 18 else 0
        )
        if epoch != str(self._epoch) or last_number > self._number:
            last_number = 0
        missed = self._number - last_number
        return list(islice(self._recent, max(0, len(self._recent) - missed), None)), max(
            0, missed - len(self._recent)
        )

    def leave(self, stream: EventQueue) -> None:
        """Listen no more."""
        if stream in self._queues:
            self._queues.remove(stream)

    def end(self) -> None:
        """The term is over: listeners get what waits for them, and no more."""
        for queue in self._queues:
            queue.close()
        self._queues.clear()
