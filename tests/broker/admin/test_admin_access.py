"""Permissions to use routes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import jwt
import pytest
from broker.admin.serving import CLUSTER, ORDERS, Served, serving
from kit.security.tokens import ADMIN, SECRET, VALUES, token, verifier
from structlog.testing import capture_logs

from loadmanager.broker.admin.access import FOR_EVERY_ROLE, PAGE
from loadmanager.broker.admin.following import FOLLOW
from loadmanager.broker.topics.access import AccessSettings
from loadmanager.kit.http.permits import METRICS, OPEN
from loadmanager.kit.security.identity import Identity

TOPIC = "/admin/v2/persistent/acme/orders/new"
EVENTS = "/loadmanager/v1/events"
BUNDLE = "acme/orders/0x00000000_0x40000000"
ADMINS = {"adminRoles": ["boss"], "allowedClusters": [CLUSTER]}
WHO = {
    "nobody": "",
    "wrong": "x.y.z",
    "forged": jwt.encode({"sub": ADMIN}, b"another secret key of 32 bytes..", algorithm="HS256"),
    "expired": token(ADMIN, lives_s=-60),
    "stranger": token("stranger"),
    "reader": token("reader"),
    "writer": token("writer"),
    "boss": token("boss"),
    ADMIN: token(ADMIN),
}
PARTS = {"domain": "persistent", "entries": "1", "time": "1"}
"""What stands for a variable of a path, if not its name."""
UNPROVEN = {"nobody", "wrong", "forged", "expired"}
SUPER, TENANT = {ADMIN}, {ADMIN, "boss"}
READS = TENANT | {"reader", "writer"}
ALL = WHO.keys() - UNPROVEN
CASES: list[tuple[str, str, Any, set[str]]] = [
    ("GET", "/admin/v2/brokers/health", None, set(WHO)),
    ("GET", "/admin/v2/brokers/ready", None, set(WHO)),
    ("GET", "/metrics", None, set(WHO)),
    ("GET", "/admin/v2/clusters", None, set(ALL)),
    ("GET", "/admin/v2/brokers/version", None, set(ALL)),
    ("GET", "/admin/v2/brokers", None, SUPER),
    ("GET", "/admin/v2/brokers/configuration/runtime", None, SUPER),
    ("GET", "/admin/v2/tenants", None, SUPER),
    ("GET", "/admin/v2/tenants/acme", None, TENANT),
    ("PUT", "/admin/v2/tenants/other", {}, SUPER),
    ("GET", "/admin/v2/namespaces/acme", None, TENANT),
    ("GET", "/admin/v2/namespaces/acme/orders", None, TENANT),
    ("POST", "/admin/v2/namespaces/acme/orders/dispatchRate", {}, TENANT),
    ("POST", "/admin/v2/namespaces/acme/orders/publishRate", {}, TENANT),
    ("PUT", "/admin/v2/namespaces/acme/orders/unload", None, SUPER),
    ("PUT", f"/admin/v2/namespaces/{BUNDLE}/unload", None, SUPER),
    ("PUT", f"/admin/v2/namespaces/{BUNDLE}/split", None, SUPER),
    ("GET", "/admin/v2/persistent/acme/orders", None, READS),
    ("GET", f"{TOPIC}/stats", None, READS),
    ("GET", f"{TOPIC}/partitions?checkAllowAutoCreation=true", None, READS),
    ("GET", f"{TOPIC}/subscriptions", None, TENANT | {"reader"}),
    ("GET", f"{TOPIC}/lastMessageId", None, TENANT | {"reader"}),
    ("POST", f"{TOPIC}/subscription/s/skip_all", None, TENANT | {"reader"}),
    ("PUT", f"{TOPIC}/unload", None, TENANT),
    ("GET", "/lookup/v2/topic/persistent/acme/orders/new", None, READS),
    ("GET", "/lookup/v2/topic/persistent/acme/orders/new/bundle", None, READS),
    ("GET", "/admin/v2/schemas/acme/orders/new/schema", None, READS),
    ("DELETE", "/admin/v2/schemas/acme/orders/new/schema", None, TENANT),
    ("GET", "/admin/v2/namespaces/acme/orders/permissions", None, TENANT),
    ("POST", "/admin/v2/namespaces/acme/orders/permissions/x", ["produce"], TENANT),
    ("GET", "/admin/v2/broker-stats/topics", None, SUPER),
    ("GET", "/loadmanager/v1/decisions", None, SUPER),
    ("GET", "/loadmanager/v1/bundles", None, SUPER),
    ("GET", "/loadmanager/v1/peers/bundles", None, SUPER),
    ("GET", f"/loadmanager/v1/peers/bundles/{BUNDLE}/released", None, SUPER),
    *(
        ("POST", f"/loadmanager/v1/peers/bundles/{BUNDLE}/{order}", None, SUPER)
        for order in ("acquire", "release", "split", "merge")
    ),
    ("POST", "/loadmanager/v1/peers/topics/persistent/acme/orders/x/close", None, SUPER),
    ("GET", "/admin/v2/nothing/of/this/kind", None, set(ALL)),
]


@asynccontextmanager
async def secured() -> AsyncIterator[Served]:
    """One broker, on which everybody has the permissions of `CASES`."""
    async with serving(1, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        for method, path, body in (
            (
                "POST",
                "/admin/v2/tenants/acme",
                ADMINS,
            ),
            ("PUT", TOPIC, None),
            ("PUT", f"{TOPIC}/subscription/s", None),
            ("POST", "/admin/v2/namespaces/acme/orders/permissions/writer", ["produce"]),
            ("POST", f"{TOPIC}/permissions/reader", ["consume"]),
            ("POST", "/admin/v2/namespaces/acme/orders/permissions/reader", ["consume"]),
        ):
            answer = await served.ask(method, path, body)
            assert answer.status in (200, 204), (path, answer)
        yield served


async def test_who_may() -> None:
    """401 for whoever does not prove who he is, 403 for whoever may not, before anything else."""
    async with secured() as served:
        for method, path, body, allowed in CASES:
            for who, credentials in WHO.items():
                headers = {"Authorization": f"Bearer {credentials}" if credentials else ""}
                answer = await served.ask(method, path, body, headers=headers)
                if who in allowed:
                    assert answer.status not in (401, 403), (who, path, answer)
                else:
                    refused = 401 if who in UNPROVEN else 403
                    assert answer.status == refused, (who, path, answer)
                    assert credentials[:10] not in answer.reason or not credentials


async def test_who_reads_metrics() -> None:
    """With authenticateMetricsEndpoint, whoever proves who he is, as in Pulsar."""
    values = {**VALUES, "authenticateMetricsEndpoint": "true"}
    async with serving(1, values=values, verifier=verifier(), token=token(ADMIN)) as served:
        for who, credentials in WHO.items():
            headers = {"Authorization": f"Bearer {credentials}" if credentials else ""}
            answer = await served.ask("GET", "/metrics", headers=headers)
            assert answer.status == (401 if who in UNPROVEN else 200), who


async def test_no_route_is_open_by_accident() -> None:
    """A stranger is let in nowhere but where it is meant, an unknown one nowhere else at all."""
    async with secured() as served:
        application = served.servers[0].application
        for route in application.router.routes():
            resource = route.resource
            assert resource is not None
            path = resource.canonical
            plain = path.rstrip("/")
            path = re.sub(r"\{(\w+)[^}]*\}", lambda found: PARTS.get(found[1], found[1]), path)
            method = "GET" if route.method == "*" else route.method
            unproven = await served.ask(method, path, headers={"Authorization": ""})
            stranger = await served.ask(
                method, path, headers={"Authorization": f"Bearer {WHO['stranger']}"}
            )
            if plain in OPEN or plain == METRICS or resource.canonical in PAGE:
                assert unproven.status != 401
            else:
                assert unproven.status == 401, path
                known = plain in FOR_EVERY_ROLE and method in ("GET", "HEAD")
                assert (stranger.status in (403, 405)) is not known, (method, path, stranger)


async def test_proxies_ask_for_others() -> None:
    """A proxy names the role for which it asks; both must be allowed. Nobody else may."""
    async with secured() as served:
        path = "/admin/v2/namespaces/acme/orders"

        async def ask(role: str, original: str) -> int:
            headers = {"Authorization": f"Bearer {token(role)}"}
            if original:
                headers["X-Original-Principal"] = original
            return (await served.ask("GET", path, headers=headers)).status

        assert await ask("proxy", "boss") == 403  # the proxy itself has no permission
        assert await ask("proxy", "") == 401
        assert await ask("proxy", "proxy") == 401
        assert await ask("boss", ADMIN) == 401
        await served.ask(
            "POST",
            "/admin/v2/tenants/acme",
            {**ADMINS, "adminRoles": ["boss", "proxy"]},
        )
        assert await ask("proxy", "boss") == 200
        assert await ask("proxy", "stranger") == 403
        await served.ask("POST", "/admin/v2/tenants/acme", ADMINS)


async def test_permissions_are_shown_and_taken_away() -> None:
    """As Pulsar shows them; what was taken away does not count any more."""
    async with secured() as served:
        base, headers = (
            "/admin/v2/namespaces/acme/orders",
            {"Authorization": f"Bearer {token('temp')}"},
        )
        assert (await served.ask("POST", f"{base}/permissions/temp", ["produce"])).status == 204
        assert (await served.get(f"{base}/permissions"))["temp"] == ["produce"]
        assert (await served.get(f"{TOPIC}/permissions"))["temp"] == ["produce"]
        assert (await served.ask("GET", f"{TOPIC}/stats", headers=headers)).status == 200
        assert (await served.ask("DELETE", f"{base}/permissions/temp")).status == 204
        assert (await served.ask("GET", f"{TOPIC}/stats", headers=headers)).status == 403
        assert (await served.ask("DELETE", f"{TOPIC}/permissions/temp")).status == 412
        for body in (None, [], ["fly"], {"a": 1}):
            assert (await served.ask("POST", f"{base}/permissions/temp", body)).status == 412
        secrets = (await served.get("/admin/v2/brokers/configuration/runtime"))["tokenSecretKey"]
        assert secrets == "*****"
        assert SECRET.decode() not in str(
            await served.get("/admin/v2/brokers/configuration/runtime")
        )


async def test_brokers_ask_each_other_with_their_token() -> None:
    """What one broker passes on to another is allowed there."""
    async with serving(2, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        bundle = "0x00000000_0x40000000"
        await served.own(f"acme/orders/{bundle}", at=1)
        path = f"/admin/v2/namespaces/acme/orders/{bundle}/unload"
        answer = await served.ask("PUT", path)
        assert answer.status == 307
        assert answer.headers["Location"].startswith(served.url(1) + path)
        assert (await served.ask("PUT", path, at=1)).status == 204
        released = await served.brokers[0].parts.member.base.peers.served_bundles(
            served.brokers[1].address
        )
        assert released == {}


async def store_permissions(served: Served, stored: Any) -> None:
    """Store what Pulsar, or somebody else, may have stored."""
    await served.brokers[0].use.namespaces.update_policies(
        ORDERS, lambda policies: {**policies, "auth_policies": stored}
    )


async def test_subscriptions_with_permissions_of_their_own() -> None:
    """Only the roles that they name, and administrators, may change them; others are for all."""
    async with secured() as served:
        await store_permissions(
            served,
            {
                "namespace_auth": {"reader": ["consume"], "app": ["consume"]},
                "subscription_auth_roles": {"private": ["reader"]},
            },
        )
        for name in ("private", "other"):
            one = f"{TOPIC}/subscription/{name}"
            for role in ("app", "reader", "boss"):
                headers = {"Authorization": f"Bearer {token(role)}"}
                for method, path, body in (
                    ("PUT", one, None),
                    ("POST", f"{one}/skip_all", None),
                    ("POST", f"{one}/skip/1", None),
                    ("POST", f"{one}/expireMessages/1", None),
                    ("POST", f"{one}/resetcursor/1", None),
                    ("POST", f"{one}/resetcursor", {"ledgerId": 0, "entryId": 0}),
                    ("DELETE", one, None),
                ):
                    answer = await served.ask(method, path, body, headers=headers)
                    refused = (name, role) == ("private", "app")
                    assert (answer.status == 403) is refused, (role, method, path, answer)


@pytest.mark.parametrize(
    ("stored", "where"),
    [
        ({"namespace_auth": []}, "namespace_auth"),
        ({"destination_auth": {"t": None}}, "destination_auth"),
        ({"namespace_auth": {"reader": None}}, "namespace_auth"),
        ([1], "expected `object`"),
    ],
)
async def test_stored_permissions_of_another_form(stored: Any, where: str) -> None:
    """The answer names the node and what is wrong with it; the log has no traceback."""
    async with secured() as served:
        await store_permissions(served, stored)
        base = "/admin/v2/namespaces/acme/orders/permissions"
        with capture_logs() as logs:
            for method, path, body in (
                ("GET", base, None),
                ("GET", f"{TOPIC}/permissions", None),
                ("POST", f"{base}/app", ["consume"]),
                ("POST", f"{TOPIC}/permissions/app", ["consume"]),
                ("DELETE", f"{base}/app", None),
            ):
                answer = await served.ask(method, path, body)
                assert answer.status == 500
                assert "/admin/policies/acme/orders is corrupt" in answer.reason
                assert where.lower() in answer.reason.lower()
        assert not [line for line in logs if line["log_level"] == "error"]


@pytest.mark.parametrize("parts", [{}, {"namespace_auth": None, "destination_auth": None}])
async def test_permissions_without_their_parts(parts: dict[str, Any]) -> None:
    """What is missing is nothing; what nobody here knows stays."""
    async with secured() as served:
        await store_permissions(served, {**parts, "later": 1})
        path = f"{TOPIC}/permissions"
        assert await served.get(path) == {}
        assert (await served.ask("POST", f"{path}/app", ["consume"])).status == 204
        assert await served.get(path) == {"app": ["consume"]}
        policies = await served.get("/admin/v2/namespaces/acme/orders")
        assert policies["auth_policies"]["later"] == 1


@pytest.mark.parametrize("role", ["", "*", "team-*", "a\nb", " boss", "x" * 1025])
async def test_administrators_that_are_no_roles(role: str) -> None:
    """412, as for permissions: nobody can have that role."""
    async with secured() as served:
        body = {**ADMINS, "adminRoles": ["boss", role]}
        assert (await served.ask("POST", "/admin/v2/tenants/acme", body)).status == 412
        assert (await served.get("/admin/v2/tenants/acme"))["adminRoles"] == ["boss"]


async def test_refusals_over_http_are_counted() -> None:
    """Apart: who did not prove who he is, and who was not permitted."""
    async with secured() as served:
        for who in ("nobody", "expired", "stranger"):
            headers = {"Authorization": f"Bearer {WHO[who]}"}
            await served.ask("GET", f"{TOPIC}/stats", headers=headers)
        counted = {
            sample.name: (sample.value, sample.labels)
            for sample in served.servers[0].samples()
            if "failures" in sample.name
        }
        assert counted == {
            "loadmanager_authentication_failures": (2, (("over", "http"),)),
            "loadmanager_authorization_failures": (1, (("over", "http"),)),
        }


LASTING = "lasts"


@dataclass
class Ending:
    """Every token is an administrator's, and ends at this time of the loop, but for `LASTING`."""

    ends_s: float = 0.0

    def verify(self, credentials: str) -> Identity:
        """See `Verifier`."""
        return Identity(ADMIN, None if credentials == LASTING else self.ends_s)


