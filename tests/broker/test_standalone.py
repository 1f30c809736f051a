"""What `loadmanager standalone` decides for its brokers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loadmanager.broker.standalone import (
    NIC_SPEED,
    StandaloneOptions,
    broker_urls,
    first_steps,
    with_nic_speed,
)
from loadmanager.kit.system.settings import SamplerSettings

OPTIONS = StandaloneOptions(
    brokers=3,
    pulsar_port=6650,
    http_port=8080,
    zookeeper_port=2181,
    data_dir=Path("data"),
    config=None,
    overrides={"clusterName": "c"},
    log_format=None,
)


def network(folder: Path, speed: str) -> Path:
    """A folder as `/sys/class/net`, with one card."""
    card = folder / "eth0"
    card.mkdir()
    for name, text in {"type": "1", "operstate": "up", "speed": speed}.items():
        (card / name).write_text(f"{text}\n")
    return folder


STOPPED_TERMINAL = """
import os, sys
from pathlib import Path
from broker.test_standalone import OPTIONS
from loadmanager.broker.standalone import welcome
from loadmanager.kit.zookeeper.local import local_store
with_store = local_store("embedded", port=2181, data_dir=Path(sys.argv[1]))
welcome(OPTIONS, with_store, 1.0, as_json=False)
print("it goes on", file=sys.stderr, flush=True)
sys.stdin.readline()
"""


def test_who_starts_a_cluster_may_stop_the_terminal(tmp_path: Path) -> None:
    """The process that has the metadata store does not wait until its banner is taken."""
    ours, its = os.pipe()
    os.set_blocking(its, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(its, 4096 * b"x"):
            pass
    os.set_blocking(its, True)
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED_TERMINAL, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=its, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:  # fmt: skip
        os.close(its)
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "it goes on\n"
            with os.fdopen(ours, "rb") as terminal:
                taken = b""
                while b"Ctrl-C stops everything." not in taken:
                    more = terminal.read1(65_536)
                    assert more, "the banner was not written"
                    taken = taken[-100:] + more
        finally:
            process.kill()


@pytest.mark.parametrize("speed", ["-1", ""])
def test_an_unknown_network_card_gets_a_speed(tmp_path: Path, speed: str) -> None:
    """Where the system knows no speed, the brokers get one: none of them warns."""
    chosen = with_nic_speed(OPTIONS, SamplerSettings(), network(tmp_path, speed))
    assert chosen == replace(OPTIONS, overrides={"clusterName": "c", NIC_SPEED: "10"})


def test_without_any_card_there_is_a_speed(tmp_path: Path) -> None:
    """A system that lists no network cards is such a one, too."""
    chosen = with_nic_speed(OPTIONS, SamplerSettings(), tmp_path / "missing")
    assert chosen.overrides[NIC_SPEED] == "10"


def test_the_first_commands_have_a_token_where_clients_must_prove_who_they_are() -> None:
    """Each of them: without one all would be refused."""
    token = "$TOKEN"
    assert token not in first_steps(OPTIONS)
    overrides = {"clusterName": "c", "authenticationEnabled": "true"}
    head, *commands = first_steps(replace(OPTIONS, overrides=overrides)).splitlines()
    assert len(commands) == 3
    assert all(token in line for line in (head, *commands))


def test_a_known_or_given_speed_stays(tmp_path: Path) -> None:
    """What the card or an operator says counts."""
    known, unknown = network(tmp_path, "1000"), tmp_path / "missing"
    assert with_nic_speed(OPTIONS, SamplerSettings(), known) is OPTIONS
    assert with_nic_speed(OPTIONS, SamplerSettings(nic_speed_gbps=2.5), unknown) is OPTIONS


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({}, "127.0.0.1"),
        ({"bindAddress": "::1", "advertisedAddress": "::1"}, "[::1]"),
        ({"bindAddress": "::1"}, "[::1]"),
        ({"bindAddress": "::"}, "127.0.0.1"),
        ({"advertisedAddress": "broker.example.org"}, "broker.example.org"),
    ],
)
def test_brokers_are_named_by_what_they_advertise(settings: dict[str, str], host: str) -> None:
    """An IPv6 address in brackets, as URLs have it."""
    options = replace(OPTIONS, brokers=2, overrides=settings)
    assert broker_urls(options) == [
        (f"pulsar://{host}:6650", f"http://{host}:8080"),
        (f"pulsar://{host}:6651", f"http://{host}:8081"),
    ]
