"""A sync that fails once is not followed by trust in what only the page cache has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from errno import EDQUOT, EIO, ENOSPC
from pathlib import Path
from random import Random
from typing import Any

import pytest
from broker.messaging.test_segments import a_log, ids
from structlog.testing import capture_logs

from loadmanager.broker.messaging.segments import ABSENT, SegmentIndex, entries_in
from loadmanager.broker.messaging.stored_log import StoredLog
from loadmanager.broker.ports.log import Run
from loadmanager.broker.storage.disk import DirectoryDisk
from loadmanager.broker.storage.log_files import THREADS, LogFiles
from loadmanager.broker.storage.memory_disk import OPEN_MAX, MemoryDisk, SharedFiles
from loadmanager.broker.storage.writers import JOURNALS_MAX, RESERVE, WAITING_MAX
from loadmanager.kit.errors import CorruptDataError, OperationalError
from loadmanager.kit.files.worker import Worker

SEGMENT = f"{7:016x}/00000001-{0:016x}.log"


class Nothing(Random):
    """A failed sync writes no sector."""

    def random(self) -> float:
        """Below every chance."""
        return 0.0


async def inline(_number: int, call: Callable[[], Any]) -> Any:
    """Run a call of the storage at once."""
    return call()


class Holes(Random):
    """A failed sync, or a loss of power, leaves out the sectors of these numbers."""

    def __init__(self, *lost: int) -> None:
        super().__init__(0)
        self.lose(*lost)

    def lose(self, *lost: int) -> None:
        """Leave out these ones of the next sectors."""
        self._lost, self._sectors = lost, 0

    def random(self) -> float:
        """Whether the next sector is written."""
        self._sectors += 1
        return 0.0 if self._sectors in self._lost else 1.0


class Failing:
    """Files on which one sync fails, of the next file with this name's end."""

    def __init__(self, rng: Random | None = None, *, strict_names: bool = False) -> None:
        self.files = SharedFiles(strict_names=strict_names, rng=rng or Nothing())
        self.files.trouble = self._trouble
        self.next: tuple[str, int] | None = None

    def _trouble(self, call: str, path: str) -> int:
        if call == "sync" and self.next is not None and path.endswith(self.next[0]):
            (_, error), self.next = self.next, None
            return error
        return 0

    def storage(self, **options: Any) -> LogFiles:
        """The storage of a process on these files."""
        return LogFiles(MemoryDisk(self.files), inline, **options)


async def commit(storage: LogFiles, log: StoredLog, *tails: bytes) -> None:
    """Append and commit."""
    for tail in tails:
        log.append(tail, 1, 0, "p", log.next_id)
    pieces, end_id, size = log.take()
    assert await storage.append({7: pieces}) == set()
    log.stored(end_id, size)


async def content(storage: LogFiles, segments: list[SegmentIndex], log_id: int = 7) -> list[bytes]:
    """What can be read of a log."""
    found = []
    for segment in segments:
        data = await storage.read(log_id, segment, 0, segment.size)
        found += [entry.tail for entry in entries_in(data)]
    return found


@pytest.mark.parametrize("same_process", [True, False])
@pytest.mark.parametrize("error", [EIO, ENOSPC, EDQUOT])
async def test_what_a_failed_sync_has_dropped_is_not_stored(
    error: int, *, same_process: bool
) -> None:
    """The page cache still has it, for the process that wrote it and for the next one on the same
    machine. Its producer repeats it, and must not be told that it is there.
    """
    failing = Failing()
    disk = MemoryDisk(failing.files)
    storage = LogFiles(disk, inline)
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    await commit(storage, log, b"first")
    failing.next = (".log", error)
    with pytest.raises(OperationalError):
        await commit(storage, log, b"second")
    runs = [Run(1, 0, storage.writer)]
    if not same_process:
        disk.kill()
        storage = failing.storage()
    segments, end_id = await storage.open(7, runs, 0)
    assert (end_id, ids(segments[0])) == (1, {"p": 0})


