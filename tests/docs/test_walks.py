"""The walks in docs/explanation/walks.md are taken, with both load managers."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from broker.admin.serving import serving
from clusters.running import NS, Running, a_client, a_cluster, an_address, until
from simulation.clients import send_frame

from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.kit.names import TopicName
from loadmanager.kit.sampler import OwnTraffic
from loadmanager.kit.system.sampler import SystemSampler
from loadmanager.kit.system.settings import SamplerSettings

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "walks.md"
NAME = re.compile(r"`(loadmanager(?:\.\w+)+:\w+(?:\.\w+)*)`")
HOPS_MAX = 6
MODULAR, EXTENSIBLE = "ModularLoadManagerImpl", "ExtensibleLoadManagerImpl"
MANAGERS = pytest.mark.parametrize("manager", [MODULAR, EXTENSIBLE])
RECEIPT, CLOSE_PRODUCER = 7, 15
TOPIC = TopicName("persistent", NS, "t")
OBSERVE = "loadmanager.engine.load.cluster_view:ClusterView.observe"


def hops(walk: int) -> list[str]:
    """The hops of a walk, each with its number and text."""
    text = PAGE.read_text().split("\n## ")[walk]
    return re.findall(r"^\d\. .*(?:\n   .*)*", text, re.MULTILINE)


def elsewhere(walk: int) -> str:
    """The text of a walk about the extensible manager."""
    return PAGE.read_text().split("\n## ")[walk].partition("\nIn the extensible manager,")[2]


def codes(text: str) -> dict[CodeType, str]:
    """The functions that a text names, in its order; classes that it names are left out."""
    found = {}
    for name in NAME.findall(text):
        module, _, qualname = name.partition(":")
        target: Any = importlib.import_module(module)
        for part in qualname.split("."):
            target = getattr(target, part)
        if inspect.isfunction(target):
            found[target.__code__] = name
    return found


@contextmanager
def reached(text: str) -> Iterator[list[str]]:
    """The functions of a text each time that they are called, or go on, meanwhile."""
    wanted, calls = codes(text), list[str]()

    def on_event(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code in wanted:
            calls.append(wanted[frame.f_code])

    sys.setprofile(on_event)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def follow(calls: Iterable[str], names: Iterable[str]) -> bool:
    """True if these functions are among the calls, one after the other."""
    rest = iter(calls)
    return all(name in rest for name in names)


def named(walk: int, manager: str) -> str:
    """The text whose functions a walk reaches, in their order."""
    return "\n".join(hops(walk)) if manager == MODULAR else elsewhere(walk)


async def at_once(_thread: int, call: Callable[[], Any]) -> Any:
    """Run a call of the storage in this thread."""
    return call()


class Measured(Running):
    """A broker that measures this machine."""

    def _make_sampler(self, own: OwnTraffic) -> SystemSampler:
        return SystemSampler(SamplerSettings(), own)


@pytest.mark.parametrize("walk", [1, 2, 3])
def test_walks_are_short(walk: int) -> None:
    """Each has at most six hops, and each hop names a function."""
    assert 1 < len(hops(walk)) <= HOPS_MAX
    assert all(codes(hop) for hop in hops(walk))


@MANAGERS
async def test_one_load_report(manager: str) -> None:
    """The functions are reached in the order of the page, from the sampler to the plan; most of
    them run all the time.
    """
    values = {"loadManagerClassName": manager}
    names = list(codes(named(1, manager)).values())
    before = names[: names.index(OBSERVE) + 1] if OBSERVE in names else names
    async with a_cluster(values) as cluster:
        first = cluster.brokers[0]
        second = Measured(cluster, an_address(1), values)
        cluster.brokers.append(second)
        await second.store.__aenter__()
        await second.parts.start()
        await until(lambda: len(first.use.brokers.registered) == 2)
        bundle = await first.use.namespaces.bundle_of(TOPIC)
        with reached(named(1, manager)) as calls:
            await second.parts.member.reporter.sample()
            await second.use.orders.acquire(bundle)
            await until(lambda: follow(calls, before))
            await first.load_manager.shed()
    assert follow(calls, names)


@MANAGERS
async def test_one_publish(manager: str) -> None:
    """The functions are reached in the order of the page, from the socket to the receipt."""
    text = named(2, MODULAR)  # the managers do not differ
    async with a_cluster({"loadManagerClassName": manager}) as cluster:
        (broker,) = cluster.brokers
        storage = LogFiles(MemoryDisk(SharedFiles()), at_once)
        broker.parts.hosting.store_in(storage, broker.settings.live(StorageSettings))
        await broker.set("brokerPublisherThrottlingMaxMessageRate", "1000")
        await broker.serve(TOPIC)
        async with a_client(await broker.listen()) as client:
            await client.produce(TOPIC)
            with reached(text) as calls:
                await client.send(send_frame(1, 0))
                await client.take_of(RECEIPT)
    assert list(dict.fromkeys(calls)) == list(codes(text).values())


@MANAGERS
async def test_one_unload(manager: str) -> None:
    """The functions are reached in the order of the page, from HTTP to the client."""
    text = named(3, manager)
    async with serving(1, values={"loadManagerClassName": manager}) as served:
        (broker,) = served.brokers
        await broker.serve(TOPIC)
        (bundle,) = broker.use.ownership.owned()
        async with a_client(await broker.listen()) as client:
            await client.produce(TOPIC)
            with reached(text) as calls:
                answer = await served.ask("PUT", f"/admin/v2/namespaces/{bundle}/unload")
                await client.take_of(CLOSE_PRODUCER)
    assert answer.status == 204
    assert list(dict.fromkeys(calls)) == list(codes(text).values())
