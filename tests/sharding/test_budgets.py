"""Loads and budgets that a service names."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loadmanager import BadInputError, Member, Shard
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.leader.brokers import check_figures
from loadmanager.sharding.extra_hooks import ExtraHooks
from loadmanager.sharding.loads import PERIOD_S, ShardLoads
from loadmanager.testing import Members, cluster, virtual
from loadmanager.testing.cluster import LoopTime

MINUTE_S = 60
SPANS = ("0x00000000_0x80000000", "0x80000000_0xffffffff")


class Models:
    """Each shard holds what its name says, on a graphics card."""

    gpu_mb: dict[str, float]

    def __init__(self) -> None:
        self.fails = False

    async def open(self, shard: Shard[Any]) -> None:
        """Nothing to load."""

    async def close(self, shard: Shard[Any], state: None) -> None:
        """Nothing to save."""

    def load(self, shard: Shard[Any]) -> dict[str, float]:
        """What it holds."""
        if self.fails:
            raise ValueError("no card")
        return {"gpu_mb": self.gpu_mb.get(shard.name, 0.0)}


def held_mb(members: Members) -> list[float]:
    """What the shards of each member hold."""
    return [
        sum(Models.gpu_mb.get(shard.name, 0.0) for shard in each.member.shards)
        for each in members.all
    ]


@virtual
async def test_shards_leave_a_member_whose_budget_is_used_most() -> None:
    """Although nobody asks for them, and no processor is busy; down to a fair part."""
    Models.gpu_mb = {}
    async with cluster(Models, members=3, shards=30, budgets={"gpu_mb": 1_000}) as members:
        Models.gpu_mb = {shard.name: 90.0 for shard in members[0].member.shards}
        assert held_mb(members) == [900, 0, 0]
        for _ in range(90):
            await asyncio.sleep(MINUTE_S)
            if max(held_mb(members)) <= 600:
                break
        assert max(held_mb(members)) <= 600, held_mb(members)


@virtual
async def test_requests_are_a_load_like_others() -> None:
    """What `own` counts, as a part of that budget, as memory is of its."""
    Models.gpu_mb = {}
    budgets = {"gpu_mb": 1_000, "requests": 10}
    async with cluster(Models, members=1, shards=4, budgets=budgets) as members:
        member = members[0].member
        Models.gpu_mb = {member.shards[0].name: 300.0}
        for _ in range(300):
            await asyncio.sleep(0.1)
            member.own("key", weight=0.5)
        member._joined.host.bundle_stats()
        used = member._joined.host.usage()
        assert used.memory_used_bytes / used.memory_limit_bytes == pytest.approx(0.5, abs=0.05)
        members[0].service.fails = True  # type: ignore[attr-defined]
        Models.gpu_mb = {}
        used = member._joined.host.usage()
        assert used.memory_used_bytes / used.memory_limit_bytes == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("budget", [0, -1, float("inf"), float("nan")])
def test_a_budget_is_a_number_above_0(budget: float) -> None:
    """Nothing else can be a part of it."""
    with pytest.raises(BadInputError, match="above 0"):
        Member("zk://h/x", Models(), address="http://h:1", budgets={"gpu_mb": budget})


async def test_what_members_record_can_be_replayed(tmp_path: Path) -> None:
    """How much of its budget each uses, and who owns what: as brokers do. In real time, because
    threads write files.
    """
    Models.gpu_mb = {}
    settings = {
        "loadManagerHistoryEnabled": "true",
        "loadManagerHistoryDirectory": str(tmp_path),
        "loadManagerHistoryIntervalSeconds": "1",
    }
    budgets = {"gpu_mb": 1_000.0}
    async with cluster(Models, members=1, shards=4, budgets=budgets, settings=settings) as members:
        Models.gpu_mb = {shard.name: 75.0 for shard in members[0].member.shards}
        async with asyncio.timeout(120):
            while not any(used == pytest.approx(0.3, abs=1e-3) for used in _usages(tmp_path)):
                await asyncio.sleep(0.2)
    assert _sealed(tmp_path) >= {"kind=broker_load", "kind=bundle_load", "kind=ownership"}


def _usages(folder: Path) -> list[float]:
    files = [path for path in folder.rglob("*.jsonl.open") if "kind=broker_load" in str(path)]
    lines = [line for file in files for line in file.read_text().split("\n") if line[-1:] == "}"]
    return [json.loads(line)["usage"] for line in lines]


def _sealed(folder: Path) -> set[str]:
    return {path.parent.parent.name for path in folder.rglob("*.jsonl.gz")}


@virtual
async def test_a_weight_that_is_no_amount_costs_only_that_call() -> None:
    """The text names the key, shortened; the load of the others moves shards as before."""
    async with cluster(Models, members=3, shards=24, budgets={"requests": 100}) as members:
        busy = members[0]
        keys = [key for key in map(str, range(200)) if busy.owns(key)]
        long = next(key for key in (f"{n}" + "x" * 10**6 for n in range(1_000)) if busy.owns(key))
        for weight in (math.nan, math.inf, -math.inf, -1, 1.1e9, 1e308, 10**5_000, 1j, "1", None):
            for key in (keys[0], long):
                with pytest.raises(BadInputError, match="a weight is a number") as refused:
                    busy.member.own(key, weight)  # type: ignore[arg-type]
                assert repr(key)[:20] in str(refused.value)
                assert len(str(refused.value)) < 200
        before, loop = len(busy.member.shards), asyncio.get_running_loop()
        until_s = loop.time() + 20 * MINUTE_S
        while len(busy.member.shards) == before:
            assert loop.time() < until_s
            for key in keys:
                if busy.owns(key):
                    busy.member.own(key, 10)
                    with suppress(BadInputError):
                        busy.member.own(key, math.nan)
            await asyncio.sleep(5)


@pytest.mark.parametrize(
    ("budgets", "load", "used"),
    [({}, 1e9, 0.0), ({"requests": 1e3}, 1e9, 1_000.0), ({"gpu_mb": 5e-324}, 1e308, 1_000.0)],
)
def test_however_large_loads_are_they_can_be_reported(
    budgets: dict[str, float], load: float, used: float
) -> None:
    """In proportion: a shard with half of the load of another one has half of it."""

    class Clock(LoopTime):
        now = 0.0

        def monotonic_s(self) -> float:
            self.now += PERIOD_S
            return self.now

    shards = {f"s/{span}": Shard[Any](f"s/{span}", 1, bool) for span in SPANS}
    for shard, share in zip(shards.values(), (1.0, 0.5), strict=True):
        for key in map(str, range(1_000)):
            shard.count(key, share * min(load, 1e9))
    Models.gpu_mb = {shard.name: load for shard in shards.values()}
    extra = ExtraHooks(Models(), {})
    loads = ShardLoads(shards, Clock(), extra, budgets)
    whole, half = loads.stats().values()
    for stats in (whole, half):
        check_figures(LocalBrokerData(last_stats={"s": stats}))
    check_figures(
        LocalBrokerData(
            msg_rate_in=whole.msg_rate_in + half.msg_rate_in,
            msg_throughput_in=whole.msg_throughput_in + half.msg_throughput_in,
        )
    )
    assert whole.msg_throughput_in > 1e12
    assert half.msg_rate_in == pytest.approx(whole.msg_rate_in / 2)
    usage = loads.usage()
    assert usage.memory_used_bytes == pytest.approx(used * usage.memory_limit_bytes)
    assert not extra.failures
