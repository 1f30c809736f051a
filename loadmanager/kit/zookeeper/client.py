"""Adds to kazoo what it lacks.

That is persistent recursive watches (ZooKeeper 3.6+), the id of a transaction, the session timeout
that the server granted, a way to drop a dead connection, and a limit for the time that a server
takes to accept one.

Only this module uses kazoo's private attributes, so pyproject.toml pins kazoo's minor version.
"""

from __future__ import annotations

import contextlib
import logging
import random
import select
import socket
import ssl
import time
from collections import defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.serialization import Transaction, int_struct, write_string
from kazoo.protocol.states import Callback, WatchedEvent

from loadmanager.kit.errors import ConfigError
from loadmanager.kit.logger import get_logger

_PERSISTENT_RECURSIVE = 1

ROUNDS_PER_TIMEOUT = 6
"""How often each server can be tried without success within the session timeout."""
PATIENCE_MIN_S = 1.0
"""A server has at least this time to accept a connection, and as much to answer its first request,
unless the session timeout is too short to try each server once.
"""

Watcher = Callable[[WatchedEvent], None]

log = get_logger("zookeeper")


class _AddWatch(namedtuple("_AddWatch", "path mode")):
    """The request addWatch (opcode 106), which kazoo lacks."""

    type = 106

    def serialize(self) -> bytearray:
        """The request's body."""
        body = bytearray()
        body.extend(write_string(self.path))
        body.extend(int_struct.pack(self.mode))
        return body

    @classmethod
    def deserialize(cls, _bytes: bytes, _offset: int) -> bool:
        """The answer has no body."""
        return True


class _NumberedTransaction(Transaction):  # type: ignore[misc]
    """A transaction whose results end with its id, which kazoo does not return."""

    def __new__(cls, operations: list[Any], _client: KazooClient) -> _NumberedTransaction:
        """Make the tuple of the operations."""
        made: _NumberedTransaction = super().__new__(cls, operations)
        return made

    def __init__(self, _operations: list[Any], client: KazooClient) -> None:
        self._client = client

    def deserialize(self, body: bytes, offset: int) -> list[Any]:
        """The results, then the id, which kazoo has just read from the header of this answer."""
        return [*super().deserialize(body, offset), self._client.last_zxid]


class _DataWatchers(defaultdict[str, set[Watcher]]):
    """kazoo's one-shot watchers by path, and our watchers of trees, which stay."""

    def __init__(self, trees: dict[str, Watcher]) -> None:
        super().__init__(set)
        self._trees = trees

    def pop(self, path: str, default: Any = None) -> Any:
        """The watchers to call for an event of `path`."""
        # A copy: this is kazoo's thread, and the loop's thread may add a tree meanwhile.
        trees = list(self._trees.items())
        return [
            *super().pop(path, default or ()),
            *(
                watcher
                for root, watcher in trees
                if path == root or path.startswith(root.rstrip("/") + "/")
            ),
        ]


