"""A broker as a child process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.system.parent import PARENT


class BrokerProcess:
    """`loadmanager broker` with these settings; it reports to the socket `notify` when it is ready.

    It stops when our process ends. Everybody on the machine can read `settings`; secrets are in
    the file `config`.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, str],
        *,
        config: Path | None,
        notify: Path,
        log_format: str | None,
        stop_timeout_s: float,
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "loadmanager", "broker", "--stop-with-parent"]
        if config is not None:
            self._command += ["--config", str(config)]
        for key, text in settings.items():
            self._command += ["--set", f"{key}={text}"]
        if log_format:
            self._command += ["--log-format", log_format]
        self._notify = notify
        self._stop_timeout_s = stop_timeout_s
        self._process: asyncio.subprocess.Process | None = None

    async def start_again(self) -> None:
        """Start it, after it has ended or for the first time. Raises `OperationalError`."""
        try:
            # A session of its own: Ctrl-C in the terminal reaches only our process, which then
            # stops the brokers.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, "NOTIFY_SOCKET": str(self._notify), PARENT: str(os.getpid())},
                start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise OperationalError(f"{self.name} cannot be started: {error}") from None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def ended(self) -> int:
        """Wait until it has ended; returns its exit status, −N after signal N."""
        assert self._process is not None, "it was started"
        return await self._process.wait()

    def how_it_ended(self) -> str:
        """For people. A killed process had no time to log the reason."""
        status = 0 if self._process is None else self._process.returncode or 0
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}" + ("; its log lines above say why" if status else "")

    async def stop(self) -> None:
        """Stop it, if it runs; kill it if that takes longer than the timeout."""
        if self._process is None or not self.running:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(self._stop_timeout_s):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None and self.running:
            self._process.kill()
