"""The cluster's record in the metadata store."""

from __future__ import annotations

import pytest

from loadmanager.broker.initialize import record_cluster
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryTree


async def test_a_store_belongs_to_one_cluster() -> None:
    """The first broker records its cluster; brokers of the same cluster join; one of another
    cluster is refused with what to do, and records nothing.
    """
    async with MemoryTree().session(timeout_s=60) as store:
        await record_cluster(store, "east")
        await record_cluster(store, "east")
        with pytest.raises(ConfigError) as caught:
            await record_cluster(store, "west")
        for words in ("clusterName = west", "the cluster east", "metadataStoreUrl"):
            assert words in str(caught.value)
        assert await store.children(paths.CLUSTERS) == ["east"]


async def test_other_clusters_may_be_recorded() -> None:
    """A store that Pulsar's geo-replication shares records remote clusters, too."""
    async with MemoryTree().session(timeout_s=60) as store:
        for name in ("east", "west"):
            await store.create(f"{paths.CLUSTERS}/{name}", b"{}")
        await record_cluster(store, "west")
