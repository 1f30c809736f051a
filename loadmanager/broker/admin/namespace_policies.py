"""The policies with which a namespace is created: each field passes the check of its own route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from loadmanager.broker.admin.routes_message_policies import (
    checked_flag,
    checked_quotas,
    checked_retention,
    checked_ttl,
)
from loadmanager.broker.admin.routes_throttling import NAMESPACE_RATES, checked_rate
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.messaging.rules import DEDUPLICATION, QUOTAS, RETENTION, TTL
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.http.answers import RefusedError
from loadmanager.limits.policies import DispatchRate, plain

Document = dict[str, Any]

MESSAGE_POLICIES: dict[str, Callable[[Any], Any]] = {
    RETENTION: checked_retention,
    QUOTAS: checked_quotas,
    TTL: checked_ttl,
    DEDUPLICATION: checked_flag,
}
NOT_OBEYED: Document = {
    "allowed_clusters": [],
    "allowed_topic_property_keys_for_metrics": [],
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "autoSubscriptionCreationOverride": None,
    "autoTopicCreationOverride": None,
    "compaction_threshold": None,
    "deduplicationSnapshotIntervalSeconds": None,
    "delayed_delivery_policies": None,
    "dispatcherPauseOnAckStatePersistentEnabled": None,
    "encryption_required": False,
    "entryFilters": None,
    "inactive_topic_policies": None,
    "is_allow_auto_update_schema": None,
    "latency_stats_sample_rate": {},
    "max_consumers_per_subscription": None,
    "max_consumers_per_topic": None,
    "max_producers_per_topic": None,
    "max_subscriptions_per_topic": None,
    "max_topics_per_namespace": None,
    "max_unacked_messages_per_consumer": None,
    "max_unacked_messages_per_subscription": None,
    "migrated": False,
    "offload_deletion_lag_ms": None,
    "offload_policies": None,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "persistence": None,
    "properties": {},
    "replicatorDispatchRate": {},
    "schema_auto_update_compatibility_strategy": None,
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_auth_mode": "None",
    "subscription_expiration_time_minutes": None,
    "subscription_types_enabled": [],
}
"""Fields of Pulsar's policies without effect here, with Pulsar's defaults, which its clients send
when they create a namespace.
"""


def check_clusters(names: object, *, present: list[str], cluster: str) -> list[str]:
    """The clusters of a namespace: `cluster`, this one, alone.

    Raises `RefusedError`: 400 for another type, 403 for a cluster that does not exist, 501 for
    others than this one.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RefusedError(400, "replication_clusters must be a JSON list of clusters")
    unknown = [name for name in names if name not in present]
    if unknown:
        raise RefusedError(403, f"Invalid cluster id: {unknown[0][:40]}")
    if set(names) - {cluster}:
        raise RefusedError(501, f"there is no geo-replication: {cluster} is allowed")
    return names


class NamespacePolicies:
    """Checks the policies of a namespace that is created."""

    def __init__(self, use: UseCases, *, cluster: str) -> None:
        self._use = use
        self._cluster = cluster
        self._checks: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "bundles": self._unchanged,  # whoever creates the namespace checks them
            "replication_clusters": self._clusters,
            "resource_group_name": self._group,
            "clusterDispatchRate": self._rates("clusterDispatchRate", DispatchRate),
            **{field: self._rates(field, kind) for field, kind in NAMESPACE_RATES.values()},
            **{field: self._at_once(check) for field, check in MESSAGE_POLICIES.items()},
        }

    async def checked(self, policies: Document) -> Document:
        """The policies to store; fields that are null count as absent.

        Raises what the route of a field raises, and `RefusedError`: 400 for a field that Pulsar
        does not have, 412 for `deleted`, 501 for what has no effect here.
        """
        given = {field: value for field, value in policies.items() if value is not None}
        return {field: await self._checked(field, value) for field, value in given.items()}

    async def _checked(self, field: str, value: Any) -> Any:
        if field in self._checks:
            return await self._checks[field](value)
        if field == "deleted":
            if value is not False:
                raise BadInputError("deleted: only the deletion of a namespace sets it")
        elif field not in NOT_OBEYED:
            raise RefusedError(400, f"unknown field of policies: {field[:60]}")
        elif value != NOT_OBEYED[field]:
            raise RefusedError(501, f"loadmanager does not serve {field} of a namespace")
        return value

    async def _unchanged(self, value: Any) -> Any:
        return value

    async def _clusters(self, names: Any) -> list[str]:
        present = await self._use.namespaces.clusters()
        return check_clusters(names, present=present, cluster=self._cluster)

    async def _group(self, group: Any) -> str:
        if not isinstance(group, str):
            raise RefusedError(400, "resource_group_name must be a text")
        if group not in await self._use.limits.resource_groups():
            raise BadInputError(f"Resource group {group[:60]} does not exist")
        return group

    @staticmethod
    def _at_once(check: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        async def checked(value: Any) -> Any:
            return check(value)

        return checked

    def _rates(self, field: str, kind: Any) -> Callable[[Any], Awaitable[Document]]:
        async def check(by_cluster: Any) -> Document:
            if not isinstance(by_cluster, dict):
                raise RefusedError(400, f"{field} must be a JSON object: cluster to rate")
            await self._clusters([*by_cluster])
            return {
                cluster: plain(checked_rate(rate, kind)) for cluster, rate in by_cluster.items()
            }

        return check
