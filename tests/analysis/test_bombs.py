"""Segments that decompress to far more than any broker wrote: named as damaged, skipped, in
bounded memory.
"""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from analysis.nightly import job_of, report
from pyspark.sql import SparkSession

from bench import _history as history
from loadmanager.analysis.history_source import DAMAGED, HistorySource

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


def test_a_bomb_is_left_out_by_name(tmp_path: Path) -> None:
    """Before anybody reads it.

    A file that is cut off, and so has any trailer, is none: what can be read of it is.
    """
    write(tmp_path, "bomb", packed_zeros(9))
    write(tmp_path, "cut", gzip.compress(b"{}\n" * 1000)[:-4] + b"\xff\xff\xff\xff")
    write(tmp_path, "good", gzip.compress(b"{}\n"))
    listing = HistorySource(str(tmp_path), plain_bytes_max=8 * MIB).day(
        history.CLUSTER, history.DATE
    )
    assert [segment.name for segment in listing.segments] == [
        "cut-1-1.jsonl.gz",
        "good-1-1.jsonl.gz",
    ]
    ((path, reason),) = listing.left_out
    assert path.endswith("bomb-1-1.jsonl.gz")
    assert "damaged: decompressed it has more than 8 MiB" in reason


def test_looking_takes_bounded_memory(tmp_path: Path) -> None:
    """Sixteen liars at once, 64 MiB each: a gigabyte, were it held."""
    packed = packed_zeros(64)
    # a file of several members says nothing of the first ones' length
    several = packed_zeros(2) * 5
    for number in range(15):
        write(tmp_path, f"b{number}", a_liar(packed))
    write(tmp_path, "members", several)
    write(tmp_path, "cut", packed_zeros(1)[:-20])
    write(tmp_path, "good", gzip.compress(b"{}\n" * 100_000))
    source = HistorySource(str(tmp_path), plain_bytes_max=8 * MIB)
    segments = source.day(history.CLUSTER, history.DATE).segments
    assert len(segments) == 18 - 14, "liars of one trailer are twins"
    everything = [
        *segments,
        *[segment for segment in segments if segment.name.startswith("b0")] * 14,
    ]
    tracemalloc.start()
    try:
        broken = source.broken(everything)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert {segment.name[:-13]: fault for segment, fault in broken.items()} == {
        "b0": source.too_large,
        "members": source.too_large,
        "cut": DAMAGED,
    }
    assert peak < 16 * 4 * MIB


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_day_with_bombs(tmp_path: Path, spark: SparkSession) -> None:
    """The day is analysed without them, and says so.

    A line without end does not fill the memory of Spark either.
    """
    root = tmp_path / "history"
    good = [history.broker_load(minute, "b0", 0.5) for minute in range(10)]
    history.write(root, "broker_load", "b0", good)
    bomb = packed_zeros(80)
    write(root, "honest", bomb)
    write(root, "liar", a_liar(bomb))
    write(root, "alone", a_liar(bomb), kind="throttle")
    with closing(HistorySource(str(root), plain_bytes_max=64 * MIB)) as source:
        outcome = job_of(spark, source, tmp_path).run(history.DATE)
    assert outcome is not None
    for kind, name in (("broker_load", "honest"), ("broker_load", "liar"), ("throttle", "alone")):
        (said,) = [
            text for text in outcome.problems if f"{name}-1-1.jsonl.gz" in text and kind in text
        ]
        assert "is damaged: decompressed it has more than 64 MiB; it was skipped" in said
    found = report(tmp_path)
    assert (found["records"]["broker_load"], found["records"]["throttle"]) == (10, 0)
