"""Every host keeps to the contract: the broker's server, the example, and the one of tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from broker.protocol.driven_broker import Broker
from clusters.members import Tenant
from limits.driven import DrivenClock
from member.hosting_contract import Hosted, HostingContract

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name, topic_hash
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.names import TopicName

ROOT = Path(__file__).parents[2]


def topic_in(bundle: str) -> TopicName:
    """A topic of a bundle."""
    span = BundleRange.parse(split_bundle_name(bundle)[1])
    names = (TopicName.parse(f"persistent://public/default/t{number}") for number in range(99))
    return next(name for name in names if topic_hash(str(name)) in span)


class Owned:
    """A host of a broker that owns what the host serves, and the bundles by their names."""

    def __init__(self, hosting: Any) -> None:
        self.hosting = hosting

    async def serves(self, bundle: str) -> bool:
        """By the traffic that it tells of."""
        return bundle in self.hosting.bundle_stats()


class Server(Owned):
    """The broker's server."""

    def __init__(self) -> None:
        self._broker = Broker()
        super().__init__(self._broker.server)

    async def serves(self, bundle: str) -> bool:
        """By opening a topic."""
        topic = topic_in(bundle)

        async def owned_bundle(_topic: TopicName) -> str:
            return bundle

        self._broker.server.serving.directory.owned_bundle = owned_bundle  # type: ignore[method-assign]
        try:
            return await self._broker.server.serving.topics.host(topic) is not None
        except OperationalError:
            return False


class TestServer(HostingContract):
    """`loadmanager.broker.protocol.server.BrokerServer`."""

    @pytest.fixture
    async def host(self) -> Hosted:
        """A server without clients."""
        return Server()


class TestExample(HostingContract):
    """`examples/counters.py`, from which authors begin."""

    @pytest.fixture
    async def host(self, tmp_path: Path) -> Hosted:
        """Its service, without clients."""
        spec = importlib.util.spec_from_file_location("counters", ROOT / "examples/counters.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look there for the names of their types
        spec.loader.exec_module(module)
        return Owned(module.Counters(tmp_path, None, clock=DrivenClock()))


class TestTenant(HostingContract):
    """The host of tests, which ownership is tested with."""

    @pytest.fixture
    async def host(self) -> Hosted:
        """A new one."""
        return Owned(Tenant())
