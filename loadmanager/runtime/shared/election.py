"""Leader election on any metadata store: one ephemeral node, whose holder leads (Pulsar `LeaderElection`).

The node's JSON is Pulsar's, with one more field: the epoch, counted up in a second node by the transaction that creates the first. Two terms never
share an epoch, and a leader whose lease runs out considers itself deposed before the store lets anybody else create the node.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator

from loadmanager.ports.clock import Clock
from loadmanager.ports.election import Leader
from loadmanager.ports.store import Change, Create, Node, Operation, Put, Store, VersionConflictError
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.documents import read_object, write_object
from loadmanager.runtime.shared.latest import Latest
from loadmanager.runtime.tasks import sleep

LEASE_CHECK_S = 0.1
RETRY_S = 0.1
STAND_AGAIN_S = 1.0
LOOK_AGAIN_S = 5.0
"""How long a candidate trusts the watch alone."""


class StoreElection:
    """Implements `ports.election.Election`. `on_change` must be fed by a watch on `path`."""

    def __init__(self, store: Store, clock: Clock, *, broker_id: str, web_url: str, path: str = paths.LEADER) -> None:
        self._store = store
        self._clock = clock
        self._broker_id = broker_id
        self._web_url = web_url
        self._path = path
        self._epoch_path = f"{paths.LEADER_EPOCHS}{path}"
        self._seen: Latest[tuple[Leader | None, int]] = Latest((None, 0))
        self._stands_from_s = 0.0

    @property
    def leader(self) -> Leader | None:
        """The leader as last seen."""
        return self._seen.value[0]

    async def on_change(self, _change: Change) -> None:
        """A watch on the node reports."""
        await self._look()

    async def _look(self) -> tuple[Leader | None, int]:
        """Read who leads: the leader and its session."""
        node = await self._store.get(self._path)
        seen = (_leader_of(node, self._path), node.ephemeral_owner) if node else (None, 0)
        if seen != self._seen.value:
            self._seen.set(seen)
        return seen

    async def leaders(self) -> AsyncIterator[Leader | None]:
        """Every change of leader, the present one first."""
        async for leader, _ in self._seen.follow():
            yield leader

    async def campaign(self) -> Leader:
        """Wait until this process leads."""
        while True:
            mine = await self._try() if self._clock.monotonic_s() >= self._stands_from_s else None
            if mine is not None:
                return mine
            if self.leader is None:
                await sleep(RETRY_S)  # lost a race, or may not stand now: nothing will tell when to try again
            else:
                await self._seen.changed(LOOK_AGAIN_S)

    async def _try(self) -> Leader | None:
        """Create the node if there is none; our term if it is ours now."""
        leader, session_id = await self._look()
        if leader is None and self._store.lease.held(self._clock.monotonic_s()):
            await self._store.create(self._path.rpartition("/")[0], b"")  # a transaction makes no parents
            await self._store.create(self._epoch_path, b"")
            counter = await self._store.get(self._epoch_path)
            epoch = counter.version + 1 if counter else 1
            value = {"serviceUrl": self._web_url, "brokerId": self._broker_id, "epoch": epoch}
            operations: list[Operation] = [
                Put(self._epoch_path, b"", version=epoch - 1),
                Create(self._path, write_object(value), ephemeral=True),
            ]
            with contextlib.suppress(VersionConflictError):  # somebody was faster
                await self._store.commit(operations)
            leader, session_id = await self._look()
        ours = session_id != 0 and session_id == self._store.session_id
        return leader if ours and self._store.lease.held(self._clock.monotonic_s()) else None

    async def lost(self) -> None:
        """Return when our term is over."""
        session_id = self._store.session_id
        while self._store.session_id == session_id and self._store.lease.held(self._clock.monotonic_s()):
            leader, owner = self._seen.value
            if leader is None or owner != session_id:
                return
            await self._seen.changed(LEASE_CHECK_S)

    async def resign(self, *, stand_again: bool = False) -> None:
        """Give up the leadership, and campaign no more, or only after the others had the time to take it."""
        if stand_again:
            self._stands_from_s = self._clock.monotonic_s() + STAND_AGAIN_S
        else:
            self._stands_from_s = math.inf
        node = await self._store.get(self._path)
        if node is not None and node.ephemeral_owner == self._store.session_id:
            await self._store.delete(self._path, version=node.version)


def _leader_of(node: Node, path: str) -> Leader:
    value = read_object(node.value, path)
    epoch = value.get("epoch", 0)
    return Leader(str(value.get("brokerId", "")), str(value.get("serviceUrl", "")), epoch if isinstance(epoch, int) else 0)