async def test_a_journal_stays_until_what_it_covers_was_written_again() -> None:
    """Five topics have receipts; the sync of a segment fails once in the background, and the next
    one says yes. The journal was the only durable copy.
    """
    failing = Failing()
    storage = failing.storage(journal_bytes=10)
    logs = {}
    for number in range(5, 10):
        segments, _ = await storage.open(number, [], 0)
        logs[number] = a_log(segments)
        logs[number].append(b"with a receipt", 1, 0, "p", 0)
    assert await storage.append({number: log.take()[0] for number, log in logs.items()}) == set()
    failing.next = (SEGMENT, EIO)
    with pytest.raises(OperationalError):
        await storage.sync()
    failing.files.evict(SEGMENT)
    assert not any(failing.files.content[SEGMENT])
    await storage.sync()
    assert not any(path.endswith(".journal") for path in failing.files.content)
    failing.files.lose_power(keep=0)
    storage = failing.storage()
    for number in logs:
        segments, end_id = await storage.open(number, [Run(1, 0, "elsewhere")], 0)
        assert (end_id, ids(segments[0])) == (1, {"p": 0})


async def test_a_reader_gets_what_the_journal_has() -> None:
    """The system has failed to write a page back, and has evicted it; nobody has synced since."""
    failing = Failing()
    storage = failing.storage(direct_max=0)
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    await commit(storage, log, b"first", b"second")
    await storage.flush()
    failing.files.fail_to_write_back(SEGMENT)
    failing.files.evict(SEGMENT)
    with pytest.raises(CorruptDataError):
        await content(storage, [log.segments[0]])
    with pytest.raises(OperationalError):
        await storage.mend(7)  # the sync tells of the failure
    assert await storage.mend(7)
    assert await content(storage, [log.segments[0]]) == [b"first", b"second"]
    assert not await failing.storage().mend(7)


async def test_a_topic_that_is_closed_in_doubt_is_recovered_from_the_journal() -> None:
    """Its last segment is neither indexed nor called complete, so that its next owner reads the
    journal.
    """
    failing = Failing()
    storage = failing.storage(direct_max=0)
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    await commit(storage, log, b"first")
    await storage.flush()
    failing.next = (SEGMENT, EIO)
    with pytest.raises(OperationalError):
        await storage.close(7, log.segments)
    await storage.close(7, log.segments)
    failing.files.evict(SEGMENT)
    other = failing.storage()
    segments, end_id = await other.open(7, [Run(1, 0, storage.writer)], 0)
    assert (end_id, await content(other, segments)) == (1, [b"first"])


async def test_of_what_was_sent_together_the_later_ones_are_not_stored_alone() -> None:
    """A sync has failed, and the device has the second of two messages without the first. Their
    producer repeats both: if it were remembered with the second, the first would be lost.
    """
    failing = Failing(Holes(2))
    storage = failing.storage()
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    await commit(storage, log, b"with a receipt")
    failing.next = ("", EIO)
    with pytest.raises(OperationalError):
        await commit(storage, log, b"1" * 2000, b"2" * 2000)
    for process in (storage, failing.storage()):
        segments, end_id = await process.open(7, [Run(1, 0, storage.writer)], 0)
        assert ABSENT not in segments[0].offsets
        assert ids(segments[0]) == {"p": end_id - 1}


async def test_a_failed_commit_that_another_broker_has_found_is_not_stored_in_part() -> None:
    """The device has all of it, but the sync of what the other one has brought to the segment fails
    for its beginning. The journal goes after that.
    """
    rng = Holes()
    failing = Failing(rng)
    storage, other = failing.storage(), failing.storage()
    batch = {}
    for number in (7, 8, 9):
        segments, _ = await storage.open(number, [], 0)
        log = a_log(segments)
        for entry_id in range(2):
            log.append(bytes(2000), 1, 0, "p", entry_id)
        batch[number] = log.take()[0]
    failing.next = (".journal", EIO)
    with pytest.raises(OperationalError):
        await storage.append(batch)
    rng.lose(1)
    failing.next = (SEGMENT, EIO)
    runs = [Run(1, 0, storage.writer)]
    with pytest.raises(OperationalError):
        await other.open(7, runs, 0)
    for _ in range(2):
        await storage.sync()
    assert not any(path.endswith(".journal") for path in failing.files.content)
    segments, end_id = await other.open(7, runs, 0)
    assert (end_id, ids(segments[0])) == (2, {"p": 1})
    assert ABSENT not in segments[0].offsets


