"""The contract of strategies finds what it is there for: each fault fails its test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from loadmanager.engine.strategies import registry
from loadmanager.kit.errors import ConfigError
from loadmanager.testing.strategy_contract import PlacementContract, ShedderContract

FAULTS = {
    ("RESTLESS", "test_idle_between_equal_brokers"): "case 0 of seed 1: OddCluster",
    ("RESTLESS", "test_comes_to_rest"): "moves go on for",
    ("SILENT", "test_moves_what_the_source_serves"): "every no has a reason",
    ("WITHOUT_NUMBERS", "test_moves_what_the_source_serves"): "a move has numbers",
    ("AS_LISTED", "test_same_answer_for_the_same_cluster"): "it depends on an order",
    ("AS_HASHED", "test_same_bytes_in_another_process"): "",
    ("STUBBORN", "test_pinned_bundles_stay"): "case",
    ("SCRIBBLING", "test_leaves_its_arguments_as_they_are"): "case",
    ("BY_CHANCE", "test_same_answer_for_the_same_cluster"): "case",
}


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """No other test meets faulty strategies."""
    yield
    for registered in (registry.SHEDDERS, registry.PLACEMENTS):
        for name in [name for name in registered if name.startswith("Faulty_")]:
            del registered[name]


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize(("fault", "test"), FAULTS)
def test_each_fault_is_found(fault: str, test: str) -> None:
    """By the test that is about it, which says where."""
    base: Any = PlacementContract if fault == "BY_CHANCE" else ShedderContract
    contract = type("TestFaulty", (base,), {"strategy": f"properties.faulty:{fault}"})
    with pytest.raises(AssertionError) as raised:
        getattr(contract(), test)()
    texts = [str(raised.value), *getattr(raised.value, "__notes__", [])]
    assert FAULTS[fault, test] in "\n".join(texts)


def test_the_time_of_a_cycle_is_measured() -> None:
    """One that may take no time takes too long."""
    contract = type("TestFast", (ShedderContract,), {"strategy": "AvgShedder", "cycle_s": 0.0})
    with pytest.raises(AssertionError):
        contract().test_a_large_cluster_takes_little_time()


def test_a_name_that_nobody_has() -> None:
    """Is an error of its own, not a failure of a strategy."""
    with pytest.raises(ConfigError, match="no installed package has the strategy Nobody"):
        type("TestNobody", (ShedderContract,), {"strategy": "Nobody"}).own_keys()
