"""Schemas of topics: which ones are equal, and how one is stored."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from loadmanager.broker.messaging.avro import is_avro
from loadmanager.kit.errors import BadInputError

TYPES = (
    "NONE",
    "STRING",
    "JSON",
    "PROTOBUF",
    "AVRO",
    "BOOLEAN",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "KEY_VALUE",
    "INSTANT",
    "LOCAL_DATE",
    "LOCAL_TIME",
    "LOCAL_DATE_TIME",
    "PROTOBUF_NATIVE",
    "AUTO_CONSUME",
    "EXTERNAL",
)
"""Names of the types (Pulsar's `SchemaType`); the index is `Schema.type` on the wire."""
SCHEMA_BYTES_MAX = 256 * 1024
"""The most bytes that a stored schema takes."""

_JSON, _AVRO, _KEY_VALUE = TYPES.index("JSON"), TYPES.index("AVRO"), TYPES.index("KEY_VALUE")
_DEFINED_BY_AVRO = (_JSON, _AVRO, TYPES.index("PROTOBUF"))
_STRING = TYPES.index("STRING")
_DEFINED_BY_THEIR_TYPE = tuple(
    index
    for index, name in enumerate(TYPES)
    if name.startswith(("BOOLEAN", "INT", "FLOAT", "DOUBLE", "DATE", "TIME", "INSTANT", "LOCAL"))
)
_JSON_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null", "any")
"""Types of a JSON Schema, which old clients send instead of Avro's."""


class IncompatibleSchemaError(BadInputError):
    """A topic has another schema."""


class InvalidSchemaError(IncompatibleSchemaError):
    """A definition does not define a schema of its type."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a client sends it. `type` is an index of `TYPES`."""

    type: int
    data: bytes
    name: str = ""
    properties: dict[str, str] = field(default_factory=dict)

    def check_definition(self) -> None:
        """Raise `InvalidSchemaError` unless the definition defines a schema of its type.

        Pulsar's rules, except that the definitions of KEY_VALUE, PROTOBUF_NATIVE and EXTERNAL
        schemas are not looked at.
        """
        if self.type in _DEFINED_BY_AVRO:
            valid = is_avro(self.data) or (self.type == _JSON and _is_json_schema(self.data))
        elif self.type == _STRING:
            valid = self.data in (b"", b"null")  # the latter from Python clients
        else:
            valid = self.type not in _DEFINED_BY_THEIR_TYPE or not self.data
        if not valid:
            raise InvalidSchemaError(
                f"Invalid schema definition data for {TYPES[self.type]} schema"
            )

    def check_same(self, new: Schema) -> None:
        """Raise `IncompatibleSchemaError` unless `new` is this schema.

        Names and properties do not count, except the properties of a key-value schema, which hold
        the types of its parts. The text of an AVRO or JSON schema counts as a JSON document, so
        that clients of different languages agree.
        """
        if self.type != new.type:
            raise IncompatibleSchemaError(
                f"Incompatible schema: exists schema type {TYPES[self.type]}, new schema type "
                f"{TYPES[new.type]}"
            )
        same = self.data == new.data
        if self.type in (_JSON, _AVRO):
            same = same or _same_document(self.data, new.data)
        if self.type == _KEY_VALUE:
            same = same and self.properties == new.properties
        if not same:
            raise IncompatibleSchemaError(
                f"Incompatible schema: the topic has another schema of type {TYPES[self.type]}, "
                "and a schema never changes; delete it first"
            )


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """The schema of a topic. A deleted one is None; the next one has the next version."""

    version: int
    timestamp_ms: int
    """When it was stored, since the epoch."""
    schema: Schema | None


def _same_document(first: bytes, second: bytes) -> bool:
    try:
        return bool(json.loads(first) == json.loads(second))
    except (ValueError, RecursionError):
        return False


def _is_json_schema(data: bytes) -> bool:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("type") in _JSON_TYPES
