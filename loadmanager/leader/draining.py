"""Drains cordoned brokers through the queue of moves, and says how far it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from loadmanager.engine.load.wishes import Cordon
from loadmanager.engine.moves.move import Author, Move, MoveState
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.logger import get_logger
from loadmanager.leader.documents.moves import CordonShown
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves

BATCH = 50
"""Moves of one drain that are decided together: later ones see where the earlier ones went."""
INTERVAL_S = 1.0
LOOK_AGAIN_S = 5.0
"""A drained broker is asked this often whether it got a bundle after all."""
AFTER_FAILURE_S = 10.0
RATE_WINDOW_S = 60.0

log = get_logger("drain")


@dataclass(slots=True)
class Drain:
    """The drain of one broker, as this leader knows it."""

    left: int | None = None
    """Bundles that the broker served when it was last asked; None: it has not answered yet."""
    problem: str = ""
    moved: int = 0
    failed: int = 0
    next_s: float = 0.0
    moved_s: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    """When bundles left it, in the last minute."""


@dataclass(slots=True, kw_only=True)
class Draining:
    """The drains of one term."""

    moves: Moves
    load_manager: LoadManager
    leads: Callable[[str], bool]
    """Whether a broker runs this leader's load manager: it refuses the orders of another leader."""
    drains: dict[str, Drain] = field(default_factory=dict)
    """brokerId → its drain."""

    def __post_init__(self) -> None:
        """Hear of the moves that end."""
        self.moves.on_end.append(self._moved)

    async def step(self) -> None:
        """Queue the next moves of every broker that is drained."""
        wanted = {
            broker for broker, cordon in self.moves.cluster.wishes.cordons.items() if cordon.drain
        }
        for broker in self.drains.keys() - wanted:
            del self.drains[broker]
        for broker in sorted(wanted):
            await self._drain(broker, self.drains.setdefault(broker, Drain()))

    async def _drain(self, broker: str, drain: Drain) -> None:
        now_s = self.moves.term.clock.monotonic_s()
        address = self.moves.cluster.brokers.address(broker)
        if address is None and broker in self.moves.cluster.brokers.reports:
            drain.problem = "it does not answer"
            return
        if address is None:
            drain.left, drain.problem = 0, ""  # its session is over, and its claims with it
            return
        if (why := self.moves.hold_of(Author.DRAIN)) is not None:
            drain.problem = why
            return
        if now_s < drain.next_s or any(
            move.author is Author.DRAIN and move.source == broker
            for move in self.moves.queue.open_moves()
        ):
            return
        try:
            served = await self.moves.orders.mover.served_bundles(address)
        except LoadManagerError as error:
            drain.problem = str(error)
            return
        before, drain.left, drain.problem = drain.left, len(served), ""
        if not served:
            drain.next_s = now_s + LOOK_AGAIN_S
            if before != 0:
                log.info("broker drained", peer=broker, moved=drain.moved)
            return
        if not self.leads(broker):
            drain.problem = "it runs the other load manager, whose leader drains it"
            return
        self._queue(broker, drain, served, now_s)

    def _queue(self, broker: str, drain: Drain, served: Mapping[str, int], now_s: float) -> None:
        """The bundles with the fewest clients first: the estimate gets better meanwhile."""
        order = sorted(served, key=lambda bundle: (served[bundle], bundle))
        batch = [bundle for bundle in order if self.moves.queue.move_of(bundle) is None][:BATCH]
        unloads, stay = self.load_manager.destinations(broker, batch, "Drained")
        if stay:
            drain.problem = f"{len(stay)} bundles have nowhere to go: {stay[0].reason}"
        queued = self.moves.decide(unloads, Author.DRAIN)
        if len(queued) < len(unloads) or stay:
            drain.next_s = now_s + AFTER_FAILURE_S

    def _moved(self, move: Move) -> None:
        drain = self.drains.get(move.source)
        if drain is None or move.author is not Author.DRAIN:
            return
        now_s = self.moves.term.clock.monotonic_s()
        if move.state is MoveState.DONE:
            drain.moved += 1
            drain.moved_s.append(now_s)
            drain.left = None if drain.left is None else max(0, drain.left - 1)
        elif move.state is MoveState.FAILED:
            drain.failed += 1
            drain.next_s = now_s + AFTER_FAILURE_S
            drain.problem = f"{move.bundle}: {move.outcome.text if move.outcome else ''}"

    def shown(self, broker: str, cordon: Cordon) -> CordonShown:
        """The progress of a cordoned broker's drain; the rate is that of the last minute."""
        drain = self.drains.get(broker, Drain()) if cordon.drain else None
        active = (
            self.moves.cluster.brokers.address(broker) is not None
            or broker in self.moves.cluster.brokers.reports
        )
        shown = CordonShown(
            broker=broker,
            since=cordon.since_ms,
            note=cordon.note,
            until_restart=bool(cordon.until_restart_of),
            state="cordoned" if drain is None else _state(drain, active=active),
            active=active,
        )
        if drain is None:
            return shown
        now_s = self.moves.term.clock.monotonic_s()
        while drain.moved_s and drain.moved_s[0] <= now_s - RATE_WINDOW_S:
            drain.moved_s.popleft()
        per_s = 0.0
        if drain.moved_s:
            per_s = len(drain.moved_s) / max(1.0, now_s - drain.moved_s[0])
        left_s = drain.left / per_s if drain.left is not None and per_s else None
        left = drain.left if active else 0
        paused = (
            "moves are paused"
            if left != 0 and self.moves.cluster.wishes.pause() is not None
            else ""
        )
        return replace(
            shown,
            total=cordon.total,
            left=left,
            moved=drain.moved,
            failed=drain.failed,
            moves_per_minute=round(per_s * 60, 1),
            seconds_left=0 if left == 0 else left_s and round(left_s),
            problem=drain.problem or paused,
        )

    async def count(self, address: BrokerAddress) -> int:
        """The bundles that a broker serves now."""
        return len(await self.moves.orders.mover.served_bundles(address))


def _state(drain: Drain, *, active: bool) -> Literal["draining", "drained", "stopped"]:
    """`stopped`: the broker went away; nothing is left there to be moved."""
    if not active:
        return "stopped"
    return "drained" if drain.left == 0 else "draining"
