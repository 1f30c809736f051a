"""Isolation policies, failure domains and anti-affinity groups, cached and kept current."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from loadmanager.engine.policies.isolation import (
    IsolationPolicies,
    IsolationPolicy,
    Work,
    decode_policy,
    split_policies,
)
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt, Document, read_object, update, with_field
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.names import NamespaceName, check_part
from loadmanager.kit.tasks import sleep

GROUP_FIELD = "namespaceAntiAffinityGroup"
SCOPES = ("all_matching", "changed", "none")

log = get_logger("policies")


class PlacementPolicies:
    """The policies that restrict where the cluster's bundles may be placed.

    A watch on /admin must call `on_change`. The leader reads the attributes for each decision.
    """

    def __init__(self, store: Store, cluster: str, corrupt: Corrupt | None = None) -> None:
        self._store = store
        self._corrupt = corrupt or Corrupt()
        self._isolation_path = f"{paths.CLUSTERS}/{cluster}/namespaceIsolationPolicies"
        self._domains_path = f"{paths.CLUSTERS}/{cluster}/failureDomain"
        self.isolation = IsolationPolicies()
        self._corrupt_names: set[str] = set()
        self.domains: dict[str, list[str]] = {}
        self.groups: dict[str, str] = {}
        """Namespace → anti-affinity group."""

    # Cache

    async def on_change(self, change: Change) -> None:
        """Read what a change below /admin concerns."""
        path = change.path
        if change.kind is ChangeKind.DELETED:
            self._corrupt.mended(path)
        if change.kind is ChangeKind.RESYNC:
            await self._read_isolation()
            await self._read_domains()
            self.groups = {}
            for tenant in await self._store.children(paths.LOCAL_POLICIES):
                below = f"{paths.LOCAL_POLICIES}/{tenant}"
                await self._read_groups(
                    [f"{below}/{name}" for name in await self._store.children(below)]
                )
        elif path == self._isolation_path:
            await self._read_isolation()
        elif path.startswith(self._domains_path):
            await self._read_domains()
        elif path.startswith(f"{paths.LOCAL_POLICIES}/") and path.count("/") == 4:
            await self._read_groups([path])

    async def _read_isolation(self) -> None:
        """Put the stored policies into force, without the corrupt ones.

        If the whole node is corrupt, the previous policies stay in force.
        """
        node = await self._store.get(self._isolation_path)
        with self._corrupt.left_out("policy", self._isolation_path):
            raw = split_policies(node.value) if node is not None and node.value else {}
            usable = self._usable(raw)
            if usable != self.isolation:  # the same ones keep what they matched
                self.isolation = IsolationPolicies(usable)

    def _usable(self, raw: Mapping[str, bytes]) -> dict[str, IsolationPolicy]:
        """The policies that are valid; policies that would be too much work are left out."""
        usable: dict[str, IsolationPolicy] = {}
        work = Work()
        for name in self._corrupt_names - raw.keys():
            self._corrupt.mended(f"{self._isolation_path}, policy {name!r}")
        for name, value in raw.items():
            with self._corrupt.left_out("policy", f"{self._isolation_path}, policy {name!r}"):
                usable[name] = decode_policy(name, value, work)
        self._corrupt_names = raw.keys() - usable.keys()
        return usable

    async def _read_domains(self) -> None:
        self.domains = await self.failure_domains()

    async def _read_groups(self, policy_paths: list[str]) -> None:
        for path, node in zip(policy_paths, await self._store.get_many(policy_paths), strict=True):
            namespace = path[len(paths.LOCAL_POLICIES) + 1 :]
            group = _group(self._corrupt.object_of(node, "policy", path))
            if group is None:
                self.groups.pop(namespace, None)
            else:
                self.groups[namespace] = group

    # Administration

    async def isolation_policies(self) -> dict[str, Document]:
        """Name → policy as stored."""
        node = await self._store.get(self._isolation_path)
        return {} if node is None else read_object(node.value, self._isolation_path)

    async def isolation_in_force(self) -> Mapping[str, IsolationPolicy]:
        """Name → policy, of the valid policies; reads the store."""
        await self._read_isolation()
        return self.isolation

    async def set_isolation_policy(self, name: str, policy: Document | None) -> list[NamespaceName]:
        """Set a policy, or remove it with None.

        Returns the namespaces to unload, by the policy's `unload_scope`. Raises `BadInputError`.
        """
        check_part(name, "isolation policy")
        scope = "changed" if policy is None else policy.get("unload_scope") or "changed"
        if scope not in SCOPES:
            raise BadInputError(f"unload_scope {scope!r}: one of {', '.join(SCOPES)} is allowed")
        others = dict(await self.isolation_in_force())
        old = others.pop(name, None)
        new = _checked(name, policy, Work(others.values()))
        await update(
            self._store,
            self._isolation_path,
            lambda document: with_field(document, (name,), policy),
        )
        await self._read_isolation()
        log.info(
            "isolation policy changed", policy=name, unload_scope=scope, removed=policy is None
        )
        if scope == "none":
            return []
        before, after = set(old.namespaces if old else []), set(new.namespaces if new else [])
        everything = scope == "all_matching" or (old.primary if old else None) != (
            new.primary if new else None
        )
        namespaces = sorted(before | after if everything else before ^ after)
        affected = IsolationPolicies({"": IsolationPolicy(namespaces=namespaces)})
        matching = []
        for namespace in await self._all_namespaces():
            if affected.of(str(namespace)):
                matching.append(namespace)
            await sleep(0)  # matching may take some milliseconds
        return matching

    async def failure_domains(self) -> dict[str, list[str]]:
        """Domain → brokerIds."""
        names = await self._store.children(self._domains_path)
        nodes = await self._store.get_many([f"{self._domains_path}/{name}" for name in names])
        domains = {}
        for name, node in zip(names, nodes, strict=True):
            brokers = self._corrupt.object_of(node, "policy", f"{self._domains_path}/{name}").get(
                "brokers"
            )
            if isinstance(brokers, list):
                domains[name] = [broker for broker in brokers if isinstance(broker, str)]
        return domains

    async def set_failure_domain(self, domain: str, brokers: list[str] | None) -> None:
        """Set a domain's brokers; None removes the domain.

        Raises `ConflictError` when a broker is in another domain, and `NotFoundError` for the
        removal of an unknown domain.
        """
        path = f"{self._domains_path}/{check_part(domain, 'failure domain')}"
        domains = await self.failure_domains()
        if brokers is None:
            if domain not in domains:
                raise NotFoundError(f"Failure domain {domain} does not exist")
            await self._store.delete(path)
        else:
            for other, members in domains.items():
                if other != domain and (shared := set(members) & set(brokers)):
                    raise ConflictError(
                        f"{', '.join(sorted(shared))} is in failure domain {other} already"
                    )
            await update(self._store, path, lambda document: {**document, "brokers": brokers})
        log.info("failure domain changed", domain=domain, brokers=brokers)

    async def anti_affinity_group(self, namespace: NamespaceName) -> str | None:
        """The group of a namespace. Raises `NotFoundError`."""
        path = paths.local_policies(namespace)
        node = await self._store.get(path)
        if node is None and await self._store.get(paths.policies(namespace)) is None:
            raise NotFoundError(f"Namespace {namespace} does not exist")
        return None if node is None else _group(read_object(node.value, path))

    async def set_anti_affinity_group(self, namespace: NamespaceName, group: str | None) -> None:
        """Put a namespace into a group; None removes it from its group. Raises `NotFoundError`."""
        await self.anti_affinity_group(namespace)
        await update(
            self._store,
            paths.local_policies(namespace),
            lambda document: {**document, GROUP_FIELD: group},
        )
        log.info("anti-affinity group changed", namespace=str(namespace), group=group)

    async def namespaces_of_group(self, group: str) -> list[str]:
        """Namespaces of a group as stored now, sorted; the case of its name does not matter."""
        names = await self._all_namespaces()
        namespaces = []
        paths_of = [paths.local_policies(name) for name in names]
        for name, path, node in zip(
            names, paths_of, await self._store.get_many(paths_of), strict=True
        ):
            with self._corrupt.left_out("policy", path):
                if node is not None and (_group(read_object(node.value, path)) or "").lower() == (
                    group.lower()
                ):
                    namespaces.append(str(name))
        return sorted(namespaces)

    async def _all_namespaces(self) -> list[NamespaceName]:
        tenants = await self._store.children(paths.POLICIES)
        return [
            NamespaceName(tenant, name)
            for tenant in tenants
            for name in await self._store.children(f"{paths.POLICIES}/{tenant}")
        ]


def _checked(name: str, policy: Document | None, work: Work) -> IsolationPolicy | None:
    """Decode a policy. Raises `BadInputError` if it is invalid, or too much work with the others
    that are counted.
    """
    if policy is None:
        return None
    decoded = decode_policy(name, msgspec.json.encode(policy), work)
    if not decoded.namespaces or not decoded.primary:
        raise BadInputError(f"isolation policy {name!r}: namespaces and primary must not be empty")
    if decoded.auto_failover_policy.policy_type != "min_available":
        raise BadInputError(
            f"isolation policy {name!r}: auto_failover_policy.policy_type must be min_available"
        )
    return decoded


def _group(document: Document) -> str | None:
    group = document.get(GROUP_FIELD)
    return group if isinstance(group, str) and group else None
