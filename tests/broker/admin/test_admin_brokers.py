"""`/admin/v2/brokers`, `/broker-stats`, `/clusters`, `/metrics` and the project's own paths."""

from __future__ import annotations

from broker.admin.serving import ORDERS, serving
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families as plain_families

from loadmanager.kit.names import TopicName


async def test_lists_brokers_with_and_without_cluster() -> None:
    """Both paths give the sorted brokerIds; another cluster is 404."""
    async with serving(3) as served:
        everybody = sorted(broker.address.broker_id for broker in served.brokers)
        assert await served.get("/admin/v2/brokers") == everybody
        assert await served.get("/admin/v2/brokers/standalone") == everybody
        other = await served.ask("GET", "/admin/v2/brokers/elsewhere")
        assert other.status == 404
        assert "elsewhere" in other.reason


async def test_leader() -> None:
    """The leader is named by URL and brokerId; without one it is 404."""
    async with serving() as served:
        assert await served.get("/admin/v2/brokers/leaderBroker", at=1) == {
            "serviceUrl": served.url(0),
            "brokerId": served.broker_id(0),
        }
        await served.depose()
        assert (await served.ask("GET", "/admin/v2/brokers/leaderBroker")).status == 404


async def test_health_ready_version_status() -> None:
    """Plain texts, as Pulsar's tools compare them; 503 with a reason when a broker cannot work."""
    async with serving() as served:
        for path, text in (
            ("brokers/health", "ok"),
            ("brokers/ready", "ok"),
            ("brokers/version", "1.2.3"),
        ):
            answer = await served.ask("GET", f"/admin/v2/{path}")
            assert (answer.status, answer.body) == (200, text)
        assert (await served.ask("GET", "/status.html")).body == "OK"
        served.brokers[0].store.suspend()
        unhealthy = await served.ask("GET", "/admin/v2/brokers/health")
        assert (unhealthy.status, unhealthy.reason) == (503, "the metadata store does not answer")
        served.brokers[0].store.resume()
        assert (await served.ask("GET", "/admin/v2/brokers/health")).status == 200
        await served.brokers[0].parts.stop(0)
        stopping = await served.ask("GET", "/admin/v2/brokers/health")
        assert (stopping.status, stopping.reason) == (503, "this broker is stopping")
        assert (await served.ask("GET", "/admin/v2/brokers/ready")).status == 503
        assert (await served.ask("GET", "/status.html")).status == 503


async def test_health_of_another_broker_redirects_there() -> None:
    """`brokerId` names the broker that must answer; an unknown one is 404."""
    async with serving() as served:
        path = f"/admin/v2/brokers/health?brokerId={served.broker_id(1)}"
        answer = await served.ask("GET", path)
        assert (answer.status, answer.headers["Location"]) == (307, served.url(1) + path)
        assert (await served.ask("GET", path, at=1)).body == "ok"
        assert (await served.ask("GET", "/admin/v2/brokers/health?brokerId=nobody:1")).status == 404


