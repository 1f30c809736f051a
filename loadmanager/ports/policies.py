"""What the admin API asks about where bundles may go: namespace isolation, failure domains, anti-affinity groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.policies.isolation import IsolationPolicy

Document = dict[str, Any]


class PolicyControl(Protocol):
    """Policies of the cluster; the leader's next decision respects every change."""

    async def isolation_policies(self) -> dict[str, Document]:
        """Name → policy as it was set."""
        ...

    async def isolation_in_force(self) -> Mapping[str, IsolationPolicy]:
        """Name → policy, of those that can be used."""
        ...

    async def set_isolation_policy(self, name: str, policy: Document | None) -> list[NamespaceName]:
        """Set a policy, or remove it with None; returns the namespaces that its `unload_scope` says to unload. Raises `BadInputError`."""
        ...

    async def failure_domains(self) -> dict[str, list[str]]:
        """Domain → brokerIds."""
        ...

    async def set_failure_domain(self, domain: str, brokers: list[str] | None) -> None:
        """Set a domain's brokers; None removes the domain. Raises `ConflictError` when a broker is in another domain, `NotFoundError`."""
        ...

    async def anti_affinity_group(self, namespace: NamespaceName) -> str | None:
        """The group of a namespace. Raises `NotFoundError`."""
        ...

    async def set_anti_affinity_group(self, namespace: NamespaceName, group: str | None) -> None:
        """Put a namespace into a group, or out of it. Raises `NotFoundError`."""
        ...

    def namespaces_of_group(self, group: str) -> list[str]:
        """Namespaces of a group, sorted; names of groups are compared without regard to case."""
        ...
