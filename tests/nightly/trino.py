"""A Trino server that is started for a test: one node on loopback, with a metastore of files and
the file system of the machine.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ports import free_port

READY_TIMEOUT_S = 300.0
CATALOGUE = """connector.name=hive
hive.metastore=file
hive.metastore.catalog.dir=local:///{metastore}
hive.storage-format=PARQUET
hive.non-managed-table-writes-enabled=true
fs.native-local.enabled=true
local.location=/
"""
CONFIG = """coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
node.bind-ip=127.0.0.1
node.internal-address=127.0.0.1
discovery.uri=http://127.0.0.1:{port}
node.environment=test
plugin.dir={plugins}
catalog.config-dir={catalogues}
"""
HEAP = ("-Xmx1500m", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m")


class Trino:
    """Answers statements. Raises `AssertionError` with what the server says of a wrong one."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        """It has started, and its one node works for the catalogue."""
        try:
            with urllib.request.urlopen(f"{self._url}/v1/info", timeout=10) as answer:
                if json.load(answer)["starting"]:
                    return False
            self.rows("CREATE SCHEMA IF NOT EXISTS hive.ready")
            self.rows("CREATE TABLE IF NOT EXISTS hive.ready.one AS SELECT 1 AS one")
        except (OSError, json.JSONDecodeError, AssertionError):
            return False
        return True

    def rows(self, sql: str) -> list[Any]:
        """The rows that a statement brings."""
        request = urllib.request.Request(
            f"{self._url}/v1/statement", sql.encode(), {"X-Trino-User": "test"}, method="POST"
        )
        rows: list[Any] = []
        while True:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.load(response)
            assert "error" not in answer, answer["error"]["message"]
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            request = urllib.request.Request(answer["nextUri"])
            time.sleep(0.05)


@contextmanager
def a_trino(server: Path, java: Path, folder: Path) -> Iterator[Trino]:
    """One that is ready, of an unpacked distribution and a Java that is new enough for it."""
    home, port = folder / "trino", free_port()
    for part in ("catalogues", "plugins", "metastore"):
        (home / part).mkdir(parents=True)
    (home / "plugins/hive").symlink_to(server / "plugin/hive")  # the others take a minute to load
    catalogue = CATALOGUE.format(metastore=str(home / "metastore").lstrip("/"))
    (home / "catalogues/hive.properties").write_text(catalogue)
    config = home / "config.properties"
    config.write_text(
        CONFIG.format(
            port=port,
            plugins=home / "plugins",
            catalogues=home / "catalogues",
        )
    )
    command = [str(java), *HEAP, f"-Dconfig={config}", "-cp", f"{server}/lib/*"]
    log = home / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "io.trino.server.TrinoServer"], stdout=output, stderr=output, cwd=home
        )
    try:
        trino = Trino(port)
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not trino.ready():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline_s, log.read_text()[-3000:]
            time.sleep(0.2)
        yield trino
    finally:
        process.terminate()
        process.wait()
