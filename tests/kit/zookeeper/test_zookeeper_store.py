"""The store on a real ZooKeeper server: the contract, sessions and outages."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent
from ports import free_port

from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.metadata.store import Change, ChangeKind, SessionState
from loadmanager.kit.zookeeper.java import JavaZooKeeper
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.testing.store_contract import StoreContract, next_of, skip_to, until

pytestmark = pytest.mark.zookeeper


def end_session(settings: ZooKeeperSettings, identity: tuple[int, bytes]) -> None:
    """Close a session from another connection, as its expiry would."""
    thief = KazooClient(
        settings.hosts, client_id=identity, timeout=settings.session_timeout_ms / 1000
    )
    thief.start()
    thief.stop()
    thief.close()


class TestZooKeeperStore(StoreContract):
    """Sessions over one chroot of the shared server."""

    @pytest.fixture(autouse=True)
    def _settings(self, zookeeper_settings: Callable[..., ZooKeeperSettings]) -> None:
        self.settings = zookeeper_settings()

    async def open(self) -> ZooKeeperStore:
        store = ZooKeeperStore(self.settings)
        await store.__aenter__()
        self.closing.push_async_callback(self.close, store)
        return store

    async def close(self, store: ZooKeeperStore) -> None:
        if not store._closed:
            await store.__aexit__()

    async def expire(self, store: ZooKeeperStore) -> None:
        await asyncio.to_thread(end_session, self.settings, store._client.client_id)

    async def test_chroot_is_invisible(
        self, store: ZooKeeperStore, zookeeper_server: JavaZooKeeper
    ) -> None:
        """Nodes lie below the chroot, and paths do not show it."""
        await store.create("/inside", b"1")
        async with ZooKeeperStore(
            ZooKeeperSettings(url=zookeeper_server.url, session_timeout_ms=2000)
        ) as above:
            node = await above.get(f"/{self.settings.chroot}/inside")
        assert node is not None
        assert node.value == b"1"

    async def test_many_operations_are_pipelined(self, store: ZooKeeperStore) -> None:
        """One connection carries two thousand concurrent writes and reads."""
        await asyncio.gather(*(store.create(f"/bulk/{number}", b"") for number in range(1000)))
        assert len(await store.children("/bulk")) == 1000
        assert None not in await store.get_many([f"/bulk/{number}" for number in range(1000)])

    async def test_changes_come_before_what_was_read_after_them(
        self, store: ZooKeeperStore
    ) -> None:
        """As the server sent them: who reads a new value has heard of the change."""
        other = await self.open()
        changes = store.watch("/seen")
        await skip_to(changes, Change(ChangeKind.RESYNC, "/seen"))
        heard: set[str] = set()

        async def listen() -> None:
            async for change in changes:
                heard.add(change.path)

        listening = asyncio.create_task(listen())
        for number in range(200):
            await other.create(f"/seen/{number}", b"")
            while await store.get(f"/seen/{number}") is None:
                pass
            await asyncio.sleep(0)  # the turn in which the listener takes what has come
            assert f"/seen/{number}" in heard
        listening.cancel()

    async def test_a_watcher_that_fails_costs_its_event_only(self, store: ZooKeeperStore) -> None:
        """The connection stays, and later events come."""
        told: list[str] = []

        def fail_once(event: WatchedEvent) -> None:
            told.append(event.path)
            raise ValueError("a bug")

        session_id = store.session_id
        store._client.watch_tree_async("/seen", fail_once)
        for name in ("/seen/1", "/seen/2"):
            await store.create(name, b"")
        await until(lambda: {"/seen/1", "/seen/2"} <= {*told}, "both events")
        assert await store.get("/seen/2") is not None
        assert store.session_id == session_id


async def test_client_that_gave_up_ends_its_readers(
    zookeeper_settings: Callable[..., ZooKeeperSettings],
) -> None:
    """When kazoo ends, watches and states end, and the lease is revoked."""
    async with ZooKeeperStore(zookeeper_settings()) as store:
        states, changes = store.session_states(), store.watch("/g")
        await next_of(states)
        await next_of(changes)
        await asyncio.to_thread(store._client.stop)
        async with asyncio.timeout(60):
            assert [state async for state in states] == [SessionState.LOST]
            assert [change async for change in changes] == []
        assert store.lease.valid_until_s == 0.0


@pytest.fixture
async def own_server() -> AsyncIterator[JavaZooKeeper]:
    """A server that the test may stop."""
    async with JavaZooKeeper(port=free_port(), tick_ms=100) as server:
        yield server


def settings_for(server: JavaZooKeeper, **changes: float) -> ZooKeeperSettings:
    """Short timeouts."""
    return ZooKeeperSettings(
        url=server.url, **{"session_timeout_ms": 4000, "operation_timeout_s": 30.0, **changes}
    )  # type: ignore[arg-type]


def java_of(server: JavaZooKeeper) -> psutil.Process:
    """The Java process of a server."""
    assert server._process is not None
    found = [
        child
        for child in psutil.Process(server._process.pid).children(recursive=True)
        if "java" in child.name()
    ]
    assert len(found) == 1
    return found[0]


def gone(process: psutil.Process) -> bool:
    """True if a process has ended, even if its parent has not waited for it yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def test_lease_runs_out_when_the_server_is_silent(own_server: JavaZooKeeper) -> None:
    """While the server is stopped the lease runs out, and operations fail until it goes on."""
    async with ZooKeeperStore(settings_for(own_server, operation_timeout_s=10)) as store:
        states, now_s = store.session_states(), asyncio.get_running_loop().time
        assert await next_of(states) is SessionState.CONNECTED
        await states.aclose()  # type: ignore[attr-defined]
        java = java_of(own_server)
        java.send_signal(signal.SIGSTOP)
        try:
            stopped_s = now_s()
            await until(lambda: not store.lease.held(now_s()), "the lease runs out")
            assert store.lease.proven_until_s - stopped_s < store.session_timeout_s
            with pytest.raises(OperationalError):
                await store.get("/")
        finally:
            java.send_signal(signal.SIGCONT)
        await until(lambda: store.lease.held(now_s()), "a session is proven again")
        assert await store.create("/after", b"")


