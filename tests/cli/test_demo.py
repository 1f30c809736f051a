"""The traffic and the lines of the demo."""

from __future__ import annotations

import pytest
from leader.documents import a_broker_shown, a_cluster_shown, a_decision

from loadmanager.cli.demo.telling import SETTLED_S, Teller
from loadmanager.cli.demo.workload import PERIOD_S, TOPICS, busiest, weights
from loadmanager.engine.bundles.ranges import topic_hash
from loadmanager.engine.moves.move import Outcome
from loadmanager.engine.strategies.plan_document import UnloadShown
from loadmanager.leader.documents.cluster import ClusterShown, MovesCount

BUNDLE = "demo/shop/0x00000000_0x80000000"


def cluster(*usages: float, moving: int = 0) -> ClusterShown:
    """The leader's answer about the cluster."""
    brokers = [a_broker_shown(usage=usage) for usage in usages]
    moves = MovesCount(waiting=0, running=moving)
    return a_cluster_shown(brokers, moves=moves, bundles=4)


def test_each_period_has_another_busy_topic() -> None:
    """The parts add up to everything; halves of the hash space are both used."""
    for period in range(20):
        parts = weights(period)
        assert sum(parts) == pytest.approx(1)
        assert max(parts) < 0.25
        assert busiest(period) != busiest(period + 1)
    assert {topic_hash(topic) >> 31 for topic in TOPICS} == {0, 1}


def test_what_happens_is_told_once_and_in_order() -> None:
    """Splits, decisions and moves, the oldest first; what to look at only the first time."""
    teller = Teller()
    move = {
        "bundle": BUNDLE,
        "state": "done",
        "source": "a:1",
        "destination": "b:1",
        "outcome": Outcome("moved", pause_ms=12.4),
    }
    unload = UnloadShown(bundle=BUNDLE, source="a:1", destination=None, reason="Hot", why={})
    why = {"msgRate": 426.6, "limit": 300}
    seen = [
        a_decision(4, "shed", strategy="S", unloads=[]),
        a_decision(3, "move", **move),
        a_decision(2, "shed", strategy="S", unloads=[unload, unload]),
        a_decision(1, "split", bundle=BUNDLE, reason="MsgRate", why=why),
    ]
    lines = list(teller.lines(5, cluster(0.5, 0.1, moving=1), seen))
    assert [line for line in lines if "Look at" not in line] == [
        "Splits: demo/shop 0x00000000…80000000, because of its MsgRate of 427, at most 300",
        "S decides to move 2 bundles.",
        "Moved: demo/shop 0x00000000…80000000 from a:1 to b:1, without an owner for 12 ms",
    ]
    assert sum("Look at" in line for line in lines) == 2
    again = [a_decision(5, "move", **move), *seen]
    assert [line[:5] for line in teller.lines(6, cluster(0.5, 0.1), again)] == ["Moved"]


def test_settled_is_said_when_it_is_so() -> None:
    """Loads are even, nothing moves, for a while; said once, and again after the next change."""
    teller = Teller()
    late = 1 + SETTLED_S
    split = a_decision(1, "split", bundle=BUNDLE, reason="MsgRate")
    assert list(teller.lines(0.5, cluster(0.2, 0.2), [split]))
    assert not list(teller.lines(late, cluster(0.5, 0.1), [split]))
    assert not list(teller.lines(late, cluster(0.2, 0.2, moving=1), [split]))
    settled, _hint = teller.lines(late, cluster(0.3, 0.2), [split])
    assert settled == "Settled: the brokers carry 20%, 30%. 4 bundles."
    assert not list(teller.lines(late + 1, cluster(0.3, 0.2), [split]))
    shifted = list(teller.lines(PERIOD_S, cluster(0.3, 0.2), [split]))
    assert shifted == [f"The busiest topic is {busiest(1)} now: other bundles become hot."]
