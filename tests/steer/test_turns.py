"""Daemons beside one cluster on several hosts: a lock in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from ports import free_ports
from steer.fake_pulsar import FakePulsar, a_pulsar
from steer.test_daemon import a_daemon, ask, over

from loadmanager import cli
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.leader import Leader, Term
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Check
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.leader.ports.wishes import WishBook
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.steer import settings_file as fleet
from loadmanager.steer.compose import ClusterDaemon
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.files.wishes_file import WishesFile
from loadmanager.steer.options import FleetOptions
from loadmanager.steer.ports.note import NOTE_BYTES_MAX
from loadmanager.steer.terms import StoreNote

pytestmark = pytest.mark.zookeeper
MakeSettings = Callable[..., ZooKeeperSettings]
SESSION_MS = 5_000


async def test_one_daemon_leads_and_the_other_takes_over(
    tmp_path: Path, zookeeper_settings: MakeSettings
) -> None:
    """The first one is killed: the second one leads with a later epoch, and knows the pause that an
    operator began at the first one.
    """
    port = free_ports(2)
    async with a_pulsar(2) as pulsar:
        configuration = (
            f"pulsar={pulsar.url()}\nmetadataStoreUrl={zookeeper_settings().url}\n"
            f"metadataStoreSessionTimeoutMillis={SESSION_MS}\n"
        )
        folders = [tmp_path / "a", tmp_path / "b"]
        for folder in folders:
            folder.mkdir()
        mine = f"{configuration}apiSocket={tmp_path / 'socket'}\n"
        async with a_daemon(folders[0], mine, port) as first:
            before = await ask(port, "/loadmanager/v1/cluster")
            async with over(tmp_path / "socket") as session:
                pause = "http://localhost/loadmanager/v1/moves/pause"
                async with session.put(pause, json={"seconds": 999, "note": "ours"}) as answer:
                    assert answer.status == 200
            async with a_daemon(folders[1], configuration, port + 1) as second:
                assert second.stderr is not None
                async for line in second.stderr:
                    if "waiting for the lock" in json.loads(line)["event"]:
                        break
                async with aiohttp.ClientSession() as session:
                    with pytest.raises(aiohttp.ClientConnectorError):
                        await session.get(f"http://127.0.0.1:{port + 1}/loadmanager/v1/fleet")
                first.kill()
                after = await ask(port + 1, "/loadmanager/v1/cluster")
                assert after["leader"]["epoch"] > before["leader"]["epoch"]
                moves = await ask(port + 1, "/loadmanager/v1/moves")
                assert moves["paused"]["note"] == "ours"
                second.send_signal(signal.SIGTERM)
                _, log = await second.communicate()
                assert second.returncode == 0
                assert b"Traceback" not in log


async def test_a_daemon_that_loses_its_session_stops_until_it_leads_again(
    tmp_path: Path, zookeeper_settings: MakeSettings
) -> None:
    """It stands still for longer than its session lasts: the other one leads meanwhile, and the
    first one does not when it goes on.
    """
    port = free_ports(2)
    async with a_pulsar(2) as pulsar:
        configuration = (
            f"pulsar={pulsar.url()}\nmetadataStoreUrl={zookeeper_settings().url}\n"
            f"metadataStoreSessionTimeoutMillis={SESSION_MS}\n"
        )
        for name in "ab":
            (tmp_path / name).mkdir()
        async with a_daemon(tmp_path / "a", configuration, port) as first:
            await ask(port, "/loadmanager/v1/cluster")
            async with a_daemon(tmp_path / "b", configuration, port + 1) as second:
                first.send_signal(signal.SIGSTOP)
                await ask(port + 1, "/loadmanager/v1/cluster")
                first.send_signal(signal.SIGCONT)
                assert first.stderr is not None
                async for line in first.stderr:
                    if "the lock is lost" in json.loads(line)["event"]:
                        break
                second.kill()
                told = await ask(port, "/loadmanager/v1/cluster")
                assert told["leader"]["epoch"] >= 3  # more if a slow minute ended a session


@contextlib.asynccontextmanager
async def leading(
    folder: Path,
    pulsar: FakePulsar,
    term: Term,
    wishes: WishBook,
    leads: bool = True,
    unwritten: bytes | None = None,
    **values: str,
) -> AsyncIterator[int]:
    """A daemon's work under a term, in this process; the port of its HTTP API."""
    options = FleetOptions(data_dir=folder, listen=("127.0.0.1", 0))
    cluster = ClusterDaemon(fleet.parse("default", {"pulsar": pulsar.url(), **values}), options, 0)
    cluster.folder.mkdir()
    cluster.unwritten.value = unwritten
    note = FileNote(cluster.folder / "acted.json")
    with contextlib.ExitStack() as stack:
        cluster.listen(stack)
        task = asyncio.create_task(cluster._lead(term, wishes, note, leads=lambda: leads))
        try:
            yield cluster.port
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_a_daemon_whose_lock_is_not_proven_orders_nothing(tmp_path: Path) -> None:
    """It watches and plans; not even its mark is sent, so that it knows of no others."""
    async with a_pulsar(2) as pulsar:
        pulsar.switch_off()
        pulsar.spread([14, 2])
        term = Term(Leader("me", pulsar.url(), 1))
        wishes = WishesFile(tmp_path / "wishes.json", SystemClock())
        fast = {"readIntervalSeconds": "1", "loadBalancerSheddingIntervalMinutes": "0.03"}
        async with leading(tmp_path, pulsar, term, wishes, leads=False, mode="act", **fast) as port:
            await ask(
                port,
                "/loadmanager/v1/decisions",
                until=lambda told: "not sent: another daemon may lead" in json.dumps(told),
            )
        assert {line.partition(" ")[0] for line in pulsar.log} == {"GET"}


