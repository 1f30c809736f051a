"""Segments on a real disk: sealed by rename, bounded, repaired after a crash; a disk that fails
does not harm the broker.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loadmanager.engine.history.records import OwnershipStep
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.history.history import FileHistory
from loadmanager.kit.history.layout import safe_name
from loadmanager.kit.history.segment_writer import SegmentWriter
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.history.shipping import Shipper

DAY = "2026-11-20"
KEY = ("ownership", DAY)


class Clock:
    """Time that tests set."""

    now = 1_795_132_800_000

    def now_ms(self) -> int:
        """Milliseconds."""
        return self.now

    def monotonic_s(self) -> float:
        """Seconds."""
        return self.now / 1000


def a_segments(
    root: Path,
    broker: str = "b1:8080",
    *,
    size: int = 1000,
    age_ms: float = 60_000,
    total: int = 1 << 20,
) -> SegmentWriter:
    """Segments of one broker."""
    return SegmentWriter(
        root / "cluster=c", broker, segment_bytes_max=size, segment_ms_max=age_ms, bytes_max=total
    )


def lines_of(root: Path) -> list[str]:
    """Every line of every compressed segment."""
    return [
        line
        for path in sorted(root.rglob("*.jsonl.gz"))
        for line in gzip.open(path, "rt").read().splitlines()
    ]


def a_step(number: int) -> OwnershipStep:
    """A record."""
    return OwnershipStep(
        ts=Clock.now + number,
        broker="b1:8080",
        bundle=f"t/n/{number}",
        before="Free",
        after="Owned",
        reason="x" * 50,
    )


def test_sealed_by_size_and_age(tmp_path: Path) -> None:
    """An open segment is readable as it grows; a full or old one is renamed and compressed."""
    segments = a_segments(tmp_path)
    segments.write({KEY: [b"1", b"2"]}, 0)
    (opened,) = tmp_path.rglob("*.open")
    assert opened.name == "b1_8080-0-1.jsonl.open"
    assert opened.parent == tmp_path / "cluster=c" / "kind=ownership" / f"date={DAY}"
    assert opened.read_bytes() == b"1\n2\n"
    segments.write({KEY: [b"3" * 1000]}, 10)
    assert segments.seal_due(10)
    assert [path.name for path in tmp_path.rglob("b1*")] == ["b1_8080-0-1.jsonl.gz"]
    segments.write({KEY: [b"4"]}, 20)
    assert segments.seal_due(60_020)
    assert lines_of(tmp_path) == ["1", "2", "3" * 1000, "4"]


def test_bounded(tmp_path: Path) -> None:
    """The oldest sealed segments of this broker go, and are counted; those of others stay."""
    other = a_segments(tmp_path, "b1:8080-2")
    other.write({KEY: [b"other"]}, 0)
    other.close()
    segments = a_segments(tmp_path, total=200, size=1)
    for number in range(10):
        segments.write({KEY: [b"%d" % number]}, number)
        segments.seal_due(number)
        segments.retain()
    kept = segments.complete()
    assert sum(path.stat().st_size for path in kept) <= 200
    assert segments.dropped == 10 - len(kept) > 0
    assert segments.dropped_unshipped == segments.dropped
    assert lines_of(tmp_path)[-1] == "other" or "other" in lines_of(tmp_path)
    assert "9" in lines_of(tmp_path)


def test_recovery_after_a_crash(tmp_path: Path) -> None:
    """The torn last line goes, empty segments go, half-compressed ones are compressed again;
    another broker's open segment is left alone.
    """
    folder = tmp_path / "cluster=c" / "kind=ownership" / f"date={DAY}"
    folder.mkdir(parents=True)
    (folder / "b1_8080-1-1.jsonl.open").write_bytes(b"whole\ntorn")
    (folder / "b1_8080-1-2.jsonl.open").write_bytes(b"torn only")
    (folder / "b1_8080-1-3.jsonl").write_bytes(b"sealed\n")
    (folder / "b1_8080-1-3.jsonl.gz.tmp").write_bytes(b"half")
    (folder / "b2_8080-1-1.jsonl.open").write_bytes(b"not mine")
    segments = a_segments(tmp_path)
    assert segments.recover(5) == 1
    segments.compress(5)
    assert sorted(path.name for path in folder.iterdir()) == [
        "b1_8080-1-1.jsonl.gz",
        "b1_8080-1-3.jsonl.gz",
        "b2_8080-1-1.jsonl.open",
    ]
    assert lines_of(tmp_path) == ["whole", "sealed"]


WRITER = """
import itertools, sys
from pathlib import Path
from loadmanager.kit.history.segment_writer import SegmentWriter
limits = dict(segment_bytes_max=20_000, segment_ms_max=1e9, bytes_max=1 << 30)
segments = SegmentWriter(Path(sys.argv[1]) / "cluster=c", "b1:8080", **limits)
for number in itertools.count():
    segments.write({("ownership", "2026-11-20"): [b'{"number": %d}' % number]}, number)
    segments.seal_due(number)
    print(number, flush=True)
