"""The address of who asks through another broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from broker.admin.serving import Served, serving
from kit.security.tokens import ADMIN, VALUES, token, verifier

from loadmanager.kit.http.passing_on import ASKER, BROKER, FOLLOW, PASSED_BY, PROOF
from loadmanager.kit.http.streams import AT_ADDRESS_MAX

ELSEWHERE = "127.0.0.2"
CLAIMED = "192.0.2.7"
TENANT = "/admin/v2/tenants/shop"
BODY = {"allowedClusters": ["standalone"]}
EVENTS = "/loadmanager/v1/events"


@asynccontextmanager
async def from_elsewhere() -> AsyncIterator[aiohttp.ClientSession]:
    """Requests from another address than those of the brokers."""
    connector = aiohttp.TCPConnector(local_addr=(ELSEWHERE, 0))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def _recorded(served: Served, headers: Mapping[str, str], *, at: int = 0) -> str:
    """The address that broker 0 records for a change that came from elsewhere."""
    async with from_elsewhere() as session:
        asked = session.put(served.url(at) + TENANT, json=BODY, headers=headers)
        async with asked as answer:
            assert answer.status == 204, await answer.text()
        asked = session.delete(served.url(0) + TENANT, headers=headers)
        (change,) = served.brokers[0].use.audit.recent(1)
        assert TENANT in change.what
        async with asked as answer:
            assert answer.status == 204, await answer.text()
    return change.address


@pytest.mark.parametrize("secured", [True, False])
async def test_the_audit_log_has_who_asked(secured: bool) -> None:
    """Not the broker that passed it on; what others say of themselves is not believed."""
    admin = {"Authorization": f"Bearer {token(ADMIN)}"} if secured else {}
    rights = {"values": VALUES, "verifier": verifier(), "token": token("broker")}
    rights["values"] = {**VALUES, "superUserRoles": f"{ADMIN},broker"}
    async with serving(2, **(rights if secured else {})) as served:  # type: ignore[arg-type]
        through = {**admin, BROKER: served.broker_id(0)}
        assert await _recorded(served, through, at=1) == ELSEWHERE
        says = {**admin, ASKER: CLAIMED, PASSED_BY: served.broker_id(1)}
        assert await _recorded(served, says) == ELSEWHERE
        for proof in ("", "Bearer nonsense", f"Bearer {token(ADMIN)}"):
            assert await _recorded(served, {**says, PROOF: proof}) == ELSEWHERE
        if secured:
            proven = {**says, PROOF: f"Bearer {token('broker')}"}
            assert await _recorded(served, proven) == CLAIMED
            assert await _recorded(served, {**proven, ASKER: "nonsense"}) == ELSEWHERE


async def test_streams_count_for_who_listens() -> None:
    """However many listen through the same broker."""
    async with serving(2) as served, AsyncExitStack() as stack:
        elsewhere = await stack.enter_async_context(from_elsewhere())

        async def listens(session: aiohttp.ClientSession) -> int:
            asked = session.get(served.url(1) + EVENTS, headers={FOLLOW: "true"})
            return (await stack.enter_async_context(asked)).status

        async with asyncio.timeout(600):
            for _ in range(AT_ADDRESS_MAX):
                assert await listens(served.session) == 200
            assert await listens(served.session) == 503
            assert await listens(elsewhere) == 200
