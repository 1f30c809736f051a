"""The daemon as a process beside fake clusters: its API, several clusters, its end."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from ports import free_port, free_ports
from steer.fake_pulsar import FakePulsar, a_pulsar

from loadmanager import cli

FAST = "readIntervalSeconds=1\n"


@asynccontextmanager
async def a_daemon(
    folder: Path, configuration: str, port: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`loadmanager fleet` with a file."""
    path = folder / "fleet.conf"
    path.write_text(FAST + configuration)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loadmanager", "fleet", "--config", str(path),
        "--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{port}",
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def over(path: Path) -> aiohttp.ClientSession:
    """A session over the daemon's Unix socket."""
    return aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)))


async def ask(port: int, path: str, *, until: Any = lambda _told: True) -> Any:
    """The first answer that is as it should be."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(180):
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    text = await answer.text()
                    told = json.loads(text) if "json" in answer.content_type else text
                    if answer.status == 200 and until(told):
                        return told
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


def _listed(told: Any) -> list[tuple[str, int, str]]:
    return [(each["name"], each["port"], each["state"]) for each in told["clusters"]]


async def test_two_clusters_in_one_daemon(tmp_path: Path) -> None:
    """One of them answers nothing at all: the other is watched nevertheless. SIGTERM ends both."""
    port = free_ports(2)
    async with a_pulsar(2) as pulsar:
        pulsar.spread([14, 2])
        configuration = f"""mode=advise