async def test_a_failed_commit_is_not_brought_while_its_journal_may_lose_its_name() -> None:
    """A loss of power would leave a part of it in the segment, and no journal."""
    failing = Failing(Holes())
    storage = failing.storage(direct_max=0)
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    for entry_id in range(2):
        log.append(bytes(2000), 1, 0, "p", entry_id)
    failing.next = (".journal", EIO)
    with pytest.raises(OperationalError):
        await storage.append({7: log.take()[0]})
    names_fail = True

    def trouble(call: str, path: str) -> int:
        return EIO if names_fail and call == "sync_names" and path.startswith("writers/") else 0

    failing.files.trouble = trouble
    with pytest.raises(OperationalError):
        await storage.sync()
    assert SEGMENT not in failing.files.content
    names_fail = False
    await storage.sync()
    runs = [Run(1, 0, storage.writer)]
    assert (await failing.storage().open(7, runs, 0))[1] == 2


async def test_what_is_written_while_an_opening_syncs_does_not_count() -> None:
    """The writer lives, and sees the mark only after it has written."""
    failing = Failing()
    storage, other = failing.storage(), failing.storage()
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    await commit(storage, log, b"first")
    log.append(b"second", 1, 0, "p", 1)
    (piece,) = log.take()[0]
    late = []

    def trouble(call: str, path: str) -> int:
        if call == "read_stored" and path == SEGMENT:
            late.append(piece.offset)
            MemoryDisk(failing.files).write(SEGMENT, piece.offset, piece.data)
        return 0

    failing.files.trouble = trouble
    segments, end_id = await other.open(7, [Run(1, 0, storage.writer)], 0)
    assert late == [segments[0].size]
    assert (end_id, ids(segments[0])) == (1, {"p": 0})


async def test_a_piece_that_a_journal_has_lost_is_not_brought_again() -> None:
    """Another broker has read the journal of a commit that failed, and its pages are gone since."""
    failing = Failing()
    storage, other = failing.storage(direct_max=0), failing.storage()
    segments, _ = await storage.open(7, [], 0)
    await commit(storage, a_log(segments), bytes(2000))
    runs = [Run(1, 0, storage.writer)]
    await other.open(7, runs, 0)
    (journal,) = (path for path in failing.files.content if path.endswith(".journal"))
    failing.files.change(journal, lambda raw: raw.__setitem__(slice(900, 909), b"x" * 9))
    segments, end_id = await other.open(7, runs, 0)
    assert (end_id, await content(other, segments)) == (1, [bytes(2000)])


async def test_a_dead_brokers_topics_are_taken_over_on_a_disk_without_room_for_names() -> None:
    """The room that it had taken is freed for the mark."""
    failing = Failing()
    disk = MemoryDisk(failing.files)
    storage, other = LogFiles(disk, inline, direct_max=0), failing.storage()
    segments, _ = await storage.open(7, [], 0)
    await commit(storage, a_log(segments), b"first")
    runs, reserve = [Run(1, 0, storage.writer)], f"writers/{storage.writer}/{RESERVE}"
    assert reserve in failing.files.content
    failing.files.trouble = lambda call, _: (
        ENOSPC if call == "create" and reserve in failing.files.content else 0
    )
    with pytest.raises(OperationalError):
        await other.open(7, runs, 0)
    disk.kill()
    segments, end_id = await other.open(7, runs, 0)
    assert (end_id, await content(other, segments)) == (1, [b"first"])


