"""Orders to reach goals: plans of many moves. No route is Pulsar's."""

from __future__ import annotations

import msgspec
from aiohttp import web

from loadmanager.engine.plans.goals import Apart, Emptied, Even, Filled, Goal, PlanLimits, Spare
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import body_as, of_leader
from loadmanager.kit.model import Model
from loadmanager.leader.documents.goals import GoalShown, GoalsShown
from loadmanager.leader.http.use import LeaderUse, operations
from loadmanager.leader.ports.operating import Goals

GOALS = "/loadmanager/v1/goals"
UNKNOWN = {404: "there is no such goal"}


class EvenWanted(Even, frozen=True, tag="even", forbid_unknown_fields=True):
    """`Even` as it is ordered: other fields than its own are refused."""


class FilledWanted(Filled, frozen=True, tag="filled", forbid_unknown_fields=True):
    """`Filled` as it is ordered: other fields than its own are refused."""


class EmptiedWanted(Emptied, frozen=True, tag="emptied", forbid_unknown_fields=True):
    """`Emptied` as it is ordered: other fields than its own are refused."""


class SpareWanted(Spare, frozen=True, tag="spare", forbid_unknown_fields=True):
    """`Spare` as it is ordered: other fields than its own are refused."""


class ApartWanted(Apart, frozen=True, tag="apart", forbid_unknown_fields=True):
    """`Apart` as it is ordered: other fields than its own are refused."""


class LimitsWanted(PlanLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a goal. Others than these are refused: whoever sent one relies on it."""


class GoalWanted(Model):
    """A goal, and what may be spent on it. With `approve`, it is carried out at once."""

    goal: EvenWanted | FilledWanted | EmptiedWanted | SpareWanted | ApartWanted
    limits: LimitsWanted = LimitsWanted()
    note: str = ""
    approve: bool = False


class Approval(Model):
    """When the first move may be made, in milliseconds since the epoch; 0: now."""

    from_ms: int = 0


class GoalRoutes:
    """Proposes, approves and stops plans towards goals."""

    def __init__(self, use: LeaderUse) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(GOALS, self.goals),
            web.post(GOALS, self.propose),
            web.get(GOALS + "/{id}", self.goal),
            web.post(GOALS + "/{id}/approve", self.approve),
            web.post(GOALS + "/{id}/stop", self.stop),
        ]

    def _goals(self) -> Goals:
        return operations(self._use).goals

    @of_leader(GoalsShown)
    async def goals(self, _request: web.Request) -> web.Response:
        """The last 50 orders, the newest first."""
        return shown(self._goals().list())

    @of_leader(
        GoalShown,
        body=GoalWanted,
        also={404: "the broker is not active", 409: "too many are kept", 412: "a bad value"},
    )
    async def propose(self, request: web.Request) -> web.Response:
        """Plan all moves towards a goal, and show what they would come to. Nothing moves before the
        order is approved.
        """
        wanted = await body_as(request, GoalWanted)
        goal = msgspec.convert(msgspec.to_builtins(wanted.goal), Goal)
        order = await self._goals().propose(
            goal, wanted.limits, wanted.note, approve=wanted.approve
        )
        return shown(order)

    @of_leader(GoalShown, also=UNKNOWN)
    async def goal(self, request: web.Request) -> web.Response:
        """One order: what was promised beside what has come of it."""
        return shown(self._goals().goal(request.match_info["id"]))

    @of_leader(
        GoalShown,
        body=Approval,
        body_required=False,
        also={**UNKNOWN, 409: "it is approved already, or has ended", 412: "a bad time"},
    )
    async def approve(self, request: web.Request) -> web.Response:
        """Let an order be carried out: a few moves, a look at fresh figures, the next moves."""
        approval = await body_as(request, Approval)
        return shown(await self._goals().approve(request.match_info["id"], approval.from_ms))

    @of_leader(GoalShown, also={**UNKNOWN, 409: "it has ended already"})
    async def stop(self, request: web.Request) -> web.Response:
        """End an order. Its moves that wait are cancelled; those under way end by themselves."""
        return shown(await self._goals().stop(request.match_info["id"]))
