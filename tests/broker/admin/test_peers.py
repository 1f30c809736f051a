"""What a broker reads of another broker's answer: names of any length, and a bounded body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from broker.admin.serving import serving

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.peers import ANSWER_BYTES_MAX, TEXT_MAX, HttpPeers
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import ConflictError, OperationalError

NAMESPACE = f"{'t' * 1000}/{'n' * 1000}"
LEFT, RIGHT, WHOLE = (
    f"{NAMESPACE}/{span}"
    for span in ("0x00000000_0x40000000", "0x40000000_0x80000000", "0x00000000_0x80000000")
)


async def test_a_merge_of_long_names_is_reported_as_done() -> None:
    """Tenant and namespace have 2,000 characters together."""
    async with serving(1) as served:
        (broker,), calls = served.brokers, Calls()
        peers = HttpPeers(calls, release_timeout_s=lambda: 60)
        tenant = NAMESPACE.partition("/")[0]
        for path, body in (
            (f"tenants/{tenant}", {"allowedClusters": ["standalone"]}),
            (f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 4}}),
        ):
            assert (await served.ask("PUT", f"/admin/v2/{path}", body)).status == 204
        for bundle in (LEFT, RIGHT):
            await peers.acquire_bundle(broker.address, bundle, epoch=None)
        assert await peers.merge_bundles(broker.address, LEFT, RIGHT, epoch=None) == WHOLE
        assert await peers.served_bundles(broker.address) == {WHOLE: 0}
        await calls.close()


class Answering:
    """A broker that answers everything alike, and counts what it could send."""

    def __init__(self, status: int, chunk: bytes, chunks: int = 1) -> None:
        self.status, self.chunk, self.chunks = status, chunk, chunks
        self.sent = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        try:
            for _ in range(self.chunks):
                await response.write(self.chunk)
                self.sent += len(self.chunk)
        except OSError:
            pass
        return response


@asynccontextmanager
async def asking(answering: Answering) -> AsyncIterator[tuple[HttpPeers, BrokerAddress]]:
    """Peers, and the address of a broker that answers so."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answering.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    calls = Calls()
    peers = HttpPeers(calls, release_timeout_s=lambda: 60)
    try:
        yield peers, BrokerAddress("other:8080", "", f"http://{host}:{port}")
    finally:
        await calls.close()
        await runner.cleanup()


@pytest.mark.parametrize("status", [409, 500])
async def test_a_long_reason_is_cut_after_it_was_decoded(status: int) -> None:
    """People read the reason, not a broken document."""
    reason = 'the bundle "x" ' * 40
    document = b'{"reason":"' + reason.replace('"', '\\"').encode() + b'"}'
    async with asking(Answering(status, document)) as (peers, broker):
        with pytest.raises(OperationalError) as refused:
            await peers.merge_bundles(broker, LEFT, RIGHT, epoch=None)
        assert str(refused.value) == f"other:8080 answered {status}: {reason[:TEXT_MAX]}"
    async with asking(Answering(409, document)) as (peers, broker):
        with pytest.raises(ConflictError) as conflict:
            await peers.close_topic(broker, "persistent://a/b/c", force=False)
        assert str(conflict.value) == reason[:TEXT_MAX]


@pytest.mark.parametrize("status", [200, 409, 500])
async def test_no_more_of_an_answer_is_read_than_is_allowed(status: int) -> None:
    """A broker that sends 64 MB is left after 64 KiB, and what the sockets hold."""
    answering = Answering(status, b"x" * 65_536, 1_000)
    async with asking(answering) as (peers, broker):
        call: Any = peers.last_release(broker, LEFT)
        with pytest.raises(OperationalError, match=f"with more than {ANSWER_BYTES_MAX} bytes"):
            await call
    assert answering.sent < 16 << 20


async def test_an_answer_that_is_no_text_is_a_failure_of_that_broker() -> None:
    """Its bytes are no UTF-8."""
    for status in (200, 500):
        async with asking(Answering(status, b"\xff\xfe{")) as (peers, broker):
            with pytest.raises(OperationalError, match="other:8080"):
                await peers.last_release(broker, LEFT)