async def test_a_segment_that_cannot_be_stored_costs_its_own_log_only() -> None:
    """The process that wrote it has ended, and its journal covers other logs, too."""
    failing = Failing()
    disk = MemoryDisk(failing.files)
    storage = LogFiles(disk, inline)
    batch = {}
    for number in (7, 8, 9):
        segments, _ = await storage.open(number, [], 0)
        log = a_log(segments)
        log.append(b"with a receipt", 1, 0, "p", 0)
        batch[number] = log.take()[0]
    assert await storage.append(batch) == set()
    disk.kill()
    failing.files.trouble = lambda call, path: EIO * (call == "sync" and path == SEGMENT)
    other = failing.storage()
    runs = [Run(1, 0, storage.writer)]
    for number in (8, 9):
        segments, end_id = await other.open(number, runs, 0)
        assert (end_id, ids(segments[0])) == (1, {"p": 0})
    with pytest.raises(OperationalError):
        await other.open(7, runs, 0)
    failing.files.lose_power(keep=0)
    failing.files.trouble = lambda call, path: 0
    other = failing.storage()
    for number in (7, 8, 9):
        segments, end_id = await other.open(number, runs, 0)
        assert (end_id, ids(segments[0])) == (1, {"p": 0})


class BadFile:
    """Topics of one process, where files cannot be written or synced for long. Journals are full
    after each commit.
    """

    def __init__(self, *calls: str, bad: str = SEGMENT, topics: int = 5) -> None:
        self.files = SharedFiles(rng=Nothing())
        self.calls = set(calls)
        self.files.trouble = lambda call, path: EIO * (call in self.calls and path.endswith(bad))
        self.storage = LogFiles(MemoryDisk(self.files), inline, journal_bytes=10)
        self.logs: dict[int, StoredLog] = {}
        self.sent: dict[int, list[bytes]] = {number: [] for number in range(5, 5 + topics)}
        self.runs: dict[int, list[Run]] = {number: [] for number in self.sent}

    @property
    def journals(self) -> int:
        """How many there are."""
        return sum(path.endswith(".journal") for path in self.files.content)

    async def open(self, *numbers: int) -> None:
        """Open topics, perhaps once more; all messages with a receipt are found."""
        for number in numbers:
            segments, end_id = await self.storage.open(number, self.runs[number], 0)
            assert await content(self.storage, segments, number) == self.sent[number]
            run = len(self.runs[number]) + 1
            self.runs[number].append(Run(run, end_id, self.storage.writer))
            self.logs[number] = a_log(segments, run=run)

    async def commit(self) -> set[int]:
        """A message to each topic that is open, and what is done now and then. Returns the topics
        that were refused.
        """
        batch, ends, tails = {}, {}, {}
        for number, log in self.logs.items():
            tails[number] = b"%d of topic %d" % (log.next_id, number)
            log.append(tails[number], 1, 0, "p", log.next_id)
            batch[number], *ends[number] = log.take()
        refused = await self.storage.append(batch)
        for number in refused:
            del self.logs[number]
        for number, log in self.logs.items():
            log.stored(*ends[number])
            self.sent[number].append(tails[number])
        with suppress(OperationalError):
            await self.storage.sync()
        return refused

    async def check(self) -> None:
        """After a loss of power, the messages with a receipt are there."""
        self.files.lose_power(keep=0)
        storage = LogFiles(MemoryDisk(self.files), inline)
        for number, sent in self.sent.items():
            segments, _ = await storage.open(number, self.runs[number], 0)
            assert await content(storage, segments, number) == sent


async def test_a_file_that_is_never_synced_fails_no_commit_of_others() -> None:
    """Its topic is not used any more; its journal stays, and the later ones go."""
    bad = BadFile("sync")
    await bad.open(*bad.sent)
    await bad.commit()
    del bad.logs[7]
    for _ in range(50):
        assert await bad.commit() == set()
        assert bad.journals <= 2
    bad.calls.clear()
    await bad.check()


