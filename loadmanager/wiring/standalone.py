"""A whole cluster on one machine: the embedded ZooKeeper and broker processes, started, watched and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadmanager.adapters.zookeeper.embedded import EmbeddedZooKeeper
from loadmanager.core.errors import ConfigError, OperationalError
from loadmanager.runtime.tasks import Scope
from loadmanager.settings import read_properties
from loadmanager.wiring.initialize import initialize_cluster

READY_TIMEOUT_S = 60.0
STOP_MARGIN_S = 5.0
HOST = "127.0.0.1"
NAMESPACE = "public/default"
NAMESPACE_BUNDLES = 16

DEFAULTS = {
    "clusterName": "standalone",
    "bindAddress": HOST,
    "advertisedAddress": HOST,
    # Brokers of one machine share its CPU and its NIC: each reports what it uses itself, of the one core that its loop can use.
    "loadBalancerSamplingScope": "process",
    "metadataStoreSessionTimeoutMillis": "6000",
    # A cluster that one tries out should react while one looks at it.
    "loadBalancerHostUsageCheckIntervalMinutes": "0.05",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "statsUpdateFrequencyInSecs": "5",
    "brokerShutdownTimeoutMs": "10000",
}
"""What standalone changes of the defaults; a config file or --set has the last word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneOptions:
    """What to start, and where it listens: broker i on `pulsar_port + i` and `http_port + i`."""

    brokers: int
    pulsar_port: int
    http_port: int
    zookeeper_port: int
    data_dir: Path
    config: Path | None
    overrides: Mapping[str, str]
    log_format: str | None


def run_standalone(options: StandaloneOptions) -> int:
    """Run until SIGINT or SIGTERM; returns the exit status. Raises `ConfigError` or `OperationalError` when it cannot start."""
    return asyncio.run(_Standalone(options).run())


