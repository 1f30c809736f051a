"""Which bundles this broker owns, and who owns the others.

Theory of operation. A bundle's owner is whoever holds the ephemeral node `/namespace/<bundle>`. Three rules keep "at most one owner, ever":

1. *Acquire*: the lock is created in one transaction with a check of the version of the namespace's boundaries, so that nobody can lock a bundle that a
   split has replaced. The bundle is opened only afterwards, and only in the session that created the lock.
2. *Release*: the bundle is fenced first (nothing of it is served from that instant), then the lock is deleted, then the destination acquires it, and
   only then are clients told where to go: they find an owner that is ready.
3. *Prove*: a bundle is served only while `Lease.held`; the guard fences everything the moment the lease runs out, and each server checks the lease
   itself before it touches bytes, because a paused process resumes anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.core.errors import ConflictError, OperationalError
from loadmanager.core.ownership.states import BundleLife, BundleState
from loadmanager.ports.clock import Clock
from loadmanager.ports.hosting import BrokerAddress, Hosting
from loadmanager.ports.peers import Peers
from loadmanager.ports.store import Change, ChangeKind, Check, Create, Delete, Node, Store, VersionConflictError
from loadmanager.runtime.broker.namespaces import SPLIT_ATTEMPTS_MAX, Namespaces
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.documents import read_object, write_object
from loadmanager.runtime.tasks import retrying, sleep

CACHED_OWNERS_MAX = 500_000

log = structlog.get_logger("ownership")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a bundle's lock, and in which session."""

    address: BrokerAddress
    session_id: int


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a bundle's life on this broker, for the history and the log."""

    bundle: str
    before: BundleState
    after: BundleState
    reason: str
    destination: str | None = None
    pause_ms: float | None = None


