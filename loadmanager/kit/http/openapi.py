"""The OpenAPI 3.1 document of the admin API, made from its routes and their declarations."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from loadmanager.kit.http.operation import Operation, Query, operation, operation_of
from loadmanager.kit.http.permits import OPEN
from loadmanager.kit.model import ErrorReason

PATH = "/openapi.json"
JSON = "application/json"
TOKEN = {"type": "http", "scheme": "bearer"}
REF = "#/components/schemas/{name}"
Document = dict[str, Any]

DESCRIPTION = """
Pulsar's paths and bodies, and below `/loadmanager/v1` the project's own. Any broker can be asked;
one that is not responsible answers 307 with the address of the one that is. Every path is also
served with a slash at its end, and `GET` also as `HEAD`. In a path, a slash in the name of a topic
is written `%2F`. With the header `Loadmanager-Follow: true` a broker repeats the request at the
other broker instead of answering 307, and with `Loadmanager-Broker: host:port` at the broker of
that id: for pages and commands that reach one broker only. The paths below
`/loadmanager/v1/peers` are for orders from broker to broker.
"""
COMMON = {
    400: "The request is malformed: the reason names the field.",
    401: "Authentication is on, and the request does not prove whose it is.",
    403: "Authorization is on, and the role may not do this; or a page in a browser asks, from "
    "elsewhere or under a name that is not the broker's.",
    421: "Another broker was to be asked for this one, and would be without TLS.",
    500: "Stored data is corrupt, or a bug: the broker's log tells more.",
    502: "Another broker was to be asked for this one, and cannot be reached.",
    503: "The leader, the metadata store or another broker is not there now: try again.",
    504: "Another broker was to be asked for this one, and did not answer in time.",
}
DAEMON_DESCRIPTION = """
The API of `loadmanager fleet`, the daemon beside a Pulsar cluster: its picture of the cluster, its
advice, and the routes of a leading broker. Orders need the token of a superuser, or come over the
daemon's Unix socket.
`GET` is also served as `HEAD`.
"""
OF_DAEMON = {
    400: COMMON[400],
    401: "Orders need the token of a superuser; reads need a token where tokens are configured.",
    403: "The role may not give orders, or a page in a browser asks, from elsewhere or under a "
    "name that is not the daemon's.",
    500: "A bug: the daemon's log tells more.",
    503: "The brokers of the cluster do not answer now: try again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Whose document it is."""

    title: str
    description: str
    common: Mapping[int, str]
    """What every route may answer."""
    others: bool
    """Whether there are others that may have to be asked instead, and credentials."""


BROKER = About(title="loadmanager", description=DESCRIPTION, common=COMMON, others=True)
DAEMON = About(
    title="loadmanager fleet", description=DAEMON_DESCRIPTION, common=OF_DAEMON, others=False
)
WITH_BODY = {
    408: "The body did not arrive in time.",
    413: "The body is too large.",
}
NOT_JSON = "The body is not JSON by its `Content-Type`, or is compressed."
MISSING = "Something that the path names does not exist."
NOT_ALLOWED = "A name or value is not allowed, or a bundle does not exist."
CHANGED = "It is in use, or somebody else changed it at the same time."
NOT_PULSARS = "The service does not host Pulsar's topics."


class OpenApiRoutes:
    """Serves the document."""

    def __init__(self, version: str, about: About = BROKER) -> None:
        self._version = version
        self._about = about
        self._json = b""

    def routes(self) -> list[web.RouteDef]:
        return [web.get(PATH, self.openapi)]

    @operation(Document)
    async def openapi(self, request: web.Request) -> web.Response:
        """This document."""
        if not self._json:
            routes = request.app.router.routes()
            self._json = msgspec.json.encode(
                document(routes, version=self._version, about=self._about)
            )
        return web.Response(body=self._json, content_type=JSON)


def described(routes: Iterable[web.AbstractRoute]) -> Iterator[tuple[str, str, Any, Operation]]:
    """Method, path, handler and declaration of every route that the document has: without HEAD,
    and without the paths that end with a slash.
    """
    for route in routes:
        path = "" if route.resource is None else route.resource.canonical
        declared = operation_of(route.handler)
        twin = path.endswith("/") and path != "/"
        if declared is not None and route.method != "HEAD" and not twin:
            yield route.method, path, route.handler, declared


def document(
    routes: Iterable[web.AbstractRoute], *, version: str, about: About = BROKER
) -> Document:
    """The whole document."""
    operations = list(described(routes))
    if not about.others:
        operations = [(*route, replace(declared, elsewhere="")) for *route, declared in operations]
    kinds = _kinds(declared for _, _, _, declared in operations)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    schema_of = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: Document = {}
    tags: dict[str, str] = {}
    for method, path, handler, declared in operations:
        module = sys.modules[handler.__module__]
        name = handler.__module__.rpartition(".")[2]
        tags[name] = _first_paragraph(module.__doc__)
        entry = _operation(method, path, declared, about.common, schema_of)
        entry |= {"tags": [name], **_texts(handler.__doc__)}
        paths.setdefault(path, {})[method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": version,
            "description": " ".join(about.description.split()),
        },
        "tags": [{"name": name, "description": text} for name, text in tags.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                str(status): _failure(why, ErrorReason, schema_of)
                for status, why in about.common.items()
            },
            **({"securitySchemes": {"token": TOKEN}} if about.others else {}),
        },
        "security": [{}, {"token": []}] if about.others else [{}],
    }


