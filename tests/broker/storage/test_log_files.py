"""Log files, on a real directory and on a disk in memory whose machines crash."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from broker.messaging.test_segments import a_log, ids
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from loadmanager.broker.messaging.segments import ABSENT, SegmentIndex, entries_in
from loadmanager.broker.messaging.stored_log import Rollover, StoredLog
from loadmanager.broker.ports.log import FencedError, Run, StoodStillError, StorageTimeoutError
from loadmanager.broker.storage.commit_journal import index_path, segment_path
from loadmanager.broker.storage.disk import OPEN_MAX, DirectoryDisk
from loadmanager.broker.storage.log_files import COMMITTER, RETIRED_MAX, LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.broker.storage.shared_id import SharedId
from loadmanager.broker.storage.writers import RESERVE, WRITERS, Disk
from loadmanager.kit.errors import OperationalError

ID = "0123456789abcdef"


async def inline(number: int, call: Callable[[], Any]) -> Any:
    """Run a call of the storage at once."""
    return call()


@pytest.fixture(params=["directory", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Both kinds of disks."""
    return DirectoryDisk(tmp_path / "topics") if request.param == "directory" else fresh()


def fresh() -> MemoryDisk:
    """A disk of its own."""
    return MemoryDisk(SharedFiles())


async def opened(
    files: LogFiles, runs: list[Run], *, entries_max: int = 1000
) -> tuple[StoredLog, list[Run]]:
    """Open log 7 again after these runs."""
    segments, end_id = await files.open(7, runs, 0)
    number = max((run.number for run in runs), default=0) + 1
    log = a_log(segments, run=number, entries_max=entries_max)
    return log, [*runs, Run(number, end_id, files.writer)]


async def write(files: LogFiles, log: StoredLog, *tails: bytes) -> None:
    """Append and commit."""
    for tail in tails:
        log.append(tail, 1, 0, "p", log.next_id)
    pieces, end_id, size = log.take()
    if await files.append({7: pieces}):
        raise FencedError("it was opened again")
    log.stored(end_id, size)


async def tails(files: LogFiles, segments: list[SegmentIndex]) -> list[bytes]:
    """Everything that segments hold."""
    found = []
    for segment in segments:
        data = await files.read(7, segment, 0, segment.size)
        found += [entry.tail for entry in entries_in(data)][: len(segment.offsets)]
    return found


@pytest.mark.asyncio
async def test_what_was_committed_is_there_after_every_opening(disk: Disk) -> None:
    """Each opening finds what all earlier ones committed, whether they were closed or not, with
    the producers' sequence ids.
    """
    files, runs = LogFiles(disk, inline), list[Run]()
    for number in range(4):
        log, runs = await opened(files, runs, entries_max=2)
        await write(files, log, *(b"%d-%d" % (number, index) for index in range(5)))
        if number % 2:
            log.segments[-1].producers = dict(log.producers)
            await files.close(7, log.segments[-1:])
    segments, end_id = await files.open(7, runs, 0)
    assert (end_id, files.damaged) == (20, 0)
    assert await tails(files, segments) == [
        b"%d-%d" % (number, index) for number in range(4) for index in range(5)
    ]
    assert ids(segments[-1]) == {"p": 19}


@pytest.mark.asyncio
async def test_closing_a_log_waits_once_for_the_thread_that_commits() -> None:
    """Commits of other topics keep that thread busy while a bundle moves."""
    numbers = list[int]()

    async def counted(number: int, call: Callable[[], Any]) -> Any:
        numbers.append(number)
        return call()

    files = LogFiles(fresh(), counted, direct_max=0)
    log, _ = await opened(files, [])
    await write(files, log, b"a")
    numbers.clear()
    await files.close(7, log.segments)
    assert numbers.count(COMMITTER) == 1


@pytest.mark.asyncio
async def test_a_writer_that_was_fenced_gets_no_acknowledgement(disk: Disk) -> None:
    """After another opening a writer is told so, and what it wrote since is never read."""
    files, runs = LogFiles(disk, inline), list[Run]()
    first, runs = await opened(files, runs)
    await write(files, first, b"a")
    second, runs = await opened(files, runs)
    with pytest.raises(FencedError):
        await write(files, first, b"lost")
    await write(files, second, b"b")
    segments, end_id = await files.open(7, runs, 0)
    assert (await tails(files, segments), end_id) == ([b"a", b"b"], 2)


