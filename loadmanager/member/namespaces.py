"""Tenants, namespaces and the boundaries of their bundles.

Pulsar's `NamespaceBundleFactory` and `NamespaceResources`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from loadmanager.engine.bundles.ranges import (
    NamespaceBundles,
    bundles_data,
    equal_boundaries,
    parse_boundaries,
    split_bundle_name,
)
from loadmanager.engine.ownership.state_records import decode_record
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import (
    BadInputError,
    ConflictError,
    CorruptDataError,
    LoadManagerError,
    NotFoundError,
)
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import (
    ATTEMPTS_MAX,
    Corrupt,
    read_object,
    update,
    write_object,
)
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    Store,
    VersionConflictError,
    delete_tree,
)
from loadmanager.kit.names import NamespaceName, TopicName, check_part
from loadmanager.member.known_names import KnownNames
from loadmanager.member.settings import NAMESPACE_BUNDLES_MAX, BrokerSettings

SPLIT_ATTEMPTS_MAX = 7
"""How often a split is tried when other writers change the policies meanwhile (Pulsar's limit)."""

RESOURCE_GROUP = "resource_group_name"
"""The field of the policies that attaches a namespace to a resource group (Pulsar's)."""

DELETED = "deleted"
"""The field of the policies that marks a namespace as deleted (Pulsar's)."""

log = get_logger("namespaces")


class Namespaces:
    """Reads and writes tenants and namespaces; caches boundaries until a watch reports a change."""

    def __init__(
        self,
        store: Store,
        settings: Live[BrokerSettings],
        corrupt: Corrupt | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._corrupt = corrupt or Corrupt()
        self._settings = settings
        self._bundles: dict[NamespaceName, NamespaceBundles] = {}
        self._generation = 0
        self.names = KnownNames(store, now_s)

    # Boundaries

    def on_change(self, change: Change) -> None:
        """Forget the boundaries that a change below /admin concerns."""
        self._generation += 1
        self.names.on_change(change)
        if change.kind is ChangeKind.RESYNC:
            self._bundles.clear()
        elif change.path.startswith((paths.LOCAL_POLICIES, paths.POLICIES)):
            parts = change.path.split("/")
            if len(parts) == 5:
                self._bundles.pop(NamespaceName(parts[3], parts[4]), None)

    async def bundles(self, namespace: NamespaceName) -> NamespaceBundles:
        """The bundles of a namespace. Raises `NotFoundError`, or `CorruptDataError`."""
        cached = self._bundles.get(namespace)
        if cached is not None:
            return cached
        if self.names.lacks(namespace):
            raise _absent(namespace)
        generation = self._generation
        local, policies = await self._store.get_many(
            [paths.local_policies(namespace), paths.policies(namespace)]
        )
        if policies is None:
            await self.names.learn(namespace.tenant)
            raise _absent(namespace)
        if read_object(policies.value, paths.policies(namespace)).get(DELETED):
            raise _absent(namespace)
        bundles = self._boundaries_of(namespace, local, policies)
        if local is None:
            # As in Pulsar, the first use creates the local copy, which locks and splits check.
            await self._store.create(
                paths.local_policies(namespace),
                write_object({"bundles": bundles_data(bundles.boundaries)}),
            )
            return await self.bundles(namespace)
        if generation == self._generation:
            self._bundles[namespace] = bundles
        return bundles

    async def lacks(self, bundle: str) -> bool:
        """True if the boundaries of its namespace do not have a bundle any more. False if they
        cannot be read: a reconnect reads them again; corrupt ones change nothing; the deletion of a
        namespace unloads its bundles.
        """
        namespace, bundle_range = split_bundle_name(bundle)
        try:
            boundaries = await self.bundles(NamespaceName.parse(namespace))
        except LoadManagerError:
            return False
        return bundle_range not in {str(span) for span in boundaries.ranges}

    def cached_bundle_of(self, topic: TopicName) -> str | None:
        """The bundle of a topic, if the boundaries are in the cache. Raises `NotFoundError` if
        `names` lacks the namespace.
        """
        cached = self._bundles.get(topic.namespace)
        if cached is not None:
            return cached.bundle_of_topic(str(topic))
        if self.names.lacks(topic.namespace):
            raise _absent(topic.namespace)
        return None

    async def bundle_of(self, topic: TopicName) -> str:
        """The bundle of a topic; raises as `bundles` does."""
        return (await self.bundles(topic.namespace)).bundle_of_topic(str(topic))

    async def bundle_count(self, namespace: NamespaceName) -> int:
        """Number of bundles of a namespace; 0 if it does not exist or is corrupt."""
        try:
            return len((await self.bundles(namespace)).ranges)
        except (CorruptDataError, NotFoundError):  # `bundles` has logged the corrupt data
            return 0

    def _boundaries_of(
        self, namespace: NamespaceName, local: Node | None, policies: Node
    ) -> NamespaceBundles:
        """Boundaries from the local policies, else the global policies, else one bundle."""
        for node, path, version in (
            (local, paths.local_policies(namespace), local.version if local else -1),
            (policies, paths.policies(namespace), -1),
        ):
            with self._corrupt.counted("boundaries", path):
                boundaries = _stored_boundaries(read_object(node.value, path)) if node else None
            if boundaries is not None:
                return NamespaceBundles(namespace, boundaries, version)
        return NamespaceBundles(namespace, equal_boundaries(1), -1)

    # Tenants

    async def clusters(self) -> list[str]:
        return await self._store.children(paths.CLUSTERS)

    async def tenants(self) -> list[str]:
        return await self._store.children(paths.POLICIES)

    async def tenant(self, name: str) -> dict[str, Any]:
        """The tenant's record; raises `NotFoundError`."""
        path = f"{paths.POLICIES}/{check_part(name, 'tenant')}"
        node = None if self.names.lacks_tenant(name) else await self._store.get(path)
        if node is None:
            await self.names.learn(name)
            raise _no_tenant(name)
        return {
            "adminRoles": [],
            "allowedClusters": [],
            **read_object(node.value, path),
        }

    async def create_tenant(self, name: str, info: Mapping[str, Any]) -> None:
        """Store a new tenant; raises `ConflictError` if there is one of that name."""
        path = f"{paths.POLICIES}/{check_part(name, 'tenant')}"
        if not await self._store.create(path, _tenant(info)):
            raise ConflictError("Tenant already exist")
        self.names.created(name)

    async def update_tenant(self, name: str, info: Mapping[str, Any]) -> None:
        """Replace a tenant's record, also a corrupt one.

        Raises `NotFoundError`, or `ConflictError` after `ATTEMPTS_MAX` conflicts.
        """
        path = f"{paths.POLICIES}/{check_part(name, 'tenant')}"
        for _ in range(ATTEMPTS_MAX):
            node = await self._store.get(path)
            if node is None:
                raise _no_tenant(name)
            with suppress(VersionConflictError):
                await self._store.put(path, _tenant(info), version=node.version)
                return
        raise ConflictError(f"Concurrent modification of the tenant {name}")

    async def delete_tenant(self, name: str) -> None:
        """Delete a tenant; raises `NotFoundError`, or `ConflictError` while it has namespaces."""
        if await self.namespaces(name):
            raise ConflictError(f"Tenant {name} still has namespaces: delete them first")
        if not await self._store.delete(f"{paths.POLICIES}/{name}"):
            raise NotFoundError(f"Tenant {name} does not exist")

    # Namespaces

    async def namespaces(self, tenant: str) -> list[str]:
        """Full names of a tenant's namespaces; raises `NotFoundError`."""
        root = f"{paths.POLICIES}/{check_part(tenant, 'tenant')}"
        if await self._store.get(root) is None:
            raise _no_tenant(tenant)
        return [f"{tenant}/{name}" for name in await self._store.children(root)]

    async def create_namespace(self, namespace: NamespaceName, policies: Mapping[str, Any]) -> None:
        """Store a new namespace.

        Raises `NotFoundError` (tenant), `ConflictError` (exists), `BadInputError` (bundles, or a
        resource group that does not exist).
        """
        await self._require_room(namespace)
        boundaries = self._requested_boundaries(policies.get("bundles"))
        bundles = bundles_data(boundaries)
        stored = {
            **policies,
            "bundles": bundles,
            "replication_clusters": policies.get("replication_clusters")
            or [self._settings.value.cluster_name],
        }
        local = {
            "bundles": bundles,
            "bookieAffinityGroup": None,
            "namespaceAntiAffinityGroup": None,
        }
        await self._store.create(f"{paths.LOCAL_POLICIES}/{namespace.tenant}", b"")
        await self._commit_new(
            namespace,
            [
                Create(paths.policies(namespace), write_object(stored)),
                Create(paths.local_policies(namespace), write_object(local)),
            ],
            stored.get(RESOURCE_GROUP),
        )
        self.names.created(namespace.tenant, namespace.name)
        log.info("namespace created", namespace=str(namespace), bundles=len(boundaries) - 1)

    async def _commit_new(
        self, namespace: NamespaceName, operations: list[Operation], group: str | None
    ) -> None:
        """Store the records of a new namespace, which is attached to a resource group, if any."""
        for _ in range(ATTEMPTS_MAX):
            attach = [] if group is None else [await attaching(self._store, group)]
            try:
                await self._store.commit([*operations, *attach])
            except VersionConflictError:
                if not attach or await self._store.get(paths.policies(namespace)) is not None:
                    raise ConflictError(f"Namespace {namespace} exists already") from None
                await self._require_room(namespace)
            else:
                return
        raise ConflictError(f"Concurrent modification of the resource group {group}")

    async def _require_room(self, namespace: NamespaceName) -> None:
        """Raise `BadInputError` if the tenant is full, `NotFoundError` if it does not exist."""
        limit = self._settings.value.namespaces_per_tenant_max
        present = await self.namespaces(namespace.tenant)
        if 0 < limit <= len(present) and str(namespace) not in present:
            raise BadInputError(
                f"Exceed the maximum number of namespace in tenant :{namespace.tenant}"
            )

    def _requested_boundaries(self, requested: Any) -> tuple[int, ...]:
        if requested is None:
            return equal_boundaries(self._settings.value.default_bundles)
        if not isinstance(requested, Mapping):
            raise BadInputError(
                'bundles must be {"numBundles": N} or {"boundaries": ["0x00000000", ...]}'
            )
        if requested.get("boundaries"):
            return parse_boundaries(requested["boundaries"])
        count = requested.get("numBundles", self._settings.value.default_bundles)
        if type(count) is not int or not 1 <= count <= NAMESPACE_BUNDLES_MAX:
            raise BadInputError(
                f"numBundles must be a whole number from 1 to {NAMESPACE_BUNDLES_MAX}"
            )
        return equal_boundaries(count)

    async def policies(self, namespace: NamespaceName) -> dict[str, Any]:
        """The namespace's policies, with the boundaries in force; raises `NotFoundError`."""
        bundles = await self.bundles(namespace)
        node = await self._store.get(paths.policies(namespace))
        if node is None:
            raise _absent(namespace)
        return {
            **read_object(node.value, paths.policies(namespace)),
            "bundles": bundles_data(bundles.boundaries),
        }

    async def update_policies(
        self,
        namespace: NamespaceName,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        also: Callable[[], Awaitable[Operation]] | None = None,
    ) -> None:
        """Change the policies by compare-and-set; a field with the value None is removed.

        `change` may be called several times; `also`: see `update`. Raises `NotFoundError`.
        """

        def changed(policies: dict[str, Any]) -> dict[str, Any]:
            if not policies or policies.get(DELETED):
                raise _absent(namespace)
            return {field: value for field, value in change(policies).items() if value is not None}

        await update(self._store, paths.policies(namespace), changed, also=also)

    async def mark_deleted(self, namespace: NamespaceName) -> None:
        """Mark a namespace as deleted, so that no broker can acquire its bundles.

        The transaction also changes the version of the boundaries. A broker that has them in its
        cache fails to create a lock, reads the policies again, and finds the mark. Raises
        `NotFoundError`, or `ConflictError` after `SPLIT_ATTEMPTS_MAX` conflicts.
        """
        path, local_path = paths.policies(namespace), paths.local_policies(namespace)
        for _ in range(SPLIT_ATTEMPTS_MAX):
            policies, local = await self._store.get_many([path, local_path])
            if policies is None:
                raise _absent(namespace)
            marked = write_object({**read_object(policies.value, path), DELETED: True})
            boundaries = (
                Put(local_path, local.value, local.version) if local else Create(local_path, b"")
            )
            try:
                await self._store.commit([Put(path, marked, policies.version), boundaries])
            except VersionConflictError:
                continue
            self.forget(namespace)
            return
        raise ConflictError(f"Concurrent modification of {namespace}")

    async def claimed_bundles(self, namespace: NamespaceName) -> list[str]:
        """Bundles of a namespace that a session owns, by a lock or a state record."""
        bundles = await self._below(paths.LOCKS, namespace)
        nodes = await self._store.get_many([paths.lock(bundle) for bundle in bundles])
        claimed = {
            bundle
            for bundle, node in zip(bundles, nodes, strict=True)
            if node is not None and node.ephemeral_owner
        }
        bundles = await self._below(paths.UNIT_STATES, namespace)
        nodes = await self._store.get_many([paths.unit_state(bundle) for bundle in bundles])
        owners: dict[str, int] = {}
        for bundle, node in zip(bundles, nodes, strict=True):
            with self._corrupt.left_out("state", paths.unit_state(bundle)):
                record = None if node is None else decode_record(node.value)
                if record is not None and record.owner is not None:
                    owners[bundle] = record.owner[1]
        sessions = await self._store.get_many([paths.session(owner) for owner in owners.values()])
        for bundle, session in zip(owners, sessions, strict=True):
            if session is not None:
                claimed.add(bundle)
        return sorted(claimed)

    async def _below(self, root: str, namespace: NamespaceName) -> list[str]:
        return [f"{namespace}/{span}" for span in await self._store.children(f"{root}/{namespace}")]

    async def delete_namespace(self, namespace: NamespaceName) -> None:
        """Delete the records of a namespace that is marked as deleted, without owned bundles."""
        for root in (
            paths.LOCKS,
            paths.UNIT_STATES,
            paths.MANAGED_LEDGERS,
            paths.PARTITIONED_TOPICS,
            paths.SCHEMAS,
            paths.BUNDLE_DATA,
            paths.TOPIC_POLICIES,
        ):
            await delete_tree(self._store, f"{root}/{namespace}")
        for name in await self._store.children(paths.PINS):
            if paths.decode(name).startswith(f"{namespace}/"):
                await self._store.delete(f"{paths.PINS}/{name}")
        await self._store.commit(
            [Delete(paths.local_policies(namespace)), Delete(paths.policies(namespace))]
        )
        self._bundles.pop(namespace, None)
        log.info("namespace deleted", namespace=str(namespace))

    async def split_operations(self, after: NamespaceBundles) -> list[Operation]:
        """The operations that store the boundaries after a split.

        Committing them raises `VersionConflictError` when the boundaries or policies were changed
        since they were read; then compute the split again.
        """
        local_path, path = paths.local_policies(after.namespace), paths.policies(after.namespace)
        local, policies = await self._store.get_many([local_path, path])
        if policies is None or local is None:
            raise _absent(after.namespace)
        bundles = bundles_data(after.boundaries)
        return [
            Put(
                local_path,
                write_object({**read_object(local.value, local_path), "bundles": bundles}),
                version=after.version,
            ),
            Put(
                path,
                write_object({**read_object(policies.value, path), "bundles": bundles}),
                version=policies.version,
            ),
        ]

    def forget(self, namespace: NamespaceName) -> None:
        """Read the boundaries from the store next time."""
        self._generation += 1
        self._bundles.pop(namespace, None)


async def every_namespace(store: Store) -> list[NamespaceName]:
    """All namespaces of all tenants, including corrupt ones."""
    return [
        NamespaceName(tenant, name)
        for tenant in await store.children(paths.POLICIES)
        for name in await store.children(f"{paths.POLICIES}/{tenant}")
    ]


async def attaching(store: Store, group: str) -> Operation:
    """An operation for the transaction that attaches a namespace to a resource group. It changes
    the group's version: who looked for attached namespaces before cannot delete the group.

    Raises `BadInputError` if the group does not exist.
    """
    path = paths.resource_group(check_part(group, "resource group"))
    node = await store.get(path)
    if node is None:
        raise BadInputError(f"Resource group {group} does not exist")
    return Put(path, node.value, node.version)


def _tenant(info: Mapping[str, Any]) -> bytes:
    return write_object(
        {
            "adminRoles": list(info.get("adminRoles") or []),
            "allowedClusters": list(info.get("allowedClusters") or []),
        }
    )


def _no_tenant(name: str) -> NotFoundError:
    return NotFoundError(
        f"Tenant {name} does not exist: if that is its right name, `loadmanager admin tenants "
        f"create {name}` makes it"
    )


def _absent(namespace: NamespaceName) -> NotFoundError:
    return NotFoundError(
        f"Namespace {namespace} does not exist: if that is its right name, `loadmanager admin "
        f"namespaces create {namespace} --create-tenant` makes it"
    )


def _stored_boundaries(document: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The boundaries in policies, or None. Raises `BadInputError` if they are invalid."""
    bundles = document.get("bundles")
    if bundles is not None and not isinstance(bundles, dict):
        raise BadInputError("bundles is not an object")
    return (
        parse_boundaries(bundles["boundaries"]) if bundles and bundles.get("boundaries") else None
    )
