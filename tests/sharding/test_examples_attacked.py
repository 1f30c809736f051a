"""The programs in examples/ keep what they promise, whatever happens to members and database."""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from random import Random

import chat
import pytest
import scheduler
import snapshot_cache
from sharding.attack import ATTACK_S, attack

from loadmanager.testing import LocalMember, virtual

SEEDS = range(int(os.environ.get("ATTACK_SEEDS", "3")))
"""`python -m bench library --attack 100` sets it.
"""
KEYS = [f"key {number}" for number in range(6)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_line_that_came_back_is_stored_in_its_place(seed: int) -> None:
    """Chat: no line that everybody has seen is lost or doubled; each member's are in order. (One
    whose answer comes late may be told after a later one of the next owner.)
    """
    told: dict[tuple[str, int], list[str]] = defaultdict(list)

    async def say(member: LocalMember, rng: Random) -> None:
        room = rng.choice(KEYS)
        line = f"{rng.random()}"
        service = member.service
        assert isinstance(service, chat.Chat)
        with member.member.own(room) as shard:
            if len(shard.state.get(room, chat.Room()).lines) < chat.LINES_KEPT - 10:
                await service.say(shard, room, line)
                told[room, member.number].append(line)

    @virtual
    async def run() -> None:
        store, _ = await attack(seed, chat.Chat, [say] * 3)
        assert store.failures
        for (room, _), lines in told.items():
            kept = json.loads(store.row(room) or "[]")
            assert len(kept) == len(set(kept))
            assert [line for line in kept if line in set(lines)] == lines
        assert sum(map(len, told.values())) > 50

    run()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cache_goes_back_to_no_more_than_its_last_snapshot(seed: int) -> None:
    """What a snapshot has is never lost, and no value is from the future."""
    written: dict[str, int] = defaultdict(int)

    async def use(member: LocalMember, rng: Random) -> None:
        key, service = rng.choice(KEYS), member.service
        assert isinstance(service, snapshot_cache.Cache)
        with member.member.own(key) as shard:
            before = int(service.get(shard, key) or 0)
            saved = int(stores[0].row(key) or 0)
            assert saved <= before <= written[key], (key, saved, before, written[key])
            written[key] = before + 1
            service.put(shard, key, str(before + 1))

    stores = []

    def make(store):  # type: ignore[no-untyped-def]
        stores[:] = [store]
        return snapshot_cache.Cache(store)

    @virtual
    async def run() -> None:
        store, done = await attack(seed, make, [use] * 3)
        assert done > 100
        assert all(int(store.row(key) or 0) == written[key] for key in KEYS)

    run()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_time_of_a_job_is_run_twice(seed: int) -> None:
    """Nor before it is due; and none is forgotten for longer than the trouble lasts."""
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def now_s() -> float:
        return asyncio.get_running_loop().time()

    async def ran(name: str, due_s: float) -> None:
        runs[name].append((due_s, now_s()))

    async def add(member: LocalMember, rng: Random) -> None:
        key, service = rng.choice(KEYS), member.service
        assert isinstance(service, scheduler.Scheduler)
        with member.member.own(key) as shard:
            if key not in shard.state.due:
                await service.add(shard, key, 3.0)

    @virtual
    async def run() -> None:
        await attack(seed, lambda store: scheduler.Scheduler(store, ran, now_s), [add])
        ended_s = now_s()
        for times in runs.values():
            dues = [due_s for due_s, _ in times]
            assert len(dues) == len(set(dues))
            assert all(due_s <= at_s for due_s, at_s in times)
            assert ended_s - times[-1][1] < 10
            assert len(times) > ATTACK_S / 3 / 4
        assert len(runs) == len(KEYS)

    run()
