"""All connections of the server: which session each has, and how much they hold together."""

from __future__ import annotations

import asyncio

import structlog

from loadmanager.kit.clock import Clock
from loadmanager.kit.zookeeper.embedded.client import HELD_BYTES_MAX
from loadmanager.kit.zookeeper.embedded.commits import TreeCommits
from loadmanager.kit.zookeeper.embedded.connection import StoreConnection
from loadmanager.kit.zookeeper.embedded.records import ConnectRequest
from loadmanager.kit.zookeeper.embedded.service import TreeService
from loadmanager.kit.zookeeper.embedded.sessions import SESSIONS_MAX
from loadmanager.kit.zookeeper.embedded.words import StoreFigures, answer_to

LOG_INTERVAL_S = 60.0
"""How often it is logged at most that there are too many sessions."""
HANDSHAKE_S, GOODBYE_S = 10.0, 10.0
"""A client has so long to ask for a session, and to read the last answer."""

log = structlog.get_logger("store")


class StoreConnections:
    """Implements `connection.ConnectionKeeper`."""

    def __init__(
        self,
        service: TreeService,
        commits: TreeCommits,
        clock: Clock,
        connections_max: int,
        place: tuple[int, str, int],
    ) -> None:
        """`place`: port, folder and tick in milliseconds, for the four-letter words."""
        self._service = service
        self._commits = commits
        self._clock = clock
        self._connections_max = connections_max
        self._place = place
        self._connections: dict[StoreConnection, None] = {}
        self._by_session: dict[int, StoreConnection] = {}
        self._full = False
        self._room_logged_s: float | None = None
        self._relieving = False
        """True while a look at what all hold is scheduled."""
        self.requests = 0

    def opened(self, connection: StoreConnection) -> bool:
        """A connection was made. If there are too many, the oldest without a session gives way.
        False: there is none.
        """
        if len(self._connections) >= self._connections_max:
            if not self._full:
                log.warning(
                    "too many connections; those that come are refused", most=self._connections_max
                )
            self._full = True
            silent = next((each for each in self._connections if not each.session_id), None)
            if silent is None:
                return False
            silent.abort()
            del self._connections[silent]
        else:
            self._full = False
        self._connections[connection] = None
        return True

    def closed(self, connection: StoreConnection) -> None:
        """A connection is gone; its session goes on until its end."""
        self._connections.pop(connection, None)
        if self._by_session.get(connection.session_id) is connection:
            del self._by_session[connection.session_id]
        self._service.watches.forget(connection)
        self._commits.forget(connection)

    def connect(self, connection: StoreConnection, wanted: ConnectRequest) -> None:
        """Give a connection a session. An older one with the same session is hung up on."""
        if wanted.last_zxid > self._service.tree.zxid:
            log.warning(
                "hung up on a client that has seen a later state than this one: is the store's "
                "file an older one, or a new one?",
                client=connection.address,
            )
            connection.abort()
            return
        if not wanted.session_id and self._service.sessions.full:
            self._make_room()
        if not self._service.connect(connection, wanted):
            self._commits.send(connection, None)
            return
        before = self._by_session.get(connection.session_id)
        self._by_session[connection.session_id] = connection
        if before is not None and before is not connection:
            before.abort()

    def _make_room(self) -> None:
        """End sessions that have neither a connection nor a node: nobody would miss them."""
        tree = self._service.tree
        ended = self._service.sessions.idlest(
            lambda each: each not in self._by_session and not tree.ephemerals_of(each)
        )
        for session_id in ended:
            self._service.end_session(session_id)
        now_s = self._clock.monotonic_s()
        if self._room_logged_s is None or now_s - self._room_logged_s > LOG_INTERVAL_S:
            self._room_logged_s = now_s
            log.warning(
                "too many sessions; ended the idlest of those without a connection and without "
                "nodes"
                if ended
                else "too many sessions; new ones are refused",
                most=SESSIONS_MAX,
                ended=len(ended),
            )

    def answer(self, connection: StoreConnection, frame: bytes) -> None:
        """Do what a request asks for. Raises `MalformedRecordError`."""
        self.requests += 1
        session = self._service.session_of(connection)
        if session is None:  # it has ended, and so will the connection
            return
        session.touch(self._clock.monotonic_s())
        self._service.answer(connection, frame)

    def words(self, word: bytes) -> bytes:
        """The answer to a four-letter word."""
        return answer_to(word, self._figures())

    def reads_again(self) -> None:
        """What waits for a connection can leave."""
        self._commits.wanted()

    def relieve(self) -> None:
        """Hang up on the connections that hold most, if all hold too much: once per turn of the
        loop, however often it is asked for, since it looks at every connection.
        """
        if not self._relieving:
            self._relieving = True
            asyncio.get_running_loop().call_soon(self._relieve_now)

    def _relieve_now(self) -> None:
        self._relieving = False
        sizes = {each: each.footprint for each in self._connections}
        excess = sum(sizes.values()) - HELD_BYTES_MAX
        if excess <= 0:
            return
        for greatest in sorted(sizes, key=sizes.__getitem__, reverse=True):
            log.warning(
                "clients make the store hold too much; hung up on the one with the most",
                client=greatest.address,
                bytes=sizes[greatest],
            )
            greatest.abort()
            excess -= sizes[greatest]
            if excess <= 0:
                return

    def failed(self, what: str, error: Exception) -> None:
        """A bug was met."""
        log.error(what, exc_info=error)

    def end_overdue(self) -> None:
        """End the sessions of which nothing was heard in time, and connections that linger."""
        now_s = self._clock.monotonic_s()
        for session_id in self._service.sessions.overdue(now_s):
            self._service.end_session(session_id)
            connection = self._by_session.get(session_id)
            if connection is not None:
                self._commits.send(connection, None)
        for each in list(self._connections):
            leaves = each.ending or (each.dismissed and each.paused)
            limit_s = GOODBYE_S if leaves else HANDSHAKE_S
            if (leaves or not each.session_id) and now_s - each.since_s > limit_s:
                each.abort()

    def abort_all(self) -> None:
        """Hang up on everybody."""
        for each in list(self._connections):
            each.abort()

    def _figures(self) -> StoreFigures:
        port, data_dir, tick_ms = self._place
        tree, waits = self._service.tree, self._commits.waits
        return StoreFigures(
            port=port,
            data_dir=data_dir,
            tick_ms=tick_ms,
            connections=tuple(
                f"/{each.address}[1](queued=0,recved={each.requests},sent={each.answers})"
                for each in self._connections
            ),
            requests=self.requests,
            answers=waits.count,
            waiting=self._commits.waiting,
            mean_ms=waits.sum_s / waits.count * 1000 if waits.count else 0.0,
            longest_ms=round(waits.longest_s * 1000),
            zxid=tree.zxid,
            nodes=len(tree),
            watches=len(self._service.watches.data) + len(self._service.watches.children),
            ephemerals=sum(len(tree.ephemerals_of(owner)) for owner in tree.owners),
            sessions=len(self._service.sessions),
            cost_bytes=tree.cost,
        )
