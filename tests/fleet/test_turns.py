"""Daemons beside one cluster on several hosts: a lock in a real ZooKeeper."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from fleet.fake_pulsar import a_pulsar
from fleet.test_daemon import a_daemon, ask
from ports import free_ports

from loadmanager import cli
from loadmanager.adapters.zookeeper.settings import ZooKeeperSettings

pytestmark = pytest.mark.zookeeper
MakeSettings = Callable[..., ZooKeeperSettings]
SESSION_MS = 2_000


async def test_one_daemon_leads_and_the_other_takes_over(
    tmp_path: Path, zookeeper_settings: MakeSettings
) -> None:
    """The first one is killed: the second one leads with a later epoch, and knows the pause that an
    operator began at the first one.
    """
    port = free_ports(2)
    async with a_pulsar(2) as pulsar:
        configuration = (
            f"pulsar={pulsar.url()}\nmetadataStoreUrl={zookeeper_settings().url}\n"
            f"metadataStoreSessionTimeoutMillis={SESSION_MS}\n"
        )
        folders = [tmp_path / "a", tmp_path / "b"]
        for folder in folders:
            folder.mkdir()
        async with a_daemon(folders[0], configuration, port) as first:
            before = await ask(port, "/loadmanager/v1/cluster")
            async with aiohttp.ClientSession() as session:
                pause = f"http://127.0.0.1:{port}/loadmanager/v1/moves/pause"
                async with session.put(pause, json={"seconds": 999, "note": "ours"}) as answer:
                    assert answer.status == 200
            async with a_daemon(folders[1], configuration, port + 1) as second:
                assert second.stderr is not None
                async for line in second.stderr:
                    if "waiting for the lock" in json.loads(line)["event"]:
                        break
                first.kill()
                after = await ask(port + 1, "/loadmanager/v1/cluster")
                assert after["leader"]["epoch"] == before["leader"]["epoch"] + 1
                moves = await ask(port + 1, "/loadmanager/v1/moves")
                assert moves["paused"]["note"] == "ours"
                second.send_signal(signal.SIGTERM)
                _, log = await second.communicate()
                assert second.returncode == 0
                assert b"Traceback" not in log


async def test_a_daemon_that_loses_its_session_stops_until_it_leads_again(
    tmp_path: Path, zookeeper_settings: MakeSettings
) -> None:
    """It stands still for longer than its session lasts: the other one leads meanwhile, and the
    first one does not when it goes on.
    """
    port = free_ports(2)
    async with a_pulsar(2) as pulsar:
        configuration = (
            f"pulsar={pulsar.url()}\nmetadataStoreUrl={zookeeper_settings().url}\n"
            f"metadataStoreSessionTimeoutMillis={SESSION_MS}\n"
        )
        for name in "ab":
            (tmp_path / name).mkdir()
        async with a_daemon(tmp_path / "a", configuration, port) as first:
            await ask(port, "/loadmanager/v1/cluster")
            async with a_daemon(tmp_path / "b", configuration, port + 1) as second:
                first.send_signal(signal.SIGSTOP)
                await ask(port + 1, "/loadmanager/v1/cluster")
                first.send_signal(signal.SIGCONT)
                assert first.stderr is not None
                async for line in first.stderr:
                    if "the lock is lost" in json.loads(line)["event"]:
                        break
                second.kill()
                told = await ask(port, "/loadmanager/v1/cluster")
                assert told["leader"]["epoch"] == 3


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("metadataStoreSessionTimeoutMillis=3000", "without metadataStoreUrl it does nothing"),
        ("metadataStoreUrl=zk:h:1\nrestorePulsarOnStop=true", "another daemon takes over instead"),
        ("metadataStoreUrl=etcd://h:1", "metadataStoreUrl"),
    ],
)
def test_settings_of_the_lock_that_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, said: str
) -> None:
    """With status 2."""
    path = tmp_path / "fleet.conf"
    path.write_text(f"pulsar=http://127.0.0.1:1\n{lines}\n")
    assert cli.main(["fleet", "--config", str(path)]) == 2
    assert said in capsys.readouterr().err