@pytest.mark.asyncio
async def test_what_a_fenced_writer_wrote_is_not_remembered_as_stored(disk: Disk) -> None:
    """Its producers repeat those messages to the next owner. A later one must not take them for
    stored, though the fenced writer has finished its segment, with an index.
    """
    files, runs = LogFiles(disk, inline), list[Run]()
    first, runs = await opened(files, runs, entries_max=3)
    await write(files, first, b"a", b"b")
    _, runs = await opened(LogFiles(disk, inline), runs)
    with pytest.raises(FencedError):
        await write(files, first, b"lost", b"lost, too")
    segments, end_id = await LogFiles(disk, inline).open(7, runs, 0)
    assert (await tails(files, segments), end_id) == ([b"a", b"b"], 2)
    assert ids(segments[-1]) == {"p": 1}


@pytest.mark.parametrize("crash_at", range(16, 30))
async def test_a_crash_while_a_segment_is_finished_leaves_no_gap(crash_at: int) -> None:
    """Of a commit to two segments, the disk may keep the second part only. Nothing of it was
    acknowledged, and its producer repeats all of it: none of it may be taken for stored already.
    """
    shared = SharedFiles()
    disk = Dying(shared, crash_at)
    files = LogFiles(disk, inline)
    log, runs = await opened(files, [], entries_max=3)
    await write(files, log, b"0", b"1")
    with suppress(OperationalError):
        await write(files, log, b"2", b"3")
    left = iter([0])
    disk.crash(lambda size: next(left, size))
    files = LogFiles(MemoryDisk(shared), inline)
    segments, end_id = await files.open(7, runs, 0)
    assert await tails(files, segments) == [b"%d" % number for number in range(end_id)]
    assert ids(segments[-1]) == {"p": end_id - 1}


@pytest.mark.asyncio
async def test_trimmed_and_deleted_segments_leave_no_files(disk: Disk) -> None:
    """A trim deletes the segments that are consumed, and only those; deleting deletes all."""
    files = LogFiles(disk, inline)
    log, runs = await opened(files, [], entries_max=10)
    await write(files, log, *(b"%d" % index for index in range(35)))
    await files.trim(7, 25)
    segments, end_id = await files.open(7, runs, 25)
    assert (segments[0].first_id, end_id) == (20, 35)
    assert await tails(files, segments) == [b"%d" % index for index in range(20, 35)]
    await files.delete(7)
    assert disk.names(f"{7:016x}") == []


@pytest.mark.asyncio
async def test_a_damaged_record_costs_that_record_only(disk: Disk) -> None:
    """The others are found, and the damage is counted."""
    files = LogFiles(disk, inline)
    log, runs = await opened(files, [])
    await write(files, log, b"aaaa", b"bbbb", b"cccc")
    path = f"{7:016x}/00000001-{0:016x}.log"
    disk.create(path, disk.read(path).replace(b"bbbb", b"bxbb"))
    segments, end_id = await files.open(7, runs, 0)
    reopened = a_log(segments, run=2)
    assert (end_id, files.damaged) == (3, 1)
    assert [reopened.place(entry_id) is not None for entry_id in range(3)] == [True, False, True]


@pytest.mark.asyncio
async def test_a_full_disk_is_an_error_and_what_was_committed_stays() -> None:
    """A write that does not fit fails; opened again, the log has what was acknowledged, and goes
    on when there is room.
    """
    shared = SharedFiles()
    files = LogFiles(MemoryDisk(shared), inline)
    log, runs = await opened(files, [])
    await write(files, log, b"a" * 100)
    shared.room = 50
    with pytest.raises(OperationalError, match="No space left"):
        await write(files, log, b"b" * 100)
    log, runs = await opened(files, runs)
    shared.room = -1
    await write(files, log, b"c")
    segments, _ = await files.open(7, runs, 0)
    assert await tails(files, segments) == [b"a" * 100, b"c"]


