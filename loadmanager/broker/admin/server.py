"""The admin API: Pulsar's paths, bodies and status codes over HTTP."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.broker.admin.access import access_of
from loadmanager.broker.admin.archives_of_all import OF_A_MOMENT, ArchivesOfAll
from loadmanager.broker.admin.askers import askers
from loadmanager.broker.admin.audit import AuditRoutes, ChangesOfAll
from loadmanager.broker.admin.broker_stats import BrokerStatsRoutes
from loadmanager.broker.admin.brokers import BrokerRoutes
from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.client_search import ClientSearchRoutes
from loadmanager.broker.admin.earlier_moves import MovesOfAll
from loadmanager.broker.admin.ensemble import EnsembleRoutes
from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.following import Following
from loadmanager.broker.admin.greatest_topics import GreatestTopicRoutes
from loadmanager.broker.admin.heat import HeatRoutes
from loadmanager.broker.admin.last_seen import LastSeenRoutes
from loadmanager.broker.admin.limit_ends import LimitEndRoutes
from loadmanager.broker.admin.namespaces import NamespaceRoutes
from loadmanager.broker.admin.peers import PeerRoutes
from loadmanager.broker.admin.permissions import PermissionRoutes
from loadmanager.broker.admin.resource_quotas import QuotaRoutes
from loadmanager.broker.admin.revoking import RevokingRoutes
from loadmanager.broker.admin.routes_message_policies import MessagePolicyRoutes
from loadmanager.broker.admin.routes_policies import PolicyRoutes
from loadmanager.broker.admin.routes_throttling import ThrottlingRoutes
from loadmanager.broker.admin.schemas import SchemaRoutes
from loadmanager.broker.admin.settings_shown import SettingRoutes
from loadmanager.broker.admin.subscriptions import SubscriptionRoutes
from loadmanager.broker.admin.topic_owners import TopicOwners
from loadmanager.broker.admin.topic_stats import StatsRoutes
from loadmanager.broker.admin.topics import TopicRoutes
from loadmanager.broker.admin.undo import OperatorsChanges
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.ports.access import Access
from loadmanager.kit.http.answers import LISTENERS
from loadmanager.kit.http.auditing import audited
from loadmanager.kit.http.connections import Connections
from loadmanager.kit.http.middlewares import (
    ANSWERS,
    concurrency_limit,
    errors,
    log_access,
    stay_secure,
)
from loadmanager.kit.http.openapi import OpenApiRoutes
from loadmanager.kit.http.patience import patience
from loadmanager.kit.http.serving import HttpServing
from loadmanager.kit.http.settings import AdminSettings
from loadmanager.kit.http.streams import Streams
from loadmanager.kit.http.tracing import traced
from loadmanager.kit.http.visitors import visitors
from loadmanager.kit.listener import Spawn, Tls
from loadmanager.kit.refused_clients import ClientRefusals
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.telemetry import Sample
from loadmanager.leader.http.archive import ArchiveRoutes
from loadmanager.leader.http.events import EVENTS, EventRoutes
from loadmanager.leader.http.findings import FindingRoutes
from loadmanager.leader.http.goals import GoalRoutes
from loadmanager.leader.http.interruptions import InterruptionRoutes
from loadmanager.leader.http.leading import LeadingRoutes
from loadmanager.leader.http.members import MemberRoutes
from loadmanager.leader.http.moves import MoveRoutes
from loadmanager.leader.http.outages import OutageRoutes
from loadmanager.leader.http.page import PageRoutes
from loadmanager.leader.http.undo import UndoRoutes

BODY_BYTES_MAX = 2 * 1024 * 1024
"""Explicit boundaries of 50,000 bundles take 0.7 MB."""


class Routes(Protocol):
    """The routes of one subject of the API."""

    def routes(self) -> list[web.RouteDef]:
        """The routes; fixed paths come before paths with a variable."""
        ...


class AdminServer:
    """Serves the API on one port."""

    def __init__(
        self,
        use: UseCases,
        calls: Calls,
        *,
        cluster: str,
        version: str,
        metrics: Callable[[str], Awaitable[tuple[bytes, str]]],
        settings: AdminSettings | None = None,
        connections_cap: int = 0,
        access: Access | None = None,
        authenticate_metrics: bool = False,
    ) -> None:
        """`connections_cap`: the most connections that the process can serve; 0: any number.
        `calls`: how this broker asks others.
        """
        self._settings = settings or AdminSettings()
        self._connections = Connections(
            most=min(
                self._settings.connections_max, connections_cap or self._settings.connections_max
            ),
            at_address_max=self._settings.connections_per_address_max,
        )
        self._answers = Counter[int]()
        self._refusals = None if access is None else ClientRefusals("http")
        streams = Streams()
        self._following = Following(use, calls, streams, proven=access is not None)
        application = web.Application(
            middlewares=self._middlewares(use, calls, access, metrics=authenticate_metrics),
            client_max_size=BODY_BYTES_MAX,
        )
        self._owners = TopicOwners(use, calls)
        self._everybody = Everybody(use, calls)
        self._heat = HeatRoutes(use, self._everybody)
        self._greatest = GreatestTopicRoutes(use, self._everybody, SystemClock())
        use.leading.holds, use.leading.backlogs = self._heat.holds, self._greatest.ask
        parts = self._parts(use, streams, cluster=cluster, version=version, metrics=metrics)
        parts.append(PermissionRoutes(use, enforced=access is not None and access.authorizes))
        for route in (route for part in parts for route in part.routes()):
            slashed = web.RouteDef(route.method, route.path + "/", route.handler, {})
            application.router.add_routes([route, slashed] if route.path != "/" else [route])
        if not use.self_address.web_url:
            application.on_response_prepare.append(stay_secure)
        self._serving = HttpServing(
            application,
            self._connections,
            idle_s=self._settings.idle_ms / 1000,
            header_bytes_max=self._settings.header_bytes_max,
        )
        self._ports = application[LISTENERS] = dict[int, str]()

    def _parts(
        self,
        use: UseCases,
        streams: Streams,
        *,
        cluster: str,
        version: str,
        metrics: Callable[[str], Awaitable[tuple[bytes, str]]],
    ) -> list[Routes]:
        """The routes of all subjects but permissions, which come last."""
        changes = ChangesOfAll(use, self._everybody)
        archives = ArchivesOfAll(use, self._everybody)
        of_a_moment = ArchivesOfAll(use, self._everybody, OF_A_MOMENT)
        undoing = OperatorsChanges(use, changes, MovesOfAll(use, archives))
        return [
            BrokerRoutes(use, cluster=cluster, version=version, metrics=metrics),
            PeerRoutes(use),
            NamespaceRoutes(use, cluster=cluster),
            TopicRoutes(use, self._owners),
            StatsRoutes(self._owners),
            BrokerStatsRoutes(self._owners, use.load_report),
            SubscriptionRoutes(self._owners),
            SchemaRoutes(use),
            ThrottlingRoutes(use, self._owners),
            LimitEndRoutes(use),
            SettingRoutes(use),
            PolicyRoutes(use, cluster=cluster),
            MessagePolicyRoutes(use),
            QuotaRoutes(use),
            LeadingRoutes(use),
            EventRoutes(use, use.events, streams),
            MoveRoutes(use),
            GoalRoutes(use),
            LastSeenRoutes(use),
            self._heat,
            self._greatest,
            ClientSearchRoutes(use, self._everybody),
            AuditRoutes(use, changes),
            UndoRoutes(use, undoing.order, undoing.name_others),
            ArchiveRoutes(use),
            OutageRoutes(lambda: of_a_moment if use.archive else None),
            InterruptionRoutes(use, lambda: archives if use.archive else None, SystemClock()),
            MemberRoutes(use, lambda: archives if use.archive else None, SystemClock()),
            EnsembleRoutes(use),
            FindingRoutes(use),
            RevokingRoutes(use, self._everybody),
            PageRoutes(),
            OpenApiRoutes(version),
        ]

    @property
    def application(self) -> web.Application:
        return self._serving.application

    def samples(self) -> Iterator[Sample]:
        """Answers by status, as far as there were any, and refusals."""
        for status, times in sorted(self._answers.items()):
            yield ANSWERS.sample(times, str(status))
        if self._refusals is not None:
            yield from self._refusals.samples()

    def _middlewares(
        self, use: UseCases, calls: Calls, access: Access | None, *, metrics: bool
    ) -> list[Middleware]:
        proven = access is not None and not access.anonymous
        return [
            self._connections.middleware(),
            log_access(self._answers),
            concurrency_limit(self._settings.requests_max),
            errors,  # of `following`, which reads bodies
            self._following.middleware(),
            errors,
            askers(use, calls, access),
            visitors(use.self_address, use.addresses, allowed=self._settings.hosts, proven=proven),
            *(
                []
                if access is None or self._refusals is None
                else [access_of(access, self._refusals, metrics=metrics)]
            ),
            traced,
            self._following.to_named(),
            audited(use.audit),
            patience(use.store_silent_ms, frozenset({EVENTS, EVENTS + "/"})),
        ]

    async def start(self, spawn: Spawn) -> None:
        """Get ready to `listen`; `spawn` starts the tasks."""
        await self._serving.start(spawn)

    async def listen(self, sock: socket.socket, listener: str = "", tls: Tls | None = None) -> None:
        """Accept connections of a bound socket; their clients belong to a listener."""
        self._ports[sock.getsockname()[1]] = listener
        self._serving.listen(sock, tls)

    async def stop(self) -> None:
        """Stop, once the requests in progress are answered."""
        await self._serving.stop()
