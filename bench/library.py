"""The library: imports, lookups, many shards, the pause of a move, and what follows a death; or its
examples under attack.

What waits is on virtual time: pauses are what members wait for, not what this machine needs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

from loadmanager import Shard
from loadmanager.client import Table
from loadmanager.engine.bundles.ranges import equal_boundaries
from loadmanager.testing import cluster, virtual
from loadmanager.testing.cluster import SESSION_S

SERVICE = (
    "exec('async def hook(*_): pass'); "
    "Service = type('Service', (), {'open': hook, 'close': hook})()"
)
STATEMENTS = (
    "from loadmanager import Member",
    f"from loadmanager import Member; {SERVICE}; Member('zk://h/x', Service, address='http://h:1')",
    "from loadmanager.client import RoutingClient",
    "from loadmanager import AsyncLimiter",
    "from loadmanager import TokenBucket",
    "from loadmanager import balance",
)
RUNS = 10
ATTACKED = Path(__file__).resolve().parents[1] / "tests/sharding/test_examples_attacked.py"
LOOKUPS = 200_000
MANY = 10_000
LOAD_S = 5.0


class Loads:
    """Its state takes `LOAD_S` to load."""

    async def open(self, shard: Shard[Any]) -> str:
        """Load."""
        await asyncio.sleep(LOAD_S)
        return "state"

    async def close(self, shard: Shard[Any], state: str) -> None:
        """Nothing to save."""


class Prepares(Loads):
    """Loads it before it is moved."""

    async def prepare(self, shard: Shard[Any]) -> str:
        """Load."""
        return await super().open(shard)

    async def open(self, shard: Shard[Any]) -> str:
        """It is loaded, if the shard was moved."""
        return shard.prepared or await super().open(shard)


class StandsBy(Prepares):
    """Has a copy of each shard elsewhere."""

    standbys = 1


class Nothing:
    """Has no state."""

    async def open(self, shard: Shard[Any]) -> None:
        """At once."""

    async def close(self, shard: Shard[Any], state: None) -> None:
        """At once."""


def _imports() -> None:
    """In time of the processor, which other work of the machine lengthens little."""
    for statement in STATEMENTS:
        program = (
            "import sys, time; before = len(sys.modules); began = time.process_time();"
            f"{statement}; print(time.process_time() - began, len(sys.modules) - before)"
        )
        runs = []
        for _ in range(RUNS + 1):
            seconds, modules = _printed(program).split()
            runs.append(float(seconds))
        median_ms = statistics.median(runs[1:]) * 1000  # the first one may compile
        name = statement.replace(f"{SERVICE}; ", "")
        print(f"{name:80} {median_ms:4.0f} ms of CPU, {modules} modules")


def _printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
    )
    return done.stdout


def _memory() -> None:
    """Of a process with one member, over a store in memory."""
    for shards in (64, MANY):
        program = (
            "import psutil, loadmanager.testing as t\n"
            "class Service:\n"
            "    async def open(self, shard): pass\n"
            "    async def close(self, shard, state): pass\n"
            "@t.virtual\n"
            "async def run():\n"
            f"    async with t.cluster(Service, members=1, shards={shards}):\n"
            "        print(psutil.Process().memory_info().rss)\n"
            "run()"
        )
        mib = int(_printed(program)) / 2**20
        print(f"a process with one member and its store, {shards:,} shards: {mib:.0f} MiB")


def _lookups() -> None:
    owners = [f"http://10.0.0.{number % 30}:8080" for number in range(MANY)]
    table = Table(equal_boundaries(MANY), owners)
    keys = [f"user {number}" for number in range(1_000)]
    began_s = time.perf_counter()
    for _ in range(LOOKUPS // len(keys)):
        for key in keys:
            table.owner(key)
    seconds = time.perf_counter() - began_s
    print(f"owner of a key in a table of {MANY}: {LOOKUPS / seconds:,.0f} a second")
    print(f"that table as JSON: {len(table.to_json()):,} bytes")


@virtual
async def _many() -> None:
    tracemalloc.start()
    before, began_s = tracemalloc.get_traced_memory()[0], time.perf_counter()
    async with cluster(Nothing, members=1, shards=MANY) as members:
        seconds, after = time.perf_counter() - began_s, tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        print(
            f"one member opens {MANY:,} shards in {seconds:.1f} s of work (traced, with its store "
            f"in memory), {(after - before) / MANY:,.0f} bytes each"
        )
        member, shards = members[0].member, members[0].member.shards
        began_s = time.perf_counter()
        for number in range(LOOKUPS):
            with member.own(f"user {number % 1_000}"):
                pass
        seconds = time.perf_counter() - began_s
        print(f"with member.own(key), {len(shards):,} shards: {LOOKUPS / seconds:,.0f} a second")


@virtual
async def _moves() -> None:
    loop = asyncio.get_running_loop()
    for kind in (Loads, Prepares):
        async with cluster(kind, members=2, shards=4) as members:
            source, shard = members[0].member, members[0].member.shards[0]
            key = next(text for number in range(9_999) if shard.contains(text := str(number)))
            moving = asyncio.ensure_future(source.move(shard, members[1].member.address))
            await shard.ended.wait()
            ended_s = loop.time()
            while not members.owners(key):
                await asyncio.sleep(0.001)
            pause_s = loop.time() - ended_s
            await moving
            print(f"pause of a move, {LOAD_S:g} s to load, {kind.__name__:9} {pause_s:6.3f} s")


@virtual
async def _deaths() -> None:
    loop = asyncio.get_running_loop()
    for kind, shards in ((Nothing, 1_000), (Nothing, MANY), (Loads, 30), (StandsBy, 30)):
        worked_s = time.process_time()
        async with cluster(kind, members=3, shards=shards) as members:
            opened_s = time.process_time() - worked_s
            await asyncio.sleep(60)
            began_s, worked_s = loop.time(), time.process_time()
            await members.kill(0)
            await asyncio.sleep(SESSION_S - 0.5)  # looking whether all is served is work, too
            await members.settled()
            seconds, again_s = loop.time() - began_s, time.process_time() - worked_s
            print(
                f"kill -9 of one of three, {shards:6,} shards, {kind.__name__:9} {seconds:5.1f} s "
                f"and {again_s:.1f} s of work of all; {opened_s:.1f} s to open them before"
            )


def _attack(seeds: int) -> int:
    """Each example under attack, with each seed; returns 1 if one broke its promise."""
    environment = {**os.environ, "ATTACK_SEEDS": str(seeds)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ATTACKED)]
    return subprocess.run(command, env=environment, check=False).returncode


def main(argv: list[str]) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench library", description=__doc__)
    parser.add_argument("--attack", type=int, metavar="SEEDS", help="attack the examples instead")
    seeds = parser.parse_args(argv).attack
    if seeds is not None:
        return _attack(seeds)
    _imports()
    _lookups()
    _memory()
    _many()
    _moves()
    _deaths()
    return 0
