"""The deletion of topics and namespaces."""

from __future__ import annotations

import pytest
from clusters.members import NS, Broker, a_fleet

from loadmanager.broker.topics.topics import Topics
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import NotFoundError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.settings import BrokerSettings

NAMESPACE = NamespaceName.parse("acme/orders")
TOPIC = TopicName.parse("persistent://acme/orders/new")


@pytest.mark.parametrize("what", ["topic", "namespace"])
async def test_the_policies_of_a_topic_go_with_it(what: str) -> None:
    """A topic or namespace that is created again does not have its former limits."""
    async with MemoryTree().session() as store:
        namespaces = Namespaces(store, Live(BrokerSettings()))
        topics = Topics(store, namespaces, Live(BrokerSettings()))
        await store.create(paths.local_policies(NAMESPACE), b"")
        await store.create(
            paths.policies(NAMESPACE),
            b'{"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}',
        )
        await store.create(paths.managed_ledger(TOPIC), b"")
        await store.create(paths.topic_policies(TOPIC), b"{}")
        if what == "topic":
            await topics.delete(TOPIC, force=False)
        else:
            await namespaces.delete_namespace(NAMESPACE)
        assert await store.get(paths.topic_policies(TOPIC)) is None


async def test_the_pins_of_a_namespace_go_with_it() -> None:
    """A namespace that is created again has no pinned bundle; those of others stay pinned."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        kept = f"{NS}2/0x00000000_0xffffffff"
        for bundle in ((await broker.namespaces.bundles(NS)).names[0], kept):
            await broker.store.put(paths.pin(bundle), b"{}")
        await broker.namespaces.delete_namespace(NS)
        assert await broker.store.children(paths.PINS) == [paths.encode(kept)]


async def test_nobody_locks_a_bundle_of_a_deleted_namespace() -> None:
    """A broker that missed the deletion fails to create the lock, and reads the policies again."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        unaware = Broker(fleet, 1)  # without watches
        async with unaware.store:
            bundle = (await unaware.namespaces.bundles(NS)).names[0]
            await broker.namespaces.mark_deleted(NS)
            with pytest.raises(OperationalError):
                await unaware.ownership.acquire(bundle, "test")
            with pytest.raises(NotFoundError):
                await unaware.ownership.acquire(bundle, "test")
            assert await broker.namespaces.claimed_bundles(NS) == []
