"""The names that the library promises, and what they take: they stay within a major version."""

from __future__ import annotations

import inspect
import logging
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import structlog
from sharding.fenced_database import Counters, Database

import loadmanager
from loadmanager import client, testing
from loadmanager.kit.logger import get_logger
from loadmanager.sharding.metrics import METRICS
from loadmanager.testing import cluster, virtual

SURFACE = {
    "Member": "(store: 'str', service: 'Service[State]', *, address: 'str', shards: 'int' = 64, "
    "eager: 'bool' = False, budgets: 'Mapping[str, float] | None' = None, "
    "settings: 'Mapping[str, str] | None' = None) -> 'None'",
    "Member.own": "(self, key: 'str', weight: 'float' = 1.0) -> 'Shard[State]'",
    "Member.resolve": "(self, key: 'str') -> 'str'",
    "Member.move": "(self, shard: 'Shard[State]', destination: 'str') -> 'None'",
    "Member.split": "(self, shard: 'Shard[State]') -> 'None'",
    "Member.metrics": "(self) -> 'str'",
    "Member.decisions": "(self) -> 'list[dict[str, Any]]'",
    "Member.table": "(self) -> 'Table'",
    "Member.tables": "(self) -> 'AsyncIterator[Table]'",
    "client.RoutingClient": "(source: 'str | AsyncIterable[Table]') -> 'None'",
    "client.RoutingClient.owner": "(self, key: 'str') -> 'str'",
    "client.RoutingClient.call": "(self, key: 'str', ask: 'Callable[[str], Awaitable[T]]', *, "
    "patience_s: 'float' = 30.0, retry_on: 'tuple[type[Exception], ...]' = ()) -> 'T'",
    "client.Table.owner": "(self, key: 'str') -> 'str'",
    "client.Table.ranges": "property",
    "client.Table.to_json": "(self) -> 'bytes'",
    "client.Table.from_json": "(value: 'bytes') -> 'Table'",
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
    "balance": "(items: 'Iterable[Item]', nodes: 'Iterable[Node]', *, "
    "within_points: 'float' = 5.0, moves_max: 'int' = 100) -> 'Balance'",
    "Item": "(name: 'str', load: 'Mapping[str, float]', on: 'str' = '', cost: 'float' = 0.0, "
    "stays: 'bool' = False) -> None",
    "Node": "(name: 'str', budget: 'Mapping[str, float]' = <factory>, "
    "load: 'Mapping[str, float]' = <factory>, leaving: 'bool' = False) -> None",
    "testing.cluster": "(service: 'Callable[[], Service[Any]]', members: 'int' = 3, *, "
    "shards: 'int' = 16, eager: 'bool' = True, settle: 'bool' = True, "
    "budgets: 'Mapping[str, float] | None' = None, "
    "settings: 'Mapping[str, str] | None' = None) -> 'AsyncIterator[Members]'",
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
        "BadInputError",
        "Item",
        "Member",
        "Moved",
        "Node",
        "NotNow",
        "OperationalError",
        "Service",
        "Shard",
        "TokenBucket",
        "balance",
    ]
    assert client.__all__ == ["RoutingClient", "Table"]
    assert testing.__all__ == ["LocalMember", "Members", "VirtualLoop", "cluster", "virtual"]
    for name in loadmanager.__all__:
        assert getattr(loadmanager, name).__doc__
    with pytest.raises(AttributeError):
        loadmanager.Broker  # noqa: B018
    shard = loadmanager.Shard("x/y/0x00000000_0xffffffff", 7, lambda _: True)
    assert (shard.token, str(shard.range), shard.name) == (
        7,
        "0x00000000_0xffffffff",
        "0x00000000_0xffffffff",
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
        ("import loadmanager.kit.logs", {"numpy", "kazoo", "aiohttp"}),
        ("import loadmanager", {"numpy", "structlog", "kazoo", "aiohttp", "psutil"}),
        ("from loadmanager import TokenBucket", {"numpy", "structlog", "kazoo", "aiohttp"}),
        ("from loadmanager import balance", {"numpy", "structlog", "kazoo", "asyncio"}),
        ("from loadmanager import AsyncLimiter", {"numpy", "structlog", "kazoo", "aiohttp"}),
        (
            "from loadmanager import Member",
            {"numpy", "structlog", "kazoo", "aiohttp", "psutil", "google", "click"},
        ),
        (
            "import loadmanager.client",
            {"numpy", "structlog", "kazoo", "aiohttp", "psutil", "google", "click"},
        ),
        (
            "import loadmanager.testing",
            {"structlog", "kazoo", "aiohttp", "psutil", "google", "click"},
        ),
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
    """To the loggers of `logging`, of members and shards, and nothing that needs attention while
    all is well. Nothing is configured for the whole program.
    """

    @virtual
    async def run() -> None:
        async with cluster(lambda: Counters(Database()), members=2, shards=4) as members:
            await members[0].stop()
            await members.settled()

    before = structlog.get_config()
    structlog.reset_defaults()
    handlers = logging.getLogger().handlers[:]
    try:
        with caplog.at_level(logging.INFO):
            run()
        assert not structlog.is_configured()
    finally:
        structlog.configure(**before)
    assert logging.getLogger().handlers == handlers
    names = {record.name for record in caplog.records}
    assert "loadmanager.ownership" in names
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    texts = [record.getMessage() for record in caplog.records]
    assert any(text.startswith("shard acquired shard='0x") for text in texts)
    strange = re.compile("bundle|broker|namespace|pulsar", re.IGNORECASE)
    assert [text for text in texts if strange.search(text)] == []


def test_a_member_logs_through_structlog_where_its_program_does() -> None:
    """Whose configuration it leaves as it is; in the same words."""

    @virtual
    async def run() -> None:
        async with cluster(lambda: Counters(Database()), members=1, shards=4):
            pass

    with structlog.testing.capture_logs() as lines:
        run()
    (line, *_) = (line for line in lines if line["event"] == "shard acquired")
    assert line["shard"].startswith("0x")
    assert not any(word in str(lines) for word in ("bundle", "broker"))
    with structlog.testing.capture_logs() as lines:
        get_logger("test").info("a bundle of a broker")
    assert lines == [{"event": "a bundle of a broker", "log_level": "info"}]


def test_a_member_leaves_its_process_alone() -> None:
    """It runs in a thread, too, beside another one; signals and the interpreter are as before."""
    before = _process()
    seen: list[object] = []

    @virtual
    async def run() -> None:
        async with (
            cluster(lambda: Counters(Database()), members=1, shards=2),
            cluster(lambda: Counters(Database()), members=1, shards=2),
        ):
            seen.append(_process())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(120)
    assert seen == [before]


def _process() -> object:
    return (
        [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        sys.getswitchinterval(),
        sys.excepthook,
        logging.getLogger().handlers,
    )


def test_the_metrics_of_a_member_are_those_of_the_page() -> None:
    """With the same words, and none of Pulsar's."""
    page = (Path(__file__).parents[2] / "docs/howto/shard-your-service.md").read_text()
    rows = dict(re.findall(r"^\| `(loadmanager_\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert rows == {name: doc for name, (_, doc) in METRICS.items()}

    pages: list[str] = []

    @virtual
    async def run() -> None:
        async with cluster(lambda: Counters(Database()), members=2, shards=4) as members:
            pages.append(await members[0].member.metrics())

    run()
    (text,) = pages
    helped = dict(re.findall(r"^# HELP (loadmanager_\w+?)(?:_total)? (.+)$", text, re.MULTILINE))
    assert helped.items() <= rows.items()
    assert len(helped) > 20
    assert not re.search(r"pulsar|broker|bundle|topic|namespace|cluster=", text)
