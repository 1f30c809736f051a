"""Which metadata store a cluster on one machine gets: that on which it began."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore
from loadmanager.kit.zookeeper.java import JavaZooKeeper
from loadmanager.kit.zookeeper.local import EMBEDDED, JAVA, local_store

ON_JAVA, ON_EMBEDDED = "zookeeper/data/version-2/snapshot.0", "store/tree.sqlite"


def has(folder: Path, *files: str) -> Path:
    """A data directory with these files."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("files", "wanted", "kind", "warned"),
    [
        ((), None, EmbeddedStore, False),
        ((), EMBEDDED, EmbeddedStore, False),
        ((), JAVA, JavaZooKeeper, False),
        ((ON_EMBEDDED,), None, EmbeddedStore, False),
        ((ON_EMBEDDED,), EMBEDDED, EmbeddedStore, False),
        ((ON_JAVA,), None, JavaZooKeeper, True),
        ((ON_JAVA,), JAVA, JavaZooKeeper, False),
        ((ON_JAVA, ON_EMBEDDED), None, EmbeddedStore, True),
        ((ON_JAVA, ON_EMBEDDED), JAVA, JavaZooKeeper, False),
    ],
)
def test_a_cluster_stays_on_its_store(
    files: tuple[str, ...], wanted: str | None, kind: type, *, warned: bool, tmp_path: Path
) -> None:
    """A new one gets the embedded store; what is not used is said."""
    with capture_logs() as logs:
        store = local_store(wanted, port=1, data_dir=has(tmp_path, *files))
    assert isinstance(store, kind)
    assert [line["log_level"] for line in logs] == ["warning"] * warned


@pytest.mark.parametrize(("file", "wanted"), [(ON_JAVA, EMBEDDED), (ON_EMBEDDED, JAVA)])
def test_a_cluster_on_the_other_store_is_not_left_behind(
    file: str, wanted: str, tmp_path: Path
) -> None:
    """An empty store would look as if everything was lost."""
    with pytest.raises(OperationalError, match="choose another --data-dir") as refused:
        local_store(wanted, port=1, data_dir=has(tmp_path, file))
    assert str(tmp_path / file.partition("/")[0]) in str(refused.value)
