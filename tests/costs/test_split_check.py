"""What a split check asks for: the namespaces of bundles that are too big, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from clusters.led import Led, led_fleet
from steer.fake_pulsar import Nonsense, failed
from steer.watched import Watching, watching

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.names import NamespaceName

NAMESPACES = 300
SPAN = "0x00000000_0xffffffff"
SETTINGS = {
    "mode": "advise",
    "loadBalancerNamespaceBundleMaxTopics": "10",
    "settleSeconds": "60",
}


def name(number: int) -> str:
    """One of many namespaces."""
    return f"acme/ns-{number:03}"


def boundaries(_request: web.Request) -> web.Response:
    """A namespace of one bundle."""
    return web.json_response({"boundaries": SPAN.split("_"), "numBundles": 1})


def no_group(_request: web.Request) -> web.Response:
    """A namespace that is in no anti-affinity group."""
    return web.Response(status=204)


def missing(_request: web.Request) -> web.Response:
    """A namespace that does not exist."""
    return web.json_response({"reason": "Namespace not found"}, status=404)


async def requests_of_a_check(daemon: Watching, too_big: dict[int, Nonsense]) -> list[str]:
    """What a check of 300 namespaces asks the cluster; `too_big`: the number of a namespace whose
    bundle is too big → what Pulsar answers to a question for its bundles.
    """
    pulsar = daemon.pulsar
    for number in range(NAMESPACES):
        bundle = f"{name(number)}/{SPAN}"
        pulsar.owners[bundle] = pulsar.brokers[number % 3]
        pulsar.rates[bundle] = 1.0
        pulsar.topics_of[bundle] = 30 if number in too_big else 5
        pulsar.nonsense[f"{name(number)}/bundles"] = too_big.get(number, boundaries)
        pulsar.nonsense[f"{name(number)}/antiAffinity"] = no_group
    await daemon.work.read()
    await daemon.work.watching.read_policies()
    pulsar.log.clear()
    await daemon.work.splitting.step()
    return pulsar.log


async def test_a_check_that_finds_nothing_asks_nothing(tmp_path: Path) -> None:
    """Budget: 0 requests, whatever the number of namespaces."""
    async with watching(tmp_path, settings=SETTINGS) as daemon:
        assert await requests_of_a_check(daemon, {}) == []


async def test_a_check_asks_once_for_each_namespace_that_it_may_split(tmp_path: Path) -> None:
    """Budget: 1 request for each namespace of a bundle that is too big."""
    async with watching(tmp_path, settings=SETTINGS) as daemon:
        asked = await requests_of_a_check(daemon, {7: boundaries, 205: boundaries})
        assert asked == [f"GET /admin/v2/namespaces/{name(number)}/bundles" for number in (7, 205)]
        splits = daemon.work.advice.shown(None).splits
        assert [split.bundle for split in splits] == [f"{name(n)}/{SPAN}" for n in (7, 205)]


async def test_a_namespace_that_cannot_be_counted_costs_only_itself(tmp_path: Path) -> None:
    """One was deleted and one answers an error, of every broker: the third one is split."""
    async with watching(tmp_path, settings=SETTINGS) as daemon:
        asked = await requests_of_a_check(daemon, {7: missing, 8: failed, 9: boundaries})
        assert len(asked) == 1 + len(daemon.pulsar.brokers) + 1
        (split,) = daemon.work.advice.shown(None).splits
        assert split.bundle == f"{name(9)}/{SPAN}"


class Counting:
    """Counts the bundles of namespaces, and cannot for those in `broken`."""

    def __init__(self, broken: set[str]) -> None:
        self.broken = broken
        self.asked: list[str] = []

    async def __call__(self, namespace: NamespaceName) -> int:
        self.asked.append(str(namespace))
        if str(namespace) in self.broken:
            raise OperationalError("no")
        return 1


@asynccontextmanager
async def a_leader(too_big: int, broken: set[str]) -> AsyncIterator[tuple[Led, Counting]]:
    """A leader whose brokers serve 300 namespaces; the bundles of the first ones are too big."""
    async with led_fleet(2) as led:
        counting = Counting(broken)
        led.load_manager.cluster = replace(led.load_manager.cluster, bundle_count=counting)
        stats = {
            f"{name(number)}/{SPAN}": NamespaceBundleStats(topics=30 if number < too_big else 5)
            for number in range(NAMESPACES)
        }
        await led.report(0, {})
        await led.report(1, stats)
        yield led, counting


async def test_a_leader_counts_the_namespaces_that_it_may_split() -> None:
    """Budget: 1 question for each namespace of a bundle that is too big; one that fails keeps only
    its own bundle whole, and the reason is recorded.
    """
    async with a_leader(3, {name(1)}) as (led, counting):
        splits = await led.load_manager.too_big()
        assert counting.asked == [name(0), name(1), name(2)]
        assert [split.bundle for _, split in splits] == [f"{name(n)}/{SPAN}" for n in (0, 2)]
        (skip,) = [skip for plan in led.observed for skip in plan.skipped]
        assert (skip.what, skip.code) == (f"{name(1)}/{SPAN}", "NoBoundaries")


async def test_a_check_ends_when_nothing_can_be_counted() -> None:
    """Budget: 5 questions that fail one after the other; then the check fails."""
    async with a_leader(NAMESPACES, {name(number) for number in range(NAMESPACES)}) as (
        led,
        counting,
    ):
        with pytest.raises(OperationalError):
            await led.load_manager.too_big()
        assert len(counting.asked) == 5