async def test_owned_namespaces() -> None:
    """Bundles with Pulsar's status of each, at the broker that owns them; 307 elsewhere, 404 for a
    dead one.
    """
    async with serving() as served:
        bundle = "acme/orders/0x00000000_0x40000000"
        await served.own(bundle, at=1)
        path = f"/admin/v2/brokers/standalone/{served.broker_id(1)}/ownedNamespaces"
        redirected = await served.ask("GET", path)
        assert (redirected.status, redirected.headers["Location"]) == (307, served.url(1) + path)
        assert await served.get(path, at=1) == {
            bundle: {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        }
        assert (
            await served.ask("GET", "/admin/v2/brokers/standalone/nobody:1/ownedNamespaces")
        ).status == 404


async def test_load_report_clusters_configuration() -> None:
    """The load report, the clusters and the settings in force."""
    async with serving() as served:
        assert (await served.get("/admin/v2/broker-stats/load-report"))["numBundles"] == 0
        assert await served.get("/admin/v2/clusters") == ["standalone"]
        assert (await served.get("/admin/v2/clusters/standalone"))["serviceUrl"] == served.url(0)
        assert (await served.ask("GET", "/admin/v2/clusters/west")).status == 404
        assert (await served.get("/admin/v2/brokers/configuration/runtime"))[
            "clusterName"
        ] == "standalone"
        assert (await served.ask("GET", "/admin/v2/brokers/backlog-quota-check")).status == 204


async def test_metrics_page() -> None:
    """Prometheus scrapes with and without the slash, and gets the page's own content type."""
    async with serving(1) as served:
        for path in ("/metrics", "/metrics/"):
            answer = await served.ask("GET", path)
            assert (answer.status, answer.headers["Content-Type"]) == (200, CONTENT_TYPE_LATEST)
            assert "# TYPE loadmanager_bundles gauge" in answer.body.splitlines()


async def test_metrics_page_in_openmetrics() -> None:
    """Who accepts it gets it; a strict reader takes all of it, with the numbers of the other."""
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    async with serving(1) as served:
        answer = await served.ask("GET", "/metrics", headers={"Accept": accept})
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        exact = {family.name: family.type for family in openmetrics_families(answer.body)}
        plain = plain_families(await served.get("/metrics"))
        assert exact.keys() >= {family.name for family in plain}
        assert exact["loadmanager_read_bytes"] == "counter"


async def test_shutdown_passes_the_rate_on() -> None:
    """204 at once, and the stop has begun with the requested rate; a bad rate is refused and stops
    nothing.
    """
    async with serving() as served:
        assert (
            await served.ask("POST", "/admin/v2/brokers/shutdown?maxConcurrentUnloadPerSec=-1")
        ).status == 412
        assert served.brokers[0].stopped_with == []
        assert (
            await served.ask(
                "POST",
                "/admin/v2/brokers/shutdown?maxConcurrentUnloadPerSec=7&forcedTerminateTopic=true",
            )
        ).status == 204
        assert served.brokers[0].stopped_with == [7]


async def test_decisions_and_dry_run_are_the_leaders() -> None:
    """Other brokers redirect to the leader; the limit is checked; without a leader it is 503."""
    async with serving() as served:
        await served.ask("GET", "/lookup/v2/topic/persistent/acme/orders/t")
        (decision,) = (await served.get("/loadmanager/v1/decisions?limit=1"))["decisions"]
        topic = TopicName("persistent", ORDERS, "t")
        bundle = (await served.brokers[0].use.namespaces.bundles(ORDERS)).bundle_of_topic(
            str(topic)
        )
        assert (decision["kind"], decision["bundle"]) == ("place", bundle)
        assert sorted(decision["candidates"]) == sorted(
            broker.address.broker_id for broker in served.brokers
        )
        for method, path in (
            ("GET", "/loadmanager/v1/decisions?limit=5"),
            ("POST", "/loadmanager/v1/dry-runs"),
        ):
            answer = await served.ask(method, path, at=1)
            assert (answer.status, answer.headers["Location"]) == (307, served.url(0) + path)
        for limit in ("0", "1001", "x", "9" * 10_00):
            assert (
                await served.ask("GET", f"/loadmanager/v1/decisions?limit={limit}")
            ).status == 412
        await served.depose()
        assert (await served.ask("POST", "/loadmanager/v1/dry-runs")).status == 503


async def test_peers_release_and_acquire() -> None:
    """Orders between brokers: transfer a bundle, refuse a bundle that another broker owns."""
    async with serving() as served:
        bundle = "acme/orders/0x00000000_0x40000000"
        base = f"/loadmanager/v1/peers/bundles/{bundle}"
        assert (await served.ask("POST", f"{base}/acquire")).status == 204
        assert (await served.ask("POST", f"{base}/acquire", at=1)).status == 503
        answer = await served.ask("POST", f"{base}/release?destination={served.broker_id(1)}")
        assert (answer.status, answer.body["released"], answer.body["clients"]) == (200, True, 0)
        assert answer.body["pauseMs"] > 0
        told = {name: answer.body[name] for name in ("released", "pauseMs", "life")}
        assert await served.get(f"{base}/released") == {**told, "clients": None}
        assert await served.get(f"{base}/released", at=1) == {"released": False}
        served_at = f"/loadmanager/v1/peers/bundles?bundle={bundle}"
        assert (await served.get(served_at), await served.get(served_at, at=1)) == ({}, {bundle: 0})
        assert served.owners() == {bundle: served.broker_id(1)}
        assert (await served.ask("POST", f"{base}/release")).body == {"released": False}
        assert served.owners() == {bundle: served.broker_id(1)}
        await served.own(bundle, at=1)
        back = f"{base}/release?destination={served.broker_id(0)}"
        assert (await served.ask("POST", back, at=1)).body["released"] is True
        # What is known of an earlier release is not told while the bundle is here again.
        assert await served.get(f"{base}/released") == {"released": False}
