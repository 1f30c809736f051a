"""The greatest backlogs, the busiest topics and the silent ones: load reports have none of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from aiohttp import web

from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.heat import LOCAL
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.findings.backlogs import Backlog
from loadmanager.kit.clock import Clock
from loadmanager.kit.http.answers import flag, shown
from loadmanager.kit.http.operation import Query, operation
from loadmanager.kit.tasks import sleep
from loadmanager.leader.documents.findings import (
    SILENT_MS,
    YOUNG_MS,
    BacklogsShown,
    BusiestTopicsShown,
    BusyTopic,
    SilentTopic,
    SilentTopicsShown,
)
from loadmanager.member.ports.hosting import TopicTraffic

T = TypeVar("T")

BACKLOGS, BUSIEST = "/loadmanager/v1/backlogs", "/loadmanager/v1/busiest-topics"
SILENT = "/loadmanager/v1/silent-topics"
TIME_MAX = 10**15
SINCE = Query(
    name="since",
    doc="Only topics that fell silent since then, in milliseconds since the epoch, and those of "
    "which that is not known.",
    kind=int,
    default=0,
    minimum=0,
    maximum=TIME_MAX,
)
AT = Query(
    name="at",
    doc="Only topics that were silent then, in milliseconds since the epoch, and those of which "
    "that is not known; 0: now.",
    kind=int,
    default=0,
    minimum=0,
    maximum=TIME_MAX,
)
SHOWN_MAX = 200
"""A broker tells so many."""
LOOKED_AT_ONCE = 1_000
"""Topics that are looked at before clients have their turn."""


class GreatestTopicRoutes:
    """Tells backlogs, traffic, and which topics have none."""

    def __init__(self, use: UseCases, everybody: Everybody, clock: Clock) -> None:
        self._use, self._everybody, self._clock = use, everybody, clock
        self._began_ms = clock.now_ms()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(BACKLOGS, self.backlogs),
            web.get(BUSIEST, self.busiest),
            web.get(SILENT, self.silent),
        ]

    @operation(answer=BacklogsShown, query=(LOCAL,))
    async def backlogs(self, request: web.Request) -> web.Response:
        """The subscriptions that are furthest behind, by messages to acknowledge, at most 200 of
        each broker. Several may be of one topic; rates and consumers are those of the topic. One
        that had a great backlog within ten minutes is listed with none, too.

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
            brokers=_of_itself({name: it.brokers for name, it in answers.brokers.items()}),
            not_asked=answers.not_asked,
            no_answer=answers.no_answer,
        )

    @operation(answer=BusiestTopicsShown, query=(LOCAL,))
    async def busiest(self, request: web.Request) -> web.Response:
        """The topics with most traffic, in and out together, at most 200 of each broker.

        Of more than 200 brokers, 200 are asked, others each time.
        """
        own = await self._greatest(_busy, lambda it: (-(it.bytes_in + it.bytes_out), it.topic))
        mine = BusiestTopicsShown(brokers={self._use.self_address.broker_id: own})
        if flag(request, "local"):
            return shown(mine)
        answers = await self._everybody.ask("GET", BUSIEST, BusiestTopicsShown, lambda: mine)
        return shown(
            BusiestTopicsShown(
                brokers=_of_itself({name: it.brokers for name, it in answers.brokers.items()}),
                not_asked=answers.not_asked,
                no_answer=answers.no_answer,
            )
        )

    @operation(answer=SilentTopicsShown, query=(LOCAL, SINCE, AT))
    async def silent(self, request: web.Request) -> web.Response:
        """The open topics to which nothing was published for a minute, nor in the last period of
        the stats, those first whose last message came last; then those with producers of which no
        message is known. At most 200 of each broker; not topics that nobody has open.

        Of more than 200 brokers, 200 are asked, others each time.
        """
        since_ms, at_ms = SINCE.whole(request), AT.whole(request) or self._clock.now_ms()
        until_ms = at_ms - SILENT_MS
        own = await self._greatest(
            lambda topic, bundle, traffic: _quiet(topic, bundle, traffic, since_ms, until_ms),
            lambda it: (-(it.published or 0), it.topic),
        )
        me = self._use.self_address.broker_id
        age_ms = max(0, self._clock.now_ms() - self._began_ms)
        young = {me: age_ms} if age_ms < YOUNG_MS else {}
        mine = SilentTopicsShown(at=at_ms, brokers={me: own}, young=young)
        if flag(request, "local"):
            return shown(mine)
        times = {"since": str(since_ms), "at": str(at_ms)}
        answers = await self._everybody.ask("GET", SILENT, SilentTopicsShown, lambda: mine, times)
        return shown(
            SilentTopicsShown(
                at=at_ms,
                brokers=_of_itself({name: it.brokers for name, it in answers.brokers.items()}),
                not_asked=answers.not_asked,
                no_answer=answers.no_answer,
                young={
                    name: it.young[name]
                    for name, it in sorted(answers.brokers.items())
                    if name in it.young
                },
            )
        )

    async def _own(self) -> list[Backlog]:
        return await self._greatest(_waiting, _furthest)

    async def _greatest(
        self,
        figures: Callable[[str, str, TopicTraffic], Iterable[T]],
        order: Callable[[T], tuple[float, *tuple[str, ...]]],
    ) -> list[T]:
        """The first of these in this order, as they were at the end of the last period over which
        traffic is averaged; `figures`: of a topic, its bundle and its traffic.
        """
        greatest, looked_at = list[T](), 0
        for bundle in self._use.ownership.owned():
            topics = self._use.hosting.topics(bundle)
            more = [
                each for name, traffic in topics.items() for each in figures(name, bundle, traffic)
            ]
            greatest = heapq.nsmallest(SHOWN_MAX, [*greatest, *more], key=order)
            looked_at += max(len(topics), len(more))
            if looked_at >= LOOKED_AT_ONCE:
                looked_at = 0
                await sleep(0)
        return greatest


