"""What the daemon decided beside a Pulsar can be decided again from its history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from steer.watched import ACT, watching

from loadmanager.engine.history.cycles import Cycle
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab.exact import exactness, when
from loadmanager.steer import settings_file as fleet

CYCLES = 12


@pytest.mark.parametrize("shedder", ["BalancedShedder", "ThresholdShedder", "TransferShedder"])
async def test_cycles_of_the_daemon_come_out_again(tmp_path: Path, shedder: str) -> None:
    """Each move, while traffic changes and moved bundles count before Pulsar reports them."""
    settings = {**ACT, "loadBalancerLoadSheddingStrategy": shedder}
    async with watching(tmp_path, settings=settings) as daemon:
        daemon.pulsar.switch_off()
        bundles = sorted(daemon.pulsar.rates)
        for cycle in range(CYCLES):
            daemon.pulsar.rates[bundles[cycle % len(bundles)]] *= 1.5
            await daemon.cycle()
            daemon.clock.pass_s(60)
        records = sorted(daemon.history.records, key=when)
    assert sum(isinstance(record, Cycle) for record in records) == CYCLES
    assert daemon.pulsar.moved

    def settings_of(keys: Mapping[str, str]) -> StrategySettings:
        return fleet.parse("test", {"pulsar": "http://x:1", **keys}).strategies

    result = exactness(records, settings_of)
    assert (result.cycles, result.same) == (CYCLES, CYCLES), (
        result.differences,
        result.passed_over,
    )
    assert result.moves == result.reproduced > 0


async def test_cycles_need_not_be_recorded(tmp_path: Path) -> None:
    """They take room."""
    settings = {**ACT, "loadManagerHistoryCyclesEnabled": "false"}
    async with watching(tmp_path, settings=settings) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        assert not any(isinstance(record, Cycle) for record in daemon.history.records)
