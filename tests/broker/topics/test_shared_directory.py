"""The wait for brokers that have died, at the start of a broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from loadmanager.broker.topics.shared_directory import require_original
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryTree

ME, FIRST, SECOND = "b0:8080", "b1:8080", "b2:8080"


@dataclass
class Locks:
    """All brokers but those that died have locked their files."""

    dead: set[str] = field(default_factory=lambda: {FIRST, SECOND})

    async def hold(self, broker: str) -> bool:
        """Lock the own file."""
        return broker == ME

    async def is_held(self, broker: str) -> bool:
        """See `dead`."""
        return broker not in self.dead


async def test_each_broker_that_dies_has_its_own_time() -> None:
    """One that dies while another one is waited for is not taken for one that runs on a copy."""
    async with MemoryTree().session(timeout_s=5.0) as store:
        await store.create(f"{paths.BROKERS}/{FIRST}", b"")
        starting = asyncio.ensure_future(require_original(store, Locks(), ME))
        await asyncio.sleep(6.5)
        await store.create(f"{paths.BROKERS}/{SECOND}", b"")
        await store.delete(f"{paths.BROKERS}/{FIRST}")
        await asyncio.sleep(5)
        assert not starting.done()
        await store.delete(f"{paths.BROKERS}/{SECOND}")
        await starting
        await store.create(f"{paths.BROKERS}/{SECOND}", b"")
        with pytest.raises(OperationalError, match=f"not the directory of {SECOND}"):
            await require_original(store, Locks(), ME)