class Ownership:
    """Acquires, releases and splits bundles; caches the owners of others."""

    def __init__(
        self,
        *,
        store: Store,
        namespaces: Namespaces,
        hosting: Hosting,
        peers: Peers,
        clock: Clock,
        self_address: BrokerAddress,
        observe: Callable[[Transition], None],
    ) -> None:
        self._store = store
        self._namespaces = namespaces
        self._hosting = hosting
        self._peers = peers
        self._clock = clock
        self._self = self_address
        self._observe = observe
        self.splits = 0
        self._lives: dict[str, BundleLife] = {}
        self._tokens: dict[str, int] = {}
        self._owners: dict[str, Owner] = {}
        self._generation = 0
        self._acquiring: dict[str, asyncio.Future[None]] = {}
        self._parents: set[NamespaceName] = set()
        self.accepting = True
        """False once this broker stops: it acquires nothing more."""

    # What is known

    def served(self, bundle: str) -> bool:
        """Whether this broker serves the bundle at this moment: lock held, session proven, not being unloaded."""
        life = self._lives.get(bundle)
        return life is not None and life.served and self._store.lease.held(self._clock.monotonic_s())

    def owned(self) -> list[str]:
        """Bundles that this broker serves, sorted."""
        return sorted(bundle for bundle, life in self._lives.items() if life.served)

    def state(self, bundle: str) -> BundleState:
        """The bundle's state on this broker."""
        life = self._lives.get(bundle)
        return life.state if life else BundleState.FREE

    def on_change(self, change: Change) -> None:
        """A watch on the locks reports: forget what may have changed."""
        self._generation += 1
        if change.kind is ChangeKind.RESYNC:
            self._owners.clear()
            return
        bundle = paths.bundle_of_lock(change.path)
        if bundle is None:
            return
        self._owners.pop(bundle, None)
        life = self._lives.get(bundle)
        if change.kind is ChangeKind.DELETED and life is not None and life.state is BundleState.OWNED:
            # Somebody deleted our lock (an operator with a shell, say): whoever creates it next is the owner, so we are not.
            log.error("our lock was deleted by somebody else; the bundle is no longer served here", bundle=bundle)
            self._hosting.fence_bundle(bundle, self._tokens[bundle])
            self._become(bundle, BundleState.FREE, "lock deleted by somebody else")

    def cached_owner(self, bundle: str) -> BrokerAddress | None:
        """The owner, if it is known without asking the store."""
        if self.served(bundle):
            return self._self
        known = self._owners.get(bundle)
        return known.address if known and known.session_id != self._store.session_id else None

    async def owner(self, bundle: str) -> Owner | None:
        """Who holds the lock; None when nobody does."""
        known = self._owners.get(bundle)
        if known is not None:
            return known
        generation = self._generation
        node = await self._store.get(paths.lock(bundle))
        if node is None:
            return None
        found = _owner_of(node, paths.lock(bundle))
        if generation == self._generation:
            if len(self._owners) >= CACHED_OWNERS_MAX:
                self._owners.clear()
            self._owners[bundle] = found
        return found

    # Acquire

    async def acquire(self, bundle: str, reason: str) -> Owner:
        """Own the bundle, or learn who does. Concurrent calls for one bundle share one attempt.

        Raises `OperationalError` while the bundle is being unloaded here, this broker stops, or the store cannot say.
        """
        pending = self._acquiring.get(bundle)
        if pending is not None:
            await asyncio.shield(pending)
        elif not self.served(bundle):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._acquiring[bundle] = future
            try:
                await self._acquire(bundle, reason)
            finally:
                del self._acquiring[bundle]
                future.set_result(None)
        if self.served(bundle):
            return Owner(self._self, self._store.session_id)
        owner = await self.owner(bundle)
        if owner is None or owner.session_id == self._store.session_id:
            raise OperationalError(f"Failed to acquire ownership of {bundle}; look it up again")
        return owner

    async def _acquire(self, bundle: str, reason: str) -> None:
        if self.state(bundle) is not BundleState.FREE:
            raise OperationalError(f"Namespace bundle {bundle} is being unloaded")
        if not self.accepting or not self._store.lease.held(self._clock.monotonic_s()):
            raise OperationalError(f"Failed to acquire ownership of {bundle}: this broker is stopping or has no session")
        namespace, bundle_range = split_bundle_name(bundle)
        cut = await self._namespaces.bundles(NamespaceName.parse(namespace))
        cut.require(bundle_range)
        session_id = self._store.session_id
        self._become(bundle, BundleState.ASSIGNING, reason)
        try:
            ours = await self._lock(bundle, cut.version)
        except BaseException:
            self._become(bundle, BundleState.FREE, "the lock could not be taken")
            raise
        if ours is None or session_id != self._store.session_id or not self._store.lease.held(self._clock.monotonic_s()):
            self._become(bundle, BundleState.FREE, "somebody else holds the lock" if ours is None else "the session changed meanwhile")
            return
        self._become(bundle, BundleState.OWNED, reason)
        self._owners.pop(bundle, None)
        self._tokens[bundle] = ours
        await self._hosting.open_bundle(bundle, ours)

    async def _lock(self, bundle: str, version: int) -> int | None:
        """Create the lock; the id of the transaction that created it, None if it is not ours afterwards."""
        namespace, _ = split_bundle_name(bundle)
        name = NamespaceName.parse(namespace)
        path = paths.lock(bundle)
        await self._ensure_parent(name)
        try:
            return await self._store.commit([Check(paths.local_policies(name), version), Create(path, self._lock_value(), ephemeral=True)])
        except VersionConflictError:
            node = await self._store.get(path)
            if node is None:
                self._namespaces.forget(name)
                raise OperationalError(f"Namespace bundle {bundle} is being unloaded (its namespace was split or deleted)") from None
            return node.created_txid if node.ephemeral_owner == self._store.session_id else None
        except OperationalError:
            # The outcome is unknown: what the store holds now decides.
            node = await self._store.get(path)
            return node.created_txid if node is not None and node.ephemeral_owner == self._store.session_id else None

    async def _ensure_parent(self, namespace: NamespaceName) -> None:
        if namespace not in self._parents:
            await self._store.create(f"{paths.LOCKS}/{namespace}", b"")
            self._parents.add(namespace)

    # Release

    async def release(self, bundle: str, *, reason: str, destination: BrokerAddress | None, timeout_s: float) -> int:
        """Unload a bundle; returns how many topics were closed. Does nothing for a bundle that is not ours.

        With a destination, that broker is asked to acquire the bundle before clients are told to go there.
        """
        if self.state(bundle) is not BundleState.OWNED:
            return 0
        started_s = self._clock.monotonic_s()
        token = self._tokens[bundle]
        self._hosting.fence_bundle(bundle, token)
        self._become(bundle, BundleState.RELEASING, reason, destination=destination.broker_id if destination else None)
        session_id = self._store.session_id

        async def delete_lock() -> None:
            if self._store.session_id == session_id:
                await self._store.delete(paths.lock(bundle))

        await retrying(delete_lock, f"release {bundle}", max_s=1.0)
        self._owners.pop(bundle, None)
        handed_to = await self._hand_over(bundle, destination)
        pause_ms = (self._clock.monotonic_s() - started_s) * 1000
        if self.state(bundle) is BundleState.RELEASING:
            self._become(bundle, BundleState.FREE, reason, destination=handed_to.broker_id if handed_to else None, pause_ms=pause_ms)
        return await self._hosting.close_bundle(bundle, token, destination=handed_to, timeout_s=timeout_s)

    async def _hand_over(self, bundle: str, destination: BrokerAddress | None) -> BrokerAddress | None:
        if destination is None or destination == self._self:
            return None
        try:
            await self._peers.acquire_bundle(destination, bundle, epoch=None)
        except OperationalError as error:
            log.warning("the destination did not take the bundle; the next lookup places it", bundle=bundle, error=str(error))
            return None
        return destination

    def lose_all(self, reason: str) -> list[str]:
        """The session is gone or cannot be proven: nothing is ours. The server was fenced before; returns what was lost."""
        lost = self.owned()
        for bundle, life in list(self._lives.items()):
            if life.state not in (BundleState.FREE, BundleState.ASSIGNING):
                self._become(bundle, BundleState.FREE, reason)
        self._owners.clear()
        return lost

    # Split

    async def split(self, bundle: str, cuts: list[int], reason: str) -> list[str]:
        """Replace a bundle of ours by its children, which stay ours; returns their names. One transaction: boundaries, the children's locks, the parent's.

        Raises `BadInputError` for impossible cuts, `ConflictError` when the bundle is not (or no longer) ours to split.
        """
        if self.state(bundle) is not BundleState.OWNED:
            raise ConflictError(f"{bundle} is not owned by {self._self.broker_id}, or is being moved")
        namespace, bundle_range = split_bundle_name(bundle)
        name, parent = NamespaceName.parse(namespace), BundleRange.parse(bundle_range)
        self._become(bundle, BundleState.SPLITTING, reason)
        try:
            children, token = await self._commit_split(name, parent, cuts)
        except BaseException:
            if self.state(bundle) is BundleState.SPLITTING:
                self._become(bundle, BundleState.OWNED, "not split")
            raise
        if self.state(bundle) is not BundleState.SPLITTING:
            raise OperationalError(f"{bundle}: the session was lost during the split")
        self._hosting.split_bundle(bundle, self._tokens[bundle], children, token)
        for child in children:
            self._tokens[child] = token
            self._become(child, BundleState.OWNED, f"split of {bundle_range}")
        self._become(bundle, BundleState.FREE, f"split into {len(children)}")
        self._namespaces.forget(name)
        self.splits += 1
        return children

    async def _commit_split(self, name: NamespaceName, parent: BundleRange, cuts: list[int]) -> tuple[list[str], int]:
        path = paths.lock(f"{name}/{parent}")
        for attempt in range(SPLIT_ATTEMPTS_MAX):
            self._namespaces.forget(name)
            before = await self._namespaces.bundles(name)
            after = before.split(parent, cuts)
            children = [f"{name}/{item}" for item in after.ranges if item.lower >= parent.lower and item.upper <= parent.upper]
            locks = [Create(paths.lock(child), self._lock_value(), ephemeral=True) for child in children]
            try:
                txid = await self._store.commit([*await self._namespaces.split_operations(after), *locks, Delete(path)])
            except VersionConflictError:
                if attempt == SPLIT_ATTEMPTS_MAX - 1:
                    raise
                await sleep(0.1)
                continue
            return children, txid
        raise AssertionError("unreachable")

    # Details

    def _become(
        self, bundle: str, state: BundleState, reason: str, *, destination: str | None = None, pause_ms: float | None = None
    ) -> None:
        life = self._lives.setdefault(bundle, BundleLife(bundle))
        before = life.become(state, reason)
        self._observe(Transition(bundle, before, state, reason, destination, pause_ms))

    def _lock_value(self) -> bytes:
        value: dict[str, Any] = {
            "nativeUrl": self._self.service_url,
            "nativeUrlTls": "",
            "httpUrl": self._self.web_url,
            "httpUrlTls": "",
            "disabled": False,
            "advertisedListeners": {},
        }
        return write_object(value)


def _owner_of(node: Node, path: str) -> Owner:
    """The owner that a lock (Pulsar `NamespaceEphemeralData`) names. Raises `OperationalError` when it names none."""
    value = read_object(node.value, path)
    service_url, web_url = value.get("nativeUrl"), value.get("httpUrl")
    if not isinstance(service_url, str) or not isinstance(web_url, str):
        raise OperationalError(f"{path} names no owner; repair or delete the node")
    return Owner(BrokerAddress(web_url.partition("://")[2], service_url, web_url), node.ephemeral_owner)
