"""A host is foreign code: what it gets wrong costs that bundle or that answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from clusters.members import NS, a_fleet
from clusters.running import Cluster, Running, an_address, eventually, until
from structlog.testing import capture_logs

from loadmanager.broker.hosting import hosting_samples
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.service import BrokerService
from loadmanager.engine.ownership.states import BundleState
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.metrics.settings import MetricsSettings
from loadmanager.kit.names import TopicName
from loadmanager.kit.tasks import Scope
from loadmanager.member.hooks import HookLimits, Hooks
from loadmanager.member.not_opened import FIRST_S
from loadmanager.testing.cluster import LoopTime

BUNDLE = "public/default/0x00000000_0x40000000"
EXTENSIBLE = {"loadManagerClassName": "ExtensibleLoadManagerImpl"}
LOADS_S = 40.0
TOPICS = [TopicName("persistent", NS, f"t{number}") for number in range(40)]


class Unable(BrokerServer):
    """Cannot open bundles, in one of several ways."""

    def __init__(self, how: str, *arguments: Any, **fields: Any) -> None:
        super().__init__(*arguments, **fields)
        self.how = how
        self.asked: list[str] = []

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Fail."""
        self.asked.append(bundle)
        if self.how == "hangs":
            await asyncio.Event().wait()
        if self.how == "bug":
            raise ZeroDivisionError("a bug")
        if self.how == "refuses" or (self.how == "refuses one" and bundle == BUNDLE):
            raise OperationalError("the database is away")
        await super().open_bundle(bundle, life)


@asynccontextmanager
async def a_cluster_of(
    values: dict[str, str], *services: Callable[..., BrokerService]
) -> AsyncIterator[Cluster]:
    """Complete brokers, one with each service; the first one reports the least load, and none more
    than once a second: the tests take minutes of virtual time.
    """
    values = {"loadBalancerReportUpdateMinIntervalMillis": "1000", **values}
    async with Scope("cluster") as scope, Cluster(scope) as cluster:
        for index, service in enumerate(services):
            cpu = 10.0 + 20 * min(index, 1)
            broker = Running(cluster, an_address(index), values, cpu, service=service)
            cluster.brokers.append(broker)
            await broker.store.__aenter__()
            await broker.parts.start()
            await until(lambda: cluster.brokers[0].use.leading.leader is not None)
        namespaces = cluster.brokers[0].use.namespaces
        await namespaces.create_tenant(NS.tenant, {})
        await namespaces.create_namespace(NS, {"bundles": {"numBundles": 4}})
        for broker in cluster.brokers:
            await until(lambda one=broker: len(one.use.brokers.registered) == len(services))
        yield cluster


async def owner_of(cluster: Cluster, topic: TopicName) -> BrokerAddress | None:
    """What a client finds that follows redirects and does not try again."""
    at, authoritative = cluster.brokers[1], False
    for _ in range(4):
        try:
            answer = await at.parts.member.lookups.lookup(topic, authoritative=authoritative)
        except LoadManagerError:
            return None
        if not answer.redirect:
            return answer.broker
        authoritative = answer.authoritative
        following = cluster.at(answer.broker)
        assert following is not None
        at = following
    return None


async def served_after(cluster: Cluster, topics: list[TopicName]) -> float:
    """Seconds until clients that look topics up again and again have found owners for all."""
    loop = asyncio.get_running_loop()
    began_s, left = loop.time(), list(topics)
    while left and loop.time() - began_s < 600:
        found = await asyncio.gather(*(owner_of(cluster, topic) for topic in left))
        left = [topic for topic, owner in zip(left, found, strict=True) if owner is None]
        await asyncio.sleep(0.5)
    return loop.time() - began_s


