"""A cluster on one machine: starts, watches and stops the embedded ZooKeeper and the brokers."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadmanager.adapters.files.properties import read_properties
from loadmanager.adapters.zookeeper.embedded import STATUS_OUT_OF_MEMORY, EmbeddedZooKeeper
from loadmanager.core.errors import ConfigError, OperationalError
from loadmanager.runtime.tasks import Scope, sleep
from loadmanager.wiring.initialize import initialize_cluster

READY_TIMEOUT_S = 60.0
STOP_MARGIN_S = 5.0
RESTART_FIRST_S, RESTART_MAX_S = 0.5, 60.0
"""A process that died is started again after this, doubled with each death in a row."""
STEADY_S = 60.0
"""A process that lived so long has no deaths in a row."""
LOOK_S = 0.2
"""How often to look whether ZooKeeper runs."""
LOCK = "standalone.lock"
HOST = "127.0.0.1"
PORTS = 1 << 16
STATUS_KILLED = 128 + signal.SIGKILL
"""The status that a shell gives to a killed process; the embedded ZooKeeper runs in a shell."""
NAMESPACE = "public/default"
NAMESPACE_BUNDLES = 16

DEFAULTS = {
    "clusterName": "standalone",
    "bindAddress": HOST,
    "advertisedAddress": HOST,
    # The brokers share the machine: each reports its own usage of the one core that it can use.
    "loadBalancerSamplingScope": "process",
    "metadataStoreSessionTimeoutMillis": "6000",
    # Whoever tries out a cluster wants to see it react.
    "loadBalancerHostUsageCheckIntervalMinutes": "0.05",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "statsUpdateFrequencyInSecs": "5",
    "brokerShutdownTimeoutMs": "10000",
}
"""Other defaults than those of broker.conf; a config file and --set override them."""


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
    restart: bool = True
    """Start a broker or ZooKeeper again when it dies."""


def run_standalone(options: StandaloneOptions) -> int:
    """Run until SIGINT or SIGTERM; returns the exit status.

    Raises `ConfigError` or `OperationalError` when it cannot start.
    """
    return asyncio.run(_Standalone(options).run())


class _Deaths:
    """How often a process died in a row, and how long to wait before it is started again."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self._since_s = time.monotonic()

    def started(self) -> None:
        """The process was started now."""
        self._since_s = time.monotonic()

    def wait_s(self) -> float:
        """The process died now; returns how long to wait before it is started again."""
        self.in_a_row = 1 if time.monotonic() - self._since_s >= STEADY_S else self.in_a_row + 1
        return min(RESTART_FIRST_S * 2.0 ** min(self.in_a_row - 1, 30), RESTART_MAX_S)

    def __str__(self) -> str:
        return "" if self.in_a_row < 2 else f", for the {self.in_a_row}. time in a row"


