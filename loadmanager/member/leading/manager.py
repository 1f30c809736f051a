"""What a member needs of the load manager that it runs, and a leader of what feeds its view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Protocol

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.ownership.state_records import StateRecord
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.metadata.store import Check, Store
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.ports.mover import Release
from loadmanager.member.base import Base
from loadmanager.member.lookup import Search
from loadmanager.member.ownership.claims import Claims
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.reporter import Reporter

Listeners = list[Callable[[str, StateRecord | None], None]]
"""Called with a bundle and its record."""


class Feed(Protocol):
    """Feeds a view during one term (`LoadFeed`)."""

    @property
    def view(self) -> ClusterView:
        """The view."""
        ...

    @property
    def heard(self) -> Set[str]:
        """Brokers that have reported since the feed began."""
        ...

    def __enter__(self) -> object:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """End, because the term is over."""
        ...

    async def refresh(self) -> None:
        """Read what is not fed as it changes, before a cycle."""
        ...

    async def restore(self, store: Store) -> None:
        """Begin with the averages that earlier leaders stored."""
        ...

    async def save(self, store: Store, bundles_per_broker: int, checks: Sequence[Check]) -> None:
        """Store averages for the next leader. Raises `VersionConflictError` if the term is over."""
        ...


class RunningManager(Protocol):
    """One of Pulsar's two load managers, as it runs in a member (`member.modular`,
    `member.extensible`).
    """

    @property
    def manager(self) -> Manager:
        """Which one."""
        ...

    @property
    def claims(self) -> Claims:
        """By what a member owns bundles."""
        ...

    @property
    def leader_path(self) -> str:
        """The path of the leader's node."""
        ...

    @property
    def search(self) -> Search | None:
        """What finds the owner of a bundle on lookup; None: the leader is asked."""
        ...

    @property
    def records(self) -> Listeners | None:
        """Where to listen for changes of state records; None: reports tell of owners."""
        ...

    @property
    def assign(self) -> Callable[[str, str], Awaitable[bool]] | None:
        """Has a broker acquire a bundle that nobody owns; None: its next lookup does."""
        ...

    @property
    def leader_splits(self) -> bool:
        """False: the owners decide about splits."""
        ...

    def connect(self, ownership: Ownership, reporter: Reporter, hosting: Hosting) -> None:
        """Build what needs the member's other parts; called once."""
        ...

    def watchers(self) -> list[Watcher]:
        """The watchers that keep its caches current."""
        ...

    async def prepare(self) -> None:
        """Fill its caches."""
        ...

    async def begin(self) -> None:
        """Start its periodic steps; the member registers next."""
        ...

    async def owner(self, bundle: str) -> str | None:
        """The brokerId of a bundle's owner, as stored."""
        ...

    def view(self) -> ClusterView:
        """A leader's view of the load."""
        ...

    def feed(self, base: Base, view: ClusterView, load_manager: LoadManager) -> Feed:
        """What feeds the view during a term; `base`: that of the term."""
        ...

    def decisions(self) -> Decisions:
        """What keeps the decisions of a term."""
        ...

    def release(self, term: Term) -> Release:
        """The function that moves bundles during a term."""
        ...

    def lead(self, base: Base, term: Term) -> None:
        """Start what it does besides during a term, even if it does not balance."""
        ...
