"""Everybody who may come to a broker, and a broker at which each may do what it says here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import jwt
from broker.admin.serving import CLUSTER, ORDERS, Served, serving
from kit.security.tokens import ADMIN, VALUES, token, verifier

from loadmanager.kit.names import TopicName

EVERYBODY, PROVEN, SUPERUSER = "everybody", "whoever proves who he is", "superusers"
PRODUCER, CONSUMER, USER = "producers", "consumers", "producers and consumers"
TENANT = "administrators of the tenant"
OF_TENANT = frozenset({EVERYBODY, PROVEN, PRODUCER, CONSUMER, USER, TENANT})

TOPIC = TopicName("persistent", ORDERS, "new")
KEPT = TopicName("persistent", ORDERS, "kept")
"""It stays, so that nobody can delete the namespace."""
FORGED = jwt.encode({"sub": ADMIN}, b"another secret key of 32 bytes..", algorithm="HS256")


@dataclass(frozen=True)
class Role:
    """Who comes, and to whom he belongs."""

    credentials: str
    belongs: frozenset[str] = frozenset({EVERYBODY})
    original: str = ""
    """For whom he says that he asks."""

    @property
    def proven(self) -> bool:
        """True if he is who he says."""
        return PROVEN in self.belongs


def _proven(role: str, *more: str, original: str = "") -> Role:
    return Role(token(role), frozenset({EVERYBODY, PROVEN, *more}), original)


ROLES = {
    "nobody": Role(""),
    "unreadable token": Role("x.y.z"),
    "ended token": Role(token(ADMIN, lives_s=-60)),
    "token of another key": Role(FORGED),
    "proxy without a principal": Role(token("proxy")),
    "proxy for itself": Role(token("proxy"), original="proxy"),
    "no proxy, but with a principal": Role(token("stranger"), original=ADMIN),
    "without permissions": _proven("stranger"),
    "proxy for one without permissions": _proven("proxy", original="stranger"),
    "administrator of another tenant": _proven("other-boss"),
    "produces": _proven("writer", PRODUCER, USER),
    "consumes": _proven("reader", CONSUMER, USER),
    "proxy for one who produces": _proven("proxy", PRODUCER, USER, original="writer"),
    "administrator of this tenant": Role(token("boss"), OF_TENANT),
    "proxy for the administrator": Role(token("proxy"), OF_TENANT, "boss"),
    "proxy for a superuser": Role(token("proxy"), OF_TENANT, ADMIN),  # it is none itself
    "superuser": Role(token(ADMIN), OF_TENANT | {SUPERUSER}),
}
"""Those who may do most come last: what they do must not be in the way of others."""


@asynccontextmanager
async def secured(**values: str) -> AsyncIterator[Served]:
    """One broker that checks everybody of `ROLES`; nobody is slowed for being refused."""
    values = {**VALUES, "loadManagerMaxRefusedRequestsPerSecondPerRole": "0", **values}
    async with serving(1, values=values, verifier=verifier(), token=token(ADMIN)) as served:
        permissions = "/admin/v2/namespaces/acme/orders/permissions"
        admins = {"adminRoles": ["boss", "proxy"], "allowedClusters": [CLUSTER]}
        for method, path, body in (
            ("POST", "/admin/v2/tenants/acme", admins),
            ("PUT", "/admin/v2/tenants/other", {**admins, "adminRoles": ["other-boss"]}),
            ("PUT", f"/admin/v2/persistent/{TOPIC.namespace}/{TOPIC.local}", None),
            ("PUT", f"/admin/v2/persistent/{KEPT.namespace}/{KEPT.local}", None),
            ("POST", f"{permissions}/writer", ["produce"]),
            ("POST", f"{permissions}/reader", ["consume"]),
        ):
            answer = await served.ask(method, path, body)
            assert answer.status in (200, 204), (path, answer)
        yield served
