"""The deletion of topics and namespaces."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from clusters.members import NS, Broker, a_fleet, nothing_open

from loadmanager.broker.ports.log import LogRecord
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
            await topics.delete(TOPIC, force=False, close=nothing_open)
        else:
            await namespaces.delete_namespace(NAMESPACE)
        assert await store.get(paths.topic_policies(TOPIC)) is None


class Files:
    """Deletes the files of logs, and says when."""

    def __init__(self, steps: list[object]) -> None:
        self.steps = steps

    async def delete(self, log_id: int) -> None:
        """Delete the files of a log."""
        self.steps.append(log_id)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_files_of_a_topic_go_when_nobody_writes_them_any_more(*, fails: bool) -> None:
    """Its records go before it is closed, so that clients who come back at once get a new log; the
    old one's files go afterwards, even if an owner cannot be asked.
    """
    steps: list[object] = []
    async with MemoryTree().session() as store:
        settings = Live(BrokerSettings())
        topics = Topics(store, Namespaces(store, settings), settings, storage=Files(steps))
        await store.create(paths.managed_ledger(TOPIC), b"")
        await topics.logs.save(TOPIC, LogRecord(7, 1))

        async def close() -> None:
            steps.append(await topics.logs.record(TOPIC))
            await topics.logs.save(TOPIC, LogRecord(8, 2))
            if fails:
                raise OperationalError("its owner does not answer")

        with pytest.raises(OperationalError) if fails else nullcontext():
            await topics.delete(TOPIC, force=True, close=close)
        assert steps == [None, 7]
        assert (await topics.logs.record(TOPIC)).log_id == 8


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