def _call(callback: Callable[..., object], *arguments: object) -> None:
    """A callback that fails does not end the connection."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of ZooKeeper's client failed")


class _Result(AsyncResult):  # type: ignore[misc]
    """Calls back in the thread that has read the answer: callbacks only tell the event loop."""

    def _do_callbacks(self) -> None:
        for callback in self._callbacks:
            _call(callback, self)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Gives a server a limited time to accept a connection, and costs less than kazoo's.

    kazoo waits for the first server all the session timeout, so that the session expires before it
    tries the second. It hands answers to one thread and events to another, which costs time and
    loses the order in which the server sent them. And it makes and closes an epoll object for each
    wait: three for each answer.
    """

    def __init__(self, patience_s: float, tls: Callable[[], ssl.SSLContext | None]) -> None:
        super().__init__()
        self._patience_s = patience_s
        self._tls = tls

    def create_connection(self, *args: Any, **options: Any) -> socket.socket:
        """With TLS, as the files are now; kazoo would leave a socket open that fails."""
        made: socket.socket = super().create_connection(
            *args, **options | {"timeout": self._patience_s}
        )
        try:
            context = self._tls()
            if context is None:
                return made
            made.settimeout(self._patience_s)
            return context.wrap_socket(made, server_hostname=options.get("hostname"))
        except (ConfigError, OSError) as error:
            made.close()
            raise OSError(str(error)) from None

    def async_result(self) -> _Result:
        """A result that does not exist yet."""
        return _Result(self)

    def dispatch_callback(self, callback: Callback) -> None:
        """An event for a watcher."""
        _call(callback.func, *callback.args)

    def select(
        self, reading: list[Any], writing: list[Any], _: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """The sockets that are ready to be read, and those ready to be written, within `timeout`
        seconds.
        """
        # What TLS has decrypted already is not seen by `poll`.
        decrypted = [it for it in reading if isinstance(it, ssl.SSLSocket) and it.pending()]
        if decrypted:
            timeout = 0.0
        poll = select.poll()
        for sockets, events in ((reading, select.POLLIN), (writing, select.POLLOUT)):
            for each in sockets:
                poll.register(each, events)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return (
            [each for each in reading if each.fileno() in ready or each in decrypted],
            [each for each in writing if each.fileno() in ready],
            [],
        )


class LastWarning(logging.Filter):
    """Keeps kazoo's warnings of every failed attempt to connect out of the log."""

    text = ""
    """The last warning; the reader clears it when it is out of date."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Log errors only; remember the last warning."""
        if record.levelno == logging.WARNING and not record.getMessage().startswith("Transition"):
            self.text = record.getMessage()
        return record.levelno > logging.WARNING


class TreeWatchingClient(KazooClient):  # type: ignore[misc]
    """A kazoo client that can watch a whole tree with one request."""

    def __init__(
        self,
        *,
        hosts: str,
        timeout: float,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        **arguments: Any,
    ) -> None:
        """`tls`: how each connection is secured; may raise `ConfigError`."""
        self._trees: dict[str, Watcher] = {}
        self.last_warning = LastWarning()
        # A logger of this client alone, not registered, because the filter keeps its last warning.
        logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001
        logger.parent = logging.getLogger("kazoo")
        logger.addFilter(self.last_warning)
        servers, slash, chroot = hosts.partition("/")
        # kazoo would shuffle the servers in each round, and may try the failed server again first.
        order = random.sample(servers.split(","), servers.count(",") + 1)
        share_s = timeout / len(order)
        self._patience_s = min(share_s, max(PATIENCE_MIN_S, share_s / ROUNDS_PER_TIMEOUT))
        super().__init__(
            hosts=",".join(order) + slash + chroot,
            timeout=timeout,
            randomize_hosts=False,
            handler=_Handler(self._patience_s, tls),
            logger=logger,
            **arguments,
        )
        self.granted_timeout_s: float = self._session_timeout / 1000
        self.connecting_s = 0.0
        """When the present connection, or the last one, was begun, on the monotonic clock."""
        self.refused = False
        """True if a server answered last that it gives this client no session."""
        self._data_watchers = _DataWatchers(self._trees)
        connect = self._connection._connect

        def remember_granted(*address: Any) -> tuple[float, float]:
            self.connecting_s = time.monotonic()
            had_session, refused = bool(self._session_id), False
            try:
                read_timeout_ms, connect_timeout_ms = connect(*address)
            except SessionExpiredError:
                refused = not had_session
                raise
            finally:
                self.refused = refused  # until the next attempt has ended, too
            # kazoo reads for two thirds of the session timeout
            self.granted_timeout_s = read_timeout_ms * 1.5 / 1000
            return read_timeout_ms, connect_timeout_ms

        self._connection._connect = remember_granted
        invoke = self._connection._invoke

        def invoke_with_patience(timeout_s: float, *request: Any, **options: Any) -> Any:
            # ZooKeeper never answers some connections that come while it starts: it means to close
            # them, and `removeCnxn` fails, because there is no database yet.
            return invoke(min(timeout_s, self._patience_s), *request, **options)

        self._connection._invoke = invoke_with_patience

    def drop_connection(self) -> None:
        """Drop the present connection; kazoo notices, and connects to the next server.

        May be called from any thread. kazoo itself drops a silent connection only if it has nothing
        to send, because then its ping stays unanswered. Our heartbeats keep it from that.
        """
        connected = self._connection._socket
        if connected is not None:
            # Unlike closing, shutting down wakes kazoo's thread if it waits on the socket.
            with contextlib.suppress(OSError):  # kazoo has closed it meanwhile
                # Not that of an SSLSocket, which would take TLS away from kazoo's thread.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _reset_watchers(self) -> None:
        super()._reset_watchers()
        self._data_watchers = _DataWatchers(self._trees)

    def commit_async(self, transaction: Any) -> Any:
        """Send a `KazooClient.transaction`; its result is the list of results and the id."""
        result = self.handler.async_result()
        self._call(_NumberedTransaction(transaction.operations, self), result)
        return result

    def write_nothing_async(self) -> Any:
        """Send a transaction that changes nothing; a quorum stores it before it is answered."""
        transaction = self.transaction()
        transaction.check("/", -1)
        return self.commit_async(transaction)

    def watch_tree_async(self, path: str, watcher: Watcher) -> Any:
        """Call `watcher` for every change at and below `path`, until the connection is lost.

        The calls come from kazoo's thread. The paths of the events are without the chroot.
        """
        rooted = self._rooted(path)
        self._trees[rooted] = watcher
        result = self.handler.async_result()
        self._call(_AddWatch(rooted, _PERSISTENT_RECURSIVE), result)
        return result

    def forget_tree(self, path: str) -> None:
        """Stop calling the tree's watcher; the server sends events until the connection ends."""
        self._trees.pop(self._rooted(path), None)

    def _rooted(self, path: str) -> str:
        return (self.chroot + path).rstrip("/") or "/"
