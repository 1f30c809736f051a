"""Daemons of one cluster on several hosts: the one that holds a lock in ZooKeeper leads, the others
wait. The wishes of operators are there, too, so that they outlive the daemon that leads.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.election import StoreElection
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.metadata.store import Put, SessionState, Store, VersionConflictError
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.tasks import Scope, retrying, sleep
from loadmanager.leader.ports.wishes import WishBook
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.steer.ports.note import Note, check_size

TERM_INTERVAL_S = 1.0
"""Between the end of a term and the next campaign."""

Lead = Callable[[Term, WishBook, Note], Coroutine[Any, Any, None]]
"""A daemon's work, until cancelled."""

log = get_logger("fleet")


class StoreNote:
    """Implements `steer.ports.note.Note` in the metadata store, under the checks of a term."""

    def __init__(self, store: Store, term: Term) -> None:
        self._store = store
        self._term = term

    @property
    def name(self) -> str:
        return paths.ACTED

    async def read(self) -> bytes | None:
        node = await self._store.get(paths.ACTED)
        return None if node is None else node.value

    async def write(self, value: bytes) -> None:
        """See the port. Raises `OperationalError` if the term is over, too."""
        check_size(self.name, value)
        await self._store.create(paths.ACTED, b"")
        try:
            await self._store.commit([*self._term.checks, Put(paths.ACTED, value)])
        except VersionConflictError:
            raise OperationalError("this daemon's term is over") from None


class Terms:
    """Leads while this daemon's session holds the lock. The store belongs to one cluster."""

    def __init__(
        self, store: Store, clock: Clock, *, broker_id: str, web_url: str, lead: Lead
    ) -> None:
        corrupt = Corrupt()
        self._store = store
        self._lead = lead
        self._election = StoreElection(
            store, clock, broker_id=broker_id, web_url=web_url, corrupt=corrupt
        )
        self._wishes = OperatorWishes(store, clock, corrupt)

    async def run(self) -> None:
        """Wait and lead in turns, until cancelled. Raises `OperationalError` when the connection
        to the store has ended for good.
        """
        watchers = (
            Watcher(self._store, paths.LEADER, self._election.on_change),
            Watcher(self._store, paths.WISHES, self._wishes.on_change),
        )
        async with Scope("terms") as scope:
            for watcher in watchers:
                scope.spawn(watcher.run(), watcher.root)
            scope.spawn(self._follow_session(), "session")
            for watcher in watchers:
                await watcher.synced.wait()
            while True:
                await self._one_term()
                await sleep(TERM_INTERVAL_S)

    async def _follow_session(self) -> None:
        async for state in self._store.session_states():
            if state is SessionState.LOST:
                self._election.session_lost()
        raise OperationalError("the connection to the metadata store has ended for good")

    async def _one_term(self) -> None:
        log.info("waiting for the lock in the metadata store")
        term = await retrying(self._election.campaign, "campaign")
        log.info("this daemon leads", epoch=term.epoch)
        async with Scope(f"term-{term.epoch}") as scope:
            scope.spawn(self._until_lost(term, scope), "until-lost")
            note = StoreNote(self._store, term)
            scope.spawn(self._lead(term, self._wishes, note), "lead")
        log.warning("the lock is lost: another daemon may lead", epoch=term.epoch)

    async def _until_lost(self, term: Term, scope: Scope) -> None:
        await self._election.lost(term)
        scope.cancel()
