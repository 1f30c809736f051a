"""A service in the broker's place gets what it has methods for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from clusters.running import NS, Cluster, Running, an_address, until
from kit.security.tokens import VALUES, verifier
from structlog.testing import capture_logs

from loadmanager.broker.messaging.rules import RETENTION
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.kit.names import TopicName
from loadmanager.kit.tasks import Scope

TOPIC = TopicName("persistent", NS, "orders")
EXTRA = ("store_in", "protect", "rules", "topic_host")
"""What a service may have beside `Service`."""


async def at_once(_thread: int, call: Callable[[], Any]) -> Any:
    """A disk that never keeps anybody waiting."""
    return call()


class OwnService:
    """Does what our server does, and is another class, as the service of a third party."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        self.server = BrokerServer(*arguments, **fields)


class FullService(OwnService):
    """Has also what a service need not have."""


def _of_server(name: str, service: OwnService) -> Any:
    return getattr(service.server, name)


for _name in {name for name in dir(BrokerServer) if name[0] != "_"} - set(EXTRA):
    setattr(OwnService, _name, property(partial(_of_server, _name)))
for _name in (*EXTRA, "serving"):
    setattr(FullService, _name, property(partial(_of_server, _name)))


@pytest.mark.parametrize("service", [OwnService, FullService])
async def test_a_service_gets_what_it_has_methods_for(service: type[OwnService]) -> None:
    """The storage, what clients prove themselves with, operators' questions, and rules; a service
    that does not protect itself is named in the log.
    """
    full = service is FullService
    async with Scope("cluster") as scope, Cluster(scope) as cluster:
        storage = LogFiles(MemoryDisk(SharedFiles()), at_once)
        with capture_logs() as lines:
            broker = Running(
                cluster,
                an_address(0),
                VALUES,
                verifier=verifier(),
                service=service,
                storage=storage,
            )
        cluster.brokers.append(broker)
        warned = [line["service"] for line in lines if "does not ask its clients" in line["event"]]
        assert warned == ([] if full else ["OwnService"])
        await broker.store.__aenter__()
        await broker.parts.start()
        await until(lambda: broker.use.leading.leader is not None)
        namespaces, server = broker.use.namespaces, broker.parts.hosting.server
        await namespaces.create_tenant(NS.tenant, {})
        await namespaces.create_namespace(NS, {"bundles": {"numBundles": 4}})
        assert (server.client_access is not None, server.serving.storing is not None) == (
            full,
            full,
        )
        if not full:
            assert broker.use.topic_host is None
            return
        await broker.serve(TOPIC)
        retention = {"retentionTimeInMinutes": 7, "retentionSizeInMB": 7}
        await namespaces.update_policies(NS, lambda policies: {**policies, RETENTION: retention})
        rules = server.rules.of(str(NS))
        await until(lambda: rules.of(stored=True).retention_bytes == 7 * 1024 * 1024)
        assert broker.use.topic_host.is_open(TOPIC)
