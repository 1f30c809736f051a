"""All state records, kept current by a watch: lookups read them here, not in the store.

Changes are read in batches, each record once however often it changed meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from loadmanager.engine.ownership.state_records import (
    StateRecord,
    UnitState,
    decode_record,
    encode_record,
)
from loadmanager.kit import tracing
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    Store,
    VersionConflictError,
)
from loadmanager.kit.tasks import retrying

READ_AT_ONCE = 1_000
LOOKED_AGAIN_S = 1.0
"""How often a condition is looked at that waits for a record, at least."""
ORDERS = (UnitState.ASSIGNING, UnitState.RELEASING)


@dataclass(frozen=True, slots=True)
class CachedRecord:
    """A record as last read or written."""

    record: StateRecord | None
    """None: it cannot be read, and was not read before."""
    version: int
    """The node's version, for compare-and-set."""
    txid: int
    """The transaction that wrote it."""
    since_s: float
    """When this broker first saw this version, on its monotonic clock."""
    corrupt: bool = False
    """Whether it cannot be read; then `record` is what it was before."""
    stamp: int = 0


class Writes:
    """Successive changes of one record in one transaction, from what is stored now."""

    def __init__(self, bundle: str, stored: CachedRecord | None) -> None:
        self.bundle = bundle
        self.operations: list[Operation] = []
        self.record = None if stored is None else stored.record
        self.version = -1 if stored is None else stored.version
        self._exists = stored is not None

    @property
    def state(self) -> UnitState:
        """The state after the changes so far."""
        return UnitState.INIT if self.record is None else self.record.state

    def become(self, record: StateRecord) -> None:
        """Add a change. If it orders something, that is part of the present trace."""
        if record.state in ORDERS and (parent := tracing.traceparent()):
            record = replace(record, traceparent=parent)
        path, value = paths.unit_state(self.bundle), encode_record(record)
        if self._exists:
            self.operations.append(Put(path, value, self.version))
            self.version += 1
        else:
            self.operations.append(Create(path, value))
            self.version, self._exists = 0, True
        self.record = record

    def remove(self) -> None:
        """Add the removal of the record."""
        self.operations.append(Delete(paths.unit_state(self.bundle), self.version))
        self.record, self._exists = None, False


