"""What is stored of a day: readers see it whole or not at all, whoever is killed, and old days are
compacted under them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from nightly.nightly import analyze
from pyspark.sql import SparkSession

from bench import _history as history
from loadmanager.cli import main
from loadmanager.kit.history.source import HistorySource
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly import merging
from loadmanager.nightly.analysed_days import AnalysedDays, Manifest
from loadmanager.nightly.compaction import compact
from loadmanager.nightly.forgetting import forget
from loadmanager.nightly.in_process import InProcess
from loadmanager.nightly.job import QUESTIONS
from loadmanager.nightly.late import late_days
from loadmanager.nightly.on_spark import OnSpark
from loadmanager.nightly.reading import complete_file

TESTS = Path(__file__).parents[1]
LATER = history.layout.day_of(history.START_MS + 4 * DAY_MS)
ROOT = f"cluster={history.CLUSTER}"
FOLDER = f"records/kind=broker_load/date={history.DATE}"
MANIFEST = f"{ROOT}/records/date={history.DATE}_manifest.json"
KILLED = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from nightly.nightly import job_of
from bench import _history as history
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly.in_process import InProcess
from loadmanager.nightly.job import QUESTIONS

folder, at = Path(sys.argv[1]), int(sys.argv[2])
kills = SimpleNamespace(NAME="kills", table=lambda _day: os.kill(os.getpid(), signal.SIGKILL))
questions = (*QUESTIONS[:at], kills, *QUESTIONS[at:])
source = HistorySource((folder / "history").as_uri())
job_of(InProcess(), source, folder, questions).run(history.DATE)
"""
"""A run that SIGKILL ends at one of its questions."""


def loads(folder: Path, number: int, rows: int = 3) -> None:
    """A segment more."""
    lines = [history.broker_load(minute + 10 * number, "b0", 0.5) for minute in range(rows)]
    history.write(folder / "history", "broker_load", "b0", lines, sequence=number)


def named(folder: Path) -> list[Path]:
    """What a reader of the manifest reads."""
    root = folder / "analysis" / ROOT
    files = json.loads((folder / "analysis" / MANIFEST).read_text())["files"]
    return [root / path for path in files if path.startswith(FOLDER)]


def listed(folder: Path) -> pa.Table:
    """What a reader of folders reads, in order."""
    records = ds.dataset(folder / "analysis" / ROOT / FOLDER).to_table()
    return records.sort_by("ts")


@pytest.mark.parametrize("questions", [0, len(QUESTIONS)])
def test_what_a_killed_run_wrote_is_read_by_nobody(tmp_path: Path, questions: int) -> None:
    """While it wrote, readers saw the day of the run before; the next one removes what it left."""
    loads(tmp_path, 1)
    assert analyze(tmp_path) == 0
    before, whole = named(tmp_path), listed(tmp_path)
    loads(tmp_path, 2)
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(questions)]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    left = list((tmp_path / "analysis" / ROOT / FOLDER).glob("_*/*.parquet"))
    assert left, "it had written records"
    assert (named(tmp_path), listed(tmp_path)) == (before, whole)
    assert analyze(tmp_path) == 0
    assert not set(before) & set(named(tmp_path))
    assert listed(tmp_path).num_rows == 6
    folder = tmp_path / "analysis" / ROOT / FOLDER
    assert sorted(folder.rglob("*")) == named(tmp_path), "and nothing else"


def test_a_task_that_ends_after_its_run_was_killed(tmp_path: Path) -> None:
    """Its file is below a folder of its run, which no other run takes for its own."""
    loads(tmp_path, 1)
    days = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER)
    late = days.draft(history.DATE).path("records", "broker_load", 0)
    assert analyze(tmp_path) == 0
    Path(late).parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"ts": [1]}), late)
    assert listed(tmp_path).num_rows == 3
    assert str(late) not in map(str, named(tmp_path))


