"""Feeds a leader's view with the load data that brokers publish (extensible manager)."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import BrokerLoadData
from loadmanager.kit.metadata.store import Check, Store
from loadmanager.kit.tasks import Steps


class Published(Protocol):
    """The load data that brokers published (`member.load_data.LoadStore`)."""

    listeners: list[Callable[[str, BrokerLoadData], None]]
    """Called with a brokerId and the load data that it published."""

    async def read_top_bundles(self) -> None:
        """Tell the view which bundles the live brokers published."""
        ...


@dataclass(slots=True)
class PublishedFeed:
    """Implements `member.leading.manager.Feed`: the broker's own view, which is fed all the time.

    Passes all load data to `observe`, too, during one term.
    """

    view: ClusterView
    observe: Callable[[str, BrokerLoadData], None]
    published: Published
    steps: Steps
    heard: Set[str] = field(default_factory=set)

    def __enter__(self) -> PublishedFeed:
        """Take the present load data, and whatever brokers publish later."""
        for broker_id, data in self.view.load_data.items():
            self._on_data(broker_id, data)
        self.heard = set()
        self.published.listeners.append(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        self.published.listeners.remove(self._hear)

    def _hear(self, broker_id: str, data: BrokerLoadData) -> None:
        self.heard |= {broker_id}
        self._on_data(broker_id, data)

    def _on_data(self, broker_id: str, data: BrokerLoadData) -> None:
        with self.steps.contained("observe"):
            self.observe(broker_id, data)

    async def refresh(self) -> None:
        """Read the busiest bundles of each broker."""
        await self.published.read_top_bundles()

    async def restore(self, store: Store) -> None:
        """There are no averages of bundles in this manager."""

    async def save(self, store: Store, bundles_per_broker: int, checks: Sequence[Check]) -> None:
        """There is nothing to store."""
