"""What refusals cost: whoever has no permission must not make the broker, or the metadata store,
work for it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from adapters.protocol.driven_broker import PONG, Wire
from adapters.security.tokens import token
from wiring.running import NS, Cluster, eventually, until
from wiring.test_client_access import secured

from loadmanager.adapters.protocol.connection import Connection
from loadmanager.adapters.protocol.turns import LoopTurns
from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.errors import ForbiddenError
from loadmanager.core.throttling.bucket import SECOND_NS
from loadmanager.core.wire import pulsar_pb2 as pb
from loadmanager.core.wire.frames import encode

LOOKUP_RESPONSE = 24
REQUESTS = 200
RATIO_MAX = 5.0
"""A refusal may take so many times the work of a PING."""


class Quiet(Wire):
    """A transport whose own work does not count."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[bytes] = []

    def write(self, data: Any) -> None:
        self._written.append(data)

    def count(self, kind: int) -> int:
        for data in self._written:
            super().write(data)
        self._written.clear()
        return super().count(kind)


def stranger(cluster: Cluster) -> tuple[Connection, Wire]:
    """A client with a token that permits nothing; its turn does not end."""
    server = cluster.brokers[0].parts.hosting
    clock, failed = server.clock, server.failures.report
    server.turns = LoopTurns(server.settings, clock, failed, turn_ns=3600 * SECOND_NS)
    connection, wire = Connection(server, server.handlers), Quiet()
    connection.connection_made(wire)
    connect = pb.CommandConnect(
        client_version="raw",
        protocol_version=20,
        auth_method_name="token",
        auth_data=token("stranger").encode(),
    )
    connection.data_received(encode(connect=connect))
    return connection, wire


def work_of(connection: Connection, frames: bytes) -> int:
    """How many functions are called, of Python or C, while a connection takes these frames."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        connection.data_received(frames)
    finally:
        sys.setprofile(None)
    return calls


def lookups(names: Iterator[str]) -> bytes:
    """Lookups of these topics in one read."""
    return b"".join(
        encode(lookup=pb.CommandLookupTopic(topic=name, request_id=number))
        for number, name in enumerate(itertools.islice(names, REQUESTS))
    )


@pytest.mark.parametrize("tenant", [NS.tenant, "unknown-{}"])
async def test_a_refusal_costs_little_more_than_a_ping(tenant: str) -> None:
    """Each is answered at once, from memory, in the order of the requests; also when each names
    another tenant that does not exist.
    """
    async with secured(loadManagerMaxRefusedRequestsPerSecondPerRole="0") as cluster:
        connection, wire = stranger(cluster)
        numbers = itertools.count()
        names = (f"persistent://{tenant.format(n)}/{NS.name}/t{n}" for n in numbers)
        connection.data_received(lookups(names))
        await until(lambda: wire.count(LOOKUP_RESPONSE) == REQUESTS)  # now it is in memory
        refused = work_of(connection, lookups(names))
        assert wire.count(LOOKUP_RESPONSE) == 2 * REQUESTS, "without waiting for anything"
        pinged = work_of(connection, encode(ping=pb.CommandPing()) * REQUESTS)
        assert wire.count(PONG) == REQUESTS
        print(refused / REQUESTS, pinged / REQUESTS)
        assert refused / pinged <= RATIO_MAX


async def test_what_was_absent_is_seen_when_it_is_created() -> None:
    """A tenant, a namespace and a permission, which another session of the store creates."""
    namespace = NamespaceName("late", "ns")
    topic = TopicName("persistent", namespace, "t")
    async with secured() as cluster:
        access = cluster.brokers[0].parts.access
        assert access is not None

        async def allowed() -> bool:
            try:
                await access.require_topic(("writer",), ("produce",), topic, what="Produce")
            except ForbiddenError:
                return False
            return True

        assert not await allowed()
        assert not access.namespaces.names.lacks(NS)
        assert access.namespaces.names.lacks(namespace)
        with pytest.raises(ForbiddenError):
            access.knows(("writer",), ("produce",), namespace, topic, what="Produce")
        session = cluster.tree.session(timeout_s=3600)
        await session.__aenter__()
        await session.put("/admin/policies/late", b"{}")
        await until(lambda: not access.namespaces.names.lacks_tenant("late"))
        grants = b'{"auth_policies": {"namespace_auth": {"writer": ["produce"]}}}'
        await session.put("/admin/policies/late/ns", grants)
        await eventually(allowed, bool)
        await session.delete("/admin/policies/late/ns")
        await eventually(allowed, lambda is_allowed: not is_allowed)
        await session.__aexit__()
