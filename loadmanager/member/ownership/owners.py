"""The owner of a bundle, read from the store itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadmanager.engine.ownership.state_records import decode_record
from loadmanager.kit.errors import CorruptDataError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import read_object, stored
from loadmanager.kit.metadata.store import Store


async def stored_owner(store: Store, bundle: str) -> str | None:
    """The brokerId of the holder of a bundle's lock, or else of the owner by its state record (a
    broker of the extensible load manager); None if no session owns it.

    Raises `CorruptDataError` for a lock that names no owner, and for a corrupt record.
    """
    path = paths.lock(bundle)
    node = await store.get(path)
    if node is None or node.ephemeral_owner == 0:
        return await _owner_by_record(store, bundle)
    return owner_in(read_object(node.value, path), path)


async def _owner_by_record(store: Store, bundle: str) -> str | None:
    path = paths.unit_state(bundle)
    node = await store.get(path)
    if node is None:
        return None
    with stored(path):
        record = decode_record(node.value)
    if record.owner is None:
        return None
    broker_id, session_id = record.owner
    return broker_id if await store.get(paths.session(session_id)) is not None else None


def owner_in(lock: Mapping[str, Any], path: str) -> str:
    """The brokerId of the owner in a lock's document. Raises `CorruptDataError` likewise."""
    broker_id = (text_of(lock, "httpUrl") or text_of(lock, "httpUrlTls")).partition("://")[2]
    if not broker_id:
        raise CorruptDataError(f"{path} names no owner; repair or delete the node")
    return broker_id


def text_of(document: Mapping[str, Any], key: str) -> str:
    """A text in a document; empty if there is none."""
    value = document.get(key)
    return value if isinstance(value, str) else ""
