"""A sharded cache in memory, saved when it moves and every few seconds between.

    python examples/snapshot_cache.py 8090
    curl -L -X PUT --data 7 http://127.0.0.1:8090/apples
    curl -L http://127.0.0.1:8090/apples

A crash costs what was written since the last snapshot; a move, a restart or a scale-out costs
nothing. Each shard has a copy at a second process, which follows the snapshots and takes over
first: nobody waits for all of the cache to be loaded.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from fenced_store import Rows, SqliteStore, Store

from loadmanager import Member, Moved, Shard

SNAPSHOT_S = 5.0


@dataclass
class Values:
    """A shard's part of the cache."""

    rows: Rows
    unsaved: set[str] = field(default_factory=set)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Cache:
    """The service."""

    standbys = 1

    def __init__(self, store: Store) -> None:
        self._store = store
        self._saving: set[asyncio.Task[None]] = set()

    async def prepare(self, shard: Shard[Values]) -> tuple[Rows, int]:
        """Another process serves the shard: load what it has saved so far."""
        return await self._store.read(str(shard.range))

    async def follow(self, shard: Shard[Values]) -> None:
        """Keep that current, until this process opens the shard."""
        while True:
            await asyncio.sleep(SNAPSHOT_S)
            rows, since = shard.prepared
            changed, now = await self._store.read(str(shard.range), since)
            shard.prepared = rows | changed, now

    async def open(self, shard: Shard[Values]) -> Values:
        """Load what it has saved since, or all, and keep it out from now on."""
        rows, since = shard.prepared or ({}, 0)
        changed, _ = await self._store.open(str(shard.range), shard.token, since)
        values = Values(rows | changed)
        saving = asyncio.ensure_future(self._save_again(shard, values))
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        return values

    async def close(self, shard: Shard[Values], values: Values) -> None:
        """Save what the next one needs."""
        await self._save(shard, values)

    def cost(self, shard: Shard[Values]) -> float:
        """The more is unsaved, the longer a move takes: some 10 ms a row."""
        return len(shard.state.unsaved) / 100

    def get(self, shard: Shard[Values], key: str) -> str | None:
        """A value."""
        return shard.state.rows.get(key)

    def put(self, shard: Shard[Values], key: str, value: str) -> None:
        """Set a value, in memory."""
        shard.state.rows[key] = value
        shard.state.unsaved.add(key)

    async def _save_again(self, shard: Shard[Values], values: Values) -> None:
        while not shard.ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(SNAPSHOT_S):
                    await shard.ended.wait()
                return
            with suppress(Exception):  # the store fails: the next turn saves it
                await self._save(shard, values)

    async def _save(self, shard: Shard[Values], values: Values) -> None:
        async with values.turn:
            for key in sorted(values.unsaved):
                value = values.rows[key]
                await self._store.put(str(shard.range), key, value, shard.token)
                if values.rows[key] == value:
                    values.unsaved.discard(key)


def application(member: Member[Values], cache: Cache) -> web.Application:
    """The routes of one process."""

    async def use(request: web.Request) -> web.Response:
        key = request.match_info["key"]
        text = await request.text()
        try:
            with member.own(key) as shard:
                if request.method == "PUT":
                    cache.put(shard, key, text)
                    return web.Response(status=204)
                value = cache.get(shard, key)
        except Moved as moved:
            if not moved.owner:
                raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"}) from None
            raise web.HTTPTemporaryRedirect(f"{moved.owner}{request.path_qs}") from None
        if value is None:
            raise web.HTTPNotFound
        return web.Response(text=value)

    app = web.Application()
    app.router.add_route("*", "/{key}", use)
    return app


async def main(port: int, store: str = "zk://127.0.0.1:2181/cache") -> None:
    """Serve until Ctrl-C."""
    cache, address = Cache(SqliteStore(Path("cache.db"))), f"http://127.0.0.1:{port}"
    async with Member(store, cache, address=address, eager=True) as member:
        runner = web.AppRunner(application(member, cache))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
