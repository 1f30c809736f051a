"""Whether the storage can be written to, by what commits told; without commits, by trying."""

from __future__ import annotations

from loadmanager.broker.ports.log import StoodStillError, Storage, StorageTimeoutError
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.logger import get_logger

FULL_S = 5.0
"""After the storage refused to write, producers are refused for so long."""
FAILURES_MAX = 3
"""So many failed commits in a row, without one that went well, are more than an accident."""

log = get_logger("storage")


class StorageHealth:
    """Counts the failures of a storage. Failures of one moment are those of one commit."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._failures = 0
        self._failed_s = float("-inf")
        self._hung = self._suspected = False
        self._why = ""
        self._probing = False

    @property
    def full(self) -> bool:
        """True if it refused to write just now."""
        return self._clock.monotonic_s() < self._failed_s + FULL_S

    def failed(self, topic: str, error: LoadManagerError) -> None:
        """It could not be written to; or nobody knows, because this process stood still."""
        if isinstance(error, StoodStillError):
            log.warning("a call of the storage is given up", topic=topic, reason=str(error))
            return
        now_s, first = self._clock.monotonic_s(), self._failures == 0
        self._failures += first or now_s > self._failed_s
        self._failed_s, self._why = now_s, str(error)
        self._hung |= isinstance(error, StorageTimeoutError)
        if first:
            log.error(
                "the storage cannot be written to; the clients of the topics that are written "
                "to are closed, and producers refused",
                topic=topic,
                error=self._why,
            )

    def suspect(self) -> None:
        """A topic could not be opened: its files may be bad, or the storage."""
        self._suspected = True

    def went_well(self) -> None:
        """It was written to."""
        if self._failures:
            self._failures, self._hung = 0, False
            log.info("the storage can be written to again")

    async def trouble(self, *, tries: bool) -> str:
        """Why no topics should be stored through this broker; empty: they may be. A storage that
        nobody writes to, because a commit or an opening failed, is tried; with `tries`, any, and
        one failure counts, also one of just now after which small commits found room.
        """
        looks = self._failures or self._suspected or tries
        if looks and not self.full and not self._probing:
            self._probing, self._suspected = True, False
            try:
                await self._storage.probe()
            except LoadManagerError as error:
                self.failed("", error)
            else:
                self.went_well()
            finally:
                self._probing = False
        bad = self._hung or self._failures >= FAILURES_MAX
        bad |= tries and (self._failures > 0 or self.full)
        return f"its storage cannot be written to: {self._why}" if bad else ""
