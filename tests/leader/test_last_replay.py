"""How far off the last replay was stands beside plans, goals and headroom."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from clusters.led import led_fleet
from clusters.members import NS

from loadmanager.engine.history.replay_error import FILE, ReplayError, encode
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.plans.goals import Even, PlanLimits
from loadmanager.kit.errors import CorruptDataError, OperationalError
from loadmanager.leader.documents.replays import not_measured
from loadmanager.leader.last_replay import BYTES_MAX, LastReplay

ERROR = ReplayError(
    date="2026-11-20",
    spread_was=7.7,
    spread_replayed=5.4,
    model_error=0.031,
    refused=("spread", "hot_minutes"),
)
TEXT = (
    "the replay of 2026-11-20 came to a spread of 5.4 points, and 7.7 were recorded; its model of "
    "usage was 3.1 points off: believe no absolute figure of spread, hot minutes"
)


async def test_it_stands_beside_what_is_planned(tmp_path: Path) -> None:
    """First that nothing is measured; once the nightly analysis has left its file, what that says,
    also of goals that were proposed before.
    """
    url = tmp_path / FILE
    async with led_fleet(3) as led:
        for index in range(3):
            stats = {
                f"{NS}/0x{index:x}0000000_0x{index + 1:x}0000000": NamespaceBundleStats(
                    msg_throughput_in=1e6, msg_rate_in=10
                )
            }
            await led.report(index, stats, cpu=20 + 10 * index, at_ms=1000)
        replay = led.moves.cluster.replay
        await replay.step()  # nothing is configured
        goal = await led.operations.goals.propose(Even(1), PlanLimits())
        plan = led.plans.dry_run(None, None, {})
        assert goal.replay == plan.replay == led.overview.cluster(9).replay == not_measured()
        replay.look(str(url))
        assert replay.shown == not_measured()
        url.write_text(encode(ERROR))
        replay.look(str(url))
        for shown in (
            led.operations.goals.goal(goal.id).replay,
            led.plans.plan(plan.id).replay,
            led.overview.cluster(9).replay,
        ):
            assert (shown.date, shown.refused) == (ERROR.date, ERROR.refused)
            assert shown.text == TEXT
        url.unlink()
        replay.look(str(url))
        assert led.plans.plan(plan.id).replay == not_measured()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"{", CorruptDataError),
        (b'{"date": "2026-11-20"}', CorruptDataError),
        (b" " * (BYTES_MAX + 1), OperationalError),
    ],
)
def test_what_cannot_be_read_changes_nothing(
    tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    """What was read before stays; the leader's steps tell the error."""
    file = tmp_path / FILE
    replay = LastReplay(file.as_uri)
    file.write_text(encode(ERROR))
    asyncio.run(replay.step())
    file.write_bytes(content)
    with pytest.raises(error, match=FILE):
        asyncio.run(replay.step())
    assert replay.shown.text == TEXT
