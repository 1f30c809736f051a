"""Use cases of complete brokers, for operators and other brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from clusters.running import a_cluster

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.ports.directory import TopicRecords
from loadmanager.engine.bundles.ranges import format_boundaries
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.kit.names import NamespaceName, TopicName

NS = NamespaceName("acme", "orders")
FIRST = "0x00000000_0x40000000"
ONE, MANY = TopicName("persistent", NS, "one"), TopicName("persistent", NS, "many")


@pytest.fixture
async def brokers() -> AsyncIterator[list[UseCases]]:
    """Two brokers and the namespace acme/orders of four bundles."""
    async with a_cluster(brokers=2) as cluster:
        namespaces = cluster.brokers[0].use.namespaces
        await namespaces.create_tenant(
            "acme", {"adminRoles": ["root"], "allowedClusters": ["standalone"], "other": 1}
        )
        await namespaces.create_namespace(NS, {"bundles": {"numBundles": 4}})
        yield [broker.use for broker in cluster.brokers]


async def test_tenants(brokers: list[UseCases]) -> None:
    """Stored with the two known fields; replaced; not deleted while namespaces are inside; missing
    ones are named so.
    """
    use = brokers[0]
    assert await use.namespaces.tenant("acme") == {
        "adminRoles": ["root"],
        "allowedClusters": ["standalone"],
    }
    with pytest.raises(ConflictError, match="already exist"):
        await use.namespaces.create_tenant("acme", {})
    await use.namespaces.update_tenant("acme", {})
    assert await use.namespaces.tenant("acme") == {"adminRoles": [], "allowedClusters": []}
    assert "acme" in await use.namespaces.tenants()
    with pytest.raises(ConflictError):
        await use.namespaces.delete_tenant("acme")
    await use.deleting.namespace(NS, force=False)
    await use.namespaces.delete_tenant("acme")
    for ask in (use.namespaces.tenant, use.namespaces.delete_tenant, use.namespaces.namespaces):
        with pytest.raises(NotFoundError):
            await ask("acme")
    with pytest.raises(BadInputError):
        await use.namespaces.create_tenant("..", {})


async def test_namespaces(brokers: list[UseCases]) -> None:
    """Bundles by number, by boundaries, by default; refused when it exists, without its tenant,
    with bad bundles.
    """
    use = brokers[0]
    assert len((await use.namespaces.bundles(NS)).ranges) == 4
    two = NamespaceName("acme", "two")
    await use.namespaces.create_namespace(
        two, {"bundles": {"boundaries": ["0x00000000", "0x10000000", "0xffffffff"]}}
    )
    assert format_boundaries((await use.namespaces.bundles(two)).boundaries) == [
        "0x00000000",
        "0x10000000",
        "0xffffffff",
    ]
    assert (await use.namespaces.policies(two))["bundles"] == {
        "boundaries": ["0x00000000", "0x10000000", "0xffffffff"],
        "numBundles": 2,
    }
    await use.namespaces.create_namespace(NamespaceName("acme", "plain"), {})
    assert (await use.namespaces.policies(NamespaceName("acme", "plain")))[
        "replication_clusters"
    ] == ["standalone"]
    assert await use.namespaces.namespaces("acme") == ["acme/orders", "acme/plain", "acme/two"]
    with pytest.raises(ConflictError):
        await use.namespaces.create_namespace(NS, {})
    with pytest.raises(NotFoundError):
        await use.namespaces.create_namespace(NamespaceName("nobody", "x"), {})
    for bundles in ({"numBundles": 0}, {"numBundles": "4"}, {"boundaries": ["0x1"]}, 4):
        with pytest.raises(BadInputError) as caught:
            await use.namespaces.create_namespace(
                NamespaceName("acme", "bad"), {"bundles": bundles}
            )
        assert type(caught.value) is BadInputError


async def test_topics(brokers: list[UseCases]) -> None:
    """Partitioned once only; listed partition by partition; not deleted with subscriptions unless
    forced; a full namespace likewise.
    """
    use = brokers[0]
    assert await use.directory.partitions(MANY, create=True) == 0
    await use.topics.create_partitioned(MANY, 2)
    assert await use.directory.partitions(MANY, create=True) == 2
    with pytest.raises(ConflictError):
        await use.topics.create_partitioned(MANY, 2)
    with pytest.raises(BadInputError):
        await use.topics.create_partitioned(ONE, 0)
    assert await use.directory.open_topic(ONE) == TopicRecords()
    await use.directory.record_subscription(ONE, "s")
    assert await use.directory.open_topic(ONE) == TopicRecords(("s",))
    names = [str(MANY.partition_name(0)), str(MANY.partition_name(1)), str(ONE)]
    assert await use.directory.topics_of_namespace(NS, "ALL") == names
    assert await use.directory.topics_of_namespace(NS, "NON_PERSISTENT") == []
    with pytest.raises(BadInputError):
        await use.directory.topics_of_namespace(NS, "SOME")
    with pytest.raises(ConflictError):
        await use.deleting.topic(ONE, force=False)
    with pytest.raises(ConflictError):
        await use.deleting.namespace(NS, force=False)
    await use.deleting.topic(ONE, force=True)
    await use.deleting.topic(MANY, force=False)
    with pytest.raises(NotFoundError):
        await use.deleting.topic(ONE, force=True)
    assert await use.directory.topics_of_namespace(NS, "ALL") == []


async def test_unload(brokers: list[UseCases]) -> None:
    """Done when nobody owns the bundle or we do; else the owner is named; what does not exist is
    refused.
    """
    here, there = brokers
    bundle = f"{NS}/{FIRST}"
    assert await here.unloading.bundle(NS, FIRST) is None
    await there.orders.acquire(bundle)
    assert there.ownership.owned() == [bundle]
    with pytest.raises(OperationalError):
        await here.orders.acquire(bundle)
    assert await here.unloading.bundle(NS, FIRST) == there.self_address
    assert await there.unloading.bundle(NS, FIRST) is None
    assert not there.ownership.owned()
    for bad, error in (("0x00000000_0x40000001", ConflictError), ("first", BadInputError)):
        with pytest.raises(error):
            await here.unloading.bundle(NS, bad)
    with pytest.raises(ConflictError):
        await here.unloading.bundle(NS, FIRST, destination="nobody:1")
    with pytest.raises(NotFoundError):
        await here.unloading.bundle(NamespaceName("acme", "none"), FIRST)


async def test_split(brokers: list[UseCases]) -> None:
    """In the middle, children stay with the owner; without topics it is not divided at positions.

    Elsewhere the owner is named; a bundle that is unknown or gone is refused.
    """
    here, there = brokers
    await there.orders.acquire(f"{NS}/{FIRST}")
    how = {"algorithm": "specified_positions_divide", "positions": [0x10000000]}
    with pytest.raises(ConflictError, match="is not split"):
        await there.splitting.split(NS, FIRST, **how, unload=False)
    assert there.ownership.owned() == [f"{NS}/{FIRST}"]
    assert await here.splitting.split(NS, FIRST, unload=False) == there.self_address
    children = [f"{NS}/0x00000000_0x20000000", f"{NS}/0x20000000_0x40000000"]
    assert await there.splitting.split(NS, FIRST, unload=False) == children
    assert there.ownership.owned() == children
    with pytest.raises(ConflictError):
        await there.splitting.split(NS, FIRST, unload=False)
    for by in ("LARGEST", "HOT"):
        with pytest.raises(ConflictError, match=f"{by} names none"):
            await here.splitting.choose(NS, by)
    with pytest.raises(BadInputError):
        await there.splitting.split(NS, "0x00000000_0x20000000", algorithm="magic", unload=False)


async def test_the_hottest_bundle_of_the_namespace(brokers: list[UseCases]) -> None:
    """Each broker chooses by the load reports of all, and only among the bundles that exist."""
    stats = {
        f"{NS}/{FIRST}": NamespaceBundleStats(msg_throughput_in=5.0),
        f"{NS}/0x40000000_0x80000000": NamespaceBundleStats(msg_throughput_out=6.0),
        f"{NS}/0x00000000_0x50000000": NamespaceBundleStats(msg_throughput_in=9.0),
    }
    for broker in brokers:
        reports: dict[str, LocalBrokerData] = broker.brokers.reports  # type: ignore[attr-defined]
        reports["b9:8080"] = LocalBrokerData(last_stats=stats)
        assert await broker.splitting.choose(NS, "HOT") == "0x40000000_0x80000000"
        assert await broker.splitting.choose(NS, FIRST) == FIRST


async def test_brokers_and_peers(brokers: list[UseCases]) -> None:
    """All live brokers are known to each; releasing a bundle that is not ours does nothing."""
    here, there = brokers
    assert here.brokers.registered == {"b0:8080", "b1:8080"}
    assert here.brokers.address("b1:8080") == there.self_address
    assert here.brokers.address("nobody:1") is None
    await there.orders.acquire(f"{NS}/{FIRST}")
    assert not await here.orders.release(f"{NS}/{FIRST}", None)
    assert there.ownership.owned() == [f"{NS}/{FIRST}"]
    assert await there.orders.release(f"{NS}/{FIRST}", None)
    assert not there.ownership.owned()


async def test_orders_of_a_deposed_leader(brokers: list[UseCases]) -> None:
    """Refused, and nothing is done; an operator's wish belongs to no term."""
    here, there = brokers
    leader = here.leading.leader
    assert leader is not None
    bundle, before = f"{NS}/{FIRST}", leader.epoch - 1
    with pytest.raises(ConflictError, match="deposed"):
        await there.orders.acquire(bundle, epoch=before)
    await there.orders.acquire(bundle, epoch=leader.epoch)
    with pytest.raises(ConflictError, match="deposed"):
        await there.orders.release(bundle, None, epoch=before)
    with pytest.raises(ConflictError, match="deposed"):
        await there.orders.split(NS, FIRST, unload=False, epoch=before)
    assert there.ownership.owned() == [bundle]
    with pytest.raises(OperationalError, match="another owner"):
        await here.orders.split(NS, FIRST, unload=False, epoch=leader.epoch)
    assert await there.orders.release(bundle, None)
