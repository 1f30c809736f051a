"""Three ZooKeeper servers and three brokers, whose links can be cut.

Each server has a network namespace of its own, which needs root and iproute2. Packets between two
servers are lost where a route says so, in one direction or both. (Proxies between servers would not
do: servers tell each other where they listen.) Between each broker and each server is a proxy.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from clusters.processes import Fleet
from clusters.standalone import wait_for
from system.faults import spread, wait_served
from system.observer import Observer
from system.proxy import Proxy

from loadmanager.kit.zookeeper.java import _JVM, find_jars, find_java

SERVERS = range(3)
TICK_MS, SYNC_TICKS = 400, 5
START_S = 60.0
PORT = 2181
_CONFIG = """tickTime={tick}
initLimit=10
syncLimit={sync}
dataDir={data}
clientPort=2181
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=srvr,conf
"""


class NoRightsError(Exception):
    """Network namespaces cannot be made here; the text says why."""


def _ip(*arguments: str) -> None:
    """Run `ip`. Raises `NoRightsError`."""
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoRightsError("iproute2 is not installed") from None
    except subprocess.CalledProcessError as error:
        raise NoRightsError(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from None


class Network:
    """A namespace for each server, with a bridge to this one."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        number = next(self._numbers)
        self._name = f"lm{os.getpid() % 100_000}{chr(97 + number % 26)}"
        self._net = f"10.{97 + os.getpid() % 100}.{(os.getpid() // 100 + number) % 250}"
        self._made: list[tuple[str, ...]] = []

    def address(self, server: int) -> str:
        """The address of a server."""
        return f"{self._net}.{server + 1}"

    def namespace(self, server: int) -> str:
        """The name of its namespace."""
        return f"{self._name}-{server}"

    def start(self) -> None:
        """Raises `NoRightsError`."""
        try:
            self._start()
        except NoRightsError:
            self.stop()
            raise

    def _start(self) -> None:
        bridge = self._name
        _ip("link", "add", bridge, "type", "bridge")
        self._made.append(("link", "del", bridge))
        _ip("addr", "add", f"{self._net}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for server in SERVERS:
            inside, link = self.namespace(server), f"{self._name}v{server}"
            _ip("netns", "add", inside)
            self._made.append(("netns", "del", inside))
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", inside)
            self._made.append(("link", "del", link))
            _ip("link", "set", link, "master", bridge, "up")
            _ip("-n", inside, "addr", "add", f"{self.address(server)}/24", "dev", "eth0")
            _ip("-n", inside, "link", "set", "eth0", "up")
            _ip("-n", inside, "link", "set", "lo", "up")

    def stop(self) -> None:
        """Delete what was made."""
        for command in reversed(self._made):
            with contextlib.suppress(NoRightsError):
                _ip(*command)
        self._made.clear()

    def lose(self, one: int, other: int) -> None:
        """Lose what one server sends to another."""
        _ip("-n", self.namespace(one), "route", "add", "blackhole", self.address(other))

    def restore(self) -> None:
        """Lose nothing between servers."""
        for one, other in product(SERVERS, SERVERS):
            if one != other:
                with contextlib.suppress(NoRightsError):  # nothing was lost there
                    there = self.address(other)
                    _ip("-n", self.namespace(one), "route", "del", "blackhole", there)


class Ensemble:
    """The servers. Raises `NoRightsError` at the start."""

    def __init__(self, folder: Path, clients: int) -> None:
        self._folder = folder
        self.network = Network()
        self.client_links = {
            (broker, server): Proxy(PORT, host=self.network.address(server))
            for broker, server in product(range(clients), SERVERS)
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._open = contextlib.ExitStack()

    def start(self) -> None:
        """Start the servers, and wait until one leads."""
        self.network.start()
        for proxy in self.client_links.values():
            self._open.enter_context(proxy)
        java, jars = find_java(), os.pathsep.join(map(str, find_jars()))
        lines = "".join(
            f"server.{server + 1}={self.network.address(server)}:2888:3888\n" for server in SERVERS
        )
        for server in SERVERS:
            data = self._folder / f"zookeeper-{server}"
            data.mkdir(parents=True)
            (data / "myid").write_text(str(server + 1))
            config = data / "zoo.cfg"
            config.write_text(_CONFIG.format(tick=TICK_MS, sync=SYNC_TICKS, data=data) + lines)
            command = ["ip", "netns", "exec", self.network.namespace(server), str(java), *_JVM]
            command += ["-Xmx128m", "-cp", jars]
            command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
            with (data / "out").open("wb") as out:
                self._processes.append(subprocess.Popen(command, stdout=out, stderr=out))
        wait_for(lambda: self.leader() is not None, "the servers have a leader", START_S)

    def stop(self) -> None:
        """Stop all."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._open.close()
        self.network.stop()

    def mode(self, server: int) -> str:
        """`leader`, `follower`, or empty."""
        with contextlib.suppress(OSError):
            with socket.create_connection((self.network.address(server), PORT), 1) as asking:
                asking.sendall(b"srvr")
                text = asking.recv(4096).decode()
            return text.partition("Mode: ")[2].split("\n")[0]
        return ""

    def leader(self) -> int | None:
        """The server that leads, once a majority is with it."""
        modes = [self.mode(server) for server in SERVERS]
        followers = sum(mode == "follower" for mode in modes)
        return modes.index("leader") if "leader" in modes and followers == 2 else None

    def cut_off(self, server: int) -> None:
        """Lose what a server and the others send to each other."""
        for other in SERVERS:
            if other != server:
                self.network.lose(server, other)
                self.network.lose(other, server)

    def restore(self) -> None:
        """Mend all links, and wait until all servers are together."""
        self.network.restore()
        for proxy in self.client_links.values():
            proxy.restore()
        wait_for(lambda: self.leader() is not None, "the servers are together", START_S)


class EnsembleFleet(Fleet):
    """Brokers that store topics in a shared folder, with an ensemble of their own."""

    def __init__(self, folder: Path, *, session_s: float) -> None:
        stored = {"loadManagerStorageDirectory": str(folder / "topics")}
        super().__init__(folder, session_s=session_s, settings=stored)
        self.ensemble = Ensemble(folder, self.count)

    def start_zookeeper(self) -> None:
        """Start the ensemble."""
        self.ensemble.start()

    def settings(self, index: int) -> dict[str, str]:
        """A broker knows each server by a proxy of its own."""
        ports = [self.ensemble.client_links[index, server].port for server in SERVERS]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return {**super().settings(index), "metadataStoreUrl": f"zk:{hosts}"}

    def _stop_all(self) -> None:
        super()._stop_all()
        self.ensemble.stop()


@dataclass(frozen=True, slots=True)
class Cut:
    """The figures of one partition."""

    name: str
    lasted_s: float
    pause_s: float
    """The longest time without a receipt of one stored topic."""
    twice: list[str] = field(default_factory=list)
    """Entries with receipts of two brokers."""
    stopped: int = 0
    """Brokers that stopped serving everything."""


def _hold(proxies: Iterable[Proxy]) -> None:
    for proxy in proxies:
        proxy.hold()


def leader_isolated(fleet: EnsembleFleet) -> None:
    """The leader of ZooKeeper reaches no other server; brokers reach all."""
    leader = fleet.ensemble.leader()
    assert leader is not None
    fleet.ensemble.cut_off(leader)


def halves(fleet: EnsembleFleet) -> None:
    """The leader of ZooKeeper is alone with one broker, the others with the other two."""
    leader = fleet.ensemble.leader()
    assert leader is not None
    fleet.ensemble.cut_off(leader)
    for (broker, server), proxy in fleet.ensemble.client_links.items():
        if (broker == 0) != (server == leader):
            proxy.hold()


def server_silent(fleet: EnsembleFleet) -> None:
    """A follower is silent to everybody, as a machine that lost its power."""
    ensemble = fleet.ensemble
    follower = next(server for server in SERVERS if ensemble.mode(server) == "follower")
    ensemble.cut_off(follower)
    _hold(proxy for (_, server), proxy in ensemble.client_links.items() if server == follower)


def one_way(fleet: EnsembleFleet) -> None:
    """What the leader of ZooKeeper sends to its followers is lost; what they send arrives."""
    leader = fleet.ensemble.leader()
    assert leader is not None
    for other in SERVERS:
        if other != leader:
            fleet.ensemble.network.lose(leader, other)


def slow(fleet: EnsembleFleet) -> None:
    """Between brokers and ZooKeeper everything takes 200 ms, in each direction."""
    for proxy in fleet.ensemble.client_links.values():
        proxy.delay_s = 0.2


TAKEN_OVER = ("halves-taken",)
"""In which clients ask for topics whose owner serves them, but looks dead."""
LOOKUPS = 10
CUTS: dict[str, Callable[[EnsembleFleet], None]] = {
    "leader-isolated": leader_isolated,
    "halves": halves,
    "halves-taken": halves,
    "server-silent": server_silent,
    "one-way": one_way,
    "slow": slow,
}


def cut(name: str, fleet: EnsembleFleet, observer: Observer, lasts_s: float) -> Cut:
    """Do one partition, mend it, and wait until every topic is served."""
    spread(fleet, observer)
    before = _stopped(fleet)
    began_s = time.monotonic()
    CUTS[name](fleet)
    time.sleep(lasts_s / 2)
    if name in TAKEN_OVER:
        for _ in range(LOOKUPS):
            observer.look_up_everything()
            time.sleep(lasts_s / 2 / LOOKUPS)
    else:
        time.sleep(lasts_s / 2)
    fleet.ensemble.restore()
    ended_s = time.monotonic()
    wait_served(observer, ended_s)
    until_s = time.monotonic()
    return Cut(
        name,
        ended_s - began_s,
        observer.longest_pause_s(began_s, until_s),
        list(observer.doubled),
        _stopped(fleet) - before,
    )


def _stopped(fleet: Fleet) -> int:
    logs = (fleet.log_of(f"broker-{index}").read_text() for index in range(fleet.count))
    return sum(text.count('"event": "stopped serving"') for text in logs)
