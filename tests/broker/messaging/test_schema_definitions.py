"""Definitions that define a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadmanager.broker.messaging.schema import TYPES, InvalidSchemaError, Schema


def defines(kind: str, data: bytes) -> bool:
    """True if the data define a schema of a type."""
    try:
        Schema(TYPES.index(kind), data).check_definition()
    except InvalidSchemaError as error:
        reason = str(error)
    else:
        return True
    assert reason == f"Invalid schema definition data for {kind} schema"
    return False


def a_record(*fields: Any, name: Any = "Order") -> dict[str, Any]:
    """An Avro record."""
    return {"type": "record", "name": name, "fields": [*fields]}


@pytest.mark.parametrize(
    "document",
    [
        "string",
        {"type": "long", "logicalType": "timestamp-millis"},
        a_record(),
        a_record({"name": "a", "type": ["null", "string"], "default": None}, name="org.x.Outer$In"),
        a_record({"name": "next", "type": ["null", "Order"]}),
        a_record({"name": "next", "type": "org.x.Order"}, name="org.x.Order"),
        a_record({"name": "a", "type": {"type": "array", "items": a_record(name="Inner")}}),
        a_record({"name": "a", "type": {"type": "map", "values": "int"}}),
        a_record({"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}}),
        a_record({"name": "a", "type": {"type": "fixed", "name": "F", "size": 4}}),
    ],
)
def test_avro(document: Any) -> None:
    """Primitive types, records, their fields, and references to types defined before."""
    for kind in ("AVRO", "JSON", "PROTOBUF"):
        assert defines(kind, json.dumps(document).encode()), kind


@pytest.mark.parametrize(
    "document",
    [
        "no such type",
        5,
        None,
        {},
        ["null", "string"],
        {"type": ["null", "string"]},
        {"type": "record", "name": "Order"},
        a_record(name=""),
        a_record(name="a-b"),
        a_record(name="5"),
        a_record(name=5),
        a_record("a"),
        a_record({"name": "a"}),
        a_record({"name": "a b", "type": "int"}),
        a_record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}),
        a_record({"name": "a", "type": "Undefined"}),
        a_record({"name": "a", "type": {"type": "array"}}),
        a_record({"name": "a", "type": {"type": "enum", "name": "E", "symbols": "X"}}),
        a_record({"name": "a", "type": {"type": "fixed", "name": "F", "size": -1}}),
    ],
)
def test_not_avro(document: Any) -> None:
    """A JSON document that is not an Avro schema, or a union, as in Pulsar."""
    for kind in ("AVRO", "JSON", "PROTOBUF"):
        assert not defines(kind, json.dumps(document).encode()), kind


@pytest.mark.parametrize("data", [b"", b"not avro", b"{", b"\xff", b"[" * 100_000])
def test_not_json(data: bytes) -> None:
    """What is not JSON defines no structure."""
    for kind in ("AVRO", "JSON", "PROTOBUF"):
        assert not defines(kind, data), kind


def test_json_schema() -> None:
    """Old clients describe JSON by a JSON Schema."""
    old = json.dumps({"type": "object", "id": "urn:x", "properties": {}}).encode()
    assert defines("JSON", old)
    assert not defines("AVRO", old)


def test_types_without_a_definition() -> None:
    """Their type says all; Python clients send `null` for a string."""
    assert defines("STRING", b"")
    assert defines("STRING", b"null")
    assert not defines("STRING", b"x")
    for kind in ("INT32", "BOOLEAN", "LOCAL_DATE", "INSTANT", "TIMESTAMP", "DOUBLE"):
        assert defines(kind, b"")
        assert not defines(kind, b"x")
    assert defines("KEY_VALUE", b"anything")