def old_day(folder: Path) -> pa.Table:
    """The records of a day, in three files as a large one has them."""
    for number in (1, 2, 3):
        loads(folder, number)
    assert analyze(folder) == 0
    whole = listed(folder)
    days = AnalysedDays(str(folder / "analysis"), history.CLUSTER)
    draft = days.draft(history.DATE)
    for number in range(3):
        draft.paths.append(draft.path("records", "broker_load", number))
        pq.write_table(whole.slice(3 * number, 3), draft.paths[-1])
    others = [path for path in days.stored_files(history.DATE) if not path.startswith(FOLDER)]
    manifest = days.manifest(history.DATE)
    files = [*others, *draft.publish()]
    days.commit(history.DATE, Manifest(manifest.seen, manifest.rows, files))
    assert len(named(folder)) == 3
    return whole


def test_an_old_day_is_compacted(tmp_path: Path) -> None:
    """The run of a later day does it, once; readers of both kinds see the same as before, one
    that has the files open, too.
    """
    whole = old_day(tmp_path)
    reader = [path.open("rb") for path in named(tmp_path)]
    history.write(
        tmp_path / "history",
        "broker_load",
        "b0",
        [
            json.dumps(
                {
                    **json.loads(history.broker_load(0, "b0", 0.5)),
                    "ts": history.START_MS + 4 * DAY_MS,
                }
            )
        ],
        date=LATER,
    )
    assert analyze(tmp_path, date=LATER) == 0
    (merged,) = named(tmp_path)
    assert pq.ParquetFile(merged).metadata.row_group(0).column(0).compression == "ZSTD"
    assert pq.read_table(merged, partitioning=None).sort_by("ts") == whole
    assert listed(tmp_path) == whole
    assert pa.concat_tables(pq.read_table(file) for file in reader).sort_by("ts") == whole
    for file in reader:
        file.close()
    days = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER)
    assert days.manifest(history.DATE).rows["broker_load"] == 9
    assert days.rows("broker_usage", history.DATE), "tables stay"
    assert compact(InProcess(), days, LATER) == []


def test_a_compaction_that_fails_changes_nothing(tmp_path: Path) -> None:
    """A file that cannot be read, say."""
    old_day(tmp_path)
    before = named(tmp_path)
    whole = before[1].read_bytes()
    before[1].write_bytes(whole[:50])
    days = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER)
    with pytest.raises(pa.ArrowInvalid):
        compact(InProcess(), days, LATER)
    assert named(tmp_path) == before
    before[1].write_bytes(whole)
    assert compact(InProcess(), days, LATER) == [history.DATE]
    assert listed(tmp_path).num_rows == 9


def test_large_days_become_several_files(tmp_path: Path) -> None:
    """And what is too large for one group of rows becomes several groups."""
    whole = old_day(tmp_path)
    files = named(tmp_path)
    merged = tmp_path / "merged.parquet"
    merging.run(merging.MergeTask(fsspec.filesystem("file"), list(map(str, files)), str(merged), 4))
    assert pq.ParquetFile(merged).num_row_groups == 3
    assert pq.read_table(merged) == whole
    size = max(path.stat().st_size for path in files)
    days = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER)
    assert compact(InProcess(), days, LATER, size + 1) == [history.DATE]
    assert len(named(tmp_path)) == 2
    assert listed(tmp_path) == whole


def test_a_day_of_an_earlier_version(tmp_path: Path) -> None:
    """Its manifest names no files: those that are there are the day's, and are compacted, too."""
    loads(tmp_path, 1)
    assert analyze(tmp_path) == 0
    manifest = tmp_path / "analysis" / MANIFEST
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({"seen": document["seen"], "rows": document["rows"]}))
    days = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER)
    assert list(days.stored_files(history.DATE)) == sorted(document["files"])
    assert days.rows("broker_usage", history.DATE)
    assert compact(InProcess(), days, LATER) == [history.DATE]
    assert listed(tmp_path).num_rows == 3
    assert late_days(days, HistorySource((tmp_path / "history").as_uri()), LATER) == []


OLD, OLDEST_LEFT = (history.layout.day_of(history.START_MS - n * DAY_MS) for n in (4, 3))
THREE_DAYS = ("--set", "loadManagerHistoryMaxDays=3")


