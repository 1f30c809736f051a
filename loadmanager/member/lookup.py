"""Finds the broker that serves a topic (Pulsar `NamespaceService.findBrokerServiceUrl`).

If the bundle has an owner, the lookup answers with it. Otherwise, in the modular manager (for the
extensible one see `member.assigning`), the leader places the bundle, and
redirects the client to the chosen broker with `authoritative` set, which makes that broker acquire
the bundle; any other broker redirects the client to the leader. Without a leader, the lookup waits
for `LEADER_WAIT_S`, then fails. Unlike in Pulsar, no broker places bundles without being the
leader, because two such brokers redirect clients to each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from loadmanager.kit import tracing
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.once import Once
from loadmanager.kit.names import TopicName
from loadmanager.kit.tasks import sleep
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.claims import Owner
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.lookup import Lookup

LEADER_WAIT_S = 5.0
LEADER_POLL_S = 0.05
DURATIONS_MAX = 1024

PlaceCall = Callable[[str], Awaitable[str]]


class Search(Protocol):
    """The way in which the extensible manager finds or makes an owner."""

    placed: int
    """Bundles that this broker placed; `unplaced`: without finding a broker."""
    unplaced: int

    async def find(self, bundle: str) -> Lookup:
        """The owner of a bundle. Raises `OperationalError` if there is none in time."""
        ...


@dataclass(slots=True, kw_only=True)
class Lookups:
    """Answers lookups; concurrent lookups of one bundle share one search."""

    ownership: Ownership
    base: Base
    cluster: Cluster
    search: Search | None = None
    """None: the modular manager, in which the leader places bundles."""
    pending: int = field(default=0, init=False)
    answers: int = field(default=0, init=False)
    redirects: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    placed: int = field(default=0, init=False)
    """Bundles that this broker placed as leader; `unplaced`: without finding a broker."""
    unplaced: int = field(default=0, init=False)
    took_s_total: float = field(default=0.0, init=False)
    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=DURATIONS_MAX), init=False)
    """Durations of the last lookups, including the failed ones."""
    _searching: Once[tuple[str, bool], Lookup] = field(default_factory=Once)

    @property
    def placements(self) -> tuple[int, int]:
        """The number of bundles that this broker placed, and of those that it found no
        broker for.
        """
        chosen = self if self.search is None else self.search
        return chosen.placed, chosen.unplaced

    def lookup_in_memory(self, topic: TopicName) -> Lookup | None:
        """The answer, if the topic's bundle and its owner are in memory. Raises `NotFoundError`."""
        bundle = self.cluster.namespaces.cached_bundle_of(topic)
        owner = None if bundle is None else self.ownership.cached_owner(bundle)
        if owner is None:
            return None
        self.answers += 1
        self.took_s.append(0.0)  # microseconds
        return Lookup(owner)

    def _took(self, began_s: float) -> None:
        took_s = self.base.clock.monotonic_s() - began_s
        self.took_s_total += took_s
        self.took_s.append(took_s)

    async def lookup(self, topic: TopicName, *, authoritative: bool) -> Lookup:
        in_memory = self.lookup_in_memory(topic)
        if in_memory is not None:
            return in_memory
        lookups_max = self.base.broker.value.lookups_max
        if self.pending >= lookups_max:
            self.failures += 1
            raise OperationalError(f"too many lookups in progress ({lookups_max})")
        self.pending += 1
        began_s = self.base.clock.monotonic_s()
        try:
            with tracing.span("lookup", topic=str(topic)) as span:
                bundle = await self.cluster.namespaces.bundle_of(topic)
                span.note(bundle=bundle)
                answer = await self._shared_search(bundle, authoritative)
                span.note(broker=answer.broker.broker_id, redirect=answer.redirect)
        except BaseException:
            self.failures += 1
            raise
        finally:
            self.pending -= 1
            self._took(began_s)
        if answer.redirect:
            self.redirects += 1
        else:
            self.answers += 1
        return answer

    async def of_bundle(self, bundle: str) -> Lookup:
        """The owner of a bundle, or with `redirect` the broker to ask next."""
        owner = self.ownership.cached_owner(bundle)
        return Lookup(owner) if owner is not None else await self._shared_search(bundle, False)

    async def _shared_search(self, bundle: str, authoritative: bool) -> Lookup:
        return await self._searching.run(
            (bundle, authoritative), lambda: self.find(bundle, authoritative=authoritative)
        )

    async def find(self, bundle: str, *, authoritative: bool) -> Lookup:
        """Find the broker that serves a bundle, or place or acquire the bundle."""
        if self.search is not None:
            return await self.search.find(bundle)
        owner = await self.ownership.owner(bundle)
        if owner is not None and not self._ours_but_idle(owner, bundle):
            return self._owned_by(owner, bundle)
        if authoritative or owner is not None:
            return await self._acquire(bundle, "authoritative lookup")
        return await self._ask_leader(bundle)

    def _ours_but_idle(self, owner: Owner, bundle: str) -> bool:
        return owner.address == self.base.me and not self.ownership.served(bundle)

    def _owned_by(self, owner: Owner, bundle: str) -> Lookup:
        if (
            owner.address.broker_id not in self.cluster.brokers.registered
            and owner.address != self.base.me
        ):
            raise OperationalError(
                f"Namespace bundle {bundle} is being unloaded: its owner "
                f"{owner.address.broker_id} is not registered"
            )
        return Lookup(owner.address)

    async def _acquire(self, bundle: str, reason: str) -> Lookup:
        owner = await self.ownership.acquire(bundle, reason)
        if self._ours_but_idle(owner, bundle):
            raise OperationalError(
                f"Namespace bundle {bundle} is being unloaded: an earlier session of this broker "
                "holds its lock until it expires"
            )
        return self._owned_by(owner, bundle)

    async def _ask_leader(self, bundle: str) -> Lookup:
        wait_until_s = self.base.clock.monotonic_s() + LEADER_WAIT_S
        while self.base.clock.monotonic_s() < wait_until_s:
            if self.cluster.leading.load_manager is not None:
                return await self._place(bundle, self.cluster.leading.load_manager.place)
            leader = self.cluster.leading.leader
            address = self.cluster.brokers.address(leader.broker_id) if leader else None
            if address is not None and address != self.base.me:
                return Lookup(address, redirect=True, authoritative=False)
            await sleep(LEADER_POLL_S)
        raise OperationalError(
            f"Failed to acquire ownership of {bundle}: no leader is known; try again"
        )

    async def _place(self, bundle: str, place: PlaceCall) -> Lookup:
        try:
            broker_id = await place(bundle)
        except OperationalError:
            self.unplaced += 1
            raise
        self.placed += 1
        if broker_id == self.base.me.broker_id:
            return await self._acquire(bundle, "placed by the leader")
        address = self.cluster.brokers.address(broker_id)
        if address is None:
            raise OperationalError(
                f"Failed to acquire ownership of {bundle}: {broker_id} is gone; try again"
            )
        return Lookup(address, redirect=True, authoritative=True)