def _kinds(declared: Iterable[Operation]) -> list[Any]:
    kinds = {repr(ErrorReason): ErrorReason}
    for each in declared:
        answers = each.answer if isinstance(each.answer, tuple) else (each.answer,)
        for kind in (*answers, each.body, each.refusal):
            if kind is not None:
                kinds[repr(kind)] = kind
    return list(kinds.values())


def _operation(
    method: str,
    path: str,
    declared: Operation,
    common: Mapping[int, str],
    schema_of: Mapping[str, Document],
) -> Document:
    meanings = statuses(method, path, declared, common)
    answers = _answers(meanings, declared, common, schema_of)
    entry: Document = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "parameters": [*map(_in_path, _variables(path)), *map(_in_query, declared.query)],
        "responses": {str(status): answer for status, answer in sorted(answers.items())},
    }
    if declared.body is not None:
        entry["requestBody"] = {
            "required": declared.body_required,
            "content": {JSON: {"schema": schema_of[repr(declared.body)]}},
        }
    if path in OPEN:
        entry["security"] = [{}]
    return entry


def statuses(
    method: str, path: str, declared: Operation, of_all: Mapping[int, str]
) -> dict[int, str]:
    """Every status of failures and redirects that a route can answer, with the reason; `of_all`:
    what every route may answer.
    """
    common = dict(of_all)
    if path in OPEN:
        common = {status: meaning for status, meaning in common.items() if status not in (401, 403)}
    if "{" in path:
        common |= {404: MISSING, 412: NOT_ALLOWED}
        if method != "GET":
            common[409] = CHANGED
    if method != "GET":
        common[415] = NOT_JSON
    if "{topic}" in path:
        common[501] = NOT_PULSARS
    if declared.query or declared.body is not None:
        common[412] = NOT_ALLOWED
    if declared.body is not None:
        common |= WITH_BODY
    if declared.elsewhere:
        common[307] = f"Another broker must be asked: {declared.elsewhere}."
    own = {status: _sentence(why) for status, why in declared.also.items()}
    return {**common, **own}


def _answers(
    meanings: Mapping[int, str],
    declared: Operation,
    common: Mapping[int, str],
    schema_of: Mapping[str, Document],
) -> dict[int, Document]:
    answers: dict[int, Document] = {}
    for status, why in meanings.items():
        kind = declared.refusal if status == 409 and declared.refusal is not None else ErrorReason
        if common.get(status) == why:
            answers[status] = {"$ref": f"#/components/responses/{status}"}
            continue
        answers[status] = {"description": why}
        if status == HTTPStatus.NOT_MODIFIED:
            continue
        if status < 400:
            answers[status]["headers"] = {
                "Location": {"required": True, "schema": {"type": "string"}}
            }
        else:
            answers[status] = _failure(why, kind, schema_of)
    if declared.answer is not None:
        answers[200] = {
            "description": HTTPStatus.OK.description,
            "content": {declared.media: {"schema": _schema(declared.answer, schema_of)}},
        }
    elif not any(status < 400 and status != 307 for status in declared.also):
        answers[204] = {"description": "Done."}
    if declared.answer is not None and declared.empty:
        answers[204] = {"description": _sentence(declared.empty)}
    return answers


def _failure(why: str, kind: Any, schema_of: Mapping[str, Document]) -> Document:
    return {"description": why, "content": {JSON: {"schema": schema_of[repr(kind)]}}}


def _schema(kind: Any, schema_of: Mapping[str, Document]) -> Document:
    if isinstance(kind, tuple):
        return {"anyOf": [schema_of[repr(part)] for part in kind]}
    return schema_of[repr(kind)]


def _variables(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def _in_path(name: str) -> Document:
    schema: Document = {"type": "string", "minLength": 1}
    if name == "domain":
        schema = {"enum": ["persistent", "non-persistent"]}
    elif name in ("entries", "time"):
        schema = {
            "type": "string",
            "pattern": r"^-?[0-9]{1,10}$" if name == "entries" else r"^[0-9]{1,18}$",
        }
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(query: Query) -> Document:
    schema: Document = {"type": {bool: "boolean", int: "integer"}.get(query.kind, "string")}
    if query.choices:
        schema["enum"] = list(query.choices)
    for name, value in (
        ("minimum", query.minimum),
        ("maximum", query.maximum),
        ("default", query.default),
    ):
        if value is not None:
            schema[name] = value
    if query.many:
        schema = {"type": "array", "items": schema}
    return {"name": query.name, "in": "query", "description": query.doc, "schema": schema}


def _texts(documentation: str | None) -> Document:
    """Summary and description: the docstring's first paragraph, and the others."""
    first, *others = inspect.cleandoc(documentation or "").split("\n\n")
    texts: Document = {"summary": " ".join(first.split())}
    if others:
        texts["description"] = "\n\n".join(" ".join(text.split()) for text in others)
    return texts


def _first_paragraph(documentation: str | None) -> str:
    return " ".join(inspect.cleandoc(documentation or "").split("\n\n")[0].split()).rstrip(".")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
