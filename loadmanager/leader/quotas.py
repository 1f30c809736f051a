"""The resource quotas in the metadata store, where Pulsar's `BundlesQuotas` keeps them. The leader
alone reads and writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from loadmanager.engine.load.quotas import Expected, ResourceQuota
from loadmanager.kit.errors import BadInputError, NotFoundError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Check, Create, Delete, Operation, Put, Store
from loadmanager.leader.load_feed import stored_bundles


class TermQuotas:
    """The quotas of one term; `expected` has them for the view."""

    def __init__(
        self, store: Store, checks: Sequence[Check], corrupt: Corrupt, expected: Expected
    ) -> None:
        self._store = store
        self._checks = checks
        self._corrupt = corrupt
        self._expected = expected

    async def restore(self) -> None:
        """Begin with the stored quotas, without corrupt ones."""
        for bundle in [None, *await stored_bundles(self._store, paths.RESOURCE_QUOTAS)]:
            path = paths.resource_quota(bundle)
            node = await self._store.get(path)
            with self._corrupt.left_out("policy", path):
                if node is not None and node.value:
                    self._set(bundle, msgspec.json.decode(node.value, type=ResourceQuota))

    def _set(self, bundle: str | None, quota: ResourceQuota) -> None:
        if bundle is None:
            self._expected.default = quota
        else:
            self._expected.quotas[bundle] = quota

    def quota(self, bundle: str | None) -> ResourceQuota:
        """The quota of a bundle, which may be the default one; the default one for None."""
        return self._expected.quota(bundle)

    async def set_quota(self, bundle: str | None, document: dict[str, Any]) -> None:
        """Store a quota; it acts on bundles that are seen for the first time from now on.

        Raises `BadInputError` for a wrong figure, `VersionConflictError` if the term is over.
        """
        missing = ResourceQuota(
            msg_rate_in=0, msg_rate_out=0, bandwidth_in=0, bandwidth_out=0, memory=0, dynamic=False
        )
        try:
            quota = msgspec.convert({**msgspec.to_builtins(missing), **document}, ResourceQuota)
        except msgspec.ValidationError as error:
            raise BadInputError(f"resource quota: {error}") from None
        path, value = paths.resource_quota(bundle), msgspec.json.encode(quota)
        await self._store.create(path.rpartition("/")[0], b"")  # a transaction makes no parents
        present = await self._store.get(path) is not None
        write: Operation = Put(path, value) if present else Create(path, value)
        await self._store.commit([*self._checks, write])
        self._set(bundle, quota)

    async def reset_quota(self, bundle: str) -> None:
        """Delete the quota of a bundle. Raises `NotFoundError` when it has none."""
        path = paths.resource_quota(bundle)
        if await self._store.get(path) is None:
            raise NotFoundError(f"{bundle} has no resource quota of its own")
        await self._store.commit([*self._checks, Delete(path)])
        self._expected.quotas.pop(bundle, None)

    async def on_change(self, path: str) -> None:
        """Count what is stored at a path now."""
        root = paths.resource_quota(None)
        bundle = None if path == root else path.removeprefix(f"{paths.RESOURCE_QUOTAS}/")
        node = await self._store.get(path)
        with self._corrupt.left_out("policy", path):
            if node is not None:
                self._set(bundle, msgspec.json.decode(node.value, type=ResourceQuota))
            elif bundle is None:
                self._expected.default = None
            else:
                self._expected.quotas.pop(bundle, None)
