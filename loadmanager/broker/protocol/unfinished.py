"""Bytes of frames that have begun and not ended, over all connections: each may have as many as the
largest message, all together as many as maxMessagePublishBufferSizeInMB says.
"""

from __future__ import annotations

from typing import Protocol

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.turns import Party
from loadmanager.kit.conf import Live
from loadmanager.kit.logger import get_logger
from loadmanager.kit.units import MIB

log = get_logger("protocol")


class FrameSender(Protocol):
    """A connection."""

    peer: str
    party: Party

    def close(self, reason: str) -> None:
        """Hang up."""
        ...


class Unfinished:
    """Adds them up. When it is too much, the party that holds most gives up the connection whose
    frame began first.
    """

    def __init__(self, settings: Live[MessagingSettings]) -> None:
        self._settings = settings
        self.used_bytes = 0
        self._sizes: dict[FrameSender, int] = {}
        self._bytes_of: dict[Party, int] = {}

    def holds(self, connection: FrameSender, size_bytes: int) -> None:
        """A connection has so many bytes of an unfinished frame now."""
        self._count(connection, size_bytes)
        while 0 < self._settings.value.publish_buffer_mb * MIB < self.used_bytes:
            greediest = max(self._bytes_of, key=lambda party: self._bytes_of[party])
            victim = next(writer for writer in self._sizes if writer.party is greediest)
            log.warning(
                "large messages arrive too slowly: the connection that began one first is closed",
                peer=victim.peer,
                unfinished_bytes=self.used_bytes,
            )
            self._count(victim, 0)
            victim.close("too many bytes of unfinished frames")

    def _count(self, connection: FrameSender, size_bytes: int) -> None:
        before = self._sizes.get(connection, 0)
        if size_bytes:
            self._sizes[connection] = size_bytes
        else:
            self._sizes.pop(connection, None)
        party = connection.party
        self.used_bytes += size_bytes - before
        total = self._bytes_of.get(party, 0) + size_bytes - before
        if total > 0:
            self._bytes_of[party] = total
        else:
            self._bytes_of.pop(party, None)
