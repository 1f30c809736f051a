"""Proof without the lease: which stored topics no later opening has fenced.

A commit looks for the marks of later openings after its write, so a receipt needs no lease. Whoever
only reads does not commit; for consumers the marks are looked for from time to time. A look proves
for `LOOK_VALID_S` what it did not find fenced: for so long two brokers may hand out the same
messages, which consumers have to expect anyway. Their acknowledgements count with one: cursors are
saved by compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from loadmanager.broker.messaging.stored_log import StoredLog
from loadmanager.broker.ports.log import FencedError, LogRecord, Storage
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.logger import get_logger

LOOK_INTERVAL_S = 1.0
LOOK_VALID_S = 2.0
"""So long after a look began messages are delivered without the lease."""

log = get_logger("storage")


class Opened(Protocol):
    """An open topic; see `storing.StoredTopic`."""

    log: StoredLog
    record: LogRecord
    closed: bool

    def failed(self, error: LoadManagerError) -> None:
        """It must be closed."""
        ...


class LogProof:
    """Looks after the topics that are open. `deliver` is called when they may be delivered from."""

    def __init__(self, storage: Storage, clock: Clock, deliver: Callable[[], None]) -> None:
        self.opened: dict[Opened, None] = {}
        self._storage = storage
        self._clock = clock
        self._deliver = deliver
        self._looked_s = float("-inf")
        """When the last look began."""
        self._failed = False

    def holds(self, now_s: float) -> bool:
        """True if the storage has just told which topics are still this broker's."""
        return now_s - self._looked_s <= LOOK_VALID_S

    async def look(self) -> None:
        """Close the topics that later openings have fenced, and deliver from the others."""
        began_s, topics = self._clock.monotonic_s(), list(self.opened)
        try:
            ended = await self._storage.look(
                {topic.record.log_id: topic.log.run for topic in topics}
            )
        except LoadManagerError as error:
            self._looked_s = float("-inf")
            if not self._failed:
                log.warning(
                    "neither ZooKeeper nor the storage proves what this broker owns; messages are "
                    "not delivered until one of them does",
                    error=str(error),
                )
            self._failed = True
            return
        self._failed = False
        for topic in topics:
            if topic.record.log_id in ended and not topic.closed:
                topic.failed(FencedError("another opening of its log has begun"))
        self._looked_s = began_s
        self._deliver()