"""


def test_kill_9_loses_at_most_the_torn_line(tmp_path: Path) -> None:
    """The lines that a killed process reported as written are there."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = [int(process.stdout.readline()) for _ in range(3000)][-1]
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    segments = a_segments(tmp_path)
    segments.recover(5)
    segments.compress(5)
    numbers = sorted(json.loads(line)["number"] for line in lines_of(tmp_path))
    assert numbers == list(range(len(numbers)))
    assert numbers[-1] >= said


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Within this context, files cannot grow beyond a size, in the middle of a write, as on a full
    disk.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_tears_no_line(tmp_path: Path) -> None:
    """A write that stops in the middle is taken back; what came before is sealed, nothing empty
    stays, and later writes go on in another segment.
    """
    segments = a_segments(tmp_path, size=1 << 20)
    segments.write({KEY: [b"before"]}, 1)
    for at in range(2):
        with file_size_limit(50), pytest.raises(OSError, match="File too large"):
            segments.write({KEY: [b"x" * 100]}, 2 + at)
    segments.write({KEY: [b"after"]}, 4)
    assert [path.read_bytes() for path in tmp_path.rglob("*.open")] == [b"after\n"]
    assert segments.seal_due(4)
    assert lines_of(tmp_path) == ["before"]
    segments.close()
    assert lines_of(tmp_path) == ["before", "after"]
    assert segments.lines == 2


def test_what_cannot_be_compressed_counts_and_is_bounded(tmp_path: Path) -> None:
    """A disk with room for records and none for their compression: they stay plain, count towards
    the limit, and are compressed later.
    """
    segments = a_segments(tmp_path, size=1, total=100)
    segments.write({KEY: [b"x" * 60]}, 1)
    with file_size_limit(10), pytest.raises(OSError, match="File too large"):
        segments.seal_due(1)
    segments.write({KEY: [b"y" * 60]}, 2)
    assert not segments.seal_due(2), "not again at once: that would cost a processor"
    segments.retain()
    assert [path.read_bytes() for path in tmp_path.rglob("*.jsonl")] == [b"y" * 60 + b"\n"]
    assert (segments.dropped, segments.bytes_on_disk) == (1, 61)
    assert segments.seal_due(60_001)
    assert lines_of(tmp_path) == ["y" * 60]


def test_what_cannot_be_sealed_goes_on_being_written(tmp_path: Path) -> None:
    """A rename that fails is tried again."""
    segments = a_segments(tmp_path, size=1)
    segments.write({KEY: [b"1"]}, 1)
    (opened,) = tmp_path.rglob("*.open")
    blocker = opened.with_suffix("")
    blocker.mkdir()  # a file cannot replace a folder
    with pytest.raises(OSError, match="directory"):
        segments.seal_due(1)
    blocker.rmdir()
    segments.write({KEY: [b"2"]}, 2)
    assert segments.seal_due(2)
    assert lines_of(tmp_path) == ["1", "2"]


