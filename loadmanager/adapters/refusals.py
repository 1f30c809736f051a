"""The log of clients that are refused: one line at a time, whatever they send."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

INTERVAL_S = 10.0
"""At most one line in this time; the next one says how many it stands for."""
REASON_MAX = 200

log = structlog.get_logger("access")


@dataclass(slots=True)
class Refusals:
    """Tells of clients that do not prove who they are, or ask for what they may not do."""

    over: str
    """What they came by: Pulsar's protocol, or HTTP."""
    _next_s: float = float("-inf")
    _untold: int = 0

    def tell(self, address: str, reason: str) -> None:
        """A client at this address was refused. Called on the loop."""
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
