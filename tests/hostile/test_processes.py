"""Hostile clients of three broker processes do not harm others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hostile.frames import FrameMaker
from hostile.processes import fuzz

pytestmark = [pytest.mark.system, pytest.mark.zookeeper]

FRAMES, REQUESTS, SEED = 12_000, 600, 1
ROUTES_MIN = 100
"""Even a small run covers most routes."""


@pytest.mark.timeout(900)
def test_hostile_frames_and_requests_harm_nobody_else(tmp_path: Path) -> None:
    """No unexplained 5xx, no traceback, no growth; neighbour and brokers are well."""
    result = fuzz(tmp_path, frame_count=FRAMES, request_count=REQUESTS, seed=SEED, without=[])
    assert result.problems == []
    assert result.frames.frames >= FRAMES
    assert result.requests.requests == REQUESTS
    assert result.requests.routes > ROUTES_MIN


def test_frames_repeat_with_the_seed() -> None:
    """The same seed makes the same frames, another seed makes other frames."""
    makers = [FrameMaker(random.Random(seed)) for seed in (1, 1, 2)]
    one, same, other = makers
    made = [one.frame() for _ in range(500)]
    assert made == [same.frame() for _ in range(500)]
    assert made != [other.frame() for _ in range(500)]
