"""Requests that a web page can make the browser of a visitor send to a broker."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from broker.admin.serving import CLUSTER, Served, serving
from kit.security.tokens import ADMIN, VALUES, token, verifier

from loadmanager.kit.addresses import AdvertisedListener, BrokerAddress
from loadmanager.kit.http.settings import AdminSettings
from loadmanager.kit.http.visitors import cannot_be_rebound, own_names

TENANT = {"allowedClusters": [CLUSTER]}
EVIL = "evil.example.com"


async def put(
    served: Served, headers: Mapping[str, str], *, media: str | None = "application/json"
) -> int:
    """The status of a request that creates a tenant."""
    path = f"/admin/v2/tenants/t{len(await served.get('/admin/v2/tenants'))}"
    answer = await served.ask("PUT", path, TENANT, media=media, headers=headers)
    created = path.rpartition("/")[2] in await served.get("/admin/v2/tenants")
    assert created is (answer.status == 204)
    return answer.status


async def test_pages_from_elsewhere() -> None:
    """They change nothing, by whatever the browser says of where they come from; a page of a broker
    does.
    """
    async with serving(2) as served:
        here, other = served.broker_id(0), served.broker_id(1)
        for headers, status in (
            ({}, 204),
            ({"Origin": f"http://{here}"}, 204),
            ({"Origin": f"http://{other}"}, 204),
            ({"Sec-Fetch-Site": "same-origin"}, 204),
            ({"Origin": f"http://{EVIL}"}, 403),
            ({"Origin": "http://127.0.0.1:1"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": ""}, 403),
            ({"Sec-Fetch-Site": "none"}, 204),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "same-site", "Origin": f"http://{other}"}, 204),
            ({"Host": EVIL, "Origin": f"http://{EVIL}"}, 403),
            ({"Host": f"{EVIL}:8080"}, 403),
            ({"Host": "localhost:1"}, 204),
            ({"Host": "broker"}, 204),
            ({"Host": "[::1]:8080"}, 204),
            ({"Host": f"{here}@{EVIL}"}, 403),
        ):
            assert await put(served, headers) == status, headers


async def test_names_that_an_operator_adds() -> None:
    """Count for requests and pages; a star for requests only."""
    name = "brokers.example.org"
    for hosts, host, origin in (((name,), 204, 204), (("*",), 204, 403), ((), 403, 403)):
        async with serving(1, AdminSettings(hosts=hosts)) as served:
            assert await put(served, {"Host": f"{name}:8080"}) == host
            assert await put(served, {"Origin": f"https://{name}"}) == origin


@pytest.mark.parametrize(
    ("media", "status"),
    [
        ("application/json", 204),
        ("application/json; charset=utf-8", 204),
        ("application/merge-patch+json", 204),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data", 415),
        ("application/octet-stream", 415),
    ],
)
async def test_what_browsers_send_without_asking(media: str, status: int) -> None:
    """A body must be JSON; a request without a body needs no type."""
    async with serving(1) as served:
        assert await put(served, {}, media=media) == status
        path = "/admin/v2/namespaces/acme/orders/unload"
        assert (await served.ask("PUT", path, media=media)).status == 204


async def test_names_that_point_here() -> None:
    """A page whose name its owner pointed at loopback reads nothing, but whether the broker is
    healthy, and its metrics.
    """
    async with serving(1) as served:
        for path, status in (
            ("/admin/v2/brokers/configuration/runtime", 403),
            ("/lookup/v2/topic/persistent/acme/orders/t", 403),
            ("/admin/v2/brokers/health", 200),
            ("/metrics", 200),
        ):
            assert (await served.ask("GET", path, headers={"Host": EVIL})).status == status


async def test_who_proves_who_he_is() -> None:
    """May use any name: a page cannot prove anything. It may not be a page from elsewhere."""
    async with serving(1, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        assert await put(served, {"Host": EVIL}) == 204
        assert await put(served, {"Origin": f"http://{EVIL}"}) == 403
    values = {**VALUES, "anonymousUserRole": ADMIN}
    async with serving(1, values=values, verifier=verifier()) as served:
        assert await put(served, {"Host": EVIL}) == 403


def test_names_of_a_broker() -> None:
    """Those that it advertises, of all its listeners."""
    listeners = {"out": AdvertisedListener("pulsar://out.example.com:1", "http://web.example.com")}
    me = BrokerAddress("b.example.com:80", "", "", listeners, web_url_tls="https://b.example.com:1")
    assert {"b.example.com", "out.example.com", "web.example.com"} <= set(own_names(me))
    assert [cannot_be_rebound(host) for host in ("1.2.3.4", "::1", "x", "a.localhost", "")] == [
        True
    ] * 5
    assert [cannot_be_rebound(host) for host in ("a.b", "1.2.3.4.com", "localhost.evil.com")] == [
        False
    ] * 3
