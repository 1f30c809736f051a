"""The recipes of docs/howto/analyze.md, run as they stand there.

That of Trino is run on a server that is started where LOADMANAGER_TRINO names the folder of its
unpacked distribution, and LOADMANAGER_TRINO_JAVA that of a Java that is new enough for it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nightly.conftest import Sessions
from nightly.nightly import analyze
from nightly.trino import Trino, a_trino

from bench import _history as history

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pandas")

GUIDE = Path(__file__).parents[2] / "docs/howto/analyze.md"
TRINO = "-- Trino\n"
SERVER, JAVA = "LOADMANAGER_TRINO", "LOADMANAGER_TRINO_JAVA"


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
@pytest.mark.timeout(900)
def test_duckdb_reads_records_and_the_history(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOT carries most; b0 had every usage up to 1."""
    monkeypatch.chdir(folder)
    busiest, brokers, days = (
        duckdb.connect().execute(recipe).fetchall()
        for recipe in recipes("sql")
        if not recipe.startswith(TRINO)
    )
    assert busiest[0][0] == history.HOT
    assert busiest[0][1] > busiest[1][1] > 0
    assert brokers[0] == ("b0", history.MINUTES, 1.0)
    assert [row[0] for row in brokers] == ["b0", "b1", "b2", "b3"]
    ((date, samples),) = days
    assert (str(date), samples) == (history.DATE, sum(row[1] for row in brokers))


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_pandas_reads_tables(folder: Path) -> None:
    """One of six moves was worth it."""
    (recipe,) = recipes("python")
    command = [sys.executable, "-W", "ignore", "-c", recipe]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == [history.DATE, "0.05", "0.166667"]


@pytest.fixture
def trino(tmp_path: Path) -> Iterator[Trino]:
    """A server that is ready."""
    for name, what in ((SERVER, "Trino server"), (JAVA, "Java for Trino")):
        if not os.environ.get(name):
            pytest.skip(f"{name} names no {what}")
    java = Path(os.environ[JAVA], "bin", "java")
    with a_trino(Path(os.environ[SERVER]), java, tmp_path) as server:
        yield server


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_trino_reads_records_and_tables(folder: Path, trino: Trino) -> None:
    """As DuckDB and pandas do; and it overlooks what a run is writing."""
    (recipe,) = (recipe for recipe in recipes("sql") if recipe.startswith(TRINO))
    recipe = recipe.replace("s3://bucket/analysis", f"local://{folder}/data/analysis")
    *setup, busiest, moves = recipe.strip().removesuffix(";").split(";\n")
    for statement in setup:
        trino.rows(statement)
    first, second, *_ = trino.rows(busiest)
    assert first[0] == history.HOT
    assert first[1] > second[1] > 0
    assert trino.rows(moves) == [[history.DATE, pytest.approx(0.05), pytest.approx(1 / 6)]]
    (day,) = folder.glob(f"data/analysis/*/tables/moves/date={history.DATE}")
    (day / "_ab12cd34").mkdir()
    (day / "_ab12cd34/table.parquet").write_bytes(b"half a file")
    assert len(trino.rows(moves)) == 1


def test_the_hadoop_of_the_guide_is_sparks() -> None:
    """Another hadoop-aws fails with a class that is missing."""
    pyspark = pytest.importorskip("pyspark")
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    versions = re.findall(r"hadoop-aws:([0-9.]+)", GUIDE.read_text())
    assert versions == [jar.stem.removeprefix("hadoop-client-api-")]
