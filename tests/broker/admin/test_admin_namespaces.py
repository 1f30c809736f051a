"""`/admin/v2/tenants` and `/admin/v2/namespaces`."""

from __future__ import annotations

from typing import Any

import pytest
from broker.admin.serving import ORDERS, serving

from loadmanager.engine.bundles.ranges import topic_hash

NAMESPACE = "/admin/v2/namespaces/acme/orders"
FIRST = "0x00000000_0x40000000"


async def test_tenants_live() -> None:
    """Create, read, update, list, delete, with Pulsar's statuses for what exists already, is
    missing, or is in use.
    """
    async with serving(1) as served:
        one = "/admin/v2/tenants/shop"
        info = {"adminRoles": ["root"], "allowedClusters": ["standalone"]}
        assert (await served.ask("PUT", one, info)).status == 204
        assert (await served.ask("PUT", one, info)).status == 409
        assert await served.get(one) == info
        assert (await served.ask("POST", one, {**info, "adminRoles": []})).status == 204
        assert (await served.get(one))["adminRoles"] == []
        assert await served.get("/admin/v2/tenants") == ["acme", "public", "shop"]
        assert (await served.ask("DELETE", one)).status == 204
        for method in ("GET", "DELETE", "POST"):
            assert (await served.ask(method, one, {} if method == "POST" else None)).status == 404
        assert (await served.ask("DELETE", "/admin/v2/tenants/acme")).status == 409
        for name in ("a%20b", "%2e%2e", "..", ".", "a%2Fb", "a%00", "x" * 2000):
            assert (await served.ask("PUT", f"/admin/v2/tenants/{name}")).status == 412, name
        for body in ({"adminRoles": 5}, {"allowedClusters": [5]}, {"adminRoles": "root"}):
            assert (await served.ask("PUT", one, body)).status == 400


@pytest.mark.parametrize(
    ("body", "boundaries"),
    [
        (None, ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]),
        ({"bundles": {"numBundles": 2}}, ["0x00000000", "0x80000000", "0xffffffff"]),
        (
            {"bundles": {"boundaries": ["0x00000000", "0x10000000", "0xffffffff"]}},
            ["0x00000000", "0x10000000", "0xffffffff"],
        ),
    ],
)
async def test_create_namespace(body: Any, boundaries: list[str]) -> None:
    """Default bundles for an empty body, a number of bundles, explicit boundaries."""
    async with serving(1) as served:
        one = "/admin/v2/namespaces/acme/new"
        assert (await served.ask("PUT", one, body)).status == 204
        assert await served.get(f"{one}/bundles") == {
            "boundaries": boundaries,
            "numBundles": len(boundaries) - 1,
        }
        assert (await served.get(one))["bundles"]["boundaries"] == boundaries
        assert await served.get("/admin/v2/namespaces/acme") == ["acme/new", "acme/orders"]


async def test_create_namespace_refused() -> None:
    """409 exists, 404 no such tenant, 412 a bad name, 400 bad bundles: each with a reason."""
    async with serving(1) as served:
        new = "/admin/v2/namespaces/acme/new"
        for path, body, status in (
            (NAMESPACE, None, 409),
            ("/admin/v2/namespaces/nobody/new", None, 404),
            ("/admin/v2/namespaces/acme/a%20b", None, 412),
            (new, {"bundles": {"numBundles": 0}}, 400),
            (new, {"bundles": {"numBundles": "many"}}, 400),
            (new, {"bundles": {"boundaries": ["0x0", "0x10"]}}, 400),
            (new, {"bundles": 4}, 400),
            (new, [4], 400),
            (new, {"replication_clusters": 7}, 400),
            ("/admin/v2/namespaces/acme/..", None, 412),
        ):
            answer = await served.ask("PUT", path, body)
            assert (answer.status, bool(answer.reason)) == (status, True), (path, body, answer)
        assert await served.get("/admin/v2/namespaces/acme") == ["acme/orders"]


JAVA_DEFAULTS = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": [],
    "allowed_clusters": [],
    "backlog_quota_map": {},
    "clusterDispatchRate": {},
    "topicDispatchRate": {},
    "subscriptionDispatchRate": {},
    "replicatorDispatchRate": {},
    "clusterSubscribeRate": {},
    "publishMaxMessageRate": {},
    "latency_stats_sample_rate": {},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}
"""What Pulsar's Java client, 4.0.8 and 4.2.4, sends for a namespace without any policy."""


