"""What refusals cost, in counted work: whoever has no permission must not make the broker, or the
metadata store, work for it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from broker.composed.test_client_access import secured
from broker.protocol.driven_broker import PONG, Wire
from clusters.running import NS, eventually, until
from hostile.callers import PING, Caller, connect
from hostile.roles import ROLES, TOPIC
from hostile.roles import secured as secured_web
from hostile.test_routes import headers_of

from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.protocol.turns import LoopTurns
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.errors import ForbiddenError
from loadmanager.kit.metadata.memory import TreeClient
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.limits.bucket import SECOND_NS
from loadmanager.member.known_names import LOOKS_PER_S

LOOKUP_RESPONSE = 24
REQUESTS = 200
RATIO_MAX = 6.0
"""A refusal may take so many times the work of a PING, in calls of functions; for a tenant that
nobody has, it reads the clock twice.
"""
STORE_MAX = 4
"""The operations of the first refusal: a tenant, a namespace, and the lists of both."""
TRIES = 50
"""Batches of requests, of which each may come when a second begins."""
STRANGER = ROLES["without permissions"]
READS = {method.__code__ for method in (TreeClient.get, TreeClient.get_many, TreeClient.children)}
WRITES = {method.__code__ for method in (TreeClient.create, TreeClient.put, TreeClient.commit)}


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


@dataclass
class Work:
    """What was done."""

    calls: int = 0
    """Functions that were called, of Python or C."""
    store: int = 0
    """Operations of the metadata store about tenants and namespaces."""


@contextmanager
def counted() -> Iterator[Work]:
    """Count all work of this thread."""
    work = Work()

    def count(frame: Any, event: str, _argument: object) -> None:
        work.calls += event in ("call", "c_call")
        if event == "call" and frame.f_code in READS | WRITES:
            work.store += "/admin/" in str(frame.f_locals)

    sys.setprofile(count)
    try:
        yield work
    finally:
        sys.setprofile(None)


def stranger(server: BrokerServer) -> Caller:
    """A client with a token that permits nothing; its turn does not end."""
    clock, failed = server.serving.clock, server.serving.failures.report
    server.serving.turns = LoopTurns(
        server.serving.settings, clock, failed, turn_ns=3600 * SECOND_NS
    )
    caller = Caller(server, Quiet())
    caller.say(connect(STRANGER.credentials))
    return caller


def lookups(names: Iterator[str]) -> bytes:
    """Lookups of these topics in one read."""
    return b"".join(
        encode(lookup=pb.CommandLookupTopic(topic=name, request_id=number))
        for number, name in enumerate(itertools.islice(names, REQUESTS))
    )


@pytest.mark.parametrize("tenant", [NS.tenant, "unknown", "unknown-{}"])
async def test_a_refusal_costs_little_more_than_a_ping(tenant: str) -> None:
    """Each is answered at once, from memory, in the order of the requests; also when each names
    another tenant that does not exist, but for a few a second, which ask the store whether the
    tenant is there by now. Those that come before the first answer of the store wait for it
    together.
    """
    async with secured(loadManagerMaxRefusedRequestsPerSecondPerRole="0") as cluster:
        caller = stranger(cluster.brokers[0].parts.hosting)
        numbers = itertools.count()
        names = (f"persistent://{tenant.format(n)}/{NS.name}/t{n}" for n in numbers)
        with counted() as first:
            caller.say(lookups(itertools.repeat(next(names))))
            await until(lambda: caller.wire.count(LOOKUP_RESPONSE) == REQUESTS)
        batches = 1
        for batches in range(2, TRIES):
            frames = lookups(names)
            with counted() as refused:
                caller.say(frames)
            if caller.wire.count(LOOKUP_RESPONSE) == batches * REQUESTS:
                break  # without waiting for anything
            answered = batches * REQUESTS
            await until(lambda all_=answered: caller.wire.count(LOOKUP_RESPONSE) == all_)
        assert caller.wire.count(LOOKUP_RESPONSE) == batches * REQUESTS
        with counted() as pinged:
            caller.say(PING * REQUESTS)
        assert caller.wire.count(PONG) == REQUESTS
        assert 0 < first.store <= STORE_MAX + LOOKS_PER_S
        assert (refused.store, pinged.store) == (0, 0)
        assert refused.calls / pinged.calls <= RATIO_MAX


async def test_a_refused_request_asks_the_store_once() -> None:
    """Over HTTP: the same request again is refused from memory, by whomever it was refused."""
    path = f"/admin/v2/persistent/{TOPIC.namespace}/{TOPIC.local}/stats"
    async with secured_web() as served:
        for who in ("nobody", "ended token", "without permissions", "proxy without a principal"):
            role = ROLES[who]
            await served.ask("GET", path, headers=headers_of(role))
            with counted() as again:
                answer = await served.ask("GET", path, headers=headers_of(role))
            assert answer.status == (403 if role.proven else 401), who
            assert again.store == 0, who


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
        with pytest.raises(ForbiddenError):  # it asks the store a few times a second
            any(
                access.knows(("writer",), ("produce",), namespace, topic, what="Produce")
                for _ in range(TRIES * LOOKS_PER_S)
            )
        session = cluster.tree.session(timeout_s=3600)
        await session.__aenter__()
        await session.put("/admin/policies/late", b"{}")
        grants = b'{"auth_policies": {"namespace_auth": {"writer": ["produce"]}}}'
        await session.put("/admin/policies/late/ns", grants)
        await eventually(allowed, bool)
        await session.delete("/admin/policies/late/ns")
        await eventually(allowed, lambda is_allowed: not is_allowed)
        await session.__aexit__()