class _Standalone:
    def __init__(self, options: StandaloneOptions) -> None:
        self._options = options
        self._brokers: list[asyncio.subprocess.Process] = []
        self._signals = 0
        self._status = 0
        self._ready_count = 0
        self._settled = asyncio.Event()
        """All brokers are ready, or the start has failed."""
        self._ended = asyncio.Event()

    async def run(self) -> int:
        started_s = time.monotonic()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        with _locked(self._options.data_dir):
            self._check_ports()
            zookeeper = EmbeddedZooKeeper(
                port=self._options.zookeeper_port, data_dir=self._options.data_dir / "zookeeper"
            )
            async with zookeeper:
                try:
                    return await self._serve(zookeeper, started_s)
                finally:
                    await self._stop_brokers()

    async def _serve(self, zookeeper: EmbeddedZooKeeper, started_s: float) -> int:
        await initialize_cluster(self._settings(0), {NAMESPACE: NAMESPACE_BUNDLES})
        with (
            tempfile.TemporaryDirectory(prefix="loadmanager-") as folder,
            _notify_socket(Path(folder, "notify")) as ready,
        ):
            for index in range(self._options.brokers):
                self._brokers.append(await self._start_broker(index, Path(folder, "notify")))
            async with Scope("standalone") as scope:
                for index in range(len(self._brokers)):
                    scope.spawn(
                        self._watch_broker(index, Path(folder, "notify")), f"broker-{index}"
                    )
                scope.spawn(self._watch_zookeeper(zookeeper), "zookeeper")
                scope.spawn(self._count_ready(ready), "ready")
                await self._wait_until_ready()
                if not self._ended.is_set():
                    self._print_welcome(time.monotonic() - started_s)
                await self._ended.wait()
                scope.cancel()
        return self._status

    async def _watch_broker(self, index: int, notify: Path) -> None:
        """Start a broker again when it dies; a broker that was told to stop ends with status 0."""
        deaths = _Deaths()
        while True:
            status = await self._brokers[index].wait()
            if self._signals:
                return
            started = self._ready_count >= len(self._brokers)
            if status == 0 or not started or not self._options.restart:
                _say(f"broker {index} {_how(status)}; Ctrl-C stops the others.")
                if not started or all(other.returncode is not None for other in self._brokers):
                    self._status = 1
                    self._end()
                return
            wait_s = deaths.wait_s()
            _say(
                f"broker {index} {_how(status)}{deaths}. It starts again in {wait_s:g} s. Ctrl-C "
                "stops everything."
            )
            await sleep(wait_s)
            self._brokers[index] = await self._start_broker(index, notify)
            deaths.started()

    async def _watch_zookeeper(self, zookeeper: EmbeddedZooKeeper) -> None:
        """Start ZooKeeper again over its data when it dies; the brokers wait for it meanwhile."""
        deaths = _Deaths()
        while True:
            while zookeeper.running:
                await sleep(LOOK_S)
            wait_s = deaths.wait_s()
            _say(f"ZooKeeper ended with status {zookeeper.status}{deaths}. {_advice(zookeeper)}")
            if not self._options.restart:
                return
            _say(
                f"ZooKeeper starts again over the same data in {wait_s:g} s. Ctrl-C "
                "stops everything."
            )
            await sleep(wait_s)
            try:
                await asyncio.to_thread(zookeeper.restart)
            except OperationalError as error:
                _say(f"ZooKeeper did not start: {error}")
                continue
            deaths.started()
            _say("ZooKeeper answers again.")

    async def _count_ready(self, ready: socket.socket) -> None:
        """Count the brokers that send READY=1, as they do to systemd."""
        loop = asyncio.get_running_loop()
        while True:
            state = await loop.sock_recv(ready, 1024)
            self._ready_count += state == b"READY=1"
            if self._ready_count >= len(self._brokers):
                self._settled.set()

    async def _wait_until_ready(self) -> None:
        """Wait until all brokers are ready or the start has failed. Raises `OperationalError`."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._settled.wait()
        except TimeoutError:
            raise OperationalError(
                f"the brokers did not become ready within {READY_TIMEOUT_S:g} s; their logs say why"
            ) from None

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
        wanted = [options.pulsar_port + i for i in range(options.brokers)] + [
            options.http_port + i for i in range(options.brokers)
        ]
        ports = [*wanted, options.zookeeper_port]
        for port in ports:
            if not 0 < port < PORTS:
                raise ConfigError(
                    f"port {port}: 1 to {PORTS - 1} is allowed; choose another --pulsar-port, "
                    "--http-port or --zookeeper-port (broker i takes the first two plus i)"
                )
            if ports.count(port) > 1:
                raise ConfigError(
                    f"port {port} is needed twice; choose another --pulsar-port, --http-port or "
                    "--zookeeper-port (broker i takes the first two plus i)"
                )
        for port in wanted:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise OperationalError(
                        f"port {port}: {error.strerror}; is another cluster running? Choose "
                        "others with --pulsar-port, --http-port"
                    ) from None

    async def _start_broker(self, index: int, notify: Path) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "loadmanager", "broker", "--stop-with-parent"]
        for key, text in self._settings(index).items():
            command += ["--set", f"{key}={text}"]
        if self._options.log_format:
            command += ["--log-format", self._options.log_format]
        # A session of its own: Ctrl-C in the terminal reaches only this process, which then stops
        # the brokers.
        return await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, "NOTIFY_SOCKET": str(notify)},
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
        )

    def _print_welcome(self, seconds: float) -> None:
        options = self._options
        pulsar = ",".join(f"{HOST}:{options.pulsar_port + i}" for i in range(options.brokers))
        web = f"http://{HOST}:{options.http_port}"
        brokers = "\n".join(
            f"  broker {i}    pulsar://{HOST}:{options.pulsar_port + i}    "
            f"http://{HOST}:{options.http_port + i}"
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
            async with asyncio.timeout(timeout_s):
                await _ended(alive)
        except TimeoutError:
            for broker in alive:
                with contextlib.suppress(ProcessLookupError):
                    broker.kill()
            await _ended(alive)


async def _ended(brokers: list[asyncio.subprocess.Process]) -> None:
    for broker in brokers:
        await broker.wait()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _how(status: int) -> str:
    """How a process ended; a killed one had no time to log the reason."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}" + ("; its log lines above say why" if status else "")


def _advice(zookeeper: EmbeddedZooKeeper) -> str:
    """Why ZooKeeper died, and what the operator can do."""
    if zookeeper.status == STATUS_OUT_OF_MEMORY:
        return (
            f"Its {zookeeper.heap_mb} MB of memory are full: delete unused namespaces, topics or "
            "subscriptions, or run a ZooKeeper of your own and brokers with "
            "metadataStoreUrl=zk:host:port."
        )
    if zookeeper.status == STATUS_KILLED:
        return (
            "It was killed (SIGKILL): by a person, or by the kernel for lack of memory; dmesg "
            "tells which."
        )
    return f"Its last lines: {zookeeper.last_words()}"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the data directory. The lock ends with the process, however that ends.

    Raises `OperationalError` if another cluster holds it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / LOCK).open("a+")
    except OSError as error:
        raise OperationalError(
            f"{folder} cannot be written: {error.strerror}; choose another --data-dir"
        ) from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise OperationalError(
                f"{folder} is in use by {holder}: stop that cluster first, or choose "
                "another --data-dir"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} (loadmanager standalone)\n")
        file.flush()
        yield


@contextlib.contextmanager
def _notify_socket(path: Path) -> Iterator[socket.socket]:
    """The socket to which brokers report that they are ready, in systemd's notify protocol."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.setblocking(False)
        yield server
