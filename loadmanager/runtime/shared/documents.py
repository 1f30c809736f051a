"""JSON values in the metadata store: written by us or by others, so every reading may meet nonsense."""

from __future__ import annotations

from typing import Any

import msgspec

from loadmanager.core.errors import OperationalError


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


def write_object(document: dict[str, Any]) -> bytes:
    """The bytes of a JSON object."""
    return msgspec.json.encode(document)
