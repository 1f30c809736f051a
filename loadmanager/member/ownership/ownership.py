"""The bundles that this broker owns: acquiring, releasing, splitting and losing them.

Theory of operation. The owner of a bundle is the broker that holds its claim: a lock or a state
record (`claims`). Each acquisition is a *life* with its own token. Four rules ensure
that a bundle never has two owners:

1. *Acquire.* Take the claim; then the host opens the bundle; only then is the bundle served. If the
   host cannot open it, give up the claim.
2. *Release.* Fence the bundle, which stops serving it at once; then have the host leave what the
   next owner needs (`Hosting.settle_bundle`); then give up the claim; then the destination acquires
   the bundle; only then tell the clients where to go. So they find an owner that is ready.
3. *Prove.* Serve a bundle only while `Lease.held`; without it, only what the host has its own fence
   for. The session keeper sees to it when the lease runs out. The protocol server checks the lease,
   too, before it processes received bytes: a paused process may resume at any instruction.
4. *Check the life after every `await`.* Meanwhile the life may have ended, because the session was
   lost or the claim was deleted, and a new life of the bundle may have begun. Code that resumes for
   a life that is over changes nothing, and the host ignores calls for any life but the open one.

Steps such as a release run to their end even if their caller is cancelled (`Scope.finish`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from itertools import pairwise

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.engine.ownership.states import BundleLife, BundleState, LifeCause, Transition
from loadmanager.kit import tracing
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import ConflictError, LoadManagerError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import for_each, retrying, sleep
from loadmanager.member.base import Base
from loadmanager.member.hooks import HookLimits
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.not_opened import Refusals
from loadmanager.member.ownership.claims import RETRY_FIRST_S, RETRY_MAX_S, Claims, Owner
from loadmanager.member.ownership.lives import Lives
from loadmanager.member.ownership.replacing import Reopening, SplitTransaction
from loadmanager.member.ports.hosting import Hosting

CLOSE_TIMEOUT_S = 60.0
GIVEN_UP_AT_ONCE = 16
RELEASE_TIMEOUT_S = 30.0  # beside the time that clients have to leave
OPEN_TIMEOUT_S = HookLimits().open_s
"""How long a destination may take to open a bundle."""
ReplacingBundles = Callable[[Sequence[str], Sequence[str]], AbstractAsyncContextManager[None]]
_HOLDING = (BundleState.OPENING, BundleState.OWNED)
"""States in which the claim must exist. Releases and splits give it up themselves."""

log = get_logger("ownership")


class NotOpenedError(OperationalError):
    """The host cannot open a bundle: another member has to."""


class Ownership:
    """The lives of this broker's bundles. `hosting` neither hangs nor fails where the port says so
    (`member.hooks.Hooks`).
    """

    def __init__(
        self,
        base: Base,
        *,
        namespaces: Namespaces,
        hosting: Hosting,
        claims: Claims,
        refusals: Refusals,
        observe: Callable[[Transition], None],
    ) -> None:
        self._base = base
        self._refusals = refusals
        self._namespaces = namespaces
        self._hosting = hosting
        self._claims = claims
        self._lives = Lives(observe)
        self._split_transaction = SplitTransaction(
            store=base.store,
            namespaces=namespaces,
            hosting=hosting,
            claims=claims,
            lives=self._lives,
            verify=self._spawn_verify,
            reopening=Reopening(closes=lambda: self.replacing is not None, reopen=self._reopen),
        )
        self.replacing: ReplacingBundles | None = None
        """Set for a host that closes bundles which are split or merged, and opens those that
        replace them: entered with both before that begins, left afterwards. It raises
        `OperationalError` to put it off. None: bundles stay open.
        """
        self._acquiring: dict[str, asyncio.Future[None]] = {}
        self._interrupted: set[str] = set()
        """Bundles that were being opened when all lives ended."""
        self._resyncs = 0
        self.accepting = True
        """False once this broker is stopping: it acquires no more bundles."""
        self.on_opened: Callable[[BundleLife], None] = lambda _life: None
        """Called with each life that is served from now on."""

    # State

    def served(self, bundle: str) -> bool:
        """True if this broker serves the bundle now: it is owned, and the session is proven."""
        life = self._lives.get(bundle)
        return life is not None and life.served and self._proven

    def _require_proof(self) -> None:
        if not self._proven:  # what goes on without the lease goes on here
            raise OperationalError(f"{self._base.store.lease.why_not_held}; try again")

    @property
    def _proven(self) -> bool:
        return self._base.store.lease.held(self._base.clock.monotonic_s())

    def owned(self) -> list[str]:
        """Bundles that this broker serves, sorted."""
        return sorted(life.bundle for life in self._lives.all() if life.served)

    @property
    def splits(self) -> int:
        """Number of bundles that this broker split so far."""
        return self._split_transaction.splits

    @property
    def holds_any(self) -> bool:
        """True if this broker owns a bundle, or a bundle is in transit here."""
        return bool(self._lives.all())

    def state(self, bundle: str) -> BundleState:
        """The bundle's state on this broker."""
        life = self._lives.get(bundle)
        return life.state if life else BundleState.FREE

    def cached_owner(self, bundle: str) -> BrokerAddress | None:
        """The owner, if it is this broker or in the cache; does not read the store."""
        if self.served(bundle):
            return self._base.me
        owner = self._claims.cached_owner(bundle)
        return owner.address if owner and owner.session_id != self._base.store.session_id else None

    async def owner(self, bundle: str) -> Owner | None:
        """The owner, or None; see `Claims.owner`."""
        return await self._claims.owner(bundle)

    # Changes in the store

    def on_change(self, change: Change) -> None:
        """Process a change of the locks, in the modular manager."""
        self._claims.on_change(change)
        if change.kind is ChangeKind.RESYNC:
            self.verify_all()
            return
        bundle = paths.bundle_of_lock(change.path)
        if change.kind is ChangeKind.CREATED or bundle is None:
            return
        self.verify(bundle)

    def verify_all(self) -> None:
        """Verify every claim: changes may have been missed."""
        self._resyncs += 1
        self._spawn_verify(self._lives.all())

    def verify(self, bundle: str) -> None:
        """Verify the claim of a bundle, which changed: now, or once it is known to be ours."""
        life = self._lives.get(bundle)
        if life is not None and life.state in _HOLDING:
            self._spawn_verify([life])
        else:
            self._lives.lock_changed(bundle)

    def _spawn_verify(self, lives: list[BundleLife]) -> None:
        self._base.scope.spawn(self._verify(lives), "verify-claims")

    def on_boundaries(self, change: Change) -> None:
        """Process a change below /admin: an operator may have edited boundaries by hand."""
        if change.kind is ChangeKind.RESYNC:
            namespaces = {split_bundle_name(life.bundle)[0] for life in self._lives.all()}
        elif change.path.startswith(f"{paths.LOCAL_POLICIES}/") and change.path.count("/") == 4:
            namespaces = {change.path[len(paths.LOCAL_POLICIES) + 1 :]}
        else:
            return
        lives = [
            life for life in self._lives.all() if split_bundle_name(life.bundle)[0] in namespaces
        ]
        if lives:
            self._base.scope.spawn(self._verify_ranges(lives), "verify-ranges")

    async def _verify_ranges(self, lives: list[BundleLife]) -> None:
        """Release bundles without a range of their namespace: others may own parts of them."""
        for life in lives:
            if await self._namespaces.lacks(life.bundle) and life.state is BundleState.OWNED:
                reason = "the boundaries of the namespace were changed by hand"
                log.error(
                    "releasing a bundle that does not exist", bundle=life.bundle, reason=reason
                )
                await self._release(life, reason, LifeCause.OPERATOR, None, CLOSE_TIMEOUT_S)

    async def _verify(self, lives: list[BundleLife]) -> None:
        """Stop serving the bundles whose claim is no longer ours.

        Reads the claims, because a notification may concern an earlier life.
        """
        resyncs, wait_s = self._resyncs, RETRY_FIRST_S
        while resyncs == self._resyncs:  # after another reconnect, another task verifies all claims
            life_of = {life.bundle: life for life in lives if life.state in _HOLDING}
            try:
                missing = await self._claims.missing(
                    {bundle: life.token for bundle, life in life_of.items()}
                )
            except LoadManagerError:
                await sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
                continue
            for bundle in missing:
                if life_of[bundle].state in _HOLDING:
                    self._drop(life_of[bundle])
            return

    def _drop(self, life: BundleLife) -> None:
        """Stop serving a bundle whose claim is gone: another broker may take it next."""
        reason = "claim deleted by somebody else"
        log.error(
            "the claim of a bundle is gone; the bundle is no longer served here",
            bundle=life.bundle,
            reason=reason,
        )
        self._hosting.fence_bundle(life.bundle, life.token)
        life.cause = LifeCause.LOSS
        self._lives.become(life, BundleState.FREE, reason)
        self._base.scope.spawn(self._close(life, None, CLOSE_TIMEOUT_S), f"close {life.bundle}")

    async def _close(
        self, life: BundleLife, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Let the host close the bundle, which tells the clients; returns the number of topics."""
        return await self._hosting.close_bundle(
            life.bundle, life.token, destination=destination, timeout_s=timeout_s
        )

    def lose_all(self, reason: str, settled: Collection[str] = ()) -> list[str]:
        """End all lives, because the session is lost or cannot be proven; returns the bundles.

        The caller has fenced the host, but for the bundles that are kept (`settled`).
        """
        lost = [bundle for bundle in self.owned() if bundle not in settled]
        for life in self._lives.all():
            if life.bundle not in settled:
                if life.state is BundleState.OPENING:
                    self._interrupted.add(life.bundle)
                life.cause = LifeCause.LOSS
                self._lives.become(life, BundleState.FREE, reason)
        if not settled:
            self._claims.forget_all()
        return lost

    def give_up_interrupted(self) -> None:
        """The lease is held: give up what was being opened when it ended, if that is still claimed.

        Such a claim may say that it is being opened; then others wait for that.
        """
        interrupted, self._interrupted = sorted(self._interrupted), set()
        if interrupted:
            self._base.scope.spawn(self._give_up(interrupted), "give-up-interrupted")

    async def _give_up(self, bundles: list[str]) -> None:
        async def give_up(bundle: str) -> None:
            step = partial(
                self._release_idle, bundle, "its opening was interrupted", LifeCause.LOSS
            )
            await retrying(step, f"give up {bundle}", first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S)

        await for_each(bundles, give_up, GIVEN_UP_AT_ONCE, "give-up")

    def settled(self) -> dict[str, int]:
        """See `Lives.settled`; of this session."""
        return self._lives.settled(self._base.store.session_id)

    # Acquire

    async def acquire(self, bundle: str, reason: str, cause: LifeCause = LifeCause.LOOKUP) -> Owner:
        """Acquire the bundle unless another broker owns it; returns the owner.

        Concurrent calls for one bundle share one attempt. Raises `OperationalError` when the bundle
        is being unloaded here, this broker is stopping, the host cannot open the bundle, or the
        store does not answer.
        """
        pending = self._acquiring.get(bundle)
        if pending is not None:
            await asyncio.shield(pending)
        elif not self.served(bundle):
            await self._base.scope.finish(
                f"acquire {bundle}", self._acquire_once, bundle, reason, cause
            )
        if self.served(bundle):
            return Owner(self._base.me, self._base.store.session_id)
        owner = await self.owner(bundle)
        if owner is None or owner.session_id == self._base.store.session_id:
            raise OperationalError(f"Failed to acquire ownership of {bundle}; look it up again")
        return owner

    async def _acquire_once(self, bundle: str, reason: str, cause: LifeCause) -> None:
        pending = self._acquiring.get(bundle)
        if pending is not None:
            await asyncio.shield(pending)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acquiring[bundle] = future
        try:
            await self._acquire(bundle, reason, cause)
        finally:
            del self._acquiring[bundle]
            future.set_result(None)

    async def _acquire(self, bundle: str, reason: str, cause: LifeCause) -> None:
        namespace, bundle_range = split_bundle_name(bundle)
        boundaries = await self._namespaces.bundles(NamespaceName.parse(namespace))
        boundaries.require(bundle_range)
        if self._lives.reserved(bundle):
            raise OperationalError(f"Namespace bundle {bundle} is being unloaded")
        if not self.accepting or not self._proven:
            raise OperationalError(
                f"Failed to acquire ownership of {bundle}: this broker is stopping or "
                "has no session"
            )
        life, session_id = BundleLife(bundle, cause=cause), self._base.store.session_id
        self._lives.become(life, BundleState.ASSIGNING, reason)
        try:
            with tracing.part("take the claim", bundle=bundle):
                token = await self._claims.take(bundle, boundaries.version)
        except BaseException:
            self._lives.end(life, "the claim could not be taken")
            raise
        if life.over:
            return
        if token is None or session_id != self._base.store.session_id or not self._proven:
            self._lives.end(
                life,
                "another broker owns it, or is to"
                if token is None
                else "the session changed meanwhile",
            )
            return
        life.token, life.session_id = token, session_id
        self._lives.become(life, BundleState.OPENING, reason)
        if self._lives.take_changed([life]):
            self._spawn_verify([life])
        await self._open(life, reason)

    async def _open(self, life: BundleLife, reason: str) -> None:
        try:
            with tracing.part("open", bundle=life.bundle):
                await self._hosting.open_bundle(life.bundle, life.token)
        except OperationalError as error:
            await self._not_opened(life, str(error))
            raise NotOpenedError(
                f"Failed to acquire ownership of {life.bundle}: it cannot be opened here: {error}"
            ) from None
        if life.over:
            # The bundle was lost while the host opened it. These calls leave a newer life alone.
            self._hosting.fence_bundle(life.bundle, life.token)
            await self._close(life, None, CLOSE_TIMEOUT_S)
            return
        self._lives.become(life, BundleState.OWNED, reason)
        self.on_opened(life)
        await self._refusals.succeeded(life.bundle)

    async def _not_opened(self, life: BundleLife, text: str) -> None:
        """Give up a bundle that the host cannot open, and say so: another broker is to try."""
        log.error("a bundle cannot be opened here; giving it up", bundle=life.bundle, error=text)
        await self._refusals.failed(life.bundle, served_before=life.cause is LifeCause.LEADER)
        if not life.over:
            self._hosting.fence_bundle(life.bundle, life.token)
            self._lives.become(life, BundleState.RELEASING, f"not opened: {text}")
            await self._give_back(life)
            self._lives.end(life, "not opened")
        await self._close(life, None, CLOSE_TIMEOUT_S)

    # Release

    async def release(
        self,
        bundle: str,
        *,
        reason: str,
        destination: BrokerAddress | None,
        timeout_s: float,
        cause: LifeCause | None = None,
        epoch: int | None = None,
    ) -> int | None:
        """Unload a bundle; returns the number of topics closed, or None if the bundle is not ours.

        With a destination, that broker acquires the bundle before clients are told to go there.
        Also gives up an *idle* claim: this session holds it, but the bundle was fenced when the
        lease ran out. Raises `ConflictError` while the bundle is opened, split or unloaded here,
        and `OperationalError` when the claim is not given up in time; then the attempts go on.
        `cause` is by default what `epoch` says: see `leader.ports.peers.Peers`.
        """
        cause = cause or LifeCause.of_order(epoch)
        life = self._lives.get(bundle)
        if life is None:
            work = partial(self._release_idle, bundle, reason, cause)
        elif life.state is BundleState.OWNED:
            if cause is not LifeCause.STOP:
                self._require_proof()
            work = partial(self._release, life, reason, cause, destination, timeout_s, epoch=epoch)
        else:
            raise ConflictError(f"{bundle} is in transit here ({life.state.value}); try again")
        limit_s = timeout_s + RELEASE_TIMEOUT_S + (0.0 if destination is None else OPEN_TIMEOUT_S)
        try:
            async with asyncio.timeout(limit_s):
                return await self._base.scope.finish(f"release {bundle}", work)
        except TimeoutError:
            problem = "its claim could not be given up in time; this broker goes on trying"
            if destination is not None:
                problem = (
                    f"its claim is not given up, or {destination.broker_id} has not opened it, in "
                    "time; this goes on"
                )
            raise OperationalError(f"{bundle} is not released yet: {problem}") from None

    async def _release_idle(self, bundle: str, reason: str, cause: LifeCause) -> int | None:
        """Give up the claim of a bundle if this session holds it without a life here.

        Otherwise it would stay until the next lookup, or the end of the session.
        """
        session_id = self._base.store.session_id
        if (
            await self._claims.token_in_session(bundle) is None
            or session_id != self._base.store.session_id
            or self._lives.reserved(bundle)
        ):
            return None
        # While the bundle has this life, `acquire` refuses it.
        life = BundleLife(bundle, session_id=self._base.store.session_id, cause=cause)
        self._lives.become(life, BundleState.ASSIGNING, f"idle claim: {reason}")
        await self._give_back(life)
        self._lives.end(life, reason)
        return 0

    async def _release(
        self,
        life: BundleLife,
        reason: str,
        cause: LifeCause,
        destination: BrokerAddress | None,
        timeout_s: float,
        *,
        epoch: int | None = None,
    ) -> int | None:
        if life.state is not BundleState.OWNED:
            return None  # lost before this task began
        life.cause = cause
        started_s = self._base.clock.monotonic_s()
        self._hosting.fence_bundle(life.bundle, life.token)
        self._lives.become(
            life,
            BundleState.RELEASING,
            reason,
            destination=destination.broker_id if destination else None,
        )
        with tracing.part("settle", bundle=life.bundle):
            await self._hosting.settle_bundle(life.bundle, life.token)
        with tracing.part("give up the claim", bundle=life.bundle):
            await self._give_back(life, destination)
        if life.over:
            return None  # the session was lost: everything was fenced and closed
        with tracing.part("hand over", bundle=life.bundle):
            handed_to = await self._hand_over(life, destination, epoch)
        pause_ms = (self._base.clock.monotonic_s() - started_s) * 1000
        self._lives.end(
            life, reason, destination=handed_to.broker_id if handed_to else None, pause_ms=pause_ms
        )
        with tracing.part("close", bundle=life.bundle):
            return await self._close(life, handed_to, timeout_s)

    async def _give_back(self, life: BundleLife, destination: BrokerAddress | None = None) -> None:
        """Give up the claim; retries until it is given up or the life is over."""
        wait_s, again = RETRY_FIRST_S, False
        while not life.over:
            try:
                await self._claims.give_back(
                    life.bundle, life.token, life.session_id, again=again, destination=destination
                )
            except LoadManagerError as error:
                log.warning(
                    "a claim was not given up; trying again",
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
        if destination is None or destination == self._base.me:
            return None
        try:
            await self._claims.hand_over(life.bundle, destination, epoch=epoch)
        except OperationalError as error:
            log.warning(
                "the destination did not take the bundle; the next lookup places it",
                bundle=life.bundle,
                error=str(error),
            )
            return None
        return destination

    # Split

    async def split(self, bundle: str, new_boundaries: list[int], reason: str) -> list[str]:
        """Replace a bundle of ours by its children; returns their names. See `SplitTransaction`.

        Raises `BadInputError` for boundaries outside it, `ConflictError` if it is not ours.
        """
        life = self._lives.get(bundle)
        if life is None or life.state is not BundleState.OWNED:
            raise ConflictError(f"{bundle} is not owned here, or is being moved")
        self._require_proof()
        namespace, text = split_bundle_name(bundle)
        span = BundleRange.parse(text)
        places = [span.lower, *new_boundaries, span.upper]
        parts = [f"{namespace}/0x{a:08x}_0x{b:08x}" for a, b in pairwise(places)]
        async with self._replacing([bundle], parts):
            work = partial(self._split_transaction.run, life, new_boundaries, reason)
            return await self._base.scope.finish(f"split {bundle}", work)

    async def merge(self, left: str, right: str, reason: str) -> str:
        """Replace two neighbours of ours by one bundle; returns its name."""
        self._require_proof()
        namespace, lower = split_bundle_name(left)
        merged = f"{namespace}/{lower.partition('_')[0]}_{right.rpartition('_')[2]}"
        async with self._replacing([left, right], [merged]):
            work = partial(self._split_transaction.merging.run, left, right, reason)
            return await self._base.scope.finish(f"merge {left}", work)

    def _replacing(
        self, before: Sequence[str], after: Sequence[str]
    ) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self.replacing is None else self.replacing(before, after)

    async def _reopen(
        self, before: Sequence[BundleLife], after: Sequence[BundleLife], reason: str
    ) -> None:
        """Close what is replaced, then open what replaces it, which this session has claimed."""
        for life in after:
            self._lives.become(life, BundleState.ASSIGNING, reason)
            self._lives.become(life, BundleState.OPENING, reason)
        if changed := self._lives.take_changed(after):
            self._spawn_verify(changed)
        for life in before:
            self._hosting.fence_bundle(life.bundle, life.token)
            self._lives.end(life, "replaced")

        async def settle(life: BundleLife) -> None:
            await self._hosting.settle_bundle(life.bundle, life.token)
            await self._close(life, None, CLOSE_TIMEOUT_S)

        async def open_next(new: BundleLife) -> None:
            with suppress(LoadManagerError):  # its claim is given up: another broker is to try
                if not new.over:
                    await self._open(new, reason)

        await for_each(before, settle, len(before), "close")
        await for_each(after, open_next, len(after), "open")
