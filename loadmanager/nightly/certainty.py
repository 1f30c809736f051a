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


_OF_QUESTIONS = {
    Certainty.RECORDED: (
        "broker_usage",
        "flapping",
        "hot_bundles",
        "hot_topics",
        "idle_brokers",
        "imbalance",
        "lapses",
        "leaders",
        "namespaces",
        "throttling",
    ),
    Certainty.CONCLUDED: (
        "calibration",
        "clocks",
        "hourly",
        "moves",
        "news",
        "outages",
        "remade",
        "sensors",
        "splits",
        "tenants",
    ),
    Certainty.ESTIMATED: (
        "capacity",
        "forecasts",
        "growth",
        "headroom",
        "slow_brokers",
        "tenant_costs",
    ),
}
_OF = {name: certainty for certainty, names in _OF_QUESTIONS.items() for name in names}


def of_question(name: str) -> Certainty:
    """How certain the answers of a question are. Raises `KeyError` for one that does not say."""
    return _OF[name]
