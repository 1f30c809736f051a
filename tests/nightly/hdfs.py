"""HDFS: a namenode and a datanode in one Java process, from Maven's jar of their classes and what
PySpark has of Hadoop.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import maven
import pyspark
from ports import free_port

from loadmanager.kit.spark import LOCAL_JAVA
from loadmanager.kit.zookeeper.java import find_java

BUILD = Path(__file__).parents[2] / "build" / "hadoop"
JARS = Path(pyspark.__file__).parent / "jars"
MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
READY_TIMEOUT_S = 120.0
HEAP = ("-Xmx384m", *LOCAL_JAVA.split())
LOG4J = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


def version() -> str:
    """Of PySpark's Hadoop."""
    (jar,) = JARS.glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def servers() -> Path:
    """The jar with the servers' classes, 56 MB. Raises `SubprocessError` where Maven Central is not
    reached.
    """
    jar = BUILD / f"hadoop-client-minicluster-{version()}.jar"
    if not jar.exists():
        maven.copy(f"org.apache.hadoop:hadoop-client-minicluster:{version()}", BUILD)
    return jar


@contextmanager
def an_hdfs(folder: Path) -> Iterator[tuple[Any, str]]:
    """An empty HDFS on loopback with one copy of each block, as a file system of fsspec, and its
    URL. Its process writes its log below `folder`. Raises `SubprocessError` as `servers` does.
    """
    port = free_port()
    home = folder / "hdfs"
    home.mkdir()
    (home / "log4j2.properties").write_text(LOG4J)
    command = [str(find_java()), *HEAP, "-cp", f"{home}:{servers()}:{JARS}/*", MAIN]
    command += ["-format", "-datanodes", "1", "-nnport", str(port)]
    command += ["-D", f"hdfs.minidfs.basedir={home}/data"]
    with _running(command, home / "servers.log"):
        files = fsspec.filesystem("hdfs", host="127.0.0.1", port=port, skip_instance_cache=True)
        _wait_until_it_stores(files, home)
        yield files, f"hdfs://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_stores(files: Any, home: Path) -> None:
    """Both servers are there."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            files.pipe("/ready", b"yes")
            break
        except Exception:  # noqa: BLE001 - one of them is not
            logs = "".join(log.read_text()[-1000:] for log in sorted(home.glob("*.log")))
            assert time.monotonic() < deadline_s, logs
            time.sleep(0.2)
    files.rm("/ready")
