"""A cluster of processes that a test starts, stops and harms one by one.

Unlike `standalone.Cluster`, it has no `standalone` process that could restart brokers. The last
broker reaches ZooKeeper through a `proxy.Proxy`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import psutil
from clusters.standalone import Cluster, wait_for
from kazoo.client import KazooClient
from ports import free_ports
from system.proxy import Proxy

from loadmanager.kit.zookeeper.java import JavaZooKeeper

ROOT = Path(__file__).parents[2]
READY_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 30.0
NAMESPACE = "acme/load"

SETTINGS = {
    "clusterName": "standalone",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "loadBalancerSamplingScope": "process",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadManagerHistoryIntervalSeconds": "0.5",
    "brokerShutdownTimeoutMs": "10000",
}
"""Bundles move only when a test or a fault moves them."""


class Fleet(Cluster):
    """ZooKeeper and brokers, started by `with`; `bundles` are those of `NAMESPACE`. There are ports
    for `room` more brokers, which a test adds to `count` before it starts them.

    Has the HTTP methods of `Cluster`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        room: int = 0,
        bundles: int = 16,
        session_s: float = 2.0,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.count = brokers
        self.bundles = bundles
        self.session_s = session_s
        self.folder = folder
        ports = brokers + room
        self.pulsar_port = free_ports(2 * ports + 1)
        self.http_port = self.pulsar_port + ports
        zookeeper_port = self.http_port + ports
        data = folder / "zookeeper"
        self.zookeeper = JavaZooKeeper(port=zookeeper_port, data_dir=data)
        self.proxied = brokers - 1
        self.proxy = Proxy(zookeeper_port)
        self.extra = settings or {}
        """Settings of the brokers that start from now on."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Fleet:
        try:
            self.start_zookeeper()
            self._open.enter_context(self.proxy)
            for index in range(self.count):
                self.start(index, wait=False)
            for index in range(self.count):
                self.wait_until_ready(index)
            seen = "/admin/v2/brokers"
            wait_for(lambda: len(self.get(0, seen)) == self.count, "all see each other")
            self.create_namespace(NAMESPACE, self.bundles)
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for name in self._processes:
                words = self.log_of(name).read_text(errors="replace")[-2000:]
                error.add_note(f"--- the end of {self.log_of(name)}\n{words}")
        self._stop_all()

    def _stop_all(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.zookeeper.stop()
        self._open.close()

    # Brokers

    def settings(self, index: int) -> dict[str, str]:
        """The settings of broker `index`."""
        server = self.proxy.port if index == self.proxied else self.zookeeper.port
        return {
            **SETTINGS,
            "metadataStoreUrl": f"zk:127.0.0.1:{server}",
            "metadataStoreSessionTimeoutMillis": str(int(self.session_s * 1000)),
            "brokerServicePort": str(self.pulsar_port + index),
            "webServicePort": str(self.http_port + index),
            "loadManagerHistoryDirectory": str(self.history(index)),
            **self.extra,
        }

    def history(self, index: int) -> Path:
        """The folder of the history of broker `index`."""
        return self.folder / f"history-{index}"

    def log_of(self, name: str) -> Path:
        """The output of a process, including its former runs."""
        return self.folder / f"{name}.log"

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Name of each broker → host and port of its protocol server."""
        ports = range(self.pulsar_port, self.pulsar_port + self.count)
        return {self.broker_id(index): ("127.0.0.1", port) for index, port in enumerate(ports)}

    def start(self, index: int, *, files_max: int = 0, wait: bool = True) -> None:
        """Start broker `index`; `files_max` limits its file descriptors if it is given."""
        self._spawn(f"broker-{index}", self.settings(index), files_max)
        if wait:
            self.wait_until_ready(index)

    def start_twin(self, index: int, address: str) -> str:
        """Start another process with broker `index`'s name and ports, on another loopback address.

        Returns the name of the process.
        """
        name, history = f"twin-{index}", self.folder / f"history-twin-{index}"
        own = {"bindAddress": address, "loadManagerHistoryDirectory": str(history)}
        self._spawn(name, {**self.settings(index), **own}, 0)
        return name

    def _spawn(self, name: str, settings: dict[str, str], files_max: int) -> None:
        command = [sys.executable, "-m", "system.broker_process", str(self.folder / f"{name}.json")]
        command += ["broker", "--stop-with-parent", "--log-format", "json"]
        for key, text in settings.items():
            command += ["--set", f"{key}={text}"]
        if files_max:
            command = ["/bin/sh", "-c", f"ulimit -n {files_max}; exec {shlex.join(command)}"]
        paths = [str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with self.log_of(name).open("ab") as output:
            self._processes[name] = _run(command, environment, output)

    def wait_until_ready(self, index: int) -> None:
        """Block until broker `index` reports that it is ready."""

        def ready() -> bool:
            status = self.process_of(index).poll()
            assert status is None, f"broker {index} ended with {status}: {self.last_words(index)}"
            with contextlib.suppress(OSError):
                return self.request(index, "GET", "/admin/v2/brokers/ready")[0] == 200
            return False

        wait_for(ready, f"broker {index} is ready", READY_TIMEOUT_S)

    def last_words(self, index: int) -> str:
        """The end of broker `index`'s log."""
        return self.log_of(f"broker-{index}").read_text(errors="replace")[-1000:]

    def process_of(self, index: int) -> subprocess.Popen[bytes]:
        """The latest process of broker `index`."""
        return self._processes[f"broker-{index}"]

    def alive(self, name: str) -> bool:
        """True if a process (`broker-0`, `twin-0`, …) runs."""
        return self._processes[name].poll() is None

    def signal(self, index: int, number: signal.Signals) -> None:
        """Send a signal to broker `index`."""
        self.process_of(index).send_signal(number)

    def kill(self, index: int) -> float:
        """Kill a broker (kill -9) and wait for its end; returns when, on the monotonic clock."""
        killed_s = time.monotonic()
        self.process_of(index).kill()
        self.process_of(index).wait()
        return killed_s

    def terminate(self, index: int) -> None:
        """Send SIGTERM, and wait for the graceful end."""
        self.process_of(index).terminate()
        status = self.process_of(index).wait(STOP_TIMEOUT_S)
        assert status == 0, f"broker {index} ended with {status}: {self.last_words(index)}"

    def end(self, name: str) -> None:
        """kill -9 a process by name."""
        self._processes[name].kill()
        self._processes[name].wait()

    def inside(self, index: int) -> dict[str, Any]:
        """The tasks and routes of broker `index`, from its `broker_process`."""
        file = self.folder / f"broker-{index}.json"
        file.unlink(missing_ok=True)
        self.signal(index, signal.SIGUSR1)
        wait_for(file.exists, f"broker {index} tells about itself", 60)
        told: dict[str, Any] = json.loads(file.read_text())
        return told

    def move_pauses_ms(self) -> list[float]:
        """The pauses of the leaders' moves so far, as the brokers logged them."""
        lines = [
            line
            for name in self._processes
            for line in self.log_of(name).read_text(errors="replace").splitlines()
            if '"event": "move ended"' in line
        ]
        pauses = [json.loads(line)["pause_ms"] for line in lines]
        return [pause for pause in pauses if pause is not None]

    def tracebacks(self) -> Counter[str]:
        """The tracebacks in all logs so far, logged and raised, with their numbers."""
        found: Counter[str] = Counter()
        for name in self._processes:
            for line in self.log_of(name).read_text(errors="replace").splitlines():
                if not line.startswith("{"):
                    found[f"{name} ended by an exception"] += "Traceback (most recent" in line
                else:
                    event = json.loads(line)
                    if "Traceback" in (story := str(event.get("exception", ""))):
                        found[_summary(event["event"], story)] += 1
        return +found

    # The cluster, through broker `asked`

    def leader(self) -> int:
        """Index of the leader."""

        def asked() -> int | None:
            for index in range(self.count):
                with contextlib.suppress(OSError):
                    status, body = self.request(index, "GET", "/admin/v2/brokers/leaderBroker")
                    if status == 200:
                        return int(body["brokerId"].rpartition(":")[2]) - self.http_port + 1
            return None

        return int(wait_for(asked, "a leader", 60)) - 1

    def follower(self) -> int:
        """Index of a broker that does not lead."""
        return (self.leader() + 1) % self.count

    def owned(self, index: int) -> set[str]:
        """The bundles in `ownedNamespaces` of broker `index`."""
        path = f"/admin/v2/brokers/standalone/{self.broker_id(index)}/ownedNamespaces"
        return set(self.get(index, path))

    def create_namespace(self, namespace: str, bundles: int) -> None:
        """Create a namespace, and its tenant if it is missing."""
        tenant = namespace.partition("/")[0]
        clusters = {"allowedClusters": ["standalone"]}
        status, body = self.request(0, "PUT", f"/admin/v2/tenants/{tenant}", clusters)
        assert status in (204, 409), body
        path = f"/admin/v2/namespaces/{namespace}"
        status, body = self.request(0, "PUT", path, {"bundles": {"numBundles": bundles}})
        assert status == 204, body

    def move(self, bundle: str, to: int) -> bool:
        """Unload a bundle (`tenant/namespace/range`) to a broker; returns whether it succeeded."""
        path = f"/admin/v2/namespaces/{bundle}/unload?destinationBroker={self.broker_id(to)}"
        return self.request(to, "PUT", path)[0] in (204, 409)

    # ZooKeeper

    def start_zookeeper(self) -> None:
        """Start the server with its data, and wait until it answers."""
        self.zookeeper.start()
        self.zookeeper.wait_until_ready()

    def kill_zookeeper(self) -> None:
        """Kill the server (kill -9)."""
        os.kill(self.zookeeper_pid(), signal.SIGKILL)
        wait_for(lambda: not self.zookeeper.running, "ZooKeeper is gone")
        self.zookeeper.stop()

    def zookeeper_pid(self) -> int:
        """The server's Java process."""
        shell = self.zookeeper._process
        assert shell is not None
        children = psutil.Process(shell.pid).children(recursive=True)
        return next(child.pid for child in children if "ZooKeeperServerMain" in child.cmdline()[-2])

    def delete_node(self, path: str) -> None:
        """Delete a node, as an operator does with ZooKeeper's shell."""
        self._with_zookeeper(lambda shell: shell.delete(path))

    def node(self, path: str) -> Any:
        """The JSON of a node."""
        found: list[bytes] = []
        self._with_zookeeper(lambda shell: found.append(shell.get(path)[0]))
        return json.loads(found[0])

    def _with_zookeeper(self, work: Callable[[KazooClient], object]) -> None:
        shell = KazooClient(f"127.0.0.1:{self.zookeeper.port}")
        shell.start()
        try:
            work(shell)
        finally:
            shell.stop()
            shell.close()


def _summary(event: str, story: str) -> str:
    """One line for all tracebacks of one kind."""
    lines = [line.strip() for line in story.strip().splitlines()]
    places = [line for line in lines if line.startswith("File ")]
    ours = [line for line in places if "/loadmanager/" in line] or places
    where = re.sub(r'File ".*/(loadmanager/[^"]+)", line', r"\1", ours[-1]) if ours else "?"
    raised = re.sub(r"-?[0-9]+|0x[0-9a-f]+", "N", lines[-1])
    return f"{event.splitlines()[0].partition(' Transport')[0][:60]}: {raised[:120]}: {where}"


def _run(command: list[str], environment: dict[str, str], out: BinaryIO) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdin=nothing,
        stdout=out,
        stderr=out,
    )
