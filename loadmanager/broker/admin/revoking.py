"""Ends what a role has begun, and refuses tokens before they end. None of these is Pulsar's."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.documents import Disconnected, TokenWanted
from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.ports.refused import RefusedToken
from loadmanager.broker.topics.refused_tokens import RefusedTokens
from loadmanager.kit.http.answers import RefusedError, flag, shown
from loadmanager.kit.http.operation import Query, body_as, operation

ROLE = "/loadmanager/v1/roles/{role:[^/]+}/disconnect"
TOKENS = "/loadmanager/v1/refused-tokens"
TOKEN = TOKENS + "/{id:[^/]+}"
EVERY_BROKER = 100_000
NOT_ENABLED = "authentication is not enabled"
LOCAL = Query(name="local", doc="Only at the broker that is asked.", kind=bool, default=False)


class RevokingRoutes:
    """What an operator needs when a token got into wrong hands."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use, self._everybody = use, everybody

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(ROLE, self.disconnect),
            web.get(TOKENS, self.refused),
            web.put(TOKEN, self.refuse),
            web.delete(TOKEN, self.allow),
        ]

    @operation(answer=Disconnected, query=(LOCAL,), also={501: NOT_ENABLED})
    async def disconnect(self, request: web.Request) -> web.Response:
        """End the connections of a role on all brokers, and of proxies that ask for it, and the
        streams of events to it. Its clients may come back: take its permissions first, or refuse
        its tokens.
        """
        self._tokens()
        role, me = request.match_info["role"], self._use.self_address.broker_id

        def own() -> Disconnected:
            return Disconnected(brokers={me: self._use.disconnect(role)}, no_answer={})

        if flag(request, "local"):
            return shown(own())
        answers = await self._everybody.ask(
            "POST", request.rel_url.raw_path, Disconnected, own, most=EVERY_BROKER
        )
        ended = Disconnected(brokers={}, no_answer=answers.no_answer)
        for broker, answer in answers.brokers.items():
            if broker in answer.brokers:
                ended.brokers[broker] = answer.brokers[broker]
            else:
                ended.no_answer[broker] = "gave no usable answer: it does not name itself"
        return shown(ended)

    @operation(answer=dict[str, RefusedToken], also={501: NOT_ENABLED})
    async def refused(self, _request: web.Request) -> web.Response:
        """The refused tokens: their ids, since when and until when, and why."""
        return shown(self._tokens().shown())

    @operation(body=TokenWanted, body_required=False, also={501: NOT_ENABLED})
    async def refuse(self, request: web.Request) -> web.Response:
        """Refuse a token from now on, on all brokers; connections and streams that it began end.

        The id is the token's claim `jti`, or `sha256-` and the fingerprint of a token without one;
        `loadmanager tokens validate` shows it. At most 1,000 are refused at a time.
        """
        wanted = await body_as(request, TokenWanted)
        await self._tokens().refuse(
            request.match_info["id"], until_ms=wanted.until, note=wanted.note
        )
        return web.Response(status=204)

    @operation(also={501: NOT_ENABLED})
    async def allow(self, request: web.Request) -> web.Response:
        """Refuse a token no longer."""
        await self._tokens().allow(request.match_info["id"])
        return web.Response(status=204)

    def _tokens(self) -> RefusedTokens:
        if self._use.refused_tokens is None:
            raise RefusedError(501, "Authentication is not enabled")
        return self._use.refused_tokens
