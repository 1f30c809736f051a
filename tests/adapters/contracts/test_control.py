"""What the admin API may rely on: the cluster in memory and the real runtime answer alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from runtime.fleet import Broker, Fleet, a_fleet

from loadmanager.adapters.admin.server import Control
from loadmanager.adapters.memory.admin_control import MemoryCluster
from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.bundles.ranges import format_boundaries
from loadmanager.core.conf import Live
from loadmanager.core.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.ports.control import Redirect
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.runtime.broker.service import BrokerService
from loadmanager.runtime.broker.splitting import Splitting
from loadmanager.runtime.shared.settings import BrokerSettings

NS = NamespaceName("acme", "orders")
FIRST = "0x00000000_0x40000000"
ONE, MANY = TopicName("persistent", NS, "one"), TopicName("persistent", NS, "many")


class NoLimits:
    """Topics may open at once."""

    async def opening(self, _namespace: NamespaceName) -> None:
        """Nothing to know before."""


def _service(broker: Broker, fleet: Fleet) -> Any:
    splitting = Splitting(
        namespaces=broker.namespaces,
        ownership=broker.ownership,
        hosting=broker.tenant,
        self_address=broker.address,
        settings=Live(SplitSettings()),
        broker=Live(BrokerSettings()),
    )
    unused: Any = {"limits": NoLimits(), "guard": None, "last_report": lambda: b"{}", "settings_in_force": dict, "stop": lambda _: None}
    return BrokerService(
        store=broker.store,
        config=Live(BrokerSettings()),
        self_address=broker.address,
        cut=broker.namespaces,
        catalogue=broker.topics,
        ownership=broker.ownership,
        splitting=splitting,
        lookups=broker.lookups,
        live=broker.brokers,
        leading=broker.leading,
        hosting=broker.tenant,
        peers=fleet,
        **unused,
    )


@asynccontextmanager
async def _runtime() -> AsyncIterator[list[Control]]:
    async with a_fleet(2) as fleet:
        yield [_service(broker, fleet) for broker in fleet.brokers]


@asynccontextmanager
async def _memory() -> AsyncIterator[list[Control]]:
    cluster = MemoryCluster()
    yield [cluster.join(BrokerAddress(f"b{index}:8080", f"pulsar://b{index}:6650", f"http://b{index}:8080")) for index in range(2)]


@pytest.fixture(params=[_runtime, _memory], ids=["runtime", "memory"])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[list[Control]]:
    """Two brokers and the namespace acme/orders of four bundles."""
    async with request.param() as controls:
        await controls[0].create_tenant("acme", {"adminRoles": ["root"], "allowedClusters": ["standalone"], "other": 1})
        await controls[0].create_namespace(NS, {"bundles": {"numBundles": 4}})
        yield controls


async def test_tenants(brokers: list[Control]) -> None:
    """Stored with the two known fields; replaced; not deleted while namespaces are inside; missing ones are named so."""
    control = brokers[0]
    assert await control.tenant("acme") == {"adminRoles": ["root"], "allowedClusters": ["standalone"]}
    await control.create_tenant("acme", {})
    assert await control.tenant("acme") == {"adminRoles": [], "allowedClusters": []}
    assert "acme" in await control.tenants()
    with pytest.raises(ConflictError):
        await control.delete_tenant("acme")
    await control.delete_namespace(NS, force=False)
    await control.delete_tenant("acme")
    for ask in (control.tenant, control.delete_tenant, control.namespaces):
        with pytest.raises(NotFoundError):
            await ask("acme")
    with pytest.raises(BadInputError):
        await control.create_tenant("..", {})


async def test_namespaces(brokers: list[Control]) -> None:
    """Bundles by number, by boundaries, by default; refused when it exists, without its tenant, with bad bundles."""
    control = brokers[0]
    assert len((await control.bundles(NS)).ranges) == 4
    cut = NamespaceName("acme", "cut")
    await control.create_namespace(cut, {"bundles": {"boundaries": ["0x00000000", "0x10000000", "0xffffffff"]}})
    assert format_boundaries((await control.bundles(cut)).boundaries) == ["0x00000000", "0x10000000", "0xffffffff"]
    assert (await control.policies(cut))["bundles"] == {"boundaries": ["0x00000000", "0x10000000", "0xffffffff"], "numBundles": 2}
    await control.create_namespace(NamespaceName("acme", "plain"), {})
    assert (await control.policies(NamespaceName("acme", "plain")))["replication_clusters"] == ["standalone"]
    assert await control.namespaces("acme") == ["acme/cut", "acme/orders", "acme/plain"]
    with pytest.raises(ConflictError):
        await control.create_namespace(NS, {})
    with pytest.raises(NotFoundError):
        await control.create_namespace(NamespaceName("nobody", "x"), {})
    for bundles in ({"numBundles": 0}, {"numBundles": "4"}, {"boundaries": ["0x1"]}, 4):
        with pytest.raises(BadInputError) as caught:
            await control.create_namespace(NamespaceName("acme", "bad"), {"bundles": bundles})
        assert type(caught.value) is BadInputError


async def test_topics(brokers: list[Control]) -> None:
    """Partitioned once only; listed partition by partition; not deleted with subscriptions unless forced; a full namespace likewise."""
    control = brokers[0]
    assert await control.partitions(MANY, create=True) == 0
    await control.create_partitioned_topic(MANY, 2)
    assert await control.partitions(MANY, create=True) == 2
    with pytest.raises(ConflictError):
        await control.create_partitioned_topic(MANY, 2)
    with pytest.raises(BadInputError):
        await control.create_partitioned_topic(ONE, 0)
    assert await control.open_topic(ONE) == ()
    await control.record_subscription(ONE, "s")
    assert await control.open_topic(ONE) == ("s",)
    names = [str(MANY.partition_name(0)), str(MANY.partition_name(1)), str(ONE)]
    assert await control.topics_of_namespace(NS, "ALL") == names
    assert await control.topics_of_namespace(NS, "NON_PERSISTENT") == []
    with pytest.raises(BadInputError):
        await control.topics_of_namespace(NS, "SOME")
    with pytest.raises(ConflictError):
        await control.delete_topic(ONE, force=False)
    with pytest.raises(ConflictError):
        await control.delete_namespace(NS, force=False)
    await control.delete_topic(ONE, force=True)
    await control.delete_topic(MANY, force=False)
    with pytest.raises(NotFoundError):
        await control.delete_topic(ONE, force=True)
    assert await control.topics_of_namespace(NS, "ALL") == []


async def test_unload(brokers: list[Control]) -> None:
    """Done when nobody owns the bundle or we do; else the owner is named; what does not exist is refused."""
    here, there = brokers
    bundle = f"{NS}/{FIRST}"
    assert await here.unload_bundle(NS, FIRST, authoritative=False, destination=None) is None
    await there.acquire_bundle(bundle)
    assert list(there.owned()) == [bundle]
    with pytest.raises(OperationalError):
        await here.acquire_bundle(bundle)
    assert await here.unload_bundle(NS, FIRST, authoritative=True, destination=None) == Redirect(there.self_address.web_url, True)
    assert await there.unload_bundle(NS, FIRST, authoritative=False, destination=None) is None
    assert not there.owned()
    for bad, error in (("0x00000000_0x40000001", ConflictError), ("first", BadInputError)):
        with pytest.raises(error):
            await here.unload_bundle(NS, bad, authoritative=False, destination=None)
    with pytest.raises(ConflictError):
        await here.unload_bundle(NS, FIRST, authoritative=False, destination="nobody:1")
    with pytest.raises(NotFoundError):
        await here.unload_bundle(NamespaceName("acme", "none"), FIRST, authoritative=False, destination=None)


async def test_split(brokers: list[Control]) -> None:
    """In the middle, children stay with the owner; no topics, no cut at positions; elsewhere the owner is named; what is unknown or gone is refused."""
    here, there = brokers
    await there.acquire_bundle(f"{NS}/{FIRST}")
    at: Any = {"algorithm": "specified_positions_divide", "positions": [0x10000000], "unload": False}
    assert await there.split_bundle(NS, FIRST, **at) is None
    assert list(there.owned()) == [f"{NS}/{FIRST}"]
    how: Any = {"algorithm": "range_equally_divide", "positions": [], "unload": False}
    assert await here.split_bundle(NS, FIRST, **how) == Redirect(there.self_address.web_url)
    assert await there.split_bundle(NS, FIRST, **how) is None
    assert sorted(there.owned()) == [f"{NS}/0x00000000_0x20000000", f"{NS}/0x20000000_0x40000000"]
    with pytest.raises(ConflictError):
        await there.split_bundle(NS, FIRST, **how)
    with pytest.raises(NotFoundError):
        await here.split_bundle(NS, "LARGEST", algorithm=None, positions=[], unload=False)
    with pytest.raises(BadInputError):
        await there.split_bundle(NS, "0x00000000_0x20000000", algorithm="magic", positions=[], unload=False)


async def test_brokers_and_peers(brokers: list[Control]) -> None:
    """All live brokers are known to each; releasing a bundle that is not ours does nothing."""
    here, there = brokers
    assert await here.brokers() == ["b0:8080", "b1:8080"]
    assert here.address_of("b1:8080") == there.self_address
    assert here.address_of("nobody:1") is None
    await there.acquire_bundle(f"{NS}/{FIRST}")
    await here.release_bundle(f"{NS}/{FIRST}", None, "test")
    assert list(there.owned()) == [f"{NS}/{FIRST}"]
    await there.release_bundle(f"{NS}/{FIRST}", None, "test")
    assert not there.owned()
