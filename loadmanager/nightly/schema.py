"""Arrow schemas of the history's records, derived from those of `engine.history`: there is one
definition of a record.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from loadmanager.engine.history import records
from loadmanager.engine.history.members import MEMBER_KINDS
from loadmanager.engine.load.reports import NUMBER_MAX
from loadmanager.kit.units import DAY_MS

KINDS = {**records.KINDS, **MEMBER_KINDS}
"""The kinds that a report is made from."""
RESOURCES = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
LONG_MAX = 10**13
"""An upper bound of times in ms and of counts."""
LIFE_MAX = 2**63 - 1
"""An upper bound of ids of transactions."""

_PLAIN: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
}


def schema_of(kind: str) -> pa.Schema:
    """The schema of one kind of records, with the JSON's names."""
    return pa.schema(_fields(KINDS[kind]))


def required_of(kind: str) -> list[str]:
    """Fields that every record must have."""
    return [field.encode_name for field in msgspec.structs.fields(KINDS[kind]) if field.required]


def numbers_of(kind: str) -> list[tuple[str, float, float]]:
    """Every number with what it may be at least and at most: NaN would be above every number."""
    numbers: list[tuple[str, float, float]] = []
    for name, of_type in _leaves(schema_of(kind), ""):
        if name == "intervalMs":
            numbers.append((name, 1, DAY_MS))
        elif pa.types.is_integer(of_type):
            numbers.append((name, 0, LIFE_MAX if name == "life" else LONG_MAX))
        elif pa.types.is_floating(of_type):
            numbers.append((name, -1 if name.startswith("configured") else 0, NUMBER_MAX))
    return numbers


def _leaves(fields: Any, prefix: str) -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type.fields, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field.type


def _fields(cls: Any) -> list[pa.Field]:
    fields = msgspec.structs.fields(cls)
    return [pa.field(field.encode_name, _type(field.type)) for field in fields]


def _type(annotation: Any) -> pa.DataType:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(args[0])
    if origin in (types.UnionType, typing.Union):
        (inner,) = [arg for arg in args if arg is not type(None)]
        return _type(inner)
    if origin is list:
        return pa.list_(pa.field("element", _type(args[0])))
    if origin is dict:
        return pa.map_(_type(args[0]), _type(args[1]))
    return pa.struct(_fields(annotation))
