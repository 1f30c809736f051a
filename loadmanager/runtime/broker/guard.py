"""The watch over the session: a broker that cannot prove it stops serving before it does anything
else.
"""

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


class SessionGuard:
    """Fences everything when the lease runs out, and keeps the broker registered.

    `register` makes sure of the registration in the present session; `on_lost` is told of every
    fencing.
    """

    def __init__(
        self,
        *,
        store: Store,
        hosting: Hosting,
        ownership: Ownership,
        clock: Clock,
        register: Callable[[], Awaitable[None]],
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
        """Wait for the end of the lease, forever; fence when it has run out.

        A lease that is revoked is `watch_session`'s.
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
        """Have `keep_registered` look at the registration."""
        self._reconnected.set()

    def fence_unproven(self) -> None:
        """The lease is not held: fence.

        Whoever serves notices first after a pause, maybe just before the lease is proven again. The
        tenant, the bundles and the leadership must go together all the same.
        """
        self._fence(
            "the metadata store has not answered for most of the session timeout, or this process "
            "was paused; "
            "it serves again by itself when the store answers"
        )

    async def watch_session(self) -> None:
        """Follow the session's states; a lost session is fenced at once, after every reconnect the
        registration is verified.

        Raises `OperationalError`, which ends the broker, when no session will follow: the store was
        closed, or an expired session is to end the process.
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
        """After each reconnect see to it that this broker is registered in the present session,
        forever.

        It runs apart from `watch_session`, so that the next loss is noticed even while a
        registration waits.
        """
        while True:
            await self._reconnected.wait()
            self._reconnected.clear()
            await retrying(self._register, "register", max_s=REGISTER_RETRY_S)
            log.info(
                "registered; bundles come with the next lookups",
                session=f"0x{self._store.session_id:x}",
            )

    def _fence(self, reason: str) -> None:
        self._hosting.fence_all()
        lost = self._ownership.lose_all(reason)
        self._on_lost()
        if lost or not self._fenced:
            self.fenced_times += 1
            log.error("stopped serving", reason=reason, bundles=len(lost))
        self._fenced = True
