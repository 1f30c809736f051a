"""Moves, pins and cordons: what operators ask of the leader. No route is Pulsar's."""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET, UnsetType

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.kit.audit import nothing_changed
from loadmanager.kit.http.answers import flag, namespace_of, shown
from loadmanager.kit.http.operation import Query, body_as, of_leader
from loadmanager.kit.model import Model, Name
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.documents.moves import (
    Cancelled,
    CordonShown,
    Merged,
    Moved,
    MovesShown,
    NothingMoved,
    PauseShown,
    PinShown,
)
from loadmanager.leader.http.use import LeaderUse, operations
from loadmanager.leader.ports.operating import LeaderOperations

MOVES = "/loadmanager/v1/moves"
PINS = "/loadmanager/v1/pins"
CORDONS = "/loadmanager/v1/cordons"
MERGES = "/loadmanager/v1/merges"
LIMIT = Query(
    name="limit", doc="At most so many.", kind=int, minimum=1, maximum=10_000, default=100
)
DRAIN = Query(name="drain", doc="Also move its bundles away.", kind=bool)
UNTIL_RESTART = Query(name="untilRestart", doc="End the cordon when the broker is back.", kind=bool)


class MoveWanted(Model):
    """A bundle, and where it is to go; `pinSeconds`: for how long it is to stay there."""

    bundle: Name
    destination: Name
    pin_seconds: float | UnsetType = UNSET
    note: str = ""


class PauseWanted(Model):
    """For how long no move shall begin."""

    seconds: float
    note: str = ""


class CordonWanted(Model):
    """Why, for others."""

    note: str = ""


class MergeWanted(Model):
    """Two neighbouring ranges of a namespace, in any order."""

    namespace: Name
    first: Name
    second: Name


class MoveRoutes:
    """The leader's queue of moves, and what operators want of the balancer."""

    def __init__(self, use: LeaderUse) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        pin = PINS + "/{tenant}/{namespace}/{bundle}"
        return [
            web.get(MOVES, self.moves),
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
        return operations(self._use)

    @of_leader(MovesShown, query=(LIMIT,))
    async def moves(self, request: web.Request) -> web.Response:
        """The moves that wait or are under way, and the last ones that ended."""
        limit = LIMIT.whole(request)
        return shown(self._operations().list_moves(limit))

    @of_leader(
        (Moved, NothingMoved),
        body=MoveWanted,
        also={
            404: "there is no such namespace",
            409: "the destination is cordoned or not active, or the bundle is moving already",
            412: "there is no such bundle, or a value is not allowed",
            503: "the bundle did not get there",
        },
    )
    async def move(self, request: web.Request) -> web.Response:
        """Move a bundle, wait for the outcome, and pin the bundle there if that is wanted. One that
        is pinned already stays pinned until the same time, there.
        """
        leader, wanted = self._operations(), await body_as(request, MoveWanted)
        namespace, bundle_range = split_bundle_name(wanted.bundle)
        bundles = await self._use.namespaces.bundles(NamespaceName.parse(namespace))
        moved = await leader.move(
            f"{namespace}/{bundles.require(bundle_range)}",
            wanted.destination.partition("://")[2] or wanted.destination,
            pin_s=None if wanted.pin_seconds is UNSET else wanted.pin_seconds,
            note=wanted.note,
        )
        return shown(moved)

    @of_leader(Cancelled)
    async def cancel_all(self, _request: web.Request) -> web.Response:
        """Cancel every move that has not begun."""
        cancelled = self._operations().cancel(None)
        if not cancelled:
            nothing_changed()
        return shown(Cancelled(cancelled=cancelled))

    @of_leader(Cancelled, also={404: "there is no such move", 409: "it has begun or ended"})
    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a move that has not begun, and the others of its swap."""
        return shown(Cancelled(cancelled=self._operations().cancel(request.match_info["id"])))

    @of_leader(PauseShown, body=PauseWanted, also={412: "a value is not allowed"})
    async def pause(self, request: web.Request) -> web.Response:
        """Let no move begin for a time, except those that an operator orders one by one; and no
        bundle be split or merged by itself.
        """
        leader, wanted = self._operations(), await body_as(request, PauseWanted)
        pause = await leader.pause(wanted.seconds, wanted.note)
        return shown(pause)

    @of_leader()
    async def resume(self, _request: web.Request) -> web.Response:
        """End the pause."""
        await self._operations().pause(None)
        return web.Response(status=204)

    @of_leader(dict[str, PinShown])
    async def pins(self, _request: web.Request) -> web.Response:
        """The bundles that the balancer leaves where they are, each with its pin."""
        return shown(self._operations().pins())

    @of_leader(also={404: "the bundle is not pinned"})
    async def unpin(self, request: web.Request) -> web.Response:
        """Remove the pin of a bundle."""
        await self._operations().unpin(f"{namespace_of(request)}/{request.match_info['bundle']}")
        return web.Response(status=204)

    @of_leader(list[CordonShown])
    async def cordons(self, _request: web.Request) -> web.Response:
        """The brokers that get no new bundles, with the progress of their drains."""
        return shown(self._operations().cordons())

    @of_leader(
        CordonShown,
        query=(DRAIN, UNTIL_RESTART),
        body=CordonWanted,
        body_required=False,
        also={
            404: "the broker is not active",
            409: "it is the last broker that is not cordoned",
            412: "a value is not allowed",
        },
    )
    async def cordon(self, request: web.Request) -> web.Response:
        """Send no new bundle to a broker; `?drain=true` also moves its bundles away, at the pace of
        the queue; `?untilRestart=true` ends the cordon when the broker is back; body `{"note"?}`.
        """
        leader = self._operations()
        cordoned = await leader.cordon(
            request.match_info["broker"],
            drain=flag(request, DRAIN.name),
            until_restart=flag(request, UNTIL_RESTART.name),
            note=(await body_as(request, CordonWanted)).note,
        )
        return shown(cordoned)

    @of_leader(also={404: "the broker is not cordoned"})
    async def uncordon(self, request: web.Request) -> web.Response:
        """Let a broker have bundles again; its drain ends."""
        await self._operations().uncordon(request.match_info["broker"])
        return web.Response(status=204)

    @of_leader(
        Merged,
        body=MergeWanted,
        also={
            404: "there is no such namespace",
            409: "a bundle is pinned or being moved",
            412: "there is no such bundle, or they are not neighbours",
            503: "it could not be done",
        },
    )
    async def merge(self, request: web.Request) -> web.Response:
        """Merge two neighbouring bundles of a namespace; body `{"namespace", "first", "second"}`:
        their ranges, in any order.

        Topics stay open and stored topics keep their data; the second bundle moves to the broker of
        the first if need be.
        """
        leader, wanted = self._operations(), await body_as(request, MergeWanted)
        namespace = NamespaceName.parse(wanted.namespace)
        bundles = await self._use.namespaces.bundles(namespace)
        left, right = sorted((bundles.require(wanted.first), bundles.require(wanted.second)))
        bundles.merge(left, right)
        merged = await leader.merge(f"{namespace}/{left}", f"{namespace}/{right}")
        return shown(Merged(merged=merged))
