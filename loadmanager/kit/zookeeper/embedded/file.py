"""The tree and the sessions in a SQLite file. A write is on the disk when `write` returns."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.private_files import make_folder, open_private
from loadmanager.kit.zookeeper.embedded.access import shared
from loadmanager.kit.zookeeper.embedded.jute import JuteReader, MalformedRecordError
from loadmanager.kit.zookeeper.embedded.nodes import TreeNode
from loadmanager.kit.zookeeper.embedded.records import acl_in, acl_out
from loadmanager.kit.zookeeper.embedded.sessions import TreeSession
from loadmanager.kit.zookeeper.embedded.tree import SYSTEM_PATHS, NodeTree

FORMAT = 1
NAME = "tree.sqlite"
WAL_BYTES = 32 << 20
"""SQLite's log is cut down to this when it was longer."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS number (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS session (
    id INTEGER PRIMARY KEY, password BLOB NOT NULL, timeout_ms INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY, data BLOB, acl BLOB NOT NULL, owner INTEGER NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL,
    version INTEGER NOT NULL, creations INTEGER NOT NULL, aversion INTEGER NOT NULL
);
"""
_SELECT = """
SELECT path, data, acl, owner, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, creations, aversion
FROM node ORDER BY path
"""

NodeRow = tuple[str, bytes | None, bytes, int, int, int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class TreeChanges:
    """What a transaction of the file writes: the tree as it is after `zxid`."""

    zxid: int
    nodes: list[NodeRow]
    gone: list[tuple[str]]
    sessions: list[tuple[int, bytes, int]]
    ended: list[tuple[int]]

    @classmethod
    def of(
        cls,
        zxid: int,
        nodes: Iterable[tuple[str, TreeNode | None]],
        sessions: Iterable[tuple[int, TreeSession | None]],
    ) -> TreeChanges:
        """The changes of these nodes and sessions; None: it is gone."""
        made = cls(zxid, [], [], [], [])
        for path, node in nodes:
            if node is None:
                made.gone.append((path,))
            else:
                made.nodes.append(_row(path, node))
        for session_id, session in sessions:
            if session is None:
                made.ended.append((session_id,))
            else:
                made.sessions.append((session_id, session.password, session.timeout_ms))
        return made


class TreeFile:
    """The file in a folder, which is made if it is missing. Used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._database: sqlite3.Connection | None = None

    def open(self) -> tuple[NodeTree, list[TreeSession]]:
        """The tree and the sessions of the file, or a new tree.

        Raises `OperationalError` if the file cannot be opened or read, or another process has it.
        """
        try:
            make_folder(self.path.parent)
            open_private(self.path, "ab").close()
            self._database = _connected(self.path)
            return self._read(self._database)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise OperationalError(f"{self.path} cannot be opened: {error}") from None
        except (MalformedRecordError, KeyError, TypeError) as error:
            self.close()
            raise OperationalError(
                f"{self.path} is damaged ({type(error).__name__} {error}); restore it, or move it "
                "away to begin with an empty store"
            ) from None

    def _read(self, database: sqlite3.Connection) -> tuple[NodeTree, list[TreeSession]]:
        database.executescript(_SCHEMA)
        numbers = dict(database.execute("SELECT name, value FROM number"))
        written = numbers.get("format", FORMAT)
        if written > FORMAT:
            raise OperationalError(
                f"{self.path} was written by a newer version (format {written}, not {FORMAT}); "
                "use that version"
            )
        rows = ((row[0], _node(row)) for row in database.execute(_SELECT))
        tree = NodeTree(rows, numbers.get("zxid", 0))
        if len(tree) < len(SYSTEM_PATHS):
            raise MalformedRecordError("nodes are missing")
        sessions = [
            TreeSession(*row)
            for row in database.execute("SELECT id, password, timeout_ms FROM session")
        ]
        return tree, sessions

    def write(self, changes: TreeChanges) -> None:
        """Store the changes, all or none; they are on the disk afterwards. Raises
        `OperationalError`.
        """
        database = self._database
        assert database is not None, "it is open"
        try:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                changes.nodes,
            )
            database.executemany("DELETE FROM node WHERE path = ?", changes.gone)
            database.executemany(
                "INSERT OR REPLACE INTO session VALUES (?, ?, ?)", changes.sessions
            )
            database.executemany("DELETE FROM session WHERE id = ?", changes.ended)
            database.executemany(
                "INSERT OR REPLACE INTO number VALUES (?, ?)",
                [("format", FORMAT), ("zxid", changes.zxid)],
            )
            database.execute("COMMIT")
        except sqlite3.Error as error:
            raise OperationalError(f"{self.path} cannot be written: {error}") from None

    def close(self) -> None:
        """Close the file."""
        database, self._database = self._database, None
        if database is not None:
            database.close()


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(
        os.fspath(path), timeout=0, isolation_level=None, check_same_thread=False
    )
    # Before the first access: then no other process can open it, and no memory is shared.
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")  # in this mode a commit syncs the log
    database.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    return database


def _row(path: str, node: TreeNode) -> NodeRow:
    return (
        path, node.data, acl_out(node.acl), node.owner, node.czxid, node.mzxid, node.pzxid,
        node.ctime_ms, node.mtime_ms, node.version, node.creations, node.aversion,
    )  # fmt: skip


def _node(row: NodeRow) -> TreeNode:
    _, data, acl, owner, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, creations, aversion = row
    node = TreeNode(data, shared(tuple(acl_in(JuteReader(acl)))), owner, czxid, ctime_ms)
    node.mzxid, node.pzxid, node.mtime_ms = mzxid, pzxid, mtime_ms
    node.version, node.creations, node.aversion = version, creations, aversion
    return node
