"""What the daemon beside Pulsar asks the cluster, in requests, and what it keeps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from costs.test_split_check import NAMESPACES, SPAN, name, no_group
from steer.watched import Watching, watching

BROKERS = 3


def with_namespaces(daemon: Watching, count: int = NAMESPACES) -> None:
    """The cluster has many namespaces."""
    pulsar = daemon.pulsar
    for number in range(count):
        pulsar.owners[f"{name(number)}/{SPAN}"] = pulsar.brokers[number % BROKERS]
        pulsar.rates[f"{name(number)}/{SPAN}"] = 1.0
        pulsar.nonsense[f"{name(number)}/antiAffinity"] = no_group


@pytest.mark.parametrize(("extensible", "of_a_broker"), [(False, 1), (True, 3)])
async def test_a_reading(tmp_path: Path, *, extensible: bool, of_a_broker: int) -> None:
    """Budget: 1 request for the list of brokers, and for each broker 1, or 3 if it publishes no
    report; whatever the number of namespaces.
    """
    async with watching(tmp_path, extensible=extensible) as daemon:
        with_namespaces(daemon)
        await daemon.work.read()  # learns the name of the cluster, and its manager
        for _ in range(5):
            daemon.pulsar.log.clear()
            await daemon.work.read()
            assert len(daemon.pulsar.log) == 1 + of_a_broker * BROKERS


@pytest.mark.parametrize("mode", ["observe", "act"])
async def test_the_policies(tmp_path: Path, mode: str) -> None:
    """Budget: 1 request for each namespace, 4 for the leader, its settings, the isolation policies
    and the failure domains, and in `act` 1 for the settings of each broker.
    """
    async with watching(tmp_path, settings={"mode": mode}) as daemon:
        with_namespaces(daemon)
        await daemon.work.read()
        daemon.pulsar.log.clear()
        await daemon.work.watching.read_policies()
        kinds = Counter(line.endswith("/antiAffinity") for line in daemon.pulsar.log)
        assert kinds[True] == NAMESPACES + 1
        assert kinds[False] <= 4 + (BROKERS if mode == "act" else 0)


async def test_a_cycle_that_moves_nothing(tmp_path: Path) -> None:
    """Budget: 0 requests beside those of the reading."""
    async with watching(tmp_path, (6, 5, 5), settings={"mode": "act"}) as daemon:
        daemon.pulsar.switch_off()
        with_namespaces(daemon)
        await daemon.work.read()
        await daemon.work.watching.read_policies()
        daemon.pulsar.log.clear()
        await daemon.work.shed()
        await daemon.work.moves.idle()
        assert daemon.pulsar.log == []


async def test_bundles_that_are_gone_are_not_kept(tmp_path: Path) -> None:
    """Budget: what is kept of a broker is its last report."""
    async with watching(tmp_path) as daemon:
        with_namespaces(daemon)
        await daemon.work.read()
        watcher = daemon.work.watching
        most = watcher._bundles
        for number in range(NAMESPACES):
            del daemon.pulsar.owners[f"{name(number)}/{SPAN}"]
        await daemon.work.read()
        assert watcher._bundles <= most - NAMESPACES
        assert sum(len(report.bundles) for report in daemon.work.picture.reports.values()) <= 16 + 3
