"""Permissions of roles on namespaces and topics: Pulsar's paths."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.policies.permissions import (
    FIELD,
    NAMESPACE,
    SUBSCRIPTIONS,
    TOPICS,
    check_actions,
    check_role,
    granted,
)
from loadmanager.kit.errors import BadInputError, CorruptDataError
from loadmanager.kit.http.answers import TOPIC, RefusedError, body, namespace_of, topic_of
from loadmanager.kit.http.operation import Names, operation
from loadmanager.kit.names import NamespaceName

OF_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}/permissions"
OF_TOPIC = f"/admin/v2/{TOPIC}/permissions"
PARTS = (NAMESPACE, TOPICS, SUBSCRIPTIONS)
Document = dict[str, Any]
Roles = dict[str, list[str]]
NOT_ENFORCED = "authorization is not enabled"


class PermissionRoutes:
    """Reads and changes `auth_policies`; changes nothing that would not be obeyed (501)."""

    def __init__(self, use: UseCases, *, enforced: bool) -> None:
        self._use = use
        self._enforced = enforced

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(OF_NAMESPACE, self.of_namespace),
            web.post(OF_NAMESPACE + "/{role}", self.grant),
            web.delete(OF_NAMESPACE + "/{role}", self.revoke),
            web.get(OF_TOPIC, self.of_topic),
            web.post(OF_TOPIC + "/{role}", self.grant_topic),
            web.delete(OF_TOPIC + "/{role}", self.revoke_topic),
        ]

    @operation(dict[str, Names])
    async def of_namespace(self, request: web.Request) -> web.Response:
        """Role → what it may do in all topics of a namespace."""
        namespace = namespace_of(request)
        stored = _stored(await self._use.namespaces.policies(namespace), namespace)
        return web.json_response(stored[NAMESPACE])

    @operation(body=Names, also={501: NOT_ENFORCED})
    async def grant(self, request: web.Request) -> web.Response:
        """Replace what a role may do in a namespace by a list of actions."""
        actions = check_actions(await body(request))
        await self._change(request, None, actions)
        return web.Response(status=204)

    @operation(also={501: NOT_ENFORCED})
    async def revoke(self, request: web.Request) -> web.Response:
        """Take all permissions of a role in a namespace away."""
        await self._change(request, None, None)
        return web.Response(status=204)

    @operation(dict[str, Names])
    async def of_topic(self, request: web.Request) -> web.Response:
        """Role → what it may do with a topic, by its own permissions and its namespace's."""
        topic = topic_of(request)
        namespace = topic.namespace
        stored = _stored(await self._use.namespaces.policies(namespace), namespace)
        together = {role: set(actions) for role, actions in stored[NAMESPACE].items()}
        for role, actions in stored[TOPICS].get(str(topic), {}).items():
            together.setdefault(role, set()).update(actions)
        return web.json_response({role: sorted(actions) for role, actions in together.items()})

    @operation(body=Names, also={501: NOT_ENFORCED})
    async def grant_topic(self, request: web.Request) -> web.Response:
        """Replace what a role may do with a topic by a list of actions."""
        actions = check_actions(await body(request))
        await self._change(request, str(topic_of(request)), actions)
        return web.Response(status=204)

    @operation(also={412: "it has none of its own", 501: NOT_ENFORCED})
    async def revoke_topic(self, request: web.Request) -> web.Response:
        """Take all permissions of a role on a topic away; 412 when it has none of its own."""
        await self._change(request, str(topic_of(request)), None)
        return web.Response(status=204)

    async def _change(
        self, request: web.Request, topic: str | None, actions: list[str] | None
    ) -> None:
        if not self._enforced:
            raise RefusedError(501, "Authorization is not enabled")
        role, namespace = check_role(request.match_info["role"]), namespace_of(request)

        def change(policies: Document) -> Document:
            stored = _stored(policies, namespace)
            if topic is None:
                stored[NAMESPACE] = granted(stored[NAMESPACE], role, actions)
            else:
                roles = stored[TOPICS].get(topic, {})
                if actions is None and role not in roles:
                    raise BadInputError(f"Permissions are not set at the topic level for {role}")
                changed = granted(roles, role, actions)
                others = {name: of for name, of in stored[TOPICS].items() if name != topic}
                stored[TOPICS] = {**others, topic: changed} if changed else others
            return {**policies, FIELD: stored}

        await self._use.namespaces.update_policies(namespace, change)


class _Stored(msgspec.Struct):
    """The form of `auth_policies`."""

    namespace_auth: Roles | None = None
    destination_auth: dict[str, Roles] | None = None
    subscription_auth_roles: Roles | None = None


def _stored(policies: Document, namespace: NamespaceName) -> Document:
    """The permissions of a namespace, with all their parts. Raises `CorruptDataError`."""
    stored = policies.get(FIELD) or {}
    try:
        msgspec.convert(stored, _Stored)
    except msgspec.ValidationError as error:
        raise CorruptDataError(
            f"/admin/policies/{namespace} is corrupt: {FIELD}: {error}; repair the node"
        ) from None
    return {**stored, **{part: stored.get(part) or {} for part in PARTS}}
