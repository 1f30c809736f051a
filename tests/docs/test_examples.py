"""The programs in examples/ do what the how-to guides say."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener, urlopen

import pytest
from ports import free_port

from loadmanager.kit.zookeeper.java import JavaZooKeeper

ROOT = Path(__file__).parents[2]
COUNTERS = ROOT / "examples" / "counters.py"
TRAFFIC = ROOT / "examples" / "traffic.py"
PATIENCE_S = 120

pytestmark = [pytest.mark.zookeeper, pytest.mark.system, pytest.mark.timeout(400)]


@contextmanager
def _running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _member(url: str, pulsar: int, web: int) -> list[str]:
    values = {
        "metadataStoreUrl": url,
        "metadataStoreSessionTimeoutMillis": "8000",
        "advertisedAddress": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "brokerServicePort": str(pulsar),
        "webServicePort": str(web),
        "loadManagerHistoryEnabled": "false",
    }
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def _run(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True
    ).stdout


def _admin(web: int, *arguments: str) -> str:
    return _run("-m", "loadmanager", "admin", "--url", f"http://127.0.0.1:{web}", *arguments)


def _until(happened: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def _ready(web: int, members: int) -> Callable[[], bool]:
    def ready() -> bool:
        url = f"http://127.0.0.1:{web}/admin/v2/brokers"
        try:
            with urlopen(f"{url}/ready"), urlopen(url) as answer:
                return len(json.load(answer)) == members
        except OSError:
            return False

    return ready


def test_counters_move_and_survive(zookeeper_server: JavaZooKeeper, tmp_path: Path) -> None:
    """A service of one's own: a counter goes on at the next owner after an unload, and after its
    owner was killed.
    """
    url = f"{zookeeper_server.url}/counters-{os.getpid()}"
    ports = [(free_port(), free_port()) for _ in range(2)]
    webs = {f"127.0.0.1:{web}": web for _, web in ports}
    serve = [str(COUNTERS), "serve", "--folder", str(tmp_path)]

    def add() -> tuple[str, str]:
        """The number after adding 1, and who counted."""
        web = next(iter(alive.values()))
        words = _run(
            *(str(COUNTERS), "add", "apples", "--url", f"http://127.0.0.1:{web}"),
            *("--patience", str(PATIENCE_S)),
        ).split()
        return words[2], words[4].rstrip(")")

    with (
        _running(*serve, *_member(url, *ports[0])) as first,
        _running(*serve, *_member(url, *ports[1])) as second,
    ):
        processes = dict(zip(webs, (first, second), strict=True))
        alive = dict(webs)
        _until(_ready(ports[0][1], members=2))
        _admin(ports[0][1], "namespaces", "create", "public/default", "--create-tenant")

        count, owner = add()
        assert count == "1"
        assert add() == ("2", owner)

        other = next(broker for broker in webs if broker != owner)
        topic = "persistent://public/default/apples"
        bundle = _admin(webs[owner], "topics", "lookup", topic).split()[-3]
        _admin(webs[owner], "bundles", "unload", f"public/default/{bundle}", "--to", other)
        assert add() == ("3", other)

        processes[other].send_signal(signal.SIGKILL)
        del alive[other]
        assert add() == ("4", owner)


def _commands(page: str, program: str) -> list[list[str]]:
    """The commands of a page that begin with a program of `examples/`, as a shell takes them."""
    text = (ROOT / "docs" / "howto" / page).read_text().replace("\\\n", " ")
    lines = [line.removeprefix("$ ") for line in text.splitlines()]
    start = f".venv/bin/python examples/{program} "
    return [shlex.split(line.removeprefix(start)) for line in lines if line.startswith(start)]


def test_counters_have_a_history_of_their_own(
    zookeeper_server: JavaZooKeeper, tmp_path: Path
) -> None:
    """The page's own command, in a folder where brokers record, writes nothing among theirs."""
    command = next(
        words for words in _commands("own-service.md", "counters.py") if "serve" in words
    )
    pulsar, web = free_port(), free_port()
    here = {
        "metadataStoreUrl": f"{zookeeper_server.url}/own-history-{os.getpid()}",
        "brokerServicePort": str(pulsar),
        "webServicePort": str(web),
    }
    words = [
        f"{name}={here.get(name, value)}" if value else word
        for word in command
        for name, _, value in [word.partition("=")]
    ]
    process = subprocess.Popen([sys.executable, str(COUNTERS), *words], cwd=tmp_path)
    try:
        _until(_ready(web, members=1))
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    records = [path.relative_to(tmp_path).parts for path in tmp_path.rglob("*.jsonl*")]
    assert records
    own = ("data", "counters", "history", "cluster=counters")
    assert {parts[:4] for parts in records} == {own}


