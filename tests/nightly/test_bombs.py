"""Segments that decompress to far more than any broker wrote: named as damaged, skipped, in
bounded memory.
"""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from pathlib import Path

import pyarrow.parquet as pq
from nightly.nightly import job_of, report, task_of

from bench import _history as history
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly import reading
from loadmanager.nightly.in_process import InProcess

MIB = 1 << 20


def packed_zeros(mib: int) -> bytes:
    """So much of nothing, compressed a thousand times."""
    packer = zlib.compressobj(1, wbits=31)
    block = bytes(MIB)
    return b"".join(packer.compress(block) for _ in range(mib)) + packer.flush()


def a_liar(packed: bytes) -> bytes:
    """The same under a trailer that tells of ten bytes."""
    return packed[:-4] + struct.pack("<I", 10)


def write(root: Path, name: str, data: bytes, kind: str = "broker_load") -> None:
    """A segment of these bytes."""
    (history.folder(root, kind) / f"{name}-1-1.jsonl.gz").write_bytes(data)


def test_lines_are_bounded(tmp_path: Path) -> None:
    """Where records are read without Spark, for replays, too: lines before an endless one are read,
    and what decompresses to too much only at its beginning.
    """
    write(tmp_path, "bomb", gzip.compress(b"{}\n" * 10 + bytes(96 * MIB) + b"\n{}\n"))
    source = HistorySource(str(tmp_path), plain_bytes_max=64 * MIB)
    (segment,) = source.day(history.CLUSTER, history.DATE).segments
    tracemalloc.start()
    try:
        lines = [line for line in source.lines(segment) if len(line) < MIB]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert lines == [b"{}"] * 10
    assert peak < 48 * MIB


def test_reading_takes_bounded_memory(tmp_path: Path) -> None:
    """A bomb, one under a trailer that tells of ten bytes, and one of several members are named and
    leave nothing behind. Of a file that is cut off, what can be read is.
    """
    write(tmp_path, "bomb", packed_zeros(64))
    write(tmp_path, "cut", gzip.compress(b"{}\n" * 1000)[:-4])
    write(tmp_path, "good", gzip.compress(b"{}\n" * 10))
    write(tmp_path, "liar", a_liar(gzip.compress(b"{}\n" * 1000 + bytes(64 * MIB))))
    # a file of several members says nothing of the first ones' length
    write(tmp_path, "members", packed_zeros(2) * 5)
    segments = HistorySource(str(tmp_path)).day(history.CLUSTER, history.DATE).segments
    task = task_of("broker_load", segments, tmp_path, plain_bytes_max=8 * MIB)
    tracemalloc.start()
    try:
        outcome = reading.run(task)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    too_large = "is damaged: decompressed it has more than 8 MiB; it was skipped"
    assert {name[:-13]: fault for name, fault in outcome.faults.items()} == {
        "bomb": too_large,
        "cut": reading.DAMAGED,
        "liar": too_large,
        "members": too_large,
    }
    assert outcome.put_aside == {"intervalMs is missing": 1010}
    assert pq.read_table(task.path).num_rows == 1010
    assert peak < 8 * 4 * MIB


def test_a_day_with_bombs(tmp_path: Path) -> None:
    """The day is analysed without them, and says so."""
    root = tmp_path / "history"
    good = [history.broker_load(minute, "b0", 0.5) for minute in range(10)]
    history.write(root, "broker_load", "b0", good)
    bomb = packed_zeros(80)
    write(root, "honest", bomb)
    write(root, "liar", a_liar(bomb))
    write(root, "alone", a_liar(bomb), kind="throttle")
    source = HistorySource(str(root), plain_bytes_max=64 * MIB)
    outcome = job_of(InProcess(), source, tmp_path).run(history.DATE)
    assert outcome is not None
    for kind, name in (("broker_load", "honest"), ("broker_load", "liar"), ("throttle", "alone")):
        (said,) = [
            text for text in outcome.problems if f"{name}-1-1.jsonl.gz" in text and kind in text
        ]
        assert "is damaged: decompressed it has more than 64 MiB; it was skipped" in said
    found = report(tmp_path)
    assert (found["records"]["broker_load"], found["records"]["throttle"]) == (10, 0)
