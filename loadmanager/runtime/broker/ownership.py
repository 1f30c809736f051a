"""Which bundles this broker owns: acquiring, releasing, splitting and losing them.

Theory of operation. A bundle's owner is whoever holds its lock (`runtime.broker.locks`). Each
acquisition is a *life* with a token of its own. Four rules keep "at most one owner, ever":

1. *Acquire*: the lock first; then the host opens the bundle; only then it is served. A bundle
   that the
   host cannot open is given back.
2. *Release*: the bundle is fenced first (nothing of it is served from that instant), then the
   lock is
   deleted, then the destination acquires it, and only then are clients told where to go: they find
   an
   owner that is ready.
3. *Prove*: a bundle is served only while `Lease.held`; the guard fences everything the moment
   the lease
   runs out, and each server checks the lease itself before it touches bytes, because a paused
   process
   resumes anywhere.
4. *Remember which life*: after every `await` the life that began it may be over (the session
   was lost,
   somebody deleted the lock) and a new one may have begun. What resumes for a life that is over
   does
   nothing; the host ignores calls for another life than the open one.

Steps of a life run to their end even if whoever began them is gone (`Scope.finish`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.core.errors import ConflictError, CorruptDataError, NotFoundError, OperationalError
from loadmanager.core.ownership.states import BundleLife, BundleState, Transition
from loadmanager.ports.clock import Clock
from loadmanager.ports.hosting import BrokerAddress, Hosting
from loadmanager.ports.peers import Peers
from loadmanager.ports.store import (
    Change,
    ChangeKind,
    Delete,
    Operation,
    Store,
    VersionConflictError,
)
from loadmanager.runtime.broker.locks import Locks, Owner, in_session
from loadmanager.runtime.broker.namespaces import SPLIT_ATTEMPTS_MAX, Namespaces
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.documents import Corrupt
from loadmanager.runtime.tasks import Scope, sleep

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 1.0
OPEN_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 60.0
_HOLDING = (BundleState.OPENING, BundleState.OWNED)
"""States in which the lock must be there.

