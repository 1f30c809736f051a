"""Routes only for the page: the heat of bundles, and who is throttled."""

from __future__ import annotations

import asyncio

from aiohttp import web

from loadmanager.broker.admin.everybody import AnswersByBroker, Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.load.heat import BUNDLES_KEPT, HeatShown
from loadmanager.kit.http.answers import flag, shown
from loadmanager.kit.http.operation import Query, of_leader, operation
from loadmanager.leader.http.use import operations
from loadmanager.limits.report import BrokerHolds, ThrottledShown

HEAT = "/loadmanager/v1/heat"
THROTTLED = "/loadmanager/v1/throttled"
REUSE_S, REUSE_MOST_S = 2.0, 5.0
REST_FACTOR = 10
"""Brokers are asked again after the last round's answers are `REUSE_S` old, and after this many
times as long as that round took, but `REUSE_MOST_S` at most, since it may have waited for a broker
that hangs: a page that is left open never keeps a cluster busy, and shows what is there now.
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
        self._last_answer = ThrottledShown(brokers={}, not_asked=0, no_answer={})
        self._next_s = 0.0

    def routes(self) -> list[web.RouteDef]:
        return [web.get(HEAT, self.heat), web.get(THROTTLED, self.throttled)]

    @of_leader(HeatShown, query=(LIMIT,))
    async def heat(self, request: web.Request) -> web.Response:
        """The bundles with the most bytes/s in the last minutes, and how that changed."""
        limit = LIMIT.whole(request)
        operations(self._use)
        assert self._use.leading.heat is not None
        return shown(self._use.leading.heat.shown(limit))

    @operation(answer=ThrottledShown, query=(LOCAL,))
    async def throttled(self, request: web.Request) -> web.Response:
        """The limits that held somebody in the last ten seconds, by broker, and whom they held.

        Of more than 200 brokers, 200 are asked, others each time.
        """
        if flag(request, "local"):
            return shown(self._own())
        async with self._round:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._next_s:
                began_s = loop.time()
                self._last_answer = await self._ask_all()
                took_s = loop.time() - began_s
                rest_s = min(max(REUSE_S, REST_FACTOR * took_s), REUSE_MOST_S)
                self._next_s = loop.time() + rest_s
        return shown(self._last_answer)

    async def _ask_all(self) -> ThrottledShown:
        """Ask every broker, and collect the answers of those that hold somebody."""
        answers = await self._answers()
        throttled = ThrottledShown(
            brokers={}, not_asked=answers.not_asked, no_answer=answers.no_answer
        )
        for broker, answer in answers.brokers.items():
            own = answer.brokers.get(broker)
            if own is None:
                throttled.no_answer[broker] = "gave no usable answer: it does not name itself"
            elif own.limits or own.causes:
                throttled.brokers[broker] = own
        return throttled

    async def holds(self) -> dict[str, BrokerHolds]:
        """Ask every broker for its limits that held somebody; those that answered, with theirs."""
        answers = await self._answers()
        return {
            broker: answer.brokers[broker]
            for broker, answer in answers.brokers.items()
            if broker in answer.brokers
        }

    async def _answers(self) -> AnswersByBroker[ThrottledShown]:
        return await self._everybody.ask("GET", THROTTLED, ThrottledShown, self._own)

    def _own(self) -> ThrottledShown:
        own = self._use.limits.held_lately(WAITERS_MAX)
        brokers = {self._use.self_address.broker_id: own}
        return ThrottledShown(brokers=brokers, not_asked=0, no_answer={})
