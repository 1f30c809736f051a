"""Retention, time to live, backlog quotas and de-duplication of namespaces."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.messaging.rules import (
    AGE_QUOTA,
    DEDUPLICATION,
    INT_MAX,
    QUOTAS,
    RETENTION,
    SIZE_QUOTA,
    TTL,
    check_quota_and_retention,
    quota_policy,
    retention_policy,
)
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.http.answers import RefusedError, body, body_object, namespace_of
from loadmanager.kit.http.operation import Document, Query, operation
from loadmanager.kit.names import NamespaceName

NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
QUOTA_TYPE = Query(
    name="backlogQuotaType",
    doc="By size or by age.",
    choices=(SIZE_QUOTA, AGE_QUOTA),
    default=SIZE_QUOTA,
)


class MessagePolicyRoutes:
    """Policies of namespaces about their messages; they act at once on all brokers."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(NAMESPACE + "/retention", self.retention),
            web.post(NAMESPACE + "/retention", self.set_retention),
            web.delete(NAMESPACE + "/retention", self.remove_retention),
            web.get(NAMESPACE + "/messageTTL", self.ttl),
            web.post(NAMESPACE + "/messageTTL", self.set_ttl),
            web.delete(NAMESPACE + "/messageTTL", self.remove_ttl),
            web.get(NAMESPACE + "/deduplication", self.deduplication),
            web.post(NAMESPACE + "/deduplication", self.set_deduplication),
            web.delete(NAMESPACE + "/deduplication", self.remove_deduplication),
            web.get(NAMESPACE + "/backlogQuotaMap", self.quotas),
            web.post(NAMESPACE + "/backlogQuota", self.set_quota),
            web.delete(NAMESPACE + "/backlogQuota", self.remove_quota),
        ]

    async def _policies(self, namespace: NamespaceName) -> dict[str, Any]:
        return await self._use.namespaces.policies(namespace)

    async def _set(self, request: web.Request, field: str, value: Any) -> web.Response:
        """Store a field; None removes it."""

        def changed(policies: dict[str, Any]) -> dict[str, Any]:
            policies = {**policies, field: value}
            if value is not None:
                check_quota_and_retention(policies)
            return policies

        await self._use.namespaces.update_policies(namespace_of(request), changed)
        return web.Response(status=204)

    @operation(Document, empty="it is not set")
    async def retention(self, request: web.Request) -> web.Response:
        """How long acknowledged messages are kept, and how many MB of them."""
        return _shown((await self._policies(namespace_of(request))).get(RETENTION))

    @operation(body=Document, also={412: "it is below a backlog quota"})
    async def set_retention(self, request: web.Request) -> web.Response:
        """Set `retentionTimeInMinutes` and `retentionSizeInMB` (-1: no limit)."""
        return await self._set(request, RETENTION, checked_retention(await body_object(request)))

    @operation()
    async def remove_retention(self, request: web.Request) -> web.Response:
        """Remove the retention: that of broker.conf applies."""
        return await self._set(request, RETENTION, None)

    @operation(int, empty="it is not set")
    async def ttl(self, request: web.Request) -> web.Response:
        """After how many seconds messages count as acknowledged."""
        return _shown((await self._policies(namespace_of(request))).get(TTL))

    @operation(body=int)
    async def set_ttl(self, request: web.Request) -> web.Response:
        """Set the time to live; body: seconds, 0 for none."""
        return await self._set(request, TTL, checked_ttl(await body(request)))

    @operation()
    async def remove_ttl(self, request: web.Request) -> web.Response:
        """Remove the time to live: that of broker.conf applies."""
        return await self._set(request, TTL, None)

    @operation(bool, empty="it is not set")
    async def deduplication(self, request: web.Request) -> web.Response:
        """Whether messages of a producer with rising sequence ids are stored once."""
        return _shown((await self._policies(namespace_of(request))).get(DEDUPLICATION))

    @operation(body=bool)
    async def set_deduplication(self, request: web.Request) -> web.Response:
        """Switch de-duplication on or off; body: true or false."""
        return await self._set(request, DEDUPLICATION, checked_flag(await body(request)))

    @operation()
    async def remove_deduplication(self, request: web.Request) -> web.Response:
        """Remove the policy: broker.conf's applies."""
        return await self._set(request, DEDUPLICATION, None)

    @operation(dict[str, Document])
    async def quotas(self, request: web.Request) -> web.Response:
        """The backlog quotas that are set, by type."""
        return web.json_response((await self._policies(namespace_of(request))).get(QUOTAS, {}))

    @operation(body=Document, query=(QUOTA_TYPE,))
    async def set_quota(self, request: web.Request) -> web.Response:
        """Set a backlog quota: `limitSize` or `limitTime`, and `policy`;
        `?backlogQuotaType=message_age` for the one of age.
        """
        kind, quota = _kind(request), quota_policy(await body_object(request))
        return await self._change_quota(request, kind, quota)

    @operation(query=(QUOTA_TYPE,))
    async def remove_quota(self, request: web.Request) -> web.Response:
        """Remove a backlog quota: that of broker.conf applies."""
        return await self._change_quota(request, _kind(request), None)

    async def _change_quota(
        self, request: web.Request, kind: str, quota: dict[str, Any] | None
    ) -> web.Response:
        def changed(policies: dict[str, Any]) -> dict[str, Any]:
            stored = policies.get(QUOTAS)
            quotas = {**(stored if isinstance(stored, dict) else {}), kind: quota}
            changed = {name: value for name, value in quotas.items() if value is not None}
            policies = {**policies, QUOTAS: changed or None}
            if quota is not None:
                check_quota_and_retention(policies)
            return policies

        await self._use.namespaces.update_policies(namespace_of(request), changed)
        return web.Response(status=204)


def checked_retention(value: object) -> dict[str, Any]:
    """A retention. Raises `RefusedError` (400)."""
    if not isinstance(value, dict):
        raise RefusedError(400, "a retention must be a JSON object")
    try:
        return retention_policy(value)
    except BadInputError as error:
        raise RefusedError(400, str(error)) from None


def checked_ttl(seconds: object) -> int:
    """A time to live. Raises `BadInputError`."""
    if type(seconds) is not int or not 0 <= seconds <= INT_MAX:
        raise BadInputError("Invalid value for message TTL")
    return seconds


def checked_flag(value: object) -> bool:
    """True or false. Raises `RefusedError` (400)."""
    if type(value) is not bool:
        raise RefusedError(400, "true or false is expected")
    return value


def checked_quotas(value: object) -> dict[str, Any]:
    """Backlog quotas by type. Raises `RefusedError` (400) and `BadInputError`."""
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise RefusedError(400, "backlog quotas must be a JSON object: type to quota")
    return {checked_type(kind): quota_policy(quota) for kind, quota in value.items()}


def _kind(request: web.Request) -> str:
    return checked_type(request.query.get("backlogQuotaType", SIZE_QUOTA))


def checked_type(kind: str) -> str:
    """The type of a backlog quota. Raises `RefusedError` (400)."""
    if kind not in (SIZE_QUOTA, AGE_QUOTA):
        raise RefusedError(400, f"backlogQuotaType is {SIZE_QUOTA} or {AGE_QUOTA}")
    return kind


def _shown(value: Any) -> web.Response:
    """200 with the value; 204 when nothing is set, as Pulsar answers."""
    return web.Response(status=204) if value is None else web.json_response(value)