async def test_create_namespace_with_policies() -> None:
    """What the Java client sends is accepted, and policies that have an effect are in force."""
    async with serving(1) as served:
        one = "/admin/v2/namespaces/acme/new"
        assert (await served.ask("PUT", "/admin/v2/resourcegroups/rg", {})).status == 204
        policies = {
            **JAVA_DEFAULTS,
            "resource_group_name": "rg",
            "publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": 5}},
            "retention_policies": None,
        }
        assert (await served.ask("PUT", one, policies)).status == 204
        assert (await served.get(f"{one}/publishRate"))["publishThrottlingRateInMsg"] == 5
        assert await served.get(f"{one}/resourcegroup") == "rg"
        assert await served.get(f"{one}/replication") == ["standalone"]
        assert (await served.get(one))["topicDispatchRate"] == {}


@pytest.mark.parametrize(
    ("policies", "status"),
    [
        ({"max_producers_per_topic": 5}, 501),
        ({"autoTopicCreationOverride": {"allowAutoTopicCreation": False}}, 501),
        ({"encryption_required": True}, 501),
        ({"properties": {"a": "b"}}, 501),
        ({"deleted": True}, 412),
        ({"antiAffinityGroup": {"a": 1}}, 400),
        ({"namespaceAntiAffinityGroup": "g"}, 400),
        ({"resource_group_name": "nope"}, 412),
        ({"resource_group_name": 5}, 400),
        ({"replication_clusters": ["nope"]}, 403),
        ({"replication_clusters": "standalone"}, 400),
        ({"topicDispatchRate": [1]}, 400),
        ({"topicDispatchRate": {"nope": {}}}, 403),
        ({"topicDispatchRate": {"standalone": {"ratePeriodInSecond": 0}}}, 412),
        ({"publishMaxMessageRate": {"standalone": 5}}, 400),
        ({"publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": "x"}}}, 412),
        ({"publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": -5}}}, 412),
        ({"publishMaxMessageRate": {"standalone": {"messages": 5}}}, 400),
    ],
)
async def test_policies_are_checked_as_by_their_own_routes(policies: Any, status: int) -> None:
    """A policy that is wrong, or that nothing obeys, is refused, and no namespace is created."""
    async with serving(1) as served:
        answer = await served.ask("PUT", "/admin/v2/namespaces/acme/new", policies)
        assert (answer.status, bool(answer.reason)) == (status, True), answer
        assert await served.get("/admin/v2/namespaces/acme") == ["acme/orders"]


async def test_delete_namespace() -> None:
    """409 while it has topics, 204 forced if that is allowed, then 404 for everything below it."""
    async with serving(1, values={"forceDeleteNamespaceAllowed": "true"}) as served:
        assert (await served.ask("PUT", "/admin/v2/persistent/acme/orders/t")).status == 204
        assert (await served.ask("DELETE", NAMESPACE)).status == 409
        assert (await served.ask("DELETE", f"{NAMESPACE}?force=maybe")).status == 412
        assert (await served.ask("DELETE", f"{NAMESPACE}?force=true")).status == 204
        for path in (
            NAMESPACE,
            f"{NAMESPACE}/bundles",
            f"{NAMESPACE}/topics",
            "/lookup/v2/topic/persistent/acme/orders/t",
        ):
            assert (await served.ask("GET", path)).status == 404
        for path in (
            f"{NAMESPACE}/unload",
            f"{NAMESPACE}/{FIRST}/unload",
            f"{NAMESPACE}/{FIRST}/split",
        ):
            assert (await served.ask("PUT", path)).status == 404


async def test_unload_bundle_redirects_to_the_owner() -> None:
    """307 with the method's path and `authoritative`; 204 there, and also when nobody owns it; 412
    for a bundle that does not exist.
    """
    async with serving() as served:
        bundle = f"acme/orders/{FIRST}"
        await served.own(bundle, at=1)
        answer = await served.ask("PUT", f"{NAMESPACE}/{FIRST}/unload")
        assert (answer.status, answer.headers["Location"]) == (
            307,
            f"{served.url(1)}{NAMESPACE}/{FIRST}/unload?authoritative=false",
        )
        assert (await served.ask("PUT", f"{NAMESPACE}/{FIRST}/unload", at=1)).status == 204
        assert served.owners() == {}
        assert (await served.ask("PUT", f"{NAMESPACE}/{FIRST}/unload")).status == 204
        assert (await served.ask("PUT", f"{NAMESPACE}/0x00000000_0x41000000/unload")).status == 412
        assert (await served.ask("PUT", f"{NAMESPACE}/first/unload")).status == 412


