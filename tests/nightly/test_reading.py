"""Lines are read many at once where they can be, and one by one where they cannot: both ways take
the same lines for records, and give the same values.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nightly.nightly import rules_of, task_of

from bench import _history as history
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly import reading

BUNDLE = "t/n/0x00000000_0xffffffff"
GOOD = history.bundle_load(1, "b0", BUNDLE, 5.0)
ODD = {
    "null": False,
    "[1]": False,
    "{": False,
    "  ": False,
    GOOD + GOOD: False,
    GOOD.replace('"b0"', "null"): True,
    GOOD.replace('"b0"', '"\\ud800"'): False,
    GOOD.replace('"b0"', '"\udcff"'): False,
    GOOD.replace('"b0"', '"é"'): True,
    GOOD.replace('"topics": 2', '"topics": 2.0'): False,
    GOOD.replace('"topics": 2', '"topics": true'): False,
    GOOD.replace('"topics": 2', '"topics": "2"'): False,
    GOOD.replace('"topics": 2', f'"topics": {2**63}'): False,
    GOOD.replace('"topics": 2', '"topics": 2, "topics": 3'): True,
    GOOD.replace('"topics": 2', '"later": [{"a": null}]'): True,
    GOOD.replace('"topics": 2', f'"later": {"[" * 300}{"]" * 300}'): True,
    GOOD.replace('"topics": 2', f'"later": "{"x" * (reading.LINE_BYTES_MAX - 300)}"'): True,
    GOOD.replace('"topics": 2', f'"later": "{"x" * reading.LINE_BYTES_MAX}"'): False,
    GOOD.replace("5.0", "NaN"): True,
    GOOD.replace("5.0", '"Infinity"'): True,
    GOOD.replace("5.0", "1e999"): True,
    GOOD.replace("5.0", '"5.0"'): False,
}
"""Line → whether it has the form of a record."""


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
def test_one_odd_line_costs_no_other(line: str) -> None:
    """Neither the lines beside it nor the task; what is no record is put aside with its text."""
    data = line.encode("utf-8", "surrogateescape")
    pieces = [("a", GOOD.encode()), ("b", data), ("c", GOOD.encode())]
    found = reading._judged(pieces, rules_of("bundle_load")).to_pylist()
    assert [row["segment"] for row in found] == ["a", "b", "c"]
    assert found[0] == {**found[2], "segment": "a"}
    assert (found[0]["problem"], found[0]["bundle"]) == (None, BUNDLE)
    assert (found[1]["problem"] != reading.NOT_JSON) == ODD[line]
    if found[1]["problem"]:
        assert found[1]["text"] == data[: reading.LINE_BYTES_MAX].decode("utf-8", "replace")


def test_bad_lines_among_many() -> None:
    """Each line keeps its place, however the lines around it are read."""
    lines = [GOOD.replace("5.0", f"{number}.0").encode() for number in range(5000)]
    bad = (0, 700, 701, 4999)
    for number in bad:
        lines[number] = b"null"
    pieces = [("a", b"\n".join(lines[:900])), ("b", b"\n".join(lines[900:]))]
    found = reading._judged(pieces, rules_of("bundle_load")).to_pylist()
    assert [row["segment"] for row in found] == ["a"] * 900 + ["b"] * 4100
    assert [number for number, row in enumerate(found) if row["problem"]] == list(bad)
    assert all(
        row["msgThroughputIn"] == number for number, row in enumerate(found) if number not in bad
    )


@pytest.mark.parametrize("line", [line for line, is_record in ODD.items() if is_record])
def test_both_ways_agree(line: str) -> None:
    """Whatever is read with many others has the values that it has alone."""
    schema = rules_of("bundle_load").schema
    lines = [GOOD.encode(), line.encode()]
    alone, bad = reading._parsed_singly(lines, schema)
    assert not any(bad)
    together = reading._parsed(lines, 2, schema)
    if together is not None:
        assert json.dumps(together.to_pylist()) == json.dumps(alone.to_pylist())
    assert reading._parsed([GOOD.encode()] * 2, 2, schema) is not None, "the usual lines are fast"


def test_segments_share_blocks(tmp_path: Path) -> None:
    """Many small segments make one row group, a large one several; each line names its segment. A
    last line without end is a line; one that is too long is put aside.
    """
    history.write(tmp_path, "bundle_load", "b0", [GOOD] * 7)
    torn = history.folder(tmp_path, "bundle_load") / "b1-1-1.jsonl.open"
    torn.write_text(f"{GOOD}\n\n{'x' * (reading.LINE_BYTES_MAX + 1)}\n{GOOD}\n{GOOD[:50]}")
    segments = HistorySource(str(tmp_path)).day(history.CLUSTER, history.DATE).segments
    task = task_of("bundle_load", segments, tmp_path, plain_bytes_max=1 << 20)
    outcome = reading.run(task)
    assert (outcome.rows, outcome.put_aside) == (9, {reading.NOT_JSON: 2})
    named = [segments[0].name] * 7 + [torn.name] * 4
    assert pq.read_table(task.path)["segment"].to_pylist() == named
    assert pq.ParquetFile(task.path).num_row_groups == 1

    count = reading.BLOCK_BYTES // len(GOOD) + 1000
    large = history.write(tmp_path, "bundle_load", "b2", [GOOD] * count)
    Path(task.path).unlink()
    segments = HistorySource(str(tmp_path)).day(history.CLUSTER, history.DATE).segments
    task = task_of("bundle_load", segments, tmp_path, plain_bytes_max=1 << 30)
    assert reading.run(task).rows == 9 + count
    assert pq.read_table(task.path)["segment"].to_pylist() == named + [large.name] * count
    assert pq.ParquetFile(task.path).num_row_groups == 2


def test_blank_lines(tmp_path: Path) -> None:
    """They are no lines, wherever they are; a segment of nothing else has none."""
    folder = history.folder(tmp_path, "bundle_load")
    (folder / "b0-1-1.jsonl").write_text("\n\n\n")
    segments = HistorySource(str(tmp_path)).day(history.CLUSTER, history.DATE).segments
    task = task_of("bundle_load", segments, tmp_path, plain_bytes_max=1 << 20)
    outcome = reading.run(task)
    assert (outcome.rows, outcome.put_aside, outcome.unwritten) == (0, {}, None)
    Path(task.path).unlink()
    (folder / "b0-1-2.jsonl").write_text(f"\n{GOOD}\n\n\n{GOOD}\n\n")
    segments = HistorySource(str(tmp_path)).day(history.CLUSTER, history.DATE).segments
    task = task_of("bundle_load", segments, tmp_path, plain_bytes_max=1 << 20)
    outcome = reading.run(task)
    assert (outcome.rows, outcome.put_aside) == (2, {})
    assert pq.read_table(task.path)["segment"].to_pylist() == ["b0-1-2.jsonl"] * 2


def test_what_is_not_there_any_more(tmp_path: Path) -> None:
    """A segment that was sealed meanwhile, and a folder that cannot be written, end no task."""
    history.write(tmp_path, "bundle_load", "b0", [GOOD])
    segments = HistorySource(str(tmp_path)).day(history.CLUSTER, history.DATE).segments
    task = task_of("bundle_load", segments, tmp_path, plain_bytes_max=1 << 20)
    unwritable = task_of("bundle_load", segments, tmp_path / "lines.parquet", 1 << 20)
    (tmp_path / "lines.parquet").write_text("")
    assert "Not a directory" in str(reading.run(unwritable).unwritten)
    (tmp_path / "lines.parquet").unlink()
    Path(segments[0].path).unlink()
    assert reading.run(task).gone
    assert not list(tmp_path.glob("*lines*")), "nothing is there that is not complete"


def test_a_task_that_runs_twice(tmp_path: Path) -> None:
    """Spark may run one again, or twice at once: the file that is there stays, and is the only
    one.
    """
    history.write(tmp_path, "bundle_load", "b0", [GOOD])
    segments = HistorySource(str(tmp_path)).day(history.CLUSTER, history.DATE).segments
    task = task_of("bundle_load", segments, tmp_path, plain_bytes_max=1 << 20)
    first = reading.run(task)
    Path(task.path).write_text("the first attempt's")
    assert reading.run(task) == first
    assert Path(task.path).read_text() == "the first attempt's"
    assert list(tmp_path.glob("*lines*")) == [Path(task.path)]