class _Standalone:
    def __init__(self, options: StandaloneOptions) -> None:
        self._options = options
        self._brokers: list[asyncio.subprocess.Process] = []
        self._signals = 0
        self._status = 0
        self._ready_count = 0
        self._settled = asyncio.Event()
        """All brokers are ready, or the attempt is over."""
        self._ended = asyncio.Event()

    async def run(self) -> int:
        started_s = time.monotonic()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        self._check_ports()
        self._options.data_dir.mkdir(parents=True, exist_ok=True)
        async with EmbeddedZooKeeper(port=self._options.zookeeper_port, data_dir=self._options.data_dir / "zookeeper"):
            try:
                return await self._serve(started_s)
            finally:
                await self._stop_brokers()

    async def _serve(self, started_s: float) -> int:
        await initialize_cluster(self._settings(0), {NAMESPACE: NAMESPACE_BUNDLES})
        with tempfile.TemporaryDirectory(prefix="loadmanager-") as folder, _notify_socket(Path(folder, "notify")) as ready:
            for index in range(self._options.brokers):
                self._brokers.append(await self._start_broker(index, Path(folder, "notify")))
            async with Scope("standalone") as scope:
                for index, broker in enumerate(self._brokers):
                    scope.spawn(self._watch_broker(index, broker), f"broker-{index}")
                scope.spawn(self._count_ready(ready), "ready")
                await self._wait_until_ready()
                if not self._ended.is_set():
                    self._print_welcome(time.monotonic() - started_s)
                await self._ended.wait()
                scope.cancel()
        return self._status

    async def _watch_broker(self, index: int, broker: asyncio.subprocess.Process) -> None:
        """A broker that ends by itself is told of; the cluster goes on while one lives, as a cluster should."""
        status = await broker.wait()
        if self._signals:
            return
        print(f"broker {index} ended with status {status}; Ctrl-C stops the others.", file=sys.stderr, flush=True)
        started = self._ready_count >= len(self._brokers)
        if not started or all(other.returncode is not None for other in self._brokers):
            self._status = 1
            self._end()

    async def _count_ready(self, ready: socket.socket) -> None:
        """Each broker says READY=1 as it would to systemd."""
        loop = asyncio.get_running_loop()
        while True:
            said = await loop.sock_recv(ready, 1024)
            self._ready_count += said == b"READY=1"
            if self._ready_count >= len(self._brokers):
                self._settled.set()

    async def _wait_until_ready(self) -> None:
        """Until all brokers are ready, or something ended the attempt."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._settled.wait()
        except TimeoutError:
            raise OperationalError(f"the brokers did not become ready within {READY_TIMEOUT_S:g} s; their logs say why") from None

    def _end(self) -> None:
        self._ended.set()
        self._settled.set()

    def _on_signal(self) -> None:
        self._signals += 1
        self._end()
        if self._signals > 1:
            for broker in self._brokers:
                with contextlib.suppress(ProcessLookupError):
                    broker.kill()

    def _settings(self, index: int) -> dict[str, str]:
        options = self._options
        given = read_properties(options.config) if options.config else {}
        return {
            **DEFAULTS,
            "loadManagerHistoryDirectory": str(options.data_dir / "history"),
            **given,
            **options.overrides,
            "metadataStoreUrl": f"zk:{HOST}:{options.zookeeper_port}",
            "brokerServicePort": str(options.pulsar_port + index),
            "webServicePort": str(options.http_port + index),
        }

    def _check_ports(self) -> None:
        options = self._options
        wanted = [options.pulsar_port + i for i in range(options.brokers)] + [options.http_port + i for i in range(options.brokers)]
        if len({*wanted, options.zookeeper_port}) != len(wanted) + 1:
            raise ConfigError("the ports overlap: choose other --pulsar-port, --http-port or --zookeeper-port")
        for port in wanted:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise OperationalError(
                        f"port {port}: {error.strerror}; is another cluster running? Choose others with --pulsar-port, --http-port"
                    ) from None

    async def _start_broker(self, index: int, notify: Path) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "loadmanager", "broker", "--stop-with-parent"]
        for key, text in self._settings(index).items():
            command += ["--set", f"{key}={text}"]
        if self._options.log_format:
            command += ["--log-format", self._options.log_format]
        # An own session: the terminal's Ctrl-C reaches this process alone, which then stops the brokers in order.
        return await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "NOTIFY_SOCKET": str(notify)}, start_new_session=True, stdin=asyncio.subprocess.DEVNULL
        )

    def _print_welcome(self, seconds: float) -> None:
        options = self._options
        pulsar = ",".join(f"{HOST}:{options.pulsar_port + i}" for i in range(options.brokers))
        web = f"http://{HOST}:{options.http_port}"
        brokers = "\n".join(
            f"  broker {i}    pulsar://{HOST}:{options.pulsar_port + i}    http://{HOST}:{options.http_port + i}"
            for i in range(options.brokers)
        )
        print(
            f"""
loadmanager is ready after {seconds:.1f} s.

  ZooKeeper   {HOST}:{options.zookeeper_port}
{brokers}

Try in a second terminal:
  .venv/bin/loadmanager admin --url {web} bundles list
  curl {web}/lookup/v2/topic/persistent/public/default/my-topic
  curl {web}/admin/v2/brokers/leaderBroker
  stock Pulsar clients: pulsar://{pulsar}   (README.md has a ten-line example)

Ctrl-C stops everything.
""",
            flush=True,
        )

    async def _stop_brokers(self) -> None:
        alive = [broker for broker in self._brokers if broker.returncode is None]
        for broker in alive:
            with contextlib.suppress(ProcessLookupError):
                broker.terminate()
        timeout_s = float(self._settings(0)["brokerShutdownTimeoutMs"]) / 1000 + STOP_MARGIN_S
        try:
            await asyncio.wait_for(asyncio.gather(*(broker.wait() for broker in alive)), timeout_s)
        except TimeoutError:
            for broker in alive:
                with contextlib.suppress(ProcessLookupError):
                    broker.kill()
            await asyncio.gather(*(broker.wait() for broker in alive))


@contextlib.contextmanager
def _notify_socket(path: Path) -> Iterator[socket.socket]:
    """The datagram socket on which brokers report readiness (systemd's notify protocol)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.setblocking(False)
        yield server
