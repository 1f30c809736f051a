"""The recipes of docs/howto/analyze.md, run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from nightly.conftest import Sessions
from nightly.nightly import analyze

from bench import _history as history

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
    busiest, brokers, days = (
        duckdb.connect().execute(recipe).fetchall() for recipe in recipes("sql")
    )
    assert busiest[0][0] == history.HOT
    assert busiest[0][1] > busiest[1][1] > 0
    assert brokers[0] == ("b0", history.MINUTES, 1.0)
    assert [row[0] for row in brokers] == ["b0", "b1", "b2", "b3"]
    ((date, samples),) = days
    assert (str(date), samples) == (history.DATE, sum(row[1] for row in brokers))


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_pandas_reads_tables(folder: Path) -> None:
    """One of six moves was worth it."""
    (recipe,) = recipes("python")
    command = [sys.executable, "-W", "ignore", "-c", recipe]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == [history.DATE, "0.05", "0.166667"]


def test_the_hadoop_of_the_guide_is_sparks() -> None:
    """Another hadoop-aws fails with a class that is missing."""
    pyspark = pytest.importorskip("pyspark")
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    versions = re.findall(r"hadoop-aws:([0-9.]+)", GUIDE.read_text())
    assert versions == [jar.stem.removeprefix("hadoop-client-api-")]
