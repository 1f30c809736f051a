"""The analysis in this process, on an object store and on HDFS; retention on a disk, too."""

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
from nightly.shared import Shared, on_disk, on_hdfs, on_s3

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
KILLED_REMOVAL = """
import os, signal, sys
from bench import _history as history
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.forgetting import forget

class Files:
    def __init__(self, files):
        self._files = files
        self._left = int(sys.argv[4])

    def __getattr__(self, name):
        return getattr(self._files, name)

    def rm(self, path, recursive=False):
        self._left -= sys.argv[3] in path
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._files.rm(path, recursive=recursive)

source, days = HistorySource(sys.argv[1]), AnalysedDays(sys.argv[2], history.CLUSTER)
source.files = days.files = Files(days.files)
forget(days, source, history.DATE, 3)
"""
OLD = history.layout.day_of(history.START_MS - 4 * DAY_MS)
THREE_DAYS = "loadManagerHistoryMaxDays=3"


@pytest.fixture(params=[on_s3, on_hdfs])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """An empty one."""
    with request.param(tmp_path, request) as store:
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


@pytest.fixture(params=[on_disk, on_s3, on_hdfs])
def three_days_left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """A store with a day that is too old, and one that is not, recorded and analysed."""
    for date in (OLD, history.DATE):
        shift = (history.layout.day_start_ms(date) - history.START_MS) / history.MINUTE_MS
        minutes = [shift + minute for minute in range(1, 41)]
        usages = [history.broker_load(at, "b0", 0.2 + at % 9 / 20) for at in minutes]
        history.write(tmp_path / "history", "broker_load", "b0", usages, date=date)
        bundle = "t/n/0x00000000_0xffffffff"
        loads = [history.bundle_load(at, "b0", bundle, 1e6 * (1 + at % 9)) for at in minutes]
        history.write(tmp_path / "history", "bundle_load", "b0", loads, date=date)
    with request.param(tmp_path, request) as store:
        store.put(tmp_path / "history")
        for date in (OLD, history.DATE):
            run = ["-m", "loadmanager", "analyze", *store.where, "--quiet", "--no-late"]
            done = program(*run, "--date", date)
            assert done.returncode == 0, done.stderr
        yield store


def whole_or_gone(store: Shared) -> bool:
    """Whether the old day is there for whoever reads by manifests; False: nothing of it is."""
    named = store.committed(OLD)
    assert all(store.files.exists(f"{store.analysis}/{path}") for path in named)
    return bool(named)


def billed(store: Shared) -> str:
    """Why the old day has no bill; empty: it has one."""
    done = program("-m", "loadmanager", "bill", store.where[1], "--date", OLD)
    assert done.returncode == (2 if "is gone" in done.stderr else 0), done.stderr
    return done.stderr if done.returncode else ""


def test_an_old_day_goes_and_a_killed_removal_leaves_no_half(three_days_left: Shared) -> None:
    """Wherever it was killed, an old day's records and tables are whole or gone, and its history
    can be read or is said to be gone, and why. The next run finishes it; other days stay.
    """
    store = three_days_left
    _, source, _, analysis = store.where
    kept = store.committed()
    states = []
    for below, number in (
        ("/analysis/", 1),  # before anything was deleted
        ("/analysis/", 2),  # the manifest was
        ("/analysis/", 9),
        ("/history/cluster=made-up/kind=", 1),  # all but the history
        ("/history/cluster=made-up/kind=", 2),  # and a part of that
    ):
        killed = program("-c", KILLED_REMOVAL, source, analysis, below, str(number))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        states.append((whole_or_gone(store), billed(store)))
    assert [there for there, _ in states] == [True, False, False, False, False]
    assert [bool(why) for _, why in states] == [False, False, False, True, True]
    why = f"analyze deleted the days before {history.layout.day_of(history.START_MS - 3 * DAY_MS)}"
    assert all(f"{OLD} is gone: {why}" in text for _, text in states[3:])
    left = [path for path in store.files.find(store.root) if OLD in path]
    assert [path for path in left if "/history/" in path], "a part of the history"

    run = ["-m", "loadmanager", "analyze", *store.where, "--quiet", "--no-late", "--date"]
    done = program(*run, OLD)
    assert (done.returncode, f"{OLD} is gone: {why}" in done.stderr) == (4, True), done.stderr
    done = program(*run, history.DATE, "--set", THREE_DAYS)
    assert done.returncode == 0, done.stderr
    assert [path for path in store.files.find(store.root) if OLD in path] == []
    assert f"segments of the history of {OLD}" in " ".join(store.report()["removed"])
    assert len(store.committed()) == len(kept)
    assert f"{OLD} is gone: {why}" in billed(store)
    retention = json.loads(store.files.cat(f"{store.root}/history/cluster=made-up/retention.json"))
    assert retention["removing"] == []
