"""What the admin API asks about limits: policies of namespaces and topics, resource groups, settings that change live, and who is held."""

from __future__ import annotations

from typing import Any, Protocol

from loadmanager.core.bundles.names import NamespaceName, TopicName

Document = dict[str, Any]


class LimitControl(Protocol):
    """Limits of the cluster and of this broker. Every change acts at once on connected clients, of every broker."""

    async def namespace_limit(self, namespace: NamespaceName, field: str) -> Document | None:
        """One rate of a namespace's policies for this cluster (`publishMaxMessageRate`, `topicDispatchRate`, `subscriptionDispatchRate`,
        `clusterSubscribeRate`); None when it is not set. Raises `NotFoundError` for a missing namespace."""
        ...

    async def set_namespace_limit(self, namespace: NamespaceName, field: str, rate: Document | None) -> None:
        """Set one rate of a namespace for this cluster; None removes it. Raises `NotFoundError`."""
        ...

    async def namespace_group(self, namespace: NamespaceName) -> str | None:
        """The resource group that a namespace is attached to. Raises `NotFoundError`."""
        ...

    async def set_namespace_group(self, namespace: NamespaceName, group: str | None) -> None:
        """Attach a namespace to a resource group, or to none. Raises `NotFoundError` when there is no such namespace or group."""
        ...

    async def topic_policies(self, topic: TopicName) -> Document:
        """A topic's own policies, empty when it has none. Raises `NotFoundError` for a missing namespace."""
        ...

    async def applied_limit(self, topic: TopicName, path: tuple[str, ...]) -> Document | None:
        """The rate that a topic without one of its own is under, from its namespace or broker.conf; None when that is no limit."""
        ...

    async def set_topic_policy(self, topic: TopicName, path: tuple[str, ...], rate: Document | None) -> None:
        """Set one policy of a topic, `path` naming the nested fields that it is under; None removes it."""
        ...

    async def resource_groups(self) -> list[str]:
        """Names of the resource groups, sorted."""
        ...

    async def resource_group(self, name: str) -> Document:
        """A resource group; raises `NotFoundError`."""
        ...

    async def put_resource_group(self, name: str, group: Document) -> None:
        """Create or change a resource group; fields that are not given stay as they are."""
        ...

    async def delete_resource_group(self, name: str) -> None:
        """Delete a resource group; raises `NotFoundError`, or `BadInputError` while a namespace is attached to it."""
        ...

    def dynamic_names(self) -> list[str]:
        """Keys of broker.conf that may be changed on running brokers, sorted."""
        ...

    async def dynamic_values(self) -> dict[str, str]:
        """Keys that were changed so, with their values."""
        ...

    async def set_dynamic(self, name: str, value: str | None) -> None:
        """Change one key on every broker; None goes back to broker.conf. Raises `BadInputError` for keys and values that are not allowed."""
        ...

    def broker_throttling(self) -> Document:
        """Every limit of this broker with configured and delivered rate, and what pauses its connections."""
        ...

    def topic_throttling(self, topic: TopicName) -> Document | None:
        """Why the producers and subscriptions of a topic are slow, if they are; None when the topic is not open here."""
        ...