async def test_a_term_knows_what_the_last_one_could_not_write(tmp_path: Path) -> None:
    """The process has it, until it is in the note."""
    until_ms = SystemClock().now_ms() + 600_000
    left = json.dumps({"until_ms": until_ms, "why": "it failed"}).encode()
    async with a_pulsar(2) as pulsar:
        pulsar.switch_off()
        term = Term(Leader("me", pulsar.url(), 1))
        wishes = WishesFile(tmp_path / "wishes.json", SystemClock())
        async with leading(tmp_path, pulsar, term, wishes, unwritten=left, mode="act") as port:
            told = await ask(port, "/loadmanager/v1/moves", until=lambda told: told["paused"])
            assert "it failed" in told["paused"]["note"]
        note = await FileNote(tmp_path / "default" / "acted.json").read()
        assert b"it failed" in (note or b"")


async def test_what_operators_wish_is_not_stored_by_a_daemon_whose_term_is_over(
    tmp_path: Path,
) -> None:
    """Another daemon has changed what the term began with: the pause is refused."""
    clock = SystemClock()
    async with a_pulsar(1) as pulsar, MemoryStore(MemoryTree(), 30, clock.monotonic_s) as store:
        wishes = OperatorWishes(store, clock, Corrupt())
        term = Term(Leader("me", pulsar.url(), 1), checks=(Check("/changed", 1),))
        path = str(tmp_path / "socket")
        async with (
            leading(tmp_path, pulsar, term, wishes, apiSocket=path) as port,
            over(Path(path)) as http,
        ):
            await ask(port, "/loadmanager/v1/cluster")
            pause = "http://localhost/loadmanager/v1/moves/pause"
            async with http.put(pause, json={"seconds": 9}) as answer:
                assert answer.status == 503
                assert "term as leader is over" in await answer.text()
        assert await store.get(paths.PAUSE) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("metadataStoreSessionTimeoutMillis=3000", "without metadataStoreUrl it does nothing"),
        ("metadataStoreUrl=zk:h:1\nrestorePulsarOnStop=true", "another daemon takes over instead"),
        ("metadataStoreUrl=etcd://h:1", "metadataStoreUrl"),
    ],
)
def test_settings_of_the_lock_that_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, said: str
) -> None:
    """With status 2."""
    path = tmp_path / "fleet.conf"
    path.write_text(f"pulsar=http://127.0.0.1:1\n{lines}\n")
    assert cli.main(["fleet", "--config", str(path)]) == 2
    assert said in capsys.readouterr().err


async def test_what_the_next_daemon_knows_is_in_the_store() -> None:
    """Each daemon that leads reads and replaces it; one whose term is over does not."""
    clock = SystemClock()
    async with MemoryStore(MemoryTree(), 30, clock.monotonic_s) as store:
        await store.create("/term", b"")
        term = Term(Leader("me", "http://x", 1), checks=(Check("/term", 0),))
        note = StoreNote(store, term)
        assert await note.read() is None
        await note.write(b"1")
        await note.write(b"2")
        with pytest.raises(OperationalError, match=f"{NOTE_BYTES_MAX + 1} bytes"):
            await note.write(b"x" * (NOTE_BYTES_MAX + 1))
        assert await note.read() == b"2"
        await store.put("/term", b"another")
        with pytest.raises(OperationalError, match="term is over"):
            await note.write(b"3")
        assert await StoreNote(store, Term(Leader("you", "http://y", 2))).read() == b"2"
