"""The brokers that are alive, with their load reports, as their registrations in the metadata store say."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from loadmanager.core.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.core.errors import BadInputError
from loadmanager.core.load.reports import LocalBrokerData, decode_local_broker_data
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.ports.store import Change, ChangeKind, Store
from loadmanager.runtime.shared import paths

log = structlog.get_logger("brokers")


class Brokers:
    """Every live broker's last report; kept current by a watch on `/loadbalance/brokers`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reports: dict[str, LocalBrokerData] = {}
        """brokerId → report, as last read."""
        self.listeners: list[Callable[[str, LocalBrokerData | None], None]] = []
        """Called with each broker that came, changed or went (None)."""

    async def apply(self, change: Change) -> None:
        """Read what a change names."""
        if change.kind is ChangeKind.RESYNC:
            present = await self._store.children(paths.BROKERS)
            for gone in self.reports.keys() - set(present):
                self._forget(gone)
            for broker_id in present:
                await self._read(broker_id)
            return
        if change.path == paths.BROKERS:
            return
        broker_id = change.path[len(paths.BROKERS) + 1 :]
        if change.kind is ChangeKind.DELETED:
            self._forget(broker_id)
        else:
            await self._read(broker_id)

    async def _read(self, broker_id: str) -> None:
        node = await self._store.get(paths.broker(broker_id))
        if node is None:
            self._forget(broker_id)
            return
        try:
            report = decode_local_broker_data(node.value)
            for bundle in (*report.bundles, *report.last_stats):
                BundleRange.parse(split_bundle_name(bundle)[1])
        except BadInputError as error:
            log.error(
                "a broker's load report cannot be read; the broker is ignored until it writes another", broker=broker_id, error=str(error)
            )
            self._forget(broker_id)
            return
        if broker_id not in self.reports:
            log.info("broker joined", peer=broker_id)
        self.reports[broker_id] = report
        for listener in self.listeners:
            listener(broker_id, report)

    def _forget(self, broker_id: str) -> None:
        if self.reports.pop(broker_id, None) is not None:
            log.info("broker left", peer=broker_id)
            for listener in self.listeners:
                listener(broker_id, None)

    def address(self, broker_id: str) -> BrokerAddress | None:
        """Where a live broker is reached."""
        report = self.reports.get(broker_id)
        return BrokerAddress(broker_id, report.pulsar_service_url or "", report.web_service_url or "") if report else None
