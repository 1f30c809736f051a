"""Leader election on any metadata store: one ephemeral node, whose holder leads (Pulsar
`LeaderElection`).

The node's JSON is Pulsar's, with one more field: the epoch. A second node counts epochs: it is
written by the transaction that creates the first. Two terms never share an epoch, even of one
broker in one session: whoever finds a node of its own that it does not know replaces it. A leader
whose lease runs out considers itself deposed before the store lets anybody else create the node.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable

import structlog

from loadmanager.core.errors import CorruptDataError
from loadmanager.ports.clock import Clock
from loadmanager.ports.election import Leader, Term
from loadmanager.ports.store import (
    Change,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    Store,
    VersionConflictError,
    delete_below,
)
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.documents import Corrupt, read_object, write_object
from loadmanager.runtime.shared.latest import Latest
from loadmanager.runtime.tasks import sleep

RETRY_S = 0.1
STAND_AGAIN_S = 1.0
LOOK_AGAIN_MIN_S, LOOKS_PER_TIMEOUT = 5.0, 4
"""In case the watch missed a change, a candidate reads the leader's node so many times in a session
timeout, but at most every five seconds.
"""
EPOCH_MAX = 10**15
"""A greater epoch is nonsense: a term every millisecond takes thirty thousand years to come that
far.
"""

log = structlog.get_logger("leadership")


class StoreElection:
    """Competes for one leadership through an ephemeral node (Pulsar `LeaderElection`).

    `on_change` must be fed by a watch on `path`. `seen` is told of each leader the moment it is
    read, before anybody follows: orders may come already.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        broker_id: str,
        web_url: str,
        corrupt: Corrupt | None = None,
        seen: Callable[[Leader], None] = lambda leader: None,
        path: str = paths.LEADER,
    ) -> None:
        self._tell = seen
        self._store = store
        self._clock = clock
        self._broker_id = broker_id
        self._web_url = web_url
        self._corrupt = corrupt or Corrupt()
        self._path = path
        self._epoch_path = f"{paths.LEADER_EPOCHS}{path}"
        self._seen: Latest[tuple[Leader | None, int]] = Latest((None, 0))
        self._epoch_seen = 0
        self._term: Term | None = None
        """The last term of this process."""
        self._stands_from_s = 0.0

    @property
    def leader(self) -> Leader | None:
        """The leader as last seen."""
        return self._seen.value[0]

    async def on_change(self, _change: Change) -> None:
        """A watch on the node reports."""
        await self._look()

    async def _look(self) -> Node | None:
        """Read who leads, and in which session."""
        node = await self._store.get(self._path)
        leader = None
        if node is not None:
            with self._corrupt.left_out("leader", self._path):
                leader = _leader_of(node, self._path)
        self._see(leader, node.ephemeral_owner if node else 0)
        return node

    def _see(self, leader: Leader | None, session_id: int) -> None:
        if leader is not None:
            self._epoch_seen = max(self._epoch_seen, leader.epoch)
            self._tell(leader)
        if (leader, session_id) != self._seen.value:
            self._seen.set((leader, session_id))

    async def leaders(self) -> AsyncIterator[Leader | None]:
        """Every change of leader, the present one first."""
        async for leader, _ in self._seen.follow():
            yield leader

    # Terms

    async def campaign(self) -> Term:
        """Wait until this process leads, and return its term.

        Raises `OperationalError` when the store does not answer.
        """
        while True:
            mine = await self._try() if self._clock.monotonic_s() >= self._stands_from_s else None
            if mine is not None:
                return mine
            if self.leader is None:
                # lost a race, or may not stand now: nothing will tell when to try again
                await sleep(RETRY_S)
            else:
                await self._seen.changed(self._look_again_s)

    async def _try(self) -> Term | None:
        """Begin a term, unless another session holds the node."""
        session_id = self._store.session_id
        if not self._proven or self._taken(await self._look()):
            return None
        # a transaction makes no parents
        await self._store.create(self._path.rpartition("/")[0], b"")
        await self._store.create(self._epoch_path, b"")
        counter = await self._store.get(self._epoch_path)
        # after the counter: whoever begins a term from now on changes that
        node = await self._look()
        if counter is None or self._taken(node):
            return None
        mine = Leader(
            self._broker_id,
            self._web_url,
            max(_number(counter.value), counter.version, self._epoch_seen) + 1,
        )
        value = {"serviceUrl": mine.service_url, "brokerId": mine.broker_id, "epoch": mine.epoch}
        if node is not None and node.ephemeral_owner == 0:
            await delete_below(self._store, self._path)
        operations: list[Operation] = [
            Put(self._epoch_path, str(mine.epoch).encode(), version=counter.version)
        ]
        if node is not None:  # of an earlier term of ours, or of nobody's session
            operations.append(Delete(self._path, node.version))
        operations.append(Create(self._path, write_object(value), ephemeral=True))
        try:
            await self._store.commit(operations)
        except VersionConflictError:  # somebody was faster
            return None
        if session_id != self._store.session_id or not self._proven:
            return None
        self._see(mine, session_id)
        self._term = Term(mine, (Check(self._epoch_path, counter.version + 1), Check(self._path)))
        return self._term

    def _taken(self, node: Node | None) -> bool:
        """Whether another session holds the leader's node."""
        return node is not None and node.ephemeral_owner not in (0, self._store.session_id)

    @property
    def _look_again_s(self) -> float:
        return max(LOOK_AGAIN_MIN_S, self._store.session_timeout_s / LOOKS_PER_TIMEOUT)

    @property
    def _proven(self) -> bool:
        return self._store.lease.held(self._clock.monotonic_s())

    async def lost(self, term: Term) -> None:
        """Return when the term is over: the session is lost, or the node is no longer ours."""
        session_id = self._store.session_id
        while self._store.session_id == session_id and self._seen.value == (
            term.leader,
            session_id,
        ):
            left_s = self._store.lease.valid_until_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            await self._seen.changed(min(left_s, self._look_again_s))

    def session_lost(self) -> None:
        """Whoever leads is unknown until the store answers again; we do not."""
        self._see(None, 0)

    async def resign(self, *, stand_again: bool = False) -> None:
        """Give up the leadership, and campaign no more, or only after the others had the time to
        take it.
        """
        if stand_again:
            self._stands_from_s = self._clock.monotonic_s() + STAND_AGAIN_S
        else:
            self._stands_from_s = math.inf
        node = await self._store.get(self._path)
        if (
            self._term is not None
            and node is not None
            and node.ephemeral_owner == self._store.session_id
        ):
            # In the term's own transaction: the session may expire meanwhile, and the node be
            # somebody else's.
            with contextlib.suppress(VersionConflictError):
                await self._store.commit([*self._term.fence, Delete(self._path)])


def _leader_of(node: Node, path: str) -> Leader:
    """The leader that the node names.

    Raises `CorruptDataError` when it names nobody. Pulsar's own brokers write no epoch: 0.
    """
    value = read_object(node.value, path)
    epoch, broker_id, url = (
        value.get("epoch", 0),
        value.get("brokerId"),
        value.get("serviceUrl", ""),
    )
    if (
        not isinstance(broker_id, str)
        or not isinstance(url, str)
        or not isinstance(epoch, int)
        or not 0 <= epoch <= EPOCH_MAX
    ):
        raise CorruptDataError(f"{path} names no leader; it is replaced when nobody holds it")
    return Leader(broker_id, url, epoch)


def _number(value: bytes) -> int:
    """The epoch that the counter's value tells; 0 for anything else."""
    return (
        number
        if value.isdigit() and len(value) <= 18 and (number := int(value)) <= EPOCH_MAX
        else 0
    )
