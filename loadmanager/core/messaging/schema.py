"""Schemas of topics: which ones are equal, and how one is stored."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from loadmanager.core.errors import BadInputError

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


class IncompatibleSchemaError(BadInputError):
    """A topic has another schema."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a client sends it. `type` is an index of `TYPES`."""

    type: int
    data: bytes
    name: str = ""
    properties: dict[str, str] = field(default_factory=dict)

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


def _same_document(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False
