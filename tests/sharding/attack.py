"""Attacks a service from a seed: members are killed, cut off, healed, started and sent shards; the
database is slow, fails before or after it has done what was asked, and gets writes so late that
somebody else has the shard. A paused process looks like this: to the others it is cut off, to the
database it is late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

from fenced_store import Rows, StaleTokenError

from loadmanager import Moved, Service
from loadmanager.kit.errors import LoadManagerError
from loadmanager.testing import LocalMember, Members, cluster

ATTACK_S = 120
TOO_LATE_S = 15.0
"""Longer than a session."""

Act = Callable[[LocalMember, Random], Awaitable[None]]


class UnreliableStore:
    """Implements `fenced_store.Store` for all members."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.rows: dict[tuple[str, str], tuple[str, int]] = {}
        self._tokens: dict[str, int] = {}
        self._changes = 0
        self.troubles = 0.0
        """The part of the requests that is in trouble."""
        self.stale = self.failures = 0

    async def _travel(self) -> None:
        if self._rng.random() < self.troubles:
            if self._rng.random() < 0.5:
                self.failures += 1
                raise OSError("the database does not answer")
            await asyncio.sleep(self._rng.choice((0.2, 2.0, TOO_LATE_S)))
        await asyncio.sleep(self._rng.uniform(0.0, 0.01))

    async def read(self, span: str, since: int = 0) -> tuple[Rows, int]:
        """See the port."""
        await self._travel()
        answer = self._read(span, since)
        await self._travel()
        return answer

    def _read(self, span: str, since: int) -> tuple[Rows, int]:
        rows = {
            key: value
            for (place, key), (value, change) in self.rows.items()
            if place == span and change > since
        }
        return rows, self._changes

    async def open(self, span: str, token: int, since: int = 0) -> tuple[Rows, int]:
        """See the port."""
        await self._travel()
        self._fence(span, token)
        answer = self._read(span, since)
        await self._travel()
        return answer

    async def put(self, span: str, key: str, value: str, token: int) -> None:
        """See the port."""
        await self._travel()
        self._fence(span, token)
        self._changes += 1
        self.rows[span, key] = value, self._changes
        await self._travel()

    def _fence(self, span: str, token: int) -> None:
        if token < self._tokens.get(span, 0):
            self.stale += 1
            raise StaleTokenError(span)
        self._tokens[span] = token

    def row(self, key: str) -> str | None:
        """What is stored of a key."""
        return next((value for (_, name), (value, _) in self.rows.items() if name == key), None)


async def attack(
    seed: int, make: Callable[[UnreliableStore], Service[Any]], acts: list[Act]
) -> tuple[UnreliableStore, int]:
    """Run acts at whoever may have the key for `ATTACK_S`, then until all is well; returns the
    store and how many acts were done. Raises what an act raises but for what it may.
    """
    rng = Random(seed)
    store = UnreliableStore(rng)
    done = 0

    async def client(act: Act, rng: Random) -> None:
        nonlocal done
        while True:
            await asyncio.sleep(rng.uniform(0.5, 1.5))
            for member in list(members.all):
                if member.alive:
                    with suppress(Moved, OSError, StaleTokenError):
                        await act(member, rng)
                        done += 1

    async with cluster(lambda: make(store), members=3, shards=8) as members:
        clients = [asyncio.ensure_future(client(act, Random(rng.random()))) for act in acts]
        cut: list[LocalMember] = []
        moves: list[asyncio.Future[None]] = []
        store.troubles = 0.05
        until_s = asyncio.get_running_loop().time() + ATTACK_S
        while asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(rng.uniform(0.5, 8))
            await _trouble(members, cut, moves, rng)
        store.troubles = 0.0
        for member in cut:
            member.heal()
        await members.settled()
        await asyncio.sleep(60)
        await members.settled()
        for task in clients:
            assert not task.done(), task.result()
            task.cancel()
        await asyncio.gather(*moves)
    return store, done


async def _trouble(
    members: Members, cut: list[LocalMember], moves: list[asyncio.Future[None]], rng: Random
) -> None:
    well = [member for member in members.all if member.alive and member not in cut]
    kind = rng.choice(("kill", "cut", "heal", "start", "stop", "move", "move", "move"))
    if kind == "kill" and len(well) > 2:
        await members.kill(rng.choice(well).number)
    elif kind == "stop" and len(well) > 2:
        await rng.choice(well).stop()
    elif kind == "cut" and len(well) > 1:
        cut.append(rng.choice(well))
        cut[-1].cut()
    elif kind == "heal" and cut:
        cut.pop(rng.randrange(len(cut))).heal()
    elif kind == "start" and len(members.all) < 12:
        await members.start()
    elif kind == "move" and len(well) > 1:
        source, target = rng.sample(well, 2)
        if source.member.shards:
            shard = rng.choice(source.member.shards)
            moves.append(asyncio.ensure_future(_move(source, shard, target.member.address)))


async def _move(source: LocalMember, shard: Any, to: str) -> None:
    with suppress(LoadManagerError):
        await source.member.move(shard, to)