@pytest.mark.asyncio
async def test_more_topics_than_open_files(tmp_path: Path) -> None:
    """A thread writes to more segments than it keeps open."""
    files = LogFiles(DirectoryDisk(tmp_path), inline)
    logs = {number: a_log() for number in range(OPEN_MAX + 10)}
    for number in logs:
        await files.open(number, [], 0)
    for turn in range(2):
        for number, log in logs.items():
            log.append(b"%d" % turn, 1, 0, "p", turn)
            pieces, end_id, size = log.take()
            await files.append({number: pieces})
            log.stored(end_id, size)
    for number in logs:
        segments, _ = await files.open(number, [Run(1, 0, files.writer)], 0)
        assert segments[0].end_id == 2


@given(st.lists(st.integers(0, 2), max_size=8), st.data())
def test_a_crash_at_any_moment_loses_nothing_that_was_acknowledged(
    steps: list[int], data: st.DataObject
) -> None:
    """Machines write, crash between any two calls of the disk, and open the log again: it has
    everything that was acknowledged, in order, and nothing that was not sent. What is not there is
    not remembered as stored either: its producer repeats it.
    """
    shared = SharedFiles()

    async def life(runs: list[Run], sent: list[bytes], kept: list[bytes]) -> list[Run]:
        disk = Dying(shared, data.draw(st.integers(0, 25)))
        files = LogFiles(disk, inline, journal_bytes=200, direct_max=data.draw(st.integers(0, 2)))
        try:
            segments, end_id = await files.open(7, runs, 0)
            assert is_between(kept, await tails(files, segments), sent)
            if segments:
                assert ids(segments[-1]) == {"p": segments[-1].end_id - 1}
            number = max((run.number for run in runs), default=0) + 1
            written = {segment.run for segment in segments}
            kept_runs = [run for run in runs if run.number in written]
            runs = [*kept_runs, Run(number, end_id, files.writer)]
            log = StoredLog(
                a_log().memory, a_log()._cache, segments, run=number, next_id=end_id,
                rollover=Rollover(3, 1 << 30, 10),
            )  # fmt: skip
            kept[:] = await tails(files, segments)
            sent[:] = kept
            for step in steps:
                some = [b"%d-%d" % (number, log.next_id + index) for index in range(step + 1)]
                sent += some
                await write(files, log, *some)
                kept += some
                if data.draw(st.booleans()):
                    await data.draw(st.sampled_from((files.flush, files.sync)))()
            log.segments[-1].producers = dict(log.producers)
            await files.close(7, log.segments[-1:])
        except OperationalError:
            pass
        disk.crash(lambda size: data.draw(st.integers(0, size)))
        return runs

    async def scenario() -> None:
        runs, sent, kept = list[Run](), list[bytes](), list[bytes]()
        for _ in range(4):
            runs = await life(runs, sent, kept)

    asyncio.run(scenario())


def is_between(kept: list[bytes], found: list[bytes], sent: list[bytes]) -> bool:
    """True if `found` begins with `kept` and is a beginning of `sent`."""
    return found[: len(kept)] == kept and sent[: len(found)] == found


class Dying(MemoryDisk):
    """The machine crashes after so many calls."""

    def __init__(self, files: SharedFiles, calls: int) -> None:
        super().__init__(files)
        self._calls = calls

    def _check(self, call: str, path: str) -> None:
        self._calls -= 1
        self.crashed = self._calls < 0
        super()._check(call, path)


def journaled(disk: Disk) -> LogFiles:
    """A storage that uses its journal for every write."""
    return LogFiles(disk, inline, direct_max=0)


@pytest.mark.asyncio
async def test_what_only_a_journal_has_is_read_by_the_next_owner(disk: Disk) -> None:
    """A writer that was paused after its receipts has written to no segment, and its process lives.
    Another one opens the log with all that was acknowledged; the first is told that it is over.
    """
    first, second = journaled(disk), journaled(disk)
    log, runs = await opened(first, [], entries_max=3)
    await write(first, log, *(b"%d" % number for number in range(5)))
    segments, end_id = await second.open(7, runs, 0)
    assert (await tails(second, segments), end_id) == ([b"0", b"1", b"2", b"3", b"4"], 5)
    with pytest.raises(FencedError):
        await write(first, log, b"5")


