"""Every answer of the admin API in the tests is one that the OpenAPI document has."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema_rs
from aiohttp import web

from loadmanager.kit.http.openapi import BROKER, About, document, operation_of

DRIFT = "an answer that the OpenAPI document does not have"


class Contract:
    """The document of one server, ready to check answers."""

    def __init__(self, application: web.Application, about: About = BROKER) -> None:
        self._routes = [
            route for route in application.router.routes() if operation_of(route.handler)
        ]
        self.document = document(application.router.routes(), version="test", about=about)
        self._validator = cache(self._make_validator)

    def check(self, method: str, path: str, status: int, media: str, text: str) -> None:
        """Raise `AssertionError` unless the document has this answer."""
        found = self._operation("GET" if method == "HEAD" else method, path)
        if found is None:  # 404 and 405 of what is not served
            return
        template, method = found
        responses = self.document["paths"][template][method]["responses"]
        where = f"{DRIFT}: {method} {template}: {status} {media} {text[:300]}"
        assert str(status) in responses, where
        answer = responses[str(status)]
        if "$ref" in answer:
            answer = self.document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        content = answer.get("content", {})
        if not content:
            assert not text, where
            return
        ((expected, schema),) = content.items()
        assert expected in ("*/*", media) or media == expected.partition(";")[0], where
        if expected == "application/json" and text:
            errors = self._validator(json.dumps(schema["schema"])).iter_errors(json.loads(text))
            assert not (problems := [str(error) for error in errors]), (where, problems[:3])

    def _operation(self, method: str, path: str) -> tuple[str, str] | None:
        path = path.partition("?")[0].rstrip("/") or "/"
        for route in self._routes:
            assert route.resource is not None
            info: Any = route.resource.get_info()
            matches = info.get("path") == path or (
                "pattern" in info and info["pattern"].fullmatch(path)
            )
            if route.method == method and matches:
                return route.resource.canonical, method.lower()
        return None

    def _make_validator(self, schema: str) -> Any:
        """Readers pass over fields that they do not know; here each field must be documented."""
        schemas = {
            name: {"additionalProperties": False, **each} if each.get("properties") else each
            for name, each in self.document["components"]["schemas"].items()
        }
        components = {"components": {"schemas": schemas}}
        return jsonschema_rs.Draft202012Validator({**json.loads(schema), **components})
