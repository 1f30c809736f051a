"""What the periodic work of brokers and leaders costs, in requests, bytes and objects."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from clusters.counting_store import CountingStore, CountingTree
from clusters.led import Led, led_fleet
from clusters.members import NS, Broker, a_fleet
from clusters.running import Written, until
from limits.driven import DrivenClock, a_broker
from member.test_reporting import FixedSampler, a_reporter

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.sampler import Reading
from loadmanager.kit.tasks import LoopBusy
from loadmanager.limits.policies import PublishRate, plain
from loadmanager.member.known_names import LOOKS_PER_S
from loadmanager.member.recorder import Recorder
from loadmanager.member.settings import BrokerSettings
from loadmanager.testing.cluster import LoopTime

BUNDLES = 64
REPORT_BYTES_MAX = 2_000
REPORT_BYTES_OF_A_BUNDLE_MAX = 400
TOPIC = TopicName.parse("persistent://public/default/orders")


def counts_of(broker: Broker) -> CountingStore:
    """The store of a broker, which counts."""
    assert isinstance(broker.store, CountingStore)
    return broker.store


async def settled(store: CountingStore) -> None:
    """Wait until nobody asks the store anything, and forget what was asked."""
    before = -1
    while store.requests != before:
        before = store.requests
        for _ in range(50):
            await asyncio.sleep(0)
    store.counts.clear()


@asynccontextmanager
async def one_broker() -> AsyncIterator[tuple[Broker, CountingStore]]:
    """A broker that serves the bundles of a namespace; what was asked so far is forgotten."""
    async with a_fleet(1, BUNDLES, tree=CountingTree()) as fleet:
        (broker,) = fleet.brokers
        for span in (await broker.namespaces.bundles(NS)).ranges:
            await broker.acquire(f"{NS}/{span}")
        await settled(counts_of(broker))
        yield broker, counts_of(broker)


async def test_a_report() -> None:
    """Budget: 0 requests while nothing changed, else 1 to read and 1 to write, and 1 of each broker
    that follows it, which is this one; 2,000 bytes, and 400 for each bundle.
    """
    async with a_fleet(1, BUNDLES, tree=CountingTree()) as fleet:
        (broker,) = fleet.brokers
        sampler = FixedSampler()
        reporter = a_reporter(broker, sampler)
        await broker.store.delete(paths.broker(broker.address.broker_id))
        for span in (await broker.namespaces.bundles(NS)).ranges:
            await broker.acquire(f"{NS}/{span}")
        reporter.base.broker.set(BrokerSettings(report_interval_max_minutes=60))
        await reporter.sample()
        await reporter.register()
        store = counts_of(broker)
        await settled(store)
        for _ in range(10):
            await reporter.sample()
            await reporter.tick()
        assert store.counts == {}
        sampler.usage = dataclasses.replace(sampler.usage, cpu=Reading(90, 100))
        await reporter.sample()
        await reporter.tick()
        known = broker.brokers.reports
        await until(lambda: known[broker.address.broker_id].cpu.usage == 90)
        assert store.counts == {"get": 2, "put": 1}
        assert len(reporter.published) <= REPORT_BYTES_MAX + BUNDLES * REPORT_BYTES_OF_A_BUNDLE_MAX


async def test_a_recorder() -> None:
    """Budget of a sample: 1 record of the broker, 1 of each bundle, 1 of each limit that has a
    rate; 0 requests. It keeps the counters of the limits that exist.
    """
    async with one_broker() as (broker, store):
        clock, history = DrivenClock(), Written(None)
        throttling = a_broker(clock)
        reporter = a_reporter(broker, FixedSampler())
        await reporter._build()
        recorder = Recorder(
            base=replace(broker.base, clock=clock),
            history=history,
            reporter=reporter,
            hosting=broker.tenant,
            ownership=broker.ownership,
            throttling=throttling,
            busy=LoopBusy(),
        )
        rate = {"publishRate": plain(PublishRate(messages_per_s=1, bytes_per_s=-1))}
        for number in range(20):
            name = TopicName.parse(f"persistent://public/default/t{number}")
            topic = throttling.topic(name, clock())
            throttling.set_topic_policies(name, rate, clock())
            await recorder.sample()
            assert len(history.records) == 1 + BUNDLES + 1
            assert recorder.limits is not None
            assert len(recorder.limits._counters) == 1
            history.records.clear()
            topic.close(clock())
            throttling.set_topic_policies(name, {}, clock())
        assert store.counts == {}
        recorder.begin()
        history.records.clear()
        recorder.busy.on_late(5.04)  # the process goes on after a freeze
        (stood,) = (it for it in history.records if isinstance(it, MemberChange))
        assert (stood.of, stood.event, stood.took_ms) == (broker.address.broker_id, "stood", 5_040)
        assert stood.clients == reporter.report.num_producers + reporter.report.num_consumers


async def test_a_lookup() -> None:
    """Budget: 0 requests for what is in memory, and 4 for a namespace before; for tenants that do
    not exist, those of so many looks in a second, however many are asked for.
    """
    async with one_broker() as (broker, store):
        for _ in range(100):
            await broker.lookups.lookup(TOPIC, authoritative=False)
        assert store.counts == {}
        broker.namespaces.forget(NS)
        await broker.lookups.lookup(TOPIC, authoritative=False)
        assert store.requests <= 4
        store.counts.clear()
        began_s = time.monotonic()
        for number in range(1_000):
            absent = TopicName.parse(f"persistent://absent{number}/default/orders")
            with pytest.raises(NotFoundError):
                await broker.lookups.lookup(absent, authoritative=False)
        seconds = 1 + math.ceil(time.monotonic() - began_s)
        assert store.requests <= 4 * (1 + LOOKS_PER_S * seconds)
        assert len(broker.lookups._searching._running) == 0


async def test_the_boundaries_of_many_namespaces() -> None:
    """Budget of counting bundles: 2 requests for a namespace at first, then 0."""
    async with one_broker() as (broker, store):
        names = [NamespaceName.parse(f"public/n{number}") for number in range(50)]
        for name in names:
            await broker.namespaces.create_namespace(name, {})
        await settled(store)
        for _ in range(3):
            for name in names:
                await broker.namespaces.bundle_count(name)
            assert store.counts == {"get": 2 * len(names)}


@asynccontextmanager
async def a_leader(namespaces: int) -> AsyncIterator[tuple[Led, CountingStore]]:
    """The leader of two brokers, of which one serves a bundle of each namespace."""
    async with led_fleet(2, tree=CountingTree(), clock=LoopTime()) as led:
        stats = {
            f"acme/ns-{number:03}/0x00000000_0xffffffff": NamespaceBundleStats(topics=1)
            for number in range(namespaces)
        }
        await led.report(0, {})
        await led.report(1, stats)
        store = counts_of(led.fleet.brokers[0])
        await settled(store)
        yield led, store


@pytest.mark.parametrize("namespaces", [1, 300])
async def test_a_cycle_of_the_leader(namespaces: int) -> None:
    """Budget: 0 requests, whatever the number of namespaces, once what the reports taught the model
    is stored. A hundred cycles that decide alike are one decision.
    """
    async with a_leader(namespaces) as (led, store):
        await led.shed()
        assert store.requests <= 12
        store.counts.clear()
        for _ in range(99):
            await led.shed()
        assert store.counts == {}
        kept = led.load_manager.records.decisions.last(10_000)
        assert sum(decision.kind == "shed" for decision in kept) == 1


@pytest.mark.parametrize("namespaces", [1, 300])
async def test_a_check_for_merges(namespaces: int) -> None:
    """Budget: 0 requests for namespaces of which no two bundles are neighbours."""
    async with a_leader(namespaces) as (led, store):
        for _ in range(10):
            await led.merging.step()
        assert store.counts == {}