def test_traffic_flows(zookeeper_server: JavaZooKeeper) -> None:
    """The tutorial's client publishes, and reads everything back."""
    url, pulsar, web = (
        f"{zookeeper_server.url}/traffic-{os.getpid()}",
        free_port(),
        free_port(),
    )
    with _running("-m", "loadmanager", "broker", *_member(url, pulsar, web)):
        _until(_ready(web, members=1))
        _admin(web, "namespaces", "create", "public/default", "--create-tenant")
        said = _run(
            str(TRAFFIC),
            *("--url", f"pulsar://127.0.0.1:{pulsar}", "--topics", "2", "--rate", "50"),
            *("--seconds", "9"),
        )
    # The client may log errors among the lines.
    figures = [line.split() for line in said.splitlines() if line.startswith("published")]
    assert sum(int(words[1]) for words in figures) > 0
    assert sum(int(words[3]) for words in figures) > 0
    assert sum(int(words[5]) for words in figures) == 0
    assert len(figures) >= 4
    for words in figures[1:]:
        assert words[-1] in ("(traffic-0)", "(traffic-1)")
        assert float(words[-3]) > 0


def test_rooms_move_and_survive(zookeeper_server: JavaZooKeeper, tmp_path: Path) -> None:
    """The README's service in three processes: whoever is asked, a room has one owner. What it has
    in memory is saved when its owner stops, and others serve its rooms when it is killed.
    """
    text = (ROOT / "examples/rooms.py").read_text()
    assert f"```python\n{text}```" in (ROOT / "README.md").read_text()
    url = zookeeper_server.url.removeprefix("zk:")
    assert "zk://127.0.0.1:2181/rooms" in text
    script = tmp_path / "rooms.py"
    # Whatever runs in the background of a shell ignores SIGINT, and so do its children.
    heeds = "import signal\n\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script.write_text(heeds + text.replace("127.0.0.1:2181/rooms", f"{url}/rooms-{os.getpid()}"))
    ports = [free_port() for _ in range(3)]
    members = [
        subprocess.Popen([sys.executable, str(script), str(port)], cwd=tmp_path) for port in ports
    ]

    def say(room: str, message: str, of: list[int]) -> list[str]:
        """Send a message to one of the processes, again while nobody answers for the room."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            port = of[len(message) % len(of)]
            sent = Request(f"http://127.0.0.1:{port}/{room}", message.encode(), method="POST")
            try:
                with _FOLLOWING.open(sent, timeout=60) as answer:
                    messages: list[str] = json.load(answer)
                    return messages
            except OSError:
                assert time.monotonic() < deadline_s
                time.sleep(0.2)

    try:
        rooms = [f"room-{number}" for number in range(12)]
        for room in rooms:
            assert say(room, "a", ports) == ["a"]
            assert say(room, "bb", ports) == ["a", "bb"]
        members[0].send_signal(signal.SIGINT)
        members[0].wait(PATIENCE_S)
        for room in rooms:
            assert say(room, "ccc", ports[1:]) == ["a", "bb", "ccc"]
        members[1].kill()
        for room in rooms:
            assert say(room, "dddd", ports[2:])[-1] == "dddd"
    finally:
        for member in members:
            member.kill()
            member.wait()


class _Following(HTTPRedirectHandler):
    """Follows a redirect with the same body, as curl -L does for 307."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request:
        return Request(newurl, req.data, method="POST")


_FOLLOWING = build_opener(_Following)
