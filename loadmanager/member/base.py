"""What the parts of a member share, each passed whole: what they stand on, and what is known of the
cluster.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.ports.peers import Peers
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.settings import BrokerSettings

Leaf = TypeVar("Leaf")


class SettingsInForce(Protocol):
    """The settings of a member, by leaf; dynamic values change them."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """Key → why its stored value is not in force."""
        ...

    def live(self, kind: type[Leaf]) -> Live[Leaf]:
        """The settings of one leaf; always the same object."""
        ...

    def strategies_with(self, changes: Mapping[str, str]) -> StrategySettings:
        """Those of strategies, with some keys changed. Raises `BadInputError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What each part of a member stands on."""

    me: BrokerAddress
    """Where clients and other members reach this one."""
    store: Store
    clock: Clock
    peers: Peers
    scope: Scope
    """Its tasks end with the member."""
    steps: Steps
    """Runs and counts what is done again and again."""
    corrupt: Corrupt
    settings: SettingsInForce
    seed: int = 0
    """Of all random numbers."""

    @property
    def broker_id(self) -> str:
        """This member's name."""
        return self.me.broker_id

    @property
    def broker(self) -> Live[BrokerSettings]:
        """The settings of every member."""
        return self.settings.live(BrokerSettings)

    @property
    def strategies(self) -> Live[StrategySettings]:
        return self.settings.live(StrategySettings)

    def rng(self, number: int) -> random.Random:
        """A generator of random numbers: the same one for the same number."""
        return random.Random(self.seed + number)  # noqa: S311 - reproducible, not secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a member knows of its cluster; watches keep it current."""

    brokers: Brokers
    namespaces: Namespaces
    policies: PlacementPolicies
    wishes: OperatorWishes
    leading: PresentLeader
