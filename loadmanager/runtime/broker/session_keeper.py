"""Watches the session: a broker that cannot prove its session stops serving first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from loadmanager.core.errors import OperationalError
from loadmanager.ports.clock import Clock
from loadmanager.ports.hosting import Hosting
from loadmanager.ports.store import SessionState, Store
from loadmanager.runtime.broker.ownership import Ownership
from loadmanager.runtime.tasks import retrying, sleep

CHECK_INTERVAL_S = 0.1
REGISTER_RETRY_S = 1.0

log = structlog.get_logger("session")


class SessionKeeper:
    """Fences everything when the lease runs out, and keeps the broker registered.

    `register` registers the broker in the present session; it returns False if the broker is
    leaving. `on_lost` is called at every fencing.
    """

    def __init__(
        self,
        *,
        store: Store,
        hosting: Hosting,
        ownership: Ownership,
        clock: Clock,
        register: Callable[[], Awaitable[bool]],
        on_lost: Callable[[], None] = lambda: None,
        end_when_lost: bool = False,
    ) -> None:
        self._store = store
        self._hosting = hosting
        self._ownership = ownership
        self._clock = clock
        self._register = register
        self._on_lost = on_lost
        self._reconnected = asyncio.Event()
        self._end_when_lost = end_when_lost
        self._fenced = False
        self.fenced_times = 0

    async def watch_lease(self) -> None:
        """Fence whenever the lease runs out; runs forever.

        `watch_session` fences when the session is lost, which revokes the lease.
        """
        while True:
            left_s = self._store.lease.valid_until_s - self._clock.monotonic_s()
            if left_s > 0:
                self._fenced = False
                await sleep(left_s)
                continue
            if not self._fenced:
                self.fence_unproven()
            await sleep(CHECK_INTERVAL_S)

    def verify_registration(self) -> None:
        """Make `keep_registered` check the registration."""
        self._reconnected.set()

    def fence_unproven(self) -> None:
        """Fence because the lease is not held.

        After a pause the protocol server calls this first, perhaps just before the lease is proven
        again. Even then the host, the bundles and the leadership are fenced together.
        """
        self._fence(
            "the metadata store has not answered for most of the session timeout, or this process "
            "was paused or busy with something else (a slow strategy is logged); the broker serves "
            "again by itself when the store answers"
        )

    async def watch_session(self) -> None:
        """Follow the session: fence when it is lost, verify the registration after each reconnect.

        Raises `OperationalError`, which ends the broker, when the store was closed, or when the
        session is lost and `end_when_lost` is set.
        """
        async for state in self._store.session_states():
            if state is SessionState.LOST:
                self._fence("the session is lost")
                if self._end_when_lost:
                    raise OperationalError(
                        "the session is lost, and zookeeperSessionExpiredPolicy = shutdown"
                    )
            elif state is SessionState.CONNECTED:
                self.verify_registration()
        raise OperationalError("the connection to the metadata store has ended for good")

    async def keep_registered(self) -> None:
        """Register this broker in the present session after each reconnect; runs forever.

        A task of its own, so that `watch_session` notices the next loss while a registration waits.
        """
        again = False
        while True:
            await self._reconnected.wait()
            self._reconnected.clear()
            if await retrying(self._register, "register", max_s=REGISTER_RETRY_S):
                # The first time, the broker says that it is ready.
                (log.info if again else log.debug)(
                    "registered; bundles come with the next lookups",
                    session=f"0x{self._store.session_id:x}",
                )
                again = True

    def _fence(self, reason: str) -> None:
        self._hosting.fence_all()
        lost = self._ownership.lose_all(reason)
        self._on_lost()
        if lost or not self._fenced:
            self.fenced_times += 1
            log.error("stopped serving", reason=reason, bundles=len(lost))
        self._fenced = True
