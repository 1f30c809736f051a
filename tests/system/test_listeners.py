"""Clients inside and outside a network, each with addresses of its own, over real sockets.

127.0.0.1 is inside, 127.0.0.2 is outside: a client must only ever connect to its own side.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pulsar
import pytest
from clusters.processes import NAMESPACE, Fleet
from clusters.standalone import wait_for
from ports import free_ports

from loadmanager.kit.metadata import paths

pytestmark = [pytest.mark.system, pytest.mark.client, pytest.mark.zookeeper]

INSIDE, OUTSIDE = "127.0.0.1", "127.0.0.2"
TOPICS = [f"persistent://{NAMESPACE}/topic-{number}" for number in range(8)]


class Sides(Fleet):
    """Two brokers that listen on both sides."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, brokers=2, bundles=8, session_s=30.0)
        self.outside_port = free_ports(2 * self.count)

    def settings(self, index: int) -> dict[str, str]:
        port, web = self.outside_port + index, self.outside_port + self.count + index
        return {
            **super().settings(index),
            "bindAddress": INSIDE,
            "advertisedListeners": (
                f"outside:pulsar://{OUTSIDE}:{port},outside:http://{OUTSIDE}:{web},"
                f"inside:pulsar://{INSIDE}:{self.pulsar_port + index}"
            ),
            "internalListenerName": "inside",
            "bindAddresses": (f"outside:pulsar://{OUTSIDE}:{port},outside:http://{OUTSIDE}:{web}"),
        }


def _sides_of_client(sides: Sides) -> set[str]:
    """The addresses of the connections from the stock client in this process to brokers."""
    ports = {
        *range(sides.pulsar_port, sides.pulsar_port + sides.count),
        *range(sides.outside_port, sides.outside_port + sides.count),
    }
    return {
        each.raddr.ip
        for each in psutil.Process().net_connections("tcp")
        if each.raddr and each.raddr.port in ports and each.status == "ESTABLISHED"
    }


@contextlib.contextmanager
def _client(sides: Sides, url: str, listener: str | None = None) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(url, logger=quiet, listener_name=listener)
    try:
        yield client
    finally:
        client.close()
        wait_for(lambda: not _sides_of_client(sides), "the client has hung up")


def _producers(client: pulsar.Client) -> list[pulsar.Producer]:
    producers = [client.create_producer(topic) for topic in TOPICS]
    for producer in producers:
        producer.send(b"x")
    return producers


def _lookup(url: str, **headers: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        return json.load(answer)


def test_each_side_stays_on_its_side(tmp_path: Path) -> None:
    """Topics of both brokers are reached from inside and outside, by the address that a client
    comes to, by name and over HTTP, also after bundles moved.
    """
    with Sides(tmp_path) as sides:
        with _client(sides, f"pulsar://{INSIDE}:{sides.pulsar_port}") as client:
            _producers(client)
            assert _sides_of_client(sides) == {INSIDE}
        assert sides.owned(0)
        assert sides.owned(1)
        with _client(sides, f"pulsar://{OUTSIDE}:{sides.outside_port}") as client:
            producers = _producers(client)
            assert _sides_of_client(sides) == {OUTSIDE}
            for bundle in sorted(sides.owned(0)):
                assert sides.move(bundle, 1)
            for producer in producers:
                producer.send(b"after the move")
            assert _sides_of_client(sides) == {OUTSIDE}
            reader = client.create_reader(TOPICS[0], pulsar.MessageId.earliest)
            assert reader.read_next(60_000).data() in (b"x", b"after the move")
        web = f"http://{OUTSIDE}:{sides.outside_port + sides.count}"
        with _client(sides, web) as client:
            _producers(client)
            assert _sides_of_client(sides) == {OUTSIDE}
        with _client(sides, f"pulsar://{INSIDE}:{sides.pulsar_port}", "outside") as client:
            _producers(client)
            assert _sides_of_client(sides) == {INSIDE, OUTSIDE}  # asked here, sent there
        _check_http(sides)
        _check_records(sides)


def _check_http(sides: Sides) -> None:
    """The query, or the header, names the listener; without a name it is the internal one."""
    web = f"http://{INSIDE}:{sides.http_port + 1}"
    url = f"{web}/lookup/v2/topic/{TOPICS[0].replace('://', '/')}"
    outside = f"pulsar://{OUTSIDE}:{sides.outside_port + 1}"
    assert _lookup(url)["brokerUrl"] == f"pulsar://{INSIDE}:{sides.pulsar_port + 1}"
    for found in (
        _lookup(f"{url}?listenerName=outside"),
        _lookup(url, **{"X-Pulsar-ListenerName": "outside"}),
    ):
        assert found["brokerUrl"] == found["nativeUrl"] == outside
        assert found["httpUrl"] == f"http://{OUTSIDE}:{sides.outside_port + 3}"
    path = url.removeprefix(web)
    status, body = sides.request(1, "GET", f"{path}?listenerName=other")
    assert status == 503
    assert "the broker do not have other listener" in body["reason"]


def _check_records(sides: Sides) -> None:
    """Locks and load reports have the listeners as Pulsar writes them."""
    status, report = sides.request(1, "GET", "/admin/v2/broker-stats/load-report")
    assert status == 200
    expected = {
        "inside": {"brokerServiceUrl": f"pulsar://{INSIDE}:{sides.pulsar_port + 1}"},
        "outside": {
            "brokerServiceUrl": f"pulsar://{OUTSIDE}:{sides.outside_port + 1}",
            "brokerHttpUrl": f"http://{OUTSIDE}:{sides.outside_port + 3}",
        },
    }
    assert report["advertisedListeners"] == expected
    assert report["pulsarServiceUrl"] == expected["inside"]["brokerServiceUrl"]
    lock = sides.node(f"{paths.LOCKS}/{min(sides.owned(1))}")
    assert lock["advertisedListeners"] == expected


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("advertisedListeners", "pulsar://broker:6650", "is not of the form name:pulsar://host:"),
        ("brokerServicePortTls", "6651", "needs tlsCertificateFilePath and tlsKeyFilePath"),
        ("bindAddresses", "a:pulsar://0.0.0.0:6660", "a is not among advertisedListeners"),
    ],
)
def test_wrong_addresses_do_not_start(tmp_path: Path, key: str, value: str, said: str) -> None:
    """The broker says which value is wrong, and so does config check."""
    file = tmp_path / "broker.conf"
    file.write_text(f"metadataStoreUrl=zk:127.0.0.1:1\n{key}={value}\n")
    for command in (["broker", "--config", str(file)], ["config", "check", str(file)]):
        assert said in _refused(*command)


def test_a_cluster_of_several_brokers_has_not_one_address(tmp_path: Path) -> None:
    """Standalone refuses to give all its brokers the same addresses."""
    listeners = "advertisedListeners=a:pulsar://example.com:6650"
    said = _refused("standalone", "--data-dir", str(tmp_path), "--set", listeners)
    assert "has the addresses of one broker" in said


def _refused(*command: str) -> str:
    """The message of a command that cannot use its settings."""
    done = subprocess.run(
        [sys.executable, "-m", "loadmanager", *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    return done.stderr + done.stdout
