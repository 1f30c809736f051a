"""Requests that are malformed, too large or too many."""

from __future__ import annotations

import asyncio
import io
import socket
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from broker.admin.serving import Served, serving
from clusters.running import until
from kit.security.tokens import ADMIN, VALUES, token, verifier

from loadmanager.broker.admin.following import FOLLOW
from loadmanager.broker.admin.server import BODY_BYTES_MAX
from loadmanager.kit.http.connections import PIECE_BYTES, Connections, HttpConnection
from loadmanager.kit.http.middlewares import METRICS_MAX, concurrency_limit
from loadmanager.kit.http.passing_on import BROKER
from loadmanager.kit.http.settings import AdminSettings
from loadmanager.kit.http.streams import Streams

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
            assert (answer.status, "reason" in await answer.json()) == (413, True)

        async def chunks():  # type: ignore[no-untyped-def]
            for _ in range(BODY_BYTES_MAX // 65536 + 2):
                yield b" " * 65536

        async with served.session.put(
            served.url() + NAMESPACE, data=chunks(), headers=MEDIA
        ) as answer:
            assert answer.status == 413
        assert await served.get("/admin/v2/namespaces/acme") == ["acme/orders"]


async def test_a_body_that_is_too_large_for_another_broker() -> None:
    """A broker that asks the leader for a page reads the body itself, and refuses as all do."""
    async with serving(2) as served:
        headers = {**MEDIA, FOLLOW: "true"}
        for data, status in ((b" " * (BODY_BYTES_MAX + 1), 413), (b" " * 10, 200)):
            async with served.session.post(
                f"{served.url(1)}/loadmanager/v1/dry-runs", data=io.BytesIO(data), headers=headers
            ) as answer:
                assert answer.status == status, answer
                assert ("reason" in await answer.json()) is (status != 200)


async def test_a_header_that_is_too_large() -> None:
    """400, and the next connection is served."""
    async with serving(1) as served:
        async with served.session.get(
            served.url() + "/admin/v2/brokers", headers={"X-Long": "x" * 20_000}
        ) as answer:
            assert answer.status == 400
            assert "the request cannot be read" in (await answer.json())["reason"]
        async with served.session.get(served.url() + "/" + "x" * 20_000) as answer:
            assert answer.status == 400
            assert len((await answer.json())["reason"]) < 300
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
            async with asyncio.timeout(60):
                while (answer := await served.ask("GET", "/admin/v2/tenants")).status != 503:
                    assert answer.status == 200
            assert answer.headers["Retry-After"] == "1"
            assert await served.get("/admin/v2/brokers/health") == "ok"
            writer.write(TENANT)
            assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        finally:
            writer.close()
        assert "slow" in await served.get("/admin/v2/tenants")


async def test_the_metrics_page_has_a_limit_of_its_own() -> None:
    """So many at once, whatever else is in progress; others are not kept out."""
    answers = asyncio.Event()

    async def page(_request: web.Request) -> web.StreamResponse:
        await answers.wait()
        return web.Response()

    limit = concurrency_limit(1)

    def ask(path: str) -> asyncio.Task[web.StreamResponse]:
        return asyncio.ensure_future(limit(make_mocked_request("GET", path), page))

    scrapes = [ask("/metrics/") for _ in range(METRICS_MAX + 1)]
    other, refused = ask("/admin/v2/tenants"), ask("/admin/v2/tenants")
    statuses = [(await task).status for task in (scrapes[-1], refused)]
    answers.set()
    statuses += [(await task).status for task in (*scrapes[:-1], other)]
    assert statuses == [503, 503] + [200] * (METRICS_MAX + 1)
    again = ask("/metrics")
    assert (await again).status == 200


async def test_what_another_broker_is_to_answer_counts_as_any_request() -> None:
    """Though it is what a full broker answers of itself."""
    answers, limit = asyncio.Event(), concurrency_limit(1)

    async def page(_request: web.Request) -> web.StreamResponse:
        await answers.wait()
        return web.Response()

    def ask(path: str, headers: dict[str, str]) -> asyncio.Task[web.StreamResponse]:
        request = make_mocked_request("GET", path, headers)
        return asyncio.ensure_future(limit(request, page))

    path, of_other = "/admin/v2/brokers/health", {BROKER: "another:1"}
    first, second, own = ask(path, of_other), ask(path, of_other), ask(path, {})
    assert (await second).status == 503
    answers.set()
    assert [(await first).status, (await own).status] == [200, 200]


async def _connect(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, number = served.broker_id(0).partition(":")
    return await asyncio.open_connection(host, int(number))


async def _closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(60):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


@pytest.mark.parametrize(
    ("settings", "cap"),
    [
        (AdminSettings(connections_max=3), 0),
        (AdminSettings(), 3),
        (AdminSettings(connections_per_address_max=3), 0),
    ],
    ids=["in all", "by open files", "of one address"],
)
async def test_connections_are_bounded(settings: AdminSettings, cap: int) -> None:
    """Beyond the limit the one that was used least recently is closed, and the new one is served;
    one with a request in progress stays.
    """
    with structlog.testing.capture_logs() as logs:
        async with serving(1, settings, connections_cap=cap) as served:
            await served.session.close()
            busy_reader, busy = await _connect(served)
            head = b"PUT /admin/v2/tenants/slow HTTP/1.1\r\nHost: x\r\n" + JSON
            busy.write(head + b"Content-Length: %d\r\n\r\n" % len(TENANT))
            others = [await _connect(served) for _ in range(5)]
            for reader, _ in others[:3]:
                assert await _closed(reader)
            for reader, writer in others[3:]:
                writer.write(b"GET /admin/v2/brokers/version HTTP/1.0\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.0 200")
            busy.write(TENANT)
            assert (await busy_reader.readline()).startswith(b"HTTP/1.1 204")
            for writer in (busy, *(writer for _, writer in others)):
                writer.close()
    assert sum("idle HTTP connections are closed" in entry["event"] for entry in logs) == 1


def test_an_address_with_many_connections_gives_way() -> None:
    """However many come from a few addresses, one from another is kept."""

    async def fill() -> None:
        connections = Connections(most=10, at_address_max=0)
        wires = [Wire(f"10.0.0.{number % 2}") for number in range(50)]
        peer = Wire("10.0.1.1")
        for wire in (*wires[:30], peer, *wires[30:]):
            HttpConnection(asyncio.Protocol(), connections).connection_made(wire)
        assert not peer.aborted
        assert sum(not wire.aborted for wire in wires) == 9

    asyncio.run(fill())


class Wire(asyncio.Transport):
    """A transport of a client at an address."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is written."""

    def abort(self) -> None:
        self.aborted = True


@asynccontextmanager
async def _answering(
    connections: Connections, body_of: Callable[[web.Request], bytes]
) -> AsyncIterator[tuple[int, list[web.RequestHandler]]]:
    """A server of one page with these connections: its port, and what serves them, in order."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body_of(request))

    async with _served(connections, answer) as served:
        yield served


@asynccontextmanager
async def _served(
    connections: Connections, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> AsyncIterator[tuple[int, list[web.RequestHandler]]]:
    """As `_answering`, with a handler."""
    application = web.Application(middlewares=[connections.middleware()])
    application.router.add_get("/{name:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    assert runner.server is not None
    make = runner.server
    served: list[web.RequestHandler] = []

    def accept() -> HttpConnection:
        served.append(make())
        return HttpConnection(served[-1], connections)

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], served
    finally:
        server.close()
        await runner.cleanup()


REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_connection_that_says_nothing() -> None:
    """Is closed, whether it sent nothing or half a request; one that asks again later is not."""
    connections = Connections(most=10, at_address_max=0, head_timeout_s=3.0)
    async with _answering(connections, lambda _: b"ok") as (port, _):
        talking, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        assert (await talking.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        quiet = []
        for silent in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n"):
            quiet.append(await asyncio.open_connection("127.0.0.1", port))
            quiet[-1][1].write(silent)
        for reader, saying_nothing in quiet:
            assert await _closed(reader)
            saying_nothing.close()
        writer.write(REQUEST)
        assert (await talking.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_stream_ends_when_its_client_goes() -> None:
    """Though nothing is written to it; then it does not count any more."""
    streams, begun, ended = Streams(), asyncio.Event(), asyncio.Event()

    async def listen(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        async with streams.opened(request, "here"):
            await response.prepare(request)
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return response

    async with _served(Connections(most=10, at_address_max=0), listen) as (port, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        async with asyncio.timeout(60):
            await begun.wait()
            assert not ended.is_set()
            writer.close()
            await ended.wait()
            await until(lambda: not streams._at)


@contextmanager
def _unread(port: int, request: bytes = REQUEST) -> Iterator[None]:
    """A client that asks, and takes next to nothing of its answer."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(request)
        yield


LARGE = 16 * 1024 * 1024
"""More than the system takes for a client that does not read."""


@pytest.mark.parametrize("size", [LARGE, PIECE_BYTES], ids=["one answer", "many answers"])
async def test_a_client_that_does_not_take_its_answer(size: int) -> None:
    """Is closed, also if it asks for many small answers; one that reads gets all of it."""
    body = b"x" * size
    connections = Connections(most=10, at_address_max=0, write_timeout_s=2.0)
    async with _answering(connections, lambda _: body) as (port, served):
        with _unread(port, REQUEST * (LARGE // size)):
            await until(lambda: len(served) == 1 and served[0].connected)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(size) == body
            await until(lambda: not served[0].connected)
            writer.close()


async def test_answers_that_wait_are_bounded_together() -> None:
    """The client that has waited longest is closed for another answer, and not for the same."""
    bodies = {name: name.encode() * (LARGE // 2) for name in ("/a", "/b")}
    connections = Connections(most=10, at_address_max=0, unsent_bytes_max=LARGE)

    async def ask(port: int, path: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST.replace(b"/", path.encode(), 1))
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(LARGE) == bodies[path]
        writer.close()

    async with _answering(connections, lambda request: bodies[request.path]) as (port, served):
        first = REQUEST.replace(b"/", b"/a", 1)
        with structlog.testing.capture_logs() as logs, _unread(port, first), _unread(port, first):
            await ask(port, "/a")
            assert [handler.connected for handler in served[:2]] == [True, True]
            await ask(port, "/b")
            assert [handler.connected for handler in served[:2]] == [False, False]
    (line,) = [line for line in logs if line["log_level"] == "warning"]
    assert "answers wait for clients" in line["event"]


@pytest.mark.parametrize("values", [{}, VALUES], ids=["open", "without a token"])
async def test_a_compressed_body_is_not_inflated(values: dict[str, str]) -> None:
    """415, and the end of the connection: a small body could become a large one. The broker spends
    much less time than it takes to inflate this one.
    """
    packer, part = zlib.compressobj(wbits=31), b" " * (1 << 20)
    body = b"".join(packer.compress(part) for _ in range(128)) + packer.flush()
    began_s = time.process_time()
    unpacker, rest = zlib.decompressobj(wbits=31), body
    while unpacker.decompress(rest, 1 << 16):
        rest = unpacker.unconsumed_tail
    inflating_s = time.process_time() - began_s
    checks = verifier() if values else None
    async with serving(1, values=values, verifier=checks, token=token(ADMIN)) as served:
        reader, writer = await _connect(served)
        began_s = time.process_time()
        head = b"PUT /admin/v2/tenants/zip HTTP/1.1\r\nHost: x\r\n" + JSON
        sizes = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + sizes + body)
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        assert time.process_time() - began_s < inflating_s / 2
        assert answer.startswith(b"HTTP/1.1 415")
        assert b"must not be compressed" in answer


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
            async with asyncio.timeout(60):
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
            async with asyncio.timeout(60):
                assert (await reader.read()).startswith(b"HTTP/1.")
            writer.close()
        assert await served.get("/admin/v2/brokers/health") == "ok"
