"""The memories of strategies from one cycle to the next: a value passed in and returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from loadmanager.engine.strategies.strategy import PlacementRule, Strategy


class Memories(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of every strategy and of the cycle itself.

    A `Struct`: some strategies make one with each lookup.
    """

    strategies: Mapping[tuple[type[Strategy], str], Any] = {}
    """Kind and name of a strategy → its memory."""
    planned: Mapping[str, str] = {}
    """Bundle → destination of the last shedding cycle's moves."""
    split_hits: Mapping[tuple[str, str], int] = {}
    """Broker and bundle → checks in a row above a split threshold (extensible manager)."""

    def of(self, strategy: Strategy) -> Any:
        """A strategy's memory, or the one that it reads."""
        if isinstance(strategy, PlacementRule) and strategy.reads is not None:
            strategy = strategy.reads
        key = type(strategy), strategy.name
        return self.strategies[key] if key in self.strategies else strategy.memory()

    def remember(self, strategy: Strategy, memory: Any) -> Memories:
        """These memories with a strategy's new one."""
        if isinstance(strategy, PlacementRule) and strategy.reads is not None:
            return self
        key = type(strategy), strategy.name
        if key in self.strategies and self.strategies[key] is memory:
            return self
        return Memories(
            strategies={**self.strategies, key: memory},
            planned=self.planned,
            split_hits=self.split_hits,
        )
