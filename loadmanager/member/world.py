"""What a member takes from outside: everything that touches the world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.history.port import History
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.sampler import OwnTraffic, Sampler
from loadmanager.kit.tasks import LoopBusy, Scope, Steps
from loadmanager.leader.ports.peers import Peers
from loadmanager.member.base import Base, SettingsInForce


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The objects that a member takes from outside."""

    me: BrokerAddress
    """Where clients and other members reach this one."""
    store: Store
    clock: Clock
    peers: Peers
    sampler: Callable[[OwnTraffic], Sampler]
    """Makes the sampler of CPU, memory and NIC."""
    version: str
    history: History | None = None
    busy: LoopBusy = field(default_factory=LoopBusy)
    """Measures how busy the event loop is; the caller runs it."""
    seed: int = 0
    """The seed of the leader's random numbers, together with the epoch of the term."""


def base_of(world: World, settings: SettingsInForce, scope: Scope) -> Base:
    """What the parts of a member stand on."""
    return Base(
        me=world.me,
        store=world.store,
        clock=world.clock,
        peers=world.peers,
        scope=scope,
        steps=Steps(),
        corrupt=Corrupt(),
        settings=settings,
        seed=world.seed,
    )