async def test_unload_to_a_destination() -> None:
    """The leader accepts a destination with or without a scheme; other brokers redirect to the
    leader; an unknown destination is 409.
    """
    async with serving(3) as served:
        path = f"{NAMESPACE}/{FIRST}/unload?destinationBroker=http://{served.broker_id(1)}"
        at_follower = await served.ask("PUT", path, at=1)
        assert at_follower.status == 307
        assert at_follower.headers["Location"].startswith(served.url(0) + NAMESPACE)
        assert "destinationBroker" in at_follower.headers["Location"]
        for before in (0, 2):  # owned by the leader, or by another broker
            await served.own(f"acme/orders/{FIRST}", at=before)
            assert (await served.ask("PUT", path)).status == 204
            assert served.owners() == {f"acme/orders/{FIRST}": served.broker_id(1)}
            assert (await served.ask("PUT", f"{NAMESPACE}/unload")).status == 204
        assert (await served.ask("PUT", path)).status == 204
        topic = next(
            topic
            for topic in (f"t{index}" for index in range(1000))
            if topic_hash(f"persistent://acme/orders/{topic}") < 0x40000000
        )
        lookup = await served.ask("GET", f"/lookup/v2/topic/persistent/acme/orders/{topic}")
        assert lookup.headers["Location"].startswith(served.url(1)), (
            "a bundle that nobody owns is placed there next"
        )
        gone = await served.ask("PUT", f"{NAMESPACE}/{FIRST}/unload?destinationBroker=nobody:1")
        assert (gone.status, "nobody:1" in gone.reason) == (409, True)


async def test_unload_namespace() -> None:
    """Every bundle is unloaded, whichever broker owns it."""
    async with serving() as served:
        await served.own(f"acme/orders/{FIRST}", at=1)
        await served.own("acme/orders/0x40000000_0x80000000", at=0)
        assert len(served.owners()) == 2
        assert (await served.ask("PUT", f"{NAMESPACE}/unload")).status == 204
        assert served.owners() == {}


async def test_split() -> None:
    """By range, at given positions, the largest; refused for an unknown algorithm, no positions, a
    body other than a list of numbers.
    """
    async with serving(1) as served:
        assert (await served.ask("PUT", f"{NAMESPACE}/{FIRST}/split?unload=true")).status == 204
        assert (await served.get(f"{NAMESPACE}/bundles"))["boundaries"][1] == "0x20000000"
        for by in ("LARGEST", "HOT"):
            answer = await served.ask("PUT", f"{NAMESPACE}/{by}/split")
            assert (answer.status, f"{by} names none" in answer.reason) == (409, True)
        await served.open_two_topics("0x40000000_0x80000000")
        at = await served.ask(
            "PUT",
            f"{NAMESPACE}/0x40000000_0x80000000/split?splitAlgorithmName=specified_positions_divide",
            [0x50000000],
        )
        assert at.status == 204
        assert "0x50000000" in (await served.get(f"{NAMESPACE}/bundles"))["boundaries"]
        edge = await served.ask(
            "PUT",
            f"{NAMESPACE}/0x40000000_0x50000000/split?splitAlgorithmName=specified_positions_divide",
            [0x40000000, 0x50000000, 0],
        )
        assert edge.status == 409
        assert "none of the positions lies between its boundaries, 0x4" in edge.reason
        before = len(served.owners())
        assert (await served.ask("PUT", f"{NAMESPACE}/LARGEST/split")).status == 204
        assert len(served.owners()) == before + 1
        last = f"{NAMESPACE}/0xc0000000_0xffffffff/split"
        assert (await served.ask("PUT", f"{last}?splitAlgorithmName=magic")).status == 412
        assert (
            await served.ask("PUT", f"{last}?splitAlgorithmName=specified_positions_divide")
        ).status == 412
        for body in ({"a": 1}, [1.5], [True], ["1"]):
            assert (await served.ask("PUT", last, body)).status == 400
        assert (await served.ask("PUT", f"{NAMESPACE}/{FIRST}/split")).status == 412


async def test_every_broker_chooses_the_same_bundle() -> None:
    """LARGEST is that of the namespace, not of the broker: others redirect to its owner, and name
    it.
    """
    async with serving(2) as served:
        await served.own(f"acme/orders/{FIRST}", at=0)
        bundle = "0x40000000_0x80000000"
        await served.own(f"acme/orders/{bundle}", at=1)
        await served.open_two_topics(bundle, at=1)
        answer = await served.ask("PUT", f"{NAMESPACE}/LARGEST/split?unload=true", at=0)
        assert (answer.status, answer.headers["Location"]) == (
            307,
            f"{served.url(1)}{NAMESPACE}/{bundle}/split?unload=true",
        )
        assert (await served.ask("PUT", f"{NAMESPACE}/LARGEST/split", at=1)).status == 204
        bounds = (await served.get(f"{NAMESPACE}/bundles"))["boundaries"]
        assert [bound for bound in bounds if "0x40000000" < bound < "0x80000000"]


