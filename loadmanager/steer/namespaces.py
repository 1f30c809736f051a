"""The namespaces of a Pulsar cluster, read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.engine.bundles.ranges import NamespaceBundles, parse_boundaries
from loadmanager.kit.names import NamespaceName
from loadmanager.steer.ports.cluster_reader import ClusterReader


@dataclass(frozen=True, slots=True)
class FleetNamespaces:
    """Namespaces and their bundles. Raises `OperationalError` for what cannot be read."""

    reader: ClusterReader

    async def bundles(self, namespace: NamespaceName) -> NamespaceBundles:
        """How a namespace is divided now."""
        edges = await self.reader.boundaries(str(namespace))
        return NamespaceBundles(namespace, parse_boundaries(edges))

    async def bundle_count(self, namespace: NamespaceName) -> int:
        """How many bundles a namespace has; 0 for one that does not exist."""
        edges = await self.reader.boundaries_if_any(str(namespace))
        return 0 if edges is None else max(0, len(edges) - 1)
