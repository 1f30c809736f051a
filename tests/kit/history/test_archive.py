"""Archives in real SQLite files: what is written is answered, within their bounds; a file that is
broken, full, locked or of another version costs nothing but itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from loadmanager.engine.history.archived import ARCHIVED
from loadmanager.engine.history.records import BundleLoad, Decision, OwnershipStep, Record
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.archive_answers import UnrecordedSpan
from loadmanager.kit.history.archive_file import COARSE_MS, ArchiveFile
from loadmanager.kit.history.archive_reader import ArchiveReader
from loadmanager.kit.history.figures import packed, unpacked
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.units import DAY_MS

NOW = 1_795_132_800_000
MINUTE = 60_000
BUNDLE = "acme/orders/0x00000000_0x80000000"
OTHER = "acme/other/0x00000000_0x80000000"
BROKER = "b1:8080"


class Clock:
    """Time that tests set."""

    def __init__(self) -> None:
        self.now = NOW

    def now_ms(self) -> int:
        """Milliseconds."""
        return self.now

    def monotonic_s(self) -> float:
        """Seconds."""
        return self.now / 1000

    def monotonic_ns(self) -> int:
        """Nanoseconds."""
        return self.now * 1_000_000


def a_load(ts: int, bundle: str = BUNDLE, rate: float = 10.0, broker: str = BROKER) -> BundleLoad:
    """The load of a bundle in one minute."""
    return BundleLoad(
        ts=ts, broker=broker, interval_ms=MINUTE, bundle=bundle, msg_rate_in=rate, topics=2
    )


def a_step(ts: int, bundle: str = BUNDLE, after: str = "Owned") -> OwnershipStep:
    """A step of a bundle."""
    return OwnershipStep(
        ts=ts, broker=BROKER, bundle=bundle, before="Free", after=after, reason="lookup"
    )


def a_skip(ts: int, code: str = "GracePeriod") -> Decision:
    """A reason not to move."""
    return Decision(
        ts=ts,
        broker=BROKER,
        epoch=1,
        cycle=ts // MINUTE,
        strategy="S",
        action="skip",
        what=BUNDLE,
        code=code,
        reason=f"{code} at {ts}",
    )


@contextmanager
def a_file(folder: Path) -> Iterator[ArchiveFile]:
    """A file, open."""
    file = ArchiveFile(folder / "b1.sqlite", BROKER, ARCHIVED, NOW)
    yield file
    file.close()


def a_reader(folder: Path) -> ArchiveReader:
    """Reads that file."""
    return ArchiveReader(folder / "b1.sqlite", ARCHIVED)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**32 - 1), st.floats(0, 2.0**100, width=32), st.integers(0, 65_536)
        ),
        unique_by=lambda row: row[0],
    )
)
def test_figures_come_back(rows: list[tuple[int, float, int]]) -> None:
    """Whole numbers are exact, others are within 0.002 %; also of one thing alone."""
    table = np.array([row[1:] for row in rows], dtype=np.float32).reshape(len(rows), 2)
    data = packed([row[0] for row in rows], table)
    ids, figures = unpacked(data, 2)
    assert ids.tolist() == [row[0] for row in rows]
    assert figures[:, 1].tolist() == [row[2] for row in rows]
    assert np.allclose(figures[:, 0], table[:, 0], rtol=2e-5, atol=1e-40)
    for index, row in enumerate(rows[:3]):
        chosen, figures_of_it = unpacked(data, 2, np.array([row[0]], dtype=np.uint32))
        assert chosen.tolist() == [row[0]]
        assert figures_of_it.tolist() == [figures[index].tolist()]


def test_events_are_found_by_what_they_are_about(tmp_path: Path) -> None:
    """By bundle, namespace, tenant and broker; the newest first; within a time."""
    with a_file(tmp_path) as file:
        file.write([a_step(NOW + i, (BUNDLE, OTHER)[i % 2]) for i in range(10)], NOW + 10, 0)
        reader = a_reader(tmp_path)
        of_bundle = reader.events((), BUNDLE, 0, NOW + 99, 3)
        assert [event.ts - NOW for event in of_bundle.events] == [8, 6, 4]
        assert of_bundle.cut_off
        assert of_bundle.events[0].record["bundle"] == BUNDLE
        for name, count in (("acme", 10), ("acme/other", 5), (BROKER, 10), ("acm", 0)):
            assert len(reader.events((), name, 0, NOW + 99, 50).events) == count
        assert [e.ts - NOW for e in reader.events((), None, NOW + 3, NOW + 4, 9).events] == [4, 3]
        assert reader.events(("decision.skip",), BUNDLE, 0, NOW + 99, 3).events == []


def test_the_same_reason_again_is_counted(tmp_path: Path) -> None:
    """It is one event with the last figures, found at every moment of it; another one ends it."""
    with a_file(tmp_path) as file:
        for minute in range(30):
            file.write([a_skip(NOW + minute * MINUTE)], NOW, 0)
        file.write([a_skip(NOW + 30 * MINUTE, "Pinned")], NOW, 0)
        events = a_reader(tmp_path).events(
            ("decision.skip",), BUNDLE, NOW + 20 * MINUTE, NOW * 2, 9
        )
    assert [(event.times, event.record["code"]) for event in events.events] == [
        (1, "Pinned"),
        (30, "GracePeriod"),
    ]
    assert events.events[1].record["reason"] == f"GracePeriod at {NOW + 29 * MINUTE}"
    assert events.events[1].last == NOW + 29 * MINUTE


def test_loads_of_a_moment(tmp_path: Path) -> None:
    """Those of the minute that it lies in, also when they were written in two parts; without one,
    those of the last that had ended.
    """
    with a_file(tmp_path) as file:
        for minute in range(10):
            ts = NOW + minute * MINUTE
            file.write([a_load(ts, rate=minute)], ts, 0)
            file.write([a_load(ts, OTHER, rate=100 + minute)], ts, 0)
        reader = a_reader(tmp_path)
        (loads,) = reader.moment(NOW + 4 * MINUTE + 1, ["bundle_load"]).loads
        assert (loads.ts, loads.span_ms) == (NOW + 5 * MINUTE, MINUTE)
        assert {name: row[0] for name, row in loads.figures.items()} == {BUNDLE: 5, OTHER: 105}
        (loads,) = reader.moment(NOW + 5 * MINUTE, ["bundle_load"]).loads
        assert (loads.ts, loads.figures[BUNDLE][0]) == (NOW + 5 * MINUTE, 5)
        (first,) = reader.moment(NOW - 1, ["bundle_load"]).loads
        assert (first.ts, first.figures[BUNDLE][0]) == (NOW, 0)
        (last,) = reader.moment(NOW + 11 * MINUTE, ["bundle_load"]).loads
        assert last.ts == NOW + 9 * MINUTE
        assert reader.moment(NOW + 60 * MINUTE, ["bundle_load"]).loads == []
        series = reader.series("bundle_load", BUNDLE, NOW, NOW * 2, 100)
        assert [point.figures[0] for point in series.points] == list(range(10))
        sums = reader.series("bundle_load", "acme/", NOW, NOW * 2, 100)
        assert [point.figures[0] for point in sums.points] == [100 + 2 * i for i in range(10)]


def test_the_heat_of_a_time(tmp_path: Path) -> None:
    """Means for equal parts of a time, those with most traffic first; nothing where nothing was
    recorded, so that a bundle that was elsewhere is not shown without traffic.
    """
    minutes = [NOW + (minute + 1) * MINUTE for minute in range(4)]
    with a_file(tmp_path) as file:
        file.write([a_load(ts, rate=3.0) for ts in minutes], NOW, 0)
        file.write([a_load(ts, OTHER, rate=9.0) for ts in minutes[:2]], NOW, 0)
        reader, columns = a_reader(tmp_path), ("msg_rate_in",)
        heat = reader.heat("bundle_load", columns, (NOW, minutes[-1], 2), 10)
        assert heat.times == [minutes[1], minutes[3]]
        assert [(row.bundle, row.throughput) for row in heat.bundles] == [
            (OTHER, [9.0, None]),
            (BUNDLE, [3.0, 3.0]),
        ]
        assert (heat.total, heat.cut_off) == (2, False)
        first = reader.heat("bundle_load", columns, (NOW, minutes[0], 1), 1)
        assert ([row.bundle for row in first.bundles], first.cut_off) == ([OTHER], True)
        fine = reader.heat("bundle_load", columns, (NOW, minutes[-1], 8), 1)
        assert fine.bundles[0].throughput == [9.0] * 4 + [None] * 4
        nothing = reader.heat("bundle_load", columns, (0, MINUTE, 5), 10)
        assert (nothing.bundles, nothing.total, len(nothing.times)) == ([], 0, 5)
        with pytest.raises(OperationalError, match="no kind of load"):
            reader.heat("change", columns, (NOW, minutes[0], 1), 1)


def test_old_loads_become_quarters_of_an_hour(tmp_path: Path) -> None:
    """Averages of what was there take their place after a day, and answer as well."""
    begin = NOW // COARSE_MS * COARSE_MS
    with a_file(tmp_path) as file:
        for minute in range(1, 31):
            ts = begin + minute * MINUTE
            file.write([a_load(ts, rate=minute)], ts, 0)
        file.roll_up(begin + DAY_MS + COARSE_MS + 1)
        series = a_reader(tmp_path).series("bundle_load", BUNDLE, 0, NOW * 2, 100)
        assert [point.span_ms for point in series.points] == [COARSE_MS] + [MINUTE] * 15
        assert series.points[0].ts == begin + COARSE_MS
        assert series.points[0].figures[0] == pytest.approx(8)
        (loads,) = a_reader(tmp_path).moment(begin + 7 * MINUTE, ["bundle_load"]).loads
        assert loads.span_ms == COARSE_MS


def heat_of(folder: Path, begin: int, minutes: int) -> list[float | None]:
    """Of one bundle, in parts of ten minutes."""
    times = (begin, begin + minutes * MINUTE, minutes // 10)
    (row,) = a_reader(folder).heat("bundle_load", ("msg_rate_in",), times, 9).bundles
    return row.throughput


def test_the_heat_of_a_long_time_is_made_of_averages(tmp_path: Path) -> None:
    """They are there when a quarter of an hour is over, and what comes later counts, too: at once,
    and when they take the place of what was recorded. What is asked for single minutes and moments
    is answered from these until then.
    """
    begin = NOW // COARSE_MS * COARSE_MS
    with a_file(tmp_path) as file:
        for minute in range(1, 41):
            ts = begin + minute * MINUTE
            file.write([a_load(ts, rate=(minute - 1) // 5)], ts, 0)
            file.roll_up(ts)
        # Quarters of 1 and 4 on average, and ten minutes that have no average yet.
        assert heat_of(tmp_path, begin, 40) == pytest.approx([1.0, 2.5, 4.0, 6.5])
        assert heat_of(tmp_path, begin, 20) == pytest.approx([1.0, 2.0])
        (loads,) = a_reader(tmp_path).moment(begin + 8 * MINUTE, ["bundle_load"]).loads
        assert (loads.span_ms, loads.figures[BUNDLE][0]) == (MINUTE, 1.0)
        series = a_reader(tmp_path).series("bundle_load", BUNDLE, 0, NOW * 2, 100)
        assert len(series.points) == 40
        half = begin + 20 * MINUTE + MINUTE // 2
        file.write([a_load(half, rate=1_000.0)], ts, 0)
        late = heat_of(tmp_path, begin, 40)
        assert [part > 20 for part in late if part is not None] == [False, True, True, False]
        file.roll_up(begin + DAY_MS + 30 * MINUTE)
        series = a_reader(tmp_path).series("bundle_load", BUNDLE, 0, NOW * 2, 100)
        assert [point.span_ms for point in series.points] == [COARSE_MS] * 2 + [MINUTE] * 10
        means = [point.figures[0] for point in series.points[:2]]
        assert means == pytest.approx([1.0, (15 * 4 + 1_000) / 16], rel=1e-4)
        assert heat_of(tmp_path, begin, 40)[0] == pytest.approx(1.0)
    with sqlite3.connect(tmp_path / "b1.sqlite") as db:
        early = db.execute("SELECT ts FROM sample WHERE kind LIKE '%/%'").fetchall()
    assert early == [(begin + 3 * COARSE_MS,)]


def test_it_stays_within_age_and_size(tmp_path: Path) -> None:
    """What is too old goes; then the oldest, until the size is right, and the disk gets it back."""
    with a_file(tmp_path) as file:
        for minute in range(3_000):
            ts = NOW + minute * MINUTE
            bundles = [f"t/n{minute}/0x{i:08x}_0x{i + 1:08x}" for i in range(5)]
            file.write([a_load(ts, each, i) for i, each in enumerate(bundles)], ts, 0)
            file.write([a_step(ts, each) for each in bundles], ts, 0)
        before = file.size
        assert file.retain(NOW + 1_000 * MINUTE, 1 << 40) == 0
        after = file.size
        assert after < before * 0.75
        assert file.retain(NOW, after // 2) > 0
        assert file.size <= after // 2
        answer = a_reader(tmp_path).events((), None, 0, NOW * 2, 10_000)
        assert answer.events[0].ts == ts
        assert answer.recorded[0].begin >= NOW + 1_000 * MINUTE
    assert (tmp_path / "b1.sqlite").stat().st_size <= after // 2 + (64 << 10)
    with sqlite3.connect(tmp_path / "b1.sqlite") as db:
        (names,) = db.execute("SELECT count(*) FROM name").fetchone()
    assert names < 3_000 * 6


# The thread


@asynccontextmanager
async def an_archive(folder: Path, **more: Any) -> AsyncIterator[Archive]:
    """An archive that is written."""
    where = HistorySettings(directory=str(folder))
    archive = Archive(
        where, ARCHIVED, cluster="c", broker=BROKER, clock=Clock(), **{"again_s": 0.1, **more}
    )
    archive.start()
    try:
        yield archive
    finally:
        await archive.close()


def path_in(folder: Path) -> Path:
    """Its file."""
    return folder / "cluster=c" / "archive" / "b1_8080.sqlite"


async def until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait until it is so."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)


async def test_what_is_appended_is_answered(tmp_path: Path) -> None:
    """Within seconds; other kinds are left out; what closing leaves is written."""

    class Other(Record):
        kind = "other"

    async with an_archive(tmp_path) as archive:
        archive.append(a_step(NOW), Other(ts=NOW, broker=BROKER))
        await until(lambda: archive.written == 1)
        assert (
            len((await archive.ask(lambda file: file.events((), BUNDLE, 0, NOW, 10))).events) == 1
        )
        archive.append(a_step(NOW + 1))
    async with an_archive(tmp_path) as archive:
        await until(lambda: archive.bytes_used > 0)
        answer = await archive.ask(lambda file: file.events((), BUNDLE, 0, NOW + 1, 10))
        assert len(answer.events) == 2
        assert len(answer.recorded) == 2
        assert archive.dropped == 0


async def test_the_file_is_ours_alone(tmp_path: Path) -> None:
    """As those of the history."""
    async with an_archive(tmp_path) as archive:
        await until(lambda: archive.bytes_used > 0)
    assert path_in(tmp_path).stat().st_mode & 0o077 == 0


async def test_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    """Nothing is lost as long as there is room; one line is logged, not one for each try."""
    async with an_archive(tmp_path) as archive:
        await until(lambda: archive.bytes_used > 0)
        other = sqlite3.connect(path_in(tmp_path), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with capture_logs() as logs:
            archive.append(a_step(NOW))
            await until(lambda: archive.failures >= 2)
            assert archive.written == 0
            other.execute("ROLLBACK")
            await until(lambda: archive.written == 1)
            other.close()
            await until(lambda: len(logs) == 2)
        assert [line["log_level"] for line in logs] == ["error", "info"]
        assert "locked" in logs[0]["error"]
        assert archive.dropped == 0


async def test_what_does_not_fit_is_dropped(tmp_path: Path) -> None:
    """It is counted, and the answers say so."""
    async with an_archive(tmp_path, waiting_max=10) as archive:
        archive.append(*(a_step(NOW + i) for i in range(25)))
        assert archive.dropped >= 5
        await until(lambda: archive.written == 25 - archive.dropped)
        answer = await archive.ask(lambda file: file.events((), None, 0, NOW * 2, 10))
        assert answer.recorded[-1].dropped == archive.dropped


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"no database at all" * 500, "not a database"), (None, "format 99"), (b"", None)],
)
async def test_a_file_that_cannot_be_used_is_put_aside(
    tmp_path: Path, content: bytes | None, reason: str | None
) -> None:
    """Also one of a later version; a new one begins. An empty file is none."""
    path = path_in(tmp_path)
    path.parent.mkdir(parents=True)
    if content is None:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version=99")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with capture_logs() as logs:
        async with an_archive(tmp_path) as archive:
            archive.append(a_step(NOW))
            await until(lambda: archive.written == 1)
            assert (
                len((await archive.ask(lambda file: file.events((), None, 0, NOW, 10))).events) == 1
            )
    aside = path.with_suffix(".aside")
    assert aside.exists() == (reason is not None)
    if reason is not None:
        assert aside.read_bytes() == before
        assert reason in logs[0]["reason"]


async def test_a_file_that_is_deleted_begins_anew(tmp_path: Path) -> None:
    """The thread notices, and makes another."""
    async with an_archive(tmp_path) as archive:
        await until(lambda: archive.bytes_used > 0)
        path_in(tmp_path).unlink()
        archive.append(a_step(NOW))
        await until(lambda: path_in(tmp_path).exists() and archive.written == 1)
        assert len((await archive.ask(lambda file: file.events((), None, 0, NOW, 10))).events) == 1


def emptied(path: Path) -> None:
    """As `truncate -s 0`."""
    os.truncate(path, 0)


def replaced(path: Path) -> None:
    """By something else of the same size."""
    other = path.with_suffix(".other")
    other.write_bytes(b"x" * path.stat().st_size)
    other.replace(path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(Path.unlink, "removed"), (emptied, "truncated"), (replaced, "replaced")],
)
async def test_a_file_that_others_spoil_is_noticed(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    """Without a question: it is logged and counted, a new one begins, and says what is gone."""
    async with an_archive(tmp_path) as archive:
        archive.append(a_step(NOW))
        await until(lambda: archive.written == 1 and archive.bytes_used > 0)
        with capture_logs() as logs:
            spoil(path_in(tmp_path))
            await until(lambda: archive.failures >= 1 and written_runs(tmp_path) == 1)
        assert f"its file was {reason}" in logs[0]["reason"]
        archive.append(a_step(NOW + 1))
        await until(lambda: archive.written == 2)
        answer = await archive.ask(lambda file: file.events((), None, 0, NOW * 2, 10))
        assert [event.ts for event in answer.events] == [NOW + 1]
        assert answer.unrecorded[0] == UnrecordedSpan(0, NOW, f"its file was {reason}")
    assert ArchiveReader(path_in(tmp_path), ARCHIVED).events((), None, 0, NOW, 1).unrecorded


def written_runs(folder: Path) -> int:
    """How many runs the file has that is there; 0: it cannot be read."""
    try:
        events = ArchiveReader(path_in(folder), ARCHIVED).events((), None, 0, NOW * 2, 1)
    except OperationalError:
        return 0
    return len(events.recorded)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"x" * 9_000, "is damaged"),
        (None, "cannot be read: its file is not there"),
        (9, "is of another version: it has format 9"),
    ],
)
def test_a_reader_says_what_is_true(tmp_path: Path, content: bytes | int | None, said: str) -> None:
    """Of a file that cannot be opened: that it is of another version only if it is."""
    path = tmp_path / "b1.sqlite"
    if isinstance(content, int):
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version={content}")
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(OperationalError, match=f"the archive of b1:8080 {said}"):
        ArchiveReader(path, ARCHIVED, BROKER).events((), None, 0, NOW, 1)


async def test_what_is_not_written_is_said_to_be_missing(tmp_path: Path) -> None:
    """While it fails, since when and why; what was written later was recorded all the time."""
    async with an_archive(tmp_path) as archive:
        await until(lambda: archive.bytes_used > 0)
        other = sqlite3.connect(path_in(tmp_path), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        archive.append(a_step(NOW))
        await until(lambda: archive.failures >= 1)
        answer = await archive.ask(lambda file: file.events((), None, 0, NOW * 2, 10))
        (gap,) = answer.unrecorded
        assert (gap.begin, gap.end, "locked" in gap.reason) == (NOW, None, True)
        other.execute("ROLLBACK")
        other.close()
        await until(lambda: archive.written == 1 and not archive.unrecorded_now())
        answer = await archive.ask(lambda file: file.events((), None, 0, NOW * 2, 10))
        assert (answer.unrecorded, len(answer.recorded)) == ([], 1)


async def test_a_writer_that_does_not_come_round_is_told(tmp_path: Path) -> None:
    """As on a disk that hangs, which raises no error: nothing was written for half a minute."""
    clock = Clock()
    where = HistorySettings(directory=str(tmp_path))
    archive = Archive(where, ARCHIVED, cluster="c", broker=BROKER, clock=clock)
    archive.start()
    await until(lambda: archive.bytes_used > 0)

    def late() -> bool:
        clock.now += 40_000
        return any(it.end is None and "slow" in it.reason for it in archive.unrecorded_now())

    await until(late)
    await until(lambda: not archive.unrecorded_now())
    await archive.close()


async def test_what_was_dropped_meanwhile_is_missing_for_good(tmp_path: Path) -> None:
    """The file says of which time it was, and why."""
    async with an_archive(tmp_path, waiting_max=10) as archive:
        await until(lambda: archive.bytes_used > 0)
        other = sqlite3.connect(path_in(tmp_path), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        archive.append(a_step(NOW))
        await until(lambda: archive.failures >= 1)
        archive.append(*(a_step(NOW + i) for i in range(1, 25)))
        other.execute("ROLLBACK")
        other.close()
        await until(lambda: archive.written == 10 and not archive.unrecorded_now())
    answer = ArchiveReader(path_in(tmp_path), ARCHIVED).events((), None, 0, NOW * 2, 10)
    (gap,) = answer.unrecorded
    assert (gap.begin, gap.end) == (NOW, NOW)
    assert gap.reason.startswith("15 records dropped: its file cannot be written: ")


async def test_pages_that_break_later_cost_the_file(tmp_path: Path) -> None:
    """Garbage in the middle of a file: it is closed, put aside, and begins anew."""
    async with an_archive(tmp_path) as archive:
        archive.append(*(a_step(NOW + i, f"t/n{i}/0x00000000_0x80000000") for i in range(2_000)))
        await until(lambda: archive.written == 2_000 and archive.bytes_used > 0)
    with path_in(tmp_path).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path_in(tmp_path).stat().st_size - 4096))
    async with an_archive(tmp_path) as archive:
        archive.append(a_step(NOW + 5_000))
        await until(lambda: archive.written == 1)
        assert (
            len((await archive.ask(lambda file: file.events((), None, 0, NOW * 2, 10))).events) == 1
        )


async def test_a_question_finds_what_the_writer_does_not_see(tmp_path: Path) -> None:
    """Pages that break in a file that is open, and that nothing new is written to: who asks is
    told, and the file is put aside.
    """
    async with an_archive(tmp_path) as archive:
        archive.append(*(a_step(NOW + i, f"t/n{i}/0x00000000_0x80000000") for i in range(2_000)))
        await until(lambda: archive.written == 2_000)
    async with an_archive(tmp_path) as archive:
        await until(lambda: archive.bytes_used > 0)
        with path_in(tmp_path).open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (path_in(tmp_path).stat().st_size - 4096))
        with pytest.raises(OperationalError, match="malformed"):
            await archive.ask(lambda file: file.events((), None, 0, NOW * 2, 10))
        await until(lambda: path_in(tmp_path).with_suffix(".aside").exists())
        assert archive.failures == 1
        archive.append(a_step(NOW))
        await until(lambda: archive.written == 1)
        answer = await archive.ask(lambda file: file.events((), None, 0, NOW * 2, 10))
        assert len(answer.events) == 1


async def test_without_a_file_there_is_a_reason() -> None:
    """A folder that cannot be made: records wait, questions are refused in words."""
    where = HistorySettings(directory="/proc/nowhere")
    archive = Archive(where, ARCHIVED, cluster="c", broker=BROKER, clock=Clock())
    archive.start()
    await until(lambda: archive.failures >= 1)
    with pytest.raises(OperationalError, match="cannot be read"):
        await archive.ask(lambda file: file.events((), None, 0, NOW, 10))
    await archive.close()


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from kit.history.test_archive import NOW, a_step, an_archive, until
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main():
    folder = Path(sys.argv[1])
    async with an_archive(folder) as archive:
        await until(lambda: archive.bytes_used > 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        steps = [a_step(NOW + i, f"t/n{i}/0x00000000_0x80000000") for i in range(20_000)]
        archive.append(*steps)
        await until(lambda: archive.failures >= 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await until(lambda: archive.written == 20_000)
        print("dropped", archive.dropped)

asyncio.run(main())
"""


