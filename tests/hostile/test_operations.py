"""Random requests over all operations of the OpenAPI document, in this process."""

from __future__ import annotations

import asyncio

from hostile.operations import ask_at_random

SEED, REQUESTS = 1, 900


async def test_random_requests_find_no_bug() -> None:
    """No 5xx without a reason, no error in the log, an answer to each; the broker goes on, and
    holds nothing for those who are gone.
    """
    async with asyncio.timeout(120):
        found = await ask_at_random(SEED, REQUESTS)
    assert found.problems == []
    assert found.asked.requests == REQUESTS
    assert found.asked.routes == found.operations