async def test_split_by_topics_that_are_not_open() -> None:
    """All topics that exist count; a split that splits nothing says so."""
    async with serving(1) as served:
        split = f"{NAMESPACE}/{FIRST}/split?splitAlgorithmName=topic_count_equally_divide"
        bounds = (await served.get(f"{NAMESPACE}/bundles"))["boundaries"]
        nothing = await served.ask("PUT", split)
        assert (nothing.status, "0 topics is not split" in nothing.reason) == (409, True)
        assert (await served.get(f"{NAMESPACE}/bundles"))["boundaries"] == bounds
        names = (f"persistent://acme/orders/t{index}" for index in range(1000))
        inside = [name for name in names if topic_hash(name) < 0x40000000][:6]
        for name in inside:
            path = name.replace("://", "/")
            assert (await served.ask("PUT", f"/admin/v2/{path}")).status == 204
        assert (await served.ask("PUT", split)).status == 204
        after = (await served.get(f"{NAMESPACE}/bundles"))["boundaries"]
        (new,) = (int(bound, 16) for bound in after if bound not in bounds)
        assert sum(topic_hash(name) < new for name in inside) == 3


async def test_forced_deletion_is_off_by_default() -> None:
    """405, and everything stays."""
    async with serving(1) as served:
        assert (await served.ask("PUT", "/admin/v2/persistent/acme/orders/t")).status == 204
        answer = await served.ask("DELETE", f"{NAMESPACE}?force=true")
        assert (answer.status, "doesn't allow forced deletion" in answer.reason) == (405, True)
        assert await served.get(f"{NAMESPACE}/topics") == ["persistent://acme/orders/t"]


async def test_clusters_of_a_tenant_exist() -> None:
    """412 without clusters, or with one that does not exist, also when the tenant is changed."""
    async with serving(1) as served:
        one = "/admin/v2/tenants/shop"
        for body in (None, {}, {"allowedClusters": []}):
            answer = await served.ask("PUT", one, body)
            assert (answer.status, answer.reason) == (412, "Clusters can not be empty")
        for method, path in (("PUT", one), ("POST", "/admin/v2/tenants/acme")):
            answer = await served.ask(method, path, {"allowedClusters": ["nosuch"]})
            assert (answer.status, answer.reason) == (412, "Clusters do not exist")
        assert await served.get("/admin/v2/tenants") == ["acme", "public"]


async def test_clusters_of_a_namespace() -> None:
    """This one: there is no replication to accept."""
    async with serving(1) as served:
        path = f"{NAMESPACE}/replication"
        await served.brokers[0].store.create("/admin/clusters/far", b"{}")
        assert await served.get(path) == ["standalone"]
        for body, status in (
            (["standalone"], 204),
            (["nosuch"], 403),
            ([], 412),
            (["standalone", "far"], 501),
            ("standalone", 400),
            ([5], 400),
        ):
            assert (await served.ask("POST", path, body)).status == status, body
        assert await served.get(path) == ["standalone"]
        assert (await served.ask("GET", path.replace("orders", "none"))).status == 404


async def test_split_at_the_owner() -> None:
    """Another broker owns the bundle: 307 to it, with the query kept."""
    async with serving() as served:
        await served.own(f"acme/orders/{FIRST}", at=1)
        answer = await served.ask("PUT", f"{NAMESPACE}/{FIRST}/split?unload=true")
        assert (answer.status, answer.headers["Location"]) == (
            307,
            f"{served.url(1)}{NAMESPACE}/{FIRST}/split?unload=true",
        )


async def test_hash_positions() -> None:
    """Topics of a bundle with their hashes: the recorded ones, or those named in the query."""
    async with serving(1) as served:
        names = [f"persistent://acme/orders/t{index}" for index in range(8)]
        for index in range(8):
            await served.ask("PUT", f"/admin/v2/persistent/acme/orders/t{index}")
        found: dict[str, int] = {}
        for bundle in (
            FIRST,
            "0x40000000_0x80000000",
            "0x80000000_0xc0000000",
            "0xc0000000_0xffffffff",
        ):
            document = await served.get(f"{NAMESPACE}/{bundle}/topicHashPositions")
            assert (document["namespace"], document["bundle"]) == ("acme/orders", bundle)
            found |= document["topicHashPositions"]
        assert sorted(found) == names
        asked = await served.get(
            f"{NAMESPACE}/{FIRST}/topicHashPositions?topics=" + ",".join(names)
        )
        assert all(position < 0x40000000 for position in asked["topicHashPositions"].values())


async def test_a_deletion_that_stopped_half_way_goes_on() -> None:
    """A namespace stays marked when an owner did not answer; deleting it again goes on."""
    async with serving() as served:
        await served.brokers[0].use.namespaces.mark_deleted(ORDERS)
        assert (await served.call("GET", "/admin/v2/namespaces/acme/orders"))[0] == 404
        assert await served.call("DELETE", "/admin/v2/namespaces/acme/orders") == (204, None)
        assert (await served.call("DELETE", "/admin/v2/namespaces/acme/orders"))[0] == 404
