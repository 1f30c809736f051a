"""Signals that come before a command has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

PROGRAM = """
import os, signal, sys

class Signalling:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{number})
        return None

signal.signal(signal.{number}, signal.{before})
sys.meta_path.insert(0, Signalling())
sys.argv = ["loadmanager", *{words!r}]
from loadmanager.__main__ import main
sys.exit(main())
"""
"""The program, to which a signal comes when it begins to import a module."""


def _run(module: str, number: str, before: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-c"),
            PROGRAM.format(module=module, number=number, before=before, words=words),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    "module",
    [
        "_ctypes",
        "loadmanager.kit",
        "loadmanager.kit.system.first_signals",
        "loadmanager.cli",
        "click",
        "loadmanager.cli.options",
        "loadmanager.cli.tokens",
        "jwt",
    ],
)
def test_ctrl_c_during_imports(module: str) -> None:
    """Ends a command without a word, as later; where it is ignored it stays so."""
    words = ("tokens", "create-key", "--help")
    done = _run(module, "SIGINT", "default_int_handler", *words)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")
    ignored = _run(module, "SIGINT", "SIG_IGN", *words)
    assert (ignored.returncode, ignored.stderr) == (0, "")
    assert "Make a secret key" in ignored.stdout


def test_little_is_imported_before_ctrl_c_is_taken() -> None:
    """Python's own start, before it, is not ours."""
    program = (
        "import enum, re, sys\n"
        "before = set(sys.modules)\n"
        "import loadmanager.__main__\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "loadmanager.__main__" in imported
    assert not imported & {"typing", "threading", "ctypes", "loadmanager.kit", "click"}


@pytest.mark.parametrize("module", ["loadmanager.cli", "loadmanager.cli.broker", "click"])
def test_a_hangup_during_imports(module: str) -> None:
    """Does not end a broker: it means "read broker.conf again", which is yet to be read."""
    done = _run(module, "SIGHUP", "SIG_DFL", "broker", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Run one broker" in done.stdout
    other = _run(module.replace("broker", "config"), "SIGHUP", "SIG_DFL", "config", "--help")
    assert other.returncode == -signal.SIGHUP


@pytest.mark.parametrize(("before", "status"), [("SIG_DFL", -signal.SIGHUP), ("SIG_IGN", 0)])
def test_a_hangup_of_a_broker_without_a_file(before: str, status: int) -> None:
    """Does again what it did before, once it is clear that there is nothing to read again."""
    program = (
        "import os, signal\n"
        "from loadmanager.kit.system.first_signals import hangup_as_before, ignore_hangup\n"
        f"signal.signal(signal.SIGHUP, signal.{before})\n"
        "ignore_hangup()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('goes on', flush=True)\n"
        "hangup_as_before()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env=os.environ,
    )
    assert (done.returncode, done.stdout) == (status, b"goes on\n")


@pytest.mark.parametrize("before", ["SIG_DFL", "SIG_IGN"])
def test_a_terminal_that_is_closed_stops_a_service_in_order(before: str, tmp_path: Path) -> None:
    """SIGHUP is as SIGTERM, unless it is ignored, as with `nohup`."""
    words = ("store", "--listen", f"127.0.0.1:{free_port()}", "--data-dir", str(tmp_path))
    program = (
        "import signal, sys\n"
        f"signal.signal(signal.SIGHUP, signal.{before})\n"
        "from loadmanager.__main__ import main\n"
        f"sys.argv = ['loadmanager', *{words}]\n"
        "sys.exit(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert "the embedded store serves" in running.stdout.readline()
        running.send_signal(signal.SIGHUP)
        if before == "SIG_IGN":
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(2)
            running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 0
