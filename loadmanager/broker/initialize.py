"""The first metadata of a cluster, as `pulsar initialize-cluster-metadata` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConfigError, ConflictError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import write_object
from loadmanager.kit.metadata.starting import answered
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.settings import Settings
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings, ZooKeeperTlsSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.settings import BrokerSettings


async def initialize_cluster(
    loaded: Settings, namespaces: Mapping[str, int | None]
) -> frozenset[str]:
    """Create the cluster's record, and `namespaces` (name → number of bundles; None: as many as
    defaultNumberOfNamespaceBundles says) with their tenants. Returns the names of those that were
    not there.

    Raises `ConfigError` as `record_cluster` does.
    """
    broker, made = loaded.leaf(BrokerSettings), set[str]()
    tls = loaded.leaf(ZooKeeperTlsSettings)
    zookeeper = loaded.leaf(ZooKeeperSettings)
    async with ZooKeeperStore(zookeeper, tls=tls) as store:
        catalogue = Namespaces(store, Live(broker))

        async def initialize() -> None:
            await record_cluster(store, broker.cluster_name)
            for name, bundles in namespaces.items():
                namespace = NamespaceName.parse(name)
                with suppress(ConflictError):  # it exists from an earlier start
                    await catalogue.create_tenant(
                        namespace.tenant, {"allowedClusters": [broker.cluster_name]}
                    )
                policies = {} if bundles is None else {"bundles": {"numBundles": bundles}}
                with suppress(ConflictError):
                    await catalogue.create_namespace(namespace, policies)
                    made.add(name)

        await answered(initialize, "initialize the cluster", zookeeper.operation_timeout_s)
    return frozenset(made)


async def record_cluster(store: Store, cluster: str, at: BrokerAddress | None = None) -> None:
    """Record a cluster in the metadata store, with the addresses of a broker, if the store records
    no cluster yet.

    Raises `ConfigError` when the store records other clusters only: this broker would join their
    brokers and take bundles of theirs.
    """
    recorded = await store.children(paths.CLUSTERS)
    if recorded and cluster not in recorded:
        raise ConfigError(
            f"clusterName = {cluster}, but the metadata store belongs to the cluster "
            f"{' and '.join(sorted(recorded))}: set clusterName to that name, or give each cluster "
            f"a store of its own: metadataStoreUrl, such as zk:host:2181/{cluster}, or another "
            "--data-dir of standalone"
        )
    await store.create(
        f"{paths.CLUSTERS}/{cluster}",
        write_object(
            {
                "serviceUrl": at.web_url if at else "",
                "serviceUrlTls": at.web_url_tls if at else "",
                "brokerServiceUrl": at.service_url if at else "",
                "brokerServiceUrlTls": at.service_url_tls if at else "",
            }
        ),
    )
