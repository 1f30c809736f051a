"""Implements `steer.ports.cluster_reader.ClusterReader` over the admin API.

A modular broker publishes its load report, in its admin API and in ZooKeeper. An extensible one
answers 500 for it: then the report is made of its metrics, its topics and its owned bundles.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import quote

from loadmanager.engine.load.manager import Manager
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.names import clip
from loadmanager.steer.ports.cluster_reader import BrokerReading, Cost, PoliciesReading
from loadmanager.steer.pulsar import answers
from loadmanager.steer.pulsar.client import AnswerError, PulsarClient

V2 = "/admin/v2"
RUNTIME = f"{V2}/brokers/configuration/runtime"


class AdminReader:
    """Reads one cluster."""

    def __init__(
        self,
        client: PulsarClient,
        clock: Clock,
        stored: Callable[[str], Awaitable[bytes]] | None = None,
    ) -> None:
        """`stored` reads what a broker publishes in ZooKeeper, which is asked then instead of the
        broker; it raises `OperationalError`.
        """
        self._client = client
        self._clock = clock
        self._stored = stored
        self._without_report: set[str] = set()
        """Brokers that publish no load report."""
        self._cluster = ""

    @property
    def cost(self) -> Cost:
        return self._client.cost

    async def brokers(self) -> list[str]:
        names = answers.broker_ids(await self._client.get(f"{V2}/brokers"))
        self._client.learn(names)
        self._without_report.intersection_update(names)
        return names

    async def leader(self) -> str | None:
        try:
            return answers.leader_id(await self._client.get(f"{V2}/brokers/leaderBroker"))
        except AnswerError as error:
            if error.status == 404:  # no leader now
                return None
            raise

    async def settings(self, broker_id: str | None = None) -> Mapping[str, str]:
        values = answers.balancing_settings(await self._client.get(RUNTIME, broker_id))
        named = values.get("clusterName", self._cluster)
        if self._cluster and named != self._cluster:
            raise OperationalError(
                f"the brokers belong to cluster {clip(self._cluster)} and to {clip(named)}: "
                "those of one are expected"
            )
        self._cluster = named
        return values

    async def read(self, broker_id: str) -> BrokerReading:
        if broker_id not in self._without_report:
            raw = await self._published(broker_id)
            if raw is not None:
                stored, now_ms = self._stored is not None, self._clock.now_ms()
                return BrokerReading(answers.load_report(raw, now_ms, stored=stored))
            self._without_report.add(broker_id)
        return await self._without(broker_id)

    async def _published(self, broker_id: str) -> bytes | None:
        """A broker's load report; None if it publishes none."""
        if self._stored is not None:
            raw = await self._stored(broker_id)
            return None if answers.is_registration(raw) else raw
        try:
            return await self._client.get_large(f"{V2}/broker-stats/load-report", broker_id)
        except AnswerError as error:
            if error.status != 500 or not await self._extensible(broker_id):
                raise
            return None

    async def _extensible(self, broker_id: str) -> bool:
        """True if a broker runs the extensible manager. Another broker's 500 is a failure."""
        values = answers.balancing_settings(await self._client.get(RUNTIME, broker_id))
        return Manager.of(values.get("loadManagerClassName")) is Manager.EXTENSIBLE

    async def _without(self, broker_id: str) -> BrokerReading:
        """Make a report of other answers. Raises `OperationalError` if one of them is missing."""
        owned = await self.owned(broker_id)
        topics = await self._client.get_large(f"{V2}/broker-stats/topics", broker_id)
        stats = answers.bundle_stats(topics)
        usage = answers.usages(await self._client.get_large("/metrics/", broker_id))
        faults = tuple(sorted(set(answers.USAGES.values()) - usage.keys()))
        report = answers.report_of(
            stats,
            usage,
            owned,
            url=self._client.url_of(broker_id),
            now_ms=self._clock.now_ms(),
        )
        return BrokerReading(report, faults, answers.stored_bytes(topics))

    async def owned(self, broker_id: str) -> list[str]:
        """The bundles that a broker owns now, sorted."""
        if not self._cluster:
            await self.settings()
        path = f"{V2}/brokers/{quote(self._cluster, safe='')}/{broker_id}/ownedNamespaces"
        return answers.owned_bundles(await self._client.get_large(path, broker_id))

    async def policies(self, cluster: str, namespaces: Iterable[str]) -> PoliciesReading:
        below = f"{V2}/clusters/{quote(cluster, safe='')}"
        isolation = await self._client.get_if_any(f"{below}/namespaceIsolationPolicies")
        domains = await self._client.get_if_any(f"{below}/failureDomains")
        groups: dict[str, str] = {}
        for namespace in namespaces:
            path = f"{V2}/namespaces/{namespace}/antiAffinity"
            raw = await self._client.get_if_any(path, may_be_empty=True)  # 4.2: 200; 4.0: 204
            group = None if raw is None else answers.anti_affinity_group(raw)
            if group is not None:
                groups[namespace] = group
        return PoliciesReading(
            answers.isolation_policies(isolation or b"{}"),
            answers.failure_domains(domains or b"{}"),
            groups,
        )

    async def boundaries(self, namespace: str, at: str | None = None) -> list[str]:
        """See the port. `at`: the broker to ask, else any."""
        return answers.bundle_boundaries(
            await self._client.get(f"{V2}/namespaces/{namespace}/bundles", at)
        )

    async def boundaries_if_any(self, namespace: str) -> list[str] | None:
        raw = await self._client.get_if_any(f"{V2}/namespaces/{namespace}/bundles")
        return None if raw is None else answers.bundle_boundaries(raw)
