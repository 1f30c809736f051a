"""TLS to the metadata store: the embedded one, behind a proxy that ends TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kit.security.certificates import Authority

from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore
from loadmanager.kit.zookeeper.ensemble import read
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings, ZooKeeperTlsSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore

BIG = b"x" * 40_000
"""Several answers of this size come in one record of TLS, or one in several."""


@asynccontextmanager
async def a_store(server: ssl.SSLContext) -> AsyncIterator[int]:
    """The port of a store over TLS."""
    async with EmbeddedStore() as store:

        async def pass_on(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
            there, requests = await asyncio.open_connection("127.0.0.1", store.port)
            await asyncio.gather(_copied(client, requests), _copied(there, answers))

        async with await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=server) as proxy:
            yield proxy.sockets[0].getsockname()[1]


async def _copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    target.close()


async def _reads(store: ZooKeeperStore) -> bool:
    try:
        return (await store.get("/n0")) is not None
    except OperationalError:
        return False


def _server(authority: Authority) -> ssl.SSLContext:
    pair = authority.issue("zookeeper")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.trust))
    context.load_cert_chain(pair.certificate, pair.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _store(
    port: int, host: str = "localhost", *, patience_s: float = 60, **files: Path
) -> ZooKeeperStore:
    settings = ZooKeeperSettings(
        url=f"zk:{host}:{port}/x", operation_timeout_s=patience_s, session_timeout_ms=20_000
    )
    return ZooKeeperStore(settings, tls=_tls(**files))


def _tls(**files: Path) -> ZooKeeperTlsSettings:
    return ZooKeeperTlsSettings(enabled=True, **{name: str(file) for name, file in files.items()})


async def test_a_session_over_tls(tmp_path: Path) -> None:
    """With certificates on both sides; answers that come together are all read, and a connection
    that is dropped is followed by another.
    """
    authority = Authority(tmp_path)
    own = authority.issue("broker")
    files = {"trust": authority.trust, "certificate": own.certificate, "key": own.key}
    async with a_store(_server(authority)) as port:
        async with _store(port, **files) as store:
            names = [f"/n{number}" for number in range(30)]
            assert all(await asyncio.gather(*(store.create(name, BIG) for name in names)))
            nodes = await asyncio.gather(*(store.get(name) for name in names))
            assert {node.value for node in nodes if node is not None} == {BIG}
            store._client.drop_connection()
            async with asyncio.timeout(60):
                while not await _reads(store):
                    await asyncio.sleep(0.05)
        hosts = f"localhost:{port}"
        (server,) = await asyncio.to_thread(read, hosts, 60.0, _tls(**files).context())
        assert server.mode == "standalone"
        (server,) = await asyncio.to_thread(read, hosts, 5.0)
        assert server.failure


async def test_a_server_that_is_not_the_one(tmp_path: Path) -> None:
    """A stranger's certificate, one for another name, and files that are none."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "x", "stranger")
    own = authority.issue("broker")
    async with a_store(_server(authority)) as port:
        for trust, host in ((stranger.trust, "localhost"), (authority.trust, "127.0.0.2")):
            files = {"trust": trust, "certificate": own.certificate, "key": own.key}
            with pytest.raises(OperationalError, match="does not answer"):
                async with _store(port, host, patience_s=0.5, **files):
                    pass
    with pytest.raises(ConfigError, match="No such file"):
        _store(1, trust=tmp_path / "nowhere.pem")
