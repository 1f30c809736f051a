"""The file of an archive: the records of one broker in SQLite, found by time and by what they are
about; blocking, so that a thread calls it.

Loads of one moment are one row, packed. Averages of a quarter of an hour are made when it is over,
for questions about long times; after a day, they take the place of what was recorded. Events are
rows with an index of the names that they are about. Nothing waits for the disk at a commit: a
machine that loses its power loses the last moments of the archive, and the history has them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from loadmanager.kit.history.archive_answers import UnrecordedSpan
from loadmanager.kit.history.catalogue import Catalogue, EventsOf, FiguresOf
from loadmanager.kit.history.figures import packed, unpacked
from loadmanager.kit.private_files import make_folder, open_private
from loadmanager.kit.units import DAY_MS

FORMAT = 1
"""A file of another format is put aside."""
BUSY_S = 1.0
"""How long a locked file is waited for."""
FOLD_MS = 3_600_000
"""Events that are the same are counted as one for so long."""
FOLDS_MAX = 10_000
NAMES_MAX = 200_000
"""Names whose numbers are remembered."""
FINE_MS = DAY_MS
"""Loads are kept as they were recorded for so long."""
COARSE_MS = 900_000
"""Later, averages over this time are kept."""
EARLY = "/quarter"
"""After the kind of averages that still stand beside what was recorded."""
LATE_MS = 60_000
"""How long after a quarter of an hour its averages are made."""
DROPPED_AT_ONCE = 500
PAGES_OF_LOG = 1_000
SCHEMA = """
CREATE TABLE writer(name TEXT);
CREATE TABLE name(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, day INTEGER NOT NULL);
CREATE TABLE run(id INTEGER PRIMARY KEY, began INTEGER, ended INTEGER, dropped INTEGER);
CREATE TABLE sample(
    id INTEGER PRIMARY KEY, kind TEXT, ts INTEGER, broker INTEGER, span INTEGER, figures BLOB
);
CREATE INDEX sample_by_time ON sample(kind, ts);
CREATE TABLE event(
    id INTEGER PRIMARY KEY, kind TEXT, ts INTEGER, last INTEGER, times INTEGER, record BLOB
);
CREATE INDEX event_by_time ON event(ts);
CREATE TABLE about(name INTEGER, ts INTEGER, event INTEGER, PRIMARY KEY(name, ts, event))
    WITHOUT ROWID;
