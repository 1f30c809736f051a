"""The route that tells the greatest backlogs of topics, by broker: load reports have none."""

from __future__ import annotations

import heapq

from aiohttp import web

from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.heat import LOCAL
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.findings.backlogs import BACKLOG_MIN, Backlog
from loadmanager.kit.http.answers import flag, shown
from loadmanager.kit.http.operation import operation
from loadmanager.kit.tasks import sleep
from loadmanager.leader.documents.findings import BacklogsShown

BACKLOGS = "/loadmanager/v1/backlogs"
TOPICS_MAX = 200
"""A broker tells so many topics."""
LOOKED_AT_ONCE = 1_000
"""Topics that are looked at before clients have their turn."""


class BacklogRoutes:
    """Tells backlogs."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use = use
        self._everybody = everybody

    def routes(self) -> list[web.RouteDef]:
        return [web.get(BACKLOGS, self.backlogs)]

    @operation(answer=BacklogsShown, query=(LOCAL,))
    async def backlogs(self, request: web.Request) -> web.Response:
        """The topics with the most messages that wait for their subscriptions, at least 1,000, and
        at most 200 of each broker.

        Of more than 200 brokers, 200 are asked, others each time.
        """
        if flag(request, "local"):
            own = await self._own()
            return shown(BacklogsShown(brokers={self._use.self_address.broker_id: own}))
        return shown(await self.ask())

    async def ask(self) -> BacklogsShown:
        """Ask every broker."""
        own = await self._own()
        mine = BacklogsShown(brokers={self._use.self_address.broker_id: own})
        answers = await self._everybody.ask("GET", BACKLOGS, BacklogsShown, lambda: mine)
        return BacklogsShown(
            brokers={
                broker: answer.brokers[broker]
                for broker, answer in answers.brokers.items()
                if broker in answer.brokers
            },
            not_asked=answers.not_asked,
            no_answer=answers.no_answer,
        )

    async def _own(self) -> list[Backlog]:
        """As they were at the end of the last period over which traffic is averaged."""
        greatest, looked_at = list[Backlog](), 0
        for bundle in self._use.ownership.owned():
            topics = self._use.hosting.topics(bundle)
            backlogs = [
                Backlog(
                    topic=name,
                    bundle=bundle,
                    messages=traffic.backlog_messages,
                    rate_in=traffic.msg_rate_in,
                    rate_out=traffic.msg_rate_out,
                    consumers=traffic.consumers,
                )
                for name, traffic in topics.items()
                if traffic.backlog_messages >= BACKLOG_MIN
            ]
            greatest = heapq.nsmallest(
                TOPICS_MAX, [*greatest, *backlogs], key=lambda it: (-it.messages, it.topic)
            )
            looked_at += len(topics)
            if looked_at >= LOOKED_AT_ONCE:
                looked_at = 0
                await sleep(0)
        return greatest
