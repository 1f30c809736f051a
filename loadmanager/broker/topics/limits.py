"""Limits as they are recorded in the metadata store: read, followed by a watch, and changed.

A change through any broker reaches every broker by the watch on /admin, and acts on connected
clients at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from loadmanager.broker.topics.limit_ends import LimitEnds
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import (
    BadInputError,
    ConflictError,
    CorruptDataError,
    NotFoundError,
)
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import (
    ATTEMPTS_MAX,
    Corrupt,
    Document,
    read_object,
    update,
)
from loadmanager.kit.metadata.once import Once
from loadmanager.kit.metadata.store import Change, ChangeKind, Store, VersionConflictError
from loadmanager.kit.names import NamespaceName, TopicName, check_part
from loadmanager.kit.settings import SettingOrigin
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.policies import ResourceGroup, applied, is_set, plain, stored
from loadmanager.limits.report import BrokerHolds, broker_report, held_report, topic_report
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.member.namespaces import RESOURCE_GROUP, Namespaces, attaching, every_namespace

log = get_logger("limits")


class DynamicSettings(Protocol):
    """The settings in force (`settings.LiveSettings`); `stored` is the document at
    `paths.DYNAMIC_CONFIGURATION`.
    """

    def in_force(self) -> dict[str, str]:
        """Every key with the value in force."""
        ...

    def origins(self) -> Mapping[str, SettingOrigin]:
        """Every key → where its value in force comes from."""
        ...

    @property
    def rejected(self) -> Mapping[str, str]:
        """Stored values that are not in force, each with the reason."""
        ...

    def dynamic_names(self) -> list[str]:
        """Keys that may be changed on running brokers."""
        ...

    def apply(self, stored: Mapping[str, object]) -> list[str]:
        """Put the stored values in force, as far as they can be used; returns what changed."""
        ...

    def reject_all(self, where: str, reason: str) -> None:
        """The stored document is unreadable: the settings in force stay."""
        ...

    def changed(
        self, stored: Mapping[str, object], name: str, value: str | None
    ) -> dict[str, object]:
        """The document with one value set or removed (None).

        Raises `BadInputError` for what cannot be used.
        """
        ...


class PolicyListener(Protocol):
    """The rules for how long messages are kept (`broker.messaging.rules.MessageRules`)."""

    def set_policies(self, namespace: str, policies: Mapping[str, Any]) -> None:
        """The policies of a namespace changed."""
        ...


class Limits:
    """Limits of the cluster and of this broker.

    `in_force`: the settings of throttling; `changed` is called after limits of this broker changed,
    to resume clients.
    """

    def __init__(
        self,
        store: Store,
        namespaces: Namespaces,
        throttling: BrokerThrottling,
        settings: DynamicSettings,
        *,
        clock: Clock,
        in_force: Live[ThrottlingSettings],
        changed: Callable[[], None],
        corrupt: Corrupt | None = None,
        rules: PolicyListener | None = None,
    ) -> None:
        self._store = store
        self._namespaces = namespaces
        self._throttling = throttling
        self.settings = settings
        self._clock = clock
        self._changed = changed
        self._corrupt = corrupt or Corrupt()
        self._rules = rules
        in_force.listen(self._on_settings)
        self._namespaces_read: set[NamespaceName] = set()
        """The namespaces whose limits are in force."""
        self._reading: set[NamespaceName] = set()
        """The namespaces that are read for the first time."""
        self._once: Once[NamespaceName, None] = Once()
        self.ends = LimitEnds(store, clock, self._corrupt)

    # Reading

    def _on_settings(self, settings: ThrottlingSettings) -> None:
        """broker.conf keys of throttling changed on the running broker."""
        self._throttling.set_settings(settings, self._clock.monotonic_ns())
        self._changed()

    async def on_change(self, change: Change) -> None:
        """A node below /admin changed."""
        path = change.path
        if change.kind is ChangeKind.RESYNC:
            await self._read_all()
        elif path.startswith(paths.TOPIC_POLICIES):
            await self._read_topics([path])
        elif path.startswith(f"{paths.RESOURCE_GROUPS}/"):
            await self._read_groups([path.rpartition("/")[2]])
        elif path == paths.DYNAMIC_CONFIGURATION:
            await self._read_dynamic()
        elif path.startswith(f"{paths.POLICIES}/"):
            await self._read_namespaces(
                [namespace for namespace in self._followed() if paths.policies(namespace) == path]
            )

    def _followed(self) -> set[NamespaceName]:
        """The namespaces whose changes count, also while they are read for the first time."""
        return self._namespaces_read | self._reading

    async def opening(self, namespace: NamespaceName) -> None:
        """A topic is about to open: read the limits of its namespace, unless that was done.

        Topics that open together wait for one reading. Raises `OperationalError`.
        """
        if namespace not in self._namespaces_read:
            await self._once.run(namespace, lambda: self._read_first(namespace))

    async def _read_first(self, namespace: NamespaceName) -> None:
        self._reading.add(namespace)
        try:
            await self._read_namespaces([namespace])
        finally:
            self._reading.discard(namespace)

    async def _read_all(self) -> None:
        await self._read_dynamic()
        names = await self._store.children(paths.RESOURCE_GROUPS)
        await self._read_groups(sorted({*names, *self._throttling.groups}))
        await self._read_namespaces(sorted(self._followed()))
        await self._read_topics(await self._policy_paths())

    async def _policy_paths(self) -> list[str]:
        """Paths of all topic policies: four levels below their root."""
        level = [paths.TOPIC_POLICIES]
        for _ in range(4):
            level = [
                f"{path}/{name}" for path in level for name in await self._store.children(path)
            ]
        return level

    async def _read_namespaces(self, namespaces: list[NamespaceName]) -> None:
        for namespace, node in zip(
            namespaces,
            await self._store.get_many([paths.policies(name) for name in namespaces]),
            strict=True,
        ):
            policies = self._corrupt.object_of(node, "policy", paths.policies(namespace))
            self._throttling.set_namespace_policies(
                str(namespace), policies, self._clock.monotonic_ns()
            )
            if self._rules is not None:
                self._rules.set_policies(str(namespace), policies)
            if node is not None:
                self._namespaces_read.add(namespace)
            else:  # deleted; a later namespace of this name is read when a topic opens
                self._namespaces_read.discard(namespace)
        self._changed()

    async def _read_topics(self, policy_paths: list[str]) -> None:
        for path, node in zip(policy_paths, await self._store.get_many(policy_paths), strict=True):
            topic = paths.topic_of_policies(path)
            if topic is not None and topic.partition < 0:
                self._throttling.set_topic_policies(
                    topic,
                    self._corrupt.object_of(node, "policy", path),
                    self._clock.monotonic_ns(),
                )
        self._changed()

    async def _read_groups(self, names: list[str]) -> None:
        for name, node in zip(
            names,
            await self._store.get_many([paths.resource_group(name) for name in names]),
            strict=True,
        ):
            document = self._corrupt.object_of(node, "policy", paths.resource_group(name))
            self._throttling.set_resource_group(
                name,
                None if node is None else stored(document, ResourceGroup),
                self._clock.monotonic_ns(),
            )
        self._changed()

    async def _read_dynamic(self) -> None:
        node, path = await self._store.get(paths.DYNAMIC_CONFIGURATION), paths.DYNAMIC_CONFIGURATION
        before, changes = self.settings.rejected, list[str]()
        try:
            with self._corrupt.counted("dynamic", path):
                changes = self.settings.apply({} if node is None else read_object(node.value, path))
        except CorruptDataError as error:
            self.settings.reject_all(path, str(error))
        if changes:
            log.info("settings changed on this broker", changes=changes)
        for name, reason in self.settings.rejected.items():
            if before.get(name) != reason:
                log.error(
                    "a stored dynamic setting cannot be used; its last good value stays in force",
                    key=name,
                    reason=reason,
                )

    # What operators see and change

    async def namespace_limit(self, namespace: NamespaceName, field: str) -> Document | None:
        """One rate of a namespace's policies for this cluster (`publishMaxMessageRate`,
        `topicDispatchRate`, `subscriptionDispatchRate`, `clusterSubscribeRate`); None when it is
        not set. Raises `NotFoundError` for a missing namespace.
        """
        by_cluster = (await self._namespaces.policies(namespace)).get(field)
        return by_cluster.get(self._throttling.cluster) if isinstance(by_cluster, dict) else None

    async def set_namespace_limit(
        self,
        namespace: NamespaceName,
        field: str,
        rate: Document | None,
        for_s: float | None = None,
    ) -> None:
        """Set one rate of a namespace for this cluster, for so long if that is given; None removes
        it. Raises `NotFoundError`.
        """
        path = (field, self._throttling.cluster)
        wanted = await self.ends.change(paths.policies(namespace), path, rate, for_s)
        await self._namespaces.update_policies(namespace, wanted.change, also=wanted.also)
        log.info(
            "limit of a namespace changed",
            namespace=str(namespace),
            limit=field,
            rate=rate,
            seconds=for_s,
        )

    async def namespace_group(self, namespace: NamespaceName) -> str | None:
        """The resource group that a namespace is attached to. Raises `NotFoundError`."""
        group = (await self._namespaces.policies(namespace)).get(RESOURCE_GROUP)
        return group if isinstance(group, str) else None

    async def set_namespace_group(self, namespace: NamespaceName, group: str | None) -> None:
        """Attach a namespace to a resource group; None detaches it.

        Raises `NotFoundError`, or `BadInputError` for a missing group.
        """
        await self._namespaces.update_policies(
            namespace,
            lambda policies: {**policies, RESOURCE_GROUP: group},
            also=None if group is None else lambda: attaching(self._store, group),
        )
        log.info("resource group of a namespace changed", namespace=str(namespace), group=group)

    async def topic_policies(self, topic: TopicName) -> Document:
        """A topic's own policies; a partition has those of its partitioned topic, as in Pulsar.

        Raises `NotFoundError` for a missing namespace.
        """
        await self._namespaces.bundles(topic.namespace)
        path = paths.topic_policies(topic.partitioned_topic)
        node = await self._store.get(path)
        return {} if node is None else read_object(node.value, path)

    async def applied_limit(self, topic: TopicName, path: tuple[str, ...]) -> Document | None:
        """The rate that a topic without a policy of its own has, from its namespace or broker.conf;
        None when it is unlimited.
        """
        shared, throttling = await self._namespaces.policies(topic.namespace), self._throttling
        rate = applied({}, shared, throttling.cluster, path, throttling.settings)
        return plain(rate) if is_set(rate) else None

    async def set_topic_policy(
        self,
        topic: TopicName,
        path: tuple[str, ...],
        rate: Document | None,
        for_s: float | None = None,
    ) -> None:
        """Set one policy of a topic, for all of its partitions, for so long if that is given;
        `path` names the nested fields, None removes it.
        """
        await self._namespaces.bundles(topic.namespace)
        of, name = paths.topic_policies(topic.partitioned_topic), "/".join(path)
        wanted = await self.ends.change(of, path, rate, for_s)
        if wanted.also is not None:
            await self._store.create(of, b"{}")
        await update(self._store, of, wanted.change, also=wanted.also)
        log.info("limit of a topic changed", topic=str(topic), limit=name, rate=rate, seconds=for_s)

    async def resource_groups(self) -> list[str]:
        return await self._store.children(paths.RESOURCE_GROUPS)

    async def resource_group(self, name: str) -> Document:
        """A resource group; raises `NotFoundError`."""
        path = paths.resource_group(check_part(name, "resource group"))
        node = await self._store.get(path)
        if node is None:
            raise NotFoundError(f"Resource group {name} does not exist")
        return read_object(node.value, path)

    async def put_resource_group(self, name: str, group: Document) -> None:
        """Create or change a resource group; omitted fields stay as they are."""
        path = paths.resource_group(check_part(name, "resource group"))
        await update(
            self._store,
            path,
            lambda document: {
                **dict.fromkeys(group, -1),
                **document,
                **{field: value for field, value in group.items() if value is not None},
            },
        )
        log.info("resource group changed", group=name, rates=group)

    async def delete_resource_group(self, name: str) -> None:
        """Delete a resource group; raises `NotFoundError`, or `BadInputError` while a namespace is
        attached to it.
        """
        path = paths.resource_group(check_part(name, "resource group"))
        for _ in range(ATTEMPTS_MAX):
            node = await self._store.get(path)
            if node is None:
                raise NotFoundError(f"Resource group {name} does not exist")
            if attached := await self._attached_to(name):
                raise BadInputError(f"Resource group {name} is in use by {', '.join(attached)}")
            with suppress(VersionConflictError):  # changed, or attached meanwhile
                await self._store.delete(path, version=node.version)
                log.info("resource group deleted", group=name)
                return
        raise ConflictError(f"Concurrent modification of the resource group {name}")

    def dynamic_names(self) -> list[str]:
        """Keys that may be changed on running brokers."""
        return self.settings.dynamic_names()

    async def dynamic_values(self) -> dict[str, str]:
        """Keys that were changed, with their values."""
        node = await self._store.get(paths.DYNAMIC_CONFIGURATION)
        document = read_object(node.value, paths.DYNAMIC_CONFIGURATION) if node else {}
        return {name: str(value) for name, value in document.items()}

    async def set_dynamic(self, name: str, value: str | None) -> None:
        """Change one key on every broker; None goes back to broker.conf.

        Raises `BadInputError` for keys and values that are not allowed.
        """
        await update(
            self._store,
            paths.DYNAMIC_CONFIGURATION,
            lambda stored: self.settings.changed(stored, name, value),
        )
        log.info("dynamic configuration changed", key=name, value=value)

    def broker_throttling(self) -> Document:
        """Every limit of this broker with configured and delivered rate, and what pauses its
        connections.
        """
        return broker_report(self._throttling, self._clock.monotonic_ns())

    def held_lately(self, waiters_max: int) -> BrokerHolds:
        """The limits of this broker that held somebody in the last ten seconds, and whom."""
        return held_report(self._throttling, self._clock.monotonic_ns(), waiters_max)

    def topic_throttling(self, topic: TopicName) -> Document | None:
        """Why the producers and subscriptions of a topic are slow; None when the topic is not open
        here.
        """
        limits, now_ns = self._throttling.topics.get(str(topic)), self._clock.monotonic_ns()
        return None if limits is None else topic_report(self._throttling, limits, now_ns)

    async def _attached_to(self, group: str) -> list[str]:
        """Namespaces of a resource group. Corrupt policies name no group."""
        names = await every_namespace(self._store)
        policy_paths = [paths.policies(name) for name in names]
        nodes = await self._store.get_many(policy_paths)
        return [
            str(name)
            for name, path, node in zip(names, policy_paths, nodes, strict=True)
            if self._corrupt.object_of(node, "policy", path).get(RESOURCE_GROUP) == group
        ]
