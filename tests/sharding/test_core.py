"""What `pip install loadmanager` brings, without extras, is enough for a member of a service."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from loadmanager.kit.zookeeper.java import JavaZooKeeper

ROOT = Path(__file__).parents[2]
CORE = {"kazoo", "msgspec", "numpy", "prometheus-client", "psutil"}
WITHOUT_OTHERS = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ABSENT = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Absent())
"""
SERVICE = """
import asyncio
from loadmanager import AsyncLimiter, Item, Member, Moved, Node, NotNow, TokenBucket, balance
from loadmanager.client import RoutingClient
from loadmanager.testing import cluster, virtual

class Rooms:
    async def open(self, shard):
        return []
    async def close(self, shard, state):
        pass

async def owned(member, key):
    while True:
        try:
            with member.own(key) as shard:
                return shard.token
        except (Moved, NotNow):
            await asyncio.sleep(0.05)

async def main(url):
    first = Member(url, Rooms(), address="http://127.0.0.1:1", shards=4, eager=True)
    second = Member(url, Rooms(), address="http://127.0.0.1:2", shards=4, eager=True)
    async with first, second, RoutingClient(url) as client:
        while {client.owner(str(key)) for key in range(100)} != {first.address, second.address}:
            await asyncio.sleep(0.05)
        key = next(str(key) for key in range(100) if client.owner(str(key)) == first.address)
        assert await owned(first, key) > 0
        assert "loadmanager" in await first.metrics()
        assert isinstance(first.decisions(), list)
    await AsyncLimiter(10).acquire()
    assert balance([Item("x", {"cpu": 1.0})], [Node("a")]).moves

@virtual
async def in_this_process():
    async with cluster(Rooms, members=3) as members:
        await members.kill(0)
        assert (await members.owner("kitchen")).number != 0

asyncio.run(main(sys.argv[2]))
in_this_process()
print("served")
"""
COMMAND = """
import runpy
sys.argv = ["loadmanager", "--help"]
runpy.run_module("loadmanager", run_name="__main__")
"""


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program for which no package is installed but those of the core."""
    others = {
        module
        for module, names in packages_distributions().items()
        if not {name.lower().replace("_", "-") for name in names} <= {*CORE, "loadmanager"}
    }
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_OTHERS + program, ",".join(others), *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_core_is_what_pyproject_says() -> None:
    """The packages below are all that an installation without extras brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {line.partition(">")[0] for line in project["dependencies"]} == CORE


@pytest.mark.zookeeper
@pytest.mark.system
def test_a_member_needs_the_core_only(zookeeper_server: JavaZooKeeper) -> None:
    """Two members share a service on a real ZooKeeper, and all that the library has is used."""
    address = zookeeper_server.url.partition(":")[2]
    ended = _run(SERVICE, f"zk://{address}/core-{os.getpid()}")
    assert (ended.returncode, ended.stdout) == (0, "served\n"), ended.stderr


def test_the_command_line_says_which_extra_it_needs() -> None:
    """No traceback."""
    ended = _run(COMMAND)
    assert ended.returncode == 1
    assert ended.stderr.startswith("loadmanager: the command line needs ")
    assert ended.stderr.endswith("pip install 'loadmanager[broker]'\n")
