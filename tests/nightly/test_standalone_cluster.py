"""The job, submitted to a real standalone Spark cluster: a master and two workers of the PySpark
package, on loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from nightly import nightly
from ports import free_port

import loadmanager.__main__
from bench import _history as history
from loadmanager.kit.spark import LOCAL, LOCAL_JAVA, java_home
from loadmanager.kit.zookeeper.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

READY_TIMEOUT_S = 300.0
HOST = "127.0.0.1"
NAME = "the nightly job"


@contextmanager
def running(environment: dict[str, str], *arguments: str, log: Path) -> Iterator[None]:
    """One process of the cluster."""
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        yield
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
    except (urllib.error.URLError, ConnectionError, json.JSONDecodeError):
        return {}


def test_spark_submit_to_a_master_and_two_workers(tmp_path: Path) -> None:
    """The executors know nothing of this package, and the answers are those of a local run. What
    spark-submit says holds.
    """
    history.designed(tmp_path / "history")
    without = tmp_path / "without"
    without.mkdir()
    (without / "loadmanager.py").write_text("raise ImportError('executors do not have it')\n")
    port, ui = free_port(), free_port()
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home(find_java(), tmp_path)),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "SPARK_DAEMON_JAVA_OPTS": LOCAL_JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }
    deploy, master = "org.apache.spark.deploy", f"spark://{HOST}:{port}"
    with ExitStack() as cluster:
        begin = (
            f"{deploy}.master.Master",
            "--host",
            HOST,
            "--port",
            str(port),
            "--webui-port",
            str(ui),
        )
        cluster.enter_context(running(environment, *begin, log=tmp_path / "master.log"))
        for number in range(2):
            worker = (
                f"{deploy}.worker.Worker",
                "--host",
                HOST,
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                "1g",
                master,
            )
            cluster.enter_context(
                running(environment, *worker, log=tmp_path / f"worker-{number}.log")
            )
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while state_of(ui).get("aliveworkers", 0) < 2:
            assert time.monotonic() < deadline_s, (tmp_path / "master.log").read_text()[-2000:]
            time.sleep(0.1)
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master]
        for setting in (
            f"spark.app.name={NAME}",
            f"spark.driver.host={HOST}",
            f"spark.driver.bindAddress={HOST}",
            "spark.executor.memory=700m",
            f"spark.executorEnv.PYTHONPATH={without}",
            *(f"{key}={value}" for key, value in LOCAL.items()),
            "spark.sql.shuffle.partitions=2",
            f"spark.driver.extraJavaOptions={LOCAL_JAVA}",
            f"spark.executor.extraJavaOptions={LOCAL_JAVA}",
        ):
            command += ["--conf", setting]
        command += [loadmanager.__main__.__file__, "analyze", "--date", history.DATE, "--quiet"]
        command += ["--history", str(tmp_path / "history")]
        command += ["--output", str(tmp_path / "analysis")]
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=800, check=False
        )
        assert result.returncode == 0, result.stderr[-3000:]
        (application,) = state_of(ui)["completedapps"]
        assert application["name"] == NAME, "--conf wins over what the job would set"
    report = nightly.report(tmp_path)
    flapping = nightly.rows(report, "flapping", "bundle")[history.FLAPPING]
    assert (flapping["moves"], flapping["returns"]) == (4, 2)
    assert report["tables"]["hot_bundles"]["rows"][0]["bundle"] == history.HOT
    assert list((tmp_path / "work").glob("app-*/*/stderr")), "executors ran on the workers"
