"""The analysis in this process, on an object store and on HDFS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nightly.shared import Shared, on_hdfs, on_s3

from bench import _history as history
from loadmanager.kit.units import DAY_MS

pytestmark = pytest.mark.timeout(600)
KILLED = """
import os, signal, sys
from types import SimpleNamespace
from bench import _history as history
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.in_process import InProcess
from loadmanager.nightly.job import QUESTIONS, Job

kills = SimpleNamespace(NAME="kills", table=lambda _day: os.kill(os.getpid(), signal.SIGKILL))
days = AnalysedDays(sys.argv[2], history.CLUSTER)
source = HistorySource(sys.argv[1])
questions = (*QUESTIONS, kills)
job = Job(InProcess(), source, days, settings=StrategySettings(), questions=questions)
job.run(history.DATE)
"""


@pytest.fixture(params=[on_s3, on_hdfs])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """An empty one."""
    with request.param(tmp_path) as store:
        yield store


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python, which knows the store."""
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def loads(paths: list[str]) -> list[str]:
    """Those with the day's records of brokers' loads."""
    return [path for path in paths if f"/kind=broker_load/date={history.DATE}/" in path]


def test_a_killed_run_and_an_old_day(store: Shared, tmp_path: Path) -> None:
    """What the killed one left is read by nobody, and goes; an old day is compacted."""
    later = history.layout.day_of(history.START_MS + 4 * DAY_MS)
    history.designed(tmp_path / "history")
    load = json.loads(history.broker_load(0, "b0", 0.5))
    load["ts"] += 4 * DAY_MS
    history.write(tmp_path / "history", "broker_load", "b0", [json.dumps(load)], date=later)
    store.put(tmp_path / "history")
    run = ["-m", "loadmanager", "analyze", *store.where, "--quiet", "--date"]
    done = program(*run, history.DATE)
    assert done.returncode == 0, done.stderr
    before = loads(store.committed())
    assert loads(store.stored()) == before
    _, source, _, analysis = store.where
    assert program("-c", KILLED, source, analysis).returncode == -signal.SIGKILL
    assert loads(store.committed()) == before
    assert len(loads(store.stored())) == 2 * len(before), "and what it left"
    assert program(*run, history.DATE).returncode == 0
    again = loads(store.committed())
    assert loads(store.stored()) == again
    assert not set(before) & set(again)
    done = program(*run, later)
    assert done.returncode == 0, done.stderr
    (merged,) = loads(store.committed())
    assert loads(store.stored()) == [merged]
    assert merged not in again
    with store.files.open(f"{store.analysis}/{merged}", "rb") as file:
        assert pq.read_table(file).num_rows == 4900
