"""A simulated metadata store: one server, and a client with an unreliable connection per broker.

The faults are those of real clients: an operation takes effect, but its answer is lost; it takes
effect long after the client stopped waiting; the connection drops, goes silent, or lives for
milliseconds; the session expires; the server restarts; notifications come late, or are lost and
followed by a RESYNC. As in ZooKeeper, the server executes the operations of a session in the order
in which they were sent, and ends a session no earlier than one session timeout after it last heard
from the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from simulation.world import Machine, World

from loadmanager.kit.bounded_queue import BoundedQueue
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.metadata.memory import HEARTBEATS_PER_TIMEOUT, MemoryTree, TreeClient
from loadmanager.kit.metadata.store import Change, ChangeKind, Delete, Node, Operation, SessionState

LEASE_FRACTION = 0.84
OPERATION_TIMEOUT_S = 10.0
CONNECT_S = 0.02

T = TypeVar("T")


class Tree(MemoryTree):
    """The nodes; reports when a session deletes a node that another session holds."""

    on_robbery: Callable[[str, int, int], None] = staticmethod(lambda path, owner, session_id: None)

    def apply(self, operations: Sequence[Operation], session_id: int) -> None:
        """Apply the operations, and tell of nodes that one session deleted of another."""
        held = {
            operation.path: self.nodes[operation.path].ephemeral_owner
            for operation in operations
            if operation.path in self.nodes
        }
        super().apply(operations, session_id)
        for operation in operations:
            owner = held.get(operation.path, 0)
            if isinstance(operation, Delete) and session_id and owner not in (0, session_id):
                self.on_robbery(operation.path, owner, session_id)


class Server:
    """The server: its tree, its sessions, and whether it is up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tree = Tree()
        self.tree.sessions.append(self)  # type: ignore[arg-type]
        self.up = True
        self.sessions: dict[int, float] = {}
        """Session → when the server last heard from it."""
        self.timeouts: dict[int, float] = {}
        self.clients: list[Client] = []
        self.after_read: dict[str, Callable[[], None]] = {}
        """Path → what happens right after the next read of it."""
        self.on_change: Callable[[Change], None] = lambda change: None

    def notify(self, change: Change) -> None:
        """Pass on a change of the tree, which calls this."""
        self.on_change(change)
        for client in self.clients:
            client.notify(change)

    def begin(self, timeout_s: float) -> int:
        """A new session."""
        session_id = self.tree.next_session_id()
        self.sessions[session_id] = self.world.now_s
        self.timeouts[session_id] = timeout_s
        self._watch(session_id)
        return session_id

    def _watch(self, session_id: int) -> None:
        if session_id not in self.sessions:
            return
        over_s = self.sessions[session_id] + self.timeouts[session_id]
        if self.up and self.world.now_s >= over_s:
            self.end(session_id, "expired")
        else:
            self.world.at(max(over_s, self.world.now_s + 0.05), lambda: self._watch(session_id))

    def read(self, path: str) -> Node | None:
        """A node, which `after_read` may change a moment later."""
        trap = self.after_read.pop(path, None)
        if trap is not None:
            self.world.after(0.0, trap)
        return self.tree.nodes.get(path)

    def end(self, session_id: int, how: str) -> None:
        """End a session, and delete its ephemeral nodes."""
        if self.sessions.pop(session_id, None) is not None:
            self.world.note(f"session 0x{session_id:x} {how}")
            self.tree.end_session(session_id)

    def stop(self) -> None:
        """Stop the server; every connection drops."""
        self.world.note("the store stops")
        self.up = False
        for client in list(self.clients):
            client.cut()

    def start(self) -> None:
        """Start the server with its data; every session has its whole timeout again."""
        self.world.note("the store starts")
        self.up = True
        for session_id in self.sessions:
            self.sessions[session_id] = self.world.now_s


class _Request:
    """One operation on its way."""

    __slots__ = ("call", "future", "transaction")

    def __init__(
        self, call: Callable[[], Any], future: asyncio.Future[Any], *, transaction: bool = False
    ) -> None:
        self.call, self.future, self.transaction = call, future, transaction


