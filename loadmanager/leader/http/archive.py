"""What was: the archive of the broker that is asked. None of these routes is Pulsar's."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from loadmanager.engine.history.archived import ARCHIVED
from loadmanager.engine.history.records import BundleLoad, Throttle
from loadmanager.kit.errors import BadInputError, NotFoundError
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.archive_answers import (
    ArchivedEvents,
    ArchivedHeat,
    ArchivedMoment,
    ArchivedSeries,
    ArchivedSums,
    ArchiveParts,
)
from loadmanager.kit.history.catalogue import FiguresOf
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import Query, operation
from loadmanager.leader.limits_then import moment_of

ROOT = "/loadmanager/v1/archive"
TIME_MAX = 10**15
EVENTS_MAX = 2_000
POINTS_MAX = 5_000
LOADS = tuple(kind for kind, rule in ARCHIVED.items() if isinstance(rule, FiguresOf))
DEFAULT_KINDS = ("broker_load", "bundle_load")


def _time(name: str, doc: str, default: int) -> Query:
    return Query(
        name=name,
        doc=f"{doc}, in milliseconds since the epoch.",
        kind=int,
        minimum=0,
        maximum=TIME_MAX,
        default=default,
    )


def _limit(default: int, maximum: int) -> Query:
    return Query(
        name="limit", doc="At most so many.", kind=int, minimum=1, maximum=maximum, default=default
    )


PART = Query(
    name="part", doc="The broker whose archive is asked, of those beside that of this broker."
)
KIND = Query(
    name="kind",
    doc="Only events of this kind: `change`, `ownership`, `decision.move`, `decision.skip` …",
    many=True,
)
ABOUT = Query(
    name="about",
    doc="Only what is about this bundle, namespace, tenant, topic, broker or role.",
)
SINCE = _time("since", "Not before this time", 0)
UNTIL = _time("until", "Not after this time", TIME_MAX)
AT = _time("at", "The moment", TIME_MAX)
LOAD_KINDS = Query(name="kind", doc="Loads of this kind.", choices=LOADS, many=True)
LOAD_KIND = Query(name="kind", doc="Loads of this kind.", choices=LOADS, default="bundle_load")
NAME = Query(
    name="name",
    doc=(
        "A bundle, topic, broker or limit; what ends in a slash is the sum of all that begin so, a "
        "slash alone that of all."
    ),
)
EVENTS = _limit(100, EVENTS_MAX)
BUNDLES = _limit(60, 500)
COLUMNS = Query(
    name="columns", doc="Parts of the time.", kind=int, minimum=1, maximum=240, default=120
)
BYTES = ("msg_throughput_in", "msg_throughput_out")
POINTS = _limit(2_000, POINTS_MAX)
LIMITS = _limit(1_000, POINTS_MAX)
WAITS = ("held", "waited_ms")
NONE = {
    404: "this broker has no archive, or none of that name is beside it",
    503: "the archive cannot be read now, or the answer takes too long",
}


class ArchiveUse(Protocol):
    """What these routes need."""

    @property
    def archive(self) -> Archive | None:
        """That of this broker."""
        ...

    def archives(self) -> list[str]:
        """The brokers that have archives."""
        ...


class ArchiveRoutes:
    """Answers from the archive."""

    def __init__(self, use: ArchiveUse) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get(ROOT, self.parts),
            web.get(ROOT + "/events", self.events),
            web.get(ROOT + "/loads", self.loads),
            web.get(ROOT + "/series", self.series),
            web.get(ROOT + "/heat", self.heat),
            web.get(ROOT + "/waits", self.waits),
        ]

    def _archive(self) -> Archive:
        if self._use.archive is None:
            raise NotFoundError(
                "this broker has no archive: loadManagerHistoryEnabled and "
                "loadManagerArchiveMaxBytes decide about it"
            )
        return self._use.archive

    @operation(ArchiveParts, also=NONE)
    async def parts(self, _request: web.Request) -> web.Response:
        """The brokers whose archives can be asked: those that live, each for its own, and those
        whose files are beside this broker's.
        """
        beside = await self._archive().beside()
        brokers = self._use.archives()
        return shown(ArchiveParts(brokers=brokers, beside=sorted(set(beside) - set(brokers))))

    @operation(ArchivedEvents, query=(KIND, ABOUT, SINCE, UNTIL, EVENTS, PART), also=NONE)
    async def events(self, request: web.Request) -> web.Response:
        """Decisions, ends of moves, splits, steps of ownership, changes, members and clients that
        were recorded by the broker that is asked, the newest first; of refusals also how often they
        came since they were recorded, with a negative `id`.
        """
        kinds, about = request.query.getall("kind", []), ABOUT.text(request)
        since, until = SINCE.whole(request), UNTIL.whole(request)
        limit = EVENTS.whole(request)
        if len(kinds) > len(ARCHIVED) * 4:
            raise BadInputError("kind is given too often")
        part = PART.text(request)
        answer = await self._archive().events(kinds, about, (since, until), limit, part)
        return shown(answer)

    @operation(ArchivedMoment, query=(AT, LOAD_KINDS, PART), also=NONE)
    async def loads(self, request: web.Request) -> web.Response:
        """The loads that the broker that is asked recorded for a moment: averages over the minute
        that it lies in, or over the quarter of an hour when that was more than a day ago; without
        any, the last that had ended in the five minutes before. Of the limits of topics those of
        topics that the broker owned at that moment.
        """
        at_ms, kinds = AT.whole(request), request.query.getall("kind", list(DEFAULT_KINDS))
        for kind in kinds:
            if kind not in LOADS:
                raise BadInputError(f"kind={kind[:40]}: one of {', '.join(LOADS)} is allowed")
        answer = await self._archive().ask(
            lambda file: moment_of(file, at_ms, sorted(set(kinds))), PART.text(request)
        )
        return shown(answer)

    @operation(ArchivedSeries, query=(LOAD_KIND, NAME, SINCE, UNTIL, POINTS, PART), also=NONE)
    async def series(self, request: web.Request) -> web.Response:
        """The loads of one thing over a time, the oldest first; the last ones if there are more."""
        kind, name = LOAD_KIND.text(request) or "", NAME.text(request) or ""
        since, until = SINCE.whole(request), UNTIL.whole(request)
        limit = POINTS.whole(request)
        if not name:
            raise BadInputError("name is missing: a bundle, topic, broker or limit")
        answer = await self._archive().ask(
            lambda file: file.series(kind, name, since, until, limit), PART.text(request)
        )
        return shown(answer)

    @operation(ArchivedHeat, query=(SINCE, UNTIL, COLUMNS, BUNDLES, PART), also=NONE)
    async def heat(self, request: web.Request) -> web.Response:
        """The traffic of the hottest bundles that the broker that is asked recorded, over a time in
        equal parts.
        """
        since, until = SINCE.whole(request), UNTIL.whole(request)
        if until <= since:
            raise BadInputError("until must be after since")
        times, limit = (since, until, COLUMNS.whole(request)), BUNDLES.whole(request)
        answer = await self._archive().ask(
            lambda file: file.heat(BundleLoad.kind, BYTES, times, limit), PART.text(request)
        )
        return shown(answer)

    @operation(ArchivedSums, query=(SINCE, UNTIL, LIMITS, PART), also=NONE)
    async def waits(self, request: web.Request) -> web.Response:
        """How often and for how long limits of the broker that is asked had producers and
        subscriptions wait, over a time: sums of what was recorded each minute, and of what it has
        counted since.
        """
        since, until = SINCE.whole(request), UNTIL.whole(request)
        if until <= since:
            raise BadInputError("until must be after since")
        limit = LIMITS.whole(request)
        part = PART.text(request)
        answer = await self._archive().sums(Throttle.kind, WAITS, (since, until), limit, part)
        return shown(answer)
