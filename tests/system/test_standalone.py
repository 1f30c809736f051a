"""`loadmanager standalone` supervises: it restarts what died, but not what was stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
from clusters.standalone import Cluster, wait_for
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from ports import free_port, free_ports

from loadmanager.kit.zookeeper.java import HEAP_MB, STATUS_OUT_OF_MEMORY, JavaZooKeeper

pytestmark = [pytest.mark.system, pytest.mark.zookeeper]

SESSION_MS = 4_000


def java_of(cluster: Cluster) -> psutil.Process:
    """The Java process of ZooKeeper."""
    children = psutil.Process(cluster.process.pid).children(recursive=True)
    return next(
        child
        for child in children
        if "java" in child.name() and "ZooKeeperServerMain" in " ".join(child.cmdline())
    )


def lives(cluster: Cluster, count: int) -> bool:
    """True if so many brokers are registered, according to the first broker."""
    try:
        status, brokers = cluster.request(0, "GET", "/admin/v2/brokers")
    except OSError:
        return False
    return status == 200 and len(brokers) == count


def started(cluster: Cluster, times: int) -> bool:
    """True if brokers became ready so many times."""
    return sum(event["event"] == "ready" for event in cluster.events()) == times


def test_what_dies_comes_back(tmp_path: Path) -> None:
    """Brokers are restarted with growing delays, a ZooKeeper on Java with its data; Ctrl-C stops
    all.
    """
    cluster = Cluster(tmp_path, brokers=2, restart=True, session_ms=SESSION_MS, zookeeper="java")
    with cluster:
        assert (
            cluster.request(
                0, "PUT", "/admin/v2/namespaces/public/kept", {"bundles": {"numBundles": 2}}
            )[0]
            == 204
        )
        for kills in (1, 2):
            os.kill(cluster.pid(1), signal.SIGKILL)
            wait_for(partial(started, cluster, 2 + kills), "it is back")
            wait_for(lambda: lives(cluster, 2), "both are registered")
        said = cluster.log.read_text()
        assert "broker 1 was killed by SIGKILL. It starts again in 0.5 s" in said
        assert "broker 1 was killed by SIGKILL. It starts again in 1 s" in said

        java_of(cluster).kill()
        wait_for(
            lambda: "ZooKeeper was started again" in cluster.log.read_text(),
            "ZooKeeper is back",
        )
        wait_for(lambda: lives(cluster, 2), "the brokers are back")
        kept = "/admin/v2/namespaces/public/kept/bundles"
        # A broker that has yet to hear of the end of its session answers 503.
        wait_for(lambda: cluster.request(0, "GET", kept)[0] == 200, "the store is read again")
        assert cluster.get(0, kept)["numBundles"] == 2

        assert cluster.request(1, "POST", "/admin/v2/brokers/shutdown")[0] == 204
        wait_for(
            lambda: "broker 1 ended with status 0. " in cluster.log.read_text(),
            "it stopped as it was told",
        )

        java_of(cluster).kill()
        wait_for(
            lambda: "ZooKeeper ended with status 137" in cluster.log.read_text(),
            "ZooKeeper is dead",
        )
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(60) == 0
        assert "Traceback" not in cluster.log.read_text()
        for text in cluster.log.read_text().splitlines():
            assert "event" in json.loads(text), "a line that is not JSON"


def test_a_cluster_that_was_killed_is_there_again(tmp_path: Path) -> None:
    """With its metadata, on the embedded store; the brokers have ended with it."""
    with Cluster(tmp_path, brokers=2, session_ms=SESSION_MS) as cluster:
        tenant = {"adminRoles": [], "allowedClusters": ["standalone"]}
        assert cluster.request(0, "PUT", "/admin/v2/tenants/kept", tenant)[0] == 204
        processes = psutil.Process(cluster.process.pid).children(recursive=True)
        assert not [each for each in processes if "java" in each.name()]
        os.kill(cluster.process.pid, signal.SIGKILL)
        cluster.process.wait()
        wait_for(lambda: not any(map(_runs, processes)), "the brokers have ended, too")
    with Cluster(tmp_path, brokers=2, session_ms=SESSION_MS) as cluster:
        assert "kept" in cluster.get(0, "/admin/v2/tenants")
        assert cluster.owner_of("persistent://public/default/any") in (0, 1)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_one_cluster_a_data_directory(tmp_path: Path) -> None:
    """A second start names the process that uses the directory, and does not disturb it."""
    with Cluster(tmp_path, brokers=1) as cluster:
        port = free_ports(3)
        command = [
            sys.executable,
            "-m",
            "loadmanager",
            "standalone",
            "--brokers",
            "1",
            "--data-dir",
            str(tmp_path / "data"),
        ]
        command += [
            "--pulsar-port",
            str(port),
            "--http-port",
            str(port + 1),
            "--zookeeper-port",
            str(port + 2),
        ]
        second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert second.returncode == 1
        assert (
            f"{tmp_path / 'data'} is in use by process {cluster.process.pid} "
            "(loadmanager standalone)" in second.stderr
        )
        assert "choose another --data-dir" in second.stderr
        assert lives(cluster, 1)


def fill(client: KazooClient) -> None:
    """Write more than fits into the server's heap."""
    for number in range(1000):
        client.create(f"/{number:04}", bytes(900_000))


def test_zookeeper_without_memory_ends_and_starts_again(tmp_path: Path) -> None:
    """A server whose heap is full ends with a message, and can be started again."""
    server = JavaZooKeeper(port=free_port(), data_dir=tmp_path)
    server.start()
    try:
        server.wait_until_ready()
        client = KazooClient(f"{server.host}:{server.port}", timeout=60)
        client.start()
        try:
            with pytest.raises(KazooException):
                fill(client)
        finally:
            client.stop()
            client.close()
        wait_for(lambda: not server.running, "it ended")
        assert server.status == STATUS_OUT_OF_MEMORY
        for log in tmp_path.glob("data/version-2/*"):
            log.unlink()  # what an operator deletes, or cannot: it would be full again
        server.restart()
        assert server.running
        assert server.heap_mb == 2 * HEAP_MB
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--http-port", "99999999"], 2, "1 to 65535 is allowed"),
        (["--http-port", "0"], 2, "1 to 65535 is allowed"),
        (["--pulsar-port", "65534"], 2, "1 to 65535 is allowed"),
        (
            ["--set", "brokerServicePort=7"],
            2,
            "--set brokerServicePort: standalone decides it for each broker; use --pulsar-port",
        ),
        (["--data-dir", "/proc/nowhere"], 1, "/proc/nowhere cannot be written"),
        (["--data-dir", __file__], 1, "choose another --data-dir"),
    ],
)
def test_what_cannot_start_says_why(
    words: list[str], status: int, said: str, tmp_path: Path
) -> None:
    """The reason is one line, without a traceback."""
    command = [
        sys.executable,
        "-m",
        "loadmanager",
        "standalone",
        "--data-dir",
        str(tmp_path),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (status, 1)
    assert said in done.stderr
