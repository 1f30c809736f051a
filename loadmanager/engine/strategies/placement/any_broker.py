"""AvgShedder as a placement rule: where the shedder planned no destination, any broker at random
(Pulsar `impl.AvgShedder.selectBroker`).
"""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import PlacementRule


def candidates(
    _snapshot: ClusterSnapshot, brokers: Sequence[str], _settings: StrategySettings, _memory: None
) -> tuple[Sequence[str], None]:
    """All brokers, in the order given."""
    return brokers, None


PLACEMENT = PlacementRule(name="AvgShedder", candidates=candidates, follows="AvgShedder")
