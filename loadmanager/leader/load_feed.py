"""Feeds the leader's view of the load from the brokers' reports, and keeps its averages in the
store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import BundleData, LocalBrokerData, decode_bundle_data
from loadmanager.kit.clock import Clock
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Check, Create, Put, Store
from loadmanager.kit.tasks import Steps
from loadmanager.leader.brokers import Brokers

STORED_BUNDLES_MAX = 10_000
WRITES_PER_TRANSACTION = 200
"""Each write is about 5 KB: together they are well below the size of a transaction."""


async def stored_bundles(store: Store, root: str) -> list[str]:
    """The bundles that have a node below this path."""
    names = []
    for tenant in await store.children(root):
        for namespace in await store.children(f"{root}/{tenant}"):
            above = f"{tenant}/{namespace}"
            names += [f"{above}/{span}" for span in await store.children(f"{root}/{above}")]
    return names[:STORED_BUNDLES_MAX]


@dataclass(frozen=True, slots=True)
class LoadFeed:
    """Passes every report to a view and then to `observe`, during one term.

    Brokers that run the other load manager, during a change of it, count as gone: their
    registrations contain no load.
    """

    view: ClusterView
    observe: Callable[[str, LocalBrokerData], None]
    brokers: Brokers
    clock: Clock
    corrupt: Corrupt
    steps: Steps
    heard: set[str] = field(default_factory=set)
    """Brokers that have reported since the feed began."""

    def __enter__(self) -> LoadFeed:
        """Take the present reports, and every later one."""
        for broker_id, report in self.brokers.reports.items():
            self._on_report(broker_id, report)
        self.brokers.listeners.append(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening: the term is over."""
        self.brokers.listeners.remove(self._hear)

    def _hear(self, broker_id: str, report: LocalBrokerData | None) -> None:
        self.heard.add(broker_id)
        self._on_report(broker_id, report)

    def _on_report(self, broker_id: str, report: LocalBrokerData | None) -> None:
        # A failure of the leader must not keep other listeners from the report.
        with self.steps.contained("observe"):
            if report is None or _of_other_manager(report):
                self.view.gone(broker_id, self.clock.now_ms())
            else:
                self.view.observe(broker_id, report, self.clock.now_ms())
                self.observe(broker_id, report)

    async def refresh(self) -> None:
        """Do nothing: every report is fed when it comes."""

    async def restore(self, store: Store) -> None:
        """Begin with the averages that earlier leaders stored, without corrupt ones."""
        names = await stored_bundles(store, paths.BUNDLE_DATA)
        stored: dict[str, BundleData] = {}
        for name, node in zip(
            names,
            await store.get_many([f"{paths.BUNDLE_DATA}/{name}" for name in names]),
            strict=True,
        ):
            with self.corrupt.left_out("averages", f"{paths.BUNDLE_DATA}/{name}"):
                if node is not None and node.value:
                    stored[name] = decode_bundle_data(node.value)
        self.view.restore(stored, self.clock.now_ms())

    async def save(self, store: Store, bundles_per_broker: int, checks: Sequence[Check]) -> None:
        """Store the averages of the busiest bundles and of every broker for the next leader (Pulsar
        `writeBundleDataOnZooKeeper`).

        Raises `VersionConflictError` if the term is over.
        """
        data = self.view.bundle_data
        order = sorted(data, key=lambda bundle: (-data[bundle].long_term_data.throughput, bundle))
        limit = (
            len(order)
            if bundles_per_broker < 0
            else bundles_per_broker * max(len(self.view.reports), 1)
        )
        values = {
            f"{paths.BUNDLE_DATA}/{bundle}": msgspec.json.encode(data[bundle])
            for bundle in order[:limit]
        }
        for broker_id, average in self.view.time_averages.items():
            values[f"{paths.BROKER_TIME_AVERAGE}/{broker_id}"] = msgspec.json.encode(average)
        for parent in sorted({path.rpartition("/")[0] for path in values}):
            await store.create(parent, b"")  # a transaction makes no parents
        names = list(values)
        for start in range(0, len(names), WRITES_PER_TRANSACTION):
            batch = names[start : start + WRITES_PER_TRANSACTION]
            nodes = await store.get_many(batch)
            writes = [
                Create(path, values[path]) if node is None else Put(path, values[path])
                for path, node in zip(batch, nodes, strict=True)
            ]
            await store.commit([*checks, *writes])


def _of_other_manager(report: LocalBrokerData) -> bool:
    return Manager.of(report.load_manager_class_name) is Manager.EXTENSIBLE
