"""Moves, pins and cordons: what operators ask of the leader. No route is Pulsar's."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from loadmanager.adapters.admin.answers import (
    RefusedError,
    body_object,
    flag,
    load_manager,
    namespace_of,
    whole,
)
from loadmanager.adapters.admin.use_cases import LeaderOperations, UseCases
from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.bundles.ranges import split_bundle_name

MOVES = "/admin/v2/loadmanager/moves"
PINS = "/admin/v2/loadmanager/pins"
CORDONS = "/admin/v2/loadmanager/cordons"
MERGES = "/admin/v2/loadmanager/merges"
MOVES_MAX = 10_000


class MoveRoutes:
    """The leader's queue of moves, and what operators want of the balancer."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        pin = PINS + "/{tenant}/{namespace}/{bundle}"
        return [
            web.get(MOVES, self.list),
            web.post(MOVES, self.move),
            web.delete(MOVES, self.cancel_all),
            web.put(MOVES + "/pause", self.pause),
            web.delete(MOVES + "/pause", self.resume),
            web.delete(MOVES + "/{id}", self.cancel),
            web.get(PINS, self.pins),
            web.delete(pin, self.unpin),
            web.get(CORDONS, self.cordons),
            web.put(CORDONS + "/{broker}", self.cordon),
            web.delete(CORDONS + "/{broker}", self.uncordon),
            web.post(MERGES, self.merge),
        ]

    def _operations(self) -> LeaderOperations:
        load_manager(self._use)
        assert self._use.leading.operations is not None
        return self._use.leading.operations

    async def list(self, request: web.Request) -> web.Response:
        """The moves that wait or are under way, and the last ones that ended; `?limit=`.

        Answers: 200, JSON; 307 to the leader; 503 without a leader.
        """
        limit = whole(request, "limit", 100, minimum=1, maximum=MOVES_MAX)
        return web.json_response(self._operations().list_moves(limit))

    async def move(self, request: web.Request) -> web.Response:
        """Move a bundle and wait for the outcome; body `{"bundle", "destination", "pinSeconds"?,
        "note"?}`.

        Answers: 200, JSON, the move; 307 to the leader; 404; 409 for a destination that is cordoned
        or not active; 412 for an unknown bundle; 503 when the bundle did not get there.
        """
        operations, document = self._operations(), await body_object(request)
        bundle, destination = _text(document, "bundle"), _text(document, "destination")
        namespace, bundle_range = split_bundle_name(bundle)
        bundles = await self._use.namespaces.bundles(NamespaceName.parse(namespace))
        moved = await operations.move(
            f"{namespace}/{bundles.require(bundle_range)}",
            destination.partition("://")[2] or destination,
            pin_s=_number(document, "pinSeconds") if "pinSeconds" in document else None,
            note=_text(document, "note", ""),
        )
        return web.json_response(moved)

    async def cancel_all(self, _request: web.Request) -> web.Response:
        """Cancel every move that has not begun.

        Answers: 200 `{"cancelled": number}`; 307 to the leader; 503 without a leader.
        """
        return web.json_response({"cancelled": self._operations().cancel(None)})

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a move that has not begun, and the others of its swap.

        Answers: 200 `{"cancelled": number}`; 307 to the leader; 404; 409 for a move that has begun
        or ended; 503 without a leader.
        """
        return web.json_response({"cancelled": self._operations().cancel(request.match_info["id"])})

    async def pause(self, request: web.Request) -> web.Response:
        """Let no move begin for a time; body `{"seconds", "note"?}`. Moves that single requests of
        operators ask for are not held.

        Answers: 200, JSON, the pause; 307 to the leader; 503 without a leader.
        """
        operations, document = self._operations(), await body_object(request)
        pause = await operations.pause(_number(document, "seconds"), _text(document, "note", ""))
        return web.json_response(pause)

    async def resume(self, _request: web.Request) -> web.Response:
        """End the pause.

        Answers: 204; 307 to the leader; 503 without a leader.
        """
        await self._operations().pause(None)
        return web.Response(status=204)

    async def pins(self, _request: web.Request) -> web.Response:
        """The bundles that the balancer leaves where they are: bundle → broker, until when, note.

        Answers: 200, JSON; 307 to the leader; 503 without a leader.
        """
        return web.json_response(self._operations().pins())

    async def unpin(self, request: web.Request) -> web.Response:
        """Remove the pin of a bundle.

        Answers: 204; 307 to the leader; 404 without a pin; 503 without a leader.
        """
        await self._operations().unpin(f"{namespace_of(request)}/{request.match_info['bundle']}")
        return web.Response(status=204)

    async def cordons(self, _request: web.Request) -> web.Response:
        """The brokers that get no new bundles, with the progress of their drains.

        Answers: 200, JSON; 307 to the leader; 503 without a leader.
        """
        return web.json_response(self._operations().cordons())

    async def cordon(self, request: web.Request) -> web.Response:
        """Send no new bundle to a broker; `?drain=true` also moves its bundles away, at the pace of
        the queue; body `{"note"?}`.

        Answers: 200, JSON; 307 to the leader; 404; 409 for the last broker that is not cordoned;
        503 without a leader.
        """
        operations, drain = self._operations(), flag(request, "drain")
        note = _text(await body_object(request), "note", "")
        broker = request.match_info["broker"]
        return web.json_response(await operations.cordon(broker, drain=drain, note=note))

    async def uncordon(self, request: web.Request) -> web.Response:
        """Let a broker have bundles again; its drain ends.

        Answers: 204; 307 to the leader; 404 for a broker that is not cordoned; 503 without a
        leader.
        """
        await self._operations().uncordon(request.match_info["broker"])
        return web.Response(status=204)

    async def merge(self, request: web.Request) -> web.Response:
        """Merge two neighbouring bundles of a namespace; body `{"namespace", "first", "second"}`:
        their ranges, in any order.

        Topics stay open and stored topics keep their data; the second bundle moves to the broker of
        the first if need be. Answers: 200 `{"merged": bundle}`; 307 to the leader; 404; 409 for a
        pinned bundle, or one that is being moved; 412 for unknown bundles, or no neighbours; 503
        when it could not be done.
        """
        operations, document = self._operations(), await body_object(request)
        namespace = NamespaceName.parse(_text(document, "namespace"))
        bundles = await self._use.namespaces.bundles(namespace)
        first, second = (bundles.require(_text(document, name)) for name in ("first", "second"))
        left, right = sorted((first, second))
        bundles.merge(left, right)
        merged = await operations.merge(f"{namespace}/{left}", f"{namespace}/{right}")
        return web.json_response({"merged": merged})


def _text(document: dict[str, Any], field: str, default: str | None = None) -> str:
    value = document.get(field, default)
    if not isinstance(value, str):
        raise RefusedError(400, f"{field} must be a text")
    return value


def _number(document: dict[str, Any], field: str) -> float:
    value = document.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(400, f"{field} must be a number")
    return value
