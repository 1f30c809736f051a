"""A pytest plugin that has kazoo's own tests use the embedded store instead of Java servers."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kit.zookeeper.store_process import StoreProcess
from ports import free_port


class Server(StoreProcess):
    """What kazoo's tests call a `ManagedZooKeeper`."""

    def __init__(self) -> None:
        super().__init__(free_port(), Path(tempfile.mkdtemp(prefix="kazoo-"), "store"))
        self.address = f"127.0.0.1:{self.port}"
        self.client_port = self.port

    def run(self) -> None:
        """Start it, if it does not run."""
        if not self.running:
            self.start()

    def destroy(self) -> None:
        """Stop it, and delete its file."""
        self.stop()
        shutil.rmtree(self.folder.parent, ignore_errors=True)


class Cluster:
    """What they call a `ZookeeperCluster`: one server, kept for all tests."""

    def __init__(self, **_: Any) -> None:
        self._servers = [Server()]

    def __getitem__(self, index: int) -> Server:
        return self._servers[index]

    def __iter__(self) -> Any:
        return iter(self._servers)

    def start(self) -> None:
        for server in self._servers:
            server.run()

    def terminate(self) -> None:
        """Called after each class; the server goes on."""

    def get_logs(self) -> list[str]:
        return [server.log.read_text()[-2000:] for server in self._servers if server.log.exists()]


def pytest_configure(config: Any) -> None:
    """Before kazoo's tests are imported."""
    config.addinivalue_line("filterwarnings", "default")
    common = ModuleType("kazoo.testing.common")
    common.ZookeeperCluster = Cluster  # type: ignore[attr-defined]
    common.ManagedZooKeeper = Server  # type: ignore[attr-defined]
    sys.modules["kazoo.testing.common"] = common


def pytest_unconfigure(config: Any) -> None:
    """Stop the server."""
    harness = sys.modules.get("kazoo.testing.harness")
    if harness is not None and harness.CLUSTER is not None:
        for server in harness.CLUSTER:
            server.destroy()
