"""All shards and their owners, kept current by the boundaries and the state records: what a `Table`
is taken from.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable

from loadmanager.engine.bundles.ranges import NamespaceBundles, equal_boundaries, topic_hash
from loadmanager.engine.ownership.state_records import StateRecord
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import sleep
from loadmanager.sharding.table import Table
from loadmanager.sharding.words import NAMESPACE

SHARDS = NamespaceName.parse(NAMESPACE)
TOGETHER_S = 0.05
"""Changes that come within this time are passed on as one."""


class ShardOwners:
    """`on_record` must be called with each record that changes, `on_members` when a member comes or
    goes.
    """

    def __init__(self, owner: Callable[[str], str]) -> None:
        """`owner`: the address that serves a shard now; empty: nobody."""
        self._owner = owner
        self._changes = 0
        self.splits = 0
        """Grows when the boundaries of shards change."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._boundaries: tuple[int, ...] = ()
        self.follow(equal_boundaries(1))

    def follow(self, boundaries: tuple[int, ...]) -> None:
        """Go by these boundaries from now on."""
        if boundaries == self._boundaries:
            return
        self._boundaries, self._lowers = boundaries, boundaries[:-1]
        self.names = NamespaceBundles(SHARDS, boundaries).names
        """The shards, in the order of their ranges."""
        self._places = {name: place for place, name in enumerate(self.names)}
        self._owners = [self._owner(name) for name in self.names]
        self.splits += 1
        self._changed()

    def shard_of(self, key: str) -> str:
        """The shard of a key."""
        return self.names[bisect_right(self._lowers, topic_hash(key)) - 1]

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
            self._changed()

    def _changed(self) -> None:
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
