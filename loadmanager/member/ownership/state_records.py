"""The claims of the extensible manager: state records, changed by compare-and-set.

**At most one owner.** A broker becomes the owner in a transaction that checks the version of the
record, that its session lives (`in_session`), the version of the namespace's boundaries, and that
no modular broker holds a lock of the bundle. Nobody takes a bundle from a session that lives: the
transaction that takes over fails unless the owner's session node is gone (`session_over`). The
owner gives up a bundle by a change of its own. When its session ends, it stops serving before that,
by its lease.
"""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.ownership import state_records as records
from loadmanager.engine.ownership.state_records import StateRecord, UnitState
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.sessions import SessionMark, absent, in_session, session_over
from loadmanager.kit.metadata.store import Change, Check, Operation
from loadmanager.kit.names import NamespaceName
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.claims import Owner
from loadmanager.member.ownership.locks import Locks
from loadmanager.member.ownership.openings import Openings
from loadmanager.member.ownership.state_cache import CachedRecord, StateCache, Writes
from loadmanager.member.settings import StateSettings

ATTEMPTS_MAX = 3

log = get_logger("ownership")


class StateRecords:
    """Implements `member.ownership.claims.Claims` with state records.

    `locks` knows the owners among modular brokers.
    """

    def __init__(self, base: Base, cluster: Cluster, cache: StateCache, locks: Locks) -> None:
        self._base, self._cluster = base, cluster
        self._settings = base.settings.live(StateSettings)
        self.cache = cache
        self._locks = locks
        self._mark = SessionMark(base.store)
        self.openings = Openings(base, cluster, cache, self.lives)
        self._parents: set[str] = set()
        """Namespaces whose parent nodes of records and locks exist."""

    @property
    def in_flight_s(self) -> float:
        """The longest time for which a bundle may be in transit, in seconds."""
        return self._settings.value.in_flight_ms / 1000

    # Owners

    def on_change(self, change: Change) -> None:
        """Learn of a change of the records."""
        self.cache.on_change(change)

    def forget_all(self) -> None:
        """Read everything again in the next session."""
        self.cache.forget_all()
        self._locks.forget_all()
        self._parents.clear()

    def lives(self, broker_id: str | None, session_id: int) -> bool:
        """True if a broker is registered in this session, as far as this broker knows."""
        return (
            session_id == self._base.store.session_id != 0
            or self._cluster.brokers.sessions.get(broker_id or "") == session_id
        )

    def cached_owner(self, bundle: str) -> Owner | None:
        """The owner, if it is not about to change; or the modular broker that owns the bundle."""
        record = self.cache.record(bundle)
        if record is None or record.state is UnitState.FREE:
            return self._locks.cached_owner(bundle)
        if record.state not in (UnitState.OWNED, UnitState.SPLITTING) or record.owner is None:
            return None
        broker_id, session_id = record.owner
        if not self.lives(broker_id, session_id) or record.opening is True:
            return None
        return Owner(self._address(broker_id), session_id)

    async def owner(self, bundle: str) -> Owner | None:
        """The owner, even if it is about to give up the bundle; None for one whose session is over.

        Asks the store only for a broker that is not registered, and for locks of modular brokers.
        """
        record = self.cache.record(bundle)
        if record is not None and record.owner is not None:
            broker_id, session_id = record.owner
            if (
                self.lives(broker_id, session_id)
                or await self._base.store.get(paths.session(session_id)) is not None
            ):
                return Owner(self._address(broker_id), session_id)
        return await self._locks.owner(bundle)

    def _address(self, broker_id: str) -> BrokerAddress:
        if broker_id == self._base.me.broker_id:
            return self._base.me
        address = self._cluster.brokers.address(broker_id)
        return address or BrokerAddress(broker_id, "", f"http://{broker_id}")

    # Taking

    async def take(self, bundle: str, boundaries_version: int) -> int | None:
        """Become the owner of a bundle that nobody owns, or that is assigned to this broker."""
        for attempt in range(ATTEMPTS_MAX):
            await self._prepare(bundle)
            session_id = self._base.store.session_id
            stored = await self._stored(bundle, again=attempt > 0)
            taking = self._assignment(bundle, stored, self._base.me.broker_id, ours=True)
            if taking is None:
                return None
            writes, conditions = taking
            assert writes.record is not None
            if writes.record.state is UnitState.ASSIGNING:
                writes.become(
                    records.owned(
                        writes.record, session_id, self._now_ms, opening=self.openings.announces
                    )
                )
            token = await self._commit(
                [in_session(session_id), self._boundaries(bundle, boundaries_version), *conditions],
                writes,
            )
            if token is not None:
                return token
            if await self._locks.owner(bundle) is not None:
                await self.decline(bundle)
                return None
            await self.renew_session()
        self._cluster.namespaces.forget(_namespace(bundle))
        raise OperationalError(
            f"Failed to acquire ownership of {bundle}: its record, its session or its namespace "
            "changed meanwhile; look it up again"
        )

    async def assign(self, bundle: str, broker_id: str, boundaries_version: int) -> bool:
        """Have another broker take a bundle that nobody owns; False if somebody else decided."""
        await self._prepare(bundle)
        stored = await self._stored(bundle)
        assignment = self._assignment(bundle, stored, broker_id)
        if assignment is None:
            return False
        writes, conditions = assignment
        boundaries = self._boundaries(bundle, boundaries_version)
        done = await self._commit([boundaries, *conditions], writes)
        if done is None:
            await self.cache.fresh(bundle)
            self._cluster.namespaces.forget(_namespace(bundle))
        return done is not None

    def _assignment(
        self, bundle: str, stored: CachedRecord | None, broker_id: str, *, ours: bool = False
    ) -> tuple[Writes, list[Operation]] | None:
        """The changes that assign a bundle to a broker, and their conditions; None if somebody owns
        it, or another live broker is to. `ours`: what is this broker's already counts, too.
        """
        writes = Writes(bundle, stored)
        conditions = absent(paths.lock(bundle))
        if stored is not None and (stored.record is None or stored.corrupt):
            raise OperationalError(f"Namespace bundle {bundle} has a corrupt state record")
        if writes.record is not None and writes.record.state is UnitState.DELETED:
            writes.remove()
        record, state = writes.record, writes.state
        if state in (UnitState.INIT, UnitState.FREE):
            writes.become(records.assigned(record, broker_id, self._now_ms))
            return writes, conditions
        assert record is not None
        if record.owner is None:
            if state is UnitState.ASSIGNING:
                if ours and record.dst_broker == broker_id:
                    return writes, conditions
                if record.dst_broker in self._cluster.brokers.registered:
                    return None
            # else: written by hand, without a session
        elif ours and state is UnitState.OWNED and record.owner == self._me:
            writes.become(
                records.owned_again(
                    record, *self._me, self._now_ms, opening=self.openings.announces
                )
            )
            return writes, conditions
        elif self.lives(*record.owner):
            return None
        else:
            conditions += session_over(record.owner[1])
        writes.become(records.assigned(record, broker_id, self._now_ms, force=True))
        return writes, conditions

    @property
    def _me(self) -> tuple[str, int]:
        return self._base.me.broker_id, self._base.store.session_id

    async def decline(self, bundle: str) -> None:
        """Free a bundle that is assigned to this broker, which does not take it."""
        stored = await self.cache.fresh(bundle)
        record = None if stored is None else stored.record
        if record is None or record.state is not UnitState.ASSIGNING:
            return
        if record.dst_broker == self._base.me.broker_id:
            writes = Writes(bundle, stored)
            writes.become(records.freed(record, self._base.clock.now_ms(), force=True))
            await self._commit([], writes)

    async def prepare(self, bundle: str) -> None:
        """Do what can be done before the present owner gives up a bundle that comes here."""
        await self._cluster.namespaces.bundles(_namespace(bundle))
        await self._prepare(bundle)

    async def _prepare(self, bundle: str) -> None:
        await self._mark.make()
        namespace = str(_namespace(bundle))
        if namespace not in self._parents:
            await self._base.store.create(f"{paths.UNIT_STATES}/{namespace}", b"")
            await self._base.store.create(f"{paths.LOCKS}/{namespace}", b"")
            self._parents.add(namespace)

    def _boundaries(self, bundle: str, version: int) -> Check:
        return Check(paths.local_policies(_namespace(bundle)), version)

    async def _stored(self, bundle: str, *, again: bool = False) -> CachedRecord | None:
        """The record of a bundle: from the cache, else read from the store."""
        stored = self.cache.get(bundle)
        return await self.cache.fresh(bundle) if again or stored is None else stored

    async def _commit(self, conditions: Sequence[Operation], writes: Writes) -> int | None:
        """Make the changes; returns the transaction's id, or None if something has changed."""
        txid = await self.cache.commit(conditions, [writes])
        if txid is None:
            self._parents.discard(str(_namespace(writes.bundle)))
        return txid

    # Giving up

    async def give_back(
        self,
        bundle: str,
        token: int,
        session_id: int,
        *,
        again: bool,
        destination: BrokerAddress | None = None,
    ) -> None:
        """Free a bundle of that session, or assign it to the destination."""
        stored = await self._stored(bundle, again=again)
        record = None if stored is None else stored.record
        if record is not None and record.state is UnitState.DELETED:
            stored = await self.cache.fresh(bundle)  # a merge has just written it
        if stored is None or not _owned_in(stored.record, session_id):
            return
        if (
            await self._commit([in_session(session_id)], self._release(bundle, stored, destination))
            is None
            and session_id == self._base.store.session_id
        ):
            stored = await self.cache.fresh(bundle)
            if stored is not None and _owned_in(stored.record, session_id):
                await self.renew_session()
                raise OperationalError(f"the record of {bundle} changed meanwhile")

    def _release(
        self, bundle: str, stored: CachedRecord, destination: BrokerAddress | None
    ) -> Writes:
        """The changes by which the owner gives up a bundle."""
        writes, now_ms = Writes(bundle, stored), self._base.clock.now_ms()
        record = writes.record
        assert record is not None
        to = destination.broker_id if destination is not None else None
        if to == self._base.me.broker_id or not self._follows_records(to):
            to = None
        if record.state is UnitState.SPLITTING:
            writes.become(records.freed(record, now_ms, force=True))
            return writes
        if record.state is UnitState.OWNED or record.dst_broker != to:
            force = record.state is not UnitState.OWNED
            record = records.releasing(record, to, now_ms, force=force)
            writes.become(record)
        assigned = to is not None
        writes.become(
            records.handed_over(record, now_ms) if assigned else records.freed(record, now_ms)
        )
        return writes

    def _follows_records(self, broker_id: str | None) -> bool:
        """True if a live broker runs this load manager."""
        report = self._cluster.brokers.reports.get(broker_id or "")
        return (
            report is not None and Manager.of(report.load_manager_class_name) is not Manager.MODULAR
        )

    async def hand_over(
        self,
        bundle: str,
        destination: BrokerAddress,
        *,
        epoch: int | None,
    ) -> None:
        """Wait until the destination serves the bundle."""

        if not await self._arrived(bundle):
            raise OperationalError(f"{destination.broker_id} did not take it in time")
        record = self.cache.record(bundle)
        if record is None or record.owner is None or record.owner[0] != destination.broker_id:
            raise OperationalError(f"{destination.broker_id} did not take it")

    async def _arrived(self, bundle: str) -> bool:
        """Wait until a bundle is in transit no more, and is not being opened; False: not in
        time.
        """

        def settled(record: StateRecord | None) -> bool:
            return record is None or record.state not in records.IN_FLIGHT

        return await self.cache.until(bundle, settled, self.in_flight_s) and (
            not self.openings.elsewhere(self.cache.record(bundle))
            or await self.openings.ended(bundle)
        )

    # What this session holds

    async def holds(self, bundle: str, token: int) -> bool:
        """True if this session owns the bundle: in a session, a bundle has one life at a time."""
        return await self.token_in_session(bundle) is not None

    async def token_in_session(self, bundle: str) -> int | None:
        """The transaction of the last change of a record by which this session owns a bundle."""
        stored = await self.cache.fresh(bundle)
        owned = stored is not None and _owned_in(stored.record, self._base.store.session_id)
        return stored.txid if stored is not None and owned else None

    async def missing(self, tokens: dict[str, int]) -> list[str]:
        """Find those of the bundles that this session does not own."""
        missing = []
        await self.cache.read(list(tokens))
        for bundle in tokens:
            stored, session_id = self.cache.get(bundle), self._base.store.session_id
            if stored is None or not _owned_in(stored.record, session_id):
                missing.append(bundle)
            elif stored.corrupt or (
                stored.record is not None and stored.record.state is UnitState.SPLITTING
            ):
                await self._restore(bundle, stored, session_id)
        return missing

    async def _restore(self, bundle: str, stored: CachedRecord, session_id: int) -> None:
        log.warning("the state record of a bundle was overwritten; restoring it", bundle=bundle)
        writes, record = Writes(bundle, stored), stored.record
        assert record is not None
        if record.state is UnitState.RELEASING:
            writes.become(records.releasing(record, record.dst_broker, self._now_ms, force=True))
        else:
            writes.become(
                records.owned_again(record, self._base.me.broker_id, session_id, self._now_ms)
            )
        await self._commit([in_session(session_id)], writes)  # after a conflict, it is read again

    @property
    def _now_ms(self) -> int:
        return self._base.clock.now_ms()

    async def split_operations(
        self, parent: str, children: Sequence[str], session_id: int
    ) -> list[Operation]:
        """Make the operations that end the parent's record in Deleted, and begin the children's in
        Owned.
        """
        operations = [in_session(session_id), *await self._replacing(parent, children)]
        for child in children:
            operations += await self._beginning(child, session_id)
        return operations

    async def merge_operations(
        self, parts: Sequence[str], merged: str, session_id: int
    ) -> list[Operation]:
        """Make the operations that end the records of the parts in Deleted, and begin that of the
        new bundle in Owned.
        """
        operations: list[Operation] = [in_session(session_id)]
        for part in parts:
            operations += await self._replacing(part, [merged])
        return operations + await self._beginning(merged, session_id)

    async def _replacing(self, bundle: str, by: Sequence[str]) -> list[Operation]:
        stored = await self.cache.fresh(bundle)
        if (
            stored is None
            or stored.record is None
            or stored.corrupt
            or stored.record.state is not UnitState.OWNED
        ):
            raise OperationalError(f"{bundle} is not replaced: it is about to change its owner")
        writes, now_ms = Writes(bundle, stored), self._now_ms
        spans = [split_bundle_name(name)[1] for name in by]
        writes.become(records.splitting(stored.record, spans, now_ms))
        assert writes.record is not None
        writes.become(records.deleted(writes.record, now_ms))
        return [*writes.operations]

    async def _beginning(self, bundle: str, session_id: int) -> list[Operation]:
        writes = Writes(bundle, await self.cache.fresh(bundle))
        if writes.record is not None:
            writes.remove()
        me, opening = self._base.me.broker_id, self.openings.of_replacements
        writes.become(records.child(me, session_id, self._now_ms, opening=opening))
        return [*writes.operations]

    async def renew_session(self) -> None:
        """Create the session's own node again, which an operator may have deleted."""
        self._mark.forget()
        await self._mark.make()

    # Orders

    async def stored_owner(self, bundle: str) -> str | None:
        """The brokerId of the owner, read from the store itself. Raises `CorruptDataError`."""
        await self.cache.fresh(bundle)
        owner = await self.owner(bundle)
        return None if owner is None else owner.address.broker_id

    async def order_release(
        self, bundle: str, destination: str | None, conditions: Sequence[Operation] = ()
    ) -> bool:
        """Order the owner to give up a bundle; returns whether it did, in time.

        False, too, if the bundle has no owner that could be ordered, or changed meanwhile.
        """
        stored = await self._stored(bundle)
        if stored is None or stored.record is None or stored.corrupt:
            return False
        record = stored.record
        if record.owner is None or record.state is not UnitState.OWNED:
            return False
        source = record.owner
        if not self.lives(*source) or source[0] == destination:
            return False
        if destination is not None and not self._follows_records(destination):
            raise OperationalError(f"{destination} is gone, or runs the modular load manager")
        writes = Writes(bundle, stored)
        writes.become(records.releasing(record, destination, self._now_ms))
        if await self._commit(conditions, writes) is None:
            await self.cache.fresh(bundle)
            return False
        if not await self._arrived(bundle):
            raise OperationalError(f"{bundle} was not released in time; the leader repairs it")
        after = self.cache.record(bundle)
        owner = None if after is None else after.owner
        if owner == source:
            return False
        if destination is not None and (owner is None or owner[0] != destination):
            raise OperationalError(f"{destination} did not take {bundle}")
        return True


def _owned_in(record: StateRecord | None, session_id: int) -> bool:
    """True if a record says that a session owns the bundle."""
    return (
        record is not None
        and record.owner is not None
        and record.owner[1] == session_id
        and session_id != 0
    )


def _namespace(bundle: str) -> NamespaceName:
    return NamespaceName.parse(split_bundle_name(bundle)[0])
