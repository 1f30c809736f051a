"""A disk that does not answer, and a spool that cannot be used: neither harms the broker, and each
is logged once.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loadmanager.kit.files.worker import Worker
from loadmanager.kit.history import spool as spools
from loadmanager.kit.history.spool import HALF_BYTES, HEADER_BYTES, Spool

needs_memory = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory")

HUNG = """
import asyncio, os, sys, time
from loadmanager.kit.history.history import FileHistory
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.engine.history.records import OwnershipStep

class Clock:
    def now_ms(self):
        return 1_795_132_800_000
    def monotonic_s(self):
        return time.monotonic()

async def run():
    history = FileHistory(
        HistorySettings(directory=sys.argv[1]),
        cluster="c",
        broker="b1:8080",
        clock=Clock(),
        close_s=float(sys.argv[2]),
    )
    await history.start()
    folder = os.path.join(sys.argv[1], "cluster=c", "kind=ownership", "date=2026-11-20")
    if sys.argv[3] == "hang":
        os.makedirs(folder)
        # Opening a FIFO waits for a reader, who never comes.
        os.mkfifo(os.path.join(folder, "b1_8080-1795132800000-1.jsonl.open"))
        step = dict(bundle="t/n/1", before="Free", after="Owned", reason="x")
        history.append(OwnershipStep(ts=1_795_132_800_000, broker="b1:8080", **step))
        flush = asyncio.ensure_future(history.flush())
        await asyncio.sleep(0.1)
        assert not flush.done()
    await history.close()
    print("written", history.written, flush=True)

asyncio.run(run())
"""


@needs_memory
def test_a_stop_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    """The process ends, although its thread does not; what the disk did not take, the next start
    writes.
    """

    def run(how: str, close_s: float) -> str:
        command = [sys.executable, "-c", HUNG, str(tmp_path), str(close_s), how]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        ).stdout

    said = run("hang", 0.3)
    assert "does not answer" in said
    assert "written 0" in said
    (fifo,) = tmp_path.rglob("*.open")
    fifo.unlink()
    assert "does not answer" not in run("go on", 60)
    assert len(list(tmp_path.rglob("*.jsonl.gz"))) == 1


async def test_the_worker_runs_one_call_after_the_other() -> None:
    """Results and errors reach the caller. A cancelled call does no harm, and its thread does not
    keep the process from ending.
    """
    worker, gate = Worker("test"), threading.Event()
    waiting = asyncio.ensure_future(worker.run(gate.wait))
    behind = asyncio.ensure_future(worker.run(threading.current_thread))
    await asyncio.sleep(0)
    waiting.cancel()
    gate.set()
    thread = await behind
    assert thread.daemon
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 5) == 5
    worker.close()
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The folder of a history; its spool is removed afterwards."""
    yield tmp_path
    Spool(tmp_path, "b").close()


def spool_of(spool: Spool) -> Path:
    """The spool's file."""
    return spool.path


@needs_memory
def test_a_spool_that_somebody_else_uses_is_told_of(place: Path) -> None:
    """It is logged once and counted; no line is kept, and nothing raises."""
    first = Spool(place, "b")
    with capture_logs() as lines:
        second = Spool(place, "b")
        second.append("ownership", "2026-11-20", b"{}")
        second.switch()
        second.written()
        second.close()
    assert [line["path"] for line in lines] == [str(spool_of(first))]
    assert (first.errors, second.errors) == (0, 1)
    assert spool_of(first).exists()
    first.close()


@needs_memory
def test_a_full_spool_is_told_of_once(place: Path) -> None:
    """A spool without room for many lines logs that once."""
    spool = Spool(place, "b")
    with capture_logs() as lines:
        for _ in range(10):
            spool.append("ownership", "2026-11-20", b"x" * (HALF_BYTES // 4))
    assert spool.errors == 10 - 3
    assert len(lines) == 1
    spool.close()


@needs_memory
def test_a_spool_of_nonsense_costs_no_start(place: Path) -> None:
    """A line that is not a record is left out and counted; the records beside it are found."""
    before = Spool(place, "b")
    before.append("ownership", "2026-11-20", b'{"good":1}')
    data = (
        b"\xff\xfe 2026-11-20 {}\n../../x 2026-11-20 {}\nownership yesterday "
        b'{}\nalone\nownership 2026-11-20 {"good":2}\n'
    )
    kept = b'ownership 2026-11-20 {"good":1}\n'
    with spool_of(before).open("r+b") as file:
        file.seek(HEADER_BYTES + len(kept))
        file.write(data)
    before._release()
    after = Spool(place, "b")
    with capture_logs() as lines:
        found = after.left_behind()
    assert found == [
        ("ownership", "2026-11-20", b'{"good":1}'),
        ("ownership", "2026-11-20", b'{"good":2}'),
    ]
    assert (after.errors, len(lines)) == (4, 1)
    after.close()


@needs_memory
def test_spools_of_living_processes_are_no_error(place: Path) -> None:
    """Every broker of a machine sweeps, and leaves the other brokers' spools alone."""
    Spool(place, "c").close()
    path = spools.folder_of_spools() / f"test-{os.getpid()}.spool"
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            spool = Spool(place, "b")
            assert spool.errors == 0
            spool.close()
        finally:
            path.unlink()
