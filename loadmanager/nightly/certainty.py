"""How certain a card is: by what its question goes."""

from __future__ import annotations

from enum import StrEnum


class Certainty(StrEnum):
    """The sources of a card's words."""

    RECORDED = "recorded"
    """Brokers or their leader recorded it; sums and means of that."""
    CONCLUDED = "concluded"
    """Records compared with each other: silences, clocks, before and after."""
    ESTIMATED = "estimated"
    """A line or a model goes beyond what was recorded."""


_RECORDED = {
    "broker_usage",
    "flapping",
    "hot_bundles",
    "hot_topics",
    "idle_brokers",
    "imbalance",
    "leaders",
    "namespaces",
    "throttling",
}
_ESTIMATED = {"capacity", "forecasts", "growth", "headroom", "slow_brokers"}


def of_question(name: str) -> Certainty:
    """How certain the answers of a question are."""
    if name in _RECORDED:
        return Certainty.RECORDED
    return Certainty.ESTIMATED if name in _ESTIMATED else Certainty.CONCLUDED
