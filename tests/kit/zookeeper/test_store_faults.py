"""The embedded store when its process is killed, or its disk refuses."""

from __future__ import annotations

import asyncio
import random
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.zookeeper.store_process import StoreProcess
from kit.zookeeper.wire import HungUpError, WireClient, acl_of, multi_of
from ports import free_port

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.zookeeper.embedded.codes import Opcode
from loadmanager.kit.zookeeper.embedded.jute import boolean, buffer, integer, text
from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore

OPEN = acl_of([(31, "world", "anyone")])
WRITERS = 6
KILLS = 4


def creation(path: str, data: bytes = b"", flags: int = 0) -> bytes:
    """The body of a request that creates a node."""
    return text(path) + buffer(data) + OPEN + integer(flags)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StoreProcess]:
    """A server in a process of its own."""
    process = StoreProcess(free_port(), tmp_path / "store")
    process.start()
    try:
        yield process
    finally:
        process.stop()


class Writer(threading.Thread):
    """Creates pairs of nodes in transactions, and single ones, until the server is gone; `acked`
    has the numbers that were answered.
    """

    def __init__(self, port: int, name: str, acked: dict[int, int]) -> None:
        super().__init__(name=name)
        self.acked = acked
        self._client = WireClient(port)
        assert self._client.connect()

    def run(self) -> None:
        """Write."""
        number = max(self.acked, default=-1) + 1000  # after what may have been written unheard
        try:
            while True:
                number += 1
                operations = [
                    (Opcode.CREATE, creation(f"/{self.name}-{number}-{side}", str(number).encode()))
                    for side in "ab"
                ]
                answer = self._client.ask(Opcode.MULTI, multi_of(operations))
                assert [code for _, code, _ in answer.body] == [0, 0]
                self.acked[number] = answer.zxid
        except (HungUpError, OSError):
            self._client.drop()


def test_what_was_answered_survives_a_kill(server: StoreProcess) -> None:
    """Every acknowledged transaction is there after a kill -9 amid writes, none by half, and the
    numbers of later ones are greater.
    """
    rng = random.Random(1)
    acked: dict[str, dict[int, int]] = {f"w{index}": {} for index in range(WRITERS)}
    for _ in range(KILLS):
        writers = [Writer(server.port, name, known) for name, known in acked.items()]
        for writer in writers:
            writer.start()
        before = sum(map(len, acked.values()))
        while sum(map(len, acked.values())) < before + 20:
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.4))  # the moment of the kill is anyone
        server.kill()
        for writer in writers:
            writer.join()
        server.start()
        client = WireClient(server.port)
        assert client.connect()
        names = set(client.ask(Opcode.GET_CHILDREN, text("/") + boolean(False)).body)
        for name, numbers in acked.items():
            for number in numbers:
                assert {f"{name}-{number}-a", f"{name}-{number}-b"} <= names
        halves = {name[:-2] for name in names if name.endswith("-a")} ^ {
            name[:-2] for name in names if name.endswith("-b")
        }
        assert not halves
        last = max(zxid for numbers in acked.values() for zxid in numbers.values())
        probe = client.ask(Opcode.CREATE, creation("/probe"))
        assert probe.zxid > last
        client.ask(Opcode.DELETE, text("/probe") + integer(-1))
        client.drop()
    assert sum(map(len, acked.values())) > 10 * KILLS, "there were writes to lose"


def test_sessions_survive_a_kill_or_end_in_time(server: StoreProcess) -> None:
    """Who comes back keeps its session and its nodes; the nodes of who does not are gone after its
    timeout.
    """
    faithful, lost = WireClient(server.port), WireClient(server.port, timeout_ms=5000)
    for client, path in ((faithful, "/faithful"), (lost, "/lost")):
        assert client.connect()
        assert client.ask(Opcode.CREATE, creation(path, flags=1)).code == 0
    server.kill()
    for client in (faithful, lost):
        client.drop()
    server.start()
    before = faithful.session_id
    assert faithful.connect()
    assert faithful.session_id == before
    watched = faithful.ask(Opcode.EXISTS, text("/lost") + boolean(True))
    assert watched.code == 0, "its timeout begins anew with the server"
    until_s = time.monotonic() + 60
    while not faithful.events:
        faithful.catch_up()
        assert time.monotonic() < until_s
        time.sleep(0.05)
    assert faithful.events[0][:2] == (2, "/lost")
    stat = faithful.ask(Opcode.EXISTS, text("/faithful") + boolean(False)).body
    assert stat["owner"] == before
    assert not lost.connect()
    lost.drop()
    faithful.drop()


def test_the_time_in_which_it_stood_still_counts_against_nobody(server: StoreProcess) -> None:
    """Nobody could be heard then, so nobody's session ends, however short its timeout is."""
    client = WireClient(server.port, timeout_ms=4000)
    assert client.connect()
    assert client.ask(Opcode.CREATE, creation("/mine", flags=1)).code == 0
    server.process.suspend()
    time.sleep(5.0)
    server.process.resume()
    time.sleep(0.4)
    stat = client.ask(Opcode.EXISTS, text("/mine") + boolean(False)).body
    assert stat["owner"] == client.session_id
    client.drop()


def test_a_second_server_is_refused_the_file(server: StoreProcess, tmp_path: Path) -> None:
    """Two would overwrite each other's changes."""

    async def open_again() -> None:
        async with EmbeddedStore(data_dir=tmp_path / "store"):
            pass

    with pytest.raises(OperationalError, match=r"tree\.sqlite cannot be opened: .*locked"):
        asyncio.run(open_again())
    assert server.word(b"ruok") == b"imok"


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    """With what to choose."""
    async with EmbeddedStore(data_dir=tmp_path / "one") as store:
        with pytest.raises(OperationalError, match="Choose another port"):
            async with EmbeddedStore(port=store.port, data_dir=tmp_path / "two"):
                pass


async def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    """And left as it is."""
    file = tmp_path / "tree.sqlite"
    file.write_bytes(b"no database, whatever its name says" * 100)
    with pytest.raises(OperationalError, match=r"tree\.sqlite cannot be opened: "):
        async with EmbeddedStore(data_dir=tmp_path):
            pass
    assert file.read_bytes().startswith(b"no database")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Writes beyond it fail, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_ends_it_before_anything_is_answered_that_is_not_stored(
    tmp_path: Path,
) -> None:
    """It says why, and started again it has what was answered."""
    async with EmbeddedStore(data_dir=tmp_path / "store") as store:

        def fill() -> int:
            client = WireClient(store.port)
            assert client.connect()
            number = 0
            try:
                while number < 100:
                    body = creation(f"/{number:03}", bytes(500_000))
                    assert client.ask(Opcode.CREATE, body).code == 0
                    number += 1
            except HungUpError:
                pass
            client.drop()
            return number

        with files_no_larger_than(4_000_000):
            stored = await asyncio.to_thread(fill)
            assert await store.ended() == 1
        assert 0 < stored < 10
        assert str(tmp_path / "store" / "tree.sqlite") in store.how_it_ended()
        await store.start_again()

        def names() -> list[str]:
            client = WireClient(store.port)
            assert client.connect()
            listed = client.ask(Opcode.GET_CHILDREN, text("/") + boolean(False)).body
            client.drop()
            return [name for name in listed if name != "zookeeper"]

        assert await asyncio.to_thread(names) == [f"{number:03}" for number in range(stored)]
