"""What a leader makes of what it knows, before it is looked at."""

from __future__ import annotations

from typing import Any

from loadmanager.kit.metadata.leader import Leader
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.findings import held_limits, stopped_in_order
from loadmanager.leader.present_leader import PAST_MAX, PresentLeader
from loadmanager.limits.report import BrokerHolds, HoldingLimit


def test_leaders_that_stopped_in_order() -> None:
    """Those whose broker left in order when the next term began; not one that was lost, that left
    at another time, or that is still there.
    """
    names = ("b1", "b2", "b3", "b4", "b1")
    past = [(at * 600_000, Leader(name, "", 7 + at)) for at, name in enumerate(names)]
    absent = [
        AbsentBroker(broker="b1", left_at=590_000, how="drained"),
        AbsentBroker(broker="b2", left_at=1_200_000, how="lost"),
        AbsentBroker(broker="b3", left_at=9_000_000, how="stopped"),
    ]
    assert stopped_in_order(past, absent) == {7}


def test_leaders_that_were_seen() -> None:
    """Each term once, and the last ones only."""
    leading = PresentLeader()
    for epoch in range(1, PAST_MAX + 3):
        for _ in range(2):
            leading.remember(Leader("b1", "", epoch), epoch)
    assert len(leading.past) == PAST_MAX
    assert leading.past[0][0] == 3


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
