"""A store that a package of somebody else brings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loadmanager import BadInputError, Member
from loadmanager.client import RoutingClient

MODULE = """
from loadmanager.kit.metadata.memory import MemoryTree

TREES = {}

def connect(url, session_timeout_s):
    return TREES.setdefault(url, MemoryTree()).session(timeout_s=session_timeout_s)
"""


class Nothing:
    """Has no state."""

    async def open(self, shard: object) -> None:
        """At once."""

    async def close(self, shard: object, state: None) -> None:
        """At once."""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store_of_others.py").write_text(MODULE)
    about = tmp_path / "store_of_others-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: store-of-others\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[loadmanager.stores]\nothers = store_of_others:connect\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("_installed")
async def test_a_scheme_of_an_installed_package_is_a_store() -> None:
    """For members and clients."""
    url = "others://anywhere/rooms"
    member = Member(url, Nothing(), address="http://h:1", shards=4, eager=True)
    async with member, RoutingClient(url) as client, asyncio.timeout(30):
        while client.owner("kitchen") != "http://h:1":
            await asyncio.sleep(0.01)
        assert await member.resolve("kitchen") == "http://h:1"


def test_a_scheme_that_nobody_brings_is_refused() -> None:
    """With words that say where one would come from."""
    with pytest.raises(BadInputError, match=r"'others' \(entry points loadmanager.stores\)"):
        Member("others://anywhere", Nothing(), address="http://h:1")
