"""Reads what the brokers of a Pulsar cluster with the modular load manager publish in ZooKeeper.

Nothing is written there. A broker's node is ephemeral. The broker writes it when its load has
changed by `loadBalancerReportUpdateThresholdPercentage` (10), else each
`loadBalancerReportUpdateMaxIntervalMinutes` (15).
"""

from __future__ import annotations

import asyncio

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.tasks import Scope, Steps, every
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.reader import AdminReader
from loadmanager.steer.pulsar.settings import METADATA_URL
from loadmanager.steer.settings_file import ClusterSettings

REPORTS = "/loadbalance/brokers"
CONNECT_AGAIN_S = 15.0
"""A connection that is lost for good is made again after this time."""


class LoadReports:
    """The load reports of one cluster."""

    def __init__(self, url: str, url_key: str, timeout_s: float) -> None:
        asked = ZooKeeperSettings(url=url)
        self._root = f"/{asked.chroot}{REPORTS}" if asked.chroot else REPORTS
        # Without the chroot: a store creates its root.
        self._settings = ZooKeeperSettings(
            url=f"zk:{asked.hosts}", operation_timeout_s=timeout_s, session_timeout_ms=30_000
        )
        self._url_key = url_key
        self._store: asyncio.Future[ZooKeeperStore] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Hold the connection, until cancelled. Raises `OperationalError` if there is none."""
        async with ZooKeeperStore(self._settings, url_key=self._url_key) as store:
            self._store.set_result(store)
            try:
                await asyncio.Event().wait()
            finally:
                self._store = asyncio.get_running_loop().create_future()

    async def of(self, broker_id: str) -> bytes:
        """The last report of a broker, undecoded. Raises `OperationalError`."""
        path = f"{self._root}/{broker_id}"
        try:
            async with asyncio.timeout(self._settings.operation_timeout_s):
                store = await asyncio.shield(self._store)
        except TimeoutError:
            raise OperationalError(
                f"{path} cannot be read: there is no connection with ZooKeeper at "
                f"{self._settings.hosts} ({self._url_key})"
            ) from None
        node = await store.get(path)
        if node is None:
            raise OperationalError(f"ZooKeeper has no {path}: is {self._url_key} this cluster's?")
        return node.value


def reader_of(
    client: PulsarClient, cluster: ClusterSettings, scope: Scope, steps: Steps
) -> AdminReader:
    """Reads the cluster; the load reports from Pulsar's ZooKeeper, if its address is given."""
    asked = cluster.pulsar
    if not asked.metadata_url:
        return AdminReader(client, SystemClock())
    reports = LoadReports(asked.metadata_url, METADATA_URL, asked.timeout_s)
    scope.spawn(every(lambda: CONNECT_AGAIN_S, reports.run, "load-reports", steps), "load-reports")
    return AdminReader(client, SystemClock(), reports.of)
