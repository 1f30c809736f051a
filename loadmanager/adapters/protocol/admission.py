"""Limits on the number of connections: of the broker, and of one client address."""

from __future__ import annotations

from collections import Counter

import structlog

from loadmanager.adapters.protocol.outbound import Outbound
from loadmanager.core.conf import Live
from loadmanager.core.messaging.settings import MessagingSettings
from loadmanager.ports.clock import Clock

LOG_INTERVAL_S = 10.0

log = structlog.get_logger("protocol")


class Admission:
    """Counts connections. `cap` is what the limit of open files allows, 0 for any number."""

    def __init__(self, settings: Live[MessagingSettings], clock: Clock, cap: int) -> None:
        self._settings = settings
        self._clock = clock
        self._cap = cap
        self._count = 0
        self._at: Counter[str] = Counter()
        self.refused = 0
        """Connections refused since start."""
        self._logged_s = float("-inf")
        self.outbound = Outbound(settings)
        """What waits for all clients together."""

    def enter(self, address: str) -> str | None:
        """Count a connection; returns the reason to refuse it, or None. Every connection that
        entered must `leave`, a refused one, too.
        """
        self._count += 1
        self._at[address] += 1
        reason = self._reason(address)
        if reason is not None:
            self.refused += 1
            now_s = self._clock.monotonic_s()
            if now_s >= self._logged_s + LOG_INTERVAL_S:
                self._logged_s = now_s
                log.warning(
                    "connections are refused",
                    reason=reason,
                    address=address,
                    connections=self._count - 1,
                    open_files_allow=self._cap or None,
                    refused_since_start=self.refused,
                )
        return reason

    def leave(self, address: str) -> None:
        """A connection is gone."""
        self._count -= 1
        self._at[address] -= 1
        if not self._at[address]:
            del self._at[address]

    def _reason(self, address: str) -> str | None:
        settings = self._settings.value
        if 0 < settings.connections_max < self._count or 0 < self._cap < self._count:
            return "Reached the maximum number of connections"
        if 0 < settings.connections_per_address_max < self._at[address]:
            return f"Reached the maximum number of connections on address {address}"
        return None