@pytest.mark.asyncio
async def test_the_journals_of_a_process_that_has_ended_go_into_the_segments() -> None:
    """Its folder is deleted, and what it had acknowledged is in the segments."""
    shared = SharedFiles()
    disk = MemoryDisk(shared)
    log, runs = await opened(files := journaled(disk), [])
    await write(files, log, b"a", b"b")
    disk.crash(lambda size: 0)
    assert not any(path.endswith(".log") for path in shared.content)
    files = journaled(MemoryDisk(shared))
    await files.recover()
    assert not any(path.startswith("writers/") for path in shared.content)
    segments, _ = await files.open(7, runs, 0)
    assert await tails(files, segments) == [b"a", b"b"]


@pytest.mark.asyncio
async def test_journals_go_when_their_segments_are_durable(disk: Disk) -> None:
    """Full journals are deleted; reads see what is in a journal only."""
    files = LogFiles(disk, inline, direct_max=0, journal_bytes=100)
    log, _ = await opened(files, [])
    for number in range(20):
        await write(files, log, b"%d" % number)
    journals = [name for name in disk.names(f"writers/{files.writer}") if name.endswith(".journal")]
    assert 0 < len(journals) <= RETIRED_MAX
    await write(files, log, b"20")
    assert await tails(files, log.segments) == [b"%d" % number for number in range(21)]
    await files.sync()
    assert disk.names(f"writers/{files.writer}") == ["lock", RESERVE]


@pytest.mark.asyncio
async def test_a_storage_whose_folder_was_deleted_acknowledges_nothing_more() -> None:
    """Another machine took it for dead; logs that are opened again go on."""
    disk = fresh()
    files = journaled(disk)
    log, runs = await opened(files, [])
    await write(files, log, b"a")
    await files.flush()
    for name in disk.names(f"writers/{files.writer}"):
        disk.remove(f"writers/{files.writer}/{name}")
    with pytest.raises(OperationalError, match="has ended this storage"):
        await write(files, log, b"b")
    log, runs = await opened(files, runs)
    await write(files, log, b"c")
    segments, _ = await files.open(7, runs, 0)
    assert await tails(files, segments) in ([b"a", b"c"], [b"a", b"b", b"c"])


@pytest.mark.asyncio
async def test_a_directory_that_is_not_the_shared_one_loses_nothing(tmp_path: Path) -> None:
    """A share that is not mounted, say: a log that is not there is refused, not begun again; one
    that is open already is not written to elsewhere.
    """
    root, away = tmp_path / "topics", tmp_path / "away"
    files = LogFiles(DirectoryDisk(root), inline)
    log, runs = await opened(files, [])
    await write(files, log, b"a", b"b")
    log, runs = await opened(files, runs)
    root.rename(away)
    elsewhere = LogFiles(DirectoryDisk(root), inline)
    for _ in range(2):
        with pytest.raises(OperationalError, match="is it mounted"):
            await elsewhere.open(7, runs, 0)
    with pytest.raises(OperationalError, match="its directory is another one"):
        await write(files, log, b"c")
    shutil.rmtree(root)
    away.rename(root)
    log, runs = await opened(files, runs)
    await write(files, log, b"d")
    segments, _ = await files.open(7, runs, 0)
    assert await tails(files, segments) == [b"a", b"b", b"d"]
    assert files.damaged == 0


@pytest.mark.asyncio
async def test_new_topics_wait_for_the_directory_with_the_id(tmp_path: Path) -> None:
    """In another one the next owner would not find them. A directory without an id takes them."""
    root, away = tmp_path / "topics", tmp_path / "away"
    files = journaled(DirectoryDisk(root))
    SharedId(root).give(ID)
    await files.remember_id()
    root.rename(away)
    root.mkdir()
    with pytest.raises(OperationalError, match=f"echo {ID} > shared"):
        await opened(files, [])
    (root / "shared.id").write_text("feed" * 4)
    with pytest.raises(OperationalError, match=f"echo {ID} > shared"):
        await opened(files, [])
    assert not (root / f"{7:016x}").exists()
    (root / "shared.id").write_text(ID)
    log, _ = await opened(files, [])
    await write(files, log, b"a")
    nameless = journaled(DirectoryDisk(tmp_path / "nameless"))
    await nameless.remember_id()
    await opened(nameless, [])