def three_days(folder: Path) -> None:
    """A day, one three days before and one before that, recorded and analysed."""
    for number, date in enumerate((OLD, OLDEST_LEFT, history.DATE), start=1):
        shift = history.layout.day_start_ms(date) - history.START_MS
        lines = [json.loads(history.broker_load(minute, "b0", 0.5)) for minute in range(3)]
        moved = [json.dumps({**line, "ts": line["ts"] + shift}) for line in lines]
        history.write(folder / "history", "broker_load", "b0", moved, sequence=number, date=date)
        assert analyze(folder, "--no-late", date=date) == 0


def table_of(folder: Path) -> dict[str, float]:
    """Day → the mean usage by the stored table, as readers of folders have it."""
    tables = ds.dataset(
        folder / "analysis" / ROOT / "tables" / "broker_usage", partitioning="hive"
    ).to_table()
    return dict(zip(tables["date"].to_pylist(), tables["mean"].to_pylist(), strict=True))


def dates_below(folder: Path) -> set[str]:
    """The days that any file or folder names."""
    names = (path.name for path in folder.rglob("*"))
    return {match[0] for name in names if (match := re.search(r"20\d\d-\d\d-\d\d", name))}


def test_one_setting_bounds_the_history_and_all_that_is_made_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Segments, records, sums, tables and reports of older days go, no others; none by default.
    The report and the log say so.
    """
    three_days(tmp_path)
    everything = {OLD, OLDEST_LEFT, history.DATE}
    assert set(table_of(tmp_path)) == everything
    before = table_of(tmp_path)
    capsys.readouterr()
    assert analyze(tmp_path, *THREE_DAYS) == 0
    del before[OLD]
    assert table_of(tmp_path) == before
    for what in ("history", "analysis"):
        assert dates_below(tmp_path / what) == everything - {OLD}, what
    written = json.loads(
        (tmp_path / "analysis" / ROOT / f"reports/{history.DATE}.json").read_text()
    )
    assert written["removed"] == [
        f"deleted, for loadManagerHistoryMaxDays is 3: {what} of {OLD}"
        for what in ("records, tables and reports", "segments of the history")
    ]
    shown = capsys.readouterr().out
    page = (tmp_path / "analysis" / ROOT / f"reports/{history.DATE}.html").read_text()
    for sentence in written["removed"]:
        assert sentence in shown
        assert sentence in page
    assert analyze(tmp_path, *THREE_DAYS) == 0
    again = json.loads((tmp_path / "analysis" / ROOT / f"reports/{history.DATE}.json").read_text())
    assert again["removed"] == []


@pytest.mark.parametrize("command", ["what-if", "tournament", "bill", "analyze", "replay --exact"])
def test_a_day_that_is_gone_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Whoever asks for it; a day that never was says that nothing was recorded."""
    three_days(tmp_path)
    assert analyze(tmp_path, *THREE_DAYS) == 0
    why = f"analyze deleted the days before {OLDEST_LEFT}, for loadManagerHistoryMaxDays was 3"

    def asked(date: str) -> str:
        capsys.readouterr()
        source = str(tmp_path / "history")
        if command == "analyze":
            assert analyze(tmp_path, date=date) == 4
        else:
            more = {
                "what-if": ["--add", "1"],
                "tournament": ["--no-spark", "--output", str(tmp_path / "tried")],
            }.get(command, [])
            assert main([*command.split(), source, "--date", date, *more]) in (2, 4)
        return capsys.readouterr().err

    assert f"{OLD} is gone: {why}" in asked(OLD)
    assert why not in asked(LATER)


def test_a_deletion_that_is_killed_is_finished_by_the_next_run(tmp_path: Path) -> None:
    """Its manifest goes first, so that nobody takes what is left for the day."""
    three_days(tmp_path)
    root = tmp_path / "analysis" / ROOT
    (root / f"records/date={OLD}_manifest.json").unlink()
    days = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER)
    assert days.rows("broker_usage", OLD) == []
    assert days.forget(OLDEST_LEFT) == [OLD]
    assert dates_below(root) == {OLDEST_LEFT, history.DATE}
    assert days.forget(OLDEST_LEFT) == []


