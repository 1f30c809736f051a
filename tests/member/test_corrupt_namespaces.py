"""Work over all namespaces leaves out the corrupt ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from loadmanager.broker import settings
from loadmanager.broker.settings.live import LiveSettings
from loadmanager.broker.topics.limits import Limits
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError, CorruptDataError, NotFoundError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.names import NamespaceName
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.settings import BrokerSettings
from loadmanager.testing.cluster import LoopTime

BAD, GOOD = NamespaceName("public", "a-bad"), NamespaceName("public", "good")
CORRUPT = [b"garbage", b"[1]", b'{"a":"\xff\xfe"}', b'{"a":' * 300 + b"1" + b"}" * 300]


@dataclass
class Records:
    """The records of two namespaces and a resource group."""

    store: MemoryStore
    namespaces: Namespaces
    limits: Limits


@pytest.fixture
async def records() -> AsyncIterator[Records]:
    """The group `g` has no namespace."""
    async with MemoryTree().session() as store:
        live = LiveSettings(settings.KEYS.load())
        namespaces = Namespaces(store, Live(BrokerSettings()))
        clock, in_force = LoopTime(), live.live(ThrottlingSettings)
        throttling = BrokerThrottling(in_force.value, cluster="c", now_ns=clock.monotonic_ns())
        await namespaces.create_tenant("public", {})
        for namespace in (BAD, GOOD):
            await namespaces.create_namespace(namespace, {})
        limits = Limits(
            store,
            namespaces,
            throttling,
            live,
            clock=clock,
            in_force=in_force,
            changed=lambda: None,
        )
        found = Records(store, namespaces, limits)
        await found.limits.put_resource_group("g", {"publishRateInMsgs": 1})
        yield found


@pytest.mark.parametrize("value", CORRUPT, ids=lambda value: repr(value[:12]))
@pytest.mark.parametrize(
    "path", [paths.policies(BAD), paths.local_policies(BAD), paths.POLICIES + "/public"]
)
async def test_a_resource_group_is_deleted(records: Records, path: str, value: bytes) -> None:
    """A corrupt namespace does not keep a resource group; a readable one that uses it does."""
    await records.limits.set_namespace_group(GOOD, "g")
    await records.store.put(path, value)
    records.namespaces.forget(BAD)
    with pytest.raises(BadInputError, match=f"in use by {GOOD}"):
        await records.limits.delete_resource_group("g")
    await records.limits.set_namespace_group(GOOD, None)
    await records.limits.delete_resource_group("g")
    assert await records.limits.resource_groups() == []


@pytest.mark.parametrize("path", [paths.policies(BAD), paths.local_policies(BAD)])
async def test_the_leader_counts_the_bundles_of_the_others(records: Records, path: str) -> None:
    """A split cycle goes over all namespaces; a corrupt namespace has no bundle to split."""
    await records.store.put(path, b"garbage")
    counts = [await records.namespaces.bundle_count(name) for name in (BAD, GOOD)]
    assert counts == [0, 4]


async def test_a_resource_group_is_deleted_while_a_namespace_is(records: Records) -> None:
    """A namespace that is marked as deleted does not keep its resource group."""
    await records.namespaces.mark_deleted(BAD)
    await records.limits.delete_resource_group("g")
    assert await records.limits.resource_groups() == []


@pytest.mark.parametrize("value", CORRUPT, ids=lambda value: repr(value[:12]))
async def test_a_corrupt_tenant_has_its_namespaces(records: Records, value: bytes) -> None:
    """Its namespaces can be listed, created and deleted, and then the tenant can be deleted. Only
    reads of the corrupt record fail.
    """
    await records.store.put(f"{paths.POLICIES}/public", value)
    new = NamespaceName("public", "new")
    await records.namespaces.create_namespace(new, {})
    names = [str(namespace) for namespace in (BAD, GOOD, new)]
    assert await records.namespaces.namespaces("public") == names
    with pytest.raises(CorruptDataError, match=f"{paths.POLICIES}/public"):
        await records.namespaces.tenant("public")
    for namespace in (BAD, GOOD, new):
        await records.namespaces.delete_namespace(namespace)
    await records.namespaces.delete_tenant("public")
    with pytest.raises(NotFoundError):
        await records.namespaces.namespaces("public")