@pytest.mark.asyncio
async def test_what_only_the_journal_has_waits_for_the_folder(tmp_path: Path) -> None:
    """While the share is not mounted, say: it is in the segment afterwards; nothing is written
    elsewhere.
    """
    root, away = tmp_path / "topics", tmp_path / "away"
    files = journaled(DirectoryDisk(root))
    log, runs = await opened(files, [])
    await write(files, log, b"a", b"b")
    root.rename(away)
    root.mkdir()
    await files.flush()
    assert list(root.iterdir()) == []
    root.rmdir()
    away.rename(root)
    await write(files, log, b"c")
    segments, _ = await files.open(7, runs, 0)
    assert await tails(files, segments) == [b"a", b"b", b"c"]


@pytest.mark.asyncio
async def test_a_flush_does_not_bring_back_a_folder_that_was_deleted(tmp_path: Path) -> None:
    """Else the log would go on without what was in it, as if nothing was missing."""
    root = tmp_path / "topics"
    files = journaled(DirectoryDisk(root))
    log, runs = await opened(files, [])
    await write(files, log, b"a")
    await files.close(7, log.segments)
    log, runs = await opened(files, runs)
    await write(files, log, b"b")
    shutil.rmtree(root / f"{7:016x}")
    await files.flush()
    with pytest.raises(FencedError):
        await write(files, log, b"c")
    with pytest.raises(OperationalError, match="is it mounted"):
        await files.open(7, runs, 0)


@pytest.mark.asyncio
async def test_a_storage_that_was_taken_for_dead_goes_on(tmp_path: Path) -> None:
    """Its folder is gone before it has written anything: the next opening has another one."""
    root = tmp_path / "topics"
    files = journaled(DirectoryDisk(root))
    log, runs = await opened(files, [])
    shutil.rmtree(root / "writers" / files.writer)
    with pytest.raises(OperationalError, match="has ended this storage"):
        await write(files, log, b"a")
    log, runs = await opened(files, runs)
    await write(files, log, b"b")
    segments, _ = await files.open(7, runs, 0)
    assert (await tails(files, segments))[-1] == b"b"


@pytest.mark.asyncio
async def test_a_segment_that_is_gone_is_reported(disk: Disk) -> None:
    """What its run is known to have had is missing; the others are served."""
    files, runs = LogFiles(disk, inline), list[Run]()
    for tail in (b"a", b"b", b"c"):
        log, runs = await opened(files, runs)
        await write(files, log, tail)
    segment = segment_path(7, 2, 1)
    assert disk.exists(segment)
    disk.remove(segment)
    files = LogFiles(disk, inline)
    with capture_logs() as logs:
        segments, end_id = await files.open(7, runs, 0)
    assert (await tails(files, segments), end_id, files.damaged) == ([b"a", b"c"], 3, 1)
    assert logs[-1]["problem"] == "entries 1 to 1 are missing"


@pytest.mark.asyncio
async def test_a_disk_that_hangs_is_an_error_in_time() -> None:
    """A call that does not end counts as failed."""
    hangs = asyncio.Event()

    async def run(_thread: int, call: Callable[[], Any]) -> Any:
        await hangs.wait()

    files = LogFiles(fresh(), run, timeout_s=lambda: 0.01)
    with pytest.raises(StorageTimeoutError):
        await files.open(7, [], 0)
    with pytest.raises(StorageTimeoutError):
        await files.append({})


@pytest.mark.asyncio
async def test_a_process_that_stood_still_does_not_blame_the_disk() -> None:
    """It was frozen for longer than a call may take: the disk had no time to answer it."""
    stands_still, hangs = threading.Event(), asyncio.Event()

    async def run(_thread: int, call: Callable[[], Any]) -> Any:
        stands_still.wait(1.5)  # nothing of this process runs meanwhile
        await hangs.wait()

    files = LogFiles(fresh(), run, timeout_s=lambda: 0.2)
    with pytest.raises(StoodStillError, match="stood still"):
        await files.open(7, [], 0)


