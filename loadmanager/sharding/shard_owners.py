"""The owners of all shards, kept current by the state records: what a `Table` is taken from."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence

from loadmanager.engine.bundles.ranges import topic_hash
from loadmanager.engine.ownership.state_records import StateRecord
from loadmanager.kit.tasks import sleep
from loadmanager.sharding.table import Table

TOGETHER_S = 0.05
"""Changes that come within this time are passed on as one."""


class ShardOwners:
    """`on_record` must be called with each record that changes, `on_members` when a member comes or
    goes.
    """

    def __init__(
        self, boundaries: Sequence[int], names: Sequence[str], owner: Callable[[str], str]
    ) -> None:
        """`names`: the shards, in the order of their ranges. `owner`: the address that serves one
        now; empty: nobody.
        """
        self._boundaries, self._lowers, self._owner = boundaries, boundaries[:-1], owner
        self._places = {name: place for place, name in enumerate(names)}
        self._owners = [owner(name) for name in names]
        self._changes = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def owner(self, key: str) -> str:
        """The address of the member that serves a key; empty while nobody does."""
        return self._owners[bisect_right(self._lowers, topic_hash(key)) - 1]

    def on_record(self, name: str, _record: StateRecord | None) -> None:
        """The record of a shard changed."""
        place = self._places.get(name)
        if place is not None:
            self._set(place, self._owner(name))

    def on_members(self, *_: object) -> None:
        """A member came or went."""
        for name, place in self._places.items():
            self._set(place, self._owner(name))

    def _set(self, place: int, owner: str) -> None:
        if self._owners[place] != owner:
            self._owners[place] = owner
            self._changes += 1
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)

    async def changed(self) -> None:
        """Return at the next change."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def table(self) -> Table:
        """As it is now."""
        return Table(self._boundaries, self._owners)

    async def tables(self) -> AsyncIterator[Table]:
        """As it is now, and again after each change."""
        while True:
            changes = self._changes
            yield self.table()
            if changes == self._changes:
                await self.changed()
            await sleep(TOGETHER_S)
