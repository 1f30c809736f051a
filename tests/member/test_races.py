"""Two operators at the same time: of two that contradict each other, one is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from clusters.counting_store import CountingStore, CountingTree
from clusters.limited import NS, Opening

from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.metadata.store import Operation
from loadmanager.kit.names import NamespaceName

OTHER = NamespaceName.parse("public/other")
GROUP = "gold"


class RacedStore(CountingStore):
    """Does something before the next change of a node, when its writer has looked already."""

    def __init__(self, tree: MemoryTree, timeout_s: float, clock_s: Callable[[], float]) -> None:
        super().__init__(tree, timeout_s, clock_s)
        self.before: dict[str, Callable[[], Awaitable[Any]]] = {}

    async def _race(self, path: str) -> None:
        act = self.before.pop(path, None)
        if act is not None:
            await act()

    async def put(self, path: str, value: bytes, *, version: int | None = None) -> int:
        await self._race(path)
        return await super().put(path, value, version=version)

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> bool:
        await self._race(path)
        return await super().create(path, value, ephemeral=ephemeral)

    async def delete(self, path: str, *, version: int | None = None) -> bool:
        await self._race(path)
        return await super().delete(path, version=version)

    async def commit(self, operations: Sequence[Operation]) -> int:
        for operation in operations:
            await self._race(operation.path)
        return await super().commit(operations)


class Operators:
    """Two of them, over one tree."""

    def __init__(self, first: RacedStore, second: CountingStore) -> None:
        self.store = first
        self.first, self.second = Opening(first), Opening(second)

    def before(self, path: str, act: Callable[[], Awaitable[Any]]) -> None:
        """The second one acts when the first one is about to change a node."""
        self.store.before[path] = act


@pytest.fixture
async def operators() -> AsyncIterator[Operators]:
    """A tenant with a namespace, and a resource group that nothing is attached to."""
    tree = CountingTree()
    loop = asyncio.get_running_loop()
    async with RacedStore(tree, 2, loop.time) as first, CountingStore(tree, 2, loop.time) as second:
        assert isinstance(first, RacedStore)
        assert isinstance(second, CountingStore)
        operators = Operators(first, second)
        await operators.first.namespaces.create_tenant("public", {})
        await operators.first.namespaces.create_namespace(NS, {})
        await operators.first.limits.put_resource_group(GROUP, {"publishRateInMsgs": 5})
        yield operators


async def test_of_two_creators_of_a_tenant_one_is_refused(operators: Operators) -> None:
    """The record is that of the other one."""
    namespaces = operators.first.namespaces, operators.second.namespaces
    ends = await asyncio.gather(
        *(one.create_tenant("acme", {"adminRoles": [str(n)]}) for n, one in enumerate(namespaces)),
        return_exceptions=True,
    )
    (refused,) = [n for n, end in enumerate(ends) if end is not None]
    assert isinstance(ends[refused], ConflictError)
    assert (await namespaces[0].tenant("acme"))["adminRoles"] == [str(1 - refused)]


async def test_a_tenant_that_is_deleted_does_not_come_back(operators: Operators) -> None:
    """Whoever changes it meanwhile is told that it does not exist."""
    first, second = operators.first.namespaces, operators.second.namespaces
    await first.create_tenant("acme", {})
    operators.before(f"{paths.POLICIES}/acme", lambda: second.delete_tenant("acme"))
    with pytest.raises(NotFoundError):
        await first.update_tenant("acme", {"adminRoles": ["boss"]})
    assert "acme" not in await second.tenants()


async def test_a_tenant_that_two_change_has_the_later_record(operators: Operators) -> None:
    """Neither is refused."""
    first, second = operators.first.namespaces, operators.second.namespaces
    operators.before(
        f"{paths.POLICIES}/public", lambda: second.update_tenant("public", {"adminRoles": ["b"]})
    )
    await first.update_tenant("public", {"adminRoles": ["a"]})
    assert (await second.tenant("public"))["adminRoles"] == ["a"]


async def test_a_tenant_with_a_new_namespace_is_not_deleted(operators: Operators) -> None:
    """The namespace is created after the list of namespaces was read."""
    first, second = operators.first.namespaces, operators.second.namespaces
    await first.create_tenant("acme", {})
    new = NamespaceName.parse("acme/new")
    operators.before(f"{paths.POLICIES}/acme", lambda: second.create_namespace(new, {}))
    with pytest.raises(ConflictError):
        await first.delete_tenant("acme")
    assert await second.namespaces("acme") == ["acme/new"]


@pytest.mark.parametrize("how", ["attach", "create"])
async def test_a_resource_group_that_is_attached_meanwhile_stays(
    operators: Operators, how: str
) -> None:
    """The deletion looks again and is refused."""
    second = operators.second

    async def attach() -> None:
        if how == "attach":
            await second.limits.set_namespace_group(NS, GROUP)
        else:
            await second.namespaces.create_namespace(OTHER, {"resource_group_name": GROUP})

    operators.before(paths.resource_group(GROUP), attach)
    with pytest.raises(BadInputError, match="in use by"):
        await operators.first.limits.delete_resource_group(GROUP)
    assert (await second.limits.resource_group(GROUP))["publishRateInMsgs"] == 5


@pytest.mark.parametrize("how", ["attach", "create"])
async def test_no_namespace_is_attached_to_a_group_that_is_deleted_meanwhile(
    operators: Operators, how: str
) -> None:
    """The attachment looks again and is refused."""
    first, delete = operators.first, lambda: operators.second.limits.delete_resource_group(GROUP)
    if how == "attach":
        operators.before(paths.policies(NS), delete)
        attached = first.limits.set_namespace_group(NS, GROUP)
    else:
        operators.before(paths.policies(OTHER), delete)
        attached = first.namespaces.create_namespace(OTHER, {"resource_group_name": GROUP})
    with pytest.raises(BadInputError, match="does not exist"):
        await attached
    assert await first.limits.namespace_group(NS) is None
    assert await first.namespaces.namespaces("public") == [str(NS)]
