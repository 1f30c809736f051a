"""Routes only for the page: the heat of bundles, and who is throttled."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.load.heat import BUNDLES_KEPT
from loadmanager.kit.http.answers import flag
from loadmanager.kit.http.operation import Query, of_leader, operation
from loadmanager.leader.http.models_heat import HeatShown, ThrottledShown
from loadmanager.leader.http.use import operations

HEAT = "/loadmanager/v1/heat"
THROTTLED = "/loadmanager/v1/throttled"
KEPT_S = 2.0
REST_FACTOR = 10
"""Brokers are asked again after the last round's answers are `KEPT_S` old, and after this many
times as long as that round took: a page that is left open never keeps a cluster busy.
"""
WAITERS_MAX = 20
LIMIT = Query(
    name="limit", doc="At most so many.", kind=int, minimum=1, maximum=BUNDLES_KEPT, default=40
)
LOCAL = Query(name="local", doc="Only those of the broker that is asked.", kind=bool, default=False)


class HeatRoutes:
    """Heat of bundles, and throttled topics of all brokers."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use = use
        self._everybody = everybody
        self._round = asyncio.Lock()
        self._kept: dict[str, Any] = {}
        self._next_s = 0.0

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get(HEAT, self.heat), web.get(THROTTLED, self.throttled)]

    @of_leader(HeatShown, query=(LIMIT,))
    async def heat(self, request: web.Request) -> web.Response:
        """The bundles with the most bytes/s in the last minutes, and how that changed."""
        limit = LIMIT.whole(request)
        operations(self._use)
        assert self._use.leading.heat is not None
        return web.json_response(self._use.leading.heat.document(limit))

    @operation(answer=ThrottledShown, query=(LOCAL,))
    async def throttled(self, request: web.Request) -> web.Response:
        """The limits that held somebody in the last ten seconds, by broker, and whom they held.

        Of more than 200 brokers, 200 are asked, others each time.
        """
        if flag(request, "local"):
            return web.json_response(self._own())
        async with self._round:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._next_s:
                began_s = loop.time()
                self._kept = await self._ask_all()
                took_s = loop.time() - began_s
                self._next_s = loop.time() + max(KEPT_S, REST_FACTOR * took_s)
        return web.json_response(self._kept)

    async def _ask_all(self) -> dict[str, Any]:
        """Ask every broker, and collect the answers of those that hold somebody."""
        answers = await self._everybody.ask("GET", THROTTLED, self._own)
        brokers, no_answer = {}, dict(answers.no_answer)
        for broker_id, answer in answers.brokers.items():
            try:
                own = dict(answer["brokers"][broker_id])
            except (LookupError, TypeError, ValueError) as error:
                no_answer[broker_id] = f"gave no usable answer: {error}"
                continue
            if own.get("limits") or own.get("causes"):
                brokers[broker_id] = own
        return {"brokers": brokers, "notAsked": answers.not_asked, "noAnswer": no_answer}

    def _own(self) -> dict[str, Any]:
        own = self._use.limits.held_lately(WAITERS_MAX)
        brokers = {self._use.self_address.broker_id: own}
        return {"brokers": brokers, "notAsked": 0, "noAnswer": {}}
