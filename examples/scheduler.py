"""Runs jobs at their times, on whichever process has them: nobody asks for a job, so every shard
has to have an owner (`eager`).

    python examples/scheduler.py 8090
    curl -L -X PUT --data 5 http://127.0.0.1:8090/say-hello    # every 5 seconds

Each time of a job is taken by one process, in the database, before it is run: a crash right then
loses that run, and nothing runs twice. Times that passed while nobody had the job are run once.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from fenced_store import SqliteStore, StaleTokenError, Store

from loadmanager import Member, Moved, Shard

AGAIN_S = 1.0


@dataclass
class Jobs:
    """The jobs of a shard: name → when it runs next, and every how many seconds."""

    due: dict[str, tuple[float, float]]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Scheduler:
    """The service. `run` is called with a job and the time for which it was due."""

    def __init__(
        self,
        store: Store,
        run: Callable[[str, float], Awaitable[None]],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._run, self._now_s = store, run, now_s
        self._working: set[asyncio.Task[None]] = set()

    async def open(self, shard: Shard[Jobs]) -> Jobs:
        """Load the jobs, and run them from now on."""
        rows, _ = await self._store.open(str(shard.range), shard.token)
        jobs = Jobs({name: _parsed(row) for name, row in rows.items()})
        working = asyncio.ensure_future(self._work(shard, jobs))
        self._working.add(working)
        working.add_done_callback(self._working.discard)
        return jobs

    async def close(self, shard: Shard[Jobs], jobs: Jobs) -> None:
        """All is stored."""

    async def add(self, shard: Shard[Jobs], name: str, every_s: float) -> None:
        """Run a job from now on. Raises what the store raises."""
        await self._set(shard, shard.state, name, self._now_s() + every_s, every_s)

    async def _set(
        self, shard: Shard[Jobs], jobs: Jobs, name: str, due_s: float, every_s: float
    ) -> None:
        async with jobs.turn:
            await self._store.put(str(shard.range), name, f"{due_s!r} {every_s!r}", shard.token)
            jobs.due[name] = due_s, every_s
        jobs.changed.set()

    async def _work(self, shard: Shard[Jobs], jobs: Jobs) -> None:
        while not shard.ended.is_set():
            jobs.changed.clear()
            for name, (due_s, every_s) in sorted(jobs.due.items()):
                if due_s <= self._now_s() and not shard.ended.is_set():
                    await self._take(shard, jobs, name, due_s, every_s)
            soonest_s = min((due_s for due_s, _ in jobs.due.values()), default=float("inf"))
            wait_s = min(max(soonest_s - self._now_s(), 0.01), AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await jobs.changed.wait()

    async def _take(
        self, shard: Shard[Jobs], jobs: Jobs, name: str, due_s: float, every_s: float
    ) -> None:
        """Take this time of a job, then run it."""
        missed = max(0, int((self._now_s() - due_s) // every_s))
        try:
            await self._set(shard, jobs, name, due_s + (missed + 1) * every_s, every_s)
        except StaleTokenError:
            return  # somebody else has the job
        except Exception:  # noqa: BLE001 - it may be taken: look again
            await self._read_again(shard, jobs)
            await asyncio.sleep(AGAIN_S)
            return
        with suppress(Exception):  # a job that fails is run at its next time
            await self._run(name, due_s)

    async def _read_again(self, shard: Shard[Jobs], jobs: Jobs) -> None:
        with suppress(Exception):
            rows, _ = await self._store.read(str(shard.range))
            jobs.due.update({name: _parsed(row) for name, row in rows.items()})


def _parsed(row: str) -> tuple[float, float]:
    due_s, every_s = row.split()
    return float(due_s), float(every_s)


def application(member: Member[Jobs], scheduler: Scheduler) -> web.Application:
    """The route of one process."""

    async def add(request: web.Request) -> web.Response:
        name, every_s = request.match_info["job"], float(await request.text())
        try:
            with member.own(name) as shard:
                await scheduler.add(shard, name, max(every_s, AGAIN_S))
        except Moved as moved:
            if not moved.owner:
                raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"}) from None
            raise web.HTTPTemporaryRedirect(f"{moved.owner}{request.path_qs}") from None
        return web.Response(status=204)

    app = web.Application()
    app.router.add_put("/{job}", add)
    return app


async def main(port: int, store: str = "zk://127.0.0.1:2181/scheduler") -> None:
    """Serve until Ctrl-C."""

    async def run(name: str, due_s: float) -> None:
        print(f"{name}, due at {time.ctime(due_s)}", flush=True)

    scheduler = Scheduler(SqliteStore(Path("scheduler.db")), run)
    address = f"http://127.0.0.1:{port}"
    async with Member(store, scheduler, address=address, eager=True) as member:
        runner = web.AppRunner(application(member, scheduler))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
