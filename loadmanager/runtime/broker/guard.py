"""The watch over the session: a broker that cannot prove it stops serving before it does anything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from loadmanager.core.errors import OperationalError
from loadmanager.ports.clock import Clock
from loadmanager.ports.hosting import Hosting
from loadmanager.ports.store import SessionState, Store
from loadmanager.runtime.broker.ownership import Ownership
from loadmanager.runtime.tasks import sleep

CHECK_INTERVAL_S = 0.1

log = structlog.get_logger("session")


class SessionGuard:
    """Fences everything when the lease runs out, and registers the broker again in a new session."""

    def __init__(
        self,
        *,
        store: Store,
        hosting: Hosting,
        ownership: Ownership,
        clock: Clock,
        register: Callable[[], Awaitable[None]],
        end_when_lost: bool = False,
    ) -> None:
        self._store = store
        self._hosting = hosting
        self._ownership = ownership
        self._clock = clock
        self._register = register
        self._end_when_lost = end_when_lost
        self._fenced = False
        self.fenced_times = 0

    async def watch_lease(self) -> None:
        """Look at the lease until the end of time; fence when it has run out."""
        while True:
            now_s = self._clock.monotonic_s()
            left_s = self._store.lease.valid_until_s - now_s
            if left_s <= 0 and not self._fenced:
                self._fence("the session can no longer be proven")
            elif left_s > 0:
                self._fenced = False
            await sleep(max(0.001, min(left_s, CHECK_INTERVAL_S)) if left_s > 0 else CHECK_INTERVAL_S)

    async def watch_session(self) -> None:
        """Follow the session's states; a lost session is fenced at once, a new one registers the broker again.

        Raises `OperationalError`, which ends the broker, when no session will follow: the store was closed, or an expired session is to end the process.
        """
        registered_in = self._store.session_id
        async for state in self._store.session_states():
            if state is SessionState.LOST:
                self._fence("the session is lost")
                if self._end_when_lost:
                    raise OperationalError("the session is lost, and zookeeperSessionExpiredPolicy = shutdown")
            elif state is SessionState.CONNECTED and self._store.session_id != registered_in:
                await self._register()
                registered_in = self._store.session_id
                log.info("registered in a new session", session=f"0x{registered_in:x}")
            elif state is SessionState.SUSPENDED:
                log.warning(
                    "the metadata store is unreachable", lease_left_s=round(self._store.lease.valid_until_s - self._clock.monotonic_s(), 2)
                )

        raise OperationalError("the connection to the metadata store has ended for good")

    def _fence(self, reason: str) -> None:
        self._fenced = True
        self.fenced_times += 1
        self._hosting.fence_all()
        lost = self._ownership.lose_all(reason)
        log.error("stopped serving", reason=reason, bundles=len(lost))
