"""The OpenAPI document has every route and nothing else; answers that it has not are noticed."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
from broker.admin.contract import DRIFT, Contract
from broker.admin.serving import serving

from loadmanager.kit.http.openapi import operation_of


async def test_the_document_has_every_route() -> None:
    """Method by method; each twin with a slash, and HEAD, has the handler of a route that is in."""
    async with serving(1) as served:
        answer = await served.ask("GET", "/openapi.json")
        document = answer.body
        assert (answer.status, document["openapi"]) == (200, "3.1.0")
        described = {
            (method.upper(), path) for path, entry in document["paths"].items() for method in entry
        }
        routes = {
            (route.method, route.resource.canonical)
            for route in served.servers[0].application.router.routes()
            if route.resource is not None
        }
        others = routes - described
        assert described <= routes
        for method, path in others:
            assert ("GET" if method == "HEAD" else method, path.rstrip("/") or "/") in described, (
                path
            )


async def test_the_document_is_sound() -> None:
    """Names of operations are unique, references lead somewhere, variables of paths are declared,
    and every schema is one.
    """
    async with serving(1) as served:
        document = await served.get("/openapi.json")
    operations = [
        (path, entry) for path, methods in document["paths"].items() for entry in methods.values()
    ]
    names = [entry["operationId"] for _, entry in operations]
    assert len(set(names)) == len(names)
    for path, entry in operations:
        declared = {one["name"] for one in entry["parameters"] if one["in"] == "path"}
        assert declared == {part[1:-1] for part in path.split("/") if part[:1] == "{"}, path
        assert entry["summary"], path
        assert {"200", "204", "302"} & entry["responses"].keys(), path
    text = json.dumps(document)
    for kind in ("schemas", "responses"):
        for part in text.split(f"#/components/{kind}/")[1:]:
            assert part.partition('"')[0] in document["components"][kind]
    components = {"components": {"schemas": document["components"]["schemas"]}}
    for name in document["components"]["schemas"]:
        jsonschema_rs.Draft202012Validator({"$ref": f"#/components/schemas/{name}", **components})


async def test_every_handler_declares_what_it_answers() -> None:
    """A route without a declaration would be missing in the document."""
    async with serving(1) as served:
        for route in served.servers[0].application.router.routes():
            assert operation_of(route.handler) is not None, route


@pytest.mark.parametrize(
    ("status", "media", "text"),
    [
        (418, "application/json", "{}"),
        (200, "text/html", "[]"),
        (200, "application/json", '[{"no": "name"}]'),
        (204, "application/octet-stream", ""),
    ],
)
async def test_other_answers_are_noticed(status: int, media: str, text: str) -> None:
    """A status, a media type or a body that the document does not have fails a test."""
    async with serving(1) as served:
        contract = Contract(served.servers[0].application)
        with pytest.raises(AssertionError, match=DRIFT):
            contract.check("GET", "/admin/v2/tenants", status, media, text)
        contract.check("GET", "/admin/v2/tenants", 200, "application/json", '["acme"]')
