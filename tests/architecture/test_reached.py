"""What is declared is reached: each route by its own path, each metric by what counts it."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from architecture.product import modules

from loadmanager.broker.admin.server import AdminServer
from loadmanager.steer.http.fleet import FleetServer
from loadmanager.steer.http.fleet_access import FleetApiSettings, FleetGuard

WORDS = ("any", "7", "0x00000000_0xffffffff", "persistent", "enabled")
"""What the variables of a path may be."""


# Routes


class Anything:
    """Stands for every use case: routes are made, never called."""

    def __getattr__(self, _name: str) -> Any:
        return Anything()


def broker() -> web.Application:
    """The admin API of a broker."""
    anything: Any = Anything()
    made = AdminServer(anything, anything, cluster="", version="", metrics=anything.metrics)
    return made.application


def fleet() -> web.Application:
    """The API of the daemon beside a Pulsar cluster."""
    anything: Any = Anything()
    guard = FleetGuard(settings=FleetApiSettings(), verifier=None, clock=anything)
    return FleetServer(anything, guard, version="").application


@pytest.mark.parametrize("application", [broker, fleet])
async def test_no_route_hides_another(application: Callable[[], web.Application]) -> None:
    """A request for the path of a route gets to that route, for some values of its variables."""
    assert await hidden(application().router) == []


async def test_a_route_that_is_hidden_is_found() -> None:
    """The route above, of two that take one path."""
    application = web.Application()

    async def first(_request: web.Request) -> web.Response:
        return web.Response()

    async def second(_request: web.Request) -> web.Response:
        return web.Response()

    async def third(_request: web.Request) -> web.Response:
        return web.Response()

    application.router.add_routes([web.get("/a/{x}/b", first), web.get("/a/{y}/{z}", second)])
    assert await hidden(application.router) == []
    application.router.add_routes([web.get("/a/{x}/c", third)])
    assert await hidden(application.router) == [("GET", "/a/{x}/c")]


async def hidden(router: web.UrlDispatcher) -> list[tuple[str, str]]:
    """Method and path of the routes whose path leads elsewhere for all values of its variables."""
    routes = [
        (route, route.resource)
        for route in router.routes()
        if route.method not in ("HEAD", "*") and route.resource is not None
    ]
    return [
        (route.method, resource.canonical)
        for route, resource in routes
        if not resource.canonical.endswith("/")  # the same route again
        and not await _is_reached(router, route, resource)
    ]


async def _is_reached(
    router: web.UrlDispatcher, route: web.AbstractRoute, resource: web.AbstractResource
) -> bool:
    before, _, after = resource.canonical.rpartition("{")
    for others, last in itertools.product(WORDS, repeat=2):
        path = re.sub(r"\{\w+\}", others, before) + re.sub(r"^\w+\}", last, after)
        match = await router.resolve(make_mocked_request(route.method, path))
        if match.http_exception is None and match.handler is route.handler:
            return True
    return False


# Metrics

DECLARED_BY = {"counter", "gauge", "Metric"}


def test_every_metric_is_sampled() -> None:
    """Nobody declares a metric that no code reads."""
    trees = modules()
    declared = {
        (path, target.id)
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign) and _declares(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert len(declared) > 80
    elsewhere = {name for tree in trees.values() for name in _taken(tree)}
    assert {
        (path, name)
        for path, name in declared
        if name not in elsewhere and name not in set(_loaded(trees[path]))
    } == set()


def test_every_number_on_the_page_is_counted() -> None:
    """A number that a sample shows, and that begins with 0, is changed by the module that has it,
    counted up by another one, or given to the constructor.
    """
    trees = modules()
    shown = {
        value.attr
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sample"
        and node.args
        and isinstance(value := node.args[0], ast.Attribute)
    }
    numbers = {(path, *begun) for path, tree in trees.items() for begun in _begun(tree)}
    assert len(shown & {name for _, name, _ in numbers}) > 20
    counted = {name for tree in trees.values() for name in _counted(tree)}
    given = {name for tree in trees.values() for name in _given(tree)}
    assert {
        (path, name)
        for path, name, is_field in numbers
        if name in shown
        and name not in counted
        and not (is_field and name in given)
        and name not in set(_changed(trees[path]))
    } == set()


def _begun(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """The attributes that are 0 at the start, and whether they are fields of a class."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant(value=0)):
                yield name, False
            case ast.AnnAssign(target=ast.Attribute(attr=name), value=ast.Constant(value=0)):
                yield name, False
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=0)):
                yield name, True


def _given(tree: ast.Module) -> Iterator[str]:
    """The arguments that are given by name and are no constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg and not isinstance(node.value, ast.Constant):
            yield node.arg


def _counted(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
            yield node.target.attr


def _loaded(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def _taken(tree: ast.Module) -> Iterator[str]:
    """The names that a module takes from others."""
    for node in ast.walk(tree):
        match node:
            case ast.alias(name=name) | ast.Attribute(attr=name, ctx=ast.Load()):
                yield name


def _declares(value: ast.expr) -> bool:
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id in DECLARED_BY for call in calls)


def _changed(tree: ast.Module) -> Iterator[str]:
    """The attributes that get values which are no constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            for part in itertools.chain(*map(ast.walk, node.targets)):
                if isinstance(part, ast.Attribute):
                    yield part.attr
