"""A check that a text is a schema of Avro, as far as possible without Avro.

Types, names and references are checked; defaults and logical types are not (nor does Pulsar).
"""

from __future__ import annotations

import json
from typing import Any

PRIMITIVES = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"},
)
_RECORDS = ("record", "error")
_NAMED = (*_RECORDS, "enum", "fixed")


def is_avro(data: bytes) -> bool:
    """True if this is the JSON text of an Avro schema that is not a union (Pulsar takes none)."""
    try:
        document = json.loads(data)
        return not isinstance(document, list) and _is_type(document, set())
    except (ValueError, RecursionError):
        return False


def _is_type(document: Any, names: set[str]) -> bool:
    """`names`: the named types that are defined so far, without their namespaces."""
    if isinstance(document, list):
        return all(_is_type(branch, names) for branch in document)
    if isinstance(document, str):
        return document in PRIMITIVES or document.rpartition(".")[2] in names
    if not isinstance(document, dict):
        return False
    kind = document.get("type")
    if kind == "array":
        return _is_type(document.get("items"), names)
    if kind == "map":
        return _is_type(document.get("values"), names)
    if kind not in _NAMED:
        return isinstance(kind, str) and _is_type(kind, names)
    name = _simple_name(document.get("name"))
    if not name:
        return False
    names.add(name)
    if kind in _RECORDS:
        return _are_fields(document.get("fields"), names)
    if kind == "enum":
        return _are_names(document.get("symbols"))
    return type(document.get("size")) is int and document["size"] >= 0


def _are_fields(fields: Any, names: set[str]) -> bool:
    return (
        isinstance(fields, list)
        and all(isinstance(field, dict) for field in fields)
        and _are_names([field.get("name") for field in fields])
        and all(_is_type(field.get("type"), names) for field in fields)
    )


def _are_names(names: Any) -> bool:
    return (
        isinstance(names, list)
        and all(_is_name(name) for name in names)
        and len(set(names)) == len(names)
    )


def _simple_name(name: Any) -> str:
    """The name without its namespace; empty if it is not a name."""
    simple = name.rpartition(".")[2] if isinstance(name, str) else ""
    return simple if _is_name(simple) else ""


def _is_name(name: Any) -> bool:
    """Letters, digits, `_` and, for Pulsar, `$`; no digit at the beginning."""
    return (
        isinstance(name, str)
        and name != ""
        and not name[0].isdigit()
        and all(letter.isalnum() or letter in "_$" for letter in name)
    )
