"""RoundRobinBrokerSelector: one broker after the other; Pulsar deals out excluded namespaces so (`impl.RoundRobinBrokerSelector`).

Deviation: Pulsar walks a copy of the candidates in the order in which their set happened to be when it was copied; here they are in order of name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.settings import StrategySettings


def candidates(_snapshot: ClusterSnapshot, brokers: Sequence[str], _settings: StrategySettings, memory: Memory) -> tuple[list[str], Memory]:
    """The one broker whose turn it is."""
    if not brokers:
        return [], memory
    return [brokers[memory.round_robin % len(brokers)]], replace(memory, round_robin=memory.round_robin + 1)
