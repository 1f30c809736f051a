"""The job, submitted to a real standalone Spark cluster: a master and two workers of the PySpark
package, on loopback.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import fsspec
import psutil
import pyspark
import pytest
from nightly import nightly
from nightly.shared import Shared, on_hdfs, on_s3
from ports import free_port

import loadmanager.__main__
from bench import _history as history
from loadmanager.kit.spark import LOCAL, LOCAL_JAVA, java_home
from loadmanager.kit.zookeeper.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

READY_TIMEOUT_S = 300.0
WORKERS = 2
HOST = "127.0.0.1"
NAME = "the nightly job"
NOT_NEEDED = (
    "spark.python.sql.dataFrameDebugging.enabled",
    "spark.sql.dataFrameQueryContext.enabled",
    "spark.ui.enabled",
)
"""What a driver does without, as in a local run."""
JARS = "HADOOP_AWS_JARS"
"""Names the folder of what Spark needs for S3 (hadoop-aws, the bundle of the AWS SDK and
analyticsaccelerator-s3): 700 MB, too much to be fetched for a test.
"""


@pytest.fixture(params=["folder", "s3", "hdfs"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """A folder; moto's S3 where there is hadoop-aws for Spark; HDFS."""
    with ExitStack() as stack:
        if request.param == "folder":
            root = tmp_path / "shared"
            root.mkdir()
            yield Shared(files=fsspec.filesystem("file"), root=str(root))
        elif request.param == "hdfs":
            yield stack.enter_context(on_hdfs(tmp_path, request))
        else:
            jars = os.environ.get(JARS, "")
            if not jars:
                pytest.skip(f"{JARS} names no folder with hadoop-aws and the bundle of the AWS SDK")
            store = stack.enter_context(on_s3(tmp_path, request))
            yield replace(
                store,
                settings=(
                    f"spark.driver.extraClassPath={jars}/*",
                    f"spark.executor.extraClassPath={jars}/*",
                    *store.settings,
                ),
            )


@contextmanager
def running(
    environment: dict[str, str], *arguments: str, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """One process of the cluster."""
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def state_of(port: int) -> dict[str, Any]:
    """The master's state. Before it is ready, no answer is JSON: its pages come up one by one."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://{HOST}:{port}/json/", timeout=5
        ) as answer:
            state: dict[str, Any] = json.load(answer)
            return state
    except (OSError, json.JSONDecodeError):  # also of a machine that is busy
        return {}


@dataclass(kw_only=True)
class SparkCluster:
    """A master and two workers, whose executors do not have this package."""

    folder: Path
    port: int = field(default_factory=free_port)
    ui: int = field(default_factory=free_port)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    more_workers: Callable[[], None] = field(init=False)
    """Starts workers in the place of those that have ended."""

    @cached_property
    def environment(self) -> dict[str, str]:
        """Of all its processes."""
        return {
            **os.environ,
            "JAVA_HOME": str(java_home(find_java(), self.folder)),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_JAVA_OPTS": LOCAL_JAVA,
            "PYSPARK_PYTHON": sys.executable,
        }

    @property
    def master(self) -> str:
        """Its URL."""
        return f"spark://{HOST}:{self.port}"

    def state(self) -> dict[str, Any]:
        """What the master says."""
        return state_of(self.ui)

    def submit(self, *arguments: str, settings: tuple[str, ...] = ()) -> list[str]:
        """The command that submits an analysis of the designed day."""
        without = self.folder / "without"
        without.mkdir(exist_ok=True)
        (without / "loadmanager.py").write_text("raise ImportError('executors do not have it')\n")
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        command = [str(submit), "--master", self.master]
        for setting in (
            f"spark.app.name={NAME}",
            f"spark.driver.host={HOST}",
            f"spark.driver.bindAddress={HOST}",
            "spark.executor.memory=700m",
            f"spark.executorEnv.PYTHONPATH={without}",
            *(f"{key}={value}" for key, value in LOCAL.items()),
            "spark.sql.shuffle.partitions=2",
            *(f"{key}=false" for key in NOT_NEEDED),
            f"spark.driver.extraJavaOptions={LOCAL_JAVA}",
            f"spark.executor.extraJavaOptions={LOCAL_JAVA}",
            *settings,
        ):
            command += ["--conf", setting]
        command += [loadmanager.__main__.__file__, "analyze", "--date", history.DATE, "--quiet"]
        return [*command, *arguments]


@contextmanager
def a_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A cluster without workers, which are ended with it."""
    cluster, deploy = SparkCluster(folder=folder), "org.apache.spark.deploy"
    ports = ("--port", str(cluster.port), "--webui-port", str(cluster.ui))
    master = (f"{deploy}.master.Master", "--host", HOST, *ports)
    worker = (f"{deploy}.worker.Worker", "--host", HOST, "--webui-port", "0")
    worker = (*worker, "--cores", "1", "--memory", "1g", cluster.master)
    with ExitStack() as stack:

        def more_workers() -> None:
            while sum(worker.poll() is None for worker in cluster.workers) < WORKERS:
                log = folder / f"worker-{len(cluster.workers)}.log"
                process = stack.enter_context(running(cluster.environment, *worker, log=log))
                cluster.workers.append(process)
            log = folder / "master.log"
            until(lambda: cluster.state().get("aliveworkers", 0) == WORKERS, log)

        stack.enter_context(running(cluster.environment, *master, log=folder / "master.log"))
        cluster.more_workers = more_workers
        yield cluster


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """One for all tests of the module."""
    with a_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster: SparkCluster) -> SparkCluster:
    """It has two workers, and nothing runs on them; those that a test killed are replaced."""
    one_cluster.more_workers()
    until(lambda: not busy(one_cluster), one_cluster.folder / "master.log")
    return one_cluster


