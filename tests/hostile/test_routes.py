"""Every operation of the OpenAPI document, asked by everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hostile.roles import (
    CONSUMER,
    EVERYBODY,
    PROVEN,
    ROLES,
    SUPERUSER,
    TENANT,
    USER,
    Role,
    secured,
)
from structlog.testing import capture_logs
from yarl import URL

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_SCHEMAS = "/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema"
_RATES = ["publishRate", "dispatchRate", "subscriptionDispatchRate", "subscribeRate"]
_RULES = [*_RATES, "antiAffinity", "retention", "messageTTL", "deduplication"]
_ONE = f"{_TOPIC}/subscription/{{name}}"
_ALL, _BOTH = "GET POST DELETE", "POST DELETE"

MAY: dict[str, dict[str, str]] = {
    EVERYBODY: {
        "/": "GET",
        "/ui": "GET",
        "/ui/{file}": "GET",
        "/metrics": "GET",
        "/status.html": "GET",
        "/admin/v2/brokers/health": "GET",
        "/admin/v2/brokers/ready": "GET",
    },
    PROVEN: {
        "/openapi.json": "GET",
        "/loadmanager/v1/addresses": "GET",
        "/admin/v2/brokers/version": "GET",
        "/admin/v2/clusters": "GET",
        "/admin/v2/clusters/{cluster}": "GET",
    },
    USER: {
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}": "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle": "GET",
        "/admin/v2/{domain}/{tenant}/{namespace}": "GET",
        f"{_TOPIC}/partitions": "GET",
        f"{_TOPIC}/stats": "GET",
        f"{_TOPIC}/partitioned-stats": "GET",
        _SCHEMAS: "GET",
        f"{_SCHEMAS}/{{version}}": "GET",
    },
    CONSUMER: {
        f"{_TOPIC}/lastMessageId": "GET",
        f"{_TOPIC}/subscriptions": "GET",
        _ONE: "PUT DELETE",
        f"{_ONE}/skip/{{entries}}": "POST",
        f"{_ONE}/skip_all": "POST",
        f"{_ONE}/expireMessages/{{age}}": "POST",
        f"{_ONE}/resetcursor": "POST",
        f"{_ONE}/resetcursor/{{time}}": "POST",
    },
    TENANT: {
        "/admin/v2/tenants/{tenant}": "GET",
        "/admin/v2/namespaces/{tenant}": "GET",
        _NAMESPACE: "GET PUT DELETE",
        **{f"{_NAMESPACE}/{rule}": _ALL for rule in _RULES},
        f"{_NAMESPACE}/bundles": "GET",
        f"{_NAMESPACE}/topics": "GET",
        f"{_NAMESPACE}/replication": "GET POST",
        f"{_NAMESPACE}/{{bundle}}/topicHashPositions": "GET",
        f"{_NAMESPACE}/resourcegroup": "GET DELETE",
        f"{_NAMESPACE}/resourcegroup/{{group}}": "POST",
        f"{_NAMESPACE}/backlogQuotaMap": "GET",
        f"{_NAMESPACE}/backlogQuota": _BOTH,
        f"{_NAMESPACE}/permissions": "GET",
        f"{_NAMESPACE}/permissions/{{role}}": _BOTH,
        "/admin/v2/{domain}/{tenant}/{namespace}/partitioned": "GET",
        "/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}": "GET",
        _TOPIC: "PUT DELETE",
        **{f"{_TOPIC}/{rate}": _ALL for rate in _RATES},
        f"{_TOPIC}/{{subscription}}/dispatchRate": _ALL,
        f"{_TOPIC}/partitions": "PUT POST DELETE",
        f"{_TOPIC}/createMissedPartitions": "POST",
        f"{_TOPIC}/unload": "PUT",
        f"{_TOPIC}/throttling": "GET",
        f"{_TOPIC}/all_subscription/expireMessages/{{age}}": "POST",
        f"{_TOPIC}/permissions": "GET",
        f"{_TOPIC}/permissions/{{role}}": _BOTH,
        _SCHEMAS: "POST DELETE",
    },
}
"""Who may ask what; the rest is for superusers. Whoever may do a thing belongs to one of these."""

PARTS = {
    "domain": "persistent",
    "tenant": "acme",
    "namespace": "orders",
    "topic": "new",
    "bundle": "0x00000000_0x40000000",
    "cluster": "standalone",
    "entries": "1",
    "time": "1",
    "age": "1",
    "subscription": "s",
}
"""What stands for a variable of a path, if not its name."""


def declared() -> dict[tuple[str, str], str]:
    """Method and path → who may."""
    return {
        (method, path): who
        for who, paths in MAY.items()
        for path, methods in paths.items()
        for method in methods.split()
    }


def headers_of(role: Role) -> dict[str, str]:
    """What a role sends along."""
    headers = {"Authorization": f"Bearer {role.credentials}" if role.credentials else ""}
    return {**headers, "X-Original-Principal": role.original} if role.original else headers


def wrongs(operation: str, who: str, role: Role, status: int, needs: str) -> Iterator[str]:
    """What is wrong with an answer to a role, by those whom an operation is for."""
    if status == 500:
        yield f"{operation}: {who} gets 500"
    if needs in role.belongs:
        if status in (401, 403):
            yield f"{operation}: {who} gets {status}, and is one of {needs}"
    elif status not in (401, 403):
        hint = f"; if that is meant, add it to MAY in {__name__}" if needs == SUPERUSER else ""
        yield f"{operation}: {who} gets {status}, and is none of {needs}{hint}"
    elif status != (403 if role.proven else 401):
        yield f"{operation}: {who} gets {status}"


async def test_who_may_ask_what() -> None:
    """401 for whoever does not prove who he is, 403 for whoever may not, 500 for nobody. What is
    not in `MAY` is for superusers.
    """
    needed, found = declared(), list[str]()
    async with secured() as served:
        operations = [
            (method.upper(), path)
            for path, methods in served.contract.document["paths"].items()
            for method in methods
        ]
        with capture_logs() as logs:
            for who, role in ROLES.items():
                for method, path in operations:
                    filled = re.sub(r"\{(\w+)\}", lambda part: PARTS.get(part[1], part[1]), path)
                    url = URL(served.url() + filled)
                    async with served.session.request(
                        method, url, headers=headers_of(role), allow_redirects=False
                    ) as answer:
                        status = answer.status
                    needs = needed.get((method, path), SUPERUSER)
                    found += wrongs(f"{method} {path}", who, role, status, needs)
    assert not found, "\n".join(found)
    assert not [line for line in logs if line["log_level"] in ("error", "critical")]
    assert needed.keys() <= set(operations), "MAY has operations that are gone"


def test_an_operation_that_nobody_declared_is_noticed() -> None:
    """One that answers others than superusers fails the test above, which says what to add."""
    (wrong,) = wrongs("GET /new", "produces", ROLES["produces"], 200, SUPERUSER)
    assert "add it to MAY" in wrong
    assert not list(wrongs("GET /new", "produces", ROLES["produces"], 403, SUPERUSER))
    assert list(wrongs("GET /new", "nobody", ROLES["nobody"], 404, SUPERUSER))
    assert list(wrongs("GET /new", "superuser", ROLES["superuser"], 500, SUPERUSER))
