"""A graceful stop: no new lookups land here, bundles are released a few at once, clients are told,
all within a time.
"""

from __future__ import annotations

import structlog

from loadmanager.core.conf import Live
from loadmanager.core.errors import ConflictError, OperationalError
from loadmanager.ports.clock import Clock
from loadmanager.runtime.broker.ownership import Ownership
from loadmanager.runtime.shared.settings import BrokerSettings
from loadmanager.runtime.tasks import for_each, sleep

POLL_S = 0.05

log = structlog.get_logger("stopping")


class Draining:
    """Gives all bundles back."""

    def __init__(self, ownership: Ownership, clock: Clock, settings: Live[BrokerSettings]) -> None:
        self._ownership = ownership
        self._clock = clock
        self._settings = settings

    async def run(self, *, unloads_per_s_max: int = 0) -> None:
        """Release every bundle, `brokerShutdownMaxConcurrentUnloads` at once.

        `unloads_per_s_max`: how many to begin per second, 0: any number (Pulsar's shutdown
        parameter).
        """
        self._ownership.accepting = False
        started_s, released = self._clock.monotonic_s(), 0
        # also what is being opened, split or moved until that is done
        while self._ownership.holds_any:
            bundles = self._ownership.owned()
            await self._release(bundles, unloads_per_s_max)
            released += len(bundles)
            await sleep(POLL_S)
        log.info(
            "bundles released",
            bundles=released,
            took_s=round(self._clock.monotonic_s() - started_s, 2),
        )

    async def _release(self, bundles: list[str], unloads_per_s_max: int) -> None:
        started_s = self._clock.monotonic_s()

        async def release(numbered: tuple[int, str]) -> None:
            index, bundle = numbered
            if unloads_per_s_max:
                due_s = started_s + index / unloads_per_s_max
                await sleep(max(0.0, due_s - self._clock.monotonic_s()))
            try:
                timeout_s = self._settings.value.bundle_unload_timeout_ms / 1000
                await self._ownership.release(
                    bundle, reason="broker stops", destination=None, timeout_s=timeout_s
                )
            except ConflictError:
                return  # in transit: it is looked at again
            except OperationalError as error:
                log.warning(
                    "a bundle was not released; its lock goes with the session",
                    bundle=bundle,
                    error=str(error),
                )

        at_once_max = self._settings.value.shutdown_unloads_max
        await for_each(list(enumerate(bundles)), release, at_once_max, "release")
