"""Rate limits, resource groups and dynamic configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from loadmanager.broker.admin.topic_owners import TopicOwners
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.load.wishes import HOLD_S_MAX
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.http.answers import (
    SUBSCRIPTION,
    TOPIC,
    RefusedError,
    bare_text,
    body,
    flag,
    namespace_of,
    redirect_to,
    shown,
    topic_of,
)
from loadmanager.kit.http.operation import TEXT, Document, Names, Query, Texts, of_owner, operation
from loadmanager.limits.policies import (
    DispatchRate,
    PublishRate,
    ResourceGroup,
    SubscribeRate,
    decode,
    plain,
)

NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
TOPIC_PATH = f"/admin/v2/{TOPIC}"
GROUPS = "/admin/v2/resourcegroups"
CONFIGURATION = "/admin/v2/brokers/configuration"

NAMESPACE_RATES: dict[str, tuple[str, Any]] = {
    "publishRate": ("publishMaxMessageRate", PublishRate),
    "dispatchRate": ("topicDispatchRate", DispatchRate),
    "subscriptionDispatchRate": ("subscriptionDispatchRate", DispatchRate),
    "subscribeRate": ("clusterSubscribeRate", SubscribeRate),
}
"""Last element of the path → field of the namespace's policies, type of the body. The field of a
topic's policies is the last element itself.
"""

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
APPLIED = Query(
    name="applied", doc="If no limit is set, the one of namespace or broker.", kind=bool
)

FOR = Query(
    name="forSeconds",
    doc="For how long; then the limit is as it was before. 0: until somebody changes it.",
    kind=int,
    minimum=0,
    maximum=int(HOLD_S_MAX),
    default=0,
)


class ThrottlingRoutes:
    """Everything about limits."""

    def __init__(self, use: UseCases, owners: TopicOwners) -> None:
        self._use = use
        self._owners = owners

    def routes(self) -> list[web.RouteDef]:
        routes = [
            web.get(NAMESPACE + "/resourcegroup", self.group_of_namespace),
            web.post(NAMESPACE + "/resourcegroup/{group}", self.attach),
            web.delete(NAMESPACE + "/resourcegroup", self.detach),
            web.get(GROUPS, self.groups),
            web.get(GROUPS + "/{group}", self.group),
            web.put(GROUPS + "/{group}", self.put_group),
            web.delete(GROUPS + "/{group}", self.delete_group),
            web.get(CONFIGURATION, self.dynamic_names),
            web.get(CONFIGURATION + "/values", self.dynamic_values),
            web.post(CONFIGURATION + "/{name}/{value}", self.set_dynamic),
            web.delete(CONFIGURATION + "/{name}", self.unset_dynamic),
            web.get("/admin/v2/broker-stats/throttling", self.broker),
            web.get(TOPIC_PATH + "/throttling", self.topic),
        ]
        for name, (field, kind) in NAMESPACE_RATES.items():
            routes += self._rate_routes(f"{NAMESPACE}/{name}", *self._of_namespace(field, kind))
            routes += self._rate_routes(f"{TOPIC_PATH}/{name}", *self._of_topic(name, kind))
        routes += self._rate_routes(
            f"{TOPIC_PATH}/{SUBSCRIPTION}/dispatchRate", *self._of_subscription()
        )
        return routes

    @staticmethod
    def _rate_routes(path: str, read: Handle, write: Handle, remove: Handle) -> list[web.RouteDef]:
        return [web.get(path, read), web.post(path, write), web.delete(path, remove)]

    def _of_namespace(self, field: str, kind: Any) -> tuple[Handle, Handle, Handle]:
        @operation(kind, empty="it is not set")
        async def read(request: web.Request) -> web.StreamResponse:
            """The limit that is set."""
            return _shown(await self._use.limits.namespace_limit(namespace_of(request), field))

        @operation(body=kind, query=(FOR,))
        async def write(request: web.Request) -> web.StreamResponse:
            """Set the limit; it acts at once on connected clients. Body: the rates."""
            await self._use.limits.set_namespace_limit(
                namespace_of(request),
                field,
                plain(await _rate(request, kind)),
                FOR.whole(request) or None,
            )
            return web.Response(status=204)

        @operation()
        async def remove(request: web.Request) -> web.StreamResponse:
            """Remove the limit."""
            await self._use.limits.set_namespace_limit(namespace_of(request), field, None)
            return web.Response(status=204)

        return read, write, remove

    def _of_topic(self, name: str, kind: Any) -> tuple[Handle, Handle, Handle]:
        return self._topic_policy(lambda _request: (name,), kind)

    def _of_subscription(self) -> tuple[Handle, Handle, Handle]:
        return self._topic_policy(
            lambda request: (
                "subscriptionPolicies",
                request.match_info["subscription"],
                "dispatchRate",
            ),
            DispatchRate,
        )

    def _topic_policy(
        self, path_of: Callable[[web.Request], tuple[str, ...]], kind: Any
    ) -> tuple[Handle, Handle, Handle]:
        @of_owner(kind, empty="it is not set", query=(APPLIED,))
        async def read(request: web.Request) -> web.StreamResponse:
            """The limit that is set; if none is, `?applied=true` asks for the one of namespace or
            broker.
            """
            topic, path = await self._owners.existing(request), path_of(request)
            policy: Any = await self._use.limits.topic_policies(topic)
            for name in path:
                policy = policy.get(name) if isinstance(policy, dict) else None
            if policy is None and flag(request, "applied"):
                policy = await self._use.limits.applied_limit(topic, path)
            return _shown(policy)

        @of_owner(body=kind, query=(FOR,))
        async def write(request: web.Request) -> web.StreamResponse:
            """Set the limit; it acts at once on connected clients. Body: the rates."""
            rate, topic = plain(await _rate(request, kind)), await self._owners.existing(request)
            for_s = FOR.whole(request) or None
            await self._use.limits.set_topic_policy(topic, path_of(request), rate, for_s)
            return web.Response(status=204)

        @of_owner()
        async def remove(request: web.Request) -> web.StreamResponse:
            """Remove the limit."""
            topic = await self._owners.existing(request)
            await self._use.limits.set_topic_policy(topic, path_of(request), None)
            return web.Response(status=204)

        return read, write, remove

    @operation(str, media=TEXT, empty="there is no group")
    async def group_of_namespace(self, request: web.Request) -> web.Response:
        """The resource group of a namespace."""
        group = await self._use.limits.namespace_group(namespace_of(request))
        return bare_text(group)

    @operation()
    async def attach(self, request: web.Request) -> web.Response:
        """Put a namespace into a resource group."""
        await self._use.limits.set_namespace_group(
            namespace_of(request), request.match_info["group"]
        )
        return web.Response(status=204)

    @operation()
    async def detach(self, request: web.Request) -> web.Response:
        """Take a namespace out of its resource group."""
        await self._use.limits.set_namespace_group(namespace_of(request), None)
        return web.Response(status=204)

    @operation(Names)
    async def groups(self, _request: web.Request) -> web.Response:
        """The names of all resource groups."""
        return web.json_response(await self._use.limits.resource_groups())

    @operation(Document)
    async def group(self, request: web.Request) -> web.Response:
        """The limits of a resource group."""
        return web.json_response(await self._use.limits.resource_group(request.match_info["group"]))

    @operation(body=ResourceGroup)
    async def put_group(self, request: web.Request) -> web.Response:
        """Create or change a resource group; body: its limits."""
        group = await _rate(request, ResourceGroup)
        await self._use.limits.put_resource_group(request.match_info["group"], plain(group))
        return web.Response(status=204)

    @operation(also={409: "a namespace uses it"})
    async def delete_group(self, request: web.Request) -> web.Response:
        """Delete a resource group that no namespace uses."""
        await self._use.limits.delete_resource_group(request.match_info["group"])
        return web.Response(status=204)

    @operation(Names)
    async def dynamic_names(self, _request: web.Request) -> web.Response:
        """The broker.conf keys that can be changed on running brokers."""
        return web.json_response(self._use.limits.dynamic_names())

    @operation(Texts)
    async def dynamic_values(self, _request: web.Request) -> web.Response:
        """The dynamic values that are stored, for all brokers."""
        return web.json_response(await self._use.limits.dynamic_values())

    @operation(also={412: "it cannot be in force"})
    async def set_dynamic(self, request: web.Request) -> web.Response:
        """Store a dynamic value; it acts at once on all brokers."""
        await self._use.limits.set_dynamic(request.match_info["name"], request.match_info["value"])
        return web.Response(status=204)

    @operation()
    async def unset_dynamic(self, request: web.Request) -> web.Response:
        """Remove a stored dynamic value; the file's value is in force again."""
        await self._use.limits.set_dynamic(request.match_info["name"], None)
        return web.Response(status=204)

    @operation(Document)
    async def broker(self, _request: web.Request) -> web.Response:
        """Every limit of this broker with its figures, and what pauses its connections."""
        return shown(self._use.limits.broker_throttling())

    @of_owner(Document, also={404: "the topic is not open"})
    async def topic(self, request: web.Request) -> web.Response:
        """Why the producers of a topic are slow: its limits, and what each of them holds."""
        topic = topic_of(request)
        report = self._use.limits.topic_throttling(topic)
        if report is not None:
            return shown(report)
        if topic.persistent and not await self._use.topics.exists(topic):
            raise NotFoundError(f"Topic {topic} not found")
        lookup = await self._use.directory.lookup(
            topic, authoritative=flag(request, "authoritative")
        )
        if lookup.broker == self._use.self_address:
            raise NotFoundError(
                f"Topic {topic} is not open: it has neither producers nor consumers"
            )
        return redirect_to(lookup.broker, request, authoritative=lookup.authoritative)


async def _rate(request: web.Request, kind: Any) -> Any:
    """The rate in a body. Raises as `body` and `checked_rate`."""
    return checked_rate(await body(request), kind)


def checked_rate(document: object, kind: Any) -> Any:
    """A rate from the JSON object of a request; fields that are null count as absent.

    Raises `RefusedError` (400) for what is not a JSON object or has unknown fields, and
    `BadInputError` for values that are not allowed (412). Pulsar refuses unknown fields, too
    (`httpRequestsFailOnUnknownPropertiesEnabled`).
    """
    fields = kind.__struct_encode_fields__
    if not isinstance(document, dict):
        raise RefusedError(400, f"a rate must be a JSON object with {', '.join(fields)}")
    unknown = [name for name, value in document.items() if name not in fields and value is not None]
    if unknown:
        raise RefusedError(
            400, f"unknown fields: {', '.join(unknown)}; allowed are {', '.join(fields)}"
        )
    return decode(document, kind)


def _shown(value: Any) -> web.Response:
    """200 with the value; 204 when nothing is set, as Pulsar answers."""
    return web.Response(status=204) if value is None else web.json_response(value)
