"""`loadmanager initialize-cluster-metadata` on the embedded store."""

from __future__ import annotations

import asyncio

import pytest

from loadmanager.cli import main
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import read_object
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore


async def _ran(store: EmbeddedStore, *words: str) -> int:
    given = ["--set", f"metadataStoreUrl={store.url}/x", "--set", "clusterName=east"]
    return await asyncio.to_thread(main, ["initialize-cluster-metadata", *given, *words])


async def test_a_new_cluster_has_its_namespaces(capsys: pytest.CaptureFixture[str]) -> None:
    """With as many bundles as broker.conf says; a second time changes nothing, and a store of
    another cluster is left alone.
    """
    async with EmbeddedStore() as server:
        assert await _ran(server, "--set", "defaultNumberOfNamespaceBundles=8") == 0
        assert capsys.readouterr().out.endswith("public/default made\n")
        assert await _ran(server, "public/default", "acme/orders") == 0
        said = "public/default is there already\nacme/orders made\n"
        assert capsys.readouterr().out.endswith(said)
        async with ZooKeeperStore(ZooKeeperSettings(url=f"{server.url}/x")) as store:
            assert await store.children(paths.CLUSTERS) == ["east"]
            path = paths.policies(NamespaceName.parse("public/default"))
            node = await store.get(path)
            assert node is not None
            assert read_object(node.value, path)["bundles"]["numBundles"] == 8
        assert await _ran(server, "--set", "clusterName=west") == 2
        assert "the metadata store belongs to the cluster east" in capsys.readouterr().err


async def test_a_store_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, and what may be wrong."""
    words = ["--set", "metadataStoreUrl=zk:127.0.0.1:1"]
    words += ["--set", "metadataStoreOperationTimeoutSeconds=0.3"]
    assert await asyncio.to_thread(main, ["initialize-cluster-metadata", *words]) == 1
    assert "is metadataStoreUrl right?" in capsys.readouterr().err


def test_a_wrong_name() -> None:
    """Nothing is asked."""
    assert main(["initialize-cluster-metadata", "nonsense"]) == 2
