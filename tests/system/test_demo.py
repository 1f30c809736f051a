"""The demo as a newcomer runs it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys

import psutil
import pytest
from ports import free_ports

pytestmark = [pytest.mark.system, pytest.mark.client]


def test_it_runs_and_leaves_nothing_behind() -> None:
    """The URL, the first split and what to look at; then no process and no folder is left."""
    first = free_ports(7)
    command = [sys.executable, "-m", "loadmanager", "demo", "--seconds", "12"]
    command += ["--pulsar-port", str(first), "--http-port", str(first + 3)]
    command += ["--zookeeper-port", str(first + 6)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"http://127.0.0.1:{first + 3}/ui" in result.stdout
    assert re.search(r"0:\d\d  Splits: demo/shop 0x00000000…ffffffff", result.stdout)
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
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert result.returncode == 1
    assert f"port {first + 4}: Address already in use; is another cluster" in result.stderr
    assert "start" not in result.stdout
