"""Load reports that the daemon reads from Pulsar's own ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from steer.fake_pulsar import FakePulsar, a_pulsar
from steer.test_daemon import a_daemon, ask
from steer.watched import watching

from loadmanager import cli
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.steer import settings_file as fleet
from loadmanager.steer.pulsar.reader import AdminReader

REPORT = "/load-report"
REGISTRATION = {
    "webServiceUrl": "http://127.0.0.1:1",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions."
    "ExtensibleLoadManagerImpl",
}


@pytest.fixture
async def store(
    zookeeper_settings: Callable[..., ZooKeeperSettings],
) -> AsyncIterator[ZooKeeperStore]:
    """Pulsar's own ZooKeeper."""
    async with ZooKeeperStore(zookeeper_settings()) as opened:
        yield opened


def configuration(pulsar: FakePulsar, url: str) -> str:
    """The configuration of a daemon that reads the reports there."""
    return f"pulsar={pulsar.url()}\nmode=advise\npulsarMetadataStoreUrl={url}\n"


@pytest.mark.zookeeper
async def test_reports_are_read_from_zookeeper(
    tmp_path: Path,
    store: ZooKeeperStore,
    zookeeper_settings: Callable[..., ZooKeeperSettings],
) -> None:
    """Not from the brokers. One without a node is not known, and the reason names the key."""
    port = free_port()
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        for broker in pulsar.brokers[:2]:
            report = json.dumps(pulsar.report(broker)).encode()
            await store.create(f"/loadbalance/brokers/{broker}", report, ephemeral=True)
        url = zookeeper_settings().url
        missing = pulsar.brokers[2]
        async with a_daemon(tmp_path, configuration(pulsar, url), port):
            told = await ask(
                port,
                "/loadmanager/v1/fleet",
                until=lambda told: missing in told["problems"] and len(told["brokers"]) == 3,
            )
        brokers = [told["brokers"][broker] for broker in pulsar.brokers]
        assert [broker["bundles"] for broker in brokers] == [12, 2, None]
        assert [broker["msgRateIn"] for broker in brokers] == [1200, 200, None]
        assert "is pulsarMetadataStoreUrl this cluster's?" in told["problems"][missing]
        assert not any(REPORT in line for line in pulsar.log)


@pytest.mark.zookeeper
async def test_an_extensible_broker_publishes_none(
    tmp_path: Path,
    store: ZooKeeperStore,
    zookeeper_settings: Callable[..., ZooKeeperSettings],
) -> None:
    """Its node says only where it is: its load is read from its admin API."""
    port = free_port()
    async with a_pulsar(1, extensible=True) as pulsar:
        pulsar.spread([16])
        path = f"/loadbalance/brokers/{pulsar.brokers[0]}"
        await store.create(path, json.dumps(REGISTRATION).encode(), ephemeral=True)
        async with a_daemon(tmp_path, configuration(pulsar, zookeeper_settings().url), port):
            broker = pulsar.brokers[0]

            def is_read(told: dict[str, Any]) -> bool:
                return broker in told["brokers"] and told["brokers"][broker]["answers"]

            told = await ask(port, "/loadmanager/v1/fleet", until=is_read)
        assert told["brokers"][broker]["msgRateIn"] == 1600


async def test_zookeeper_that_is_not_there(tmp_path: Path) -> None:
    """The daemon goes on, and says which setting to look at."""
    port = free_port()
    async with a_pulsar(1) as pulsar:
        url = "zk:127.0.0.1:1\nrequestTimeoutSeconds=1"
        async with a_daemon(tmp_path, configuration(pulsar, url), port):
            broker = pulsar.brokers[0]
            told = await ask(
                port, "/loadmanager/v1/fleet", until=lambda told: broker in told["problems"]
            )
        assert "no connection with ZooKeeper at 127.0.0.1:1" in told["problems"][broker]
        assert "pulsarMetadataStoreUrl" in told["problems"][broker]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--mode", "act"), "too old to move bundles by"),
        (("--mode", "approve"), "too old to move bundles by"),
        (("--set", "pulsarMetadataStoreUrl=etcd://h:1"), "pulsarMetadataStoreUrl = 'etcd://h:1'"),
    ],
)
def test_settings_that_are_refused(
    more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old reports may not move anything."""
    pulsar = ("--pulsar", "http://127.0.0.1:1", "--set", "pulsarMetadataStoreUrl=zk:h:1")
    assert cli.main(["fleet", *pulsar, *more]) == 2
    assert said in capsys.readouterr().err


async def test_the_age_of_a_stored_report(tmp_path: Path) -> None:
    """It is what the broker wrote, and not later than now."""
    async with watching(tmp_path, (12, 4), settings={"mode": "advise"}) as daemon:
        one, two = daemon.pulsar.brokers
        now_ms = daemon.clock.now_ms()
        written = {one: now_ms - 600_000, two: now_ms + 60_000}

        async def stored(broker: str) -> bytes:
            return json.dumps(
                daemon.pulsar.report(broker) | {"lastUpdate": written[broker]}
            ).encode()

        daemon.work.watching.reader = AdminReader(daemon.client, daemon.clock, stored)
        await daemon.work.watching.read_brokers()
        told = daemon.work.picture.shown().brokers
        assert [told[broker].age_seconds for broker in (one, two)] == [600, 0]


def test_how_old_a_stored_report_may_be() -> None:
    """A broker may publish each quarter of an hour only."""
    stored = {"pulsar": "http://x:1", "pulsarMetadataStoreUrl": "zk:x:2181"}
    assert fleet.parse("x", stored).strategies.report_ttl_s == 1800
    assert fleet.parse("x", {"pulsar": "http://x:1"}).strategies.report_ttl_s == 75