def _of_itself(answers: Mapping[str, Mapping[str, list[T]]]) -> dict[str, list[T]]:
    """What each broker tells of itself."""
    return {broker: those[broker] for broker, those in answers.items() if broker in those}


def _furthest(backlog: Backlog) -> tuple[float, str, str]:
    return -backlog.messages, backlog.topic, backlog.subscription


def _waiting(topic: str, bundle: str, traffic: TopicTraffic) -> Iterator[Backlog]:
    for it in traffic.backlogs:
        yield Backlog(
            topic=topic,
            subscription=it.name,
            bundle=bundle,
            messages=it.messages,
            rate_in=traffic.msg_rate_in,
            rate_out=traffic.msg_rate_out,
            consumers=traffic.consumers,
            own_consumers=it.consumers,
            oldest_ms=it.oldest_ms,
        )


def _busy(topic: str, bundle: str, traffic: TopicTraffic) -> Iterator[BusyTopic]:
    if traffic.msg_throughput_in + traffic.msg_throughput_out <= 0:
        return
    yield BusyTopic(
        topic=topic,
        bundle=bundle,
        rate_in=traffic.msg_rate_in,
        rate_out=traffic.msg_rate_out,
        bytes_in=traffic.msg_throughput_in,
        bytes_out=traffic.msg_throughput_out,
        producers=traffic.producers,
        consumers=traffic.consumers,
        subscriptions=traffic.subscriptions,
        stored_bytes=traffic.stored_bytes,
    )


def _quiet(
    topic: str, bundle: str, traffic: TopicTraffic, since_ms: int, until_ms: int
) -> Iterator[SilentTopic]:
    last_ms = traffic.published_ms
    if traffic.msg_rate_in > 0 or (last_ms is None and not traffic.producers):
        return
    if last_ms is None or since_ms <= last_ms <= until_ms:
        yield SilentTopic(
            topic=topic,
            bundle=bundle,
            published=last_ms,
            producers=traffic.producers,
            consumers=traffic.consumers,
        )