@pytest.mark.parametrize("values", [{}, EXTENSIBLE], ids=["modular", "extensible"])
@pytest.mark.parametrize(("how", "within_s"), [("refuses", 5), ("bug", 5), ("hangs", 70)])
async def test_a_member_that_cannot_open_bundles_keeps_no_keys_dark(
    how: str, within_s: float, values: dict[str, str]
) -> None:
    """It has the least load, and would be chosen each time."""
    unable = partial(Unable, how)
    async with a_cluster_of(values, unable, BrokerServer, BrokerServer) as cluster:
        assert await served_after(cluster, TOPICS) < within_s
        service = cluster.brokers[0].parts.hosting
        assert 0 < len(service.asked) <= 8
        await asyncio.sleep(HookLimits().open_s)
        samples = {
            sample.labels: sample.value
            for sample in cluster.brokers[0].parts.member.telemetry.samples()
            if sample.name == "loadmanager_hook_failures"
        }
        assert samples[(("hook", "open_bundle"),)] == len(service.asked)
        service.how = "well"
        await asyncio.sleep(2 * FIRST_S + 300)
        for broker in cluster.brokers[1:]:
            for bundle in broker.parts.member.ownership.owned():
                await cluster.release_bundle(broker.address, bundle, None, epoch=None)
        asked = len(service.asked)
        assert await served_after(cluster, TOPICS) < 2
        assert len(service.asked) > asked


async def test_one_bundle_that_a_member_cannot_open_costs_it_no_other() -> None:
    """Three of four bundles are placed there, as if nothing had been."""
    async with a_cluster_of({}, partial(Unable, "refuses one"), BrokerServer) as cluster:
        assert await served_after(cluster, TOPICS) < 5
        assert BUNDLE in cluster.brokers[1].parts.member.ownership.owned()
        assert cluster.brokers[0].parts.member.ownership.owned()


async def test_a_bundle_that_nobody_can_open_is_tried_again_and_again() -> None:
    """To refuse it is no reason to leave it without an owner for ever."""
    services = [partial(Unable, "refuses one")] * 2
    async with a_cluster_of({}, *services) as cluster:
        bundle_of = cluster.brokers[0].use.namespaces.bundle_of
        (topic, *_) = [topic for topic in TOPICS if await bundle_of(topic) == BUNDLE]
        for _ in range(20):
            assert await owner_of(cluster, topic) is None
        for broker in cluster.brokers:
            broker.parts.hosting.how = "well"
        assert await served_after(cluster, [topic]) < 2


@pytest.mark.parametrize("values", [{}, EXTENSIBLE], ids=["modular", "extensible"])
async def test_an_opening_that_lost_its_lease_is_given_up(values: dict[str, str]) -> None:
    """The session lives, and owns the bundle; nobody waits for what is opened there no more."""
    values = {**values, "metadataStoreSessionTimeoutMillis": "10000"}
    async with a_cluster_of(values, BrokerServer, partial(Unable, "hangs")) as cluster:
        other, unable = cluster.brokers
        bundle_of, ownership = unable.use.namespaces.bundle_of, unable.parts.member.ownership
        (topic, *_) = [topic for topic in TOPICS if await bundle_of(topic) == BUNDLE]
        opening = asyncio.ensure_future(ownership.acquire(BUNDLE, "test"))
        await until(lambda: ownership.state(BUNDLE) is BundleState.OPENING)
        unable.store.suspend()
        await until(lambda: ownership.state(BUNDLE) is BundleState.FREE, within_s=20)
        unable.store.resume()
        await eventually(
            lambda: other.parts.member.ownership.owner(BUNDLE), lambda who: who is None
        )
        assert await served_after(cluster, [topic]) < 5
        assert not opening.done()
        opening.cancel()


@pytest.mark.parametrize("extensible", [(), (0, 1)], ids=["modular", "extensible"])
async def test_a_settle_that_hangs_gives_the_bundle_up(extensible: tuple[int, ...]) -> None:
    """After its limit, fenced; even if the host pays no heed to being cancelled."""
    async with a_fleet(2, extensible=extensible) as fleet:
        source, target = fleet.brokers
        await source.acquire(BUNDLE)
        woken = asyncio.Event()

        async def stubborn(_bundle: str, _life: int) -> None:
            while not woken.is_set():
                try:
                    await woken.wait()
                except asyncio.CancelledError:
                    continue

        source.tenant.settle_bundle = stubborn  # type: ignore[method-assign]
        began_s = asyncio.get_running_loop().time()
        with capture_logs() as lines:
            await source.release(BUNDLE, target.address)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(
            HookLimits().settle_s, abs=1
        )
        assert fleet.owners(BUNDLE) == [target.address.broker_id]
        (line,) = (line for line in lines if line["event"] == "a hook of the service failed")
        assert (line["hook"], line["bundle"]) == ("settle_bundle", BUNDLE)
        assert line["error"] == "the service's settle_bundle took longer than 10 s"
        woken.set()


