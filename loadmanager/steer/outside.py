"""What the daemon's work at one Pulsar cluster needs of the world."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from loadmanager.kit.clock import Clock
from loadmanager.kit.history.port import History
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.metadata.store import Check
from loadmanager.leader.ports.mover import OrderGate
from loadmanager.leader.ports.wishes import WishBook
from loadmanager.steer.canary import CanaryOutside
from loadmanager.steer.daemon_note import Unwritten
from loadmanager.steer.ports.cluster_reader import ClusterReader
from loadmanager.steer.ports.marks import Marks
from loadmanager.steer.ports.note import Note
from loadmanager.steer.pulsar.orders import AdminOrders


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOutside:
    """The parts outside of the daemon's work."""

    me: Leader
    """This daemon, which leads for as long as this lives. Its epoch is another one each time, so
    that no plan of an earlier term can be approved.
    """
    checks: Sequence[Check] = ()
    """The checks of its term, if it leads by a lock in the metadata store."""
    lives: Callable[[], None] = lambda: None
    """Gives a sign of life."""
    reader: ClusterReader
    orders: Callable[[OrderGate, Callable[[], Iterable[str]]], AdminOrders]
    """Builds what gives orders, from its gate and the live brokers."""
    wishes: WishBook
    note: Note
    """What the next daemon must know of this one."""
    unwritten: Unwritten = field(default_factory=Unwritten)
    """What the note does not have yet, also of this daemon's earlier terms."""
    clock: Clock
    rng: random.Random
    history: History | None
    marks: Marks | None = None
    """Where the daemons of a cluster notice each other; None: they do not."""
    daemon_id: str = ""
    has_lock: bool = False
    """Whether daemons take turns by a lock; they have one `daemon_id` then."""
    canary: CanaryOutside | None = None
    """None: there is no canary, whatever the settings say."""
    tell: Callable[[str, str], None] | None = None
    """Takes the kind and the text of notices for people."""
