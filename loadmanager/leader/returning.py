"""Counts the clients of brokers that left as they come back, and how long each of them waited.

How many there were is what the broker had last published. When they came, the new owners say. Their
clocks do not matter: they say for how long they serve a bundle, and how long after that each client
was served.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from loadmanager.engine.load.reports import (
    LocalBrokerData,
    NamespaceBundleStats,
    PublishedClients,
)
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.tasks import for_each
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.documents.members import RETURN_MS_MAX, AbsentBroker
from loadmanager.leader.moves import Moves
from loadmanager.leader.owner_tracker import OwnerTracker
from loadmanager.leader.ports.mover import ClientsBack

ASKED_AT_ONCE = 8
ASKED_MAX = 50
"""Bundles of one broker that are asked for in one step."""
AGAIN_MS = 1_000
"""When a bundle is asked for again; each further time after twice as long as before."""
AGAIN_MS_MAX = 32_000
SAME_LIFE_MS = 2_000
"""An owner that began to serve at moments that differ by more than this did so twice."""


NAMED_MAX = 100
"""Bundles of one broker whose clients are counted and whose names are stored, those with the most
clients: when all of these are served again, so are the others, as far as anybody wants them.
"""


class Waited(msgspec.Struct, rename="camel"):
    """Clients that are served again, and how long those waited of whom that is known."""

    back: int = 0
    timed: int = 0
    total_ms: float = 0.0
    longest_ms: float = 0.0

    def add(self, other: Waited) -> None:
        """Count these, too."""
        self.back += other.back
        self.timed += other.timed
        self.total_ms += other.total_ms
        self.longest_ms = max(self.longest_ms, other.longest_ms)


class Awaited(msgspec.Struct, rename="camel"):
    """A bundle of a broker that left."""

    clients: int
    """Those that it had there."""
    owner: str = ""
    """The broker that serves it since; empty: none is known."""
    served_at: int = 0
    """When that began to serve it, by the leader's clock."""
    came: Waited = msgspec.field(default_factory=Waited)
    """Those that were seen to be back, also if they went away by themselves later."""
    earlier: int = 0
    """How many of those were at owners before this one: the bundle has moved on."""
    asked_ms: float = 0.0
    """For how long the owner had served it when it was last asked; 0: it has not been."""
    again_at: int = 0
    """When the first of these owners began to serve it."""


@dataclass(slots=True)
class Returning:
    """Asks the owners of bundles whose broker left."""

    brokers: Brokers
    moves: Moves
    owners: OwnerTracker
    _asks: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Broker that left and bundle → when it is asked for next, and the time after that, in ms."""

    async def step(
        self, absence: AbsentBroker, awaited: dict[str, Awaited], waited: Waited
    ) -> bool:
        """Ask for bundles that are served again, and take those out for which nothing more is to be
        learned. True if nothing is left.
        """
        now_ms = self.moves.term.clock.now_ms()
        due = [bundle for bundle in awaited if self._is_due(absence, bundle, now_ms)][:ASKED_MAX]
        if not due:
            return False

        async def ask(bundle: str) -> None:
            if await self._ended(absence, bundle, awaited[bundle]):
                waited.add(awaited.pop(bundle).came)
                self._asks.pop((absence.broker, bundle), None)

        await for_each(due, ask, ASKED_AT_ONCE)
        _show(absence, awaited.values(), waited)
        return not awaited

    def _is_due(self, absence: AbsentBroker, bundle: str, now_ms: int) -> bool:
        tracked = self.owners.by_bundle.get(bundle)
        if tracked is None or (
            tracked.broker == absence.broker and tracked.since_ms <= absence.left_at
        ):
            return False
        key = absence.broker, bundle
        at_ms, after_ms = self._asks.get(key, (0, AGAIN_MS))
        if now_ms < at_ms:
            return False
        self._asks[key] = now_ms + after_ms, min(2 * after_ms, AGAIN_MS_MAX)
        return True

    async def _ended(self, absence: AbsentBroker, bundle: str, item: Awaited) -> bool:
        """Ask the owner; true if there is no more to learn of it."""
        tracked = self.owners.by_bundle[bundle]
        address = self.brokers.address(tracked.broker)
        if address is None:
            return False
        try:
            back = await self.moves.orders.mover.clients_back(address, bundle, item.clients)
        except LoadManagerError:
            return False
        if back is None:
            return False
        now_ms = self.moves.term.clock.now_ms()
        served_at = now_ms - int(back.served_ms or 0)
        again = back.served_ms and abs(served_at - item.served_at) > SAME_LIFE_MS
        if tracked.broker != item.owner or again:
            item.owner, item.served_at, item.asked_ms = tracked.broker, served_at, 0.0
            item.earlier = item.came.back
            item.again_at = item.again_at or served_at
        item.came.add(newcomers(item, back, max(0, item.served_at - absence.left_at)))
        item.asked_ms = back.served_ms or 0.0
        return item.came.back >= item.clients or now_ms - item.again_at > RETURN_MS_MAX


def newcomers(item: Awaited, back: ClientsBack, late_ms: float) -> Waited:
    """Those of the missing ones that came since the owner was last asked. If the bundle has moved
    on, these are the last of more than had come before: the others were only disturbed again.
    `late_ms`: how long after the loss the owner began to serve it.
    """
    counted, came = item.came.back, sorted(back.returned_ms)
    count = max(0, min(back.count, item.clients) - counted)
    if item.asked_ms and not item.earlier:  # some may have come, and left by themselves
        came = [each for each in came if each > item.asked_ms][: item.clients - counted]
        count = max(count, len(came))
    else:
        came = came[max(0, len(came) - count) :]
    waits = [] if back.served_ms is None else [late_ms + each for each in came]
    return Waited(count, len(waits), sum(waits), max(waits, default=0.0))


def clients_of_bundles(stats: Mapping[str, NamespaceBundleStats]) -> dict[str, int]:
    """Bundle → its producers and consumers, of those that have most of them."""
    counts = {
        bundle: int(each.producer_count + each.consumer_count) for bundle, each in stats.items()
    }
    return dict(heapq.nsmallest(NAMED_MAX, counts.items(), key=lambda item: (-item[1], item[0])))


def published_clients(
    report: LocalBrokerData | None, published: PublishedClients | None, owned: Collection[str]
) -> dict[str, int]:
    """Bundle → its clients, of those that a broker owned and had published."""
    clients = {} if published is None else dict(published.bundle_clients)
    if report is not None:
        clients |= {
            bundle: int(each.producer_count + each.consumer_count)
            for bundle, each in report.last_stats.items()
        }
    return {bundle: int(count) for bundle, count in clients.items() if bundle in owned}


def _show(absence: AbsentBroker, awaited: Collection[Awaited], waited: Waited) -> None:
    total = Waited()
    for each in (waited, *(item.came for item in awaited)):
        total.add(each)
    absence.clients_back = total.back
    if total.timed:
        absence.clients_waited_ms = round(total.longest_ms, 1)
        absence.clients_waited_mean_ms = round(total.total_ms / total.timed, 1)
