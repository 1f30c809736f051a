"""The server from one start to its end: it listens, writes, and ends sessions."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import structlog

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.listener import Listener
from loadmanager.kit.system.open_files import connections_cap
from loadmanager.kit.tasks import Scope, Steps, every
from loadmanager.kit.zookeeper.embedded.commits import TreeCommits
from loadmanager.kit.zookeeper.embedded.connection import StoreConnection
from loadmanager.kit.zookeeper.embedded.connections import StoreConnections
from loadmanager.kit.zookeeper.embedded.file import TreeFile
from loadmanager.kit.zookeeper.embedded.service import TreeService
from loadmanager.kit.zookeeper.embedded.sessions import TreeSessions

TICK_S = 0.1
"""How often it is looked which sessions are over."""
SWEEP_S = 60.0
"""How often containers and nodes with a time to live are looked at."""
CONNECTIONS_MAX = 10_000
"""Fewer if the number of open files is limited."""

log = structlog.get_logger("store")


async def serve(scope: Scope, clock: Clock, folder: Path, sock: socket.socket) -> StoreServing:
    """Serve the tree of the file in this folder. Raises `OperationalError`."""
    file = TreeFile(folder)
    tree, stored = await asyncio.to_thread(file.open)
    sessions = TreeSessions(stored, clock.monotonic_s(), clock.now_ms())
    commits = TreeCommits(tree, sessions, file, clock)
    service = TreeService(tree, sessions, commits, clock)
    place = (sock.getsockname()[1], str(folder), round(TICK_S * 1000))
    most = min(connections_cap() or CONNECTIONS_MAX, CONNECTIONS_MAX)
    connections = StoreConnections(service, commits, clock, most, place)
    serving = StoreServing(service, commits, connections, file, clock)
    serving.start(scope, sock)
    return serving


class StoreServing:
    """Runs until `stop`, or until the file cannot be written; `serve` makes it."""

    def __init__(
        self,
        service: TreeService,
        commits: TreeCommits,
        connections: StoreConnections,
        file: TreeFile,
        clock: Clock,
    ) -> None:
        self._service = service
        self._commits = commits
        self._connections = connections
        self._file = file
        self._clock = clock
        self._last_tick_s = clock.monotonic_s()
        self._listener: Listener | None = None
        self._timers: list[asyncio.Task[None]] = []
        self._committing: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        self.reason = ""
        """Why it ended, for people."""

    def start(self, scope: Scope, sock: socket.socket) -> None:
        """Listen on a socket that is bound."""
        steps = Steps()
        self._committing = scope.spawn(self._commit(), "commits")
        self._timers = [
            scope.spawn(every(lambda: TICK_S, self._tick, "sessions", steps), "sessions"),
            scope.spawn(
                every(lambda: SWEEP_S, self._sweep, "sweep", steps, first_after_s=None), "sweep"
            ),
        ]
        self._listener = Listener(
            sock,
            lambda: StoreConnection(self._connections, self._clock.monotonic_s()),
            self._connections.failed,
            spawn=scope.spawn,
        )

    async def stop(self) -> None:
        """Hang up on everybody, write what is not written, and close the file."""
        self._hang_up()
        self._commits.stop()
        if self._committing is not None:
            await self._committing

    def _hang_up(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for timer in self._timers:
            timer.cancel()
        self._connections.abort_all()

    async def _commit(self) -> None:
        try:
            await self._commits.run()
        except OperationalError as error:
            self.reason = str(error)
        except Exception as error:  # noqa: BLE001 - the supervisor is told that it ended
            self._connections.failed("the store cannot write", error)
            self.reason = f"{type(error).__name__} {error}"
        finally:
            self._hang_up()  # what nobody was told of may be lost
            await asyncio.to_thread(self._file.close)
            self.ended.set()

    async def _tick(self) -> None:
        """End sessions. The time in which nobody could be heard, because this process stood still
        or the disk did not answer, counts against none.
        """
        now_s = self._clock.monotonic_s()
        passed_s = now_s - self._last_tick_s
        writing_s = self._commits.writing_since_s
        waited = writing_s is not None and writing_s <= self._last_tick_s
        deaf_s = passed_s if waited else passed_s - 2 * TICK_S
        self._last_tick_s = now_s
        if deaf_s > 0:
            self._service.sessions.postpone(deaf_s)
        self._connections.end_overdue()

    async def _sweep(self) -> None:
        self._service.sweep()
