"""The embedded store in a process of its own, which a test may kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

READY_S = 120.0
_SCRIPT = """
import asyncio, resource, sys
from pathlib import Path
from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))  # as most systems have it

async def main():
    async with EmbeddedStore(port=int(sys.argv[1]), data_dir=Path(sys.argv[2])) as store:
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


class StoreProcess:
    """A server on `port` with the file in `folder`; ends with our process."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self.folder = folder
        self.log = folder.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """True if the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def process(self) -> psutil.Process:
        """The process that runs."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SCRIPT, str(self.port), str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        until_s = time.monotonic() + READY_S
        while self.word(b"ruok") != b"imok":
            assert self.running, self.log.read_text()
            assert time.monotonic() < until_s, self.log.read_text()
            time.sleep(0.02)

    def word(self, word: bytes) -> bytes:
        """The answer to a four-letter word; empty if there is none."""
        parts = []
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as asking:
                asking.sendall(word)
                while part := asking.recv(65536):
                    parts.append(part)
        except OSError:
            return b""
        return b"".join(parts)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it cleanly, if it runs."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._end(signal.SIGKILL)
                raise

    def _end(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
        self._process.wait(60)
        if self._process.stdin is not None:
            self._process.stdin.close()
