"""RoundRobinBrokerSelector: one broker after the other, for excluded namespaces
(Pulsar `impl.RoundRobinBrokerSelector`).

Deviation: Pulsar takes the brokers in the order of a copied set; here they are in order of name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.strategy import PlacementRule


def candidates(
    _snapshot: ClusterSnapshot, brokers: Sequence[str], _settings: StrategySettings, placed: int
) -> tuple[list[str], int]:
    """The broker whose turn it is; the memory is the number of bundles placed."""
    if not brokers:
        return [], placed
    return [brokers[placed % len(brokers)]], placed + 1


PLACEMENT = PlacementRule(name="RoundRobinBrokerSelector", candidates=candidates, memory=int)
ALIAS = replace(PLACEMENT, name="RoundRobin")
