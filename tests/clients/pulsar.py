"""A real Pulsar: its distribution from Maven Central, unpacked once, brokers of other versions, and
a standalone broker.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import maven
from clusters.standalone import wait_for
from ports import free_ports

VERSION = "4.0.4"
BUILD = Path(__file__).parents[2] / "build" / "pulsar"
CLASSES = BUILD / "classes"
HERE = Path(__file__).parent
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
HEAP = "-Xms256m -Xmx512m -XX:MaxDirectMemorySize=512m"


def distribution(version: str = VERSION) -> Path:
    """The folder of the unpacked distribution. Raises `SubprocessError` where Maven Central is
    not reached.
    """
    home = BUILD / f"apache-pulsar-{version}"
    if not (home / "unpacked").exists():
        maven.copy(f"org.apache.pulsar:pulsar-server-distribution:{version}:tar.gz:bin", BUILD)
        archive = BUILD / f"pulsar-server-distribution-{version}-bin.tar.gz"
        with tarfile.open(archive) as files:
            files.extractall(BUILD, filter="tar")
        archive.unlink()
        (home / "unpacked").touch()
    return home


def brokers(version: str) -> Path:
    """A folder in which `bin/pulsar broker` starts a broker of this version. It is that of
    `distribution`, with the jars of this version: Maven Central has them of more versions.

    Raises `SubprocessError` where Maven Central is not reached, or has not got them.
    """
    home = distribution()
    if version == VERSION:
        return home
    other = BUILD / f"broker-{version}"
    if not (other / "unpacked").exists():
        versions = "pulsar" if version.startswith("4.") else "pulsar-dependencies"
        jars = (f"-Dpulsar.version={version}", f"-Dpulsar.versions={versions}")
        options = ("-DincludeScope=runtime", f"-DoutputDirectory={other}/lib")
        maven.run(*jars, *options, "dependency:copy-dependencies", folder=HERE / "broker")
        for name in ("bin", "conf"):
            shutil.copytree(home / name, other / name, dirs_exist_ok=True)
        (other / "unpacked").touch()
    return other


def compile_java(home: Path) -> None:
    """Compile `java/` against Pulsar's jars."""
    sources = map(str, sorted((HERE / "java").glob("*.java")))
    command = ["javac", "-Xlint:none", "-d", str(CLASSES), "-cp", f"{home}/lib/*", *sources]
    subprocess.run(command, check=True, capture_output=True)


def java(home: Path, main: str, *arguments: str) -> list[str]:
    """The command that runs a class of `java/`, which must have been compiled."""
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1"]
    options += [f"-Dlog4j2.configurationFile={HERE}/log4j2.xml"]
    return ["java", *options, "-cp", f"{CLASSES}:{home}/lib/*", main, *arguments]


class Standalone:
    """`bin/pulsar standalone` on free ports, with keys of its configuration; started by `with`."""

    def __init__(self, home: Path, folder: Path, settings: dict[str, str] | None = None) -> None:
        self._home = home
        self._folder = folder
        self._settings = settings or {}
        self.log = folder / "pulsar.log"

    def __enter__(self) -> Standalone:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.pulsar_port = free_ports(3)
        self.http_port, bookie = self.pulsar_port + 1, self.pulsar_port + 2
        ports = {
            "brokerServicePort": str(self.pulsar_port),
            "webServicePort": str(self.http_port),
            "bindAddress": "127.0.0.1",
        }
        conf = (self._home / "conf" / "standalone.conf").read_text()
        for key, text in {**ports, **self._settings}.items():
            conf = re.sub(f"(?m)^#? ?{key}=.*$", "", conf) + f"\n{key}={text}\n"
        path = self._folder / "standalone.conf"
        path.write_text(conf)
        command = ["bin/pulsar", "standalone", "-nfw", "-nss", "-a", "127.0.0.1"]
        command += ["-c", str(path), "--bookkeeper-port", str(bookie)]
        command += ["--metadata-dir", str(self._folder / "metadata")]
        command += ["--bookkeeper-dir", str(self._folder / "bookkeeper")]
        environment = {
            "PULSAR_STANDALONE_CONF": str(path),
            "PULSAR_LOG_DIR": str(self._folder / "logs"),
            "PULSAR_MEM": HEAP,
            "PULSAR_GC": "-XX:+UseG1GC",
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self._home,
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            wait_for(self._ready, "Pulsar is ready", READY_TIMEOUT_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _ready(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text()[-5000:])
        url = f"http://127.0.0.1:{self.http_port}/admin/v2/namespaces/public/default"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def service_url(self) -> str:
        """For clients."""
        return f"pulsar://127.0.0.1:{self.pulsar_port}"

    def admin_url(self) -> str:
        """For the admin API."""
        return f"http://127.0.0.1:{self.http_port}"
