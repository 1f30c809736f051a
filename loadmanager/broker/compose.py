"""A broker: a member that serves Pulsar's clients, or whatever else hashes into bundles.

It takes everything outside it from `Outside`. `broker.process` adds what a process has:
ports, signals, metrics, history on disk.
"""

from __future__ import annotations

from functools import partial

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.auditing import Telling, build_audit
from loadmanager.broker.hosting import (
    access_watchers,
    announce_openings,
    build_access,
    build_hosting,
    connect,
    disconnect,
    hosting_samples,
    record_clients,
    returns_of,
    share_topics,
    tell_limits,
)
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.service import HostsTopics, Outside, StoresTopics
from loadmanager.broker.settings.live import LiveSettings
from loadmanager.broker.topics.deleting import Deleting
from loadmanager.broker.topics.directory import TopicDirectory
from loadmanager.broker.topics.limits import Limits
from loadmanager.broker.topics.schemas import StoredSchemas
from loadmanager.broker.topics.stored_bytes import StoredBytes
from loadmanager.broker.topics.topics import Topics
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.metrics.settings import MetricsSettings
from loadmanager.kit.tasks import Scope
from loadmanager.kit.telemetry import Telemetry
from loadmanager.kit.units import MIB
from loadmanager.leader.audit import NotingStore
from loadmanager.leader.findings import samples as finding_samples
from loadmanager.leader.members import samples as member_samples
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.member.compose import ComposedMember
from loadmanager.member.orders import Orders
from loadmanager.member.splitting import Splitting
from loadmanager.member.world import base_of


class Parts:
    """The constructor builds the parts, `start` runs them in `scope`, `stop` ends the broker."""

    def __init__(self, settings: LiveSettings, outside: Outside, scope: Scope) -> None:
        self.settings, self._outside = settings, outside
        base = base_of(outside, settings, scope)
        self.steps, noting = base.steps, NotingStore(outside.store)
        messaging = settings.live(MessagingSettings)
        self._throttling = BrokerThrottling(
            settings.live(ThrottlingSettings).value,
            cluster=base.broker.value.cluster_name,
            now_ns=outside.clock.monotonic_ns(),
            publish_buffer_bytes=messaging.value.publish_buffer_mb * MIB,
        )
        self.hosting = build_hosting(settings, outside, scope, self._throttling)
        self.member = ComposedMember(
            base,
            outside,
            self.hosting,
            self._throttling,
            documents=noting,
            stats_interval_s=lambda: messaging.value.stats_interval_s,
        )
        announce_openings(self.member.manager, self.hosting)
        cluster = self.member.cluster
        self._telling = Telling(outside, cluster, self.member.events)
        self.audit = build_audit(outside, self._telling)
        self.access = build_access(settings, outside, cluster.namespaces, noting, base.corrupt)
        connect(self.hosting, self.access, self.audit)
        record_clients(self.hosting, outside.history, outside.archive, base.broker_id)
        tell_limits(outside.archive, self.member.limit_records)
        storage = outside.storage if isinstance(self.hosting, StoresTopics) else None
        self._topics = Topics(noting, cluster.namespaces, base.broker, base.corrupt, storage)
        share_topics(self._topics, self.hosting)
        self.limits = Limits(
            noting,
            cluster.namespaces,
            self._throttling,
            settings,
            clock=outside.clock,
            in_force=settings.live(ThrottlingSettings),
            changed=self.hosting.limits_changed,
            corrupt=base.corrupt,
            rules=self.hosting.rules if isinstance(self.hosting, HostsTopics) else None,
        )
        self._directory = TopicDirectory(
            base=base,
            cluster=cluster,
            session_keeper=self.member.session_keeper,
            topics=self._topics,
            schemas=StoredSchemas(noting, cluster.namespaces, outside.clock, base.corrupt),
            ownership=self.member.ownership,
            lookups=self.member.lookups,
            limits=self.limits,
            hosting=self.hosting,
        )
        self._stored = None
        if storage is not None and outside.history is not None:
            self._stored = StoredBytes(
                base=base, leading=cluster.leading, history=outside.history, sizes=storage.sizes
            )
        self.use_cases = self._build_use_cases()
        metrics = settings.live(MetricsSettings)
        hooks = self.member.telemetry.hosting
        others = hosting_samples(self.hosting, hooks, self._throttling, outside.clock, metrics)
        leading = cluster.leading
        ours = (
            self.member.telemetry.samples,
            self.audit.samples,
            lambda: member_samples(leading.members),
            lambda: finding_samples(leading.findings),
        )
        self.telemetry = Telemetry([*ours, *others])

    def _build_use_cases(self) -> UseCases:
        member, base, cluster = self.member, self.member.base, self.member.cluster
        splitting = Splitting(
            base=base,
            cluster=cluster,
            topics=self._topics,
            ownership=member.ownership,
            hosting=self.hosting,
        )
        return UseCases(
            self_address=base.me,
            brokers=cluster.brokers,
            leading=cluster.leading,
            health=member.health,
            ownership=member.ownership,
            namespaces=cluster.namespaces,
            topics=self._topics,
            topic_host=self.hosting.topic_host if isinstance(self.hosting, HostsTopics) else None,
            directory=self._directory,
            hosting=self.hosting,
            unloading=member.unloading,
            splitting=splitting,
            deleting=Deleting(
                base=base,
                cluster=cluster,
                topics=self._topics,
                directory=self._directory,
                ownership=member.ownership,
                unloading=member.unloading,
                hosting=self.hosting,
            ),
            orders=Orders(
                base=base,
                cluster=cluster,
                ownership=member.ownership,
                unloading=member.unloading,
                splitting=splitting,
                hosting=self.hosting,
                returns=returns_of(self.hosting, base.clock),
            ),
            limits=self.limits,
            policies=cluster.policies,
            events=member.events,
            load_report=member.reporter.current,
            extensible=member.extensible,
            settings=self.settings.in_force,
            refused_tokens=None if self.access is None else self.access.refused,
            disconnect=partial(disconnect, self.hosting, self.access),
            audit=self.audit,
            archive=self._outside.archive,
            stop=self._outside.stop,
        )

    # Life

    async def start(self) -> None:
        """`prepare`, then `join`, for a broker without ports."""
        await self.prepare()
        await self.join()

    async def prepare(self) -> None:
        """Fill the caches and make hosting ready: from now on, clients can be answered."""
        store, cluster = self._outside.store, self.member.cluster
        administered = Watcher(
            store,
            paths.ADMIN,
            cluster.namespaces.on_change,
            self._topics.on_change,
            self.limits.on_change,
            cluster.policies.on_change,
            self.member.ownership.on_boundaries,
            *([] if self.access is None else [self.access.on_change]),
        )
        await self.member.prepare([administered, *access_watchers(store, self.access)])
        self.hosting.begin(self._directory)

    async def join(self) -> None:
        """Register this broker, so that it gets work, and start its periodic steps."""
        await self.member.join()
        self.member.base.scope.spawn(self.audit.run(), "tell-changes")
        if self._stored is not None:
            self._stored.begin()

    async def stop(self, unloads_per_s_max: int) -> None:
        """Stop gracefully; see `member.stopping`."""
        await self.member.stop(unloads_per_s_max, self.hosting.stop)