def until(holds: Callable[[], bool], log: Path) -> None:
    """Wait for something."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline_s, log.read_text()[-2000:]
        time.sleep(0.1)


def test_spark_submit_to_a_master_and_two_workers(cluster: SparkCluster, tmp_path: Path) -> None:
    """The executors know nothing of this package, and the answers are those of a local run. What
    spark-submit says holds.
    """
    history.designed(tmp_path / "history")
    where = ["--history", str(tmp_path / "history"), "--output", str(tmp_path / "analysis")]
    before = len(cluster.state()["completedapps"])
    result = subprocess.run(
        cluster.submit(*where),
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    (application,) = cluster.state()["completedapps"][before:]
    assert application["name"] == NAME, "--conf wins over what the job would set"
    report = nightly.report(tmp_path)
    flapping = nightly.rows(report, "flapping", "bundle")[history.FLAPPING]
    assert (flapping["moves"], flapping["returns"]) == (4, 2)
    assert report["tables"]["hot_bundles"]["rows"][0]["bundle"] == history.HOT
    ran = (cluster.folder / "work" / application["id"]).glob("*/stderr")
    assert list(ran), "executors ran on the workers"


def test_a_killed_worker_and_a_killed_driver(
    shared: Shared, cluster: SparkCluster, tmp_path: Path
) -> None:
    """On a shared folder, on S3 and on HDFS: neither changes an answer, and nothing that they left
    is among the day's files, or stays.
    """
    history.designed(tmp_path / "history")
    assert nightly.analyze(tmp_path) == 0
    expected = answers(nightly.report(tmp_path), str(tmp_path / "history"))
    shared.put(tmp_path / "history")
    command = cluster.submit(*shared.where, settings=shared.settings)
    log = tmp_path / "driver.log"

    with driver(command, cluster, log) as process:
        until(lambda: bool(busy(cluster)) or process.poll() is not None, log)
        killed_tree(process.pid)
        process.wait()
    until(
        lambda: not cluster.state().get("activeapps", True) and not busy(cluster),
        cluster.folder / "master.log",
    )
    assert not shared.committed(), "the driver was killed before the day was committed"

    with driver(command, cluster, log) as process:
        until(lambda: bool(busy(cluster)) or process.poll() is not None, log)
        assert process.poll() is None, log.read_text()[-2000:]
        worker = busy(cluster)[0]
        killed_tree(worker.pid)
        worker.wait()
        assert process.wait(600) == 0, log.read_text()[-3000:]
    assert answers(shared.report(), shared.where[1]) == expected
    assert shared.stored() == shared.committed()


def answers(report: dict[str, Any], where: str) -> Any:
    """A report, wherever its history is."""
    return json.loads(json.dumps(nightly.rounded(report)).replace(where, "HISTORY"))


@contextmanager
def driver(
    command: list[str], cluster: SparkCluster, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that runs."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=cluster.environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        if process.poll() is None:
            killed_tree(process.pid)
            process.wait()


def busy(cluster: SparkCluster) -> list[subprocess.Popen[bytes]]:
    """The workers whose executors have run a Python task."""
    return [
        worker
        for worker in cluster.workers
        if worker.poll() is None
        and any("pyspark.daemon" in " ".join(line) for line in _command_lines(worker.pid))
    ]


def _command_lines(pid: int) -> Iterator[list[str]]:
    for process in psutil.Process(pid).children(recursive=True):
        try:
            yield process.cmdline()
        except psutil.Error:
            continue


def killed_tree(pid: int) -> None:
    """End a process and all that it began."""
    whole = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in whole:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
