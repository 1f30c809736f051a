"""Answers questions from the file of an archive, also from one that another broker left; blocking,
so that a thread calls it.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive_answers import (
    ArchivedEvent,
    ArchivedEvents,
    ArchivedHeat,
    ArchivedHeatRow,
    ArchivedLoads,
    ArchivedMoment,
    ArchivedPoint,
    ArchivedSeries,
    ArchivedSum,
    ArchivedSums,
    RecordedSpan,
    UnrecordedSpan,
)
from loadmanager.kit.history.archive_file import COARSE_MS, EARLY, FOLD_MS, FORMAT, UNUSABLE
from loadmanager.kit.history.catalogue import Catalogue, FiguresOf
from loadmanager.kit.history.figures import Ids, Table, sums, unpacked

QUESTION_S = 3.0
"""A question that takes longer is refused."""
STEPS = 10_000
"""SQLite's steps between two looks at the clock."""
NEAR_MS = 300_000
"""Loads stand for a moment that is so long after the end of their time."""
AVERAGES_FROM_MS = COARSE_MS // 2
"""A heat map whose parts are as long is made of averages of a quarter of an hour, where there are
some: they are a fifteenth of the records.
"""
RUNS_MAX = 100
CELLS_MAX = 8_000_000
"""Of a heat map: 64 MB."""


class DamagedError(OperationalError):
    """The file cannot be read, and will not be by trying again."""


