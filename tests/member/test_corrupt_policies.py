"""Corrupt policies, boundaries and records of topics: only the corrupt object is left out."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loadmanager.broker.protocol.lookups import code_of
from loadmanager.broker.topics.topics import Topics
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.engine.policies.isolation import EXPRESSIONS_MAX
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError, CorruptDataError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Change, ChangeKind
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.settings import BrokerSettings

NS, OTHER = NamespaceName("public", "default"), NamespaceName("public", "other")
ISOLATION = f"{paths.CLUSTERS}/c/namespaceIsolationPolicies"
DOMAINS = f"{paths.CLUSTERS}/c/failureDomain"
RESYNC = Change(ChangeKind.RESYNC, paths.ADMIN)
NO_OBJECTS = [b'{"a":"\xff\xfe"}', b'{"a":' * 20_000, b"garbage", b"[1,2]", b"null", b"1e5"]


def a_policy(namespace: str = "public/.*", **fields: Any) -> dict[str, Any]:
    """A policy as Pulsar stores it."""
    return {"namespaces": [namespace], "primary": ["127.*"], "secondary": [], **fields}


class Cluster:
    """The readers of /admin over one store."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.corrupt = store, Corrupt()
        self.policies = PlacementPolicies(store, "c", self.corrupt)
        self.namespaces = Namespaces(store, Live(BrokerSettings()), self.corrupt)
        self.topics = Topics(store, self.namespaces, Live(BrokerSettings()), self.corrupt)

    async def store_policies(self, policies: dict[str, Any]) -> None:
        """Write isolation policies into the store, and notify the reader."""
        await self.store.put(ISOLATION, json.dumps(policies).encode())
        await self.policies.on_change(Change(ChangeKind.CHANGED, ISOLATION))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Two namespaces."""
    async with MemoryTree().session() as store:
        cluster = Cluster(store)
        await cluster.namespaces.create_tenant("public", {})
        for namespace in (NS, OTHER):
            await cluster.namespaces.create_namespace(namespace, {"bundles": {"numBundles": 4}})
        yield cluster


@pytest.mark.parametrize(
    "bad",
    [
        a_policy("("),
        a_policy("(?=a)b"),
        a_policy("x" * 10_000),
        {"namespaces": 1},
        [],
        a_policy(auto_failover_policy={"parameters": {"min_limit": "x"}}),
        a_policy(auto_failover_policy={"parameters": {"usage_threshold": []}}),
        a_policy(secondary=["x"] * (EXPRESSIONS_MAX + 1)),
    ],
    ids=lambda bad: str(bad)[:60],
)
async def test_a_corrupt_policy_takes_out_itself_only(cluster: Cluster, bad: Any) -> None:
    """The other policies stay in force. The corrupt one is counted once, and can be replaced."""
    policies = cluster.policies
    for _ in range(3):
        await cluster.store_policies({"a": a_policy("a/.*"), "bad": bad, "z": a_policy("z/.*")})
    assert list(policies.isolation) == list(await policies.isolation_in_force()) == ["a", "z"]
    assert cluster.corrupt.counts == {"policy": 1}
    assert cluster.corrupt.paths == [f"{ISOLATION}, policy 'bad'"]
    await policies.set_isolation_policy("bad", a_policy("b/.*"))
    assert list(policies.isolation) == ["a", "bad", "z"]
    assert cluster.corrupt.paths == []
    await cluster.store_policies({"bad": bad})
    assert cluster.corrupt.counts == {"policy": 2}
    await policies.set_isolation_policy("bad", None)
    assert (policies.isolation, cluster.corrupt.paths) == ({}, [])


async def test_too_many_expressions_take_out_the_last_policies_by_name(cluster: Cluster) -> None:
    """Matching all of them must stay cheap: the API refuses more, and stored ones are left out."""
    half = [f"h{number}" for number in range(EXPRESSIONS_MAX // 2)]
    stored = {name: {"namespaces": [], "primary": half} for name in "abc"}
    await cluster.store_policies(stored)
    assert list(cluster.policies.isolation) == ["a", "b"]
    assert cluster.corrupt.paths == [f"{ISOLATION}, policy 'c'"]
    with pytest.raises(BadInputError, match="regular expressions"):
        await cluster.policies.set_isolation_policy("d", a_policy())


async def test_expressions_that_are_too_large_together(cluster: Cluster) -> None:
    """Each could be used. The API refuses them, and a stored policy of them is left out, logged and
    counted, as others that cannot be used.
    """
    large = a_policy(secondary=[f"(x|y|z|d#){{1,190}}{number}" for number in range(1_990)])
    with pytest.raises(BadInputError, match="too large"):
        await cluster.policies.set_isolation_policy("m", large)
    assert cluster.policies.isolation == {}
    await cluster.store_policies({"a": a_policy("a/.*"), "m": large, "z": a_policy("z/.*")})
    assert list(cluster.policies.isolation) == ["a", "z"]
    assert cluster.corrupt.counts == {"policy": 1}
    assert cluster.corrupt.paths == [f"{ISOLATION}, policy 'm'"]


@pytest.mark.parametrize("value", NO_OBJECTS[1:], ids=lambda value: repr(value[:12]))
async def test_policies_that_cannot_be_read_at_all_change_nothing(
    cluster: Cluster, value: bytes
) -> None:
    """The policies in force stay, and nothing overwrites what an operator may repair."""
    await cluster.store_policies({"a": a_policy()})
    await cluster.store.put(ISOLATION, value)
    await cluster.policies.on_change(RESYNC)
    assert list(cluster.policies.isolation) == ["a"]
    assert ISOLATION in cluster.corrupt.paths
    with pytest.raises(CorruptDataError, match=ISOLATION):
        await cluster.policies.isolation_policies()
    with pytest.raises(CorruptDataError, match=ISOLATION):
        await cluster.policies.set_isolation_policy("b", a_policy())


async def test_an_expression_that_backtracks_for_ever_elsewhere(cluster: Cluster) -> None:
    """`(a+)+` against 32 a and a hyphen takes a backtracking engine 2^32 steps."""
    await cluster.policies.set_isolation_policy("p", a_policy("public/(a+)+"))
    began_s = time.process_time()
    assert cluster.policies.isolation.of("public/" + "a" * 32 + "-") is None
    assert cluster.policies.isolation.of("public/" + "a" * 32) is not None
    assert time.process_time() - began_s < 10


@pytest.mark.parametrize("value", NO_OBJECTS, ids=lambda value: repr(value[:12]))
async def test_a_corrupt_domain_takes_out_itself_only(cluster: Cluster, value: bytes) -> None:
    """It is no longer corrupt when its node is deleted."""
    await cluster.store.put(f"{DOMAINS}/good", b'{"brokers":["a:1",5]}')
    await cluster.store.put(f"{DOMAINS}/bad", value)
    await cluster.policies.on_change(RESYNC)
    assert cluster.policies.domains == {"good": ["a:1"]}
    assert cluster.corrupt.paths == [f"{DOMAINS}/bad"]
    await cluster.store.delete(f"{DOMAINS}/bad")
    await cluster.policies.on_change(Change(ChangeKind.DELETED, f"{DOMAINS}/bad"))
    assert cluster.corrupt.paths == []


@pytest.mark.parametrize(
    "value",
    [
        *NO_OBJECTS,
        b'{"bundles":5}',
        b'{"bundles":{"boundaries":["zz",5,null]}}',
        b'{"bundles":{"boundaries":5}}',
        b'{"bundles":{"boundaries":["0x00000000"]}}',
        b'{"bundles":{"boundaries":["0xffffffff","0x00000000"]}}',
    ],
    ids=lambda value: repr(value[:40]),
)
async def test_corrupt_boundaries_take_out_their_namespace_only(
    cluster: Cluster, value: bytes
) -> None:
    """No broker guesses boundaries: with two guesses, a topic could have two owners."""
    path = paths.local_policies(NS)
    good = await cluster.store.get(path)
    assert good is not None
    await cluster.store.put(path, value)
    cluster.namespaces.on_change(Change(ChangeKind.CHANGED, path))
    await cluster.policies.on_change(RESYNC)
    for _ in range(3):
        with pytest.raises(CorruptDataError, match=path) as caught:
            await cluster.namespaces.bundles(NS)
    assert code_of(caught.value) == pb.MetadataError
    assert cluster.corrupt.paths == [path]
    assert len((await cluster.namespaces.bundles(OTHER)).ranges) == 4
    await cluster.store.put(path, good.value)
    cluster.namespaces.on_change(Change(ChangeKind.CHANGED, path))
    assert len((await cluster.namespaces.bundles(NS)).ranges) == 4
    assert cluster.corrupt.paths == []


@pytest.mark.parametrize(
    "value",
    [
        *NO_OBJECTS,
        *(b'{"partitions":%b}' % text for text in (b'"abc"', b"1e300", b"-1", b"[1]", b"9" * 30)),
    ],
)
async def test_a_corrupt_record_of_a_topic_takes_out_itself_only(
    cluster: Cluster, value: bytes
) -> None:
    """A request for that topic gets an error with the path; lists contain the other topics."""
    bad, good = (TopicName.parse(f"persistent://{NS}/{name}") for name in ("bad", "good"))
    await cluster.topics.create_partitioned(good, 2)
    await cluster.store.put(paths.partitioned_topic(bad), value)
    with pytest.raises(CorruptDataError, match=paths.partitioned_topic(bad)):
        await cluster.topics.partitions(bad, create=False)
    names = await cluster.topics.of_namespace(NS, "ALL", [])
    assert names == [f"{good}-partition-0", f"{good}-partition-1"]
    assert cluster.corrupt.counts == {"topic": 1}