def a_history(root: Path, **settings: object) -> FileHistory:
    """A history below a folder."""
    return FileHistory(
        HistorySettings(directory=str(root), **settings),
        cluster="c",
        broker="b1:8080",
        clock=Clock(),
    )  # type: ignore[arg-type]


async def test_file_history(tmp_path: Path) -> None:
    """Records become lines of their kind and day; a buffer that is full drops and counts."""
    history = a_history(tmp_path, buffer_bytes_max=1024)
    await history.start()
    history.append(*(a_step(number) for number in range(20)))
    await history.close()
    lines = [json.loads(line) for line in lines_of(tmp_path)]
    assert [line["bundle"] for line in lines] == [f"t/n/{number}" for number in range(len(lines))]
    assert history.written == len(lines) > 0
    assert history.written + history.dropped == 20
    assert lines[0] | {"v": 2, "before": "Free"} == lines[0]
    assert {sample.name: sample.value for sample in history.samples()}[
        "loadmanager_history_records"
    ] == len(lines)


async def test_a_disk_that_fails_harms_nobody(tmp_path: Path) -> None:
    """No error reaches the broker; lost records are counted; the history goes on when the disk is
    back.
    """
    root = tmp_path / "history"
    root.write_text("in the way")
    history = a_history(root)
    await history.start()
    history.append(a_step(1))
    await history.flush()
    assert (history.written, history.dropped) == (0, 1)
    root.unlink()
    history.append(a_step(2))
    await history.close()
    assert [json.loads(line)["bundle"] for line in lines_of(root)] == ["t/n/2"]


async def test_it_can_be_written_again_once_that_stays_so(tmp_path: Path) -> None:
    """A write that succeeds by luck while the disk is full is not logged as the end of it."""
    root = tmp_path / "history"
    root.write_text("in the way")
    clock = Clock()
    history = FileHistory(
        HistorySettings(directory=str(root)), cluster="c", broker="b1:8080", clock=clock
    )
    with capture_logs() as logs:
        await history.start()
        history.append(a_step(9))
        await history.flush()
        root.unlink()
        for number, seconds in enumerate((1, 58, 1)):
            clock.now += seconds * 1000
            history.append(a_step(number))
            await history.flush()
            assert history.written == number + 1
            assert len(logs) == (2 if number == 2 else 1), number
    assert "can be written again" in logs[1]["event"]
    await history.close()


async def test_shipping(tmp_path: Path) -> None:
    """Each sealed segment arrives once, whole and under its name; failures are tried again; a
    restart ships nothing twice.
    """
    target = tmp_path / "far"
    target.write_text("in the way")
    history = a_history(tmp_path / "near", ship_url=f"file://{target}/history")
    await history.start()
    history.append(a_step(1))
    await history.close()
    with pytest.raises(OperationalError):
        await history.ship()
    assert history.ship_failures == 2, "once when it closed"
    target.unlink()
    await history.ship()
    await history.ship()
    (local,), (shipped,) = (tmp_path / "near").rglob("*.jsonl.gz"), target.rglob("*.jsonl.gz")
    assert history.shipped == 1
    assert shipped.relative_to(target / "history") == local.relative_to(tmp_path / "near")
    assert shipped.read_bytes() == local.read_bytes()
    shipped.unlink()  # somebody took it
    again = a_history(tmp_path / "near", ship_url=f"file://{target}/history")
    await again.start()
    await again.ship()
    assert again.shipped == 0
    assert not list(target.rglob("*.jsonl.gz"))


