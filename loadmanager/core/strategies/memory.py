"""What strategies remember from one cycle to the next: a value passed in and returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """State between cycles; starts empty with every term of leadership."""

    usage_averages: Mapping[str, float] = field(default_factory=dict)
    """brokerId → exponential average of its usage (ThresholdShedder)."""
    placement_averages: Mapping[str, float] = field(default_factory=dict)
    """brokerId → exponential average of its usage (LeastResourceUsageWithWeight)."""
    hits_high: Mapping[str, int] = field(default_factory=dict)
    """brokerId → cycles above the high threshold (AvgShedder)."""
    hits_low: Mapping[str, int] = field(default_factory=dict)
    """brokerId → cycles above the low threshold (AvgShedder)."""
    load_averages: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """brokerId → exponential averages of its usage and throughput, where TransferShedder runs on the modular manager's reports."""
    hits: int = 0
    """Cycles in a row in which the cluster was out of balance (TransferShedder)."""
    planned: Mapping[str, str] = field(default_factory=dict)
    """Bundle → destination of the last shedding cycle's moves (AvgShedder's placement honours them)."""
    round_robin: int = 0
    """Placements round robin so far."""
    split_hits: Mapping[str, int] = field(default_factory=dict)
    """Bundle → cycles in a row above a split threshold (extensible manager)."""