@pytest.mark.parametrize("calls", [("sync",), ("write",), ("sync", "write")])
async def test_a_topic_is_refused_for_which_too_many_journals_wait(calls: tuple[str, ...]) -> None:
    """Only this one is; it comes back when its file can be synced again."""
    bad = BadFile(*calls)
    await bad.open(*bad.sent)
    refused = []
    with capture_logs() as logs:
        for _ in range(50):
            refused += await bad.commit()
            assert bad.journals <= 2 * WAITING_MAX
    assert refused == [7]
    assert [entry["file"] for entry in logs if entry["log_level"] == "error"] == [SEGMENT]
    with pytest.raises(OperationalError):
        await bad.open(7)
    bad.calls.clear()
    await bad.open(7)
    for _ in range(2 * WAITING_MAX):
        assert await bad.commit() == set()
    assert bad.journals == 0
    await bad.check()


async def test_the_journals_stay_few_however_many_files_cannot_be_synced() -> None:
    """One topic after the other is written to, none of whose files can be synced."""
    bad = BadFile("sync", bad=".log", topics=4 * JOURNALS_MAX)
    failed = 0
    with capture_logs():
        for first in range(5, 5 + len(bad.sent), 4):
            bad.logs.clear()
            await bad.open(*range(first, first + 4))
            try:
                for _ in range(WAITING_MAX):
                    await bad.commit()
            except OperationalError:
                failed += 1
            assert bad.journals <= JOURNALS_MAX + 2
    assert failed
    bad.calls.clear()
    await bad.storage.sync()
    assert bad.journals == 0
    await bad.open(*bad.sent)
    await bad.commit()
    await bad.check()


def journals(folder: Path) -> list[Path]:
    """The journals of all writers."""
    return list(folder.glob("writers/*/*.journal"))


async def test_a_journal_does_not_stay_for_a_topic_that_was_deleted(tmp_path: Path) -> None:
    """Whoever tried to sync its file does not keep it open."""

    def fdatasync(found: int) -> None:
        if ".log" in Path(f"/proc/self/fd/{found}").readlink().name:
            raise OSError(EIO, "trouble")

    workers = [Worker(f"storage-{number}") for number in range(THREADS)]
    storage = LogFiles(
        DirectoryDisk(tmp_path, fdatasync=fdatasync),
        lambda number, call: workers[number].run(call),
        journal_bytes=10,
    )
    batch = {}
    for number in (7, 8, 9):
        segments, _ = await storage.open(number, [], 0)
        log = a_log(segments)
        log.append(b"with a receipt", 1, 0, "p", 0)
        batch[number] = log.take()[0]
    assert await storage.append(batch) == set()
    with pytest.raises(OperationalError):
        await storage.sync()
    assert journals(tmp_path)
    for number in (7, 8, 9):
        await storage.delete(number)
    await storage.sync()
    for worker in workers:
        worker.close()
    assert not journals(tmp_path)


async def test_the_folder_of_a_new_topic_is_durable_whoever_has_made_it() -> None:
    """A broker has made it, and could not make its name durable; another one opens the topic."""
    files = SharedFiles(strict_names=True)
    fails = [""]
    files.trouble = lambda call, path: EIO * (call == "sync_names" and path in fails)
    first, second = (LogFiles(MemoryDisk(files), inline) for _ in range(2))
    with pytest.raises(OperationalError):
        await first.open(7, [], 0)
    fails.clear()
    segments, _ = await second.open(7, [], 0)
    log = a_log(segments)
    await commit(second, log, b"with a receipt")
    files.lose_power(keep=0)
    storage = LogFiles(MemoryDisk(files), inline)
    segments, end_id = await storage.open(7, [Run(1, 0, second.writer)], 0)
    assert (end_id, await content(storage, segments)) == (1, [b"with a receipt"])


