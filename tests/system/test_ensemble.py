"""Partitions of a real ZooKeeper ensemble: stored topics go on.

`python -m bench partitions` does more of them, and prints the figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from system.ensemble import EnsembleFleet, NoRightsError, cut
from system.faults import observed

pytestmark = [pytest.mark.system, pytest.mark.zookeeper]

SESSION_S = 4.0


@pytest.mark.timeout(300)
def test_a_broker_on_the_wrong_side_is_fenced_by_the_logs(tmp_path: Path) -> None:
    """A broker is alone with the leader that ZooKeeper had. It goes on, until the others take its
    bundles, because clients ask them: no entry has receipts of two brokers, and every topic is
    served.
    """
    try:
        with EnsembleFleet(tmp_path, session_s=SESSION_S) as fleet, observed(fleet) as observer:
            outcome = cut("halves-taken", fleet, observer, 4 * SESSION_S)
            logs = [fleet.log_of(f"broker-{index}").read_text() for index in range(fleet.count)]
    except NoRightsError as reason:
        pytest.skip(str(reason))
    print(outcome)
    assert outcome.twice == []
    assert observer.faults == []
    assert "stored topics go on without the lease" in logs[0]
