"""The names that the library promises, and what they take: they stay within a major version."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys

import pytest
import structlog
from sharding.fenced_database import Counters, Database

import loadmanager
from loadmanager import testing
from loadmanager.sharding.logs import use_standard_logging
from loadmanager.testing import cluster, virtual

SURFACE = {
    "Member": "(store: 'str', service: 'Service[State]', *, address: 'str', shards: 'int' = 64, "
    "eager: 'bool' = False, settings: 'Mapping[str, str] | None' = None) -> 'None'",
    "Member.own": "(self, key: 'str', weight: 'float' = 1.0) -> 'Shard[State]'",
    "Member.resolve": "(self, key: 'str') -> 'str'",
    "Member.move": "(self, shard: 'Shard[State]', destination: 'str') -> 'None'",
    "Member.shards": "property",
    "Member.address": "property",
    "Shard.contains": "(self, key: 'str') -> 'bool'",
    "Shard.check": "(self) -> 'None'",
    "Service.open": "(self, shard: 'Shard[Any]') -> 'State'",
    "Service.close": "(self, shard: 'Shard[Any]', state: 'State') -> 'None'",
    "AsyncLimiter": "(rate: 'int', *, per_s: 'float' = 1.0, burst: 'int | None' = None, "
    "waiters_max: 'int' = 10000, clock_ns: 'Callable[[], int]' = <built-in function "
    "monotonic_ns>) -> 'None'",
    "AsyncLimiter.acquire": "(self, who: 'str' = '', amount: 'int' = 1) -> 'None'",
    "testing.cluster": "(service: 'Callable[[], Service[Any]]', members: 'int' = 3, *, "
    "shards: 'int' = 16, eager: 'bool' = True, settings: 'Mapping[str, str] | None' = None) "
    "-> 'AsyncIterator[Members]'",
}


def _signature(path: str) -> str:
    value: object = loadmanager
    for name in path.split("."):
        value = getattr(value, name)
    return "property" if isinstance(value, property) else str(inspect.signature(value))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", SURFACE)
def test_signatures_stay(path: str) -> None:
    """Whoever calls them by these names and in this order goes on working."""
    assert _signature(path) == SURFACE[path]


def test_names_stay() -> None:
    """All public names have a docstring, which is their contract; others do not exist."""
    assert loadmanager.__all__ == [
        "AsyncLimiter",
        "Member",
        "Moved",
        "Service",
        "Shard",
        "TokenBucket",
    ]
    assert testing.__all__ == ["LocalMember", "Members", "VirtualLoop", "cluster", "virtual"]
    for name in loadmanager.__all__:
        assert getattr(loadmanager, name).__doc__
    with pytest.raises(AttributeError):
        loadmanager.Broker  # noqa: B018
    shard = loadmanager.Shard("x/y/0x00000000_0xffffffff", 7, lambda _: True)
    assert (shard.token, str(shard.range), shard.name) == (
        7,
        "0x00000000_0xffffffff",
        "x/y/0x00000000_0xffffffff",
    )
    assert not shard.ended.is_set()
    moved = loadmanager.Moved("key", "http://there:1")
    assert (moved.key, moved.owner, str(moved)) == (
        "key",
        "http://there:1",
        "'key' is served by http://there:1",
    )


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import loadmanager", {"numpy", "structlog", "kazoo", "aiohttp", "psutil"}),
        ("from loadmanager import TokenBucket", {"numpy", "structlog", "kazoo", "aiohttp"}),
        ("from loadmanager import AsyncLimiter", {"numpy", "structlog", "kazoo", "aiohttp"}),
        ("from loadmanager import Member", {"kazoo", "aiohttp", "psutil", "google", "click"}),
        ("import loadmanager.testing", {"kazoo", "aiohttp", "psutil", "google", "click"}),
    ],
)
def test_an_import_loads_what_it_needs(statement: str, absent: set[str]) -> None:
    """A member needs no HTTP library, no protobuf and no command line."""
    program = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not absent & set(done.stdout.split())


def test_a_member_logs_as_its_program_does(caplog: pytest.LogCaptureFixture) -> None:
    """To the loggers of `logging`, and nothing that needs attention while all is well."""

    @virtual
    async def run() -> None:
        use_standard_logging()
        async with cluster(lambda: Counters(Database()), members=2, shards=4) as members:
            await members[0].stop()
            await members.settled()

    before = structlog.get_config()
    structlog.reset_defaults()
    try:
        with caplog.at_level(logging.INFO):
            run()
    finally:
        structlog.configure(**before)
    names = {record.name for record in caplog.records}
    assert "loadmanager.ownership" in names
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert any(
        record.getMessage().startswith("bundle acquired bundle=") for record in caplog.records
    )