class Client(TreeClient):
    """Implements `kit.metadata.store.Store` for one broker's process."""

    def __init__(self, server: Server, machine: Machine, timeout_s: float) -> None:
        super().__init__(server.tree, timeout_s)
        self.server, self.machine, self.world = server, machine, server.world
        self._connection = 0
        """Number of the present connection; 0 without one."""
        self._connections = 0
        self._silent = False
        """Whether the connection loses everything, in both directions, without an error."""
        self._to_server_s = self._to_client_s = self._events_s = 0.0
        self._queue: list[_Request] = []
        self._pending: list[_Request] = []
        self.heard_s = 0.0
        """When the last answer came, or the connection."""
        self._installed: dict[BoundedQueue[Change], int] = {}
        """Watch → the connection over which the server notifies it."""
        self.answer_lag_s = self.event_lag_s = 0.0
        """How much longer answers and notifications may take at present."""
        self.loses_next_answer = False
        """The connection drops between the next transaction and its answer."""
        self.reachable = True
        self.on_read: Callable[[str, Node | None], None] = lambda path, node: None
        server.clients.append(self)

    # Connection: runs on the client's machine unless marked otherwise

    def begin(self) -> None:
        """Connect for the first time."""
        self._reconnect()
        self._heartbeat()

    def close(self) -> None:
        """End the session at once, because the process ends gracefully."""
        self.closed = True
        self._lease.revoke()
        self.server.clients.remove(self)
        session_id = self._session_id
        if self._connection and not self._silent:
            self.server.end(session_id, "closed")

    def died(self) -> None:
        """Stop without a word to the server, because the process was killed."""
        self.closed = True
        self._connection = 0
        if self in self.server.clients:
            self.server.clients.remove(self)

    def cut(self) -> None:
        """(Anywhere.) Drop the connection; the client notices a moment later."""
        connection = self._connection
        if connection:
            self._connection = 0
            self._soon(lambda: self._dropped(connection))

    def silence(self) -> None:
        """(Anywhere.) Make the connection silent; the client notices after 2/3 of the timeout."""
        self._silent = True

    def _soon(self, call: Callable[[], None], delay_s: float | None = None) -> None:
        """Run on the client's machine after a moment, unless its process has died."""

        def deliver() -> None:
            if not self.closed and not self.machine.crashed:
                self.machine.call_soon(call)

        self.world.after(self.world.delay_s() if delay_s is None else delay_s, deliver)

    def _dropped(self, connection: int) -> None:
        if connection != self._connections or self._state is not SessionState.CONNECTED:
            return
        self._become(SessionState.SUSPENDED)
        pending, self._pending = self._pending, []
        for request in pending:
            _fail(request, "ConnectionLoss")
        self._soon(self._reconnect, CONNECT_S)

    def _reconnect(self) -> None:
        if not self.server.up or not self.reachable:
            self._soon(self._reconnect, 0.1 + self.world.delay_s(0.2))
            return
        server = self.server
        if self._session_id and self._session_id not in server.sessions:
            self._session_id = 0
            self._lease.revoke()
            self._become(SessionState.LOST)
        if not self._session_id:
            self._session_id = server.begin(self._timeout_s)
        server.sessions[self._session_id] = self.world.now_s
        self._connections += 1
        self._connection, self._silent = self._connections, False
        self._to_server_s = self._to_client_s = self._events_s = self.heard_s = self.world.now_s
        self._become(SessionState.CONNECTED)
        for root, changes in self._watches:
            self._install(root, changes)
        queue, self._queue = self._queue, []
        for request in queue:
            self._send(request)
        self._beat()

    def _heartbeat(self) -> None:
        if self.closed:
            return
        self.machine.call_later(self._timeout_s / HEARTBEATS_PER_TIMEOUT, self._heartbeat)
        if self._state is SessionState.CONNECTED:
            if self.world.now_s - self.heard_s > self._timeout_s * 2 / 3:
                connection, self._connection = self._connections, 0
                self._dropped(connection)
            else:
                self._beat()

    def _beat(self) -> None:
        sent_s, session_id = self.world.now_s, self._session_id
        future = self.machine.create_future()

        def proven(answer: asyncio.Future[Any]) -> None:
            if (
                not answer.cancelled()
                and answer.exception() is None
                and session_id == self._session_id
            ):
                self._lease.prove(sent_s, self._timeout_s * LEASE_FRACTION)

        future.add_done_callback(proven)
        self._send(_Request(lambda: None, future))

    # Requests

    def _send(self, request: _Request) -> None:
        """Send in order; the server executes what arrives while connection and session live."""
        connection, session_id = self._connection, self._session_id
        self._pending.append(request)
        if not connection or self._silent:
            return  # lost; the client learns of it when it notices the dead connection
        self._to_server_s = max(self._to_server_s + 1e-6, self.world.now_s + self.world.delay_s())
        self.world.at(self._to_server_s, lambda: self._arrive(request, connection, session_id))

    def _arrive(self, request: _Request, connection: int, session_id: int) -> None:
        """(Server.)"""
        if (
            connection != self._connection
            or self._silent
            or not self.server.up
            or session_id not in self.server.sessions
        ):
            return
        self.server.sessions[session_id] = self.world.now_s
        try:
            value, error = request.call(), None
        except ConflictError as conflict:
            value, error = None, conflict
        delay_s = self.world.delay_s() + self.answer_lag_s * self.world.rng.random()
        if request.transaction and self.loses_next_answer:
            self.loses_next_answer = False
            self.cut()
            return
        self._to_client_s = max(self._to_client_s + 1e-6, self.world.now_s + delay_s)
        self.world.at(self._to_client_s, lambda: self._answer(request, connection, value, error))

    def _answer(
        self, request: _Request, connection: int, value: Any, error: Exception | None
    ) -> None:
        """(On the wire to the client.)"""
        if connection != self._connection or self._silent or self.machine.crashed:
            return

        def settle() -> None:
            self.heard_s = self.world.now_s
            if request in self._pending:
                self._pending.remove(request)
            if request.future.done():
                return
            if error is not None:
                request.future.set_exception(error)
            else:
                request.future.set_result(value)

        if not self.closed:
            self.machine.call_soon(settle)

    async def _run(self, operation: Callable[[], T], *, transaction: bool = False) -> T:
        """Send an operation; it runs in the session of its arrival, as with kazoo."""
        if self.closed:
            raise OperationalError("the connection to the metadata store was closed")
        request = _Request(operation, self.machine.create_future(), transaction=transaction)
        if self._state is SessionState.CONNECTED:
            self._send(request)
        else:
            # As in kazoo: sent over the next connection, even if the caller has given up by then.
            self._queue.append(request)
        timer = self.machine.call_later(OPERATION_TIMEOUT_S, _too_late, request.future)
        try:
            result: T = await request.future
            return result
        finally:
            timer.cancel()

    async def get(self, path: str) -> Node | None:
        """Read a node."""
        node = await self._run(lambda: self.server.read(path))
        self.on_read(path, node)
        return node

    # Watches

    def _install(self, root: str, queue: BoundedQueue[Change]) -> None:
        """The watch stands when the server has it; only then is a reading complete."""
        connection = self._connection

        def install() -> None:
            self._installed[queue] = connection

        future = self.machine.create_future()
        future.add_done_callback(
            lambda answer: (
                None if answer.exception() else queue.put(Change(ChangeKind.RESYNC, root))
            )
        )
        self._send(_Request(install, future))

    def notify(self, change: Change) -> None:
        """(Server.) Send a notification; it may overtake answers, as with kazoo's threads."""
        connection = self._connection
        queues = [
            queue
            for root, queue in self._watches
            if self._installed.get(queue, 0) == connection and change.is_in(root)
        ]
        if not queues or not connection or self._silent:
            return
        delay_s = self.world.delay_s() + self.event_lag_s * self.world.rng.random()
        self._events_s = max(self._events_s + 1e-6, self.world.now_s + delay_s)

        def arrive() -> None:
            if (
                connection == self._connection
                and not self._silent
                and not self.closed
                and not self.machine.crashed
            ):
                self.machine.call_soon(lambda: [queue.put(change) for queue in queues])

        self.world.at(self._events_s, arrive)


def _too_late(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(OperationalError("the metadata store did not answer in time"))


def _fail(request: _Request, reason: str) -> None:
    if not request.future.done():
        request.future.set_exception(OperationalError(reason))
        request.future.exception()  # the caller may have been cancelled
