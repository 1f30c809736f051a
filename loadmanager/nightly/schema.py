"""Spark schemas of the history's records, derived from `engine.history.records`: there is one
definition of a record.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from loadmanager.engine.history.records import KINDS
from loadmanager.engine.load.reports import NUMBER_MAX
from loadmanager.kit.units import DAY_MS

RESOURCES = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
LONG_MAX = 10**13
"""An upper bound of times in ms and of counts."""
LIFE_MAX = 2**63 - 1
"""An upper bound of ids of transactions."""

_PLAIN: dict[Any, DataType] = {
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    bool: BooleanType(),
}


def schema_of(kind: str) -> StructType:
    """The schema of one kind of records, with the JSON's names."""
    return _struct(KINDS[kind])


def required_of(kind: str) -> list[str]:
    """Fields that every record must have."""
    return [field.encode_name for field in msgspec.structs.fields(KINDS[kind]) if field.required]


def numbers_of(kind: str) -> list[tuple[str, float, float]]:
    """Every number with what it may be at least and at most.

    Spark sorts NaN above every number.
    """
    numbers: list[tuple[str, float, float]] = []
    for name, of_type in _leaves(schema_of(kind), ""):
        if name == "intervalMs":
            numbers.append((name, 1, DAY_MS))
        elif isinstance(of_type, LongType):
            numbers.append((name, 0, LIFE_MAX if name == "life" else LONG_MAX))
        elif isinstance(of_type, DoubleType):
            numbers.append((name, -1 if name.startswith("configured") else 0, NUMBER_MAX))
    return numbers


def _leaves(struct: StructType, prefix: str) -> Iterator[tuple[str, DataType]]:
    for field in struct.fields:
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field.dataType


def _struct(cls: Any) -> StructType:
    return StructType(
        [StructField(field.encode_name, _type(field.type)) for field in msgspec.structs.fields(cls)]
    )


def _type(annotation: Any) -> DataType:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(args[0])
    if origin in (types.UnionType, typing.Union):
        (inner,) = [arg for arg in args if arg is not type(None)]
        return _type(inner)
    if origin is list:
        return ArrayType(_type(args[0]))
    if origin is dict:
        return MapType(_type(args[0]), _type(args[1]))
    return _struct(annotation)
