"""Any candidate will do: where AvgShedder has no plan for a bundle, Pulsar places it at random (`impl.AvgShedder.selectBroker`)."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.settings import StrategySettings


def candidates(_snapshot: ClusterSnapshot, brokers: Sequence[str], _settings: StrategySettings, memory: Memory) -> tuple[list[str], Memory]:
    """All brokers, in the order given."""
    return list(brokers), memory
