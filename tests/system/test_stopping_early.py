"""A broker that is stopped before it is ready."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.standalone import wait_for
from kazoo.client import KazooClient
from ports import free_ports

from loadmanager.kit.zookeeper.java import JavaZooKeeper

pytestmark = [pytest.mark.system, pytest.mark.zookeeper]


def test_a_broker_that_waits_for_its_name_stops_when_told(
    zookeeper_server: JavaZooKeeper, tmp_path: Path
) -> None:
    """SIGTERM ends a broker that waits because another broker has its name."""
    port, root = free_ports(2), f"tests/{os.getpid()}-stopping-early"
    client = KazooClient(f"{zookeeper_server.host}:{zookeeper_server.port}")
    client.start()
    log, registration = tmp_path / "log", f"/{root}/loadbalance/brokers/127.0.0.1:{port}"
    try:
        client.create(registration, b"{}", ephemeral=True, makepath=True)
        for cluster in ("standalone", "another"):
            client.create(f"/{root}/admin/clusters/{cluster}", b"{}", makepath=True)
        command = [
            sys.executable,
            "-m",
            "loadmanager",
            "broker",
            "--log-format",
            "json",
            "--set",
            f"webServicePort={port}",
        ]
        command += [
            "--set",
            f"brokerServicePort={port + 1}",
            "--set",
            f"metadataStoreUrl={zookeeper_server.url}/{root}",
        ]
        command += [
            "--set",
            "advertisedAddress=127.0.0.1",
            "--set",
            f"loadManagerHistoryDirectory={tmp_path / 'history'}",
        ]
        with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as broker:
            try:
                wait_for(
                    lambda: "waiting for an earlier session" in log.read_text(),
                    "it waits for its name",
                )
                broker.send_signal(signal.SIGTERM)
                assert broker.wait(60) == 0
            finally:
                broker.kill()
        said = log.read_text()
        assert "Traceback" not in said
        assert "all of its brokers must have the same clusterName" in said
        assert client.exists(registration)
    finally:
        client.stop()
        client.close()
