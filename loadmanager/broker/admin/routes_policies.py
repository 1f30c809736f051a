"""Placement policies: namespace isolation, failure domains, anti-affinity groups."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from loadmanager.broker.admin.documents import FailureDomain
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.policies.isolation import matches_broker
from loadmanager.kit.errors import BadInputError, CorruptDataError, NotFoundError
from loadmanager.kit.http.answers import (
    RefusedError,
    bare_text,
    body_object,
    namespace_of,
    shown,
    text,
)
from loadmanager.kit.http.operation import TEXT, Document, Names, Query, operation
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import NamespaceName, check_name

CLUSTER = "/admin/v2/clusters/{cluster}"
ISOLATION = CLUSTER + "/namespaceIsolationPolicies"
DOMAINS = CLUSTER + "/failureDomains"
ANTI_AFFINITY = "/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity"
GROUPS = "/admin{}/namespaces/{{cluster}}/antiAffinity/{{group:[^/]+}}"
"""Pulsar's Java client asks at the path without version."""

log = get_logger("admin")
TENANT = Query(name="tenant", doc="Only those of this tenant.")
PROPERTY = Query(name="property", doc="The older name of `tenant`.")


class PolicyRoutes:
    """Policies of placement."""

    def __init__(self, use: UseCases, *, cluster: str) -> None:
        self._use = use
        self._cluster = cluster

    def routes(self) -> list[web.RouteDef]:
        """All routes; fixed paths come before those with a variable."""
        return [
            web.get(ISOLATION, self.isolation),
            web.get(ISOLATION + "/brokers", self.isolation_brokers),
            web.get(ISOLATION + "/brokers/{broker}", self.isolation_broker),
            web.get(ISOLATION + "/{policy}", self.isolation_policy),
            web.post(ISOLATION + "/{policy}", self.set_isolation),
            web.delete(ISOLATION + "/{policy}", self.remove_isolation),
            web.get(DOMAINS, self.domains),
            web.get(DOMAINS + "/{domain}", self.domain),
            web.post(DOMAINS + "/{domain}", self.set_domain),
            web.delete(DOMAINS + "/{domain}", self.remove_domain),
            web.get(ANTI_AFFINITY, self.group),
            web.post(ANTI_AFFINITY, self.set_group),
            web.delete(ANTI_AFFINITY, self.remove_group),
            web.get(GROUPS.format("/v2"), self.namespaces_of_group),
            web.get(GROUPS.format(""), self.namespaces_of_group),
        ]

    def _check_cluster(self, request: web.Request) -> None:
        if request.match_info["cluster"] != self._cluster:
            raise RefusedError(
                412,
                f"Cluster {request.match_info['cluster']} does not exist here; this one is "
                f"{self._cluster}",
            )

    @operation(dict[str, Document])
    async def isolation(self, request: web.Request) -> web.Response:
        """The namespace isolation policies of the cluster."""
        self._check_cluster(request)
        return web.json_response(await self._use.policies.isolation_policies())

    @operation(Document)
    async def isolation_policy(self, request: web.Request) -> web.Response:
        """One namespace isolation policy."""
        self._check_cluster(request)
        name = request.match_info["policy"]
        policy = (await self._use.policies.isolation_policies()).get(name)
        if policy is None:
            raise NotFoundError(f"Namespace isolation policy {name} does not exist")
        return web.json_response(policy)

    @operation(body=Document)
    async def set_isolation(self, request: web.Request) -> web.Response:
        """Create or change a policy, then unload the namespaces that its `unload_scope` names."""
        self._check_cluster(request)
        document = await body_object(request)
        try:
            affected = await self._use.policies.set_isolation_policy(
                request.match_info["policy"], document
            )
        except BadInputError as error:
            raise RefusedError(400, str(error)) from None
        await self._unload(affected)
        return web.Response(status=204)

    @operation()
    async def remove_isolation(self, request: web.Request) -> web.Response:
        """Delete a policy; 204 also when it does not exist."""
        self._check_cluster(request)
        await self._unload(
            await self._use.policies.set_isolation_policy(request.match_info["policy"], None)
        )
        return web.Response(status=204)

    async def _unload(self, namespaces: list[NamespaceName]) -> None:
        """Unload these namespaces; skip those that are corrupt or deleted."""
        for namespace in namespaces:
            try:
                await self._use.unloading.namespace(namespace)
            except (CorruptDataError, NotFoundError) as error:
                log.warning(
                    "a namespace is not unloaded", namespace=str(namespace), error=str(error)
                )

    @operation(list[Document])
    async def isolation_brokers(self, request: web.Request) -> web.Response:
        """The live brokers of each policy, with its namespaces and whether they are primary."""
        self._check_cluster(request)
        return web.json_response(
            [
                entry
                for broker in sorted(self._use.brokers.registered)
                for entry in await self._of_broker(broker)
            ]
        )

    @operation(Document)
    async def isolation_broker(self, request: web.Request) -> web.Response:
        """The namespaces that policies give to a broker, and whether it is primary."""
        self._check_cluster(request)
        broker = request.match_info["broker"]
        if broker not in self._use.brokers.registered:
            raise NotFoundError(f"Broker {broker} is not active")
        entries = await self._of_broker(broker)
        regexes = [regex for entry in entries for regex in entry["namespaceRegex"]]
        primary = any(entry["primary"] for entry in entries)
        name = entries[0]["policyName"] if entries else None
        return web.json_response(
            {
                "brokerName": broker,
                "policyName": name,
                "primary": primary,
                "namespaceRegex": regexes,
            }
        )

    async def _of_broker(self, broker: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for name, policy in (await self._use.policies.isolation_in_force()).items():
            primary = matches_broker(policy.primary, broker)
            if primary or matches_broker(policy.secondary, broker):
                entries.append(
                    {
                        "brokerName": broker,
                        "policyName": name,
                        "primary": primary,
                        "namespaceRegex": policy.namespaces,
                    }
                )
        return entries

    @operation(dict[str, FailureDomain])
    async def domains(self, request: web.Request) -> web.Response:
        """The failure domains of the cluster with their brokers."""
        self._check_cluster(request)
        domains = await self._use.policies.failure_domains()
        return shown({name: FailureDomain(brokers=each) for name, each in domains.items()})

    @operation(FailureDomain)
    async def domain(self, request: web.Request) -> web.Response:
        """The brokers of a failure domain."""
        self._check_cluster(request)
        name = request.match_info["domain"]
        brokers = (await self._use.policies.failure_domains()).get(name)
        if brokers is None:
            raise NotFoundError(f"Failure domain {name} does not exist")
        return shown(FailureDomain(brokers=brokers))

    @operation(body=FailureDomain)
    async def set_domain(self, request: web.Request) -> web.Response:
        """Create or change a failure domain; body `{"brokers": ["host:port"]}`."""
        self._check_cluster(request)
        brokers = (await body_object(request)).get("brokers")
        if not isinstance(brokers, list) or not all(isinstance(broker, str) for broker in brokers):
            raise RefusedError(400, 'the body must be {"brokers": ["host:port", ...]}')
        await self._use.policies.set_failure_domain(request.match_info["domain"], brokers)
        return web.Response(status=204)

    @operation()
    async def remove_domain(self, request: web.Request) -> web.Response:
        """Delete a failure domain."""
        self._check_cluster(request)
        await self._use.policies.set_failure_domain(request.match_info["domain"], None)
        return web.Response(status=204)

    @operation(str, media=TEXT, empty="there is no group")
    async def group(self, request: web.Request) -> web.Response:
        """The anti-affinity group of a namespace."""
        group = await self._use.policies.anti_affinity_group(namespace_of(request))
        return bare_text(group)

    @operation(body=str)
    async def set_group(self, request: web.Request) -> web.Response:
        """Put a namespace into an anti-affinity group; body: its name, bare or as a JSON string."""
        group = check_name(await text(request), "anti-affinity group")
        if not group:
            raise BadInputError("antiAffinityGroup can't be empty")
        await self._use.policies.set_anti_affinity_group(namespace_of(request), group)
        return web.Response(status=204)

    @operation()
    async def remove_group(self, request: web.Request) -> web.Response:
        """Take a namespace out of its anti-affinity group."""
        await self._use.policies.set_anti_affinity_group(namespace_of(request), None)
        return web.Response(status=204)

    @operation(Names, query=(TENANT, PROPERTY))
    async def namespaces_of_group(self, request: web.Request) -> web.Response:
        """The namespaces of an anti-affinity group; `?tenant=`, or `?property=` as its older name,
        selects those of one tenant.
        """
        self._check_cluster(request)
        tenant = request.query.get("tenant") or request.query.get("property", "")
        names = await self._use.policies.namespaces_of_group(request.match_info["group"])
        return web.json_response(
            [name for name in names if not tenant or name.startswith(f"{tenant}/")]
        )