async def test_the_name_of_a_journal_is_durable_before_others_bring_it_to_a_segment() -> None:
    """A commit has failed, but the device has all of it; of what another broker has brought to the
    segment, the beginning is lost. The journal must still be there after a loss of power.
    """
    rng = Holes()
    failing = Failing(rng, strict_names=True)
    storage, other = failing.storage(direct_max=0), failing.storage()
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    failing.next = (".journal", EIO)
    with pytest.raises(OperationalError):
        await commit(storage, log, bytes(2000), bytes(2000))
    rng.lose(1)
    failing.next = (SEGMENT, EIO)
    runs = [Run(1, 0, storage.writer)]
    with pytest.raises(OperationalError):
        await other.open(7, runs, 0)
    failing.files.sync_names(f"{7:016x}")
    failing.files.lose_power(keep=0)
    segments, end_id = await failing.storage().open(7, runs, 0)
    assert (end_id, ids(segments[0])) == (2, {"p": 1})
    assert ABSENT not in segments[0].offsets


async def test_a_commit_is_not_stored_in_part_that_another_broker_finds_before_it_fails() -> None:
    """It reads the journal when that is written, and not synced."""
    rng = Holes()
    failing = Failing(rng)
    storage, other = failing.storage(direct_max=0), failing.storage()
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    runs = [Run(1, 0, storage.writer)]
    log.append(bytes(2000), 1, 0, "p", 0)
    log.append(bytes(2000), 1, 0, "p", 1)
    pieces, _, _ = log.take()
    failed = []

    def trouble(call: str, path: str) -> int:
        """The sync of the journal fails, just after the other broker has found it; and so does that
        of the segment, before.
        """
        if call != "sync" or len(failed) == 2 or path.endswith(RESERVE):
            return 0
        if not failed:
            failed.append(path)
            with pytest.raises(OperationalError):
                other.open(7, runs, 0).send(None)
            rng.lose(*range(1, 20))
            return EIO
        if path == SEGMENT:
            failed.append(path)
            rng.lose(1)
            return EIO
        return 0

    failing.files.trouble = trouble
    with pytest.raises(OperationalError):
        await storage.append({7: pieces})
    assert failed[1] == SEGMENT
    for _ in range(2):
        await storage.sync()
    segments, end_id = await other.open(7, runs, 0)
    assert (end_id, ids(segments[0])) == (2, {"p": 1})
    assert ABSENT not in segments[0].offsets


async def test_nothing_is_stored_behind_a_segment_whose_end_is_not() -> None:
    """A commit finishes a segment, whose sync fails; another broker, which has listed the journals
    before there was this one, finds the next segment.
    """
    failing = Failing()
    storage = failing.storage(direct_max=0)
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments, entries_max=1)
    failing.next = (SEGMENT, EIO)
    with pytest.raises(OperationalError):
        await commit(storage, log, b"first", b"second")
    await storage.flush()
    found = [path for path in failing.files.content if path.endswith(".log")]
    assert found == [SEGMENT]
    segments, end_id = await storage.open(7, [Run(1, 0, storage.writer)], 0)
    assert (end_id, await content(storage, segments)) == (2, [b"first", b"second"])


async def test_a_commit_is_not_stored_in_part_whose_segment_another_broker_reads_first() -> None:
    """A commit is under way when another broker ends its run and reads the journals. The journal of
    the commit is written after that, and the sync of its segment leaves out the first message.
    """
    rng = Holes()
    failing = Failing(rng)
    storage, other = failing.storage(direct_max=0), failing.storage()
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments, entries_max=2)
    for entry_id in range(3):
        log.append(bytes(2000), 1, 0, "p", entry_id)
    batch = {7: log.take()[0]}
    failed = []

    def trouble(call: str, path: str) -> int:
        """The other broker has read the journals, and reads the segments next."""
        if call == "names" and path == f"{7:016x}" and not failed:
            failed.append(path)
            rng.lose(1)
            failing.next = (SEGMENT, EIO)
            with pytest.raises(OperationalError):
                storage.append(batch).send(None)
        return failing._trouble(call, path)

    failing.files.trouble = trouble
    segments, end_id = await other.open(7, [Run(1, 0, storage.writer)], 0)
    assert failed
    assert not any(ABSENT in segment.offsets for segment in segments)
    assert (end_id, ids(segments[-1])) == (3, {"p": 2})