async def test_restarted_server_is_found_again(tmp_path: Path) -> None:
    """A server that restarts in time with its data keeps the session, and watches get a RESYNC."""
    port = free_port()
    async with JavaZooKeeper(port=port, data_dir=tmp_path, tick_ms=100) as server:
        store = ZooKeeperStore(
            settings_for(server, session_timeout_ms=40_000, operation_timeout_s=10)
        )
        await store.__aenter__()
        await store.create("/kept", b"1", ephemeral=True)
        changes, session_id = store.watch("/kept"), store.session_id
        await next_of(changes)
    async with JavaZooKeeper(port=port, data_dir=tmp_path, tick_ms=100):
        try:
            assert await next_of(changes) == Change(ChangeKind.RESYNC, "/kept")
            node = await store.get("/kept")
            assert node is not None
            assert store.session_id == node.ephemeral_owner == session_id
            await store.put("/kept", b"2")
            await skip_to(changes, Change(ChangeKind.CHANGED, "/kept"))
        finally:
            await store.__aexit__()


async def test_granted_timeout_counts_not_the_wanted_one(own_server: JavaZooKeeper) -> None:
    """The lease follows the session timeout that the server grants, not the one asked for."""
    async with ZooKeeperStore(settings_for(own_server, session_timeout_ms=100)) as store:
        assert store.session_timeout_s == pytest.approx(0.5, abs=0.01)


async def test_no_server_is_said_clearly() -> None:
    """Without a server, the `OperationalError` contains the address and the setting."""
    settings = ZooKeeperSettings(url=f"zk:127.0.0.1:{free_port()}", operation_timeout_s=0.3)
    with pytest.raises(
        OperationalError,
        match=r"127\.0\.0\.1:\d+ does not answer within 0\.3 s; is metadataStoreUrl right",
    ):
        await ZooKeeperStore(settings).__aenter__()


@pytest.mark.parametrize(
    ("url", "hosts", "chroot"),
    [
        ("zk:a:2181,b:2182/pulsar/one", "a:2181,b:2182", "pulsar/one"),
        ("a:2181", "a:2181", ""),
        ("zk:[::1]:2181/", "[::1]:2181", ""),
        ("zk:zoo-1.example_net", "zoo-1.example_net", ""),
    ],
)
def test_urls(url: str, hosts: str, chroot: str) -> None:
    """`metadataStoreUrl` with a scheme and `zookeeperServers` without one give hosts and chroot."""
    settings = ZooKeeperSettings(url=url)
    assert (settings.hosts, settings.chroot) == (hosts, chroot)


