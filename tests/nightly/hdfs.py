"""HDFS: a namenode and a datanode, from Maven's jar of their classes and what PySpark has of
Hadoop.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import fsspec
import maven
import pyspark
from ports import free_port

from loadmanager.kit.zookeeper.java import find_java

BUILD = Path(__file__).parents[2] / "build" / "hadoop"
JARS = Path(pyspark.__file__).parent / "jars"
MAINS = (
    "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "org.apache.hadoop.hdfs.server.datanode.DataNode",
)
READY_TIMEOUT_S = 120.0
HEAP = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
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


def configuration(folder: Path, port: int) -> str:
    """One copy of each block; everything listens on loopback."""
    values = {
        "fs.defaultFS": f"hdfs://127.0.0.1:{port}",
        "dfs.namenode.http-address": "127.0.0.1:0",
        "dfs.namenode.name.dir": f"{folder}/name",
        "dfs.datanode.data.dir": f"{folder}/data",
        "dfs.datanode.address": "127.0.0.1:0",
        "dfs.datanode.http.address": "127.0.0.1:0",
        "dfs.datanode.ipc.address": "127.0.0.1:0",
        "dfs.replication": "1",
    }
    properties = (
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in values.items()
    )
    return f"<configuration>{''.join(properties)}</configuration>"


@contextmanager
def an_hdfs(folder: Path) -> Iterator[tuple[Any, str]]:
    """An empty HDFS, as a file system of fsspec, and its URL. Its processes write their logs below
    `folder`. Raises `SubprocessError` as `servers` does.
    """
    port = free_port()
    home = folder / "hdfs"
    home.mkdir()
    for name in ("core-site.xml", "hdfs-site.xml"):
        (home / name).write_text(configuration(home, port))
    (home / "log4j2.properties").write_text(LOG4J)
    command = [str(find_java()), *HEAP, "-cp", f"{home}:{servers()}:{JARS}/*"]
    subprocess.run([*command, MAINS[0], "-format"], check=True, capture_output=True)
    with ExitStack() as stack:
        for main in MAINS:
            stack.enter_context(_running([*command, main], home / f"{main.split('.')[-1]}.log"))
        files = fsspec.filesystem("hdfs", host="127.0.0.1", port=port, skip_instance_cache=True)
        _wait_until_it_stores(files, home)
        yield files, f"hdfs://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
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