def test_a_file_that_is_gone_or_cut_is_noticed(disk: DirectoryDisk | MemoryDisk) -> None:
    """Also while it is open."""
    disk.make_folder("a")
    disk.write("a/b.log", 0, b"12345")
    assert (disk.has("a/b.log", 5), disk.has("a/b.log", 6)) == (True, False)
    assert not disk.has("a/other.log", 0)
    disk.remove("a/b.log")
    assert not disk.has("a/b.log", 5)
    disk.release("a/b.log")
    assert not disk.has("a/b.log", 0)


@pytest.mark.asyncio
async def test_a_damaged_journal_costs_the_commit_that_it_hits() -> None:
    """The commits behind it are read, the error names the place, and the journal is kept."""
    shared = SharedFiles()
    disk = MemoryDisk(shared)
    log, runs = await opened(files := journaled(disk), [])
    for tail in (b"first", b"second", b"third"):
        await write(files, log, tail)
    disk.crash(lambda size: 0)
    (journal,) = (path for path in shared.content if path.endswith(".journal"))
    second = shared.content[journal].rindex(b"second")
    shared.change(journal, lambda content: content.__setitem__(second, content[second] ^ 1))
    files = journaled(disk := MemoryDisk(shared))
    with capture_logs() as logs:
        await files.recover()
        segments, _ = await files.open(7, runs, 0)
    (segment,) = segments
    assert [
        next(entries_in(await files.read(7, segment, offset, segment.size))).tail
        for offset in segment.offsets
        if offset != ABSENT
    ] == [b"first", b"third"]
    assert (segment.end_id, files.damaged) == (3, 2)  # in the journal, and so in the segment
    error = next(line for line in logs if "journal is damaged" in line["event"])
    assert error["file"] == journal
    assert error["offset"] <= second < error["offset"] + error["bytes"]
    assert disk.read(str(error["kept"]))[second : second + 6] == b"recond"


@pytest.mark.parametrize("torn", [False, True])
async def test_a_damaged_end_is_an_error_and_a_torn_one_is_not(*, torn: bool) -> None:
    """The last commit of a journal, and the last record of a segment: if they are complete, their
    producers may have receipts. The journal is kept then.
    """
    for kind, direct_max in ((".journal", 0), (".log", 2)):
        shared = SharedFiles()
        disk = MemoryDisk(shared)
        log, runs = await opened(files := LogFiles(disk, inline, direct_max=direct_max), [])
        for tail in (b"a", b"b"):
            await write(files, log, tail)
        disk.crash(lambda size: 0)
        (path,) = (path for path in shared.content if path.endswith(kind))
        if torn:
            shared.change(path, lambda content: content.__delitem__(-1))
        else:
            shared.change(path, lambda content: content.__setitem__(-1, content[-1] ^ 1))
        files = LogFiles(disk := MemoryDisk(shared), inline)
        with capture_logs() as logs:
            segments, end_id = await files.open(7, runs, 0)
        (segment,) = segments
        data = await files.read(7, segment, 0, segment.size)
        assert [entry.tail for entry in entries_in(data)] == [b"a"]
        assert files.damaged == (not torn)
        assert end_id == (2 if kind == ".log" and not torn else 1)
        assert [line["log_level"] == "error" for line in logs] == [not torn]
        assert len(disk.names("damaged")) == (kind == ".journal" and not torn)


@pytest.mark.asyncio
async def test_a_recovery_that_fails_is_made_later() -> None:
    """The disk is full when the journals of a dead process are read: they stay, and count as those
    of a dead one.
    """
    shared = SharedFiles()
    disk = MemoryDisk(shared)
    log, runs = await opened(files := journaled(disk), [])
    await write(files, log, b"a")
    disk.remove(f"{WRITERS}/{files.writer}/{RESERVE}")
    disk.crash(lambda size: 0)
    files = journaled(MemoryDisk(shared))
    shared.room = 1
    with pytest.raises(OperationalError):
        await files.recover()
    shared.room = -1
    await journaled(MemoryDisk(shared)).recover()
    assert not any(path.startswith("writers/") for path in shared.content)
    segments, _ = await files.open(7, runs, 0)
    assert await tails(files, segments) == [b"a"]