loadBalancerSheddingIntervalMinutes=0.02
[broken]
pulsar=http://127.0.0.1:1
apiSocket={tmp_path / "socket"}
[east]
pulsar={pulsar.url()}
"""
        async with a_daemon(tmp_path, configuration, port) as process:
            told = await ask(port + 1, "/loadmanager/v1/advice", until=lambda told: told["plan"])
            assert told["plan"]["unloads"]
            told = await ask(port + 1, "/loadmanager/v1/cluster")
            assert [broker["broker"] for broker in told["brokers"]] == pulsar.brokers
            told = await ask(port + 1, "/loadmanager/v1/decisions")
            assert told["decisions"]
            assert len((await ask(port + 1, "/loadmanager/v1/snapshot"))["brokers"]) == 2
            metrics = await ask(port + 1, "/metrics")
            assert 'loadmanager_fleet_brokers{cluster="east"' in metrics
            told = await ask(port, "/loadmanager/v1/fleet", until=lambda told: told["problems"])
            assert told["mode"] == "advise"
            assert told["held"].startswith("Incomplete: ")
            assert told["heldCode"] == "Incomplete"
            for at, name in ((port, "broken"), (port + 1, "east")):
                expected = [("broken", port, "problem"), ("east", port + 1, "leads")]
                told = await ask(
                    at,
                    "/loadmanager/v1/clusters",
                    until=lambda told, expected=expected: _listed(told) == expected,
                )
                assert told["name"] == name
            async with over(tmp_path / "socket") as session:
                pause = "http://localhost/loadmanager/v1/moves/pause"
                page = {"Origin": "http://elsewhere.example"}
                async with session.put(pause, json={"seconds": 9}, headers=page) as answer:
                    assert answer.status == 403
                async with session.put(pause, json={"seconds": 9}) as answer:
                    assert answer.status == 200
            told = await ask(port, "/loadmanager/v1/changes")
            (change,) = told["changes"]
            assert (change["what"], change["over"], change["address"], change["after"]) == (
                "PUT /loadmanager/v1/moves/pause",
                "fleet",
                "",
                '{"seconds": 9}',
            )
            process.send_signal(signal.SIGTERM)
            _, log = await process.communicate()
            assert process.returncode == 0
            assert b"Traceback" not in log
        assert {line.partition(" ")[0] for line in pulsar.log} == {"GET"}
    assert list((tmp_path / "data" / "history").glob("cluster=east/kind=decision/*/*"))
    assert list((tmp_path / "data" / "history").glob("cluster=*/kind=change/*/*"))


async def test_a_process_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """At the beginning of a move or at its end: what is on its disk never keeps the next start from
    going on, and every bundle moves once at most.
    """
    port = free_port()
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        configuration = f"""pulsar={pulsar.url()}
mode=act
loadManagerMovesPerMinuteMax=-1
loadBalancerSheddingIntervalMinutes=0.03
"""
        for is_end in (False, True, False):
            cut = asyncio.Event()

            async def on_unload(
                _destination: str, done: bool, *, at: bool, cut: asyncio.Event
            ) -> None:
                if done is at:
                    cut.set()
                    await asyncio.Event().wait()

            pulsar.on_unload = partial(on_unload, at=is_end, cut=cut)
            async with a_daemon(tmp_path, configuration, port) as process, asyncio.timeout(180):
                await cut.wait()
                process.kill()
                await process.wait()
        assert len(pulsar.moved) == 1
        pulsar.on_unload = FakePulsar.on_unload
        async with a_daemon(tmp_path, configuration, port):
            await ask(
                port,
                "/loadmanager/v1/moves",
                until=lambda told: len(pulsar.moved) > 2 and not told["running"],
            )
        moved = [bundle for bundle, _ in pulsar.moved]
        assert len(set(moved)) == len(moved)
        assert set(pulsar.owners.values()) == set(pulsar.brokers)


async def test_a_snapshot_of_a_cluster_that_does_not_answer() -> None:
    """A sentence, not a traceback."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loadmanager", "fleet", "--pulsar", "http://127.0.0.1:1", "snapshot",
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    _, log = await process.communicate()
    assert b"loadmanager fleet: GET http://127.0.0.1:1/" in log
    assert b"Connection refused" in log
    assert b"Traceback" not in log
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("snapshot",), "pulsar: http://host:8080 of at least one broker is expected"),
        (("--pulsar", "ftp://h", "snapshot"), "http://host or https://host is expected"),
        (("--pulsar", "http://127.0.0.1:1", "--listen", "0.0.0.0:0"), "asks for no token"),
        (("--pulsar", "http://h:1", "restore", "--cluster", "x"), "one of default is expected"),
        (("--pulsar", "http://h:1", "--set", "shadowStrategies=Nope"), "shadowStrategies = 'Nope'"),
        (
            ("--pulsar", "http://h:1", "--set", "loadBalancerAvgShedderLowThreshold=41"),
            "loadBalancerAvgShedderLowThreshold = 41 is above",
        ),
        (
            ("--pulsar", "http://h:1", "--set", "tokenFile=a", "--set", "basicFile=b"),
            "asked with one of them",
        ),
    ],
)
def test_arguments_that_are_refused(
    more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With status 2: no address, one that is none, an open port, a cluster that is not there."""
    assert cli.main(["fleet", *more]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["snapshot", "restore"])
def test_help_of_a_subcommand_needs_no_cluster(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read before the settings are."""
    assert cli.main(["fleet", command, "--help"]) == 0
    assert "--cluster" in capsys.readouterr().out


async def test_restore_switches_pulsars_own_on() -> None:
    """A command for operators, and for systemd when the daemon has died."""
    async with a_pulsar(1) as pulsar:
        pulsar.switch_off()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loadmanager", "fleet", "--pulsar", pulsar.url(), "restore",
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, log = await process.communicate()
        assert process.returncode == 0, log
        assert pulsar.settings["loadBalancerSheddingEnabled"] == "true"
        assert pulsar.settings["loadBalancerAutoBundleSplitEnabled"] == "true"


def test_wrong_settings_end_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Naming the cluster, the key and the value."""
    path = tmp_path / "fleet.conf"
    path.write_text("""[east]
pulsar=http://127.0.0.1:1
mode=dance
brokerServicePort=6650
loadManagerBalancedMovePrice=0.001
loadBalancerLoadSheddingStrategi=AvgShedder
""")
    assert cli.main(["fleet", "--config", str(path)]) == 2
    text = capsys.readouterr().err
    assert "cluster east" in text
    assert "mode = 'dance': one of observe, advise, approve, act is allowed" in text
    assert "brokerServicePort: it does nothing here" in text
    assert "it does nothing here: loadManagerBalancedDifferencePercent replaced it" in text
    assert "did you mean loadBalancerLoadSheddingStrategy?" in text
