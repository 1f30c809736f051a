"""The schemas of topics in the metadata store: one for each topic, shared by its partitions.

A topic keeps its first schema until an operator deletes it.
"""

from __future__ import annotations

import msgspec

from loadmanager.broker.messaging.schema import SCHEMA_BYTES_MAX, TYPES, Schema, StoredSchema
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Node, Store, VersionConflictError
from loadmanager.kit.names import TopicName
from loadmanager.member.namespaces import Namespaces

ATTEMPTS_MAX = 7
"""How often a schema is stored while others store theirs."""


class StoredSchemas:
    """Implements `broker.ports.directory.Schemas`."""

    def __init__(
        self, store: Store, namespaces: Namespaces, clock: Clock, corrupt: Corrupt | None = None
    ) -> None:
        self._store = store
        self._namespaces = namespaces
        self._clock = clock
        self._corrupt = corrupt or Corrupt()

    async def get(self, topic: TopicName) -> StoredSchema | None:
        """The schema of a topic; None if it has none."""
        path = paths.schema(topic)
        stored = self._decode(await self._store.get(path), path)
        return None if stored is None or stored.schema is None else stored

    async def add(self, topic: TopicName, schema: Schema) -> int:
        """The version of a topic's schema, which is stored if the topic has none.

        Raises `IncompatibleSchemaError` if the topic has another schema, `InvalidSchemaError` for
        a definition that defines none, and `BadInputError` for a schema that is too large or a
        namespace that does not exist.
        """
        path = paths.schema(topic)
        for _ in range(ATTEMPTS_MAX):
            node = await self._store.get(path)
            stored = self._decode(node, path)
            if stored is not None and stored.schema is not None:
                stored.schema.check_same(schema)
                return stored.version
            schema.check_definition()
            await self._namespaces.bundles(topic.namespace)
            version = 0 if stored is None else stored.version + 1
            if await self._write(path, node, version, schema):
                return version
        raise OperationalError(f"the schema of {topic} is being changed; try again")

    async def delete(self, topic: TopicName) -> int | None:
        """Delete a topic's schema; returns the version that the deletion has, None without one.

        The record stays: messages of the old schema must not be read with the next one.
        """
        path = paths.schema(topic)
        for _ in range(ATTEMPTS_MAX):
            node = await self._store.get(path)
            stored = self._decode(node, path)
            if stored is None or stored.schema is None:
                return None
            if await self._write(path, node, stored.version + 1, None):
                return stored.version + 1
        raise OperationalError(f"the schema of {topic} is being changed; try again")

    async def _write(
        self, path: str, node: Node | None, version: int, schema: Schema | None
    ) -> bool:
        """Store a version in place of `node`; False if others changed it meanwhile."""
        stored = StoredSchema(version, self._clock.now_ms(), schema)
        value = msgspec.json.encode(stored)
        if len(value) > SCHEMA_BYTES_MAX:
            raise BadInputError(
                f"a schema of {len(value)} bytes is larger than the {SCHEMA_BYTES_MAX} allowed"
            )
        if node is None:
            return await self._store.create(path, value)
        try:
            await self._store.put(path, value, version=node.version)
        except VersionConflictError:
            return False
        return True

    def _decode(self, node: Node | None, path: str) -> StoredSchema | None:
        """Raises `CorruptDataError`."""
        if node is None:
            return None
        with self._corrupt.counted("schema", path):
            stored = msgspec.json.decode(node.value, type=StoredSchema)
            if stored.version < 0 or (stored.schema and not 0 <= stored.schema.type < len(TYPES)):
                raise BadInputError("the version or the type is out of range")
            return stored