@pytest.mark.asyncio
async def test_a_new_topic_is_not_stored_over_another_ones_files(disk: Disk) -> None:
    """The metadata store was restored from an older backup, say, and gives a number again."""
    files = LogFiles(disk, inline)
    log, runs = await opened(files, [])
    await write(files, log, b"a", b"b")
    files = LogFiles(disk, inline)
    with pytest.raises(OperationalError, match="has messages already; the metadata store is older"):
        await files.open(7, [], 0)
    segments, _ = await files.open(7, runs, 0)
    assert await tails(files, segments) == [b"a", b"b"]


@pytest.mark.asyncio
async def test_a_directory_that_was_replaced_by_a_copy_is_noticed(tmp_path: Path) -> None:
    """Nothing that goes to the old files is acknowledged; the next opening is in the copy."""
    root = tmp_path / "topics"
    files = LogFiles(DirectoryDisk(root), inline)
    log, runs = await opened(files, [])
    await write(files, log, b"a")
    shutil.copytree(root, tmp_path / "copy")
    root.rename(tmp_path / "old")
    (tmp_path / "copy").rename(root)
    with pytest.raises(OperationalError, match="its directory is another one"):
        await write(files, log, b"b")
    log, runs = await opened(files, runs)
    await write(files, log, b"c")
    segments, _ = await LogFiles(DirectoryDisk(root), inline).open(7, runs, 0)
    assert await tails(files, segments) == [b"a", b"c"]


