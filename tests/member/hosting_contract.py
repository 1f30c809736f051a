"""What every host of bundles keeps to (`loadmanager.member.ports.hosting.Hosting`).

A subclass of `HostingContract` with a `host` fixture runs all of it on one host.
"""

from __future__ import annotations

from typing import Protocol

import pytest

from loadmanager.member.ports.hosting import Hosting

WHOLE = "public/default/0x00000000_0xffffffff"
LOWER = "public/default/0x00000000_0x80000000"
UPPER = "public/default/0x80000000_0xffffffff"


class Hosted(Protocol):
    """A host, and how to see from outside whether it serves."""

    @property
    def hosting(self) -> Hosting:
        """The host."""
        ...

    async def serves(self, bundle: str) -> bool:
        """True if a client of the bundle would be served now."""
        ...


async def close(host: Hosted, bundle: str, life: int) -> int:
    """Close a bundle for nobody in particular."""
    return await host.hosting.close_bundle(bundle, life, destination=None, timeout_s=1)


class HostingContract:
    """A call for any life but the open one does nothing; what is fenced is not served."""

    async def test_a_bundle_is_served_from_open_to_fence(self, host: Hosted) -> None:
        """Nothing of it is served after the fence; it is forgotten after the close."""
        assert not await host.serves(WHOLE)
        await host.hosting.open_bundle(WHOLE, 7)
        assert await host.serves(WHOLE)
        assert list(host.hosting.bundle_stats()) == [WHOLE]
        host.hosting.fence_bundle(WHOLE, 7)
        host.hosting.fence_bundle(WHOLE, 7)
        assert not await host.serves(WHOLE)
        await host.hosting.settle_bundle(WHOLE, 7)
        await close(host, WHOLE, 7)
        assert not list(host.hosting.bundle_stats())
        assert host.hosting.topics(WHOLE) == {}
        assert host.hosting.clients(WHOLE) == 0

    async def test_a_close_fences_first(self, host: Hosted) -> None:
        """If nobody did before."""
        await host.hosting.open_bundle(WHOLE, 7)
        await close(host, WHOLE, 7)
        assert not await host.serves(WHOLE)
        assert not list(host.hosting.bundle_stats())

    @pytest.mark.parametrize("other", [6, 8])
    async def test_another_life_is_nothing_to_this_one(self, host: Hosted, other: int) -> None:
        """Neither an earlier one, whose end comes late, nor one that is not known here."""
        await host.hosting.open_bundle(WHOLE, 7)
        host.hosting.fence_bundle(WHOLE, other)
        await host.hosting.settle_bundle(WHOLE, other)
        await close(host, WHOLE, other)
        host.hosting.split_bundle(WHOLE, other, [LOWER, UPPER], 9)
        host.hosting.merge_bundles({WHOLE: other}, WHOLE, 9)
        assert await host.serves(WHOLE)
        assert list(host.hosting.bundle_stats()) == [WHOLE]
        host.hosting.fence_bundle(WHOLE, 7)
        assert not await host.serves(WHOLE)

    async def test_a_later_life_replaces_an_earlier_one(self, host: Hosted) -> None:
        """And not the other way round, in whichever order they come."""
        await host.hosting.open_bundle(WHOLE, 7)
        await host.hosting.open_bundle(WHOLE, 8)
        await host.hosting.open_bundle(WHOLE, 7)
        await close(host, WHOLE, 7)
        assert await host.serves(WHOLE)
        await close(host, WHOLE, 8)
        assert not await host.serves(WHOLE)

    async def test_a_split_goes_on_as_its_children(self, host: Hosted) -> None:
        """They share one life."""
        await host.hosting.open_bundle(WHOLE, 7)
        host.hosting.split_bundle(WHOLE, 7, [LOWER, UPPER], 9)
        assert sorted(host.hosting.bundle_stats()) == [LOWER, UPPER]
        assert await host.serves(LOWER)
        host.hosting.fence_bundle(LOWER, 7)
        assert await host.serves(LOWER)
        host.hosting.fence_bundle(LOWER, 9)
        assert not await host.serves(LOWER)
        assert await host.serves(UPPER)

    async def test_a_merge_wants_every_part_in_its_life(self, host: Hosted) -> None:
        """Else nothing of it happens."""
        await host.hosting.open_bundle(LOWER, 7)
        host.hosting.merge_bundles({LOWER: 7, UPPER: 8}, WHOLE, 9)
        assert list(host.hosting.bundle_stats()) == [LOWER]
        await host.hosting.open_bundle(UPPER, 8)
        host.hosting.merge_bundles({LOWER: 7, UPPER: 7}, WHOLE, 9)
        assert sorted(host.hosting.bundle_stats()) == [LOWER, UPPER]
        host.hosting.merge_bundles({LOWER: 7, UPPER: 8}, WHOLE, 9)
        assert list(host.hosting.bundle_stats()) == [WHOLE]
        await close(host, WHOLE, 9)
        assert not list(host.hosting.bundle_stats())

    async def test_without_a_session_nothing_is_served(self, host: Hosted) -> None:
        """Of no bundle; each can be opened again."""
        for bundle in (LOWER, UPPER):
            await host.hosting.open_bundle(bundle, 7)
        host.hosting.fence_all()
        for bundle in (LOWER, UPPER):
            assert not await host.serves(bundle)
        await close(host, LOWER, 7)
        await host.hosting.open_bundle(LOWER, 8)
        assert await host.serves(LOWER)

    async def test_what_is_not_open_can_be_asked_of(self, host: Hosted) -> None:
        """As after a close that another task has carried out meanwhile."""
        host.hosting.fence_bundle(WHOLE, 7)
        await host.hosting.settle_bundle(WHOLE, 7)
        assert await close(host, WHOLE, 7) == 0
        assert not host.hosting.close_topic("persistent://public/default/t", force=True)
        assert host.hosting.topics(WHOLE) == {}
        assert host.hosting.clients(WHOLE) == 0
        usage = host.hosting.usage()
        assert usage.memory_used_bytes <= usage.memory_limit_bytes