class ArchiveReader:
    """Reads one file, within `QUESTION_S`. Raises `OperationalError`, `DamagedError` among them."""

    def __init__(self, path: Path, catalogue: Catalogue, part: str | None = None) -> None:
        self._path, self._catalogue = path, catalogue
        self._part = part or path.name
        """The broker that wrote it, once it is open."""

    def writer(self) -> str:
        """The broker that wrote it."""
        with self._opened():
            return self._part

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        end_s = time.monotonic() + QUESTION_S
        try:
            uri = f"file:{quote(str(self._path.absolute()))}?mode=ro"
            db = sqlite3.connect(uri, uri=True, timeout=QUESTION_S, isolation_level=None)
        except sqlite3.Error as error:
            why = f"{error}" if self._path.exists() else "its file is not there"
            raise OperationalError(f"the archive of {self._part} cannot be read: {why}") from None
        try:
            db.set_progress_handler(lambda: time.monotonic() > end_s, STEPS)
            if wrong := self._wrong(db.execute("PRAGMA user_version").fetchone()[0]):
                raise DamagedError(f"the archive of {self._part} {wrong}")
            row = db.execute("SELECT name FROM writer").fetchone()
            self._part = str(row[0]) if row else self._part
            db.execute("BEGIN")  # one picture for all that follows
            yield db
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                text = f"it takes more than {QUESTION_S:g} s; ask for a shorter time"
                raise OperationalError(text) from None
            damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in UNUSABLE
            if damaged:
                raise DamagedError(f"the archive of {self._part} is damaged: {error}") from None
            text = f"the archive of {self._part} cannot be read: {error}"
            raise OperationalError(text) from None
        except ValueError as error:
            raise DamagedError(f"the archive of {self._part} is damaged: {error}") from None
        finally:
            db.close()

    def _wrong(self, version: int) -> str:
        """Why a file of this format cannot be read; empty if it can."""
        if version == FORMAT:
            return ""
        if version:
            return f"is of another version: it has format {version}, and {FORMAT} is read"
        empty = not self._path.stat().st_size
        return "is empty" if empty else "is damaged: its file is no archive"

    def _recorded(self, db: sqlite3.Connection, since_ms: int, until_ms: int) -> list[RecordedSpan]:
        """When it was written, within a time; not before the oldest record that is left."""
        (oldest,) = db.execute(
            "SELECT min(ts) FROM (SELECT min(ts) AS ts FROM event UNION ALL "
            "SELECT min(ts - span) FROM sample)"
        ).fetchone()
        rows = db.execute(
            "SELECT began, ended, dropped FROM run WHERE began <= ? AND ended >= ? "
            "ORDER BY began DESC LIMIT ?",
            (until_ms, max(since_ms, oldest or 0), RUNS_MAX),
        ).fetchall()
        return [
            RecordedSpan(begin=max(began, oldest or began), end=ended, dropped=dropped)
            for began, ended, dropped in reversed(rows)
        ]

    def _unrecorded(
        self, db: sqlite3.Connection, since_ms: int, until_ms: int
    ) -> list[UnrecordedSpan]:
        """What it lacks of a time; files of earlier versions do not say it."""
        if not db.execute("SELECT count(*) FROM sqlite_master WHERE name='gap'").fetchone()[0]:
            return []
        rows = db.execute(
            "SELECT begin, ended, reason FROM gap WHERE begin <= ? AND ended >= ? "
            "ORDER BY ended DESC, rowid DESC LIMIT ?",
            (until_ms, since_ms, RUNS_MAX),
        ).fetchall()
        return [UnrecordedSpan(*row) for row in reversed(rows)]

    def events(
        self, kinds: Sequence[str], about: str | None, since_ms: int, until_ms: int, limit: int
    ) -> ArchivedEvents:
        """Events of some kinds (none: all) about something (None: everything), the newest first."""
        places = ",".join("?" * len(kinds))
        of_kinds = f"AND e.kind IN ({places}) " if kinds else ""
        table = "event e" if about is None else "about a JOIN event e ON e.id = a.event"
        head = "e" if about is None else "a"
        named = "" if about is None else "a.name = (SELECT id FROM name WHERE text = ?) AND "
        text = (
            f"SELECT e.id, e.kind, e.ts, e.last, e.times, e.record FROM {table} "
            f"WHERE {named}{head}.ts BETWEEN ? AND ? AND e.last >= ? {of_kinds}"
            f"ORDER BY {head}.ts DESC, e.id DESC LIMIT ?"
        )
        values = [since_ms - FOLD_MS, until_ms, since_ms, *kinds, limit + 1]
        with self._opened() as db:
            rows = db.execute(text, [*([] if about is None else [about]), *values]).fetchall()
            return ArchivedEvents(
                part=self._part,
                recorded=self._recorded(db, since_ms, until_ms),
                unrecorded=self._unrecorded(db, since_ms, until_ms),
                cut_off=len(rows) > limit,
                events=[_event(row) for row in rows[:limit]],
            )

    def moment(self, at_ms: int, kinds: Sequence[str]) -> ArchivedMoment:
        """The loads of some kinds at a moment: of each broker the averages over the time that the
        moment lies in; else the last that had ended by then, within `NEAR_MS`.
        """
        loads = []
        with self._opened() as db:
            for kind in kinds:
                rule = self._catalogue.get(kind)
                if isinstance(rule, FiguresOf):
                    for broker, ts, span in _nearest(db, kind, at_ms):
                        loads.append(_loads(db, kind, rule, (broker, ts, span)))
            recorded = self._recorded(db, at_ms, at_ms)
            unrecorded = self._unrecorded(db, at_ms, at_ms)
        return ArchivedMoment(
            part=self._part, recorded=recorded, unrecorded=unrecorded, at=at_ms, loads=loads
        )

    def series(
        self, kind: str, name: str, since_ms: int, until_ms: int, limit: int
    ) -> ArchivedSeries:
        """The loads of one thing, or the sums of all whose names begin with `name` if it ends in a
        slash; of all, if it is nothing else.
        """
        rule = self._catalogue.get(kind)
        if not isinstance(rule, FiguresOf):
            raise OperationalError(f"{kind} is no kind of load")
        points = list[ArchivedPoint]()
        with self._opened() as db:
            last = "SELECT id FROM name WHERE text = ?"
            values = [name]
            if name == "/":
                last, values = "SELECT id FROM name", []
            elif name.endswith("/"):
                last = "SELECT id FROM name WHERE text >= ? AND text < ?"
                values = [name, _next(name)]
            ids = np.array([row[0] for row in db.execute(last, values)], dtype=np.uint32)
            rows = db.execute(
                "SELECT s.ts, s.span, n.text, s.figures FROM sample s JOIN name n ON n.id=s.broker "
                "WHERE s.kind=? AND s.ts BETWEEN ? AND ? ORDER BY s.ts, s.broker",
                (kind, since_ms, until_ms),
            )
            for ts, span, broker, data in rows if len(ids) else ():
                _, chosen = unpacked(data, len(rule.columns), ids)
                if not len(chosen):
                    continue
                figures = [float(figure) for figure in chosen.sum(axis=0)]
                point = ArchivedPoint(ts=ts, span_ms=span, broker=broker, figures=figures)
                before = points[-1] if points else None
                if before is not None and (before.ts, before.broker) == (ts, broker):
                    before.figures = [a + b for a, b in zip(before.figures, figures, strict=True)]
                else:
                    points.append(point)
            recorded = self._recorded(db, since_ms, until_ms)
            unrecorded = self._unrecorded(db, since_ms, until_ms)
        return ArchivedSeries(
            part=self._part,
            recorded=recorded,
            unrecorded=unrecorded,
            cut_off=len(points) > limit,
            columns=list(rule.columns),
            points=points[-limit:],
        )

    def sums(
        self, kind: str, columns: Sequence[str], times: tuple[int, int], limit: int
    ) -> ArchivedSums:
        """The sums of some figures of everything of one kind, of the records that ended within a
        time; those with most of the last of these figures if there are more than the limit.
        """
        rule = self._catalogue.get(kind)
        if not isinstance(rule, FiguresOf):
            raise OperationalError(f"{kind} is no kind of load")
        chosen = [rule.columns.index(column) for column in columns]
        totals: dict[int, tuple[list[float], int]] = {}
        averages_until = None
        with self._opened() as db:
            rows = db.execute(
                "SELECT ts, span, figures FROM sample WHERE kind=? AND ts > ? AND ts <= ? "
                "ORDER BY ts",
                (kind, *times),
            )
            for ts, span, data in rows:
                if span >= COARSE_MS:
                    averages_until = ts
                    continue
                ids, table = unpacked(data, len(rule.columns))
                for number, figures in zip(ids.tolist(), table[:, chosen].tolist(), strict=True):
                    if any(figures):
                        before, lasted_ms = totals.get(number, ([0.0] * len(chosen), 0))
                        after = [a + b for a, b in zip(before, figures, strict=True)]
                        totals[number] = after, lasted_ms + span
            most = sorted(totals, key=lambda number: (-totals[number][0][-1], number))[:limit]
            texts = self._texts(db, most)
            recorded = self._recorded(db, *times)
            unrecorded = self._unrecorded(db, *times)
        sums = [ArchivedSum(texts[it], *totals[it]) for it in most if it in texts]
        return ArchivedSums(
            part=self._part,
            recorded=recorded,
            unrecorded=unrecorded,
            cut_off=len(totals) > limit,
            columns=[*columns],
            rows=sorted(sums, key=lambda row: row.name),
            averages_until=averages_until,
        )

    def _texts(self, db: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, str]:
        """Their names."""
        return dict(
            db.execute(
                "SELECT id, text FROM name WHERE id IN (SELECT value FROM json_each(?))",
                (msgspec.json.encode(numbers).decode(),),
            )
        )

    def heat(
        self, kind: str, columns: Sequence[str], times: tuple[int, int, int], limit: int
    ) -> ArchivedHeat:
        """The sums of some figures of everything of one kind, in equal parts of a time (its begin,
        its end, and in how many parts), those with most of it first.
        """
        rule = self._catalogue.get(kind)
        if not isinstance(rule, FiguresOf):
            raise OperationalError(f"{kind} is no kind of load")
        since_ms, until_ms, parts = times
        chosen = [rule.columns.index(column) for column in columns]
        grid = _Grid(parts)
        with self._opened() as db:
            for ts, span, data in _recorded_in(db, kind, times):
                ids, values = sums(data, len(rule.columns), chosen)
                grid.add(_overlaps(times, ts - span, ts), ids, values)
            hottest = grid.hottest(limit)
            texts = self._texts(db, [number for number, _ in hottest])
            recorded = self._recorded(db, since_ms, until_ms)
            unrecorded = self._unrecorded(db, since_ms, until_ms)
        return ArchivedHeat(
            part=self._part,
            recorded=recorded,
            unrecorded=unrecorded,
            cut_off=grid.total > limit,
            times=[since_ms + (at + 1) * (until_ms - since_ms) // parts for at in range(parts)],
            bundles=[
                ArchivedHeatRow(bundle=texts[number], throughput=means)
                for number, means in hottest
                if number in texts
            ],
            total=grid.total,
        )


class _Grid:
    """Sums of a figure × time, and of the time, of numbered things in each part of a time: a row
    for each part, because a record is about many things at one time.
    """

    def __init__(self, parts: int) -> None:
        self._sums = np.zeros((parts, 0), np.float32)
        self._spans = np.zeros((parts, 0), np.float32)
        self._rows = np.zeros(0, np.int64)
        """Number of a thing → its row and 1; 0: none yet."""
        self.total = 0

    def add(self, overlaps: Mapping[int, int], ids: Ids, values: Table) -> None:
        """Add the means of some things over the parts that a record is about, each with how long
        it is about it.
        """
        if not len(ids):
            return
        if (most := int(ids.max())) >= len(self._rows):
            self._rows = np.concatenate((self._rows, np.zeros(most + 1, np.int64)))
        new = ids[self._rows[ids] == 0]
        self._rows[new] = self.total + 1 + np.arange(len(new))
        self.total += len(new)
        if self.total * len(self._sums) > CELLS_MAX:
            raise OperationalError("there are too many bundles: ask for fewer columns")
        if self.total > self._sums.shape[1]:
            more = np.zeros((len(self._sums), self.total), np.float32)
            self._sums = np.concatenate((self._sums, more), axis=1)
            self._spans = np.concatenate((self._spans, more), axis=1)
        rows = self._rows[ids] - 1
        for part, length in overlaps.items():
            self._sums[part, rows] += values * length
            self._spans[part, rows] += length

    def hottest(self, limit: int) -> list[tuple[int, list[float | None]]]:
        """The numbers of those with the highest sums, with their means; equal ones by number."""
        sums, spans = self._sums[:, : self.total].T, self._spans[:, : self.total].T
        numbers = np.flatnonzero(self._rows)
        totals = sums.sum(axis=1)[self._rows[numbers] - 1]
        first = numbers[np.argsort(-totals, kind="stable")[:limit]].tolist()
        means = np.where(spans > 0, sums / np.maximum(spans, 1), np.nan)
        return [
            (
                number,
                [
                    None if math.isnan(mean) else mean
                    for mean in means[self._rows[number] - 1].tolist()
                ],
            )
            for number in first
        ]


def _recorded_in(
    db: sqlite3.Connection, kind: str, times: tuple[int, int, int]
) -> Iterator[tuple[int, int, bytes]]:
    """Time, span and figures of all loads of a time; averages where its parts are long."""
    since_ms, until_ms, parts = times
    values: dict[str, int | str] = {"kind": kind, "since": since_ms, "until": until_ms}
    within = "ts > :since AND ts <= :until"
    if until_ms - since_ms < parts * AVERAGES_FROM_MS:
        text = f"SELECT ts, span, figures FROM sample WHERE kind=:kind AND {within}"
        return db.execute(text, values)
    text = (
        f"SELECT ts, span, figures FROM sample WHERE kind=:early AND {within} UNION ALL "
        f"SELECT ts, span, figures FROM sample AS fine WHERE kind=:kind AND {within} AND NOT "
        "EXISTS (SELECT 1 FROM sample WHERE kind=:early AND ts <= :until AND broker=fine.broker "
        "AND ts = (fine.ts + :coarse - 1) / :coarse * :coarse AND id > fine.id)"
    )
    return db.execute(text, {**values, "early": kind + EARLY, "coarse": COARSE_MS})


def _overlaps(times: tuple[int, int, int], begin_ms: int, end_ms: int) -> dict[int, int]:
    """Number of a part of a time → how long it overlaps another time, in parts of a millisecond."""
    since_ms, until_ms, parts = times
    length, begin, end = (
        until_ms - since_ms,
        (begin_ms - since_ms) * parts,
        (end_ms - since_ms) * parts,
    )
    return {
        part: min(end, (part + 1) * length) - max(begin, part * length)
        for part in range(max(begin, 0) // length, -(-end // length))
    }


def _event(row: tuple[int, str, int, int, int, bytes]) -> ArchivedEvent:
    number, kind, ts, last, times, record = row
    fields: dict[str, Any] = msgspec.json.decode(record)
    return ArchivedEvent(id=number, kind=kind, ts=ts, last=last, times=times, record=fields)


def _nearest(db: sqlite3.Connection, kind: str, at_ms: int) -> list[tuple[int, int, int]]:
    """Broker, time and span of the loads that stand for a moment. The shortest time that it lies
    in counts; at the end of one time, that is the time in which it lies.
    """
    rows = db.execute(
        "SELECT DISTINCT broker, ts, span FROM sample WHERE kind=? AND ts BETWEEN ? AND ? "
        "ORDER BY ts",
        (kind, at_ms - NEAR_MS, at_ms + COARSE_MS),
    ).fetchall()
    before: dict[int, tuple[int, int, int]] = {}
    within: dict[int, tuple[int, int, int]] = {}
    for broker, ts, span in rows:
        if ts < at_ms:
            before[broker] = (broker, ts, span)
        elif ts - span < at_ms and (broker not in within or span < within[broker][2]):
            within[broker] = (broker, ts, span)
    return sorted((before | within).values())


def _loads(
    db: sqlite3.Connection, kind: str, rule: FiguresOf, moment: tuple[int, int, int]
) -> ArchivedLoads:
    broker, ts, span = moment
    (name,) = db.execute("SELECT text FROM name WHERE id=?", (broker,)).fetchone()
    figures: dict[str, list[float]] = {}
    rows = db.execute(
        "SELECT figures FROM sample WHERE kind=? AND ts=? AND broker=? AND span=?",
        (kind, ts, broker, span),
    ).fetchall()
    for (data,) in rows:
        ids, table = unpacked(data, len(rule.columns))
        texts = dict(
            db.execute(
                "SELECT id, text FROM name WHERE id IN (SELECT value FROM json_each(?))",
                (msgspec.json.encode(ids.tolist()).decode(),),
            )
        )
        for number, row in zip(ids.tolist(), table.tolist(), strict=True):
            if number in texts:
                figures[texts[number]] = row
    return ArchivedLoads(
        kind=kind, broker=name, ts=ts, span_ms=span, columns=list(rule.columns), figures=figures
    )


def _next(prefix: str) -> str:
    """The first text after all that begin with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
