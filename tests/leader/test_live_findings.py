"""What a leader makes of what it knows, before it is looked at."""

from __future__ import annotations

from typing import Any

from loadmanager.leader.findings import held_limits
from loadmanager.limits.report import BrokerHolds, HoldingLimit


def _limit(name: str, **shown: Any) -> HoldingLimit:
    figures: dict[str, Any] = {
        "level": "topic",
        "configured_messages_per_s": 10.0,
        "configured_bytes_per_s": -1.0,
        "delivered_messages_per_s": 9.9,
        "delivered_bytes_per_s": 0.0,
        "window_s": 10.0,
        "error": None,
        "queue_length": 0,
        "next_ms": 0.0,
        "messages": 1,
        "size_bytes": 1,
        "held": 1,
        "waited_ms": 1.0,
        "wakeups": 1,
        "forgiven_tokens": 0,
        "topics": [],
        "waiters": [],
        "waiters_total": 2,
    }
    return HoldingLimit(name=name, **{**figures, **shown})


def test_limits_that_hold_somebody_now() -> None:
    """Somebody waits, or as much passes as may; not those that only did so for a moment."""
    limits = [
        _limit("waits", queue_length=1, error=-0.5),
        _limit("full", error=-0.01),
        _limit("a moment", error=-0.5),
        _limit("nobody"),
    ]
    holds = BrokerHolds(paused_connections=0, causes={}, limits=limits, limits_total=4)
    empty = BrokerHolds(paused_connections=0, causes={}, limits=[], limits_total=0)
    held = held_limits({"b1": holds, "b2": empty})
    assert [limit.name for limit in held["b1"]] == ["waits", "full"]
    assert held["b1"][0].clients == 2
    assert held["b2"] == []
