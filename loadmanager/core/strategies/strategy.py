"""What a strategy is: an object with its name, what it needs, and its functions.

A strategy keeps its own memory: a value that its function gets and returns. It is empty (what
`memory` makes) when a term begins, and no other strategy sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadmanager.core.load.reports import BrokerLoadData, BundleData, LocalBrokerData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.selection import Shed


def no_memory() -> None:
    """The memory of a strategy that keeps nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shedder:
    """Decides which bundles leave their brokers."""

    name: str
    """What broker.conf calls it: the last part of the class name."""
    shed: Callable[[ClusterSnapshot, StrategySettings, Any], Shed]
    """One cycle: snapshot, settings and its memory in."""
    memory: Callable[[], Any] = no_memory
    settings: type | None = None
    """The dataclass of its own broker.conf keys (`core.conf.conf`);
    `StrategySettings.of` gives it.
    """
    observe: (
        Callable[[str, LocalBrokerData | BrokerLoadData, StrategySettings, Any], Any] | None
    ) = None
    """Its memory after a broker's report.

    Called with every report, also between cycles, while it is the shedder in force.
    """
    extensible: bool = True
    """Whether it can read the reports of the extensible manager."""
    checks_destinations: bool = False
    """Whether it asks the extensible manager's filters for every destination itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRule:
    """Decides which brokers are best for a bundle that has no owner."""

    name: str
    candidates: Callable[
        [ClusterSnapshot, Sequence[str], StrategySettings, Any], tuple[list[str], Any]
    ]
    """Of the brokers that the filters left, those among which chance decides; its memory
    afterwards.

    The snapshot says which bundle this is for (`placing`), and which others are placed with it
    (`to_place`).
    """
    order: Callable[[Mapping[str, BundleData]], Sequence[str]] | None = None
    """In which order bundles of one request are placed, by their averages; None: as requested."""
    memory: Callable[[], Any] = no_memory
    settings: type | None = None
    """As a shedder's."""
    advance: Callable[[ClusterSnapshot, StrategySettings, Any], Any] | None = None
    """Its memory after the reports of a snapshot; called once a request."""
    follows: str | None = None
    """The shedder whose planned destinations it honours, and without which it cannot place."""
