"""One Spark session and one HDFS for all tests of a worker: starting one costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from nightly.shared import an_hdfs_or_skip
from pyspark.sql import SparkSession

from loadmanager.kit.spark import session
from loadmanager.kit.zookeeper.java import find_java

SETTINGS = {"spark.driver.memory": "1g"}


class Sessions:
    """Starts a session when one is needed, and keeps it; `stop` for tests that start their own."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def start(self) -> SparkSession:
        """The running session."""
        running = SparkSession.getActiveSession()
        if running is None:
            self._stack.close()
            running = self._stack.enter_context(
                session(master="local[1]", java=find_java(), settings=SETTINGS)
            )
        return running

    def stop(self) -> None:
        """End it."""
        self._stack.close()


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    """The sessions of this worker."""
    sessions = Sessions()
    yield sessions
    sessions.stop()


@pytest.fixture
def spark(sessions: Sessions) -> SparkSession:
    """The shared session; `analyze` uses it, too."""
    return sessions.start()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """An HDFS as a file system of fsspec, and its URL: each test has a folder there."""
    with an_hdfs_or_skip(tmp_path_factory.mktemp("hdfs")) as files_and_url:
        yield files_and_url
