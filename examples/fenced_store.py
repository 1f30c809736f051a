"""A database that refuses a process which has lost its shard and does not know it yet: rows in
SQLite, for the other examples. Yours may be any that can do what `open` and `put` say.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Protocol

TABLES = """
create table if not exists fences (span text primary key, token integer not null);
create table if not exists rows (
    span text, key text, value text, change integer primary key autoincrement, unique (span, key)
);
"""
Rows = dict[str, str]


class StaleTokenError(Exception):
    """A later owner has opened the range: whoever wrote has lost it."""


class Store(Protocol):
    """Rows of ranges of keys. What it raises but `StaleTokenError` leaves open what was done."""

    async def read(self, span: str, since: int = 0) -> tuple[Rows, int]:
        """The rows of a range that changed after `since`, and how far that is."""
        ...

    async def open(self, span: str, token: int, since: int = 0) -> tuple[Rows, int]:
        """The same, after which smaller tokens are refused for the range: in one transaction."""
        ...

    async def put(self, span: str, key: str, value: str, token: int) -> None:
        """Write a row. Raises `StaleTokenError` if a greater token has opened the range."""
        ...


class SqliteStore:
    """Implements `Store` in a file that all processes of a machine share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with sqlite3.connect(path) as database:
            database.executescript(TABLES)
        database.close()

    async def read(self, span: str, since: int = 0) -> tuple[Rows, int]:
        """See `Store`."""
        return await asyncio.to_thread(self._run, span, None, since)

    async def open(self, span: str, token: int, since: int = 0) -> tuple[Rows, int]:
        """See `Store`."""
        return await asyncio.to_thread(self._run, span, token, since)

    async def put(self, span: str, key: str, value: str, token: int) -> None:
        """See `Store`."""
        await asyncio.to_thread(self._run, span, token, 0, (key, value))

    def _run(
        self, span: str, token: int | None, since: int, row: tuple[str, str] | None = None
    ) -> tuple[Rows, int]:
        database = sqlite3.connect(self._path, timeout=10, isolation_level=None)
        try:
            database.execute("begin" if token is None else "begin immediate")
            if token is not None:
                self._fence(database, span, token)
            if row is not None:
                database.execute("delete from rows where span = ? and key = ?", (span, row[0]))
                database.execute(
                    "insert into rows (span, key, value) values (?, ?, ?)", (span, *row)
                )
                database.execute("commit")
                return {}, 0
            rows = database.execute(
                "select key, value, change from rows where span = ? and change > ?", (span, since)
            ).fetchall()
            database.execute("commit")
            last = max((change for _, _, change in rows), default=since)
            return {key: value for key, value, _ in rows}, last
        finally:
            database.close()

    def _fence(self, database: sqlite3.Connection, span: str, token: int) -> None:
        (seen,) = database.execute(
            "select coalesce(max(token), 0) from fences where span = ?", (span,)
        ).fetchone()
        if token < seen:
            raise StaleTokenError(f"{span} was opened with token {seen}, after {token}")
        database.execute("replace into fences values (?, ?)", (span, token))
