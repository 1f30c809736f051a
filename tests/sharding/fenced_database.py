"""A service that keeps counters in a database which refuses tokens that are smaller than one it has
seen for the key.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from loadmanager import Shard


class StaleTokenError(Exception):
    """A write with a token that a later owner has outdated."""


@dataclass(slots=True)
class Database:
    """What all members write to."""

    rows: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    stale: int = 0
    slow_s: float = 0.0

    async def put(self, key: str, value: int, token: int) -> None:
        """Store a row, unless a later owner has written it."""
        await asyncio.sleep(self.slow_s)
        if token < self.tokens.get(key, 0):
            self.stale += 1
            raise StaleTokenError(key)
        self.tokens[key] = token
        self.rows[key] = value


@dataclass(slots=True)
class Counters:
    """Counts in memory, and saves what it counted when a shard is closed."""

    database: Database
    opened: int = 0
    trouble: str = ""

    async def open(self, shard: Shard[Any]) -> dict[str, int]:
        """Load."""
        if self.trouble == "cannot open":
            raise OSError("the database is away")
        await asyncio.sleep(self.database.slow_s)
        self.opened += 1
        return {key: row for key, row in self.database.rows.items() if shard.contains(key)}

    async def close(self, shard: Shard[Any], state: dict[str, int]) -> None:
        """Save."""
        if self.trouble == "hangs":
            await asyncio.Event().wait()
        for key, value in state.items():
            await self.database.put(key, value, shard.token)