@pytest.mark.parametrize(
    "url", ["rocksdb:///data", "etcd:http://e:2379", "zk:", "zk:a:port", "zk:a:1,,b:2"]
)
def test_other_urls_are_refused(url: str) -> None:
    """Another store, or no address, is a `ConfigError` with the allowed form."""
    with pytest.raises(ConfigError, match=r"metadataStoreUrl.*zk:host:port"):
        ZooKeeperSettings(url=url)


class TestEmbedded:
    """The server as a child process."""

    async def test_port_in_use_is_said_clearly(self, own_server: JavaZooKeeper) -> None:
        """A second server on the same port is refused, naming the port and the option."""
        with pytest.raises(
            OperationalError, match=f"port {own_server.port}: .*ZooKeeper.*--zookeeper-port"
        ):
            JavaZooKeeper(port=own_server.port).start()

    async def test_data_survive_and_stopping_leaves_no_process(self, tmp_path: Path) -> None:
        """With a data directory the data survive a restart; at the end no process is left."""
        port = free_port()
        async with (
            JavaZooKeeper(port=port, data_dir=tmp_path) as server,
            ZooKeeperStore(settings_for(server)) as store,
        ):
            java = java_of(server)
            await store.create("/durable", b"1")
        await until(lambda: not java.is_running(), "the server is gone")
        async with (
            JavaZooKeeper(port=port, data_dir=tmp_path) as server,
            ZooKeeperStore(settings_for(server)) as store,
        ):
            assert await store.get("/durable") is not None

    async def test_server_ends_when_its_parent_is_killed(self, tmp_path: Path) -> None:
        """kill -9 of the process that started the server ends the server."""
        port = free_port()
        program = (
            "import pathlib, sys, time; from loadmanager.kit.zookeeper.java import "
            "JavaZooKeeper as E;"
            f"server = E(port={port}, data_dir=pathlib.Path({str(tmp_path)!r})); server.start(); "
            "server.wait_until_ready();"
            "print('up', flush=True); time.sleep(600)"
        )
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=subprocess.PIPE
        )
        assert parent.stdout is not None
        assert await parent.stdout.readline() == b"up\n"
        (java,) = (
            child
            for child in psutil.Process(parent.pid).children(recursive=True)
            if "java" in child.name()
        )
        parent.kill()
        await parent.wait()
        await until(lambda: gone(java), "the server is gone")

    async def test_dead_server_is_noticed(self, own_server: JavaZooKeeper) -> None:
        """A server that was killed is not reported as running."""
        assert own_server.running
        java_of(own_server).kill()
        await until(lambda: not own_server.running, "the death is noticed")

    async def test_server_that_ends_while_starting_says_why(self, tmp_path: Path) -> None:
        """A server that cannot start ends the wait at once, with the end of its log."""
        (tmp_path / "data").write_text("a file where the folder should be")
        server = JavaZooKeeper(port=free_port(), data_dir=tmp_path)
        with pytest.raises(OperationalError, match=r"(?s)ZooKeeper ended while it started: .*data"):
            await server.__aenter__()


async def test_heartbeats_do_not_wait_behind_thousands_of_reads(
    own_server: JavaZooKeeper,
) -> None:
    """kazoo sends in order: heartbeats behind all reads would be answered after all of them, and a
    client that asks for many topics could end the broker's lease.
    """
    async with ZooKeeperStore(
        settings_for(own_server, session_timeout_ms=16_000, operation_timeout_s=100)
    ) as store:
        java = java_of(own_server)
        java.suspend()
        try:
            reads = [asyncio.create_task(store.get("/missing")) for _ in range(10_000)]
            await asyncio.sleep(0)  # each read is asked for
            beats = store.lease.beats
            await until(lambda: store.lease.beats > beats, "a heartbeat that is sent after them")
        finally:
            java.resume()
        while store.lease.beats:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # each answer before that of the heartbeat has come
        assert sum(read.done() for read in reads) < 1_000
        await asyncio.gather(*reads)
