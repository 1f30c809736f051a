"""Strategies that are registered here are gone for the tests of other modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadmanager.engine.strategies import registry


@pytest.fixture(scope="module", autouse=True)
def _strategies_are_as_before() -> Iterator[None]:
    shedders, placements = dict(registry.SHEDDERS), dict(registry.PLACEMENTS)
    yield
    registry.SHEDDERS.clear()
    registry.SHEDDERS.update(shedders)
    registry.PLACEMENTS.clear()
    registry.PLACEMENTS.update(placements)
