"""RoundRobinBrokerSelector: one broker after the other, for excluded namespaces
(Pulsar `impl.RoundRobinBrokerSelector`).

As in Pulsar, a list of brokers is kept while other candidates are as many and include the one whose
turn it is. Deviation: Pulsar's list has the order of a set, here it is in order of name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import PlacementRule

Turns = tuple[int, Sequence[str]]
"""How many bundles were placed, and the brokers that take turns."""


def candidates(
    _snapshot: ClusterSnapshot, brokers: Sequence[str], _settings: StrategySettings, turns: Turns
) -> tuple[Sequence[str], Turns]:
    """The broker whose turn it is."""
    if not brokers:
        return [], turns
    placed, circle = turns
    turn = placed % len(brokers)
    if len(circle) != len(brokers) or (
        circle[turn] != brokers[turn] and circle[turn] not in brokers
    ):
        circle = brokers
    return circle[turn : turn + 1], (placed + 1, circle)


def _no_turns() -> Turns:
    return 0, ()


PLACEMENT = PlacementRule(
    name="RoundRobinBrokerSelector",
    candidates=candidates,
    memory=_no_turns,
    stored=tuple[int, tuple[str, ...]],
)
ALIAS = replace(PLACEMENT, name="RoundRobin")
