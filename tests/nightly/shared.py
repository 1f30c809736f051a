"""Storage that several machines share, for tests of the analysis on it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import maven
import pytest
from nightly.hdfs import an_hdfs, servers
from nightly.object_store import an_object_store

from bench import _history as history


@dataclass(kw_only=True)
class Shared:
    """Where the history and the analysis are."""

    files: Any
    root: str
    scheme: str = ""
    settings: tuple[str, ...] = ()

    @property
    def where(self) -> tuple[str, ...]:
        """The arguments of the analysis."""
        root = f"{self.scheme}{self.root}"
        return ("--history", f"{root}/history", "--output", f"{root}/analysis")

    @property
    def analysis(self) -> str:
        """The folder of the cluster's analysis, for `files`."""
        return f"{self.root}/analysis/cluster={history.CLUSTER}"

    def put(self, folder: Path) -> None:
        """Put the history there."""
        self.files.put(str(folder), f"{self.root}/history", recursive=True)

    def report(self) -> dict[str, Any]:
        """The day's report."""
        path = f"{self.analysis}/reports/{history.DATE}.json"
        document: dict[str, Any] = json.loads(self.files.cat(path))
        return document

    def committed(self, date: str = history.DATE) -> list[str]:
        """The files that a day's manifest names; empty: it was not committed."""
        path = f"{self.analysis}/records/date={date}_manifest.json"
        if not self.files.exists(path):
            return []
        return sorted(json.loads(self.files.cat(path))["files"])

    def stored(self) -> list[str]:
        """All files of records, sums and tables that are there."""
        there = self.files.find(self.analysis)
        names = (path.removeprefix(f"{self.analysis}/") for path in there)
        return sorted(name for name in names if name.endswith(".parquet"))


@contextmanager
def on_disk(folder: Path, _request: pytest.FixtureRequest) -> Iterator[Shared]:
    """This machine's, which every test can have."""
    yield Shared(files=fsspec.filesystem("file", auto_mkdir=True), root=str(folder / "shared"))


@contextmanager
def on_s3(folder: Path, _request: pytest.FixtureRequest) -> Iterator[Shared]:
    """moto's S3. Skips the test where there is no server, or no s3fs."""
    pytest.importorskip("s3fs", reason="no s3fs here")
    if shutil.which("moto_server") is None:
        pytest.skip("no moto_server on the PATH")
    with an_object_store(folder) as (files, options):
        settings = (
            f"spark.executorEnv.FSSPEC_S3={json.dumps(options)}",
            f"spark.hadoop.fs.s3a.endpoint={options['endpoint_url']}",
            "spark.hadoop.fs.s3a.endpoint.region=us-east-1",
            "spark.hadoop.fs.s3a.path.style.access=true",
            f"spark.hadoop.fs.s3a.access.key={options['key']}",
            f"spark.hadoop.fs.s3a.secret.key={options['secret']}",
        )
        yield Shared(files=files, root="bucket", scheme="s3://", settings=settings)


@contextmanager
def on_hdfs(folder: Path, request: pytest.FixtureRequest) -> Iterator[Shared]:
    """A folder of its own in the HDFS of this worker."""
    files, url = request.getfixturevalue("hdfs")
    yield Shared(files=files, root=f"/{folder.name}", scheme=url)


@contextmanager
def an_hdfs_or_skip(folder: Path) -> Iterator[tuple[Any, str]]:
    """HDFS. Skips the test where there is no Maven for its servers, or no hdfs-native."""
    pytest.importorskip("hdfs_native", reason="no hdfs-native here")
    if (reason := maven.missing()) is not None:
        pytest.skip(reason)
    try:
        servers()
    except subprocess.SubprocessError:
        pytest.skip("Maven Central is not reached, or has not got Hadoop's servers")
    with an_hdfs(folder) as hdfs:
        yield hdfs
