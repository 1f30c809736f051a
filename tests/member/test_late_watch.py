"""What a broker says of names whose creation its watch has not told it yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from clusters.members import NS

from loadmanager.kit.conf import Live
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Change, ChangeKind
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.member.known_names import LOOKS_PER_S
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.settings import BrokerSettings

T = TypeVar("T")
DELETED = Change(ChangeKind.DELETED, paths.policies(NS))
CREATED = Change(ChangeKind.CREATED, paths.policies(NS))
TOPIC = TopicName("persistent", NS, "t")


class CountingStore(MemoryStore):
    """Counts what is asked of it."""

    asked = 0

    async def _run(self, operation: Callable[[], T], *, transaction: bool = False) -> T:
        self.asked += 1
        return await super()._run(operation, transaction=transaction)


class Late:
    """Two brokers' catalogues over one tree. No watch runs: a test says what the second hears."""

    def __init__(self, first: MemoryStore, second: CountingStore) -> None:
        settings = Live(BrokerSettings())
        self.now_s = 100.0
        self.store = second
        self.first = Namespaces(first, settings)
        self.second = Namespaces(second, settings, now_s=lambda: self.now_s)

    async def remake(self) -> None:
        """The first broker deletes the namespace and creates it again."""
        await self.first.mark_deleted(NS)
        await self.first.delete_namespace(NS)
        await self.first.create_namespace(NS, {})

    async def refused(self, names: int) -> int:
        """Ask the second for so many namespaces that nobody has; the requests of the store."""
        before = self.store.asked
        for number in range(names):
            with pytest.raises(NotFoundError):
                await self.second.bundles(NamespaceName(NS.tenant, f"none-{number}"))
        return self.store.asked - before


@asynccontextmanager
async def late_watch() -> AsyncIterator[Late]:
    """The second broker has the lists in memory, in which the namespace is."""
    tree = MemoryTree()
    second = CountingStore(tree, 3600, lambda: 0.0)
    async with tree.session(timeout_s=3600) as first, second:
        late = Late(first, second)
        await late.first.create_tenant(NS.tenant, {})
        await late.first.create_namespace(NS, {})
        await late.refused(1)
        yield late


async def test_a_namespace_that_is_made_again_is_there_before_the_watch_says_so() -> None:
    """The second broker has heard that it was deleted, and nothing more yet."""
    async with late_watch() as late:
        await late.remake()
        late.second.on_change(DELETED)
        assert late.second.cached_bundle_of(TOPIC) is None, "memory does not decide"
        assert (await late.second.bundles(NS)).namespace == NS
        assert (await late.second.policies(NS))["bundles"]["numBundles"] > 0
        late.second.on_change(CREATED)
        assert await late.refused(2 * LOOKS_PER_S) > 0
        assert await late.second.bundle_of(TOPIC), "the list has it by now"


async def test_a_late_word_of_a_deletion_hides_no_namespace_made_since_by_the_same_broker() -> None:
    """Its own watch tells of the deletion when the namespace is there again."""
    async with late_watch() as late:
        late.first, late.second = late.second, late.first
        await late.remake()
        late.first.on_change(DELETED)
        assert (await late.first.bundles(NS)).namespace == NS


async def test_a_new_tenant_is_there_before_the_watch_says_so() -> None:
    """With its namespaces."""
    async with late_watch() as late:
        await late.first.create_tenant("new", {"adminRoles": ["boss"]})
        await late.first.create_namespace(NamespaceName("new", "ns"), {})
        assert (await late.second.tenant("new"))["adminRoles"] == ["boss"]
        assert (await late.second.bundles(NamespaceName("new", "ns"))).namespace.tenant == "new"


async def test_names_that_nobody_has_cost_the_store_a_few_reads_a_second() -> None:
    """However many are asked for; then the list decides."""
    async with late_watch() as late:
        late.now_s += 1
        assert await late.refused(20 * LOOKS_PER_S) == LOOKS_PER_S
        assert await late.refused(LOOKS_PER_S) == 0
        late.now_s += 1
        assert await late.refused(20 * LOOKS_PER_S) == LOOKS_PER_S