def test_a_crash_between_copy_and_mark_ships_nothing_twice(tmp_path: Path) -> None:
    """A segment that was copied in full is not copied again."""
    segments = a_segments(tmp_path / "near", size=1)
    segments.write({KEY: [b"1"]}, 1)
    segments.seal_due(1)
    shipper = Shipper(f"file://{tmp_path}/far")
    assert shipper.ship(segments) == 1
    (copy,) = (tmp_path / "far").rglob("*.jsonl.gz")
    written_ns = copy.stat().st_mtime_ns
    for marker in (tmp_path / "near").rglob("*.shipped"):
        marker.unlink()
    assert shipper.ship(segments) == 1
    assert copy.stat().st_mtime_ns == written_ns


async def test_what_is_sealed_at_the_end_is_shipped(tmp_path: Path) -> None:
    """A broker that stops leaves nothing on a machine that may be gone afterwards."""
    history = a_history(tmp_path / "near", ship_url=f"file://{tmp_path}/far")
    await history.start()
    history.append(a_step(1))
    await history.close()
    assert [json.loads(line)["bundle"] for line in lines_of(tmp_path / "far")] == ["t/n/1"]


async def test_a_marker_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    """A segment whose marker cannot be written is an operational error, and is tried again."""
    history = a_history(tmp_path / "near", ship_url=f"file://{tmp_path}/far")
    await history.start()
    history.append(a_step(1))
    await history.flush()
    (opened,) = (tmp_path / "near").rglob("*.open")
    folder = opened.parent
    (folder / (opened.name.replace(".open", ".gz.shipped"))).symlink_to(tmp_path / "nowhere" / "x")
    await history.close()
    with pytest.raises(OperationalError, match="its marker cannot be written"):
        await history.ship()


KILLED = """
import asyncio, os, sys
from loadmanager.kit.history.history import FileHistory
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.system.clock import SystemClock
from loadmanager.engine.history.records import OwnershipStep

async def run():
    settings = HistorySettings(directory=sys.argv[1])
    history = FileHistory(settings, cluster="c", broker="b1:8080", clock=SystemClock())
    await history.start()
    for number in range(2000):
        step = dict(bundle=f"t/n/{number}", before="Free", after="Owned", reason="x")
        history.append(OwnershipStep(ts=1_795_132_800_000, broker="b1:8080", **step))
        if number % 700 == 699:
            await history.flush()
    os.kill(os.getpid(), 9)

asyncio.run(run())
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory")
async def test_a_killed_broker_loses_no_record(tmp_path: Path) -> None:
    """The next start finds each record that was not written yet, once."""
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(tmp_path))
    assert await killed.wait() == -signal.SIGKILL
    history = a_history(tmp_path)
    await history.start()
    await history.close()
    assert sorted(json.loads(line)["bundle"] for line in lines_of(tmp_path)) == sorted(
        f"t/n/{number}" for number in range(2000)
    )
    again = a_history(tmp_path)
    await again.start()
    await again.close()
    assert len(lines_of(tmp_path)) == 2000


async def test_a_crash_between_writing_and_noting_repeats_nothing(tmp_path: Path) -> None:
    """Lines of the spool that are in the open segment already are not written again."""
    folder = tmp_path / "cluster=c" / "kind=ownership" / f"date={DAY}"
    folder.mkdir(parents=True)
    (folder / "b1_8080-1-1.jsonl.open").write_bytes(b"one\ntwo\nto")
    segments = a_segments(tmp_path)
    assert segments.recover(5, [("ownership", DAY, line) for line in (b"two", b"three")]) == 2
    segments.compress(5)
    assert sorted(lines_of(tmp_path)) == ["one", "three", "two"]


def test_urls_that_cannot_be(tmp_path: Path) -> None:
    """Are refused at the start."""
    with pytest.raises(ConfigError, match="nosuch"):
        a_history(tmp_path, ship_url="nosuch://x")


def test_names() -> None:
    """Hadoop's paths have no colons."""
    assert safe_name("host-1.example:8080") == "host-1.example_8080"
