"""Tenants, namespaces and bundles."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.documents import BundlesData, Tenant
from loadmanager.broker.admin.namespace_policies import NamespacePolicies, check_clusters
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.bundles.ranges import bundles_data, topic_hash
from loadmanager.engine.policies.permissions import check_role
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import BadInputError, ConflictError
from loadmanager.kit.http.answers import (
    RefusedError,
    body,
    body_object,
    flag,
    namespace_of,
    no_content,
    web_of,
    whole_numbers,
)
from loadmanager.kit.http.operation import AUTHORITATIVE, FORCE, Document, Names, Query, operation
from loadmanager.kit.names import TopicName, check_part

MODE = Query(
    name="mode",
    doc="The kinds of topics to list.",
    choices=("PERSISTENT", "NON_PERSISTENT", "ALL"),
    default="PERSISTENT",
)
TOPICS = Query(name="topics", doc="Only these topics, by their full names.", many=True)
DESTINATION = Query(name="destinationBroker", doc="The next owner, `host:port`.")
ALGORITHM = Query(name="splitAlgorithmName", doc="How to choose the boundary.")
Positions = list[int]
UNLOAD = Query(name="unload", doc="Unload the children afterwards.", kind=bool)


class NamespaceRoutes:
    """Tenants, namespaces, bundles."""

    def __init__(self, use: UseCases, *, cluster: str) -> None:
        self._use = use
        self._cluster = cluster
        self._policies = NamespacePolicies(use, cluster=cluster)

    def routes(self) -> list[web.RouteDef]:
        path = "/admin/v2/namespaces/{tenant}/{namespace}"
        return [
            web.get("/admin/v2/tenants", self.tenants),
            web.get("/admin/v2/tenants/{tenant}", self.tenant),
            web.put("/admin/v2/tenants/{tenant}", self.create_tenant),
            web.post("/admin/v2/tenants/{tenant}", self.update_tenant),
            web.delete("/admin/v2/tenants/{tenant}", self.delete_tenant),
            web.get("/admin/v2/namespaces/{tenant}", self.list),
            web.get(path, self.policies),
            web.put(path, self.create),
            web.delete(path, self.delete),
            web.get(path + "/bundles", self.bundles),
            web.get(path + "/topics", self.list_topics),
            web.get(path + "/replication", self.clusters),
            web.post(path + "/replication", self.set_clusters),
            web.put(path + "/unload", self.unload),
            web.get(path + "/{bundle}/topicHashPositions", self.hash_positions),
            web.put(path + "/{bundle}/unload", self.unload_bundle),
            web.put(path + "/{bundle}/split", self.split_bundle),
        ]

    @operation(Names)
    async def tenants(self, _request: web.Request) -> web.Response:
        """The names of all tenants."""
        return web.json_response(await self._use.namespaces.tenants())

    @operation(Tenant)
    async def tenant(self, request: web.Request) -> web.Response:
        """The admin roles and allowed clusters of a tenant."""
        return web.json_response(await self._use.namespaces.tenant(request.match_info["tenant"]))

    @operation(body=Tenant, also={409: "it exists already"})
    async def create_tenant(self, request: web.Request) -> web.Response:
        """Create a tenant; body `{"adminRoles": [], "allowedClusters": []}`."""
        name = request.match_info["tenant"]
        if name in await self._use.namespaces.tenants():
            raise ConflictError("Tenant already exist")
        await self._use.namespaces.create_tenant(name, await self._tenant_in(request))
        return web.Response(status=204)

    @operation(body=Tenant)
    async def update_tenant(self, request: web.Request) -> web.Response:
        """Change a tenant; body as for creating it."""
        name = request.match_info["tenant"]
        await self._use.namespaces.tenant(name)
        await self._use.namespaces.update_tenant(name, await self._tenant_in(request))
        return web.Response(status=204)

    async def _tenant_in(self, request: web.Request) -> Document:
        name, info = request.match_info["tenant"], await body_object(request)
        check_part(name, "tenant")
        for field in ("adminRoles", "allowedClusters"):
            _check_texts(info, field)
        for role in info.get("adminRoles") or []:
            _check_admin(role)
        if not info.get("allowedClusters"):
            raise BadInputError("Clusters can not be empty")
        if not set(info["allowedClusters"]).issubset(await self._use.namespaces.clusters()):
            raise BadInputError("Clusters do not exist")
        return info

    @operation(also={409: "it has namespaces"})
    async def delete_tenant(self, request: web.Request) -> web.Response:
        """Delete a tenant without namespaces."""
        await self._use.namespaces.delete_tenant(request.match_info["tenant"])
        return web.Response(status=204)

    @operation(Names)
    async def list(self, request: web.Request) -> web.Response:
        """The namespaces of a tenant."""
        return web.json_response(
            await self._use.namespaces.namespaces(request.match_info["tenant"])
        )

    @operation(Document)
    async def policies(self, request: web.Request) -> web.Response:
        """The policies of a namespace."""
        return web.json_response(await self._use.namespaces.policies(namespace_of(request)))

    @operation(
        body=Document,
        body_required=False,
        also={
            403: "a cluster does not exist",
            409: "it exists already",
            501: "a policy without effect here has another value than Pulsar's default",
        },
    )
    async def create(self, request: web.Request) -> web.Response:
        """Create a namespace; body: its policies, such as `{"bundles": {"numBundles": 16}}`."""
        namespace = namespace_of(request)
        policies = await self._policies.checked(await body_object(request))
        try:
            await self._use.namespaces.create_namespace(namespace, policies)
        except BadInputError as error:
            if type(error) is not BadInputError:
                raise
            raise RefusedError(400, str(error)) from None  # bundles, where Pulsar answers 400
        return web.Response(status=204)

    @operation(query=(FORCE,), also={405: "forced deletion is switched off", 409: "it has topics"})
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a namespace; `?force=true` with its topics."""
        namespace, force = namespace_of(request), flag(request, "force")
        try:
            await self._use.deleting.namespace(namespace, force=force)
        except BadInputError as error:
            if type(error) is not BadInputError:
                raise
            raise RefusedError(405, str(error)) from None  # forced deletion is switched off
        return web.Response(status=204)

    @operation(BundlesData)
    async def bundles(self, request: web.Request) -> web.Response:
        """The boundaries of the bundles of a namespace."""
        bundles = await self._use.namespaces.bundles(namespace_of(request))
        return web.json_response(bundles_data(bundles.boundaries))

    @operation(Names, query=(MODE,))
    async def list_topics(self, request: web.Request) -> web.Response:
        """The topics of a namespace; `?mode=` PERSISTENT (default), NON_PERSISTENT or ALL."""
        return web.json_response(
            await self._use.directory.topics_of_namespace(
                namespace_of(request), request.query.get("mode", "PERSISTENT")
            )
        )

    @operation(Names)
    async def clusters(self, request: web.Request) -> web.Response:
        """The clusters of a namespace."""
        policies = await self._use.namespaces.policies(namespace_of(request))
        return web.json_response(policies.get("replication_clusters") or [])

    @operation(body=Names, also={403: "a cluster does not exist", 501: "several clusters"})
    async def set_clusters(self, request: web.Request) -> web.Response:
        """Set the clusters of a namespace; body: a list with this cluster's name alone."""
        namespace, names = namespace_of(request), await body(request)
        present = await self._use.namespaces.clusters()
        names = check_clusters(names, present=present, cluster=self._cluster)
        if not names:
            raise BadInputError("ClusterIds should not be null or empty")
        await self._use.namespaces.update_policies(
            namespace, lambda policies: {**policies, "replication_clusters": names}
        )
        return web.Response(status=204)

    @operation()
    async def unload(self, request: web.Request) -> web.Response:
        """Unload all bundles of a namespace; the next lookups place them."""
        await self._use.unloading.namespace(namespace_of(request))
        return web.Response(status=204)

    @operation(Document, query=(TOPICS,))
    async def hash_positions(self, request: web.Request) -> web.Response:
        """The hashes of the topics of a bundle; `?topics=` selects topics by their full names."""
        namespace = namespace_of(request)
        span = (await self._use.namespaces.bundles(namespace)).require(request.match_info["bundle"])
        names = [
            str(TopicName.parse(text))
            for part in request.query.getall("topics", [])
            for text in part.split(",")
            if text
        ]
        topics = names or await self._use.directory.topics_of_namespace(namespace, "ALL")
        positions = {name: topic_hash(name) for name in topics if topic_hash(name) in span}
        return web.json_response(
            {"namespace": str(namespace), "bundle": str(span), "topicHashPositions": positions}
        )

    @operation(
        query=(AUTHORITATIVE, DESTINATION),
        elsewhere="the owner, with a destination the leader",
        also={409: "the destination is not active"},
    )
    async def unload_bundle(self, request: web.Request) -> web.Response:
        """Unload a bundle; `?destinationBroker=` names its next owner."""
        authoritative, destination = (
            flag(request, "authoritative"),
            request.query.get("destinationBroker") or None,
        )
        owner = await self._use.unloading.bundle(
            namespace_of(request), request.match_info["bundle"], destination=destination
        )
        return no_content(owner, request, authoritative=None if destination else authoritative)

    @operation(
        body=Positions,
        body_required=False,
        query=(ALGORITHM, UNLOAD),
        elsewhere="the owner",
        also={409: "no boundary divides its topics, or no bundle has topics or traffic"},
    )
    async def split_bundle(self, request: web.Request) -> web.Response:
        """Split a bundle, or the LARGEST (by topics) or HOT (by traffic) one of the namespace;
        `?splitAlgorithmName=`, `?unload=`; body: a list of hashes to split at.
        """
        positions, namespace = whole_numbers(await body(request)), namespace_of(request)
        wanted = request.match_info["bundle"]
        chosen = await self._use.splitting.choose(namespace, wanted)
        done = await self._use.splitting.split(
            namespace,
            chosen,
            algorithm=request.query.get("splitAlgorithmName") or None,
            positions=positions,
            unload=flag(request, "unload"),
        )
        owner = done if isinstance(done, BrokerAddress) else None
        if owner is None or chosen == wanted:
            return no_content(owner, request)
        # The owner is to split this bundle, not to choose once more.
        path = request.path.replace(f"/{wanted}/", f"/{chosen}/")
        target = request.rel_url.with_path(path).with_query(request.query)
        return web.Response(status=307, headers={"Location": f"{web_of(owner, request)}{target}"})


def _check_admin(role: str) -> None:
    """Raise `BadInputError` for what no role can be: it would permit nothing to anybody."""
    check_role(role)
    if role != role.strip():
        raise BadInputError("AdminRoles contains whitespace in the beginning or end.")
    if "*" in (role[0], role[-1]):
        raise BadInputError(f"adminRoles: {role!r}: whole names of roles are expected, without *")


def _check_texts(document: dict[str, object], field: str) -> None:
    value = document.get(field)
    if value is not None and not (
        isinstance(value, list) and all(isinstance(text, str) for text in value)
    ):
        raise RefusedError(400, f"{field} must be a list of texts")