def test_a_full_disk_costs_nothing_that_fits(tmp_path: Path) -> None:
    """Files may not grow for a while: it is tried again until they may, and nothing is lost."""
    command = [sys.executable, "-c", FULL, str(tmp_path), "tests"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert "dropped 0" in done.stdout.splitlines()


KILLED = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from kit.history.test_archive import NOW, a_step, an_archive

async def main():
    async with an_archive(Path(sys.argv[1])) as archive:
        number, going = 0, False
        while True:
            if number < 8_000:
                archive.append(a_step(NOW + number))
            number += 1
            if not going and archive.written > 1_000:
                going = True
                print("going", flush=True)
            await asyncio.sleep(0.0005)

asyncio.run(main())
"""


def _killed(folder: Path) -> None:
    """A process writes for a while, and is killed."""
    command = [sys.executable, "-c", KILLED, str(folder), "tests"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"going\n"
        process.send_signal(signal.SIGKILL)


async def test_a_killed_writer_leaves_a_good_file(tmp_path: Path) -> None:
    """Everything up to the last second is there, and the next process goes on."""
    _killed(tmp_path)
    async with an_archive(tmp_path) as archive:
        await until(lambda: archive.bytes_used > 0)
        answer = await archive.ask(lambda file: file.events((), None, 0, NOW * 2, 10_000))
        assert len(answer.events) > 1_000
        assert [e.ts for e in answer.events] == sorted((e.ts for e in answer.events), reverse=True)
        assert answer.events[-1].ts == NOW


async def test_a_part_that_another_broker_left_can_be_read_while_it_is_written(
    tmp_path: Path,
) -> None:
    """Readers and the writer do not wait for each other."""
    async with an_archive(tmp_path) as archive:
        for round_ in range(20):
            archive.append(*(a_step(NOW + round_ * 100 + i) for i in range(100)))
            reader = ArchiveReader(path_in(tmp_path), ARCHIVED)
            if archive.written:
                written = archive.written
                assert len(reader.events((), BUNDLE, 0, NOW * 2, 10_000).events) >= written
            await asyncio.sleep(0.1)
        await until(lambda: archive.written == 2_000)
        assert archive.failures == 0


async def test_what_is_settled_is_there(tmp_path: Path) -> None:
    """For whoever reads the file: a killed process leaves it."""
    async with an_archive(tmp_path) as archive:
        for number in range(1, 4):
            archive.append(a_step(NOW + number))
            await archive.settle(within_s=60)
            events = (
                ArchiveReader(path_in(tmp_path), ARCHIVED).events((), BUNDLE, 0, NOW + 99, 9).events
            )
            assert events[0].ts == NOW + number
