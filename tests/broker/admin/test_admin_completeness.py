"""Every route of Pulsar's admin API is served, or says that it is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import ORDERS, Served, serving
from system.raw import a_send

from loadmanager.kit.http.not_served import not_served
from loadmanager.kit.names import TopicName

PULSAR = (Path(__file__).parent / "pulsar_routes.txt").read_text().splitlines()
"""Method and path of every route of Pulsar 4.0.8: the annotations of its resource classes."""
VALUES = {
    "bundle": "0x00000000_0x40000000",
    "cluster": "standalone",
    "namespace": "orders",
    "property": "acme",
    "tenant": "acme",
    "domain": "persistent",
    "numMessages": "1",
    "timestamp": "1",
}
T = TopicName("persistent", ORDERS, "t")


async def test_every_route_of_pulsar_has_an_answer() -> None:
    """501 with one sentence, or what the route answers: 404 only for a thing that is missing, never
    for the route, and no method is refused that Pulsar has.
    """
    async with serving(1) as served:
        refused = 0
        for line in PULSAR:
            method, path = line.split()
            path = re.sub(r"{(\w+)}", lambda found: VALUES.get(found[1], "x"), path)
            answer = await served.ask(method, path, {})
            assert answer.status != 405 or "is not allowed; allowed" not in answer.reason, line
            assert answer.status != 500, (line, answer)
            if answer.status == 404:
                assert "there is nothing at" not in answer.reason, line
            if answer.status == 501:
                refused += 1
        assert 0 < refused < len(PULSAR)


@pytest.mark.parametrize(
    "path", ["/admin/v2/nothing", "/admin", "/", "/admin/v2/namespaces/acme/orders/bundles"]
)
def test_only_pulsars_paths_are_not_served(path: str) -> None:
    """Paths that Pulsar has not, and those that are served, are not in the table."""
    assert not_served(path) is None


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("POST", "v2/namespaces/acme/orders/persistence", "persistence of a namespace"),
        ("GET", "v2/namespaces/acme/orders/persistence", "persistence of a namespace"),
        ("POST", "v2/persistent/acme/orders/t/messageTTL", "messageTTL of a topic"),
        (
            "POST",
            "v2/persistent/acme/orders/t/subscription/s/properties",
            "properties of a subscription",
        ),
        ("PUT", "v2/clusters/standalone", "changes of a cluster over HTTP"),
        ("GET", "v3/functions/acme/orders", "functions"),
        ("GET", "persistent/acme/standalone/orders", "Pulsar's API before v2"),
    ],
)
async def test_what_is_not_served_is_501(method: str, path: str, what: str) -> None:
    """With one sentence that names it; nothing is stored."""
    async with serving(1) as served:
        before = await served.get("/admin/v2/namespaces/acme/orders")
        answer = await served.ask(method, f"/admin/{path}", {"messageTTL": 5})
        assert (answer.status, answer.reason) == (501, f"loadmanager does not serve {what}")
        assert await served.get("/admin/v2/namespaces/acme/orders") == before


async def with_traffic(served: Served) -> Any:
    """A topic with a producer, a message, and a subscription with a consumer."""
    owner = served.brokers[0]
    await owner.serve(T)
    client = await served.cluster.connect(await owner.listen())
    await client.produce(T)
    await client.subscribe(T)
    await client.send(a_send(0))
    await client.take_of(7)


async def test_broker_stats() -> None:
    """The open topics by namespace, bundle and domain; the sums of each namespace; the load."""
    async with serving(1) as served:
        assert await served.get("/admin/v2/broker-stats/topics") == {}
        (load,) = await served.get("/admin/v2/broker-stats/metrics")
        assert load["dimensions"] == {"broker": "127.0.0.1", "metric": "loadBalancing"}
        report = await served.get("/admin/v2/broker-stats/load-report")
        used, limit = (report["memory"][name] for name in ("usage", "limit"))
        assert load["metrics"]["brk_lb_memory_usage"] == pytest.approx(100 * used / limit)
        await with_traffic(served)
        path = "/lookup/v2/topic/persistent/acme/orders/t/bundle"
        bundle = await served.get(path)
        stats = await served.get("/admin/v2/broker-stats/topics")
        topic = stats["acme/orders"][bundle]["persistent"][str(T)]
        assert (topic["msgInCount"], topic["producerCount"]) == (1, 1)
        assert topic["subscriptions"]["s"]["msgBacklog"] == 1
        entry, _ = await served.get("/admin/v2/broker-stats/metrics")
        assert entry["dimensions"] == {"namespace": "acme/orders"}
        figures = entry["metrics"]
        assert (figures["brk_msg_backlog"], figures["brk_storage_size"]) == (
            1,
            topic["storageSize"],
        )
        counted = ("brk_no_of_producers", "brk_no_of_subscriptions", "brk_no_of_consumers")
        assert [figures[name] for name in counted] == [1, 1, 1]


async def test_internal_configuration() -> None:
    """Where the metadata store is, under every name that Pulsar gives it."""
    async with serving(1) as served:
        answer = await served.get("/admin/v2/brokers/internal-configuration")
        url = served.brokers[0].use.settings()["metadataStoreUrl"]
        assert answer["metadataStoreUrl"] == answer["configurationMetadataStoreUrl"] == url
        assert "zk:" + answer["zookeeperServers"] == url
