"""`loadmanager store`, as a process of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_ports

from loadmanager.cli import main


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_store_alone_serves_until_a_signal(host: str, tmp_path: Path) -> None:
    """It answers as a ZooKeeper does, keeps its data in the folder, and ends in order."""
    port = free_ports(1)
    words = ["store", "--listen", f"{host}:{port}", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "loadmanager", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert f"zk:{host}:{port}" in process.stderr.readline()
        with socket.create_connection((host.strip("[]"), port)) as client:
            client.sendall(b"ruok")
            assert client.recv(4) == b"imok"
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    assert list((tmp_path / "store").iterdir())


@pytest.mark.parametrize("place", ["2181", "here:", "127.0.0.1:99999", "127.0.0.1:0"])
def test_a_place_that_is_none_is_refused(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything starts."""
    assert main(["store", "--listen", place, "--data-dir", str(tmp_path)]) == 2
    assert "--listen" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
