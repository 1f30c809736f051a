"""The state of a Pulsar cluster as the daemon knows it, and the moves and splits that
it advises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import Audit, ChangeShown, ChangesShown
from loadmanager.kit.errors import BadInputError, NotFoundError
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.http.answers import failed, shown
from loadmanager.kit.http.operation import TEXT, Document, Query, operation
from loadmanager.kit.http.permits import bearer_of
from loadmanager.kit.metadata.leader import Leader
from loadmanager.leader.documents.cluster import LeaderBroker
from loadmanager.leader.http.archive import TIME_MAX
from loadmanager.leader.http.changes import CHANGES, LIMIT, LIMIT_MAX, ROLE, SINCE, wanted_of
from loadmanager.leader.http.leading import ROOT
from loadmanager.leader.http.use import BundlesOf, Leading
from loadmanager.leader.undo_documents import UndoOrder
from loadmanager.steer.documents import AdviceShown, ClustersShown, FleetShown


class Watched(Protocol):
    """A cluster that the daemon watches."""

    def picture(self) -> FleetShown: ...
    def leader(self) -> BrokerAddress | None: ...
    def advice(self) -> AdviceShown: ...
    async def snapshot(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetUse:
    """Implements `LeaderUse` for one cluster."""

    self_address: BrokerAddress
    leading: Leading
    namespaces: BundlesOf
    watched: Watched
    audit: Audit
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    clusters: Callable[[str], ClustersShown]
    """All clusters of the daemon, as the bearer of a token may see them."""
    clusters_then: Callable[[str, int], Awaitable[ClustersShown]]
    """The same at a moment, in milliseconds since the epoch."""
    archive: Archive | None = None

    def archives(self) -> list[str]:
        """None: the daemon has the only archive."""
        return []

    def address_of(self, _leader: Leader) -> BrokerAddress:
        """The daemon's own address: it is its only leader."""
        return self.self_address

    def why_no_leader(self) -> str:
        """Not known."""
        return ""

    def store_silent_ms(self) -> int | None:
        """None: the daemon has no metadata store."""
        return None


@dataclass(frozen=True, slots=True)
class OrdersGiven:
    """Finds the orders that are to be undone, among the last ones that this daemon took."""

    audit: Audit

    async def order(self, ids: Sequence[str]) -> UndoOrder:
        """What is known of them."""
        changes: dict[str, list[ChangeShown]] = {}
        for change in self.audit.recent(LIMIT_MAX):
            if change.id is not None and change.id in ids:
                changes.setdefault(change.id, []).append(change)
        return UndoOrder(ids, changes, (), _no_settings)


def _no_settings(_now: Mapping[str, object], name: str, _value: str | None) -> dict[str, object]:
    """A daemon has no settings that are changed while it runs. Raises `BadInputError`."""
    raise BadInputError(f"{name} is no setting of this daemon")


CLUSTERS_AT = Query(
    name="at",
    doc="As it was at this time, in milliseconds since the epoch.",
    kind=int,
    minimum=0,
    maximum=TIME_MAX,
)


class FleetRoutes:
    """The daemon's own routes."""

    def __init__(self, use: FleetUse) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/admin/v2/brokers", self.brokers),
            web.get("/admin/v2/brokers/leaderBroker", self.leader),
            web.get("/admin/v2/brokers/health", self.health),
            web.get("/admin/v2/brokers/ready", self.ready),
            web.get(ROOT + "/fleet", self.picture),
            web.get(ROOT + "/clusters", self.clusters),
            web.get(ROOT + "/advice", self.advice),
            web.get(ROOT + "/snapshot", self.snapshot),
            web.get(CHANGES, self.changes),
            web.get("/metrics", self.metrics),
        ]

    @operation(list[str])
    async def brokers(self, _request: web.Request) -> web.Response:
        """The ids of the cluster's brokers."""
        return shown(sorted(self._use.watched.picture().brokers))

    @operation(LeaderBroker, also={404: "it is not known, or does not answer"})
    async def leader(self, _request: web.Request) -> web.Response:
        """The broker that leads the cluster."""
        leader = self._use.watched.leader()
        if leader is None:
            raise NotFoundError("the leader of the cluster is not known, or does not answer")
        return shown(LeaderBroker(service_url=leader.web_url, broker_id=leader.broker_id))

    @operation(str, media=TEXT)
    async def health(self, _request: web.Request) -> web.Response:
        """Answer 200: the daemon leads and answers."""
        return web.Response(text="ok")

    @operation(str, media=TEXT, also={503: "no broker answers"})
    async def ready(self, _request: web.Request) -> web.Response:
        """Check that a broker of the cluster answered the last reading."""
        brokers = self._use.watched.picture().brokers.values()
        if not any(broker.answers for broker in brokers):
            return failed(503, "no broker of the cluster answers")
        return web.Response(text="ok")

    @operation(FleetShown)
    async def picture(self, _request: web.Request) -> web.Response:
        """The mode, the brokers, the age of each part, what is missing, and why nothing moves."""
        return shown(self._use.watched.picture())

    @operation(ClustersShown, query=(CLUSTERS_AT,))
    async def clusters(self, request: web.Request) -> web.Response:
        """All clusters of this daemon, the worst first: name, port, mode, state, brokers, usage,
        hold, goals. Clusters that ask for other tokens are last, by name and port alone. With `at`,
        whether this daemon led there then, and the brokers and their usage that it recorded.
        """
        token = bearer_of(request)
        if CLUSTERS_AT.text(request) is None:
            return shown(self._use.clusters(token))
        return shown(await self._use.clusters_then(token, CLUSTERS_AT.whole(request)))

    @operation(AdviceShown)
    async def advice(self, _request: web.Request) -> web.Response:
        """The last plans; each move and split has its `pulsar-admin` command."""
        return shown(self._use.watched.advice())

    @operation(Document)
    async def snapshot(self, _request: web.Request) -> web.Response:
        """The cluster as one input line of `loadmanager decide`."""
        return shown(await self._use.watched.snapshot())

    @operation(ChangesShown, query=(LIMIT, SINCE, ROLE))
    async def changes(self, request: web.Request) -> web.Response:
        """The last orders that operators gave this daemon, and that it took."""
        changes = self._use.audit.recent(LIMIT_MAX)
        return shown(wanted_of(request).of_these(changes))

    @operation(str, media="*/*")
    async def metrics(self, request: web.Request) -> web.Response:
        """The metrics in Prometheus' text format, or in OpenMetrics for who accepts that."""
        page, kind = await self._use.metrics(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": kind})
