"""Starts the cluster and the clients of the demo, tells what happens, and cleans up."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import click

from loadmanager.cli.admin.asking import OWN, V2, brokers_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.demo.telling import Teller
from loadmanager.cli.demo.workload import NAMESPACE
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.free_port import require_free_port
from loadmanager.leader.documents.cluster import ClusterShown
from loadmanager.leader.documents.decisions import DecisionShown, DecisionsShown

BROKERS = 3
HOST = "127.0.0.1"
PORT_ADVICE = "is another cluster running? Else choose another --pulsar-port or --http-port"
READY_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 25.0
POLL_S = 1.0
SETTINGS = {
    # Little traffic is a load for a slow network, whatever else this machine does.
    "loadBalancerOverrideBrokerNicSpeedGbps": "0.03",
    "loadBalancerCPUResourceWeight": "0.2",
    "loadBalancerMemoryResourceWeight": "0",
    "loadBalancerDirectMemoryResourceWeight": "0",
    "loadBalancerLoadSheddingStrategy": "BalancedShedder",
    "loadBalancerLoadPlacementStrategy": "BalancedPlacement",
    "loadManagerBalancedDifferencePercent": "8",
    "loadBalancerSheddingIntervalMinutes": "0.08",
    "loadBalancerSheddingGracePeriodMinutes": "0.3",
    "loadBalancerSplitIntervalMinutes": "0.08",
    "loadBalancerNamespaceBundleMaxMsgRate": "300",
    "loadBalancerNamespaceMaximumBundles": "16",
    # Children stay where they are, so that the shedder has something to do.
    "loadBalancerAutoUnloadSplitBundlesEnabled": "false",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "loadBalancerReportUpdateMaxIntervalMinutes": "0.1",
    "statsUpdateFrequencyInSecs": "2",
    "loadManagerStorageSync": "never",
}
"""Short intervals, and figures that fit the demo's traffic."""


class Demo:
    """One run."""

    def __init__(
        self,
        pulsar_port: int,
        http_port: int,
        zookeeper_port: int,
        *,
        seconds: float | None,
        log: Path | None,
    ) -> None:
        self._ports = (pulsar_port, http_port, zookeeper_port)
        self._seconds, self._log = seconds, log
        self._web = f"http://{HOST}:{http_port}"
        self._admin = AdminClient(self._web, timeout_s=5)
        self._children: list[subprocess.Popen[bytes]] = []
        self._began_s = 0.0

    def run(self) -> int:
        """Run until Ctrl-C, or for that many seconds; returns the exit status."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="loadmanager-demo-"))
            log_path = self._log or Path(folder, "brokers.log")
            log = stack.enter_context(log_path.open("wb"))
            stack.callback(self._stop)
            signal.signal(signal.SIGTERM, _interrupt)
            try:
                self._start_cluster(Path(folder), log, log_path)
                self._start_clients(log)
                self._watch(log_path)
            except KeyboardInterrupt:
                self._say("Stopping the clients and the cluster.")
        return 0

    # Starting and stopping

    def _start_cluster(self, folder: Path, log: IO[bytes], log_path: Path) -> None:
        for first in self._ports[:2]:
            for port in range(first, first + BROKERS):
                require_free_port(HOST, port, PORT_ADVICE)
        click.echo("Three brokers start; that takes some seconds.")
        pulsar, http, zookeeper = map(str, self._ports)
        words = ["standalone", "--brokers", str(BROKERS), "--log-format", "json"]
        words += ["--pulsar-port", pulsar, "--http-port", http, "--zookeeper-port", zookeeper]
        words += ["--data-dir", str(folder / "data")]
        for key, text in SETTINGS.items():
            words += ["--set", f"{key}={text}"]
        cluster = self._child(["-m", "loadmanager.cli.demo.child", *words], log)
        until_s = time.monotonic() + READY_TIMEOUT_S
        while not self._ready():
            if cluster.poll() is not None:
                raise OperationalError(f"the brokers did not start:\n{_last_lines(log_path)}")
            if time.monotonic() > until_s:
                raise OperationalError(f"the brokers are not ready after {READY_TIMEOUT_S:g} s")
            time.sleep(0.3)
        for path, body in (
            (f"{V2}/tenants/demo", {"allowedClusters": ["standalone"]}),
            (f"{V2}/namespaces/{NAMESPACE}", {"bundles": {"numBundles": 1}}),
        ):
            self._admin.send("PUT", path, body)

    def _ready(self) -> bool:
        try:
            brokers = brokers_of(self._admin)
            return len(brokers) == BROKERS and bool(self._admin.get(f"{OWN}/cluster", ClusterShown))
        except LoadManagerError:
            return False

    def _start_clients(self, log: IO[bytes]) -> None:
        click.echo(f"\n  The page:  {self._web}/ui        (Ctrl-C ends the demo)\n")
        urls = ",".join(f"{HOST}:{self._ports[0] + number}" for number in range(BROKERS))
        self._child(["-m", "loadmanager.cli.demo.workload", f"pulsar://{urls}"], log)
        self._began_s = time.monotonic()
        self._say(f"Stock Pulsar clients publish to 16 topics of {NAMESPACE}, all in one bundle:")
        self._say("    one broker carries everything. Each broker claims a network of 30 Mbit/s.")
        self._say("    Look at: Brokers. One bar grows, two stay short.")

    def _child(self, arguments: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """A child that a Ctrl-C in the terminal does not reach: it is stopped in its turn."""
        child = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self._children.append(child)
        return child

    def _stop(self) -> None:
        for child in reversed(self._children):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
            try:
                child.wait(STOP_TIMEOUT_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                child.kill()
                child.wait()

    # Telling

    def _watch(self, log_path: Path) -> None:
        teller = Teller()
        until_s = float("inf") if self._seconds is None else self._began_s + self._seconds
        while time.monotonic() < until_s:
            for child in self._children:
                if child.poll() is not None:
                    raise OperationalError(f"a part of it ended:\n{_last_lines(log_path)}")
            with contextlib.suppress(LoadManagerError):  # the demo goes on when the leader changes
                for line in teller.lines(self._now_s(), *self._read_cluster()):
                    self._say(line)
            time.sleep(POLL_S)

    def _read_cluster(self) -> tuple[ClusterShown, list[DecisionShown]]:
        decisions = self._admin.get(f"{OWN}/decisions?limit=100", DecisionsShown).decisions
        return self._admin.get(f"{OWN}/cluster", ClusterShown), decisions

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _say(self, text: str) -> None:
        now_s = int(self._now_s()) if self._began_s else 0
        click.echo(f"  {now_s // 60}:{now_s % 60:02}  {text}")


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _last_lines(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-5:])
