"""Watches the session: a broker that cannot prove its session stops serving first.

What the host protects by a fence of its own (`member.ports.hosting.SelfFencing`) goes on while the
session is not known to be over: an election of ZooKeeper stops no stored topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.store import SessionState, Store
from loadmanager.kit.tasks import retrying, sleep
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting, SelfFencing

CHECK_INTERVAL_S = 0.1
LOOK_S = 1.0
"""How often it is looked whether the store answers, while the session is proven."""
SILENT_S = 3.0
"""A store that gives no answer for so long is told to be silent: an election of ZooKeeper's is
mostly over by then.
"""
REGISTER_RETRY_S = 1.0
BY_ITSELF = "the broker serves again by itself when the store answers"
SILENT = f"the metadata store has not answered for most of the session timeout; {BY_ITSELF}"
STOOD = (
    "this process stood still: it was paused, or busy with something else (a slow strategy is "
    f"logged); {BY_ITSELF}"
)

log = get_logger("session")


class SessionKeeper:
    """Fences everything when the session is lost, and when the lease runs out all that has no
    fence of its own; keeps the broker registered.

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
        self.on_unproven: Callable[[], None] = lambda: None
        """Called when the lease has run out, or the session is lost."""
        self.on_proven: Callable[[float, float], None] = lambda _seconds, _unanswered_s: None
        """Called when the lease is held again, with how long it was not, and how long before that
        the last heartbeat was sent that the store answered. Also, with 0 and how long the store was
        silent, when it answers again after `on_silent` and the lease was held all the time.
        """
        self.on_silent: Callable[[float], None] = lambda _silent_s: None
        """Called once the store has given no answer for some seconds, with how long ago its last
        one was. `on_proven` follows, unless this process ends before.
        """
        self._unanswered_since_s: float | None = None
        """Since when this process has seen, while it ran, that there is no answer."""
        self._answered_s: float | None = None
        """When the last answer before the silence was of which `on_silent` has been called."""
        self._ended_s: float | None = None
        """When the lease ended, while it is not held."""
        self._unanswered_s = 0.0
        """How long before its end the last answered heartbeat was sent; 0: there was none."""
        self._fenced = False
        self._unproven_s = float("-inf")
        """The end of the lease for which `fence_unproven` has fenced what has to be."""
        self.unleased_bundles = 0
        """The bundles of which something goes on without the lease."""
        self.fenced_times = 0
        """How often the lease was not held: once until it is held again, though its session be lost
        meanwhile.
        """

    async def watch_lease(self) -> None:
        """Fence whenever the lease runs out; runs forever.

        `watch_session` fences when the session is lost, which revokes the lease.
        """
        while True:
            left_s = self._store.lease.valid_until_s - self._clock.monotonic_s()
            if left_s > 0:
                self._fenced = False
                self._tell_proven()
                self._end_without_lease()
                self._ownership.give_up_interrupted()
                self._tell_silent()
                await sleep(min(left_s, LOOK_S))
                continue
            if self._ended_s is None:
                lease = self._store.lease
                self._ended_s = lease.proven_until_s
                answered_s = lease.answered_s or lease.proven_until_s
                self._unanswered_s = max(0.0, lease.proven_until_s - answered_s)
            if not self._fenced:
                self.fence_unproven()
            self._tell_silent()
            await sleep(CHECK_INTERVAL_S)

    def verify_registration(self) -> None:
        """Make `keep_registered` check the registration."""
        self._reconnected.set()

    def fence_unproven(self) -> None:
        """Fence what only the lease protects, because the lease is not held.

        After a pause the protocol server calls this first, perhaps just before the lease is proven
        again. Even then the host, the bundles and the leadership are fenced together.
        """
        lease = self._store.lease
        proven_s, why = lease.proven_until_s, STOOD if lease.stood_still else SILENT
        if not isinstance(self._hosting, SelfFencing) or self._store.session_id == 0:
            self._fence(why)
        elif self._unproven_s != proven_s:  # else nothing was opened since
            self._unproven_s = proven_s
            self._fence(why, self._hosting.fence_unproven(self._ownership.settled()))

    def _tell_proven(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._ended_s is not None:
            self.on_proven(now_s - self._ended_s, self._unanswered_s)
        elif self._answered_s is not None and not self._store.lease.unanswered:
            self.on_proven(0.0, now_s - self._answered_s)
        else:
            return
        self._ended_s = self._answered_s = None

    def _tell_silent(self) -> None:
        """Tell once that the store is silent: whoever lives no longer when it answers again could
        not tell then. A process that stood still sees the silence later than it began.
        """
        lease, now_s = self._store.lease, self._clock.monotonic_s()
        if not lease.unanswered:
            self._unanswered_since_s = None
            return
        if self._unanswered_since_s is None:
            self._unanswered_since_s = now_s
        silent_s = now_s - lease.answered_s
        was_seen = now_s - self._unanswered_since_s >= LOOK_S
        if self._answered_s is None and lease.answered_s and was_seen and silent_s >= SILENT_S:
            self._answered_s = lease.answered_s
            self.on_silent(silent_s)

    def _end_without_lease(self) -> None:
        if self.unleased_bundles:
            log.info("the session is proven again", bundles=self.unleased_bundles)
            self.unleased_bundles = 0
            self._ownership.verify_all()

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

    def _fence(self, reason: str, settled: Collection[str] = ()) -> None:
        """Fence everything; what is kept is fenced already, as far as it has to be."""
        if not settled:
            self._hosting.fence_all()
        lost = (
            self._ownership.lose_all(reason, settled)
            if settled
            else self._ownership.lose_all(reason)
        )
        self.unleased_bundles = len(settled)
        self._on_lost()
        if settled:
            log.warning(
                "stored topics go on without the lease: their logs tell if another broker opens "
                "them. Nothing is opened, moved or split, and non-persistent topics are closed",
                reason=reason,
                bundles=len(settled),
                lost=len(lost),
            )
        elif lost or not self._fenced:
            log.error("stopped serving", reason=reason, bundles=len(lost))
        if not self._fenced:
            self.on_unproven()
        self.fenced_times += not self._fenced
        self._fenced = True
