"""One term of a leader of the extensible manager: it sheds load, and looks after state records.

Brokers place bundles and split them by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import BrokerLoadData
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.metadata.store import Check, Operation, Store
from loadmanager.kit.tasks import Interval, Scope, Steps, every, sleep
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Release
from loadmanager.leader.ports.mover import Released
from loadmanager.member.leading.state_monitor import Placer, StateMonitor
from loadmanager.member.leading.term import Feed, LeaderWork
from loadmanager.member.settings import StateSettings
from loadmanager.member.state_cache import StateCache

RELEASE_ASKED_AFTER_S = (0.0, 0.05, 0.2, 1.0)
"""Waits before the questions how the source released a bundle."""


class Published(Protocol):
    """The load data that brokers published (`member.load_data.LoadStore`)."""

    listeners: list[Callable[[str, BrokerLoadData], None]]
    """Called with a brokerId and the load data that it published."""

    async def read_top_bundles(self) -> None:
        """Tell the view which bundles the live brokers published."""
        ...


class Orders(Protocol):
    """Orders by state record (`member.state_records.StateRecords`)."""

    async def order_release(
        self, bundle: str, destination: str | None, conditions: Sequence[Operation] = ()
    ) -> bool:
        """Order the owner to give up a bundle; returns whether it did, in time."""
        ...


@dataclass(slots=True)
class PublishedFeed:
    """Implements `member.leading.term.Feed`: the broker's own view, which is fed all the time.

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


@dataclass(frozen=True, kw_only=True)
class ExtensibleLeaderWork(LeaderWork):
    """The leader's work; `run` is one term of it."""

    manager: ClassVar[Manager] = Manager.EXTENSIBLE
    states: Live[StateSettings]
    view: ClusterView
    """This broker's view, in which it places bundles, too."""
    published: Published
    orders: Orders
    cache: StateCache
    lives: Callable[[str | None, int], bool]
    """Whether a broker is registered in a session."""
    placer: Placer
    decisions: Decisions
    """This broker's decisions: it places bundles and splits, too."""
    leader_splits: bool = False

    def new_view(self) -> ClusterView:
        """See the base class."""
        return self.view

    def new_feed(self, view: ClusterView, load_manager: LoadManager, steps: Steps) -> Feed:
        """See the base class."""
        return PublishedFeed(view, load_manager.observe, self.published, steps)

    def new_decisions(self) -> Decisions:
        """See the base class."""
        return self.decisions

    def release_of(self, term: Term) -> Release:
        """Writes the order into the bundle's record, while the term lasts."""

        async def move(
            owner: BrokerAddress,
            bundle: str,
            destination: BrokerAddress | None,
            *,
            epoch: int | None,
        ) -> Released | None:
            self.leading.check(epoch)
            to = None if destination is None else destination.broker_id
            clients = await self._clients(owner, bundle)
            if not await self.orders.order_release(bundle, to, term.checks):
                return None
            return replace(await self._last_release(owner, bundle), clients=clients)

        return move

    async def _clients(self, owner: BrokerAddress, bundle: str) -> int | None:
        with contextlib.suppress(OperationalError):
            return (await self.peers.served_bundles(owner, bundle)).get(bundle)
        return None

    async def _last_release(self, owner: BrokerAddress, bundle: str) -> Released:
        """The source's report of the release, which may end there a little later than it is seen
        here.
        """
        with contextlib.suppress(OperationalError):
            for wait_s in RELEASE_ASKED_AFTER_S:
                await sleep(wait_s)
                if (released := await self.peers.last_release(owner, bundle)) is not None:
                    return released
        return Released()

    def begin(self, term: Term, scope: Scope, steps: Steps) -> None:
        """Look after the state records."""
        monitor = StateMonitor(
            store=self.store,
            cache=self.cache,
            brokers=self.brokers,
            placer=self.placer,
            clock=self.clock,
            settings=self.states,
            checks=term.checks,
            scope=scope,
            steps=steps,
            lives=self.lives,
            placed=lambda bundle, broker: self.view.placed(bundle, broker, self.clock.now_ms()),
        )
        scope.spawn(monitor.follow_brokers(), "follow-brokers")
        watching = Interval(self.states, lambda settings: settings.monitor_interval_s)
        scope.spawn(
            every(watching, monitor.monitor, "monitor", steps, first_after_s=None), "monitor"
        )
