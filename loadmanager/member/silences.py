"""Which brokers the metadata store did not answer, and when. What is away for all is no broker's
fault.

Each broker that had no answer for much of its lease says so in the store, once that answers again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from loadmanager.kit.metadata.lease import Lease

LEASE_LEFT_MAX = 0.6
"""A store is silent when no more than this part of the lease is left: heartbeats extend it eight
times within a session timeout.
"""
CLOCKS_MS = 5_000
"""Clocks of brokers, and when they noticed, may differ by so much."""


@dataclass(frozen=True, slots=True)
class StoreSilence:
    """A time without answers, in ms since the epoch."""

    begin_ms: int
    end_ms: int

    def overlaps(self, other: StoreSilence) -> bool:
        """Whether both are of one outage, as far as clocks can tell."""
        return (
            self.begin_ms - CLOCKS_MS <= other.end_ms and other.begin_ms - CLOCKS_MS <= self.end_ms
        )


@dataclass(slots=True)
class SilenceWatch:
    """Looks at the lease of this broker."""

    lease: Lease
    last: StoreSilence | None = None
    """The last silence, or the one that lasts."""
    lasts: bool = False
    _full_s: float = 0.0
    """The longest that the lease had left at a look."""

    def look(self, now_s: float, now_ms: int) -> None:
        """How much of the lease is left; called at short intervals."""
        left_s = self.lease.valid_until_s - now_s
        self._full_s = max(self._full_s, left_s)
        self.lasts = bool(self._full_s) and left_s <= LEASE_LEFT_MAX * self._full_s
        if not self.lasts:
            return
        if self.last is None or self.last.end_ms < now_ms - 2 * CLOCKS_MS:
            self.last = StoreSilence(now_ms, now_ms)
        self.last = StoreSilence(self.last.begin_ms, now_ms)


def was_away_for_all(
    own: StoreSilence, silences: Mapping[str, StoreSilence], others: Collection[str]
) -> bool:
    """Whether at least half of the others had no answers then, either."""
    silent = [name for name in others if name in silences and own.overlaps(silences[name])]
    return 2 * len(silent) >= len(others)