While a bundle is released or split, we delete it ourselves.
"""

T = TypeVar("T")

log = structlog.get_logger("ownership")


class Ownership:
    """The lives of this broker's bundles."""

    def __init__(
        self,
        *,
        store: Store,
        namespaces: Namespaces,
        hosting: Hosting,
        peers: Peers,
        clock: Clock,
        scope: Scope,
        self_address: BrokerAddress,
        observe: Callable[[Transition], None],
        corrupt: Corrupt | None = None,
    ) -> None:
        self._store = store
        self._namespaces = namespaces
        self._hosting = hosting
        self._peers = peers
        self._clock = clock
        self._scope = scope
        self._self = self_address
        self._observe = observe
        self._locks = Locks(store, namespaces, self_address, corrupt or Corrupt())
        self._lives: dict[str, BundleLife] = {}
        """Bundle → its life here. A bundle that is not ours has none."""
        self._unborn: dict[str, BundleLife] = {}
        """Child of a split under way → its parent: nobody here reaches for a lock that comes with
        the split.
        """
        self._touched: set[str] = set()
        """Bundles whose locks changed while the answer that made them ours was on its way."""
        self._acquiring: dict[str, asyncio.Future[None]] = {}
        self._resyncs = 0
        self.splits = 0
        self.accepting = True
        """False once this broker stops: it acquires nothing more."""

    # What is known

    def served(self, bundle: str) -> bool:
        """Whether this broker serves the bundle at this moment: lock held, session proven, not
        being unloaded.
        """
        life = self._lives.get(bundle)
        return life is not None and life.served and self._proven

    @property
    def _proven(self) -> bool:
        return self._store.lease.held(self._clock.monotonic_s())

    def owned(self) -> list[str]:
        """Bundles that this broker serves, sorted."""
        return sorted(bundle for bundle, life in self._lives.items() if life.served)

    @property
    def holds_any(self) -> bool:
        """Whether any bundle is in some state of its life here."""
        return bool(self._lives)

    def state(self, bundle: str) -> BundleState:
        """The bundle's state on this broker."""
        life = self._lives.get(bundle)
        return life.state if life else BundleState.FREE

    def cached_owner(self, bundle: str) -> BrokerAddress | None:
        """The owner, if it is known without asking the store."""
        if self.served(bundle):
            return self._self
        known = self._locks.cached_owner(bundle)
        return known.address if known and known.session_id != self._store.session_id else None

    async def owner(self, bundle: str) -> Owner | None:
        """Who holds the lock; None when nobody does."""
        return await self._locks.owner(bundle)

    # What others do to our locks

    def on_change(self, change: Change) -> None:
        """A watch on the locks reports."""
        self._locks.on_change(change)
        if change.kind is ChangeKind.RESYNC:
            self._resyncs += 1
            self._scope.spawn(self._verify(list(self._lives.values())), "verify-locks")
            return
        bundle = paths.bundle_of_lock(change.path)
        life = None if bundle is None else self._lives.get(bundle)
        if change.kind is ChangeKind.CREATED or bundle is None:
            return
        if life is not None and life.state in _HOLDING:
            self._scope.spawn(self._verify([life]), "verify-lock")
        elif life is not None or bundle in self._unborn:
            self._touched.add(bundle)

    def _begun(self, lives: list[BundleLife]) -> None:
        """The answer says that these locks are ours; somebody may have deleted them while it was on
        its way.
        """
        touched = [life for life in lives if life.bundle in self._touched]
        self._touched.difference_update(life.bundle for life in lives)
        if touched:
            self._scope.spawn(self._verify(touched), "verify-locks")

    def on_boundaries(self, change: Change) -> None:
        """A watch on /admin reports: boundaries may have changed, by another hand
        than a split's.
        """
        if change.kind is ChangeKind.RESYNC:
            namespaces = {split_bundle_name(bundle)[0] for bundle in self._lives}
        elif change.path.startswith(f"{paths.LOCAL_POLICIES}/") and change.path.count("/") == 4:
            namespaces = {change.path[len(paths.LOCAL_POLICIES) + 1 :]}
        else:
            return
        lives = [
            life for life in self._lives.values() if split_bundle_name(life.bundle)[0] in namespaces
        ]
        if lives:
            self._scope.spawn(self._verify_ranges(lives), "verify-ranges")

    async def _verify_ranges(self, lives: list[BundleLife]) -> None:
        """Release the bundles that the boundaries of their namespace do not have any more: others
        may own parts of them.
        """
        for life in lives:
            namespace, bundle_range = split_bundle_name(life.bundle)
            try:
                boundaries = await self._namespaces.bundles(NamespaceName.parse(namespace))
            except (OperationalError, CorruptDataError, NotFoundError):
                # a reconnect verifies anew; corrupt boundaries change nothing; who deletes a
                # namespace unloads it
                continue
            if life.state is BundleState.OWNED and bundle_range not in {
                str(span) for span in boundaries.ranges
            }:
                log.error(
                    "the boundaries of a namespace were changed by hand; a bundle that they "
                    "lack is released",
                    bundle=life.bundle,
                )
                await self._release(life, "boundaries changed by hand", None, CLOSE_TIMEOUT_S, None)

    async def _verify(self, lives: list[BundleLife]) -> None:
        """Give up the bundles whose lock is gone.

        The lock is read first: a notification may be of an earlier life.
        """
        resyncs, wait_s = self._resyncs, RETRY_FIRST_S
        while resyncs == self._resyncs:  # another reconnect begins anew with all
            held = {life.bundle: life for life in lives if life.state in _HOLDING}
            try:
                missing = await self._locks.missing(
                    {bundle: life.token for bundle, life in held.items()}
                )
            except OperationalError:
                await sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
                continue
            for bundle in missing:
                if held[bundle].state in _HOLDING:
                    self._drop(held[bundle], "lock deleted by somebody else")
            return

    def _drop(self, life: BundleLife, reason: str) -> None:
        """Stop serving a bundle whose lock is not ours: whoever creates it next is the owner."""
        log.error(
            "the lock of a bundle is gone; the bundle is no longer served here",
            bundle=life.bundle,
            reason=reason,
        )
        self._hosting.fence_bundle(life.bundle, life.token)
        self._become(life, BundleState.FREE, reason)
        self._scope.spawn(self._close(life, None, CLOSE_TIMEOUT_S), f"close {life.bundle}")

    async def _close(
        self, life: BundleLife, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Have the host tell the clients; returns how many topics were closed.

        A host that fails has at least been fenced.
        """
        try:
            return await self._hosting.close_bundle(
                life.bundle, life.token, destination=destination, timeout_s=timeout_s
            )
        except Exception:  # the host is somebody else's code; the lock is free already
            log.exception("the host failed to close a bundle", bundle=life.bundle)
            return 0

    def lose_all(self, reason: str) -> list[str]:
        """The session is gone or cannot be proven: nothing is ours.

        The server was fenced before; returns what was lost.
        """
        lost = self.owned()
        for life in list(self._lives.values()):
            self._become(life, BundleState.FREE, reason)
        self._locks.forget_all()
        return lost

    # Acquire

    async def acquire(self, bundle: str, reason: str) -> Owner:
        """Own the bundle, or learn who does. Concurrent calls for one bundle share one attempt.

        Raises `OperationalError` while the bundle is being unloaded here, this broker stops, the
        host cannot open the bundle, or the store cannot say.
        """
        pending = self._acquiring.get(bundle)
        if pending is not None:
            await asyncio.shield(pending)
        elif not self.served(bundle):
            await self._scope.finish(self._acquire_once(bundle, reason), f"acquire {bundle}")
        if self.served(bundle):
            return Owner(self._self, self._store.session_id)
        owner = await self.owner(bundle)
        if owner is None or owner.session_id == self._store.session_id:
            raise OperationalError(f"Failed to acquire ownership of {bundle}; look it up again")
        return owner

    async def _acquire_once(self, bundle: str, reason: str) -> None:
        pending = self._acquiring.get(bundle)
        if pending is not None:
            await asyncio.shield(pending)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acquiring[bundle] = future
        try:
            await self._acquire(bundle, reason)
        finally:
            del self._acquiring[bundle]
            future.set_result(None)

    async def _acquire(self, bundle: str, reason: str) -> None:
        namespace, bundle_range = split_bundle_name(bundle)
        boundaries = await self._namespaces.bundles(NamespaceName.parse(namespace))
        boundaries.require(bundle_range)
        if bundle in self._lives or bundle in self._unborn:
            raise OperationalError(f"Namespace bundle {bundle} is being unloaded")
        if not self.accepting or not self._proven:
            raise OperationalError(
                f"Failed to acquire ownership of {bundle}: this broker is stopping or "
                "has no session"
            )
        life, session_id = BundleLife(bundle), self._store.session_id
        self._become(life, BundleState.ASSIGNING, reason)
        try:
            token = await self._locks.take(bundle, boundaries.version)
        except BaseException:
            self._end(life, "the lock could not be taken")
            raise
        if life.over:
            return
        if token is None or session_id != self._store.session_id or not self._proven:
            self._end(
                life,
                "somebody else holds the lock"
                if token is None
                else "the session changed meanwhile",
            )
            return
        life.token, life.session_id = token, session_id
        self._become(life, BundleState.OPENING, reason)
        self._begun([life])
        await self._open(life, reason)

    async def _open(self, life: BundleLife, reason: str) -> None:
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                await self._hosting.open_bundle(life.bundle, life.token)
        except Exception as error:  # noqa: BLE001 - the host is somebody else's code
            await self._not_opened(life, error)
            raise OperationalError(
                f"Failed to acquire ownership of {life.bundle}: it cannot be opened here: {error}"
            ) from None
        if life.over:
            # It was lost while the host opened it. A newer life that the host opened meanwhile is
            # not touched.
            self._hosting.fence_bundle(life.bundle, life.token)
            await self._close(life, None, CLOSE_TIMEOUT_S)
            return
        self._become(life, BundleState.OWNED, reason)

    async def _not_opened(self, life: BundleLife, error: Exception) -> None:
        """The host cannot serve the bundle: give the lock back, so that another broker may."""
        text = str(error) or f"the host took longer than {OPEN_TIMEOUT_S:g} s"
        trace = None if isinstance(error, OperationalError | TimeoutError) else error
        log.error(
            "a bundle cannot be opened here; its lock is given back",
            bundle=life.bundle,
            error=text,
            exc_info=trace,
        )
        if not life.over:
            self._hosting.fence_bundle(life.bundle, life.token)
            self._become(life, BundleState.RELEASING, f"not opened: {text}")
            await self._give_back(life)
            self._end(life, "not opened")
        await self._close(life, None, CLOSE_TIMEOUT_S)

    # Release

    async def release(
        self,
        bundle: str,
        *,
        reason: str,
        destination: BrokerAddress | None,
        timeout_s: float,
        epoch: int | None = None,
    ) -> int | None:
        """Unload a bundle; returns how many topics were closed, or None when the bundle is not
        ours, so that nothing was done.

        A lock of ours that is idle, because the lease ran out and the session did not, is deleted.
        With a destination, that broker is asked to acquire the bundle before clients are told to go
        there. Raises `ConflictError` while the bundle is being opened, split or unloaded here.
        """
        life = self._lives.get(bundle)
        if life is None:
            return await self._scope.finish(
                self._release_idle(bundle, reason), f"release idle {bundle}"
            )
        if life.state is not BundleState.OWNED:
            raise ConflictError(f"{bundle} is in transit here ({life.state.value}); try again")
        return await self._scope.finish(
            self._release(life, reason, destination, timeout_s, epoch), f"release {bundle}"
        )

    async def _release_idle(self, bundle: str, reason: str) -> int | None:
        """Nobody would ever give back a lock that this session holds for a life that is over, and
        that nobody looks up.
        """
        session_id = self._store.session_id
        idle = await self._locks.held_in_session(bundle)
        if (
            not idle
            or session_id != self._store.session_id
            or bundle in self._lives
            or bundle in self._unborn
        ):
            return None
        # while it lasts, nobody here acquires the bundle
        life = BundleLife(bundle, session_id=self._store.session_id)
        self._become(life, BundleState.ASSIGNING, f"idle lock: {reason}")
        await self._give_back(life)
        self._end(life, reason)
        return 0

    async def _release(
        self,
        life: BundleLife,
        reason: str,
        destination: BrokerAddress | None,
        timeout_s: float,
        epoch: int | None,
    ) -> int | None:
        if life.state is not BundleState.OWNED:
            return None  # lost between the order and this task
        started_s = self._clock.monotonic_s()
        self._hosting.fence_bundle(life.bundle, life.token)
        self._become(
            life,
            BundleState.RELEASING,
            reason,
            destination=destination.broker_id if destination else None,
        )
        await self._give_back(life)
        if life.over:
            return None  # the session was lost: everything was fenced and closed
        handed_to = await self._hand_over(life, destination, epoch)
        pause_ms = (self._clock.monotonic_s() - started_s) * 1000
        self._end(
            life, reason, destination=handed_to.broker_id if handed_to else None, pause_ms=pause_ms
        )
        return await self._close(life, handed_to, timeout_s)

    async def _give_back(self, life: BundleLife) -> None:
        """Delete the lock, trying again until that is done or the life is over."""
        wait_s, again = RETRY_FIRST_S, False
        while not life.over:
            try:
                await self._locks.give_back(life.bundle, life.token, life.session_id, again=again)
            except OperationalError as error:
                log.warning(
                    "a lock was not deleted and is tried again",
                    bundle=life.bundle,
                    error=str(error),
                    wait_s=wait_s,
                )
                await sleep(wait_s)
                wait_s, again = min(wait_s * 2, RETRY_MAX_S), True
            else:
                return

    async def _hand_over(
        self, life: BundleLife, destination: BrokerAddress | None, epoch: int | None
    ) -> BrokerAddress | None:
        if destination is None or destination == self._self:
            return None
        try:
            await self._peers.acquire_bundle(destination, life.bundle, epoch=epoch)
        except OperationalError as error:
            log.warning(
                "the destination did not take the bundle; the next lookup places it",
                bundle=life.bundle,
                error=str(error),
            )
            return None
        return destination

    # Split

    async def split(self, bundle: str, cuts: list[int], reason: str) -> list[str]:
        """Replace a bundle of ours by its children, which stay ours; returns their names.

        One transaction: boundaries, the children's locks, the parent's.

        Raises `BadInputError` for impossible cuts, `ConflictError` when the bundle is not (or no
        longer) ours to split.
        """
        life = self._lives.get(bundle)
        if life is None or life.state is not BundleState.OWNED:
            raise ConflictError(
                f"{bundle} is not owned by {self._self.broker_id}, or is being moved"
            )
        return await self._scope.finish(self._split(life, cuts, reason), f"split {bundle}")

    async def _split(self, life: BundleLife, cuts: list[int], reason: str) -> list[str]:
        if life.state is not BundleState.OWNED:
            raise ConflictError(f"{life.bundle} was lost meanwhile")
        namespace, bundle_range = split_bundle_name(life.bundle)
        name = NamespaceName.parse(namespace)
        self._become(life, BundleState.SPLITTING, reason)
        try:
            children, token = await self._commit_split(
                life, name, BundleRange.parse(bundle_range), cuts
            )
        except _LockLostError:
            self._not_split(life)
            raise ConflictError(f"{life.bundle} was lost during the split") from None
        except Exception:
            self._not_split(life)
            raise
        finally:
            self._namespaces.forget(name)
            self._unborn = {
                child: parent for child, parent in self._unborn.items() if parent is not life
            }
        if life.over:
            raise OperationalError(f"{life.bundle}: the session was lost during the split")
        self._hosting.split_bundle(life.bundle, life.token, children, token)
        lives = [BundleLife(child, token, life.session_id) for child in children]
        for child in lives:
            self._become(child, BundleState.OWNED, f"split of {bundle_range}")
        self._begun(lives)
        self._end(life, f"split into {len(children)}")
        self.splits += 1
        return children

    def _not_split(self, life: BundleLife) -> None:
        """The bundle goes on as it was, if its lock is still ours: deletions were not looked at
        during the split.
        """
        if not life.over:
            self._become(life, BundleState.OWNED, "not split")
            self._scope.spawn(self._verify([life]), "verify-lock")

    async def _commit_split(
        self, life: BundleLife, name: NamespaceName, parent: BundleRange, cuts: list[int]
    ) -> tuple[list[str], int]:
        """The children and the token of their locks.

        Raises `_LockLostError` when the parent's lock is not ours any more.
        """
        for attempt in range(SPLIT_ATTEMPTS_MAX):
            self._namespaces.forget(name)
            before = await self._namespaces.bundles(name)
            after = before.split(parent, cuts)
            children = [
                f"{name}/{item}"
                for item in after.ranges
                if item.lower >= parent.lower and item.upper <= parent.upper
            ]
            self._unborn.update(dict.fromkeys(children, life))
            writes = await self._namespaces.split_operations(after)
            locks: list[Operation] = [
                in_session(life.session_id),
                *(self._locks.creation(child) for child in children),
            ]
            try:
                return children, await self._store.commit(
                    [*writes, *locks, Delete(paths.lock(life.bundle))]
                )
            except VersionConflictError:
                if not await self._parent_is_ours(life):
                    raise _LockLostError from None
                self._locks.forget_session()
                with suppress(OperationalError):
                    await self._locks.mark_session()
                if attempt == SPLIT_ATTEMPTS_MAX - 1:
                    raise
                await sleep(RETRY_FIRST_S)
            except OperationalError:
                token = await self._outcome(life, children)
                if token is None:
                    raise
                return children, token
        raise AssertionError("unreachable")

    async def _parent_is_ours(self, life: BundleLife) -> bool:
        return await self._ask(life, lambda: self._locks.holds(life.bundle, life.token))

    async def _outcome(self, life: BundleLife, children: list[str]) -> int | None:
        """Whether a split whose answer was lost took place: the token of the children's locks, or
        None if the parent's lock still stands.

        Raises `_LockLostError` when neither is ours.
        """
        if await self._parent_is_ours(life):
            return None
        node = await self._ask(life, lambda: self._store.get(paths.lock(children[0])))
        if node is None or node.ephemeral_owner != self._store.session_id:
            raise _LockLostError
        return node.created_txid

    async def _ask(self, life: BundleLife, question: Callable[[], Awaitable[T]]) -> T:
        """Ask until the store answers. Raises `_LockLostError` when the life ends meanwhile."""
        wait_s = RETRY_FIRST_S
        while not life.over:
            try:
                return await question()
            except OperationalError:
                await sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
        raise _LockLostError

    # Details

    def _end(
        self,
        life: BundleLife,
        reason: str,
        *,
        destination: str | None = None,
        pause_ms: float | None = None,
    ) -> None:
        """The bundle is not ours any more, unless its life was over already."""
        if not life.over:
            self._become(life, BundleState.FREE, reason, destination=destination, pause_ms=pause_ms)

    def _become(
        self,
        life: BundleLife,
        state: BundleState,
        reason: str,
        *,
        destination: str | None = None,
        pause_ms: float | None = None,
    ) -> None:
        before = life.become(state, reason)
        if life.over:
            if self._lives.get(life.bundle) is life:
                del self._lives[life.bundle]
                self._touched.discard(life.bundle)
        else:
            self._lives[life.bundle] = life
        self._observe(Transition(life.bundle, before, state, reason, destination, pause_ms))


class _LockLostError(Exception):
    """The lock that a step relies on is not ours any more."""
