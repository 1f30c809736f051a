"""Random lives of clients of the binary protocol, in this process."""

from __future__ import annotations

import asyncio

import pytest
from hostile.sessions import (
    ATTACHED,
    CONNECTED,
    ERROR,
    MESSAGE,
    RECEIPT,
    SUCCESS,
    live_at_random,
)

SESSIONS = 300


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_sessions_leave_nothing_behind(seed: int) -> None:
    """No error in the log; no connection, producer, consumer or request is left when all clients
    are gone; the broker serves a good one.
    """
    async with asyncio.timeout(600):
        lived = await live_at_random(seed, SESSIONS)
    assert lived.problems == []
    assert lived.sessions == SESSIONS
    deep = {CONNECTED, RECEIPT, MESSAGE, SUCCESS, ERROR, ATTACHED}
    assert not [kind for kind in deep if lived.answers[kind] < SESSIONS / 3], lived.answers
