"""What is remembered from one cycle to the next: a value passed in and returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from loadmanager.core.strategies.strategy import PlacementRule, Shedder


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """State between cycles; starts empty with every term of leadership."""

    shedders: Mapping[str, Any] = field(default_factory=dict)
    """Name → what that shedder remembers."""
    placements: Mapping[str, Any] = field(default_factory=dict)
    """Name → what that placement rule remembers."""
    planned: Mapping[str, str] = field(default_factory=dict)
    """Bundle → destination of the last shedding cycle's moves."""
    split_hits: Mapping[str, int] = field(default_factory=dict)
    """Bundle → cycles in a row above a split threshold (extensible manager)."""

    def of_shedder(self, shedder: Shedder) -> Any:
        """What a shedder remembers."""
        return self.shedders[shedder.name] if shedder.name in self.shedders else shedder.memory()

    def with_shedder(self, shedder: Shedder, memory: Any) -> Memory:
        """This memory with what a shedder remembers now."""
        return replace(self, shedders={**self.shedders, shedder.name: memory})

    def of_placement(self, rule: PlacementRule) -> Any:
        """What a placement rule remembers."""
        return self.placements[rule.name] if rule.name in self.placements else rule.memory()

    def with_placement(self, rule: PlacementRule, memory: Any) -> Memory:
        """This memory with what a placement rule remembers now."""
        return replace(self, placements={**self.placements, rule.name: memory})
