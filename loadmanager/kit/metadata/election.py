"""Leader election on any metadata store (Pulsar `LeaderElection`).

The leader is the broker whose session holds one ephemeral node. The node's JSON is Pulsar's, with
one more field: the epoch. A second node counts the epochs; the transaction that creates the
leader's node increments it, so every term has an epoch of its own. A broker that finds a node of
its own session from before its term replaces it. A leader whose lease runs out ends its term before
the store lets another broker create the node.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import CorruptDataError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt, read_object, write_object
from loadmanager.kit.metadata.latest import Latest
from loadmanager.kit.metadata.leader import Leader, Term
from loadmanager.kit.metadata.store import (
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
from loadmanager.kit.tasks import sleep

RETRY_S = 0.1
CANDIDATE_AGAIN_S = 1.0
POLL_MIN_S, POLLS_PER_TIMEOUT = 5.0, 4
"""In case the watch missed a change, a candidate reads the leader's node this often per session
timeout, but at most every five seconds.
"""
EPOCH_MAX = 10**15
"""With a term every millisecond this takes thirty thousand years. A greater epoch was
written by hand; no term continues it, and the epochs begin again at the counter's version.
"""

log = get_logger("leadership")


class StoreElection:
    """Competes for the leadership through the ephemeral node `path`.

    A watch on `path` must call `on_change`. `on_leader` is called as soon as a leader is read, even
    before `leaders` yields it, because the leader's orders may arrive before that.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        broker_id: str,
        web_url: str,
        corrupt: Corrupt | None = None,
        on_leader: Callable[[Leader], None] = lambda leader: None,
        path: str = paths.LEADER,
    ) -> None:
        self._on_leader = on_leader
        self._store = store
        self._clock = clock
        self._broker_id = broker_id
        self._web_url = web_url
        self._corrupt = corrupt or Corrupt()
        self.path = path
        self._epoch_path = f"{paths.LEADER_EPOCHS}{path}"
        self._latest: Latest[tuple[Leader | None, int]] = Latest((None, 0))
        """The leader and its session, as last read."""
        self._epoch_max = 0
        self._term: Term | None = None
        """The last term of this process."""
        self._candidate_from_s = 0.0

    @property
    def leader(self) -> Leader | None:
        """The leader, as last read."""
        return self._latest.value[0]

    async def on_change(self, _change: Change) -> None:
        """Read the leader after a change of the node."""
        await self._read()

    async def _read(self) -> Node | None:
        """Read the leader's node."""
        node = await self._store.get(self.path)
        leader = None
        if node is not None:
            with self._corrupt.left_out("leader", self.path):
                leader = _leader_of(node, self.path)
        self._set_leader(leader, node.ephemeral_owner if node else 0)
        return node

    def _set_leader(self, leader: Leader | None, session_id: int) -> None:
        if leader is not None:
            self._epoch_max = max(self._epoch_max, leader.epoch) if leader.epoch < EPOCH_MAX else 0
            self._on_leader(leader)
        if (leader, session_id) != self._latest.value:
            self._latest.set((leader, session_id))

    async def leaders(self) -> AsyncIterator[Leader | None]:
        """The present leader, then the leader after each change; None without a leader."""
        async for leader, _ in self._latest.follow():
            yield leader

    # Terms

    async def campaign(self) -> Term:
        """Wait until this process leads, and return its term.

        Raises `OperationalError` when the store does not answer.
        """
        while True:
            is_candidate = self._clock.monotonic_s() >= self._candidate_from_s
            term = await self._try() if is_candidate else None
            if term is not None:
                return term
            if self.leader is None:
                # No notification follows a lost race, nor the end of a pause after resigning.
                await sleep(RETRY_S)
            else:
                await self._latest.changed(self._poll_s)

    async def _try(self) -> Term | None:
        """Begin a term, unless another session holds the node."""
        session_id = self._store.session_id
        if not self._proven or self._taken(await self._read()):
            return None
        # A transaction does not create parents.
        await self._store.create(self.path.rpartition("/")[0], b"")
        await self._store.create(self._epoch_path, b"")
        counter = await self._store.get(self._epoch_path)
        # Read after the counter: a term that begins after this read changes the counter.
        node = await self._read()
        if counter is None or self._taken(node):
            return None
        leader = Leader(
            self._broker_id,
            self._web_url,
            max(_epoch_of(counter.value), counter.version, self._epoch_max) + 1,
        )
        value = {
            "serviceUrl": leader.service_url,
            "brokerId": leader.broker_id,
            "epoch": leader.epoch,
        }
        if node is not None and node.ephemeral_owner == 0:
            await delete_below(self._store, self.path)
        operations: list[Operation] = [
            Put(self._epoch_path, str(leader.epoch).encode(), version=counter.version)
        ]
        if node is not None:  # of an earlier term of this session, or persistent
            operations.append(Delete(self.path, node.version))
        operations.append(Create(self.path, write_object(value), ephemeral=True))
        try:
            await self._store.commit(operations)
        except VersionConflictError:  # another broker was faster
            return None
        if session_id != self._store.session_id or not self._proven:
            return None
        self._set_leader(leader, session_id)
        self._term = Term(leader, (Check(self._epoch_path, counter.version + 1), Check(self.path)))
        return self._term

    def _taken(self, node: Node | None) -> bool:
        """True if another session holds the leader's node."""
        return node is not None and node.ephemeral_owner not in (0, self._store.session_id)

    @property
    def _poll_s(self) -> float:
        return max(POLL_MIN_S, self._store.session_timeout_s / POLLS_PER_TIMEOUT)

    @property
    def _proven(self) -> bool:
        return self._store.lease.held(self._clock.monotonic_s())

    async def lost(self, term: Term) -> None:
        """Return when the term is over: the session is lost, or the node is no longer ours."""
        session_id = self._store.session_id
        while self._store.session_id == session_id and self._latest.value == (
            term.leader,
            session_id,
        ):
            left_s = self._store.lease.valid_until_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            await self._latest.changed(min(left_s, self._poll_s))

    def session_lost(self) -> None:
        """End the term of this broker; the leader is unknown until the store answers again."""
        self._set_leader(None, 0)

    async def resign(self, *, campaign_again: bool = False) -> None:
        """Give up the leadership.

        `campaign_again`: become a candidate again after `CANDIDATE_AGAIN_S`, in which another
        broker can take the leadership; otherwise never.
        """
        if campaign_again:
            self._candidate_from_s = self._clock.monotonic_s() + CANDIDATE_AGAIN_S
        else:
            self._candidate_from_s = math.inf
        node = await self._store.get(self.path)
        if (
            self._term is not None
            and node is not None
            and node.ephemeral_owner == self._store.session_id
        ):
            # Fenced by the term: the session may expire meanwhile, and another broker lead.
            with contextlib.suppress(VersionConflictError):
                await self._store.commit([*self._term.checks, Delete(self.path)])


def _leader_of(node: Node, path: str) -> Leader:
    """The leader that the node names; the epoch is 0 where Pulsar's brokers wrote none.

    Raises `CorruptDataError` when it names none.
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
        or not 0 <= epoch <= 2 * EPOCH_MAX
    ):
        raise CorruptDataError(f"{path} names no leader; it is replaced when its session ends")
    return Leader(broker_id, url, epoch)


def _epoch_of(value: bytes) -> int:
    """The epoch that the counter contains; 0 if the value is corrupt."""
    return (
        number if value.isdigit() and len(value) <= 18 and (number := int(value)) < EPOCH_MAX else 0
    )
