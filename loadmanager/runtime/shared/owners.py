"""Who owns a bundle, read from the store itself."""

from __future__ import annotations

from loadmanager.core.errors import CorruptDataError
from loadmanager.ports.store import Store
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.documents import read_object


async def stored_owner(store: Store, bundle: str) -> str | None:
    """The brokerId of the holder of a bundle's lock; None if no session holds it.

    Raises `CorruptDataError` for a lock that names no owner.
    """
    path = paths.lock(bundle)
    node = await store.get(path)
    if node is None or node.ephemeral_owner == 0:
        return None
    web_url = read_object(node.value, path).get("httpUrl")
    if not isinstance(web_url, str):
        raise CorruptDataError(f"{path} names no owner; repair or delete the node")
    return web_url.partition("://")[2]
