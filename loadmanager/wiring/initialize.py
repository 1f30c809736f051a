"""The metadata that a new cluster begins with (what `pulsar
initialize-cluster-metadata` writes).
"""

from __future__ import annotations

from collections.abc import Mapping

from loadmanager import settings
from loadmanager.adapters.zookeeper.settings import ZooKeeperSettings
from loadmanager.adapters.zookeeper.store import ZooKeeperStore
from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.conf import Live
from loadmanager.core.errors import ConflictError
from loadmanager.ports.store import Store
from loadmanager.runtime.broker.namespaces import Namespaces
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.documents import write_object
from loadmanager.runtime.shared.settings import BrokerSettings


async def initialize_cluster(values: Mapping[str, str], namespaces: Mapping[str, int]) -> None:
    """Create what is missing: the cluster's record, and `namespaces` (name → number of bundles)
    with their tenants.
    """
    loaded = settings.load(None, values)
    broker = loaded.leaf(BrokerSettings)
    async with ZooKeeperStore(loaded.leaf(ZooKeeperSettings)) as store:
        await record_cluster(store, broker.cluster_name, service_url="", web_url="")
        known = Namespaces(store, Live(broker))
        for name, bundles in namespaces.items():
            namespace = NamespaceName.parse(name)
            if namespace.tenant not in await known.tenants():
                await known.create_tenant(
                    namespace.tenant, {"allowedClusters": [broker.cluster_name]}
                )
            try:
                await known.create_namespace(namespace, {"bundles": {"numBundles": bundles}})
            except ConflictError:
                continue  # it exists from an earlier start


async def record_cluster(store: Store, cluster: str, *, service_url: str, web_url: str) -> None:
    """Record a cluster, if it is not recorded yet."""
    await store.create(
        f"{paths.CLUSTERS}/{cluster}",
        write_object(
            {
                "serviceUrl": web_url,
                "serviceUrlTls": "",
                "brokerServiceUrl": service_url,
                "brokerServiceUrlTls": "",
            }
        ),
    )
