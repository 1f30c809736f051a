"""A real Pulsar of several brokers on this machine: one ZooKeeper, one bookie, small heaps."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusters.standalone import wait_for
from ports import free_ports

READY_TIMEOUT_S = 300.0
LOGGING = Path(__file__).parents[1] / "clients" / "broker" / "log4j2.xml"
MANAGERS = {
    "modular": {},
    "extensible": {
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions."
        "ExtensibleLoadManagerImpl",
        "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.extensions."
        "scheduler.TransferShedder",
    },
}
SMALL = "-Xms64m -Xmx128m -XX:MaxDirectMemorySize=64m"
SPANS = 8
NAMESPACE = "acme/shop"
CPU_GROUPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup/cpu"))
"""Where control groups that count and limit CPU are made (version 1)."""
IN_GROUPS = (
    "sh",
    "-c",
    'echo $$ > "$0/cgroup.procs"; echo $$ > "$1/cgroup.procs"; shift; exec "$@"',
)


@dataclass
class RealPulsar:
    """The running cluster."""

    home: Path
    """Pulsar's distribution."""
    folder: Path
    manager: str
    brokers: int = 3
    later: int = 0
    """So many of these brokers are not started with the others."""
    cores: float = 0.0
    """So many cores has each broker, in control groups, whose CPU it then reports; 0: they all
    report that of the machine. Needs the right to make groups in `CPU_GROUPS`.
    """
    settings: dict[str, str] = field(default_factory=dict)
    """Further keys of broker.conf."""
    bundles: int = SPANS
    broker_home: Path | None = None
    """Where the brokers have their programs; None: in `home`, as ZooKeeper and the bookie do."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Choose the ports."""
        first = free_ports(3 + 2 * self.brokers)
        self.zookeeper, self.bookie, self.stats = first, first + 1, first + 2
        self.web = [first + 3 + number for number in range(self.brokers)]
        self.binary = [first + 3 + self.brokers + number for number in range(self.brokers)]

    def url(self, index: int = 0) -> str:
        """The admin API of a broker."""
        return f"http://127.0.0.1:{self.web[index]}"

    @property
    def service_url(self) -> str:
        """For clients: all brokers."""
        return "pulsar://" + ",".join(f"127.0.0.1:{port}" for port in self.binary)

    def broker(self, index: int) -> str:
        """Its id."""
        return f"127.0.0.1:{self.web[index]}"

    def start(self) -> None:
        """Start everything, and make the namespace."""
        for name in ("conf", "logs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._write("zookeeper.conf", ZOOKEEPER, port=self.zookeeper)
        self._write("bookkeeper.conf", BOOKIE, port=self.bookie, zookeeper=self.zookeeper)
        self.start_zookeeper()
        store = f"zk:127.0.0.1:{self.zookeeper}"
        subprocess.run(
            [
                "bin/pulsar", "initialize-cluster-metadata", "--cluster", "c1",
                "--metadata-store", store, "--configuration-metadata-store", store,
                "--web-service-url", self.url(),
                "--broker-service-url", f"pulsar://127.0.0.1:{self.binary[0]}",
            ],
            cwd=self.home,
            env=self._environment(PULSAR_MEM=SMALL),
            check=True,
            capture_output=True,
            timeout=READY_TIMEOUT_S,
        )  # fmt: skip
        memory = "-Xms64m -Xmx256m -XX:MaxDirectMemorySize=256m"
        conf = self._conf("bookkeeper")
        self._run("bookie", ["bookie"], BOOKIE_MEM=memory, PULSAR_BOOKKEEPER_CONF=conf)
        self._wait_port(self.bookie)
        first = range(self.brokers - self.later)
        for index in first:
            self.start_broker(index)
        for index in first:
            self.wait_broker(index)
        self.request("PUT", "tenants/acme", {"allowedClusters": ["c1"], "adminRoles": []})
        self.request("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": self.bundles}})

    def start_zookeeper(self) -> None:
        """Start ZooKeeper, and wait until it listens."""
        conf = self._conf("zookeeper")
        self._run("zookeeper", ["zookeeper"], PULSAR_MEM=SMALL, PULSAR_ZK_CONF=conf)
        self._wait_port(self.zookeeper)

    def start_broker(self, index: int) -> None:
        """Start one broker."""
        keys = {
            "metadataStoreUrl": f"zk:127.0.0.1:{self.zookeeper}",
            "configurationMetadataStoreUrl": f"zk:127.0.0.1:{self.zookeeper}",
            "brokerServicePort": str(self.binary[index]),
            "webServicePort": str(self.web[index]),
            **BROKER,
            **MANAGERS[self.manager],
            **self.settings,
        }
        home = self.broker_home or self.home
        conf = (home / "conf" / "broker.conf").read_text()
        path = self.folder / "conf" / f"broker{index}.conf"
        path.write_text(conf + "\n" + "\n".join(f"{key}={text}" for key, text in keys.items()))
        memory = "-Xms128m -Xmx384m -XX:MaxDirectMemorySize=384m"
        environment = {"PULSAR_BROKER_CONF": str(path), "PULSAR_LOG_CONF": str(LOGGING)}
        self._run(f"broker{index}", ["broker"], home, PULSAR_MEM=memory, **environment)

    def wait_broker(self, index: int) -> None:
        """Wait until a broker is ready."""
        wait_for(lambda: self._ready(index), f"broker {index} is ready", READY_TIMEOUT_S)

    def kill(self, name: str, signal_number: int = signal.SIGKILL) -> None:
        """End a process, at once by default, with what it started."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal_number)
        process.wait()
        for group in self.groups(name):
            if group.exists():
                group.rmdir()

    def groups(self, name: str) -> list[Path]:
        """The control groups of a process, if it has some of its own."""
        return [root / f"loadmanager-{self.zookeeper}-{name}" for root in CPU_GROUPS]

    def stop(self) -> None:
        """End everything."""
        for name in list(self.processes)[::-1]:
            self.kill(name)

    # Asking

    def request(self, method: str, path: str, body: Any = None, *, index: int = 0) -> Any:
        """The answer of the admin API."""
        url = f"{self.url(index)}/admin/v2/{path}"
        data = None if body is None else json.dumps(body).encode()
        while True:
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(url, data=data, method=method, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    raw = answer.read()
                return json.loads(raw) if raw else None
            except urllib.error.HTTPError as error:
                if error.code != 307:  # urllib follows no redirect of a PUT
                    raise
                url = error.headers["Location"]
                error.close()

    def owned(self, index: int, namespace: str = NAMESPACE) -> list[str]:
        """A namespace's bundles that a broker says it owns. While it takes its locks anew, after
        an outage of ZooKeeper, it answers 500 and is asked again.
        """
        path = f"brokers/c1/{self.broker(index)}/ownedNamespaces"
        for _ in until(60):
            try:
                bundles = self.request("GET", path, index=index)
                return [bundle for bundle in bundles if bundle.startswith(f"{namespace}/")]
            except urllib.error.HTTPError as error:
                refused = error
                if error.code != 500:
                    break
        raise refused

    def owners(self, namespace: str = NAMESPACE) -> dict[str, str]:
        """Bundle of a namespace → its broker, as the brokers that run say."""
        return {
            bundle: self.broker(index)
            for index in range(self.brokers)
            if f"broker{index}" in self.processes
            for bundle in self.owned(index, namespace)
        }

    def boundaries(self) -> list[str]:
        """The boundaries of the namespace."""
        return list(self.request("GET", f"namespaces/{NAMESPACE}/bundles")["boundaries"])

    def switch(self, *, on: bool) -> None:
        """Pulsar's own shedding and splitting."""
        for name in ("loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled"):
            self.request("POST", f"brokers/configuration/{name}/{str(on).lower()}")

    def _ready(self, index: int) -> bool:
        process = self.processes[f"broker{index}"]
        if process.poll() is not None:
            log = self.folder / "logs" / f"broker{index}.out"
            raise AssertionError(log.read_text()[-4000:])
        try:
            url = f"{self.url(index)}/admin/v2/brokers/health"
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    # Processes

    def _conf(self, name: str) -> str:
        return str(self.folder / "conf" / f"{name}.conf")

    def _write(self, name: str, text: str, **values: object) -> None:
        (self.folder / "conf" / name).write_text(text.format(data=self.folder / "data", **values))

    def _environment(self, **more: str) -> dict[str, str]:
        quiet = "-XX:+UseSerialGC -XX:+PerfDisableSharedMem -XX:TieredStopAtLevel=1"
        return {
            **os.environ,
            "PULSAR_LOG_DIR": str(self.folder / "logs"),
            "PULSAR_GC": quiet,
            "PULSAR_GC_LOG": "-Xlog:disable",
            "BOOKIE_GC": quiet,
            "BOOKIE_GC_LOG": "-Xlog:disable",
            "PULSAR_EXTRA_OPTS": "-Dio.netty.recycler.maxCapacityPerThread=1024",
            **more,
        }

    def _run(
        self, name: str, arguments: list[str], home: Path | None = None, **environment: str
    ) -> None:
        command = ["bin/pulsar", *arguments]
        if self.cores and name.startswith("broker"):
            groups = self.groups(name)
            for group in groups:
                group.mkdir(exist_ok=True)
            (groups[1] / "cpu.cfs_quota_us").write_text(str(round(self.cores * 100_000)))
            command = [*IN_GROUPS, *map(str, groups), *command]
        with (self.folder / "logs" / f"{name}.out").open("wb") as output:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=home or self.home,
                env=self._environment(**environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @staticmethod
    def _wait_port(port: int) -> None:
        def listens() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        wait_for(listens, f"port {port} listens", READY_TIMEOUT_S)


@contextmanager
def a_real_pulsar(home: Path, folder: Path, manager: str, **fields: Any) -> Iterator[RealPulsar]:
    """A running cluster; `fields` are those of `RealPulsar`."""
    with ExitStack() as stack:
        pulsar = RealPulsar(home, folder, manager, **fields)
        stack.callback(pulsar.stop)
        pulsar.start()
        yield pulsar


def gather(real: RealPulsar, within_s: float, namespace: str = NAMESPACE) -> None:
    """Move every bundle of a namespace to the first broker, and wait until it has had all of them
    for a while: one that is being unloaded has no owner, and any broker may take it.
    """
    most = turns = 0
    for _ in until(within_s):
        owners = real.owners(namespace)
        elsewhere = {name: at for name, at in owners.items() if at != real.broker(0)}
        most = max(most, len(owners))
        turns = turns + 1 if owners and not elsewhere and len(owners) == most else 0
        if turns == 3:
            return
        for bundle in elsewhere:
            span = bundle.rpartition("/")[2]
            path = f"namespaces/{namespace}/{span}/unload?destinationBroker={real.broker(0)}"
            real.request("PUT", path)
    raise AssertionError(f"the bundles do not gather: {real.owners(namespace)}")


def until(seconds: float) -> Iterator[None]:
    """Turns of a second, for so long."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        yield
        time.sleep(1)


ZOOKEEPER = """tickTime=2000
dataDir={data}/zk
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
forceSync=no
"""
BOOKIE = """ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
bookiePort={port}
advertisedAddress=127.0.0.1
allowLoopback=true
listeningInterface=lo
journalDirectory={data}/bk/journal
ledgerDirectories={data}/bk/ledgers
metadataServiceUri=zk+hierarchical://127.0.0.1:{zookeeper}/ledgers
journalSyncData=false
statsProviderClass=org.apache.bookkeeper.stats.NullStatsProvider
httpServerEnabled=false
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
dbStorage_writeCacheMaxSizeMb=32
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_blockCacheSize=16777216
dbStorage_rocksDB_writeBufferSizeMB=8
"""
BROKER = {
    "clusterName": "c1",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "managedLedgerCacheSizeMB": "32",
    "numIOThreads": "2",
    "numHttpServerThreads": "4",
    "numOrderedExecutorThreads": "2",
    "numExecutorThreadPoolSize": "2",
    "numCacheExecutorThreadPoolSize": "2",
    "bookkeeperNumberOfChannelsPerBookie": "1",
    "statsUpdateFrequencyInSecs": "5",
    "loadBalancerReportUpdateMinIntervalMillis": "2000",
    "loadBalancerReportUpdateMaxIntervalMinutes": "1",
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerAutoBundleSplitEnabled": "true",
    "loadBalancerSheddingIntervalMinutes": "60",
    "loadBalancerOverrideBrokerNicSpeedGbps": "1",
    "statusFilePath": "",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "functionsWorkerEnabled": "false",
    "transactionCoordinatorEnabled": "false",
    "systemTopicEnabled": "true",
    "zooKeeperSessionTimeoutMillis": "30000",
}
