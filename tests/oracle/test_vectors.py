"""Our decisions beside Pulsar's, on cases that once differed; `make test-oracle` makes others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import ours
from oracle.compare import Explaining, first_difference, same
from oracle.deviations import DEVIATIONS
from oracle.minimal import minimal

VECTORS = [
    {"version": path.stem, **json.loads(line)}
    for path in sorted((Path(__file__).parent / "vectors").glob("*.jsonl"))
    for line in path.read_text().splitlines()
]


@pytest.fixture(scope="module")
def explaining() -> Iterator[Explaining]:
    """Copies of our source, each with one deviation undone."""
    explaining = Explaining("")
    yield explaining
    explaining.close()


@pytest.mark.parametrize(
    "vector", VECTORS, ids=[f"{vector['version']} {vector['case']['id']}" for vector in VECTORS]
)
def test_vector(vector: dict[str, Any], explaining: Explaining) -> None:
    """We decide as Pulsar does; a deviation on purpose makes all of the difference, if any."""
    case, pulsars = vector["case"], vector["pulsar"]
    our = ours.answer(case)
    if vector["deviation"]:
        assert not same(pulsars, our), "no deviation is left here"
        undone = tuple(named for named in DEVIATIONS if named.name == vector["deviation"])
        our = explaining.without(undone).answer(case)
    assert same(pulsars, our), first_difference(pulsars, our)


def test_each_case_and_each_deviation_has_a_vector() -> None:
    """A case whose answers nobody wrote, or a deviation that no case shows, proves nothing."""
    written = {(vector["version"], vector["case"]["id"]) for vector in VECTORS}
    assert written == {(version, case.name) for case in minimal() for version in case.versions}
    shown = {vector["deviation"] for vector in VECTORS} - {""}
    assert {deviation.name for deviation in DEVIATIONS} == shown


def test_pulsars_answers_to_the_cases_of_today() -> None:
    """A vector belongs to the case as it is written today."""
    today = {case.name: case.case() for case in minimal()}
    for vector in VECTORS:
        assert vector["case"] == today[vector["case"]["id"]]
