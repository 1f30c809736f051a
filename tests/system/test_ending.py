"""SIGTERM ends a service in every phase of its start; so does the end of its parent, if asked."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from clusters.standalone import wait_for
from ports import free_ports

pytestmark = pytest.mark.system

LOADMANAGER = [sys.executable, "-m", "loadmanager"]
LONG_S = 60.0
UNSHARE = shutil.which("unshare")


@contextmanager
def started(
    command: Sequence[str], folder: Path, **options: object
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process and its log; it is killed at the end, with its children."""
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, **options)  # type: ignore[call-overload]
    try:
        yield process, log
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.wait()


def waits_for_a_pipe(pid: int) -> None:
    """Wait until the process opens a pipe to read it: it will wait there for ever."""
    wchan = Path(f"/proc/{pid}/wchan")

    def waits() -> bool:
        found = wchan.read_text()
        return "fifo" in found or "wait_for_partner" in found

    wait_for(waits, "it opens the pipe", LONG_S)


def broker(port: int, store: str, *more: str) -> list[str]:
    """The command of a broker."""
    settings = {
        "metadataStoreUrl": store,
        "advertisedAddress": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "brokerServicePort": str(port),
        "webServicePort": str(port + 1),
    }
    given = [word for key, text in settings.items() for word in ("--set", f"{key}={text}")]
    return [*LOADMANAGER, "broker", *more, "--log-format", "json", *given]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe that nobody writes into."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a ZooKeeper that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"zk:127.0.0.1:{listening.getsockname()[1]}"


def deaf() -> None:
    """As a parent that ignores and blocks the signal leaves it to its children."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


@pytest.mark.parametrize("service", ["broker", "standalone", "fleet"])
@pytest.mark.parametrize("parent", [None, deaf])
def test_before_the_loop_runs(tmp_path: Path, pipe: Path, service: str, parent: object) -> None:
    """The file with the settings does not answer; also if a parent had blocked the signal."""
    command = [*LOADMANAGER, service, "--config", str(pipe)]
    with started(command, tmp_path, preexec_fn=parent) as (process, _):
        waits_for_a_pipe(process.pid)
        process.terminate()
        assert process.wait(LONG_S) == -signal.SIGTERM


def test_during_imports(tmp_path: Path, pipe: Path) -> None:
    """A plug-in whose import does not end."""
    metadata = tmp_path / "hangs-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hangs\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[loadmanager.shedders]\nX = hangs:X\n")
    (tmp_path / "hangs.py").write_text(f"open({str(pipe)!r})\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = broker(free_ports(2), "zk:127.0.0.1:1")
    with started(command, tmp_path, env=environment) as (process, _):
        waits_for_a_pipe(process.pid)
        process.terminate()
        assert process.wait(LONG_S) == -signal.SIGTERM


def test_at_any_moment_after_its_exec(tmp_path: Path, silent: str) -> None:
    """Before its first line, during its imports, and while it waits for ZooKeeper."""
    moments_s = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 1.5)
    first = free_ports(2 * len(moments_s))
    for number, after_s in enumerate(moments_s):
        folder = tmp_path / str(number)
        folder.mkdir()
        with started(broker(first + 2 * number, silent), folder) as (process, log):
            time.sleep(after_s)
            process.terminate()
            status = process.wait(LONG_S)
            assert status in (-signal.SIGTERM, 0), (after_s, status, log.read_text())
            assert "Traceback" not in log.read_text(), (after_s, log.read_text())


def test_as_the_first_process_of_a_container(tmp_path: Path, pipe: Path) -> None:
    """The kernel ends such a process only if it has a handler."""
    tried = UNSHARE and subprocess.run(
        [UNSHARE, "-pf", "true"], timeout=LONG_S, check=False, capture_output=True
    )
    if not tried or tried.returncode:
        pytest.skip("no processes of their own here")
    command = [str(UNSHARE), "-pf", "--kill-child", *LOADMANAGER, "broker", "--config", str(pipe)]
    with started(command, tmp_path) as (process, _):
        wait_for(lambda: psutil.Process(process.pid).children(), "it starts", LONG_S)
        child = psutil.Process(process.pid).children()[0]
        waits_for_a_pipe(child.pid)
        child.terminate()
        assert process.wait(LONG_S) == signal.SIGTERM


def test_while_zookeeper_is_away(tmp_path: Path, silent: str) -> None:
    """A broker that waits for its session stops in order. It has said what of its settings does
    nothing, and why.
    """
    sets = ("metadataStoreOperationTimeoutSeconds=600", "loadManagerMigrationEnabled=true")
    command = broker(free_ports(2), silent, *(word for text in sets for word in ("--set", text)))
    with started(command, tmp_path) as (process, log):
        wait_for(lambda: _connected(process), "it connects", LONG_S)
        process.terminate()
        assert process.wait(LONG_S) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
        assert "brokers with both managers always get on" in log.read_text()


def _connected(process: subprocess.Popen[bytes]) -> bool:
    found = psutil.Process(process.pid).net_connections("tcp4")
    return any(one.status == psutil.CONN_ESTABLISHED for one in found)


def test_while_a_file_system_call_blocks_the_loop(tmp_path: Path) -> None:
    """The daemon reads a file that does not answer; the thread of the signals ends it."""
    folder = tmp_path / "data" / "default"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "wishes.json")
    command = [*LOADMANAGER, "fleet", "--pulsar", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(tmp_path / "data")]
    with started(command, tmp_path) as (process, log):
        waits_for_a_pipe(process.pid)
        process.terminate()
        assert process.wait(LONG_S) == 128 + signal.SIGTERM
        assert "did not end in order" in log.read_text()


@pytest.mark.parametrize("sign", ["standalone.lock", "store/tree.sqlite", "history"])
def test_a_cluster_that_starts(tmp_path: Path, sign: str) -> None:
    """Before and while its store and its broker start; nothing of it is left."""
    first = free_ports(3)
    command = [*LOADMANAGER, "standalone", "--brokers", "1", "--data-dir", str(tmp_path / "data")]
    for number, option in enumerate(("--pulsar-port", "--http-port", "--zookeeper-port")):
        command += [option, str(first + number)]
    with started(command, tmp_path) as (process, log):
        wait_for((tmp_path / "data" / sign).exists, sign, LONG_S)
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        assert process.wait(LONG_S) in (0, -signal.SIGTERM), log.read_text()
        assert "Traceback" not in log.read_text()
    _, alive = psutil.wait_procs(children, LONG_S)
    assert alive == []


def test_a_signal_that_comes_twice_at_once_is_one(tmp_path: Path) -> None:
    """`timeout` and service managers signal a process and its group: the broker stops in order."""
    first = free_ports(3)
    command = [*LOADMANAGER, "standalone", "--brokers", "1", "--data-dir", str(tmp_path / "data")]
    for number, option in enumerate(("--pulsar-port", "--http-port", "--zookeeper-port")):
        command += [option, str(first + number)]
    with started(command, tmp_path, start_new_session=True) as (process, log):
        wait_for(lambda: '"event": "ready"' in log.read_text(), "it is ready", LONG_S)
        for number in (signal.SIGTERM, signal.SIGINT):  # two of one kind may become one
            os.killpg(process.pid, number)
        assert process.wait(LONG_S) == 0, log.read_text()
        assert '"event": "stopped"' in log.read_text()
        assert "did not end in order" not in log.read_text()


SIGNALS = """
import asyncio, os, signal, sys
from loadmanager.kit.system.ending import Ending

