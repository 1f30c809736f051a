"""Limits on the number of connections: of the broker, and of one client address."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Protocol

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.outbound import Outbound
from loadmanager.broker.protocol.unfinished import Unfinished
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import REQUEST_ID_NONE
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.crowd import Crowd
from loadmanager.kit.logger import get_logger

LOG_INTERVAL_S = 10.0
LOOKED_AT_MAX = 64
"""Among so many connections of the greediest address the one that gives way is chosen."""

log = get_logger("protocol")


class Comer(Protocol):
    """A connection."""

    address: str
    peer: str
    roles: tuple[str, ...]
    connected: bool
    last_heard_s: float

    def error(self, request_id: int, code: pb.ServerError.ValueType, text: str) -> None:
        """Queue an ERROR."""
        ...

    def close(self, reason: str) -> None:
        """Write what is queued and hang up."""
        ...


class Admission:
    """Counts connections. `cap` is what the limit of open files allows, 0 for any number.

    When there are too many, the address that has the most gives way: with a connection that has not
    said CONNECT, or has been silent longest. An address that has as many as any other is refused
    another one.
    """

    def __init__(
        self,
        settings: Live[MessagingSettings],
        clock: Clock,
        cap: int,
        refused: Callable[[Comer, pb.ServerError.ValueType, str], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._cap, self._record = cap, refused
        self._crowd: Crowd[Comer, Comer] = Crowd()
        self.refused = 0
        """Connections refused, or closed for others, since start."""
        self._logged_s = float("-inf")
        self.outbound = Outbound(settings)
        """What waits for all clients together."""
        self.unfinished = Unfinished(settings)
        """What has begun to come."""

    def enter(self, connection: Comer) -> None:
        """Count a connection; beyond the limits, tell the client and close it, or the one that
        gives way. Every connection that entered must `leave`, a refused one, too.
        """
        self._crowd.enter(connection.address, connection, connection)
        reason = self._reason(connection.address)
        if reason is None:
            return
        closed = connection
        greediest = self._crowd.greediest()
        if self._full and len(greediest) > len(self._crowd.at(connection.address)):
            closed = min(
                islice(greediest, LOOKED_AT_MAX),
                key=lambda comer: (comer.connected, comer.last_heard_s),
            )
            self.leave(closed)
        self.refused += 1
        now_s = self._clock.monotonic_s()
        if now_s >= self._logged_s + LOG_INTERVAL_S:
            self._logged_s = now_s
            log.warning(
                "connections are refused",
                reason=reason,
                address=closed.address,
                connections=self._crowd.count - 1,
                open_files_allow=self._cap or None,
                refused_since_start=self.refused,
            )
        self._record(closed, pb.NotAllowedError, reason)
        closed.error(REQUEST_ID_NONE, pb.NotAllowedError, reason)
        closed.close(reason)

    def leave(self, connection: Comer) -> None:
        """A connection is gone."""
        self._crowd.leave(connection.address, connection)

    @property
    def _full(self) -> bool:
        most, count = self._settings.value.connections_max, self._crowd.count
        return 0 < most < count or 0 < self._cap < count

    def _reason(self, address: str) -> str | None:
        most = self._settings.value.connections_per_address_max
        if 0 < most < len(self._crowd.at(address)):
            return f"Reached the maximum number of connections on address {address}"
        return "Reached the maximum number of connections" if self._full else None
