"""The demo as a newcomer runs it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from clusters.standalone import wait_for
from ports import free_ports

pytestmark = [pytest.mark.system, pytest.mark.client]

SPLIT = re.compile(r"\d:\d\d  Splits: demo/shop 0x00000000…ffffffff")


def test_it_runs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The URL, the first split and what to look at; then no process and no folder is left."""
    first = free_ports(7)
    command = [sys.executable, "-m", "loadmanager", "demo"]
    command += ["--pulsar-port", str(first), "--http-port", str(first + 3)]
    command += ["--zookeeper-port", str(first + 6)]
    log = tmp_path / "log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as demo:
        try:
            wait_for(
                lambda: SPLIT.search(log.read_text()) or demo.poll() is not None, "a split", 240
            )
            demo.terminate()
            assert demo.wait(120) == 0, log.read_text()
        finally:
            demo.kill()
    assert SPLIT.search(log.read_text()), log.read_text()
    assert f"http://127.0.0.1:{first + 3}/ui" in log.read_text()
    left = [
        process
        for process in psutil.process_iter(["cmdline"])
        if f"webServicePort={first + 3}" in (process.info["cmdline"] or ())
    ]
    assert not left


def test_it_takes_no_running_cluster_for_its_own() -> None:
    """A port that is in use is said before anything is started or written."""
    first = free_ports(7)
    command = [sys.executable, "-m", "loadmanager", "demo", "--pulsar-port", str(first)]
    command += ["--http-port", str(first + 3), "--zookeeper-port", str(first + 6)]
    with socket.create_server(("127.0.0.1", first + 4)):
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 1
    assert f"port {first + 4}: Address already in use; is another cluster" in result.stderr
    assert "start" not in result.stdout
