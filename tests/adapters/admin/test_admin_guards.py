"""Requests that are malformed, too large or too many."""

from __future__ import annotations

import asyncio
import io

import pytest
import structlog
from adapters.admin.serving import serving

from loadmanager.adapters.admin.server import BODY_BYTES_MAX
from loadmanager.adapters.admin.settings import AdminSettings

TENANT = b'{"allowedClusters": ["standalone"]}'
MEDIA = {"Content-Type": "application/json"}
JSON = b"Content-Type: application/json\r\n"
NAMESPACE = "/admin/v2/namespaces/acme/new"


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"{'a':1}",
        b'{"a":NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":1}x',
        b"nul",
        b'{"a":"\xc3"}',
    ],
    ids=["cut", "quotes", "nan", "utf8", "deep", "tail", "word", "half"],
)
async def test_malformed_json(raw: bytes) -> None:
    """400 with a reason, and nothing is created."""
    async with serving(1) as served:
        answer = await served.ask("PUT", NAMESPACE, raw=raw)
        assert (answer.status, "malformed JSON" in answer.reason) == (400, True)
        assert await served.get("/admin/v2/namespaces/acme") == ["acme/orders"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", NAMESPACE),
        ("PUT", "/admin/v2/tenants/new"),
        ("POST", "/admin/v2/tenants/acme"),
        ("PUT", "/admin/v2/persistent/acme/orders/new/partitions"),
    ],
)
@pytest.mark.parametrize("levels", [101, 979, 20_000])
async def test_json_that_nests_too_deeply(method: str, path: str, levels: int) -> None:
    """400 with the reason: a document that could not be read back is not stored."""
    async with serving(1) as served:
        raw = b'{"numBundles":' * levels + b"4" + b"}" * levels
        answer = await served.ask(method, path, raw=raw)
        assert (answer.status, "nests too deeply" in answer.reason) == (400, True)
        assert await served.get("/admin/v2/namespaces/acme") == ["acme/orders"]


async def test_json_that_nests_as_deeply_as_is_allowed() -> None:
    """A document within the limit is refused for what it says, not for its depth."""
    async with serving(1) as served:
        raw = b'{"a":' * 100 + b"4" + b"}" * 100
        answer = await served.ask("PUT", NAMESPACE, raw=raw)
        assert (answer.status, answer.reason) == (400, "unknown field of policies: a")


async def test_unknown_paths_and_methods() -> None:
    """404 and 405 are JSON, too; 405 says what is allowed."""
    async with serving(1) as served:
        for path in (
            "/",
            "/admin",
            "/admin/v3/brokers",
            "/admin/v2/persistent/acme",
            "/lookup/v2/topic/persistent/acme/orders/",
        ):
            answer = await served.ask("GET", path)
            assert (answer.status, path in answer.reason) == (404, True)
        answer = await served.ask("DELETE", "/admin/v2/brokers")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        assert "GET" in answer.reason


async def test_trailing_slashes() -> None:
    """A slash at the end changes nothing, and causes no redirect."""
    async with serving(1) as served:
        for path in (
            "/admin/v2/brokers",
            "/admin/v2/namespaces/acme",
            "/admin/v2/namespaces/acme/orders/bundles",
            "/admin/v2/tenants",
        ):
            assert await served.get(path + "/") == await served.get(path)


async def test_a_body_that_is_too_large() -> None:
    """The answer is 413, whether the size was announced or not."""
    async with serving(1) as served:
        async with served.session.put(
            served.url() + NAMESPACE, data=io.BytesIO(b" " * (BODY_BYTES_MAX + 1)), headers=MEDIA
        ) as answer:
            assert answer.status == 413

        async def chunks():  # type: ignore[no-untyped-def]
            for _ in range(BODY_BYTES_MAX // 65536 + 2):
                yield b" " * 65536

        async with served.session.put(
            served.url() + NAMESPACE, data=chunks(), headers=MEDIA
        ) as answer:
            assert answer.status == 413
        assert await served.get("/admin/v2/namespaces/acme") == ["acme/orders"]


async def test_a_header_that_is_too_large() -> None:
    """400, and the next connection is served."""
    async with serving(1) as served:
        async with served.session.get(
            served.url() + "/admin/v2/brokers", headers={"X-Long": "x" * 20_000}
        ) as answer:
            assert answer.status == 400
        assert await served.get("/admin/v2/brokers")


async def test_requests_at_once_are_bounded() -> None:
    """A request beyond the limit is answered with 503, health still answers, and a finished request
    makes room.
    """
    async with serving(1, AdminSettings(requests_max=1)) as served:
        host, _, port = served.broker_id(0).partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = b"PUT /admin/v2/tenants/slow HTTP/1.1\r\nHost: x\r\n" + JSON
        head += b"Content-Length: %d\r\n\r\n"
        writer.write(head % len(TENANT))
        await writer.drain()
        try:
            async with asyncio.timeout(5):
                while (answer := await served.ask("GET", "/admin/v2/tenants")).status != 503:
                    assert answer.status == 200
            assert answer.headers["Retry-After"] == "1"
            assert await served.get("/admin/v2/brokers/health") == "ok"
            writer.write(TENANT)
            assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        finally:
            writer.close()
        assert "slow" in await served.get("/admin/v2/tenants")


async def test_connections_are_bounded() -> None:
    """A connection beyond the limit is closed at once; the others go on."""
    with structlog.testing.capture_logs() as logs:
        await _one_too_many(AdminSettings(connections_max=2), 0)
    assert [
        entry["connections"] for entry in logs if "HTTP connections are refused" in entry["event"]
    ] == [2]


async def test_connections_leave_files_for_others() -> None:
    """The limit of open files bounds the connections, too."""
    await _one_too_many(AdminSettings(), 2)


async def _one_too_many(settings: AdminSettings, cap: int) -> None:
    async with serving(1, settings, connections_cap=cap) as served:
        host, _, port = served.broker_id(0).partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        extra_reader, extra_writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(5):
            assert await extra_reader.read() == b""
        writer.write(b"GET /admin/v2/brokers/version HTTP/1.0\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 200")
        writer.close()
        extra_writer.close()


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 20\r\n\r\n{}",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["cut", "chunk", "gzip"],
)
async def test_bodies_that_break_off(rest: bytes) -> None:
    """An incomplete body creates nothing and is not logged as an error of the broker; the server
    goes on.
    """
    async with serving(1) as served:
        host, _, port = served.broker_id(0).partition(":")
        with structlog.testing.capture_logs() as lines:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"PUT /admin/v2/tenants/half HTTP/1.1\r\nHost: x\r\n" + JSON + rest)
            writer.write_eof()
            async with asyncio.timeout(5):
                answer = await reader.read()
            writer.close()
            assert b" 500 " not in answer
            assert "half" not in await served.get("/admin/v2/tenants")
        assert not [line for line in lines if line["log_level"] != "debug"]


async def test_garbage_on_the_wire() -> None:
    """Bytes that are not HTTP get an answer and a closed connection; the server goes on."""
    async with serving(1) as served:
        host, _, port = served.broker_id(0).partition(":")
        for garbage in (
            b"\x00\x01\x02\xff\r\n\r\n",
            b"GET\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            async with asyncio.timeout(5):
                assert (await reader.read()).startswith(b"HTTP/1.")
            writer.close()
        assert await served.get("/admin/v2/brokers/health") == "ok"
