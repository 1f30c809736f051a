"""Answers and messages that wait in the broker because clients do not read them."""

from __future__ import annotations

from typing import Protocol

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.kit.conf import Live
from loadmanager.kit.logger import get_logger
from loadmanager.kit.units import MIB

SHARE = 4
"""All connections together keep at most this part (1/4) of `topicsMemoryLimitMB`."""
LEFT_PERCENT = 90
"""When that is reached, connections are closed until so much of it is left."""

log = get_logger("protocol")


class Reader(Protocol):
    """A connection."""

    peer: str

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were written to it and that the system has not taken."""
        ...

    def abort(self) -> None:
        """Hang up at once."""
        ...


class Outbound:
    """Adds up what waits for all clients. Those that leave the most unread are closed when it is
    too much. Bytes that clients have read since they were last told something are subtracted late,
    but before anybody is closed.
    """

    def __init__(self, settings: Live[MessagingSettings]) -> None:
        self._settings = settings
        self._waiting: dict[Reader, int] = {}
        self.used_bytes = 0

    @property
    def limit_bytes(self) -> int:
        """The most bytes that may wait for clients of all connections."""
        return self._settings.value.topics_memory_mb * MIB // SHARE

    def written(self, connection: Reader) -> None:
        """Count what was written to a connection; close others if too much waits."""
        self._count(connection)
        if self.used_bytes > self.limit_bytes:
            self._relieve()

    def forget(self, connection: Reader) -> None:
        """A connection is gone."""
        self.used_bytes -= self._waiting.pop(connection, 0)

    def _count(self, connection: Reader) -> None:
        size = connection.waiting_bytes
        self.used_bytes += size - self._waiting.pop(connection, 0)
        if size:
            self._waiting[connection] = size

    def _relieve(self) -> None:
        """Count again, and close the worst while too much waits. Takes time in the number of
        connections, after as many bytes as a tenth of the limit.
        """
        for connection in list(self._waiting):
            self._count(connection)
        left = self.limit_bytes * LEFT_PERCENT // 100
        worst_first = sorted(self._waiting, key=lambda party: self._waiting[party], reverse=True)
        closed = list[Reader]()
        for connection in worst_first:
            if self.used_bytes <= left:
                break
            self.forget(connection)
            connection.abort()
            closed.append(connection)
        if closed:
            log.warning(
                "clients do not read their answers; the connections that leave the most are closed",
                peer=closed[0].peer,
                connections=len(closed),
                limit_bytes=self.limit_bytes,
            )
