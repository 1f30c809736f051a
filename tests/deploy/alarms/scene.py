"""A small cluster, its traffic and a daemon beside a fake Pulsar, all of which can be harmed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pulsar
from clusters.processes import NAMESPACE, Fleet
from clusters.standalone import wait_for
from deploy.alarms.quicker import Alerts
from ports import free_ports
from steer.fake_pulsar import FakePulsar, a_pulsar

from loadmanager.broker.storage.writers import WRITERS

ROOT = Path(__file__).parents[3]
SESSION_S = 5.0
STRAY = 3
"""The index of a broker that is no member of the cluster and has its name."""
DISK = "200m"
"""Each broker reserves some megabytes for its topics."""
LOOKUPS = 60
"""So many topics hit all but few bundles."""
REQUEST = b"GET /admin/v2/brokers/version HTTP/1.1\r\nHost: x\r\n"
REQUESTS = (REQUEST + b"\r\n") * 20_000 + REQUEST + b"Connection: close\r\n\r\n"
VALUES = {
    "loadManagerExpectedBrokers": "3",
    "exposeBundlesMetricsInPrometheus": "true",
    "loadBalancerHostUsageCheckIntervalMinutes": "0.02",
    "loadBalancerOverrideBrokerNicSpeedGbps": "0.01",
    "loadBalancerReportUpdateMaxIntervalMinutes": "0.05",
    "loadManagerMovesTimeoutInSeconds": "60",
    "loadManagerMovesPerSourceMax": "16",
    "loadManagerMovesPerDestinationMax": "16",
}


class Harmed(Fleet):
    """Three brokers with topics on a small disk that they share; `own` are settings of single ones,
    from their next start on. There is room for a stray one.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, room=1, bundles=24, session_s=SESSION_S, settings=VALUES)
        self.own: dict[int, dict[str, str]] = {}
        self.disk = folder / "disk"
        self.disk.mkdir()

    def settings(self, index: int) -> dict[str, str]:
        """Those of a broker: without the link that can be cut."""
        return {
            **super().settings(index),
            "metadataStoreUrl": f"zk:127.0.0.1:{self.zookeeper.port}",
            "loadManagerStorageDirectory": str(self.disk / "topics"),
            **self.own.get(index, {}),
        }

    def history(self, index: int) -> Path:
        """On the small disk, too."""
        return self.disk / f"history-{index}"

    def writers(self) -> set[Path]:
        """The locks of folders with journals."""
        return set((self.disk / "topics" / WRITERS).glob("*/lock"))

    def restarted(self, index: int, **own: str) -> None:
        """Restart a broker with these settings of its own."""
        self.own[index] = own
        self.terminate(index)
        self.start(index)

    def admin(self, *words: str) -> None:
        """An operator's command, by a broker that answers."""
        done = order(f"http://{self.broker_id(0)}", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def plant_bug(self) -> None:
        """Have each broker fail at whatever its present clients ask next."""
        for index in range(self.count):
            self.signal(index, signal.SIGUSR2)

    def write(self, path: str, data: bytes | None) -> None:
        """Write a node, as somebody who does not know what belongs there; None: delete it."""

        def work(shell: object) -> None:
            if data is None:
                shell.delete(path)  # type: ignore[attr-defined]
            else:
                shell.ensure_path(path)  # type: ignore[attr-defined]
                shell.set(path, data)  # type: ignore[attr-defined]

        self._with_zookeeper(work)

    def _client(self, index: int) -> pulsar.Client:
        log = pulsar.FileLogger(pulsar.LoggerLevel.Error, str(self.folder / "clients.log"))
        return pulsar.Client(self.service_url(index), logger=log)

    @contextlib.contextmanager
    def sending(self, topic: str, size: int, pause_s: float, index: int = 0) -> Iterator[None]:
        """Somebody publishes to a topic all the time, and stops."""
        stop = threading.Event()

        def send() -> None:
            client = self._client(index)
            try:
                producer = client.create_producer(
                    topic, block_if_queue_full=True, send_timeout_millis=0, batching_enabled=False
                )
                while not stop.wait(pause_s):
                    producer.send_async(b"x" * size, callback=None)
            finally:
                client.close()

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Somebody reads a topic from its beginning."""
        client = self._client(0)
        try:
            client.subscribe(name, "s", initial_position=pulsar.InitialPosition.Earliest)
            yield
        finally:
            client.close()

    def leads_not(self, index: int) -> bool:
        """True if another broker leads."""
        return self.leader() != index

    def spread_out(self) -> dict[int, list[str]]:
        """Have bundles owned, the same number by each broker; gives whose they are."""
        for number in range(LOOKUPS):
            self.owner_of(topic(f"spread-{number}"))
        every = sorted(set().union(*(self.owned(index) for index in range(self.count))))
        for number, name in enumerate(every):
            self.move(name, number % self.count)
        return {index: sorted(self.owned(index)) for index in range(self.count)}

    def order_move(self, bundle: str, to: int, *, by: int | None = None) -> None:
        """Order a move by a broker, which is `to` unless it is given. The answer, which comes when
        it has ended, is left to the one who asked.
        """

        def ask() -> None:
            body = {"bundle": bundle, "destination": self.broker_id(to)}
            with contextlib.suppress(OSError):
                self.request(to if by is None else by, "POST", "/loadmanager/v1/moves", body)

        threading.Thread(target=ask, daemon=True).start()

    def ask(self, path: str, index: int = 0) -> None:
        """Ask a broker, whatever it answers."""
        with contextlib.suppress(OSError):
            self.request(index, "GET", path)


def order(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """An operator's command."""
    command = [sys.executable, "-m", "loadmanager", "admin", *words, "--url", url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def again(work: Callable[[], None], pause_s: float, threads: int = 1) -> Iterator[None]:
    """Somebody does this again and again."""
    stop = threading.Event()

    def go() -> None:
        while not stop.wait(pause_s):
            work()

    workers = [threading.Thread(target=go, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join(30)


def knock(address: tuple[str, int]) -> None:
    """Connect, and leave."""
    with contextlib.suppress(OSError):
        socket.create_connection(address, timeout=5).close()


def flood(address: tuple[str, int]) -> None:
    """Ask a broker many times at once by one connection, and read the answers."""
    answers = bytearray(1 << 20)
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=30) as connection:
        connection.sendall(REQUESTS)
        while connection.recv_into(answers):
            time.sleep(0.2)  # many answers at a time: the broker shall be busy, not this


def topic(name: str) -> str:
    """A stored topic of the cluster's namespace."""
    return f"persistent://{NAMESPACE}/{name}"


class Daemon:
    """`loadmanager fleet` beside a fake Pulsar."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._socket = folder, folder / "api.sock"
        folder.mkdir()
        self.port = free_ports(1)
        self._loop = asyncio.new_event_loop()
        self.pulsar: FakePulsar
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Daemon:
        ready = threading.Event()
        threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(ready))).start()
        assert ready.wait(30)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    async def _serve(self, ready: threading.Event) -> None:
        self._end = asyncio.Event()
        async with a_pulsar(5) as self.pulsar:
            self.pulsar.spread([4, 3, 3, 3, 3])
            self.pulsar.switch_off()
            ready.set()
            await self._end.wait()

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._loop.call_soon_threadsafe(self._end.set)

    def start(self) -> None:
        """Start the daemon."""
        command = [sys.executable, "-m", "loadmanager", "fleet", "--pulsar", self.pulsar.url()]
        command += ["--mode", "act", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--data-dir", str(self._folder / "data"), "--set", "readIntervalSeconds=2"]
        command += ["--set", "policiesIntervalSeconds=4", "--set", f"apiSocket={self._socket}"]
        with (self._folder / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        wait_for(self._answers, "the daemon answers", 120)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5).close()
            return True
        return False

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def admin(self, *words: str) -> None:
        """An operator's command, whatever comes of it."""
        order(f"unix:{self._socket}", *words)

    def do(self, work: Callable[[FakePulsar], object]) -> None:
        """Change Pulsar, in its thread."""
        done = threading.Event()

        def run() -> None:
            work(self.pulsar)
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(30)


class Scene:
    """All of it, and a Prometheus with the quicker rules."""

    def __init__(self, fleet: Harmed, daemon: Daemon, alerts: Alerts, folder: Path) -> None:
        self.fleet = fleet
        self.daemon = daemon
        self.alerts = alerts
        self.folder = folder


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """What is started meanwhile has these variables."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[str]:
    """A disk of its own there, if that is permitted; gives why it is not."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, check=False, capture_output=True, text=True)
        why_not = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        why_not = str(error)
    try:
        yield why_not
    finally:
        if not why_not:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


STOP, GO = signal.SIGSTOP, signal.SIGCONT
