"""What `standalone` writes is for its user alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pulsar
import pytest
from clusters.standalone import Cluster, wait_for

pytestmark = pytest.mark.system


def test_a_cluster_leaves_nothing_for_others_to_read(tmp_path: Path) -> None:
    """With the usual umask: configuration, ZooKeeper's data, history, stored topics."""
    before = os.umask(0o022)
    try:
        with Cluster(tmp_path, brokers=1) as cluster:
            client = pulsar.Client(cluster.service_url())
            producer = client.create_producer("persistent://public/default/t")
            producer.send(b"x")
            client.close()
            history = tmp_path / "data" / "history"
            wait_for(lambda: list(history.rglob("*.jsonl*")), "something is recorded", 60)
    finally:
        os.umask(before)
    found = sorted((tmp_path / "data").rglob("*"))
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    wrong = [
        f"{stat.filemode(path.lstat().st_mode)} {path.relative_to(tmp_path)}"
        for path in found
        if path.lstat().st_mode & 0o777 != (0o700 if path.is_dir() else 0o600)
    ]
    assert wrong == []
    names = {path.relative_to(tmp_path / "data").parts[0] for path in found}
    assert {"history", "topics", "store"} <= names
