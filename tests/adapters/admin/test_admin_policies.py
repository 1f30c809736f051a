"""Placement policies over HTTP, with Pulsar's paths, bodies and status codes."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from loadmanager.adapters.admin.server import AdminServer
from loadmanager.adapters.memory.admin_control import CLUSTER, MemoryCluster
from loadmanager.adapters.memory.store import MemoryStore, MemoryTree
from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.conf import Live
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.runtime.broker.namespaces import Namespaces
from loadmanager.runtime.shared.placement_policies import PlacementPolicies
from loadmanager.runtime.shared.settings import BrokerSettings

ISOLATION = f"/admin/v2/clusters/{CLUSTER}/namespaceIsolationPolicies"
DOMAINS = f"/admin/v2/clusters/{CLUSTER}/failureDomains"
GROUP = "/admin/v2/namespaces/public/default/antiAffinity"
POLICY = {
    "namespaces": ["public/.*"],
    "primary": ["127.*"],
    "secondary": [],
    "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "100"}},
}


class Api:
    """One broker's API."""

    def __init__(self, session: aiohttp.ClientSession, url: str, cluster: MemoryCluster, store: MemoryStore) -> None:
        self.session, self.url, self.cluster, self.store = session, url, cluster, store

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and parsed body."""
        async with self.session.request(method, self.url + path, data=None if body is None else json.dumps(body)) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None


@asynccontextmanager
async def _serving() -> AsyncIterator[Api]:
    cluster, store = MemoryCluster(), MemoryTree().session()
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    control = cluster.join(BrokerAddress(f"127.0.0.1:{port}", "pulsar://127.0.0.1:1", f"http://127.0.0.1:{port}"))
    async with store:
        names = Namespaces(store, Live(BrokerSettings()))
        await names.create_tenant("public", {})
        namespace = NamespaceName("public", "default")
        await names.create_namespace(namespace, {})
        await control.create_namespace(namespace, {})
        policies = PlacementPolicies(store, CLUSTER)
        server = AdminServer(control, cluster=CLUSTER, version="1", metrics=lambda: (b"", "text/plain"), policies=policies)
        await server.start(sock)
        try:
            async with aiohttp.ClientSession() as session:
                yield Api(session, f"http://127.0.0.1:{port}", cluster, store)
        finally:
            await server.stop()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A broker behind its API."""
    async with _serving() as found:
        yield found


async def test_isolation_policies(api: Api) -> None:
    """Set, read, what each broker is in it, unload of what it concerns, remove."""
    api.cluster.owners["public/default/0x00000000_0x40000000"] = next(iter(api.cluster.brokers))
    assert await api.ask("POST", f"{ISOLATION}/mine", POLICY) == (204, None)
    assert api.cluster.owners == {}
    assert await api.ask("GET", ISOLATION) == (200, {"mine": POLICY})
    assert await api.ask("GET", f"{ISOLATION}/mine") == (200, POLICY)
    status, brokers = await api.ask("GET", f"{ISOLATION}/brokers")
    assert (status, brokers[0]["policyName"], brokers[0]["primary"]) == (200, "mine", True)
    status, broker = await api.ask("GET", f"{ISOLATION}/brokers/{next(iter(api.cluster.brokers))}")
    assert (status, broker["namespaceRegex"]) == (200, ["public/.*"])
    assert (await api.ask("GET", f"{ISOLATION}/brokers/nobody:1"))[0] == 404
    assert await api.ask("DELETE", f"{ISOLATION}/mine") == (204, None)
    assert await api.ask("DELETE", f"{ISOLATION}/mine") == (204, None)
    assert (await api.ask("GET", f"{ISOLATION}/mine"))[0] == 404


async def test_bad_policies(api: Api) -> None:
    """400 with the reason for what cannot be used, 412 for another cluster."""
    status, answer = await api.ask("POST", f"{ISOLATION}/mine", {**POLICY, "primary": ["("]})
    assert status == 400
    assert "regular expression" in answer["reason"]
    assert (await api.ask("POST", f"{ISOLATION}/mine", {"namespaces": 1}))[0] == 400
    assert (await api.ask("GET", "/admin/v2/clusters/other/namespaceIsolationPolicies"))[0] == 412


async def test_corrupt_policies(api: Api) -> None:
    """What is stored and cannot be read is nobody's bad request: 500, with the path. One bad policy costs no other."""
    path = f"/admin/clusters/{CLUSTER}/namespaceIsolationPolicies"
    await api.store.put(path, json.dumps({"bad": {**POLICY, "primary": ["("]}, "good": POLICY}).encode())
    status, brokers = await api.ask("GET", f"{ISOLATION}/brokers")
    assert (status, [entry["policyName"] for entry in brokers]) == (200, ["good"])
    assert (await api.ask("POST", f"{ISOLATION}/bad", POLICY))[0] == 204
    await api.store.put(path, b'{"a":"\xff"}')
    for method, body in (("GET", None), ("POST", POLICY), ("DELETE", None)):
        status, answer = await api.ask(method, f"{ISOLATION}/mine", body)
        assert status == 500
        assert path in answer["reason"]


async def test_a_corrupt_namespace_keeps_no_other_from_a_policy(api: Api) -> None:
    """A policy that concerns a namespace which cannot be read is set, and the others are unloaded."""
    api.cluster.owners["public/default/0x00000000_0x40000000"] = next(iter(api.cluster.brokers))
    await api.store.put("/admin/policies/public/corrupt", b"garbage")
    assert await api.ask("POST", f"{ISOLATION}/mine", POLICY) == (204, None)
    assert api.cluster.owners == {}


async def test_failure_domains(api: Api) -> None:
    """Set, read, conflict, remove."""
    assert await api.ask("GET", DOMAINS) == (200, {})
    assert await api.ask("POST", f"{DOMAINS}/d1", {"brokers": ["a:1", "b:1"]}) == (204, None)
    assert await api.ask("GET", DOMAINS) == (200, {"d1": {"brokers": ["a:1", "b:1"]}})
    assert await api.ask("GET", f"{DOMAINS}/d1") == (200, {"brokers": ["a:1", "b:1"]})
    assert (await api.ask("POST", f"{DOMAINS}/d2", {"brokers": ["b:1"]}))[0] == 409
    assert (await api.ask("POST", f"{DOMAINS}/d2", {"brokers": "b:1"}))[0] == 400
    assert await api.ask("DELETE", f"{DOMAINS}/d1") == (204, None)
    assert (await api.ask("DELETE", f"{DOMAINS}/d1"))[0] == 404
    assert (await api.ask("GET", f"{DOMAINS}/d1"))[0] == 404


async def test_anti_affinity_groups(api: Api) -> None:
    """Set, read, remove; an empty group and a missing namespace are refused."""
    assert await api.ask("GET", GROUP) == (204, None)
    assert await api.ask("POST", GROUP, "spread") == (204, None)
    assert await api.ask("GET", GROUP) == (200, "spread")
    assert await api.ask("DELETE", GROUP) == (204, None)
    assert await api.ask("GET", GROUP) == (204, None)
    assert (await api.ask("POST", GROUP, " "))[0] == 412
    assert (await api.ask("POST", GROUP.replace("default", "none"), "g"))[0] == 404
    assert await api.ask("GET", f"/admin/v2/namespaces/{CLUSTER}/antiAffinity/g") == (200, [])