@pytest.mark.parametrize("at", [0, 1], ids=["the leader", "passed on"])
async def test_a_stream_ends_with_the_token_of_its_listener(at: int) -> None:
    """Also one that another broker passes on."""
    loop = asyncio.get_running_loop()
    checks = Ending()
    async with serving(2, values=VALUES, verifier=checks, token=LASTING) as served:
        headers = {"Authorization": "Bearer ends", FOLLOW: "true"}
        checks.ends_s = loop.time() + 5  # from now on: brokers take long to start
        async with served.session.get(served.url(at) + EVENTS, headers=headers) as answer:
            assert answer.status == 200
            async with asyncio.timeout(60):
                assert b"retry" in await answer.content.read()
        assert 0 <= loop.time() - checks.ends_s < 60


async def test_a_stream_ends_when_its_listener_may_no_longer_listen() -> None:
    """At the next event, or heartbeat."""
    async with (
        serving(1, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served,
        served.session.get(served.url() + EVENTS) as answer,
    ):
        await answer.content.readline()
        settings = served.brokers[0].settings.live(AccessSettings)
        settings.set(replace(settings.value, superusers=("another",)))
        served.brokers[0].parts.member.events.publish("x", dict)
        async with asyncio.timeout(60):
            await answer.content.read()


async def test_without_authorization_nobody_can_be_permitted() -> None:
    """What would not be obeyed is not accepted."""
    async with serving(1) as served:
        path = "/admin/v2/namespaces/acme/orders/permissions"
        assert (await served.ask("POST", f"{path}/x", ["produce"])).status == 501
        assert await served.get(path) == {}


async def test_refused_clients_are_told_in_one_line() -> None:
    """With the address and the reason, without what they sent; one line for many."""
    async with serving(1, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        with capture_logs() as logs:
            for credentials in [WHO["expired"], WHO["forged"]] * 10:
                headers = {"Authorization": f"Bearer {credentials}"}
                assert (await served.ask("GET", TOPIC, headers=headers)).status == 401
        (line,) = [line for line in logs if line["log_level"] != "debug"]
        assert (line["event"], line["address"]) == ("a client is refused", "127.0.0.1")
        assert "expired" in line["reason"]
        assert WHO["expired"].split(".")[1] not in str(logs)


async def test_nothing_secret_is_told() -> None:
    """Neither the key of tokens nor a token is in an answer, a metric or a line of the log."""
    broker, key = token("broker"), VALUES["tokenSecretKey"]
    values = {**VALUES, "brokerClientAuthenticationParameters": f"token:{broker}"}
    with capture_logs() as logs:
        async with serving(1, values=values, verifier=verifier(), token=token(ADMIN)) as served:
            told = [
                str((await served.ask("GET", path)).body)
                for path in (
                    "/admin/v2/brokers/configuration/runtime",
                    "/admin/v2/brokers/configuration/values",
                    "/admin/v2/brokers/internal-configuration",
                    "/loadmanager/v1/load-report",
                    "/loadmanager/v1/cluster",
                    "/metrics",
                )
            ]
    assert "tokenSecretKey" in told[0]
    assert "loadmanager_bundles" in told[-1]
    for secret in (key.rpartition(",")[2], SECRET.decode(), broker, token(ADMIN)):
        assert not any(secret in text for text in (*told, str(logs)))
