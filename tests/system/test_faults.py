"""Faults of real broker processes and of ZooKeeper, observed by clients.

`python -m bench faults` does more faults, and prints the figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters.processes import Fleet
from system.faults import observed, run
from system.observer import Life, Observer

pytestmark = [pytest.mark.system, pytest.mark.zookeeper]

PAUSE_S_MAX = 60.0
"""The aim is the session timeout and a second; a slow minute must not fail a test."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "names",
    [
        ("kill-both", "pause-leader", "locks-deleted", "rolling-restart"),
        ("zookeeper-killed", "leader-node-deleted", "link-flaps", "link-held"),
    ],
    ids=["brokers", "zookeeper"],
)
def test_one_owner_and_every_topic_served_again(tmp_path: Path, names: tuple[str, ...]) -> None:
    """After each fault every topic accepts and delivers messages; no bundle had two owners."""
    with Fleet(tmp_path) as fleet, observed(fleet) as observer:
        outcomes = [run(name, fleet, observer) for name in names]
    for outcome in outcomes:
        print(outcome)
    assert {outcome.fault: outcome.twice_owned for outcome in outcomes if outcome.twice_owned} == {}
    assert {outcome.fault: outcome.problems for outcome in outcomes if outcome.problems} == {}
    assert {outcome.fault: outcome.undelivered for outcome in outcomes if outcome.undelivered} == {}
    assert max(outcome.measured_s for outcome in outcomes) < PAUSE_S_MAX


def _life(broker: str, topic: str, first_received_s: float, last_sent_s: float) -> Life:
    return Life(broker, topic, 1, first_received_s, last_sent_s)


@pytest.mark.parametrize(
    ("other", "owners"),
    [
        (_life("b", "same", 2.1, 3.0), 1),  # begins after a's last message was sent
        (_life("b", "same", 1.9, 3.0), 2),  # a took a message that was sent after b's receipt
        (_life("b", "sibling", 1.5, 1.6), 2),  # another topic of the same bundle
        (_life("b", "elsewhere", 1.5, 1.6), 1),
        (_life("a", "sibling", 1.5, 1.6), 1),  # the same broker
    ],
)
def test_the_observer_proves_two_owners(other: Life, owners: int) -> None:
    """The observer reports exactly the spans of two owners that certainly overlap."""
    observer = Observer({"same": "bundle", "sibling": "bundle", "elsewhere": "another"}, {})
    lives = [_life("a", "same", 1.0, 2.0), other]
    observer.lives = {(life.broker, life.topic, number): life for number, life in enumerate(lives)}
    assert len(observer.twice_owned()) == owners - 1
