"""Reads, takes and deletes the locks of bundles in the metadata store.

The owner of a bundle is the broker whose session holds the ephemeral node `/namespace/<bundle>`
(Pulsar's modular manager, `OwnershipCache`). Two checks keep locks and bundles consistent:

- The transaction that creates a lock checks the version of the namespace's boundaries, so that no
  broker can lock a bundle that a split has replaced.
- The transaction that deletes a lock checks that the session's own node exists (`in_session`), so
  that a request which is sent late, in the next session, cannot delete another broker's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.ownership.state_records import StateRecord, decode_record
from loadmanager.kit.addresses import BrokerAddress, listeners_document, read_listeners
from loadmanager.kit.errors import CorruptDataError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import read_object, write_object
from loadmanager.kit.metadata.sessions import SessionMark, absent, in_session, session_over
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    VersionConflictError,
    delete_below,
)
from loadmanager.kit.names import NamespaceName
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.claims import Owner
from loadmanager.member.ownership.owners import owner_in, text_of

CACHED_OWNERS_MAX = 500_000

log = get_logger("ownership")


class Locks:
    """Implements `member.ownership.claims.Claims` with locks, and caches the owners of bundles.

    `peers` has the destination of an unload acquire the bundle. `address` knows live brokers.

    While brokers change from one manager to the other, both kinds of claims exist. A lock is taken
    only if no live session owns the bundle by a state record; the transaction proves it.
    """

    def __init__(self, base: Base, cluster: Cluster) -> None:
        self._base, self._cluster = base, cluster
        self._owners: dict[str, Owner] = {}
        self._generation = 0
        self._parents: set[NamespaceName] = set()
        """Namespaces whose parent node of locks exists."""
        self._mark = SessionMark(base.store)
        self._records_exist = False
        """Whether a broker of the extensible manager was here; learned from a refused lock."""

    # Owners

    def on_change(self, change: Change) -> None:
        """Forget what a change of the locks makes doubtful."""
        self._generation += 1
        if change.kind is ChangeKind.RESYNC:
            self._owners.clear()
            self._parents.clear()
            return
        bundle = paths.bundle_of_lock(change.path)
        if bundle is not None:
            self._owners.pop(bundle, None)
            if change.kind is ChangeKind.DELETED:
                self._base.corrupt.mended(change.path)
        elif change.kind is ChangeKind.DELETED:
            self._parents.clear()

    def forget(self, bundle: str) -> None:
        """Read the owner from the store next time."""
        self._generation += 1
        self._owners.pop(bundle, None)

    def forget_all(self) -> None:
        """Forget all owners, because the session is lost."""
        self._generation += 1
        self._owners.clear()

    def cached_owner(self, bundle: str) -> Owner | None:
        """The owner, if it is in the cache."""
        return self._owners.get(bundle)

    async def owner(self, bundle: str) -> Owner | None:
        """The holder of the lock; None without a lock, or if no session holds it.

        Raises `CorruptDataError` for a lock that names no owner.
        """
        cached = self._owners.get(bundle)
        if cached is not None:
            return cached
        generation, path = self._generation, paths.lock(bundle)
        node = await self._base.store.get(path)
        if node is None or node.ephemeral_owner == 0:
            # No session would ever delete a persistent node in a lock's place: `take` replaces it.
            self._base.corrupt.mended(path)
            return await self._owner_by_record(bundle) if self._records_exist else None
        with self._base.corrupt.counted("lock", path):
            owner = _owner_of(node, path)
        if generation == self._generation:
            if len(self._owners) >= CACHED_OWNERS_MAX:
                self._owners.clear()
            self._owners[bundle] = owner
        return owner

    # This broker's locks

    async def take(self, bundle: str, boundaries_version: int) -> int | None:
        """Create the lock; returns its token, or None when another session holds it.

        Replaces a lock that this session holds for a life that is over, because a new life has a
        new token, and a persistent node that an operator created in its place. Raises
        `OperationalError` if the boundaries no longer have that version.
        """
        namespace = NamespaceName.parse(split_bundle_name(bundle)[0])
        path, session_id = paths.lock(bundle), self._base.store.session_id
        await self._mark.make()
        if namespace not in self._parents:
            await self._base.store.create(f"{paths.LOCKS}/{namespace}", b"")
            self._parents.add(namespace)
        self.forget(bundle)
        boundaries = Check(paths.local_policies(namespace), boundaries_version)
        no_record = await self._no_record(bundle)
        if no_record is None:
            return None
        try:
            return await self._base.store.commit([boundaries, *no_record, self.creation(bundle)])
        except VersionConflictError:
            node = await self._base.store.get(path)
            if await self._learned_of_records(unless=node):
                return await self.take(bundle, boundaries_version)
            if node is None:
                self._cluster.namespaces.forget(namespace)
                self._parents.discard(namespace)
                raise OperationalError(
                    f"Namespace bundle {bundle} is being unloaded (its namespace was "
                    "split or deleted)"
                ) from None
        if node.ephemeral_owner not in (0, self._base.store.session_id):
            return None
        if node.ephemeral_owner == 0:
            log.warning("a lock that no session holds is replaced", path=path)
            await delete_below(self._base.store, path)
        try:
            return await self._base.store.commit(
                [
                    in_session(session_id),
                    boundaries,
                    *no_record,
                    Delete(path, node.version),
                    self.creation(bundle),
                ]
            )
        except VersionConflictError:
            self._mark.forget()
            if await self._learned_of_records():
                return await self.take(bundle, boundaries_version)
            raise OperationalError(
                f"Failed to acquire ownership of {bundle}: its lock changed meanwhile; "
                "look it up again"
            ) from None

    # Brokers of the extensible manager

    async def _learned_of_records(self, *, unless: Node | None = None) -> bool:
        """Look for state records after a refusal; True if they are news. `unless`: a lock that
        explains the refusal, too.
        """
        if self._records_exist or unless is not None:
            return False
        self._records_exist = await self._base.store.get(paths.UNIT_STATES) is not None
        return self._records_exist

    async def _record(self, bundle: str) -> tuple[StateRecord | None, int]:
        """The state record of a bundle, and its version. Raises `CorruptDataError`."""
        path = paths.unit_state(bundle)
        node = await self._base.store.get(path)
        if node is None:
            return None, 0
        with self._base.corrupt.counted("state", path):
            record = decode_record(node.value)
        return record, node.version

    async def _owner_by_record(self, bundle: str) -> Owner | None:
        record, _ = await self._record(bundle)
        if record is None or record.owner is None:
            return None
        broker_id, session_id = record.owner
        if await self._base.store.get(paths.session(session_id)) is None:
            return None
        address = self._cluster.brokers.address(broker_id)
        return Owner(address or BrokerAddress(broker_id, "", f"http://{broker_id}"), session_id)

    async def _no_record(self, bundle: str) -> list[Operation] | None:
        """Conditions that nobody owns a bundle by a state record; None if somebody does."""
        if not self._records_exist:
            return absent(paths.UNIT_STATES)
        path = paths.unit_state(bundle)
        record, version = await self._record(bundle)
        if record is None:
            await self._base.store.create(path.rpartition("/")[0], b"")
            return absent(path)
        if record.owner is None:
            return [Check(path, version)]
        if await self._base.store.get(paths.session(record.owner[1])) is not None:
            return None
        return [Check(path, version), *session_over(record.owner[1])]

    # This broker's own locks

    def creation(self, bundle: str) -> Create:
        """The operation that creates our lock of a bundle."""
        return Create(paths.lock(bundle), _lock_value(self._base.me), ephemeral=True)

    async def renew_session(self) -> None:
        """Create the session's own node again, which an operator may have deleted."""
        self._mark.forget()
        await self._mark.make()

    async def give_back(
        self,
        bundle: str,
        token: int,
        session_id: int,
        *,
        again: bool,
        destination: BrokerAddress | None = None,
    ) -> None:
        """Delete our lock. `again`: an earlier attempt may have deleted it.

        Then a lock with another token, of a later life, is left alone.
        """
        if not again or await self.holds(bundle, token):
            try:
                await self._base.store.commit([in_session(session_id), Delete(paths.lock(bundle))])
            except VersionConflictError:  # the lock or the session is gone
                if session_id == self._base.store.session_id and await self.token_in_session(
                    bundle
                ):
                    await self.renew_session()
                    raise OperationalError(
                        f"the lock of {bundle} could not be deleted in this session"
                    ) from None
        self.forget(bundle)

    async def hand_over(
        self, bundle: str, destination: BrokerAddress, *, epoch: int | None
    ) -> None:
        """Have the destination acquire a bundle whose lock was deleted."""
        await self._base.peers.acquire_bundle(destination, bundle, epoch=epoch)

    async def holds(self, bundle: str, token: int) -> bool:
        """True if this session holds the lock with this token."""
        return self._is_ours(await self._base.store.get(paths.lock(bundle)), token)

    async def token_in_session(self, bundle: str) -> int | None:
        """The token of a lock that this session holds, or None."""
        node = await self._base.store.get(paths.lock(bundle))
        ours = node is not None and node.ephemeral_owner == self._base.store.session_id
        return node.created_txid if node is not None and ours else None

    async def split_operations(
        self, parent: str, children: Sequence[str], session_id: int
    ) -> list[Operation]:
        """Make the operations that create the children's locks and delete the parent's."""
        creations = [self.creation(child) for child in children]
        return [in_session(session_id), *creations, Delete(paths.lock(parent))]

    async def merge_operations(
        self, parts: Sequence[str], merged: str, session_id: int
    ) -> list[Operation]:
        """Make the operations that delete the parts' locks and create that of the new bundle."""
        deletions = [Delete(paths.lock(part)) for part in parts]
        return [in_session(session_id), *deletions, self.creation(merged)]

    async def missing(self, tokens: dict[str, int]) -> list[str]:
        """Find those of the bundles (bundle → token) whose lock is no longer ours.

        Restores the value of a lock that is ours but was overwritten.
        """
        missing, value = [], _lock_value(self._base.me)
        nodes = await self._base.store.get_many([paths.lock(bundle) for bundle in tokens])
        for (bundle, token), node in zip(tokens.items(), nodes, strict=True):
            if node is None or not self._is_ours(node, token):
                missing.append(bundle)
            elif node.value != value:
                log.warning(
                    "the lock of a bundle was overwritten; restoring it",
                    bundle=bundle,
                )
                # After a conflict another notification follows.
                with contextlib.suppress(VersionConflictError):
                    await self._base.store.put(paths.lock(bundle), value, version=node.version)
        return missing

    def _is_ours(self, node: Node | None, token: int) -> bool:
        return (
            node is not None
            and node.ephemeral_owner == self._base.store.session_id
            and node.created_txid == token
        )


def _lock_value(address: BrokerAddress) -> bytes:
    """Pulsar's `NamespaceEphemeralData`."""
    value: dict[str, Any] = {
        "nativeUrl": address.service_url,
        "nativeUrlTls": address.service_url_tls,
        "httpUrl": address.web_url,
        "httpUrlTls": address.web_url_tls,
        "disabled": False,
        "advertisedListeners": listeners_document(address.listeners),
    }
    return write_object(value)


def _owner_of(node: Node, path: str) -> Owner:
    """The owner that a lock names. Raises `CorruptDataError` when it names none."""
    value = read_object(node.value, path)
    service_url, web_url = text_of(value, "nativeUrl"), text_of(value, "httpUrl")
    service_url_tls, web_url_tls = text_of(value, "nativeUrlTls"), text_of(value, "httpUrlTls")
    address = BrokerAddress(
        owner_in(value, path),
        service_url,
        web_url,
        read_listeners(value.get("advertisedListeners")),
        service_url_tls=service_url_tls,
        web_url_tls=web_url_tls,
    )
    if not service_url and not service_url_tls:
        raise CorruptDataError(f"{path} names no owner; repair or delete the node")
    return Owner(address, node.ephemeral_owner)
