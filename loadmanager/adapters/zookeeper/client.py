"""What kazoo lacks.

Persistent recursive watches (ZooKeeper 3.6+), the id of a transaction, the session timeout that the
server granted, and a way to leave a connection that is dead.

This is the only module that touches kazoo's private parts; pyproject.toml pins the minor version
that they were read in.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
from collections import defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Transaction, int_struct, write_string
from kazoo.protocol.states import WatchedEvent

_PERSISTENT_RECURSIVE = 1

Watcher = Callable[[WatchedEvent], None]


class _AddWatch(namedtuple("_AddWatch", "path mode")):
    """The request that kazoo does not know (opcode 106)."""

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
    """A transaction whose results end with its id, which kazoo reads but does not pass on."""

    def __new__(cls, operations: list[Any], _client: KazooClient) -> _NumberedTransaction:
        """As a tuple of the operations."""
        made: _NumberedTransaction = super().__new__(cls, operations)
        return made

    def __init__(self, _operations: list[Any], client: KazooClient) -> None:
        self._client = client

    def deserialize(self, body: bytes, offset: int) -> list[Any]:
        """The results, then the id: kazoo has just read it from the header of this very answer."""
        return [*super().deserialize(body, offset), self._client.last_zxid]


class _DataWatchers(defaultdict[str, set[Watcher]]):
    """kazoo's one-shot watchers by path; looking a path up also finds the trees that it lies in,
    which stay.
    """

    def __init__(self, trees: dict[str, Watcher]) -> None:
        super().__init__(set)
        self._trees = trees

    def pop(self, path: str, default: Any = None) -> Any:
        """The watchers to call for an event of `path`."""
        found = list(super().pop(path, default or ()))
        # a copy: this is kazoo's thread, and the loop's thread may add a tree meanwhile
        trees = list(self._trees.items())
        found += [
            watcher
            for root, watcher in trees
            if path == root or path.startswith(root if root == "/" else f"{root}/")
        ]
        return found


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Gives each server of the ensemble its part of the session timeout to accept a connection.

    kazoo gives the first one all of it: the session would be gone before the second is tried.
    """

    def __init__(self, servers: int) -> None:
        super().__init__()
        self._servers = servers

    def create_connection(self, *args: Any, **options: Any) -> socket.socket:
        """A connected socket; kazoo's `timeout` in seconds is shared among the servers."""
        if options.get("timeout"):
            options["timeout"] /= self._servers
        made: socket.socket = super().create_connection(*args, **options)
        return made


class _LastWarning(logging.Filter):
    """Keeps kazoo's warnings, which come with every attempt to connect, out of the log."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged; errors are."""
        if record.levelno == logging.WARNING and not record.getMessage().startswith("Transition"):
            self.text = record.getMessage()
        return record.levelno > logging.WARNING


class TreeWatchingClient(KazooClient):  # type: ignore[misc]
    """A kazoo client that can watch a whole tree with one request."""

    def __init__(self, *, hosts: str, **arguments: Any) -> None:
        self._trees: dict[str, Watcher] = {}
        self._last_warning = _LastWarning()
        # Of this client alone, and registered nowhere: its filter keeps what it warned of last.
        logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001
        logger.parent = logging.getLogger("kazoo")
        logger.addFilter(self._last_warning)
        servers, slash, chroot = hosts.partition("/")
        # kazoo would shuffle them anew in each round, and maybe try the one that just failed again.
        order = random.sample(servers.split(","), servers.count(",") + 1)
        super().__init__(
            hosts=",".join(order) + slash + chroot,
            randomize_hosts=False,
            handler=_Handler(len(order)),
            logger=logger,
            **arguments,
        )
        self.granted_timeout_s: float = self._session_timeout / 1000
        self._data_watchers = _DataWatchers(self._trees)
        connect = self._connection._connect

        def remember_granted(*address: Any) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = connect(*address)
            # kazoo reads for two thirds of the session timeout
            self.granted_timeout_s = read_timeout_ms * 1.5 / 1000
            return read_timeout_ms, connect_timeout_ms

        self._connection._connect = remember_granted

    @property
    def last_warning(self) -> str:
        """Why the connection failed last, in kazoo's words; empty when it never did."""
        return self._last_warning.text

    def drop_connection(self) -> None:
        """Leave the present connection: kazoo notices the end, and connects to the next server.

        From any thread. kazoo itself leaves a silent connection only when it has nothing to send:
        then its ping is not answered. Whoever asks regularly has to notice by himself.
        """
        connected = self._connection._socket
        if connected is not None:
            # Shutting down, unlike closing, wakes kazoo's thread wherever it waits on the socket.
            with contextlib.suppress(OSError):  # kazoo has closed it meanwhile
                connected.shutdown(socket.SHUT_RDWR)

    def _reset_watchers(self) -> None:
        super()._reset_watchers()
        self._data_watchers = _DataWatchers(self._trees)

    def commit_async(self, transaction: Any) -> Any:
        """Send a `KazooClient.transaction`; its result is the list of results, and the
        transaction's id after them.
        """
        result = self.handler.async_result()
        self._call(_NumberedTransaction(transaction.operations, self), result)
        return result

    def watch_tree_async(self, path: str, watcher: Watcher) -> Any:
        """Have `watcher` called (in kazoo's thread) for every change at and below `path`, until the
        connection is lost.

        The path in the events is without the chroot.
        """
        rooted = self._rooted(path)
        self._trees[rooted] = watcher
        result = self.handler.async_result()
        self._call(_AddWatch(rooted, _PERSISTENT_RECURSIVE), result)
        return result

    def forget_tree(self, path: str) -> None:
        """Have the tree's watcher called no more.

        The server goes on telling until the connection ends.
        """
        self._trees.pop(self._rooted(path), None)

    def _rooted(self, path: str) -> str:
        return (self.chroot + path).rstrip("/") or "/"
