"""The Spark session: Java wherever it comes from, quiet, on loopback when it is local, in UTC."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from loadmanager.kit.errors import ConfigError

_SHIM = """#!/bin/sh
# Spark asks for a module that only its machine learning uses, that not every Java has, and that
# the others warn about; everything else is passed on.
for argument; do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


_LOG4J = """status = fatal
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.console.ref = console
"""
"""What Spark says is its own business: what goes wrong is reported in a line, and damaged segments
are expected.
"""


LOCAL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
"""What Spark's queries read is small, and preparing them costs more than running them: each is one
task, without shuffles and broadcasts.
"""
LOCAL_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Java that starts fast: nothing runs for long enough to be worth the best code. Bytecode is not
verified: all of it comes from the same place as Spark.
"""


MASTERS = ("local", "spark://", "k8s://")
"""How a master begins, beside `yarn`."""
JAVA_ENDS_S = 30


@contextmanager
def session(
    *,
    master: str | None,
    java: Path | None,
    settings: dict[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session that is stopped afterwards; the one that runs, if this process has one.

    Under spark-submit (its gateway is there already) master and Java are what spark-submit says.
    Otherwise `master` (`local[*]` by default), and `java` where the environment names none.

    SIGTERM ends it, too, and the process with status 143. Raises `ConfigError`.
    """
    _refuse_connect(master, settings or {})
    running = SparkSession.getActiveSession()
    if running is not None:  # a notebook's, say, which has its own settings
        yield running
        return
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        _check_master((settings or {}).get("spark.master", master or "local[*]"))
    with (
        tempfile.TemporaryDirectory(prefix="loadmanager-analysis-") as folder,
        _ends_on_sigterm(folder),
    ):
        builder: Any = SparkSession.builder
        for key, value in _settings(
            None if submitted else master or "local[*]", folder, settings or {}
        ).items():
            builder = builder.config(key, value)
        if submitted:
            yield builder.getOrCreate()
            return
        # Py4J tells of Ctrl-C with the stack of whatever it was in.
        logging.getLogger().addHandler(logging.NullHandler())
        if (master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("SPARK_LOCAL_DIRS", folder)
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if "SPARK_CONF_DIR" not in os.environ:
            Path(folder, "log4j2.properties").write_text(_LOG4J)
            os.environ["SPARK_CONF_DIR"] = folder
        if java is not None:
            os.environ["JAVA_HOME"] = str(java_home(java, Path(folder)))
        logging.getLogger().addHandler(logging.NullHandler())  # else py4j prints tracebacks
        with _signals_wait():
            spark = builder.getOrCreate()
        try:
            # It prints a stack when Java goes.
            server = spark.sparkContext._accumulatorServer  # noqa: SLF001 - there is no other way
            server.handle_error = lambda *_: None
            yield spark
        finally:
            spark.stop()


@contextmanager
def _ends_on_sigterm(folder: str) -> Iterator[None]:
    """SIGTERM ends Java, removes the folder, and ends the process with status 143, if nobody else
    handles it. It raises nothing: PySpark would talk to Java in the middle of another answer.
    """
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        _end_java()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """SIGTERM and Ctrl-C wait until Spark has started; a second Ctrl-C does not.

    PySpark leaves Java behind when its start is interrupted. Afterwards Ctrl-C does what it did
    before: PySpark's own handler talks to Java in the middle of another answer.
    """
    if not _in_main_thread():
        yield
        return
    came: list[int] = []

    def wait(number: int, _frame: object) -> None:
        if number == signal.SIGINT and number in came:
            raise KeyboardInterrupt
        came.append(number)

    before = {number: signal.signal(number, wait) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in came[:1]:
            signal.raise_signal(each)


def _end_java() -> None:
    """End Spark's Java without a word, and wait: it removes files of its own."""
    gateway = SparkContext._gateway  # noqa: SLF001 - nothing public knows the process
    if gateway is None or gateway.proc is None:  # spark-submit's ends by itself
        return
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JAVA_ENDS_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def _in_main_thread() -> bool:
    """Only there signals can be handled."""
    return threading.current_thread() is threading.main_thread()


def _check_master(master: str) -> None:
    """Raises `ConfigError` for what makes Java print a stack and end."""
    if master != "yarn" and not master.startswith(MASTERS):
        raise ConfigError(
            f"--master {master}: local[*], spark://HOST:PORT, k8s://HOST:PORT or yarn is expected"
        )


def _refuse_connect(master: str | None, given: dict[str, str]) -> None:
    """Raises `ConfigError` if Spark Connect is chosen, in any of the ways of PySpark."""
    for named, value in (
        ("SPARK_REMOTE is set", os.environ.get("SPARK_REMOTE")),
        ("SPARK_API_MODE=connect", os.environ.get("SPARK_API_MODE") == "connect"),
        ("this process has a session of Spark Connect", "SPARK_CONNECT_MODE_ENABLED" in os.environ),
        (
            "spark.api.mode=connect is what spark-submit was told",
            "PYSPARK_REMOTE_INIT_CONF_LEN" in os.environ,
        ),
        (f"--master {master}", (master or "").startswith("sc://")),
        ("--spark spark.remote", given.get("spark.remote")),
        ("--spark spark.api.mode=connect", given.get("spark.api.mode") == "connect"),
    ):
        if value:
            raise ConfigError(
                f"{named}: the analysis does not work over Spark Connect; leave it out, and name a "
                "master or use spark-submit"
            )


def _settings(master: str | None, folder: str, given: dict[str, str]) -> dict[str, str]:
    """What the session needs. Under spark-submit (`master` None) only what the answers depend on:
    everything else is for its `--conf` to say.
    """
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }
    if master is None:
        return settings | given
    settings |= {
        "spark.app.name": "loadmanager analyze",
        "spark.master": master,
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.sql.adaptive.enabled": "true",
        # 227 brokers in a day's steps of five minutes; above 128 groups Spark sorts instead
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": LOCAL_JAVA,
            **LOCAL,
        }
    return settings | given


def java_home(java: Path, folder: Path) -> Path:
    """The JAVA_HOME for Spark's launcher, in `folder`.

    Raises `ConfigError` where no program may run.
    """
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise ConfigError(
            f"no program may run from {folder.parent} (it is mounted with noexec), and the "
            "analysis starts its Java there: TMPDIR names another folder"
        )
    shim = folder / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(_SHIM.format(java=java.resolve()))
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return shim.parent.parent


FAILURES = (PySparkException, Py4JError, OSError)
