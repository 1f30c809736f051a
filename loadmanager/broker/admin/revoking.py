"""Ends what a role has begun, and refuses tokens before they end. None of these is Pulsar's."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from loadmanager.broker.admin.documents import Disconnected, TokenWanted
from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.ports.refused import RefusedToken
from loadmanager.broker.topics.refused_tokens import RefusedTokens
from loadmanager.kit.http.answers import RefusedError, shown
from loadmanager.kit.http.operation import body_as, operation

ROLE = "/loadmanager/v1/roles/{role:[^/]+}/disconnect"
ROLE_HERE = "/loadmanager/v1/peers/roles/{role:[^/]+}/disconnect"
"""The order of one broker to the others."""
TOKENS = "/loadmanager/v1/refused-tokens"
TOKEN = TOKENS + "/{id:[^/]+}"
EVERY_BROKER = 100_000
NOT_ENABLED = "authentication is not enabled"


class RevokingRoutes:
    """What an operator needs when a token got into wrong hands."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use, self._everybody = use, everybody

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(ROLE, self.disconnect),
            web.post(ROLE_HERE, self.disconnect_here),
            web.get(TOKENS, self.refused),
            web.put(TOKEN, self.refuse),
            web.delete(TOKEN, self.allow),
        ]

    @operation(answer=Disconnected, also={501: NOT_ENABLED})
    async def disconnect(self, request: web.Request) -> web.Response:
        """End the connections of a role on all brokers, and of proxies that ask for it, and the
        streams of events to it. Its clients may come back: take its permissions first, or refuse
        its tokens.
        """
        self._tokens()
        role = request.match_info["role"]
        answers = await self._everybody.ask(
            "POST",
            ROLE_HERE.replace("{role:[^/]+}", quote(role, safe="")),
            Disconnected,
            lambda: self._ended(role),
            most=EVERY_BROKER,
        )
        ended = Disconnected(brokers={}, no_answer=answers.no_answer)
        for broker, answer in answers.brokers.items():
            if broker in answer.brokers:
                ended.brokers[broker] = answer.brokers[broker]
            else:
                ended.no_answer[broker] = "gave no usable answer: it does not name itself"
        return shown(ended)

    @operation(answer=Disconnected, also={501: NOT_ENABLED})
    async def disconnect_here(self, request: web.Request) -> web.Response:
        """The same at the broker that is asked alone."""
        self._tokens()
        return shown(self._ended(request.match_info["role"]))

    def _ended(self, role: str) -> Disconnected:
        me = self._use.self_address.broker_id
        return Disconnected(brokers={me: self._use.disconnect(role)}, no_answer={})

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
