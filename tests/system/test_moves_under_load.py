"""Bundles move and split, and their owner is killed, under stock clients with stored topics."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters.processes import Fleet
from system.campaign import Campaign

pytestmark = [pytest.mark.system, pytest.mark.zookeeper]


@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost_or_comes_out_of_order(tmp_path: Path) -> None:
    """Every message with a receipt is consumed, those of a topic in the order in which they were
    sent. A producer that repeats messages at another owner has them stored once. (`python -m bench
    moves-under-load` does the same for longer, with more faults.)
    """
    settings = {"loadManagerStorageDirectory": str(tmp_path / "topics")}
    with (
        Fleet(tmp_path, bundles=8, session_s=4.0, settings=settings) as fleet,
        Campaign(fleet, topics=16, rate=500.0) as campaign,
    ):
        for number in range(6):
            campaign.unload(number)
            campaign.transfer(number + 1)
        campaign.split()
        campaign.kill(fleet.owner_of(campaign.topics[0]), "kill -9")
        campaign.split()
        outcome = campaign.finish()
    assert outcome.acknowledged > 0
    assert (outcome.lost, outcome.disorder, outcome.unanswered) == ([], [], 0)
    assert outcome.stored_twice == 0
