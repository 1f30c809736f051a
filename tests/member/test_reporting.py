"""The times at which the load report is published, and its shortening."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import structlog
from clusters.members import Broker, a_fleet

from loadmanager.engine.load.reports import (
    LocalBrokerData,
    NamespaceBundleStats,
    decode_local_broker_data,
    disks_of,
)
from loadmanager.kit.metadata import paths
from loadmanager.kit.sampler import Reading, SensorFault, SystemUsage
from loadmanager.member.reporter import Reporter, shorten
from loadmanager.member.settings import BrokerSettings
from loadmanager.testing.cluster import LoopTime

BUNDLE = "public/default/0x00000000_0x40000000"


class FixedSampler:
    """A sampler with fixed usage."""

    scope = "process"

    def __init__(self) -> None:
        self.usage = SystemUsage(
            Reading(10, 100),
            Reading(1, 100),
            Reading(0, 0),
            Reading(0, 0),
            (SensorFault("nicSpeed", "none"),),
        )

    def sample(self) -> SystemUsage:
        """The fixed usage."""
        return self.usage


class SetClock(LoopTime):
    """A clock whose wall time a test can set."""

    ahead_ms = 0

    def now_ms(self) -> int:
        """Milliseconds."""
        return super().now_ms() + self.ahead_ms


def a_reporter(broker: Broker, sampler: FixedSampler, clock: LoopTime | None = None) -> Reporter:
    """A reporter over a broker's parts."""
    base = broker.with_settings(BrokerSettings(report_interval_max_minutes=0.02))
    return Reporter(
        base=replace(base, clock=clock or LoopTime()),
        cluster=broker.cluster,
        hosting=broker.tenant,
        ownership=broker.ownership,
        sampler=sampler,
        version="1",
    )


async def test_disks_are_reported() -> None:
    """As a field beside Pulsar's, and by every percent of change; a broker that has none to tell
    leaves it out.
    """
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        sampler = FixedSampler()
        reporter = a_reporter(broker, sampler)
        reporter.base = broker.with_settings(BrokerSettings())

        async def published(used: float) -> dict[str, Any]:
            sampler.usage = replace(sampler.usage, disks={"topics": Reading(used, 1000)})
            await reporter.sample()
            await reporter.tick()
            return dict(msgspec.json.decode(reporter.published))

        await reporter.sample()
        await reporter.register()
        assert "disks" not in msgspec.json.decode(reporter.published)
        assert (await published(500))["disks"] == {"topics": {"usage": 500, "limit": 1000}}
        assert (await published(509))["disks"]["topics"]["usage"] == 500, "half a percent"
        assert (await published(511))["disks"]["topics"]["usage"] == 511
        told = decode_local_broker_data(reporter.published)
        assert disks_of(told)["topics"].percent == pytest.approx(51.1)


async def test_published_by_change_and_by_age() -> None:
    """A report is published only if a figure changed by more than 10 %, or the last one is old."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        sampler = FixedSampler()
        reporter = a_reporter(broker, sampler)

        async def version() -> int:
            node = await broker.store.get(paths.broker(broker.address.broker_id))
            assert node is not None
            return node.version

        await reporter.sample()
        await reporter.register()
        first = await version()
        await reporter.tick()
        assert await version() == first
        sampler.usage = SystemUsage(Reading(20, 100), Reading(1, 100), Reading(0, 0), Reading(0, 0))
        await reporter.sample()
        await reporter.tick()
        assert await version() == first, "exactly 10 points are not more than 10"
        sampler.usage = SystemUsage(Reading(21, 100), Reading(1, 100), Reading(0, 0), Reading(0, 0))
        await reporter.sample()
        await reporter.tick()
        assert await version() == first + 1
        await broker.ownership.acquire(BUNDLE, "test")
        await reporter.tick()
        assert await version() == first + 2, "from no bundle to one is an infinite change"
        await asyncio.sleep(1.3)
        await reporter.tick()
        assert await version() == first + 3, "older than the maximum interval"
        report = decode_local_broker_data(reporter.published)
        assert (report.bundles, report.num_bundles, report.cpu.percent) == ([BUNDLE], 1, 21.0)


async def test_published_by_age_whatever_the_wall_clock_says() -> None:
    """After jumps of the wall clock, reports neither stop nor are written at every turn."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        clock = SetClock()
        clock.ahead_ms = 86_400_000
        reporter = a_reporter(broker, FixedSampler(), clock)
        await reporter.register()
        clock.ahead_ms = 0
        first = reporter.published
        await reporter.tick()
        assert reporter.published == first
        await asyncio.sleep(1.3)
        await reporter.tick()
        written = decode_local_broker_data(reporter.published).last_update
        assert written < decode_local_broker_data(first).last_update
        clock.ahead_ms = 86_400_000
        await reporter.tick()
        assert decode_local_broker_data(reporter.published).last_update == written


async def test_a_registration_that_no_session_holds_makes_room() -> None:
    """A persistent node in the registration's place is replaced, even if it has children."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        path = paths.broker(broker.address.broker_id)
        await broker.store.delete(path)
        await broker.store.create(f"{path}/below", b"")
        await a_reporter(broker, FixedSampler()).register()
        node = await broker.store.get(path)
        assert node is not None
        assert node.ephemeral_owner == broker.store.session_id


async def test_faults_come_and_go() -> None:
    """The reporter lists a failing sensor as a fault until it recovers."""
    async with a_fleet(1) as fleet:
        sampler = FixedSampler()
        reporter = a_reporter(fleet.brokers[0], sampler)
        await reporter.sample()
        assert [fault.sensor for fault in reporter.faults] == ["nicSpeed"]
        sampler.usage = SystemUsage(Reading(1, 100), Reading(1, 100), Reading(0, 1), Reading(0, 1))
        await reporter.sample()
        assert reporter.faults == ()


def test_a_report_fits_at_any_number_of_bundles() -> None:
    """A report that is too long contains the busiest bundles; its sums still count all bundles."""
    stats = {
        f"public/default/0x{n:08x}_0x{n + 1:08x}": NamespaceBundleStats(msg_throughput_in=float(n))
        for n in range(20_000)
    }
    report = LocalBrokerData(
        last_stats=stats, bundles=sorted(stats), num_bundles=len(stats), msg_throughput_in=5.0
    )
    encoded, left_out = shorten(report, 950_000)
    assert len(encoded) <= 950_000
    read = decode_local_broker_data(encoded)
    assert (read.num_bundles, read.msg_throughput_in) == (20_000, 5.0)
    assert set(read.bundles) == set(read.last_stats) == set(sorted(stats)[left_out:])
    small = LocalBrokerData(bundles=["a"], num_bundles=1)
    assert shorten(small, 950_000) == (msgspec.json.encode(small), 0)


async def test_a_broker_that_leaves_stays_away() -> None:
    """Its own deregistration wakes the session keeper: neither it nor a report registers again."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        reporter = a_reporter(broker, FixedSampler())
        await broker.store.delete(paths.broker(broker.address.broker_id))
        assert await reporter.register()
        await reporter.unregister()
        with structlog.testing.capture_logs() as logs:
            assert not await reporter.register()
            await reporter.tick()
        assert logs == []
        assert await broker.store.get(paths.broker(broker.address.broker_id)) is None
