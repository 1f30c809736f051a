"""Two runs at once, how a session is asked for, and what executors must have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nightly.conftest import Sessions
from nightly.nightly import ON_SPARK, analyze, report

from bench import _history as history
from loadmanager.kit.spark import LOCAL, _settings
from loadmanager.kit.zookeeper.java import find_java
from loadmanager.nightly.analysed_days import AnalysedDays, Manifest
from loadmanager.nightly.compose import IN_PROCESS_BYTES, wants_spark
from loadmanager.nightly.job import ROWS_SHOWN_MAX

HOLDS = """
import sys, time
from loadmanager.nightly.analysed_days import AnalysedDays

with AnalysedDays(sys.argv[1], sys.argv[2]).alone():
    print("alone", flush=True)
    time.sleep(3600)
"""

STARTS = """
import sys
from pathlib import Path
from loadmanager.kit.spark import session

with session(master="local[1]", java=Path(sys.argv[1])):
    print("started", flush=True)
"""
INTERRUPTS = """#!/bin/sh
mkdir {once} 2>/dev/null && kill -{signal} $INTERRUPTED
exec {java} "$@"
"""


def _plain_environment() -> dict[str, str]:
    """Without what a Spark session of this process left there."""
    ours = ("SPARK_", "PYSPARK_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Children take Ctrl-C, also if a shell began the tests in its background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def day(tmp_path: Path) -> None:
    """A day that could be analysed."""
    history.write(tmp_path / "history", "broker_load", "b0", [history.broker_load(0, "b0", 0.5)])


def test_a_second_run_at_once_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it starts Spark; when the first one is killed, the way is free."""
    output = str(tmp_path / "analysis")
    first = subprocess.Popen(
        [sys.executable, "-c", HOLDS, output, history.CLUSTER], stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "alone\n"
        assert analyze(tmp_path) == 1
        assert f"another run analyses {history.CLUSTER} into " in capsys.readouterr().err
        assert not list(Path(output).rglob("*.html"))
        with AnalysedDays(output, "another").alone():
            """Another cluster may be analysed meanwhile."""
        first.send_signal(signal.SIGKILL)
        first.wait()
        with AnalysedDays(output, history.CLUSTER).alone():
            """The lock of a killed run is nobody's."""
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        (("--master", "sc://127.0.0.1:15002"), None),
        (("--spark", "spark.remote=sc://127.0.0.1:15002"), None),
        (("--spark", "spark.api.mode=connect"), None),
        ((), ("SPARK_REMOTE", "sc://127.0.0.1:15002")),
        ((), ("SPARK_API_MODE", "connect")),
        ((), ("SPARK_CONNECT_MODE_ENABLED", "1")),  # what a notebook's remote session leaves
        ((), ("PYSPARK_REMOTE_INIT_CONF_LEN", "1")),  # what spark-submit makes of --conf
    ],
)
def test_spark_connect_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    variable: tuple[str, str] | None,
) -> None:
    """However it is asked for, in a line that says what to do."""
    if variable is not None:
        monkeypatch.setenv(*variable)
    assert analyze(tmp_path, *(arguments or ON_SPARK)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "does not work over Spark Connect" in line


def test_what_is_for_spark() -> None:
    """Days that are large, and what spark-submit starts."""
    assert not wants_spark(IN_PROCESS_BYTES, {})
    assert wants_spark(IN_PROCESS_BYTES + 1, {})
    assert wants_spark(1, {"PYSPARK_GATEWAY_PORT": "1"})


def test_spark_submit_decides(tmp_path: Path) -> None:
    """Under it, the job sets only what the answers depend on."""
    submitted = _settings(None, str(tmp_path), {"spark.executor.memory": "4g"})
    assert submitted == {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.executor.memory": "4g",
    }
    given = {"spark.sql.shuffle.partitions": "7"}
    local = _settings("local[2]", str(tmp_path), given)
    assert local == local | LOCAL | given


def test_a_master_that_there_is_not(
    tmp_path: Path, sessions: Sessions, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line says which there are, without a word of Java."""
    sessions.stop()
    for arguments in (("--master", "nonsense"), ("--spark", "spark.master=nonsense")):
        assert analyze(tmp_path, *arguments) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert "--master nonsense: local[*], spark://HOST:PORT" in line


@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "status", "kill"),
    [
        (signal.SIGINT, 130, os.kill),
        (signal.SIGTERM, 143, os.kill),
        (signal.SIGTERM, 143, os.killpg),
    ],
)
def test_a_run_that_is_ended(
    tmp_path: Path, number: int, status: int, kill: Callable[[int, int], None]
) -> None:
    """By Ctrl-C or SIGTERM, which Java may have, too, whatever Spark was asked for when it came:
    without a stack, and nothing is left.
    """
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    where = ["--history", str(tmp_path / "history"), "--output", str(tmp_path / "analysis")]
    command = ["analyze", "--date", history.DATE, *where, "--master", "local[1]"]
    run = subprocess.Popen(
        [sys.executable, "-m", "loadmanager", *command],
        stderr=subprocess.PIPE,
        text=True,
        env={**_plain_environment(), "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    try:
        assert run.stderr is not None
        said = run.stderr.read(len(f"{history.DATE}: reading"))
        assert list(temporary.glob("loadmanager-analysis-*"))
        kill(run.pid, number)
        said += run.communicate()[1]
        assert run.returncode == status
        assert said.startswith(f"{history.DATE}: reading")
        assert "Traceback" not in said
        assert not list(temporary.glob("loadmanager-analysis-*"))
    finally:
        run.kill()
        run.wait()


@pytest.mark.spark
def test_what_a_killed_run_left_is_no_obstacle(
    tmp_path: Path, sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the list of a day's segments, say; figures count all rows, not those shown; and no
    name drives the terminal or turns round the page's text.
    """
    sessions.start()
    fields = {"intervalMs": 60_000, "level": "topic", "waitedMs": 50.0}
    rates = {"configuredMessagesPerS": 10.0, "configuredBytesPerS": -1.0}
    rates |= {"deliveredMessagesPerS": 10.0, "deliveredBytesPerS": 1.0}
    limits = [
        history.record({**fields, **rates, "limit": f"limit {number}"}, 1, "b0")
        for number in range(ROWS_SHOWN_MAX + 7)
    ]
    evil = {**fields, **rates, "limit": "\x1b[2J\u202ex\r", "queueLength": 3}
    limits.append(history.record(evil, 1, "b0"))
    history.write(tmp_path / "history", "throttle", "b0", limits)
    assert analyze(tmp_path) == 0
    assert r"\x1b[2J\u202ex\r held clients back" in capsys.readouterr().out
    page = (
        tmp_path / f"analysis/cluster={history.CLUSTER}/reports/{history.DATE}.html"
    ).read_text()
    assert "\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}x" in page
    assert not {"\x1b", "\u202e", "\r"} & set(page)
    assert report(tmp_path)["totals"]["limitsThatHeldClients"] == len(limits)
    records = tmp_path / f"analysis/cluster={history.CLUSTER}/records"
    (manifest,) = records.glob("*_manifest.json")
    whole = manifest.read_bytes()
    for damaged in (b"", whole[:30], b'{"seen": [[1]]}'):
        manifest.write_bytes(damaged)
        assert analyze(tmp_path, date="2026-11-21") == 4
        assert f"{history.DATE}: {len(limits) + 1} records" in capsys.readouterr().out
        again, before = json.loads(manifest.read_bytes()), json.loads(whole)
        assert (again["seen"], again["rows"]) == (before["seen"], before["rows"])


def test_records_of_an_earlier_run_go(tmp_path: Path) -> None:
    """Where a day has no line of a kind any more."""
    days = AnalysedDays(str(tmp_path), history.CLUSTER)
    root = tmp_path / f"cluster={history.CLUSTER}"
    folder = root / f"records/kind=throttle/date={history.DATE}"
    folder.mkdir(parents=True)
    (folder / "part.parquet").write_bytes(b"")
    assert days.stored("records", "throttle", history.DATE) is None, "no run has committed it"
    days.commit(history.DATE, Manifest(files=[str((folder / "part.parquet").relative_to(root))]))
    stored = days.stored("records", "throttle", history.DATE)
    assert stored is not None
    part = f"{folder}/part.parquet"
    assert (stored.spark_urls, stored.paths) == ([f"file://{part}"], [part])
    for _ in range(2):
        days.commit(history.DATE, Manifest(files=[]))
        assert folder.parent.exists()
        assert not folder.exists()


def test_executors_without_pyarrow(
    tmp_path: Path,
    sessions: Sessions,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error says what they need, and neither Java nor Spark says anything else."""
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\")")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    sessions.stop()
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    assert analyze(tmp_path, *ON_SPARK) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "No module named 'pyarrow'; every executor needs Python with pyarrow" in line


@pytest.mark.parametrize(
    ("name", "status", "last"), [("INT", -signal.SIGINT, "KeyboardInterrupt\n"), ("TERM", 143, "")]
)
def test_a_start_that_is_ended_leaves_no_java_behind(
    tmp_path: Path, name: str, status: int, last: str
) -> None:
    """The Java that interrupts its Python holds the pipe that is read here: it ends, too."""
    java = tmp_path / "java"
    java.write_text(INTERRUPTS.format(once=tmp_path / "once", signal=name, java=find_java()))
    java.chmod(0o755)
    shell = 'INTERRUPTED=$$ exec "$@"'
    words = ["sh", "-c", shell, "sh", sys.executable, "-c", STARTS, str(java)]
    started = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_plain_environment(),
        start_new_session=True,
    )
    try:
        out, error = started.communicate(timeout=600)
    except BaseException:
        os.killpg(started.pid, signal.SIGKILL)
        raise
    assert (tmp_path / "once").exists()
    assert (out, "Traceback" in error, started.returncode) == ("", bool(last), status)
    assert error.endswith(last)
