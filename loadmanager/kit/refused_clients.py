"""Clients that are refused: counted, and logged one line at a time, whatever they send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from loadmanager.kit.logger import get_logger
from loadmanager.kit.telemetry import Sample, counter

INTERVAL_S = 10.0
"""At most one line in this time; the next one says how many it stands for."""
REASON_MAX = 200

NOT_AUTHENTICATED = counter(
    "loadmanager_authentication_failures",
    "Connections (over=binary) and requests (over=http) of clients that did not prove who they are",
    "over",
)
FORBIDDEN = counter(
    "loadmanager_authorization_failures",
    "Commands (over=binary) and requests (over=http) of clients that were not permitted",
    "over",
)

log = get_logger("access")


@dataclass(slots=True)
class ClientRefusals:
    """Tells of clients that do not prove who they are, or ask for what they may not do."""

    over: str
    """What they came by: `binary`, Pulsar's protocol, or `http`."""
    _not_authenticated: int = 0
    _forbidden: int = 0
    _next_s: float = float("-inf")
    _untold: int = 0

    def not_authenticated(self, address: str, reason: str) -> None:
        """A client at this address did not prove who it is. Called on the loop."""
        self._not_authenticated += 1
        self._tell(address, reason)

    def forbidden(self, address: str, reason: str) -> None:
        """A client at this address asked for what it may not do. Called on the loop."""
        self._forbidden += 1
        self._tell(address, reason)

    def samples(self) -> Iterator[Sample]:
        """The numbers of refusals since the start."""
        yield NOT_AUTHENTICATED.sample(self._not_authenticated, self.over)
        yield FORBIDDEN.sample(self._forbidden, self.over)

    def _tell(self, address: str, reason: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_s:
            self._untold += 1
            return
        log.warning(
            "a client is refused",
            over=self.over,
            address=address,
            reason=reason[:REASON_MAX],
            more_since_the_last_line=self._untold,
        )
        self._next_s, self._untold = now_s + INTERVAL_S, 0
