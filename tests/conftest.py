"""Shared by every test: one real ZooKeeper a session (and xdist worker), started by the first
test that asks for it.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
from ports import free_port
from xdist.scheduler import LoadScopeScheduling

from loadmanager.kit.zookeeper.java import JavaZooKeeper
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings

pytest.register_assert_rewrite("loadmanager.testing.store_contract")

DATA = Path(__file__).parents[1] / "data"
SPARK = "tests/nightly/"
ON_HDFS = ("tests/nightly/test_shared_storage.py", "tests/nightly/test_standalone_cluster.py")
"""Modules whose Java processes are their own, but for one HDFS, which takes long to start."""
ARCHITECTURE = "tests/architecture/"
"""Tests that share the trees of all our code, which take seconds to make."""
TOGETHER = (
    "tests/broker/protocol/test_bad_frames.py",
    "tests/broker/protocol/test_stock_client.py",
    "tests/broker/protocol/test_throttling_client.py",
    "tests/browser/test_page.py",
    "tests/cli/test_tournament.py",
    "tests/deploy/test_wheel.py",
    "tests/kit/zookeeper/test_beside_zookeeper.py",
    "tests/kit/zookeeper/test_store_attacks.py",
    "tests/lab/test_worlds.py",
    "tests/oracle/test_vectors.py",
    "tests/system/test_secured.py",
)
"""Modules whose tests share what takes long to start, or to compute."""
SIMULATION = "tests/simulation/"
COMPUTE = (
    SIMULATION,
    "tests/engine/",
    "tests/lab/",
    "tests/leader/",
    "tests/limits/",
    "tests/properties/",
    "tests/scenarios/",
)
"""Folders whose tests wait for nothing."""
WAITING = (
    "tests/broker/admin/test_patience.py",
    "tests/cli/test_cut_off.py",
    "tests/steer/test_daemon.py",
    "tests/steer/test_dead_man.py",
    "tests/steer/test_faults.py",
    "tests/steer/test_turns.py",
)
"""Modules of tests that wait as long as those of whole systems do."""
FEW = 4
"""So many tests of the simulation come after each module of long tests that wait."""
_chroots = itertools.count()

structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
"""structlog's own tracebacks show the values of all variables, which takes seconds."""

# a slow minute of the machine must not fail a test
hypothesis.settings.register_profile(
    "suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _logging_stays_as_it_was() -> Iterator[None]:
    """A command that runs in this process may set up logging, onto a stream that is closed soon."""
    before, root = structlog.get_config(), logging.getLogger()
    level = root.level
    yield
    if structlog.get_config() != before:
        structlog.configure(**before)
        root.setLevel(level)
        for handler in list(root.handlers):
            if isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter):
                root.removeHandler(handler)
                handler.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` writes the golden files anew instead of comparing with them; `--pulsar` chooses
    the version of the brokers that `make test-pulsar` starts.
    """
    parser.addoption("--rewrite", action="store_true", help="write golden files anew")
    parser.addoption("--pulsar", metavar="VERSION", help="of the brokers of real clusters")


class TogetherOrAlone(LoadScopeScheduling):
    """Gives each worker the next test. Tests that share what takes long to start go to one worker:
    those of the analysis, whose Java process also takes long to warm up, and those of some modules.

    xdist's own `--dist loadgroup` sees no groups with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if module in ON_HDFS:
            return "hdfs"
        if module.startswith(SPARK):
            return "spark"
        if module.startswith(ARCHITECTURE):
            return ARCHITECTURE
        return module if module in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TogetherOrAlone:
    """The largest group, which is Spark's, begins first."""
    return TogetherOrAlone(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tests first, so that no worker is left alone with one at the end. Tests that compute
    come between tests that wait for processes, so that no core idles while all workers wait.
    """
    spark = [item for item in items if item.get_closest_marker("spark")]
    others = [item for item in items if not item.get_closest_marker("spark")]
    parts: dict[tuple[bool, bool], list[pytest.Item]] = {}
    for item in others:
        computes = item.nodeid.startswith(COMPUTE)
        long = item.nodeid.startswith((SIMULATION, *WAITING)) or (
            item.get_closest_marker("system") is not None
        )
        parts.setdefault((long, computes), []).append(item)
    items[:] = spark
    for long in (True, False):
        computing = parts.get((long, True), [])
        items += _merged(
            _by_module(parts.get((long, False), [])),
            _few(computing) if long else _by_module(computing),
        )


def _by_module(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    modules = itertools.groupby(items, key=lambda item: item.nodeid.partition("::")[0])
    return [list(module) for _, module in modules]


def _few(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    return [items[start : start + FEW] for start in range(0, len(items), FEW)]


def _merged(*streams: list[list[pytest.Item]]) -> Iterator[pytest.Item]:
    """The units of all streams, each evenly among those of the others."""
    placed = [
        ((index + 0.5) / len(units), unit) for units in streams for index, unit in enumerate(units)
    ]
    for _, unit in sorted(placed, key=lambda each: each[0]):
        yield from unit


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of garbage collections, which come seldom: as in a broker."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def _clients_are_closed() -> Iterator[None]:
    """No ZooKeeper client outlives the tests of a module.

    Each of its pings takes a number from `random`, which Hypothesis reports in whatever test runs.
    """
    yield
    left = [thread.name for thread in threading.enumerate() if "zk_loop" in thread.name]
    assert not left, f"ZooKeeper clients that nobody closed: {left}"


@pytest.fixture(scope="module", autouse=True)
def _data_are_not_in_the_tree() -> Iterator[None]:
    """No test writes where `make run` does: its next cluster would take the records of tests for
    its own, and tell that it was down. Looks at modules that run before the first that does.
    """
    before = DATA.exists()
    yield
    assert before or not DATA.exists(), f"this module, or one beside it, has made {DATA}"


@pytest.fixture(scope="module", autouse=True)
def _what_stays_is_left_alone() -> Iterator[None]:
    """Collections look no more at what tests of a module leave: the trees of all our code alone are
    a million objects, at which each full collection of the thousands of later tests would look.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[JavaZooKeeper]:
    """The real server on a free port; sessions as short as 0.6 s."""
    server = JavaZooKeeper(port=free_port(), tick_ms=100)
    server.start()
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def zookeeper_settings(zookeeper_server: JavaZooKeeper) -> Callable[..., ZooKeeperSettings]:
    """Makes settings for stores that share one root, which no other test sees."""
    root = f"tests/{os.getpid()}-{next(_chroots)}"

    def settings(**changes: float) -> ZooKeeperSettings:
        chosen = {"session_timeout_ms": 20_000, "operation_timeout_s": 30.0, **changes}
        return ZooKeeperSettings(url=f"{zookeeper_server.url}/{root}", **chosen)

    return settings
