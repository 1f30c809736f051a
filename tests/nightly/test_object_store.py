"""The analysis on an object store: moto's S3, where this machine has it and s3fs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from nightly.object_store import an_object_store

from bench import _history as history
from loadmanager.kit.units import DAY_MS

pytest.importorskip("s3fs", reason="no s3fs here")
SERVER = shutil.which("moto_server")
pytestmark = [
    pytest.mark.skipif(SERVER is None, reason="no moto_server on the PATH"),
    pytest.mark.timeout(600),
]
ROOT = f"bucket/analysis/cluster={history.CLUSTER}"
KILLED = """
import os, signal
from types import SimpleNamespace
from bench import _history as history
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.in_process import InProcess
from loadmanager.nightly.job import QUESTIONS, Job

kills = SimpleNamespace(NAME="kills", table=lambda _day: os.kill(os.getpid(), signal.SIGKILL))
days = AnalysedDays("s3://bucket/analysis", history.CLUSTER)
source = HistorySource("s3://bucket/history")
questions = (*QUESTIONS, kills)
job = Job(InProcess(), source, days, settings=StrategySettings(), questions=questions)
job.run(history.DATE)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """An empty bucket."""
    with an_object_store(tmp_path) as (files, _):
        yield files


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python, which knows the store."""
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def named(files: Any) -> list[str]:
    """The records of brokers' loads that the manifest names."""
    document = json.loads(files.cat(f"{ROOT}/records/date={history.DATE}_manifest.json"))
    return [path for path in document["files"] if "/kind=broker_load/" in path]


def listed(files: Any) -> list[str]:
    """Those in the day's folder, also of runs that were killed."""
    folder = f"{ROOT}/records/kind=broker_load/date={history.DATE}"
    return sorted(path.removeprefix(f"{ROOT}/") for path in files.find(folder))


def test_a_killed_run_and_an_old_day(store: Any, tmp_path: Path) -> None:
    """What the killed one left is read by nobody, and goes; an old day is compacted."""
    later = history.layout.day_of(history.START_MS + 4 * DAY_MS)
    history.designed(tmp_path / "history")
    load = json.loads(history.broker_load(0, "b0", 0.5))
    load["ts"] += 4 * DAY_MS
    history.write(tmp_path / "history", "broker_load", "b0", [json.dumps(load)], date=later)
    store.put(str(tmp_path / "history"), "bucket/history", recursive=True)
    where = ["--history", "s3://bucket/history", "--output", "s3://bucket/analysis", "--quiet"]
    run = ["-m", "loadmanager", "analyze", *where, "--date"]
    done = program(*run, history.DATE)
    assert done.returncode == 0, done.stderr
    before = named(store)
    assert listed(store) == before
    assert program("-c", KILLED).returncode == -signal.SIGKILL
    assert named(store) == before
    assert len(listed(store)) == 2 * len(before), "and what it left"
    assert program(*run, history.DATE).returncode == 0
    again = named(store)
    assert listed(store) == again
    assert not set(before) & set(again)
    done = program(*run, later)
    assert done.returncode == 0, done.stderr
    (merged,) = named(store)
    assert listed(store) == [merged]
    assert merged not in again
    with store.open(f"{ROOT}/{merged}", "rb") as file:
        assert pq.read_table(file).num_rows == 4900
