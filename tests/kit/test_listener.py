"""Listening sockets: TLS handshakes that do not end, and bytes that are not TLS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kit.security.certificates import Authority

from loadmanager.kit.listener import Listener
from loadmanager.kit.security.tls import Context
from loadmanager.kit.tasks import Scope


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(data)


class Place:
    """A listener for TLS, and how to come to it."""

    def __init__(self, authority: Authority, port: int, tls: Context) -> None:
        self.port, self.tls, self.authority = port, tls, authority

    async def echo(self) -> bytes:
        """The answer to a client that sends `hello`."""
        client = self.authority.client().value
        reader, writer = await asyncio.open_connection("localhost", self.port, ssl=client)
        writer.write(b"hello")
        answer = await reader.read(5)
        writer.close()
        return answer

    async def plain(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that does not speak TLS."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer


@asynccontextmanager
async def listening(folder: Path, *, handshakes_max: int = 100) -> AsyncIterator[Place]:
    """A listener that echoes, over TLS."""
    authority = Authority(folder)
    tls = authority.server(authority.issue("broker"))
    sock = socket.create_server(("127.0.0.1", 0))
    wrong: list[str] = []
    async with Scope("test") as scope:
        listener = Listener(
            sock,
            Echo,
            lambda what, _: wrong.append(what),
            spawn=scope.spawn,
            tls=tls,
            handshakes_max=handshakes_max,
        )
        yield Place(authority, sock.getsockname()[1], tls)
        listener.close()
    assert not wrong


async def test_who_does_not_speak_tls_is_refused(tmp_path: Path) -> None:
    """And the next client is served."""
    async with listening(tmp_path) as place:
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b"\x16\x03\x01\x00\x05hello"):
            reader, writer = await place.plain(data)
            async with asyncio.timeout(60):
                assert b"HTTP" not in await reader.read()
            writer.close()
        assert place.tls.failed == 3
        assert await place.echo() == b"hello"


@pytest.mark.parametrize("handshakes_max", [2, 100])
async def test_silent_clients_hold_up_nobody(tmp_path: Path, handshakes_max: int) -> None:
    """However many begin a handshake and never end it; beyond the limit, the oldest go."""
    async with listening(tmp_path, handshakes_max=handshakes_max) as place:
        silent = [await place.plain() for _ in range(10)]
        assert await place.echo() == b"hello"
        gone = max(0, 10 + 1 - handshakes_max)
        for reader, _ in silent[:gone]:
            async with asyncio.timeout(60):
                assert await reader.read() == b""
        assert place.tls.failed == gone
        for _, writer in silent:
            writer.close()


async def test_silent_clients_of_one_address_hold_up_no_other(tmp_path: Path) -> None:
    """A client of another address that is slow to begin is not among those that give way."""
    async with listening(tmp_path, handshakes_max=4) as place:
        slow = socket.create_connection(("127.0.0.1", place.port), source_address=("127.0.0.2", 0))
        slow.setblocking(False)
        silent = [await place.plain() for _ in range(20)]
        for reader, _ in silent[:10]:
            async with asyncio.timeout(60):
                assert await reader.read() == b""
        client = place.authority.client().value
        reader, writer = await asyncio.open_connection(
            sock=slow, ssl=client, server_hostname="localhost"
        )
        writer.write(b"hello")
        assert await reader.read(5) == b"hello"
        for one in (writer, *(writer for _, writer in silent)):
            one.close()