class StateCache:
    """Bundle → its record. `listeners` are called with each bundle whose record changed."""

    def __init__(self, store: Store, clock: Clock, corrupt: Corrupt) -> None:
        self._store = store
        self._clock = clock
        self._corrupt = corrupt
        self._stored: dict[str, CachedRecord] = {}
        self._changed: dict[str, None] = {}
        self._everything = False
        self._wake = asyncio.Event()
        self._stamp = 0
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.listeners: list[Callable[[str, StateRecord | None], None]] = []
        self.on_resync: list[Callable[[], None]] = []
        """Called after everything was read, because changes may have been missed."""
        self.synced = asyncio.Event()
        """Set once everything was read for the first time."""

    def get(self, bundle: str) -> CachedRecord | None:
        """The record of a bundle; None if it has no record."""
        return self._stored.get(bundle)

    def record(self, bundle: str) -> StateRecord | None:
        """The readable record of a bundle."""
        stored = self._stored.get(bundle)
        return None if stored is None or stored.corrupt else stored.record

    def all(self) -> list[tuple[str, CachedRecord]]:
        return list(self._stored.items())

    def forget_all(self) -> None:
        """Trust nothing that was read in a session that is lost."""
        self._stored.clear()

    # Changes

    def on_change(self, change: Change) -> None:
        """Have `run` read what changed."""
        if change.kind is ChangeKind.RESYNC:
            self._everything = True
        elif (bundle := paths.bundle_of_unit_state(change.path)) is not None:
            self._changed[bundle] = None
        else:
            return
        self._wake.set()

    async def run(self) -> None:
        """Read what changed, forever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await retrying(self._read_changes, "read state records", max_s=1.0)

    async def _read_changes(self) -> None:
        if self._everything:
            self._everything = False
            try:
                await self._read_everything()
            except OperationalError:
                self._everything = True
                raise
        while self._changed:
            bundles = list(islice(self._changed, READ_AT_ONCE))
            for bundle in bundles:
                del self._changed[bundle]
            try:
                await self.read(bundles)
            except OperationalError:
                self._changed.update(dict.fromkeys(bundles))
                raise

    async def _read_everything(self) -> None:
        bundles = set(self._stored)
        for tenant in await self._store.children(paths.UNIT_STATES):
            for name in await self._store.children(f"{paths.UNIT_STATES}/{tenant}"):
                namespace = f"{tenant}/{name}"
                spans = await self._store.children(f"{paths.UNIT_STATES}/{namespace}")
                bundles.update(f"{namespace}/{span}" for span in spans)
        names = sorted(bundles)
        for start in range(0, len(names), READ_AT_ONCE):
            await self.read(names[start : start + READ_AT_ONCE], tell=True)
        self.synced.set()
        for listener in self.on_resync:
            listener()

    async def read(self, bundles: list[str], *, tell: bool = False) -> None:
        """Read records now. `tell`: call the listeners even for those that did not change."""
        stamp = self._stamp
        nodes = await self._store.get_many([paths.unit_state(bundle) for bundle in bundles])
        for bundle, node in zip(bundles, nodes, strict=True):
            self._take_in(bundle, node, stamp, tell=tell)

    async def fresh(self, bundle: str) -> CachedRecord | None:
        """Read the record of a bundle now."""
        stamp = self._stamp
        node = await self._store.get(paths.unit_state(bundle))
        self._take_in(bundle, node, stamp)
        return self._stored.get(bundle)

    def _take_in(self, bundle: str, node: Node | None, stamp: int, *, tell: bool = False) -> None:
        """Keep what was read, unless this broker wrote the record since (`stamp`)."""
        before = self._stored.get(bundle)
        if before is not None and before.stamp > stamp:
            if node is None:  # deleted before or after that: read again
                self._changed[bundle] = None
                self._wake.set()
            if node is None or node.changed_txid < before.txid:
                return
        path = paths.unit_state(bundle)
        if node is None:
            self._corrupt.mended(path)
            if self._stored.pop(bundle, None) is not None or tell:
                self._tell(bundle, None)
            return
        if before is not None and node.changed_txid <= before.txid:
            if tell:
                self._tell(bundle, self.record(bundle))
            return
        record: StateRecord | None = None
        with self._corrupt.left_out("state", path):
            record = decode_record(node.value)
        last = before.record if before is not None else None
        self._stored[bundle] = CachedRecord(
            last if record is None else record,
            node.version,
            node.changed_txid,
            self._clock.monotonic_s(),
            corrupt=record is None,
        )
        self._tell(bundle, record)

    async def commit(
        self, conditions: Sequence[Operation], changes: Sequence[Writes]
    ) -> int | None:
        """Make the changes in one transaction; its id, or None if something changed meanwhile."""
        operations = [operation for writes in changes for operation in writes.operations]
        try:
            txid = await self._store.commit([*conditions, *operations])
        except VersionConflictError:
            return None
        for writes in changes:
            if writes.record is not None:
                self._wrote(writes.bundle, writes.record, writes.version, txid)
        return txid

    def _wrote(self, bundle: str, record: StateRecord, version: int, txid: int) -> None:
        self._stamp += 1
        before = self._stored.get(bundle)
        if before is not None and before.txid >= txid:
            return
        self._stored[bundle] = CachedRecord(
            record, version, txid, self._clock.monotonic_s(), stamp=self._stamp
        )
        self._tell(bundle, record)

    def _tell(self, bundle: str, record: StateRecord | None) -> None:
        for future in self._waiting.pop(bundle, ()):
            if not future.done():
                future.set_result(None)
        for listener in self.listeners:
            listener(bundle, record)

    async def changed(self, bundle: str) -> None:
        """Return at the next change of a record."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(bundle, []).append(future)
        try:
            await future
        finally:
            waiting = self._waiting.get(bundle)
            if waiting is not None and future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._waiting[bundle]

    async def until(
        self, bundle: str, condition: Callable[[StateRecord | None], bool], timeout_s: float
    ) -> bool:
        """Wait until a record fulfils a condition; False: not in time. A condition may also become
        true without a change of the record: its owner's session ends, say.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not condition(self.record(bundle)):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOKED_AGAIN_S):
                            await self.changed(bundle)
        except TimeoutError:
            return False
        return True