@pytest.mark.parametrize("fails", [".journal", SEGMENT])
async def test_a_failed_commit_is_not_stored_in_part_whose_journal_another_broker_has_read(
    fails: str,
) -> None:
    """The device has all of a commit that failed, for segments that do not exist yet. Just before
    its writer deletes the journal, another broker brings it to them, and is told that the beginning
    of the second one is lost.
    """
    rng = Holes()
    failing = Failing(rng)
    storage, other = failing.storage(direct_max=0), failing.storage()
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments, entries_max=1)
    failing.next = (fails, EIO)
    with pytest.raises(OperationalError):
        await commit(storage, log, b"first", b"second", b"third")
    runs, deleted = [Run(1, 0, storage.writer)], []

    def trouble(call: str, path: str) -> int:
        if call == "remove" and path.endswith(".journal") and not deleted:
            deleted.append(path)
            rng.lose(1)
            failing.next = (f"{1:016x}.log", EIO)
            with pytest.raises(OperationalError):
                other.open(7, runs, 0).send(None)
        return failing._trouble(call, path)

    failing.files.trouble = trouble
    await storage.sync()
    assert deleted[0] not in failing.files.content
    segments, end_id = await other.open(7, runs, 0)
    assert (end_id, await content(other, segments)) == (3, [b"first", b"second", b"third"])


async def test_what_another_broker_has_found_of_a_failed_commit_can_be_read_here() -> None:
    """The beginning of a segment waits in memory; a commit behind it failed, but its journal has
    it, and another broker served the log meanwhile.
    """
    failing = Failing(Holes())
    storage, other = failing.storage(direct_max=0), failing.storage()
    segments, _ = await storage.open(7, [], 0)
    log = a_log(segments)
    await commit(storage, log, b"first")
    failing.next = (".journal", EIO)
    with pytest.raises(OperationalError):
        await commit(storage, log, b"second")
    runs = [Run(1, 0, storage.writer)]
    segments, end_id = await other.open(7, runs, 0)
    assert (end_id, await content(other, segments)) == (2, [b"first", b"second"])
    segments, _ = await storage.open(7, [*runs, Run(2, 2, other.writer)], 0)
    assert await content(storage, segments) == [b"first", b"second"]


async def test_a_failure_is_told_of_each_of_many_segments_of_a_journal() -> None:
    """A process brings the journal of one that has ended to more segments than it has open at once.
    Before it syncs them, another process is told that one of them cannot be written.
    """
    failing = Failing()
    disk, logs = MemoryDisk(failing.files), range(OPEN_MAX + 20)
    storage, batch = LogFiles(disk, inline), {}
    for log_id in logs:
        log = a_log((await storage.open(log_id, [], 0))[0])
        log.append(b"message", 1, 0, "p", 0)
        batch[log_id] = log.take()[0]
    assert await storage.append(batch) == set()
    disk.kill()
    runs, told, other = [Run(1, 0, storage.writer)], list[str](), failing.storage()

    def trouble(call: str, path: str) -> int:
        if call == "sync" and path.endswith(".log") and not told:
            told.append(path)
            failing.next = (f"{1:016x}/00000001-{0:016x}.log", EIO)
            with pytest.raises(OperationalError):
                other.open(1, runs, 0).send(None)
        return failing._trouble(call, path)

    failing.files.trouble = trouble
    third = failing.storage()
    with suppress(OperationalError):  # it is told of the failure, too
        await third.recover()
    assert told
    segments, end_id = await third.open(1, runs, 0)
    assert (end_id, await content(third, segments, 1)) == (1, [b"message"])
