"""JSON values in the metadata store: written by us or by others, so every reading may meet nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from loadmanager.core.errors import ConflictError, OperationalError
from loadmanager.ports.store import Node, Store, VersionConflictError

ATTEMPTS_MAX = 7

log = structlog.get_logger("documents")


def read_object(value: bytes, path: str) -> dict[str, Any]:
    """The JSON object in a node; an empty value is an empty object. Raises `OperationalError` naming the path when it is something else."""
    if not value:
        return {}
    try:
        found = msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise OperationalError(f"{path} holds no JSON ({error}); repair or delete the node") from None
    if not isinstance(found, dict):
        raise OperationalError(f"{path} holds no JSON object; repair or delete the node")
    return found


def read_or_nothing(node: Node | None, path: str) -> dict[str, Any]:
    """The object in a node; a node that is missing or cannot be read says nothing, the latter is logged."""
    if node is None:
        return {}
    try:
        return read_object(node.value, path)
    except OperationalError as error:
        log.warning("a policy cannot be read and counts as not set", error=str(error))
        return {}


def write_object(document: dict[str, Any]) -> bytes:
    """The bytes of a JSON object."""
    return msgspec.json.encode(document)


async def update(store: Store, path: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read, change and write an object by compare-and-set; a missing node is an empty object. Raises `ConflictError` when others keep writing it."""
    for _ in range(ATTEMPTS_MAX):
        node = await store.get(path)
        if node is None:
            if await store.create(path, write_object(change({}))):
                return
            continue
        try:
            await store.put(path, write_object(change(read_object(node.value, path))), version=node.version)
        except VersionConflictError:
            continue
        return
    raise ConflictError(f"Concurrent modification of {path}")
