"""The service manager is told that a process is ready, and that its event loop turns."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from loadmanager.kit.system.notify import NotifySocket, watchdog_interval_s

_PROGRAM = """
import asyncio
from loadmanager.kit.system.notify import keep_notifying, notify

async def main():
    notify("READY=1")
    await asyncio.wait_for(keep_notifying(), 60)

asyncio.run(main())
"""


async def test_a_process_tells_that_it_is_ready_and_works(tmp_path: Path) -> None:
    """Through the socket in its environment, again and again while systemd watches it."""
    with NotifySocket(tmp_path / "notify") as manager:
        variables = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "300000"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, env={**os.environ, **variables}
        )
        try:
            loop = asyncio.get_running_loop()
            said = [await loop.sock_recv(manager._socket, 1024) for _ in range(4)]
        finally:
            process.kill()
            await process.wait()
    assert said == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"WATCHDOG=1"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "90000000"}, 30.0),
        ({"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_only_the_watched_process_notifies(
    variables: dict[str, str], expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of a watched process has its variables, and is not watched; nonsense is ignored."""
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert watchdog_interval_s() == expected
