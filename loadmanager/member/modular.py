"""The modular load manager as it runs in a member: locks, placement and splits by the leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.load_feed import LoadFeed
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.ports.mover import Release
from loadmanager.member.base import Base, Cluster
from loadmanager.member.leading.manager import Listeners
from loadmanager.member.lookup import Search
from loadmanager.member.ownership.locks import Locks
from loadmanager.member.ownership.owners import stored_owner
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.reporter import Reporter


class ModularManager:
    """Implements `member.leading.manager.RunningManager`."""

    manager = Manager.MODULAR
    leader_path = paths.LEADER
    search: Search | None = None
    records: Listeners | None = None
    assign: Callable[[str, str], Awaitable[bool]] | None = None
    leader_splits = True

    def __init__(self, base: Base, cluster: Cluster) -> None:
        self._base, self._cluster = base, cluster
        self.claims = Locks(base, cluster)

    def connect(self, ownership: Ownership, reporter: Reporter, hosting: Hosting) -> None:
        self._ownership = ownership

    def watchers(self) -> list[Watcher]:
        """Those of the locks."""
        return [Watcher(self._base.store, paths.LOCKS, self._ownership.on_change)]

    async def prepare(self) -> None:
        """There is nothing to prepare."""

    async def begin(self) -> None:
        """There is nothing to begin."""

    async def owner(self, bundle: str) -> str | None:
        """See `member.ownership.owners.stored_owner`."""
        return await stored_owner(self._base.store, bundle)

    def view(self) -> ClusterView:
        """A new one for each term."""
        return ClusterView()

    def feed(self, base: Base, view: ClusterView, load_manager: LoadManager) -> LoadFeed:
        """The reports of all brokers."""
        return LoadFeed(
            view,
            observe=load_manager.observe,
            brokers=self._cluster.brokers,
            clock=base.clock,
            corrupt=base.corrupt,
            steps=base.steps,
        )

    def decisions(self) -> Decisions:
        """New ones for each term."""
        return Decisions(self._base.clock)

    def release(self, term: Term) -> Release:
        """Order the owner to release it."""
        return self._base.peers.release_bundle

    def lead(self, base: Base, term: Term) -> None:
        """There is nothing besides."""
