"""Random requests over all operations of the OpenAPI document, in this process."""

from __future__ import annotations

import asyncio

import pytest
from hostile.operations import ask_at_random

SEED, REQUESTS = 1, 900


@pytest.mark.parametrize("as_stranger", [False, True])
async def test_random_requests_find_no_bug(as_stranger: bool) -> None:
    """No 5xx without a reason, no error in the log, an answer to each; the broker goes on, and
    holds nothing for those who are gone. A stranger gets nothing, however he spells it, but what is
    for everybody.
    """
    async with asyncio.timeout(600):
        found = await ask_at_random(SEED, REQUESTS, as_stranger=as_stranger)
    assert found.problems == []
    assert found.asked.requests == REQUESTS
    assert found.asked.routes == found.operations
