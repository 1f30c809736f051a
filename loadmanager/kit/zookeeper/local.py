"""The metadata store that is started for a cluster on one machine: the embedded one, or a ZooKeeper
on Java.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import structlog

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.supervisor import Child
from loadmanager.kit.zookeeper.embedded.file import NAME
from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore
from loadmanager.kit.zookeeper.java import JavaZooKeeper

EMBEDDED, JAVA = "embedded", "java"
EMBEDDED_FOLDER, JAVA_FOLDER = "store", "zookeeper"
"""In the cluster's folder: each has its own, and they do not read each other's."""

log = structlog.get_logger("standalone")


class LocalStore(Child, Protocol):
    """A store that runs while its context is open, and can be started again when it has ended."""

    title: str
    """What it is, for people."""

    async def __aenter__(self) -> object:
        """Start it. Raises `ConfigError` or `OperationalError`."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """Stop it."""
        ...


def local_store(wanted: str | None, *, port: int, data_dir: Path) -> LocalStore:
    """The store of this kind; None: the embedded one, unless the folder has a cluster on the other.

    Raises `OperationalError` if the folder has the metadata of a store of the other kind only: the
    cluster would begin empty, and seem to have lost everything.
    """
    on_java, embedded = data_dir / JAVA_FOLDER, data_dir / EMBEDDED_FOLDER
    has_java, has_embedded = (on_java / "data" / "version-2").exists(), (embedded / NAME).exists()
    if wanted is None and has_java and not has_embedded:
        log.warning(
            "the data directory has a cluster on a Java ZooKeeper, which is used as before; for a "
            "new cluster on the embedded store, choose another --data-dir",
            folder=str(on_java),
        )
        wanted = JAVA
    if wanted == JAVA:
        if has_embedded and not has_java:
            raise _other(embedded, "the embedded store")
        return JavaZooKeeper(port=port, data_dir=on_java)
    if has_java and not has_embedded:
        raise _other(on_java, "a Java ZooKeeper")
    if has_java:
        log.warning(
            "the data directory has metadata of a Java ZooKeeper, too, which are not used: "
            "--zookeeper java uses them instead",
            folder=str(on_java),
        )
    return EmbeddedStore(port=port, data_dir=embedded)


def _other(folder: Path, kind: str) -> OperationalError:
    return OperationalError(
        f"{folder} has the metadata of a cluster on {kind}, which cannot be converted: leave out "
        "--zookeeper to use it, or choose another --data-dir for an empty cluster"
    )