def files_open() -> int:
    """The number of files that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.asyncio
async def test_a_directory_that_comes_and_goes_leaves_no_files_open(tmp_path: Path) -> None:
    """Nor folders of writers of which this process was each, nor any where it is not."""
    root, away = tmp_path / "topics", tmp_path / "away"
    files, runs = journaled(DirectoryDisk(root)), list[Run]()
    counts = list[int]()
    for _ in range(5):
        log, runs = await opened(files, runs)
        await write(files, log, b"a")
        root.rename(away)
        root.mkdir()
        with pytest.raises(OperationalError, match="its directory is another one"):
            await write(files, log, b"b")
        with pytest.raises(OperationalError, match="is it mounted"):
            await files.open(7, runs, 0)
        assert not (root / "writers" / files.writer).exists()
        shutil.rmtree(root)
        away.rename(root)
        await files.flush()
        await files.recover()
        counts.append(files_open())
    assert counts[-1] - counts[0] <= 1
    assert len(list((root / "writers").iterdir())) <= 1


async def test_a_probe_needs_room_each_time() -> None:
    """On a full disk, to write over what is there already would prove nothing."""
    files = SharedFiles()
    storage = LogFiles(MemoryDisk(files), inline)
    await storage.probe()
    files.room = 0
    with pytest.raises(OperationalError):
        await storage.probe()
    files.room = -1
    await storage.probe()


async def test_an_error_names_its_file(tmp_path: Path) -> None:
    """An operator must find it among thousands, whether it cannot be opened or synced."""
    failing = []

    def fdatasync(descriptor: int) -> None:
        os.fdatasync(descriptor)
        if failing:
            raise OSError(errno.EIO, "Input/output error")

    files = LogFiles(DirectoryDisk(tmp_path, fdatasync=fdatasync), inline)
    segments, _ = await files.open(7, [], 0)
    log = a_log(segments)
    log.append(b"one", 1, 0, "p", 0)
    failing.append(True)
    with pytest.raises(OperationalError, match=r"error: 0{15}7/00000001-0{16}\.log$"):
        await files.append({7: log.take()[0]})
    path = tmp_path / segment_path(7, 1, 0)
    path.unlink()
    path.mkdir()
    other = LogFiles(DirectoryDisk(tmp_path), inline)
    with pytest.raises(OperationalError, match=r"file: 0{15}7/00000001-0{16}\.log$"):
        await other.open(7, [Run(1, 0, files.writer)], 0)


async def test_an_index_that_cannot_be_read_is_as_none(tmp_path: Path) -> None:
    """The segment has all that it says."""
    files = LogFiles(DirectoryDisk(tmp_path), inline)
    segments, _ = await files.open(7, [], 0)
    log = a_log(segments)
    log.append(b"one", 1, 0, "p", 0)
    assert await files.append({7: log.take()[0]}) == set()
    (tmp_path / index_path(segment_path(7, 1, 0))).mkdir()
    other = LogFiles(DirectoryDisk(tmp_path), inline)
    assert (await other.open(7, [Run(1, 0, files.writer)], 0))[1] == 1


@pytest.mark.parametrize("begun", [False, True])
async def test_a_full_disk_is_read_from(*, begun: bool) -> None:
    """What only the journal has of a segment, too, when there is no room to bring it there."""
    files = SharedFiles()
    storage = LogFiles(MemoryDisk(files), inline, direct_max=0)
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    for number in range(4):
        log.append(b"%d" % number, 1, 0, "p", number)
        assert await storage.append({7: log.take()[0]}) == set()
        if begun and number == 1:
            await storage.flush()
    files.room = 0
    segment = log.segments[-1]
    for entry_id in range(4):
        at = segment.offsets[entry_id]
        read = entries_in(await storage.read(7, segment, at, segment.size - at))
        assert [entry.tail for entry in read] == [b"%d" % n for n in range(entry_id, 4)]
        some = await storage.read(7, segment, at, 10)
        assert some == (await storage.read(7, segment, 0, segment.size))[at : at + 10]


async def test_topics_can_be_opened_on_a_full_disk() -> None:
    """Each message with a receipt has its place in the segments: that room was taken before. The
    next commit begins with taking it again.
    """
    files = SharedFiles()
    storage = LogFiles(MemoryDisk(files), inline, direct_max=0, journal_bytes=2_000)
    logs = {}
    for log_id in range(5):
        segments, _ = await storage.open(log_id, [], 0)
        logs[log_id] = a_log(segments)
    for log in logs.values():
        log.append(b"with a receipt", 1, 0, "p", 0)
    assert await storage.append({log_id: log.take()[0] for log_id, log in logs.items()}) == set()
    files.room = 0
    logs[0].append(b"without", 1, 0, "p", 1)
    with pytest.raises(OperationalError, match="No space"):
        await storage.append({0: logs[0].take()[0]})
    for log_id in logs:
        runs = [Run(1, 0, storage.writer)]
        segments, end_id = await storage.open(log_id, runs, 0)
        assert end_id == 1
        other = LogFiles(MemoryDisk(files), inline)
        assert (await other.open(log_id, runs, 0))[1] == 1
    files.room = 999
    with pytest.raises(OperationalError, match="No space"):
        await storage.probe()
    files.room = -1
    await storage.probe()


async def test_a_probe_notices_another_directory(tmp_path: Path) -> None:
    """The share is not mounted any more: what is written now, no other broker finds."""
    SharedId(tmp_path).give("0123456789abcdef")
    storage = LogFiles(DirectoryDisk(tmp_path), inline)
    await storage.remember_id()
    await storage.probe()
    (tmp_path / "shared.id").unlink()
    with pytest.raises(OperationalError, match="another one by now"):
        await storage.probe()


async def test_a_part_of_a_trimmed_segment_that_a_journal_brings_back_is_no_loss() -> None:
    """A segment was written by way of the journal, directly, and by way of the journal again. It
    was trimmed; then its writer ended, before it had deleted the journal.
    """
    files = SharedFiles()
    disk = MemoryDisk(files)
    storage = LogFiles(disk, inline)
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments, entries_max=5)
    for tails in ((b"1" * 600, b"2" * 600), (b"3",), (b"4" * 600, b"5" * 600), (b"6",)):
        for tail in tails:
            log.append(tail, 1, 0, "p", log.next_id)
        assert await storage.append({7: log.take()[0]}) == set()
    await storage.trim(7, 5)
    assert segment_path(7, 1, 0) not in files.content
    disk.kill()
    other = LogFiles(MemoryDisk(files), inline)
    segments, end_id = await other.open(7, [Run(1, 0, storage.writer)], 5)
    assert segment_path(7, 1, 0) in files.content
    assert ([segment.first_id for segment in segments], end_id, other.damaged) == ([5], 6, 0)