async def main(ending, wanted):
    heard = []
    ending.listen(lambda: heard.append(1))
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
        while signal.sigpending() or not heard:
            await asyncio.sleep(0.001)
    while len(heard) < wanted:
        await asyncio.sleep(0.001)
    return len(heard)

with Ending(lambda: 3600.0, same_s=float(sys.argv[1])) as ending:
    print(asyncio.run(main(ending, int(sys.argv[2]))), flush=True)
"""


@pytest.mark.parametrize(("same_s", "heard"), [(3600.0, 1), (0.0, 2)])
def test_a_later_signal_is_heard(same_s: float, heard: int) -> None:
    """Whoever presses Ctrl-C again after a moment wants it at once; a copy wants nothing new."""
    command = [sys.executable, "-c", SIGNALS, str(same_s), str(heard)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=True)
    assert done.stdout.split() == [str(heard)]


PARENT = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_parent_that_ends_ends_a_broker_that_hangs(tmp_path: Path, pipe: Path) -> None:
    """With `--stop-with-parent`, also before the broker has read its settings."""
    command = [*LOADMANAGER, "broker", "--config", str(pipe), "--stop-with-parent"]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *command], stdout=subprocess.PIPE, cwd=tmp_path
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    waits_for_a_pipe(child.pid)
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs([child], LONG_S)
    assert alive == []


def test_a_parent_that_has_ended_already(tmp_path: Path, pipe: Path) -> None:
    """The broker is told who its parent was, and that is another process now."""
    command = [*LOADMANAGER, "broker", "--config", str(pipe), "--stop-with-parent"]
    environment = {**os.environ, "LOADMANAGER_PARENT": "999999999"}
    with started(command, tmp_path, env=environment) as (process, _):
        assert process.wait(LONG_S) == -signal.SIGTERM


HANGS = """
import asyncio, sys, threading, time
from loadmanager.kit.system.ending import Ending

async def run(ending):
    told = asyncio.Event()
    ending.listen(told.set)
    if sys.argv[1] == "thread":
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    print("begun", flush=True)
    if sys.argv[1] == "loop":
        time.sleep(600)
    await told.wait()
    print("told", flush=True)

with Ending(lambda: float(sys.argv[2]), answer_s=float(sys.argv[3])) as ending:
    asyncio.run(run(ending))
print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("hangs", "limits_s", "signals", "status", "said"),
    [
        ("nothing", (600, 600), 1, 0, ["told", "ended"]),
        ("loop", (600, 1), 1, 143, []),
        ("loop", (600, 1), 2, 143, []),
        ("thread", (5, 600), 1, 143, ["told"]),
    ],
)
def test_what_hangs_is_ended(
    hangs: str, limits_s: tuple[int, int], signals: int, status: int, said: list[str]
) -> None:
    """A loop that stands still, and a thread that keeps an orderly end from being complete."""
    command = [sys.executable, "-c", HANGS, hangs, *map(str, limits_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    for _ in range(signals):
        process.terminate()
        time.sleep(0.05)
    output, _ = process.communicate(timeout=LONG_S)
    assert process.returncode == status
    assert [line for line in output.splitlines() if line in ("told", "ended")] == said
