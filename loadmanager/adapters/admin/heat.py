"""Routes only for the page: the heat of bundles, and who is throttled."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from loadmanager.adapters.admin.answers import flag, operations
from loadmanager.adapters.admin.calls import Calls
from loadmanager.adapters.admin.models_heat import HeatShown, ThrottledShown
from loadmanager.adapters.admin.operation import Query, of_leader, operation
from loadmanager.adapters.admin.use_cases import UseCases
from loadmanager.core.errors import OperationalError, said
from loadmanager.core.load.heat import BUNDLES_KEPT
from loadmanager.ports.hosting import BrokerAddress

HEAT = "/loadmanager/v1/heat"
THROTTLED = "/loadmanager/v1/throttled"
BROKERS_ASKED_MAX = 200
ASKED_AT_ONCE = 16
ANSWER_TIMEOUT_S = 3.0
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

    def __init__(self, use: UseCases, calls: Calls) -> None:
        self._use = use
        self._calls = calls
        self._session: aiohttp.ClientSession | None = None
        self._round = asyncio.Lock()
        self._kept: dict[str, Any] = {}
        self._next_s = 0.0
        self._first = 0
        """The broker to begin the next round with, if there are too many for one."""

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get(HEAT, self.heat), web.get(THROTTLED, self.throttled)]

    async def close(self) -> None:
        """Close the connections to other brokers."""
        if self._session is not None:
            await self._session.close()

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
        me = self._use.self_address.broker_id
        if flag(request, "local"):
            own = self._use.limits.held_lately(WAITERS_MAX)
            return web.json_response({"brokers": {me: own}, "notAsked": 0, "noAnswer": {}})
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
        names = sorted(self._use.brokers.registered)
        first = self._first if self._first < len(names) else 0
        self._first = first + BROKERS_ASKED_MAX
        chosen = [*names[first:], *names[:first]][:BROKERS_ASKED_MAX]
        addresses = [
            address for name in chosen if (address := self._use.brokers.address(name)) is not None
        ]
        answers = await self._use.for_each(addresses, self._ask, ASKED_AT_ONCE)
        brokers: dict[str, Any] = {}
        no_answer: dict[str, str] = {}
        for address, answer in zip(addresses, answers, strict=True):
            if isinstance(answer, str):
                no_answer[address.broker_id] = answer
            elif answer.get("limits") or answer.get("causes"):
                brokers[address.broker_id] = answer
        not_asked = len(names) - len(addresses)
        return {"brokers": brokers, "notAsked": not_asked, "noAnswer": no_answer}

    async def _ask(self, broker: BrokerAddress) -> dict[str, Any] | str:
        """A broker's own report, or why there is none."""
        if broker.broker_id == self._use.self_address.broker_id:
            return self._use.limits.held_lately(WAITERS_MAX)
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with (
                asyncio.timeout(ANSWER_TIMEOUT_S),
                self._session.get(
                    self._calls.url(broker) + THROTTLED,
                    params={"local": "true"},
                    headers=self._calls.headers(),
                    ssl=self._calls.tls(),
                ) as answer,
            ):
                if answer.status != 200:
                    return f"answered {answer.status}"
                document = msgspec.json.decode(await answer.read())
                return dict(document["brokers"][broker.broker_id])
        except TimeoutError:
            return f"did not answer within {ANSWER_TIMEOUT_S:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return f"cannot be reached: {said(error)}"
        except OperationalError as error:
            return str(error)
        except (ValueError, LookupError, TypeError) as error:
            return f"gave no usable answer: {error}"