class SlowServer(BrokerServer):
    """Loads for a while before it serves a bundle."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        super().__init__(*arguments, **fields)
        self.closed_s: list[tuple[float, str]] = []
        """When bundles were closed, and where they are."""
        self.opened_s: list[float] = []

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Load it."""
        await asyncio.sleep(LOADS_S)
        await super().open_bundle(bundle, life)
        self.opened_s.append(asyncio.get_running_loop().time())

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Write down when, and where clients are sent."""
        now_s = asyncio.get_running_loop().time()
        self.closed_s.append((now_s, destination.broker_id if destination else ""))
        return await super().close_bundle(
            bundle, life, destination=destination, timeout_s=timeout_s
        )


@pytest.mark.parametrize("values", [{}, EXTENSIBLE], ids=["modular", "extensible"])
async def test_a_move_pauses_until_the_next_owner_serves(values: dict[str, str]) -> None:
    """Log and histogram say how long that took; until then nobody is told of the next owner, and
    the bundle's clients are not sent there.
    """
    async with a_cluster_of(values, *[SlowServer] * 3) as cluster:
        (topic,) = TOPICS[:1]
        while (owner := await owner_of(cluster, topic)) is None:
            await asyncio.sleep(1)
        source = cluster.at(owner)
        target = next(broker for broker in cluster.brokers if broker is not source)
        assert source is not None
        bundle = await source.use.namespaces.bundle_of(topic)
        with capture_logs() as lines:
            moving = asyncio.ensure_future(
                source.parts.member.ownership.release(
                    bundle, reason="test", destination=target.address, timeout_s=5
                )
            )
            await asyncio.sleep(LOADS_S / 2)
            for broker in cluster.brokers:
                assert broker.parts.member.ownership.cached_owner(bundle) in (None, source.address)
            assert source.parts.hosting.closed_s == []
            await moving
        (pause_ms,) = (line["pause_ms"] for line in lines if line.get("pause_ms"))
        assert pause_ms == pytest.approx(LOADS_S * 1000, rel=0.1)
        ((closed_s, sent_to),) = source.parts.hosting.closed_s
        assert closed_s >= target.parts.hosting.opened_s[-1]
        assert sent_to == target.address.broker_id
        assert await owner_of(cluster, topic) == target.address
        (sum_s,) = (
            sample.value
            for sample in source.parts.member.telemetry.samples()
            if (sample.name, sample.suffix) == ("loadmanager_move_pause_seconds", "_sum")
        )
        assert sum_s == pytest.approx(LOADS_S, rel=0.1)


class Broken:
    """Answers no question."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> Any:
            raise ZeroDivisionError(name)

        return fail


def test_an_answer_that_a_host_cannot_give_is_none() -> None:
    """What goes by it goes by nothing; the log names the hook."""
    hooks = Hooks(Broken(), HookLimits())
    with capture_logs() as lines:
        assert dict(hooks.bundle_stats()) == {}
        assert hooks.topics(BUNDLE) == {}
        assert hooks.clients(BUNDLE) == 0
        assert hooks.usage().memory_used_bytes == 0
        hooks.usage()
    assert [line["hook"] for line in lines] == ["bundle_stats", "topics", "clients", "usage"]
    assert hooks.failures["usage"] == 2


def test_metrics_that_a_host_cannot_give_take_out_no_others() -> None:
    """Those before the failure are there; it is counted beside them."""

    def samples() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    hooks = Hooks(Broken(), HookLimits())
    assert list(hooks.contained("samples", samples)) == [1]
    assert hooks.failures == {"samples": 1}
    detail = Live(MetricsSettings())
    of_service, _ = hosting_samples(Broken(), hooks, Broken(), LoopTime(), detail)
    assert list(of_service()) == []
    assert hooks.failures == {"samples": 2}


