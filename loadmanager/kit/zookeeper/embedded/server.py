"""The embedded store, as an asynchronous context manager that a supervisor can start again."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import structlog

from loadmanager.kit.addresses import bracketed
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.free_port import family_of, not_bound
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.tasks import Scope
from loadmanager.kit.zookeeper.embedded.serving import StoreServing, serve

STATUS_FAILED = 1
IN_USE = "is another store running? Choose another port"

log = structlog.get_logger("store")


class EmbeddedStore:
    """One server on loopback; a `kit.supervisor:Child`.

    Without `data_dir` the data are temporary. Entering raises `OperationalError`: the port is
    taken, or the file cannot be opened.
    """

    def __init__(
        self, *, port: int = 0, data_dir: Path | None = None, host: str = "127.0.0.1"
    ) -> None:
        """Port 0 stands for any free one."""
        self.name = "the embedded store"
        self.title = "the embedded store, for one machine"
        self.host = host
        self.port = port
        self._data_dir = data_dir
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._scope = Scope("embedded store")
        self._serving: StoreServing | None = None

    @property
    def url(self) -> str:
        """The value for `metadataStoreUrl`."""
        return f"zk:{bracketed(self.host)}:{self.port}"

    async def __aenter__(self) -> EmbeddedStore:
        """Serve."""
        await self._scope.__aenter__()
        try:
            await self.start_again()
        except BaseException:
            await self.__aexit__()
            raise
        log.info(
            "the embedded store serves; it is for one machine: production has an ensemble of "
            "ZooKeeper",
            url=self.url,
            file=str(self._data_dir),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop. What was answered is on the disk."""
        if self._serving is not None:
            await self._serving.stop()
        self._scope.cancel()
        await self._scope.__aexit__(None, None, None)
        if self._temporary is not None:
            self._temporary.cleanup()

    async def start_again(self) -> None:
        """Serve what the file has. Raises `OperationalError`."""
        if self._serving is not None:
            await self._serving.stop()
            self._serving = None
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="store-")
            self._data_dir = Path(self._temporary.name)
        sock = _bound(self.host, self.port)
        try:
            self._serving = await serve(self._scope, SystemClock(), self._data_dir, sock)
        except BaseException:
            sock.close()
            raise
        self.port = sock.getsockname()[1]

    async def ended(self) -> int:
        """Wait until it cannot serve any more; returns a status as of a process."""
        assert self._serving is not None, "it was started"
        await self._serving.ended.wait()
        return STATUS_FAILED

    def how_it_ended(self) -> str:
        """For people."""
        reason = self._serving.reason if self._serving is not None else "it was not started"
        return f"ended: {reason}"


def _bound(host: str, port: int) -> socket.socket:
    sock = socket.socket(family_of(host))
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OperationalError(not_bound(host, port, error, IN_USE)) from None
    return sock