"""
GAPS = "CREATE TABLE IF NOT EXISTS gap(begin INTEGER, ended INTEGER, reason TEXT)"
"""Times of which records are missing; files of earlier versions of this format have no such."""
OF_MAIN = "*** in database main ***"
"""Before what SQLite says of damage."""
UNUSABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA)


class OtherFormatError(Exception):
    """The file is of another version, or is no archive."""


@dataclass(slots=True)
class _Batch:
    """What is written at once."""

    samples: dict[tuple[str, int, str, int], list[tuple[str, tuple[float, ...]]]] = field(
        default_factory=dict
    )
    """Kind, time, broker and span → names with their figures."""
    events: list[Any] = field(default_factory=list)


class _Fine(NamedTuple):
    """A row of loads as they were recorded."""

    id: int
    ts: int
    broker: int
    span: int

    def place(self) -> tuple[int, int]:
        """The end of its quarter of an hour, and its broker."""
        return -(-self.ts // COARSE_MS) * COARSE_MS, self.broker


class ArchiveFile:
    """Writes one file. Raises `sqlite3.Error` and `OSError`."""

    def __init__(
        self, path: Path, writer: str, catalogue: Catalogue, now_ms: int, *, run: int = 0
    ) -> None:
        """Open the file, or make it; `writer`: whose records it has; `run`: goes on with this run
        of before, if the file has it. Raises `OtherFormatError` for one that cannot be used.
        """
        self._path, self._catalogue = path, catalogue
        make_folder(path.parent)
        open_private(path, "ab").close()
        self._numbers: dict[str, int] = {}
        self._day = 0
        self._folds: dict[Any, tuple[int, int, set[str]]] = {}
        """What is the same → its event, when that began, and what it is about."""
        self._encoder = msgspec.json.Encoder()
        self._db = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(writer)
            self.run = self._begin_run(now_ms, run)
            self._sizes = self._look()
        except sqlite3.Error as error:
            self._db.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in UNUSABLE:
                raise OtherFormatError(str(error)) from None
            raise
        except OtherFormatError:
            self._db.close()
            raise

    def _prepare(self, writer: str) -> None:
        version = self._number("PRAGMA user_version")
        if version not in (0, FORMAT):
            raise OtherFormatError(f"it has format {version}, not {FORMAT}")
        if version == 0 and self._number("SELECT count(*) FROM sqlite_master"):
            raise OtherFormatError("it is no archive")
        if version == 0:
            self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint={PAGES_OF_LOG}")
        self._db.execute(f"PRAGMA journal_size_limit={4 << 20}")
        if version == 0:
            self._db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version={FORMAT}; COMMIT;")
        self._db.execute(GAPS)
        self._db.execute("DELETE FROM writer")
        self._db.execute("INSERT INTO writer VALUES(?)", (writer,))

    def _begin_run(self, now_ms: int, run: int) -> int:
        if self._number("SELECT count(*) FROM run WHERE id=?", run):
            return run
        text = "INSERT INTO run(began, ended, dropped) VALUES(?, ?, 0)"
        return self._db.execute(text, (now_ms, now_ms)).lastrowid or 0

    def _number(self, text: str, *values: int | str) -> int:
        (number,) = self._db.execute(text, values).fetchone()
        return int(number or 0)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._numbers.clear()
            self._folds.clear()
            with suppress(sqlite3.Error):  # it may have rolled back by itself
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def problem(self) -> str:
        """What is damaged, as a reader sees it; empty if nothing is."""
        with closing(sqlite3.connect(self._path, timeout=BUSY_S)) as db:
            try:
                (text,) = db.execute("PRAGMA quick_check(1)").fetchone()
            except sqlite3.DatabaseError as error:
                text = str(error)
        return "" if text == "ok" else " ".join(text.removeprefix(OF_MAIN).split())

    def _look(self) -> list[tuple[int, int] | None]:
        """Inode and size of the file and of its log; None: it is not there."""
        return [identity(self._path), identity(self._path.with_name(self._path.name + "-wal"))]

    def remember(self) -> None:
        """Remember how files are as this one left them, for `lost`."""
        self._sizes = self._look()

    def lost(self) -> str:
        """What somebody else did to the files since `remember`; empty: nothing that is seen by
        their places and sizes.
        """
        for name, before, now in zip(("file", "log"), self._sizes, self._look(), strict=True):
            if before is not None and now is None:
                return f"its {name} was removed"
            if before is not None and now is not None and before[0] != now[0]:
                return f"its {name} was replaced"
            if before is not None and now is not None and before[1] > now[1]:
                return f"its {name} was truncated"
        return ""

    def add_gap(self, gap: UnrecordedSpan) -> None:
        """Keep that records of a time, which is over, are missing."""
        self._db.execute("INSERT INTO gap VALUES(?, ?, ?)", (gap.begin, gap.end, gap.reason))

    def write(self, records: Sequence[Any], now_ms: int, dropped: int) -> None:
        """Write records; `dropped`: how many of this run were not written. Without records, only
        the time until which everything was recorded moves on.
        """
        batch = self._sorted(records)
        with self._transaction():
            if now_ms // DAY_MS != self._day or len(self._numbers) > NAMES_MAX:
                self._day = now_ms // DAY_MS
                self._numbers.clear()
            for (kind, ts, broker, span), rows in batch.samples.items():
                ids = [self._id(name) for name, _ in rows]
                blob = packed(ids, [figures for _, figures in rows])
                self._add_sample(kind, ts, self._id(broker), span, blob)
            for record in batch.events:
                self._write_event(record)
            self._db.execute(
                "UPDATE run SET ended=max(ended, ?), dropped=? WHERE id=?",
                (now_ms, dropped, self.run),
            )

    def _add_sample(self, kind: str, ts: int, broker: int, span: int, blob: bytes) -> None:
        self._db.execute(
            "INSERT INTO sample(kind, ts, broker, span, figures) VALUES(?, ?, ?, ?, ?)",
            (kind, ts, broker, span, blob),
        )

    def _sorted(self, records: Sequence[Any]) -> _Batch:
        batch = _Batch()
        for record in records:
            rule = self._catalogue.get(record.kind)
            if isinstance(rule, FiguresOf):
                key = (record.kind, record.ts, record.broker, record.interval_ms)
                batch.samples.setdefault(key, []).append(rule.row(record))
            elif rule is not None:
                batch.events.append(record)
        return batch

    def _id(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            (number,) = self._db.execute(
                "INSERT INTO name(text, day) VALUES(?, ?) ON CONFLICT(text) "
                "DO UPDATE SET day=max(day, excluded.day) RETURNING id",
                (name, self._day),
            ).fetchone()
            self._numbers[name] = number
        return number

    def _write_event(self, record: Any) -> None:
        rule = self._catalogue[record.kind]
        assert isinstance(rule, EventsOf)
        same, ts = rule.same(record), rule.at(record)
        nothing: tuple[int, int, set[str]] = (0, 0, set())
        event, began_ms, named = nothing if same is None else self._folds.get(same, nothing)
        document, about = self._encoder.encode(record), set(rule.about(record))
        if event and 0 <= ts - began_ms < FOLD_MS:
            self._db.execute(
                "UPDATE event SET last=max(last, ?), times=times+1, record=? WHERE id=?",
                (ts, document, event),
            )
            self._add_about(event, began_ms, about - named)
            named |= about
            return
        event = (
            self._db.execute(
                "INSERT INTO event(kind, ts, last, times, record) VALUES(?, ?, ?, 1, ?)",
                (rule.kind(record), ts, ts, document),
            ).lastrowid
            or 0
        )
        if same is not None:
            if len(self._folds) >= FOLDS_MAX:
                del self._folds[next(iter(self._folds))]
            self._folds[same] = (event, ts, about)
        self._add_about(event, ts, about)

    def _add_about(self, event: int, ts: int, names: Set[str]) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO about(name, ts, event) VALUES(?, ?, ?)",
            [(self._id(name), ts, event) for name in sorted(names)],
        )

    # Bounds

    @property
    def size(self) -> int:
        """The bytes of the file that are in use."""
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._number("PRAGMA page_size")

    def retain(self, since_ms: int, bytes_max: int) -> int:
        """Delete what is older, and then the oldest, until the rest takes at most so many bytes:
        loads first. Returns how many rows were deleted to keep within the size.
        """
        with self._transaction():
            self._delete("sample", "ts < ?", since_ms)
            self._delete("gap", "ended < ?", since_ms)
            if self._delete("event", "last < ?", since_ms):
                self._forget_events()
        dropped = 0
        while self.size > bytes_max:
            with self._transaction():
                count = self._drop("sample") or self._drop("event")
                self._forget_events()
            if not count:
                break
            dropped += count
        self._forget_names()
        self._db.executescript("PRAGMA incremental_vacuum")  # `execute` frees one page
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return dropped

    def _delete(self, table: str, where: str, *values: int | str) -> int:
        return self._db.execute(f"DELETE FROM {table} WHERE {where}", values).rowcount

    def _drop(self, table: str) -> int:
        oldest = f"SELECT id FROM {table} ORDER BY ts LIMIT {DROPPED_AT_ONCE}"
        return self._delete(table, f"id IN ({oldest})")

    def _forget_events(self) -> None:
        self._folds.clear()
        self._delete("about", "ts < ?", self._number("SELECT min(ts) FROM event"))

    def _forget_names(self) -> None:
        oldest = min(
            self._number("SELECT ifnull(min(ts), 1 << 60) FROM sample"),
            self._number("SELECT ifnull(min(ts), 1 << 60) FROM event"),
        )
        with self._transaction():
            self._delete("name", "day < ?", min(oldest // DAY_MS, self._day))
            self._delete("run", "ended < ? AND id <> ?", oldest, self.run)

    def roll_up(self, now_ms: int) -> None:
        """Make averages of the quarters of an hour that are over; replace loads that are older than
        a day by theirs.
        """
        for kind, rule in self._catalogue.items():
            if isinstance(rule, FiguresOf):
                done_ms = self._number("SELECT max(ts) FROM sample WHERE kind=?", kind + EARLY)
                for rows in self._quarters(kind, done_ms, now_ms - LATE_MS):
                    with self._transaction():
                        self._add_means(kind + EARLY, len(rule.columns), rows)
                for rows in self._quarters(kind, 0, now_ms - FINE_MS):
                    with self._transaction():
                        self._replace(kind, len(rule.columns), rows)

    def _quarters(self, kind: str, since_ms: int, until_ms: int) -> Iterator[list[_Fine]]:
        """The loads of a time as they were recorded, by quarters of an hour and brokers."""
        rows = self._db.execute(
            "SELECT id, ts, broker, span FROM sample WHERE kind=? AND ts > ? AND ts <= ? AND "
            "span < ?",
            (kind, since_ms, until_ms // COARSE_MS * COARSE_MS, COARSE_MS),
        ).fetchall()
        fine = [_Fine(*row) for row in rows]
        for _, some in groupby(sorted(fine, key=_Fine.place), key=_Fine.place):
            yield list(some)

    def _replace(self, kind: str, columns: int, rows: Sequence[_Fine]) -> None:
        """Have averages take the place of loads: those made before, if nothing came later."""
        ts, broker = rows[0].place()
        where = "kind=? AND ts=? AND broker=?"
        early = self._number(f"SELECT max(id) FROM sample WHERE {where}", kind + EARLY, ts, broker)
        if early > max(row.id for row in rows):
            self._db.execute("UPDATE sample SET kind=? WHERE id=?", (kind, early))
        else:
            self._delete("sample", where, kind + EARLY, ts, broker)
            self._add_means(kind, columns, rows)
        self._db.executemany("DELETE FROM sample WHERE id=?", [(row.id,) for row in rows])

    def _add_means(self, kind: str, columns: int, rows: Sequence[_Fine]) -> None:
        tables, weights = [], []
        for row in rows:
            (data,) = self._db.execute(
                "SELECT figures FROM sample WHERE id=?", (row.id,)
            ).fetchone()
            with suppress(ValueError):  # a damaged row costs itself
                ids, table = unpacked(data, columns)
                tables.append((ids, table.astype(np.float64)))
                weights.append(np.full(len(ids), row.span, dtype=np.float64))
        if not tables:
            return
        all_ids = np.concatenate([ids for ids, _ in tables])
        values = np.concatenate([table for _, table in tables])
        weight = np.concatenate(weights)
        ids, places = np.unique(all_ids, return_inverse=True)
        total = np.bincount(places, weight)
        means = np.stack(
            [np.bincount(places, values[:, column] * weight) / total for column in range(columns)],
            axis=1,
        )
        ts, broker = rows[0].place()
        self._add_sample(kind, ts, broker, COARSE_MS, packed(ids, means))


def identity(path: Path) -> tuple[int, int] | None:
    """The inode and the size of a file; None: it is not there."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_size


def put_aside(path: Path) -> Path:
    """Move a file that cannot be used away; one that was moved before is lost. Raises `OSError`."""
    aside = path.with_suffix(".aside")
    path.replace(aside)
    forget_log(path)
    return aside


def forget_log(path: Path) -> None:
    """Delete what belonged to a file that is gone: another one must not be read with it."""
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