class CannotSplit(BrokerServer):
    """Has a bug in what replaces bundles."""

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """Fail."""
        raise ZeroDivisionError("a bug")

    def merge_bundles(self, parts: dict[str, int], merged: str, merged_life: int) -> None:
        """Fail."""
        raise ZeroDivisionError("a bug")


async def test_a_bug_in_a_split_closes_the_bundle_and_opens_what_replaces_it() -> None:
    """The bundles have owners at once, and the log says whose bug it is; a merge is the same."""
    async with a_cluster_of(EXTENSIBLE, CannotSplit, BrokerServer) as cluster:
        source = cluster.brokers[0]
        ownership = source.parts.member.ownership
        await ownership.acquire(BUNDLE, "test")
        with capture_logs() as lines:
            children = await ownership.split(BUNDLE, [0x20000000], "test")
        assert ownership.owned() == children
        assert sorted(source.parts.hosting.bundle_stats()) == children
        (line,) = (line for line in lines if line["event"] == "a hook of the service failed")
        assert line["error"] == "the service's split_bundle failed: ZeroDivisionError: a bug"
        assert await ownership.merge(*children, "test") == BUNDLE
        assert ownership.owned() == list(source.parts.hosting.bundle_stats()) == [BUNDLE]
        hosting = source.parts.member.telemetry.hosting
        assert hosting.failures == {"split_bundle": 1, "merge_bundles": 1}


class CannotMeasure(BrokerServer):
    """Has a bug in every question about its use of resources."""

    def usage(self) -> Any:
        """Fail."""
        raise ZeroDivisionError("a bug")

    bundle_stats = topics = clients = usage  # type: ignore[assignment]


async def test_a_host_with_a_bug_in_its_figures_starts_all_the_same() -> None:
    """It serves bundles, counts as one without load, and the log says whose bug it is, once."""
    with capture_logs() as lines:
        async with a_cluster_of(EXTENSIBLE, CannotMeasure, BrokerServer) as cluster:
            source = cluster.brokers[0]
            await source.parts.member.ownership.acquire(BUNDLE, "test")
            await asyncio.sleep(60)
            assert source.parts.member.ownership.owned() == [BUNDLE]
    failed = [line["hook"] for line in lines if line["event"] == "a hook of the service failed"]
    assert failed.count("usage") == failed.count("bundle_stats") == 1


class SlowToOpen(Broken):
    """Takes a while to open a bundle, and serves it from then on, whatever happened meanwhile."""

    def __init__(self) -> None:
        self.may_open = asyncio.Event()
        self.serves = False

    async def open_bundle(self, _bundle: str, _life: int) -> None:
        """Serve it in the end."""
        await self.may_open.wait()
        self.serves = True

    def fence_bundle(self, _bundle: str, _life: int) -> None:
        """Serve it no more."""
        self.serves = False

    def fence_all(self) -> None:
        """Serve nothing."""
        self.serves = False


FENCES: list[Callable[[Hooks], None]] = [
    lambda hooks: hooks.fence_all(),
    lambda hooks: hooks.fence_bundle(BUNDLE, 7),
    lambda hooks: hooks.fencing(lambda: None)(),
]


@pytest.mark.parametrize("fence", FENCES, ids=["all", "bundle", "lost"])
async def test_what_is_fenced_while_it_is_opened_is_not_served_for_one_turn(
    fence: Callable[[Hooks], None],
) -> None:
    """Its next owner may serve it already."""
    host = SlowToOpen()
    hooks = Hooks(host, HookLimits())
    opening = asyncio.create_task(hooks.open_bundle(BUNDLE, 7))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    fence(hooks)
    host.may_open.set()
    turns = []
    while not opening.done():
        turns.append(host.serves)
        await asyncio.sleep(0)
    assert not any(turns)
    assert not host.serves
    again = asyncio.create_task(hooks.open_bundle(BUNDLE, 8))
    await again
    assert host.serves
