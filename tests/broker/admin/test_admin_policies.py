"""Placement policies over HTTP, with Pulsar's paths, bodies and status codes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from broker.admin.serving import CLUSTER, Served, serving

ISOLATION = f"/admin/v2/clusters/{CLUSTER}/namespaceIsolationPolicies"
DOMAINS = f"/admin/v2/clusters/{CLUSTER}/failureDomains"
GROUP = "/admin/v2/namespaces/public/default/antiAffinity"
POLICY = {
    "namespaces": ["public/.*"],
    "primary": ["127.*"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "100"},
    },
}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A broker behind its API."""
    async with serving(1) as served:
        yield served


async def test_isolation_policies(served: Served) -> None:
    """A policy is set and read, shows its brokers, unloads its namespaces, and is removed."""
    await served.own("public/default/0x00000000_0x10000000", "acme/orders/0x00000000_0x40000000")
    assert await served.call("POST", f"{ISOLATION}/mine", POLICY) == (204, None)
    assert served.owners() == {"acme/orders/0x00000000_0x40000000": served.broker_id(0)}
    assert await served.call("GET", ISOLATION) == (200, {"mine": POLICY})
    assert await served.call("GET", f"{ISOLATION}/mine") == (200, POLICY)
    status, brokers = await served.call("GET", f"{ISOLATION}/brokers")
    assert (status, brokers[0]["policyName"], brokers[0]["primary"]) == (200, "mine", True)
    status, broker = await served.call("GET", f"{ISOLATION}/brokers/{served.broker_id(0)}")
    assert (status, broker["namespaceRegex"]) == (200, ["public/.*"])
    assert (await served.call("GET", f"{ISOLATION}/brokers/nobody:1"))[0] == 404
    assert await served.call("DELETE", f"{ISOLATION}/mine") == (204, None)
    assert await served.call("DELETE", f"{ISOLATION}/mine") == (204, None)
    assert (await served.call("GET", f"{ISOLATION}/mine"))[0] == 404


async def test_bad_policies(served: Served) -> None:
    """400 with the reason for a policy that cannot be used, 412 for another cluster."""
    status, answer = await served.call("POST", f"{ISOLATION}/mine", {**POLICY, "primary": ["("]})
    assert status == 400
    assert "regular expression" in answer["reason"]
    assert (await served.call("POST", f"{ISOLATION}/mine", {"namespaces": 1}))[0] == 400
    assert (await served.call("GET", "/admin/v2/clusters/other/namespaceIsolationPolicies"))[
        0
    ] == 412


async def test_corrupt_policies(served: Served) -> None:
    """A stored policy that cannot be read is answered with 500 and its path.

    The other policies act.
    """
    path = f"/admin/clusters/{CLUSTER}/namespaceIsolationPolicies"
    await served.brokers[0].store.put(
        path, json.dumps({"bad": {**POLICY, "primary": ["("]}, "good": POLICY}).encode()
    )
    status, brokers = await served.call("GET", f"{ISOLATION}/brokers")
    assert (status, [entry["policyName"] for entry in brokers]) == (200, ["good"])
    assert (await served.call("POST", f"{ISOLATION}/bad", POLICY))[0] == 204
    await served.brokers[0].store.put(path, b'{"a":"\xff"}')
    for method, body in (("GET", None), ("POST", POLICY), ("DELETE", None)):
        status, answer = await served.call(method, f"{ISOLATION}/mine", body)
        assert status == 500
        assert path in answer["reason"]


async def test_a_corrupt_namespace_keeps_no_other_from_a_policy(served: Served) -> None:
    """A policy that concerns a namespace which cannot be read is set, and the others
    are unloaded.
    """
    await served.own("public/default/0x00000000_0x10000000")
    await served.brokers[0].store.put("/admin/policies/public/corrupt", b"garbage")
    assert await served.call("POST", f"{ISOLATION}/mine", POLICY) == (204, None)
    assert served.owners() == {}


async def test_failure_domains(served: Served) -> None:
    """Set, read, conflict, remove."""
    assert await served.call("GET", DOMAINS) == (200, {})
    assert await served.call("POST", f"{DOMAINS}/d1", {"brokers": ["a:1", "b:1"]}) == (204, None)
    assert await served.call("GET", DOMAINS) == (200, {"d1": {"brokers": ["a:1", "b:1"]}})
    assert await served.call("GET", f"{DOMAINS}/d1") == (200, {"brokers": ["a:1", "b:1"]})
    assert (await served.call("POST", f"{DOMAINS}/d2", {"brokers": ["b:1"]}))[0] == 409
    assert (await served.call("POST", f"{DOMAINS}/d2", {"brokers": "b:1"}))[0] == 400
    assert await served.call("DELETE", f"{DOMAINS}/d1") == (204, None)
    assert (await served.call("DELETE", f"{DOMAINS}/d1"))[0] == 404
    assert (await served.call("GET", f"{DOMAINS}/d1"))[0] == 404


async def test_anti_affinity_groups(served: Served) -> None:
    """Set, read, remove; an empty group and a missing namespace are refused."""
    assert await served.call("GET", GROUP) == (204, None)
    assert await served.call("POST", GROUP, "spread") == (204, None)
    assert await served.call("GET", GROUP) == (200, "spread")
    assert await served.call("DELETE", GROUP) == (204, None)
    assert await served.call("GET", GROUP) == (204, None)
    assert (await served.call("POST", GROUP, " "))[0] == 412
    assert (await served.call("POST", GROUP.replace("default", "none"), "g"))[0] == 404
    assert await served.call("GET", f"/admin/v2/namespaces/{CLUSTER}/antiAffinity/g") == (200, [])


async def test_anti_affinity_groups_as_java_sends_them(served: Served) -> None:
    """The bare name of the group, as well as JSON; the list at the path without version, too."""
    for raw, group in ((b"spread", "spread"), (b'"g2"', "g2"), ("ü{}".encode(), "ü{}")):
        assert (await served.ask("POST", GROUP, raw=raw)).status == 204
        answer = await served.ask("GET", GROUP)
        assert (answer.status, answer.body) == (200, group)
    for path in ("/admin/v2/namespaces", "/admin/namespaces"):
        listed = f"{path}/{CLUSTER}/antiAffinity/%C3%BC%7B%7D"
        for query in ("", "?tenant=public", "?property=public"):
            assert await served.get(listed + query) == ["public/default"]
        assert await served.get(f"{listed}?property=acme") == []
        assert (await served.ask("GET", listed.replace(CLUSTER, "nosuch"))).status == 412
    for raw, status in ((b"", 412), (b'""', 412), (b'"g', 400), (b"\xff", 400), (b"x" * 600, 412)):
        assert (await served.ask("POST", GROUP, raw=raw)).status == status
    assert (await served.ask("GET", GROUP)).body == "ü{}"
