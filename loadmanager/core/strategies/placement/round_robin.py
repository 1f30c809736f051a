"""RoundRobinBrokerSelector: one broker after the other; Pulsar deals out excluded namespaces so
(`impl.RoundRobinBrokerSelector`).

Deviation: Pulsar walks a copy of the candidates in the order in which their set happened to be when
it was copied; here they are in order of name.
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
    """The one broker whose turn it is; its memory: how many it has placed."""
    if not brokers:
        return [], placed
    return [brokers[placed % len(brokers)]], placed + 1


PLACEMENT = PlacementRule(name="RoundRobinBrokerSelector", candidates=candidates, memory=int)
ALIAS = replace(PLACEMENT, name="RoundRobin")
