"""The route that finds clients and topics by their names and addresses, on all brokers."""

from __future__ import annotations

import heapq

from aiohttp import web

from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.heat import LOCAL
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.ports.topics import ClientFound, ClientsFound, TopicFound, topic_rank
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.http.answers import flag, shown
from loadmanager.kit.http.operation import Query, operation

CLIENTS = "/loadmanager/v1/clients"
TEXT_MIN, TEXT_MAX = 2, 512
FIND = Query(name="find", doc="A part of the name, of the address or of the role; two letters.")
LIMIT = Query(name="limit", doc="At most so many.", kind=int, minimum=1, maximum=200, default=20)


class ClientSearchRoutes:
    """Finds clients."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use = use
        self._everybody = everybody

    def routes(self) -> list[web.RouteDef]:
        return [web.get(CLIENTS, self.clients)]

    @operation(answer=ClientsFound, query=(FIND, LIMIT, LOCAL))
    async def clients(self, request: web.Request) -> web.Response:
        """Producers, consumers and subscriptions by a part of their name, of their client's address
        or role, and open topics by a part of their name: those with exactly this name first.

        Of more than 200 brokers, 200 are asked, others each time.
        """
        text, most = FIND.text(request) or "", LIMIT.whole(request)
        if not TEXT_MIN <= len(text) <= TEXT_MAX:
            raise BadInputError(f"find: {TEXT_MIN} to {TEXT_MAX} characters are searched for")
        host = self._use.topic_host
        own = ClientsFound() if host is None else await host.find_clients(text, most)
        if flag(request, "local"):
            return shown(own)
        answers = await self._everybody.ask(
            "GET", CLIENTS, ClientsFound, lambda: own, {"find": text, "limit": str(most)}
        )
        wanted = text.casefold()

        def order(each: ClientFound) -> tuple[bool, str, str, str]:
            exact = wanted in (each.name.casefold(), (each.client or "").rpartition(":")[0])
            return not exact, each.name, each.topic, each.kind

        def topic_order(each: TopicFound) -> tuple[bool, str]:
            return topic_rank(each.topic, wanted) is not False, each.topic

        parts = answers.brokers.values()
        clients = [each for part in parts for each in part.clients]
        topics = [each for part in parts for each in part.topics]
        return shown(
            ClientsFound(
                clients=heapq.nsmallest(most, clients, key=order),
                total=sum(part.total for part in parts),
                topics=heapq.nsmallest(most, topics, key=topic_order),
                topics_total=sum(part.topics_total for part in parts),
                all_searched=all(part.all_searched for part in parts),
                not_asked=answers.not_asked,
                no_answer=answers.no_answer,
            )
        )
