"""Schemas of topics (Pulsar's `SchemasResource`)."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.messaging.schema import (
    TYPES,
    IncompatibleSchemaError,
    InvalidSchemaError,
    Schema,
)
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.http.answers import RefusedError, body_object, flag, namespace_of
from loadmanager.kit.http.operation import FORCE, Document, operation
from loadmanager.kit.names import TopicName


class SchemaRoutes:
    """Schemas of topics."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        path = "/admin/v2/schemas/{tenant}/{namespace}/{topic:[^/]+}/schema"
        return [
            web.get(path, self.get),
            web.get(path + "/{version}", self.get),
            web.post(path, self.post),
            web.delete(path, self.delete),
        ]

    @operation(
        Document,
        also={
            404: "there is no such schema; only the latest is kept",
            501: "the schema is not a text",
        },
    )
    async def get(self, request: web.Request) -> web.Response:
        """The schema of a topic: the latest, or a version. Only the latest is kept."""
        stored = await self._use.directory.schemas.get(schema_topic(request))
        wanted = request.match_info.get("version")
        if stored is None or wanted not in (None, str(stored.version)):
            raise NotFoundError("Schema not found")
        assert stored.schema is not None
        kind = TYPES[stored.schema.type]
        try:
            data = stored.schema.data.decode()
        except UnicodeDecodeError:
            data = None
        if data is None or kind == "KEY_VALUE":
            raise RefusedError(501, f"a {kind} schema is served over the binary protocol only")
        return web.json_response(
            {
                "version": stored.version,
                "type": kind,
                "timestamp": stored.timestamp_ms,
                "data": data,
                "properties": stored.schema.properties,
            }
        )

    @operation(
        Document,
        body=Document,
        also={409: "the topic has another schema", 422: "the definition defines none"},
    )
    async def post(self, request: web.Request) -> web.Response:
        """Give a topic its schema; body: `type`, `schema` and `properties`."""
        topic, document = schema_topic(request), await body_object(request)
        kind, data = document.get("type"), document.get("schema", "")
        properties = document.get("properties") or {}
        if kind not in TYPES or kind in ("NONE", "AUTO_CONSUME", "KEY_VALUE"):
            raise RefusedError(422, f"schema type {str(kind)[:40]} cannot be set over HTTP")
        if (
            not isinstance(data, str)
            or not isinstance(properties, dict)
            or not all(isinstance(value, str) for value in properties.values())
        ):
            raise RefusedError(400, "schema must be a text, properties an object of texts")
        schema = Schema(TYPES.index(kind), data.encode(), topic.local, properties)
        try:
            version = await self._use.directory.schemas.add(topic, schema)
        except InvalidSchemaError as error:
            raise RefusedError(422, str(error)) from None
        except IncompatibleSchemaError as error:
            raise RefusedError(409, str(error)) from None
        return web.json_response({"version": {"version": version}})

    @operation(Document, query=(FORCE,), also={404: "there is no schema"})
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a topic's schema, so that it may get another one."""
        flag(request, "force")  # clients are never asked, forced or not
        version = await self._use.directory.schemas.delete(schema_topic(request))
        if version is None:
            raise NotFoundError("Schema not found")
        return web.json_response({"version": version})


def schema_topic(request: web.Request) -> TopicName:
    """The topic of the path; schemas are those of persistent topics."""
    name = f"persistent://{namespace_of(request)}/{request.match_info['topic']}"
    return TopicName.parse(name)
