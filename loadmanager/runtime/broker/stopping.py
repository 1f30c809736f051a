"""A graceful stop: no new lookups land here, bundles are released a few at once, clients are told, all within a time."""

from __future__ import annotations

import asyncio

import structlog

from loadmanager.core.errors import OperationalError
from loadmanager.ports.clock import Clock
from loadmanager.runtime.broker.ownership import Ownership
from loadmanager.runtime.tasks import sleep

log = structlog.get_logger("stopping")


class Draining:
    """Gives all bundles back."""

    def __init__(self, ownership: Ownership, clock: Clock, *, unload_timeout_s: float, unloads_max: int) -> None:
        self._ownership = ownership
        self._clock = clock
        self._unload_timeout_s = unload_timeout_s
        self._unloads_max = unloads_max

    async def run(self, *, unloads_per_s_max: int = 0) -> None:
        """Release every bundle, at most `unloads_max` at once and, if not 0, `unloads_per_s_max` begun per second (Pulsar's shutdown parameter)."""
        self._ownership.accepting = False
        bundles, started_s = self._ownership.owned(), self._clock.monotonic_s()
        gate = asyncio.Semaphore(self._unloads_max)

        async def release(index: int, bundle: str) -> None:
            if unloads_per_s_max:
                await sleep(index / unloads_per_s_max)
            async with gate:
                try:
                    await self._ownership.release(bundle, reason="broker stops", destination=None, timeout_s=self._unload_timeout_s)
                except OperationalError as error:
                    log.warning("a bundle was not released; its lock goes with the session", bundle=bundle, error=str(error))

        await asyncio.gather(*(release(index, bundle) for index, bundle in enumerate(bundles)))
        log.info("bundles released", bundles=len(bundles), took_s=round(self._clock.monotonic_s() - started_s, 2))