def test_a_history_that_may_not_be_written(tmp_path: Path) -> None:
    """What was made of it is bounded, and the report says of the segments that they stay."""
    three_days(tmp_path)
    days = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER)
    source = HistorySource((tmp_path / "history").as_uri())
    source.files = ReadOnly()
    analysed, segments = forget(days, source, history.DATE, 3)
    assert analysed.endswith(f"records, tables and reports of {OLD}")
    assert segments == "segments of the history of old days cannot be deleted: read-only"
    assert dates_below(tmp_path / "history") == {OLD, OLDEST_LEFT, history.DATE}


def test_a_date_without_segments_deletes_nothing(tmp_path: Path) -> None:
    """A slip of the year must not cost all days."""
    three_days(tmp_path)
    assert analyze(tmp_path, *THREE_DAYS, date="2036-11-20") in (0, 4)
    assert dates_below(tmp_path / "history") == {OLD, OLDEST_LEFT, history.DATE}
    assert set(table_of(tmp_path)) == {OLD, OLDEST_LEFT, history.DATE}


def test_a_later_setting_of_more_days_keeps_what_was_said(tmp_path: Path) -> None:
    """The days that an earlier run deleted stay gone because of it."""
    three_days(tmp_path)
    assert analyze(tmp_path, *THREE_DAYS) == 0
    history.write(
        tmp_path / "history",
        "broker_load",
        "b0",
        [history.broker_load(-9 * 1440, "b0", 0.5)],
        date=history.layout.day_of(history.START_MS - 9 * DAY_MS),
    )
    assert analyze(tmp_path, "--set", "loadManagerHistoryMaxDays=8") == 0
    source = HistorySource((tmp_path / "history").as_uri())
    assert source.why_gone(history.CLUSTER, OLD)


class ReadOnly(LocalFileSystem):
    """Lets nobody write."""

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "rb":
            raise PermissionError("read-only")
        return super().open(path, mode, **options)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        raise PermissionError("read-only")


class LikeHdfs(LocalFileSystem):
    """Refuses what HDFS refuses, in the words of the package hdfs-native."""

    protocol = "likehdfs"

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """No file is replaced."""
        if self.exists(path2):
            raise FileExistsError(f"rename destination {path2} already exists")
        super().mv(path1, path2, **options)

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        """Nothing is below a file."""
        if Path(self._strip_protocol(path)).parent.is_file():
            raise RuntimeError(f"AccessControlException: {path} (is not a directory)")
        return super().ls(path, detail, **options)


class Overtaken(LikeHdfs):
    """Another task's file comes between the look and the rename."""

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """Too late."""
        Path(path2).write_bytes(b"first")
        super().mv(path1, path2, **options)


def test_a_store_that_replaces_no_file(tmp_path: Path) -> None:
    """A day is analysed again, and compacted, on HDFS, too; of two tasks the first one's file
    stays.
    """
    fsspec.register_implementation("likehdfs", LikeHdfs, clobber=True)
    output = f"likehdfs://{tmp_path}/analysis"
    loads(tmp_path, 1)
    assert analyze(tmp_path, "--output", output) == 0
    before = named(tmp_path)
    loads(tmp_path, 2)
    assert analyze(tmp_path, "--output", output) == 0
    assert not set(before) & set(named(tmp_path))
    assert listed(tmp_path).num_rows == 6
    assert compact(InProcess(), AnalysedDays(output, history.CLUSTER), LATER) == [history.DATE]
    assert listed(tmp_path).num_rows == 6
    target = tmp_path / "00000.parquet"
    with complete_file(Overtaken(), str(target)) as file:
        file.write(b"second")
    assert target.read_bytes() == b"first"
    assert list(tmp_path.glob("_*")) == []


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_compacts_an_old_day(tmp_path: Path, spark: SparkSession) -> None:
    """As this process does."""
    whole = old_day(tmp_path)
    days = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER)
    assert compact(OnSpark(spark), days, LATER) == [history.DATE]
    (merged,) = named(tmp_path)
    assert pq.ParquetFile(merged).metadata.row_group(0).column(0).compression == "ZSTD"
    assert listed(tmp_path) == whole
