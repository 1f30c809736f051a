"""The recipes of docs/howto/analyze.md, run as they stand there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nightly.conftest import Sessions
from nightly.nightly import analyze

from bench import _history as history
from loadmanager.kit.history.source import HistorySource
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly.analysed_days import AnalysedDays

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pandas")

GUIDE = Path(__file__).parents[2] / "docs/howto/analyze.md"


def recipes(language: str) -> list[str]:
    """The blocks of the section, for the designed day's cluster."""
    section = GUIDE.read_text().partition("## Ask with your own tools")[2].partition("\n## ")[0]
    blocks = re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [block.replace("cluster=standalone", f"cluster={history.CLUSTER}") for block in blocks]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sessions: Sessions) -> Path:
    """A folder with data/history and data/analysis."""
    sessions.start()
    root = tmp_path_factory.mktemp("recipes")
    history.designed(root / "data/history")
    assert analyze(root / "data") == 0
    return root


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_duckdb_reads_records_and_the_history(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOT carries most; b0 had every usage up to 1."""
    monkeypatch.chdir(folder)
    busiest, brokers = (duckdb.connect().execute(recipe).fetchall() for recipe in recipes("sql"))
    assert busiest[0][0] == history.HOT
    assert busiest[0][1] > busiest[1][1] > 0
    assert brokers[0] == ("b0", history.MINUTES, 1.0)
    assert [row[0] for row in brokers] == ["b0", "b1", "b2", "b3"]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_pandas_reads_tables(folder: Path) -> None:
    """One of six moves was worth it."""
    (recipe,) = recipes("python")
    command = [sys.executable, "-W", "ignore", "-c", recipe]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == [history.DATE, "0.05", "0.166667"]


def test_a_killed_run_leaves_a_day_that_is_not_whole(tmp_path: Path) -> None:
    """Until the next run has written it: readers and the next run see it in the manifest."""
    days = AnalysedDays(str(tmp_path), history.CLUSTER)
    manifest = tmp_path / f"cluster={history.CLUSTER}/records/date={history.DATE}_manifest.json"
    segment = ("broker_load", "b0-1-1.jsonl", 7)
    days.remember(history.DATE, {segment}, {"broker_load": 3})
    assert json.loads(manifest.read_text())["complete"] is True
    days.remember(history.DATE, set(), {}, complete=False)
    assert json.loads(manifest.read_text())["complete"] is False
    assert days.segments(history.DATE) == {segment}
    days.remember(history.DATE, {segment}, {"broker_load": 3})
    document = json.loads(manifest.read_text())
    assert (document["complete"], document["rows"]) == (True, {"broker_load": 3})


def test_a_day_that_is_not_whole_is_late(tmp_path: Path) -> None:
    """The next run writes it again, though no segment came since."""
    history.designed(tmp_path / "history")
    source = HistorySource((tmp_path / "history").as_uri())
    days, next_day = AnalysedDays(str(tmp_path / "analysis"), history.CLUSTER), "2026-11-21"
    days.remember(history.DATE, source.segments(history.CLUSTER, history.DATE), {})
    assert days.late(next_day, source) == []
    days.remember(history.DATE, set(), {}, complete=False)
    assert days.late(next_day, source) == [history.DATE]


def test_records_of_old_days_are_deleted(tmp_path: Path) -> None:
    """And nothing else, and none by default."""
    days = AnalysedDays(str(tmp_path), history.CLUSTER)
    root = tmp_path / f"cluster={history.CLUSTER}"
    old, young = (history.layout.day_of(history.START_MS - n * DAY_MS) for n in (8, 7))
    for what in ("records/kind=broker_load", "sums/kind=bundles", "tables/moves"):
        for date in (old, young):
            (root / what / f"date={date}").mkdir(parents=True)
    days.forget_old(history.DATE, 0)
    assert len(list(root.glob("*/*/date=*"))) == 6
    days.forget_old(history.DATE, 7)
    left = {str(path.relative_to(root)) for path in root.glob("*/*/date=*")}
    assert left == {
        f"records/kind=broker_load/date={young}",
        f"sums/kind=bundles/date={young}",
        f"tables/moves/date={young}",
        f"tables/moves/date={old}",
    }
