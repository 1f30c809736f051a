"""The canary: what a move costs a client is measured where nobody tells it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from clusters.running import NS, Cluster, a_cluster
from steer.fake_pulsar import FakePulsar, a_pulsar, refused
from steer.watched import ACT, Watching, beside

from loadmanager.cli import canary_producer
from loadmanager.cli.canary_producer import producing
from loadmanager.engine.moves.move import MoveState
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.steer import settings_file as conf
from loadmanager.steer.canary import TOPIC, Canary
from loadmanager.steer.ports.producing import Way
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.settings import PulsarSettings
from loadmanager.steer.pulsar.way import AdminWay

SETTINGS = {**ACT, "canaryNamespace": "acme/shop", "loadBalancerSheddingEnabled": "false"}
OWN = f"persistent://{NS}/{TOPIC}"
PATIENCE_S = 60.0


# The producer, on our own brokers


@dataclass
class Ports:
    """The way to brokers in this process (implements `Way`)."""

    at: dict[str, int]
    """Service URL → port."""
    owner: str
    token: str = ""
    open: list[asyncio.StreamWriter] = field(default_factory=list)
    lookups: int = 0

    async def find(self, _topic: str) -> str:
        """See the port."""
        self.lookups += 1
        return self.owner

    def choose(self, plain: str, _tls: str) -> str:
        """See the port."""
        return plain

    async def connect(self, url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See the port."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.at[url])
        self.open.append(writer)
        return reader, writer

    def credentials(self) -> tuple[str, bytes]:
        """See the port."""
        return ("token", self.token.encode()) if self.token else ("", b"")


async def ways(cluster: Cluster) -> Ports:
    """The way to all brokers; the first one is asked for owners that are not known."""
    at = {broker.address.service_url: await broker.listen() for broker in cluster.brokers}
    return Ports(at, cluster.brokers[0].address.service_url)


async def test_a_producer_tells_how_long_it_was_paused() -> None:
    """When its bundle is moved, there and back, and when its connection ends; it is asked for
    nothing else than stock clients are.
    """
    async with a_cluster(brokers=2) as cluster, asyncio.timeout(PATIENCE_S):
        way = await ways(cluster)
        first, second = cluster.brokers
        bundle = (await first.use.namespaces.bundles(NS)).bundle_of_topic(OWN)
        await first.use.orders.acquire(bundle)
        async with aclosing(producing(OWN, way)) as steps:
            assert await anext(steps) == 0
            for source, destination in ((first, second), (second, first)):
                assert source.use.orders.served(bundle) == {bundle: 1}
                released = await source.use.orders.release(bundle, destination.address, epoch=None)
                assert released
                assert await anext(steps) is None
                pause_s = await anext(steps)
                assert pause_s is not None
                assert 0 < pause_s < PATIENCE_S
                assert destination.use.orders.served(bundle) == {bundle: 1}
            assert way.lookups == 1  # the others went over the binary protocol
            way.open[-1].transport.abort()
            assert await anext(steps) is None
            pause_s = await anext(steps)
            assert pause_s is not None
            assert pause_s >= canary_producer.AGAIN_S
            assert way.lookups == 2
        assert all(writer.is_closing() for writer in way.open)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65536)
    writer.close()


async def _answer_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65536)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


@pytest.mark.parametrize(
    ("serve", "text"),
    [(_hang_up, "the connection ended"), (_answer_nonsense, "is larger than")],
)
async def test_a_broker_that_does_not_speak_the_protocol(serve: Serve, text: str) -> None:
    """Is given up in time, and what was wrong is said."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = "pulsar://b0:6650"
        way = Ports({url: server.sockets[0].getsockname()[1]}, url)
        steps = producing(OWN, way, attached_s=1)
        with pytest.raises(OperationalError, match=f"no receipt within 1 s: .* {text}"):
            await anext(steps)


# The way to a Pulsar


async def test_the_way_goes_to_brokers_of_the_cluster_only(tmp_path: Path) -> None:
    """With the credentials of the admin API, and never without TLS where that has it."""
    (tmp_path / "user").write_text("me:secret")
    settings = PulsarSettings(
        urls=("https://one:8443",), basic_file=str(tmp_path / "user"), timeout_s=5
    )
    way = AdminWay(PulsarClient(settings))
    assert way.credentials() == ("basic", b"me:secret")
    assert way.choose("pulsar://one:6650", "pulsar+ssl://one:6651") == "pulsar+ssl://one:6651"
    with pytest.raises(OperationalError, match="no service URL with TLS"):
        way.choose("pulsar://one:6650", "")
    with pytest.raises(OperationalError, match="is no broker of the cluster"):
        await way.connect("pulsar+ssl://elsewhere:6651")
    with pytest.raises(OperationalError, match="is no service URL"):
        way.choose("", "http://one:80")
    async with a_pulsar(1) as pulsar:
        pulsar.spread([16])
        settings = PulsarSettings(urls=(pulsar.url(),), requests_per_s=1000)
        async with PulsarClient(settings) as client:
            way = AdminWay(client)
            assert way.credentials() == ("", b"")
            topic = "persistent://acme/shop/t-40000000"
            await way.make_topic(topic)
            assert await way.find(topic) == "pulsar://127.0.0.1:6650"
            pulsar.nonsense["t-40000000"] = refused
            with pytest.raises(OperationalError, match=r"cannot be made: .* 401: HTTP 401"):
                await way.make_topic(topic)


# The daemon's part


@dataclass
class Follower:
    """A producer that is paused whenever the fake cluster unloads a bundle."""

    pause_s: float = 0.25
    problem: str = ""
    unloads: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    topics: list[str] = field(default_factory=list)

    async def __call__(self, topic: str, _way: Way) -> AsyncGenerator[float | None]:
        """See the port."""
        self.topics.append(topic)
        if self.problem:
            raise OperationalError(self.problem)
        yield 0.0
        while True:
            await self.unloads.get()
            yield None
            yield self.pause_s

    async def on_unload(self, _destination: str, done: bool) -> None:
        """A broker unloads a bundle."""
        if done:
            self.unloads.put_nowait(None)


@dataclass
class Measuring:
    """A daemon with a canary."""

    pulsar: FakePulsar
    daemon: Watching
    follower: Follower
    notices: list[tuple[str, str]]

    @property
    def canary(self) -> Canary:
        """The canary."""
        assert self.daemon.work.canary is not None
        return self.daemon.work.canary

    async def later(self, seconds: float) -> None:
        """Time passes, and the cluster is read and looked at again."""
        self.daemon.clock.pass_s(seconds)
        await self.daemon.work.read()
        await self.canary.step()


@asynccontextmanager
async def measuring(
    folder: Path, pulsar: FakePulsar | None = None, later_s: float = 0, **settings: str
) -> AsyncIterator[Measuring]:
    """A daemon that has read its cluster once."""
    if pulsar is None:
        async with a_pulsar(3) as new:
            new.spread([6, 5, 5])
            new.switch_off()
            async with measuring(folder, new, **settings) as measured:
                yield measured
        return
    follower, notices = Follower(), list[tuple[str, str]]()
    pulsar.on_unload = follower.on_unload
    given = {**SETTINGS, **settings}
    async with beside(pulsar, folder, given, producing=follower, notices=notices) as daemon:
        daemon.clock.pass_s(later_s)
        await daemon.work.read()
        yield Measuring(pulsar, daemon, follower, notices)


@pytest.mark.parametrize("mode", ["approve", "act"])
async def test_it_measures_once_an_interval(tmp_path: Path, mode: str) -> None:
    """By a move as any other: noted, in the budget, and with its pause; goals count with it, and
    the next daemon knows of it.
    """
    async with measuring(tmp_path, mode=mode) as it:
        goals = it.daemon.work.operations.goals
        assert goals.planning.moves.pauses.expected().source == "assumed"
        await it.canary.step()
        assert it.follower.topics == [f"persistent://acme/shop/{TOPIC}"]
        (move,) = it.daemon.work.moves.queue.ended
        assert (move.state, move.reason) == (MoveState.DONE, "Canary")
        assert move.outcome is not None
        assert move.outcome.pause_ms == 250
        assert [at[0] for at in it.pulsar.moved] == [move.bundle]
        assert len(it.daemon.work.hold.budget.moves()) == 1
        pause = goals.planning.moves.pauses.expected()
        assert (pause.seconds, pause.source, pause.at_ms) == (0.25, "canary", 1_795_000_000_000)
        assert [sample.value for sample in it.canary.samples()] == [0.25, 1, 0]
        assert it.canary.shown().pause_seconds == 0.25
        await it.later(3000)
        assert len(it.pulsar.moved) == 1
        it.follower.pause_s = 0.75
        await it.later(601)
        assert len(it.pulsar.moved) == 2
        assert goals.planning.moves.pauses.expected().seconds == 0.5
        await it.daemon.work.note.write()
        assert not it.notices
        noted = json.loads((tmp_path / "acted.json").read_text())
        assert [seconds for _, seconds in noted["canary"]] == [0.25, 0.75]
        pulsar = it.pulsar
        async with measuring(tmp_path, pulsar, later_s=3700, mode=mode) as again:
            await again.canary.step()
            assert (
                again.daemon.work.operations.goals.planning.moves.pauses.expected().seconds == 0.5
            )
            assert len(pulsar.moved) == 2


@pytest.mark.parametrize("why", ["hold", "pause", "quiet", "budget"])
async def test_it_moves_nothing_while_nothing_may_be_moved(tmp_path: Path, why: str) -> None:
    """And opens no producer."""
    quiet = {"quiet": {"quietHours": "00:00-00:00"}, "budget": {"movesPerHourMax": "0"}}
    async with measuring(tmp_path, **quiet.get(why, {})) as it:
        if why == "hold":
            it.pulsar.settings["loadBalancerSheddingEnabled"] = "true"
        if why == "pause":
            await it.daemon.work.operations.pause(3600)
        await it.later(120)
        assert not it.pulsar.moved
        assert not it.follower.topics
        assert it.canary.shown().problem


def _no_namespace(_request: web.Request) -> web.Response:
    return web.json_response({"reason": "Namespace does not exist"}, status=404)


async def test_what_prevents_it_is_said_once(tmp_path: Path) -> None:
    """A namespace that is not there, a topic that may not be made, a producer that finds no
    broker; then it measures.
    """
    async with measuring(tmp_path, canaryNamespace="acme/none") as it:
        it.pulsar.nonsense["/acme/none/bundles"] = _no_namespace
        for _ in range(3):
            await it.later(301)
        ((kind, text),) = it.notices
        assert (kind, it.canary.failed) == ("canary", 3)
        assert "pulsar-admin namespaces create acme/none" in text
    async with measuring(tmp_path / "other") as it:
        it.pulsar.nonsense[TOPIC] = refused
        await it.canary.step()
        assert "cannot be made" in str(it.canary.problem)
        it.pulsar.nonsense.clear()
        it.follower.problem = "no receipt"
        await it.later(10)
        assert not it.follower.topics
        await it.later(300)
        assert it.canary.problem == "no receipt"
        it.follower.problem = ""
        await it.later(301)
        assert len(it.pulsar.moved) == 1
        assert [text for _, text in it.notices][1:] == ["the canary measures again"]


async def test_a_move_that_fails_is_not_a_measurement(tmp_path: Path) -> None:
    """Its bundle came back each time: that is what the moves of others would do now, too."""
    async with measuring(tmp_path) as it:
        it.pulsar.back = 100
        await it.canary.step()
        assert not it.canary.pauses
        assert "without a measured pause" in str(it.canary.problem)


def test_namespaces_that_cannot_be_a_canarys() -> None:
    """Are refused with the key's name."""
    for name in ("acme", "pulsar/system"):
        with pytest.raises(ConfigError, match="canaryNamespace"):
            conf.parse("x", {"pulsar": "http://one:8080", "canaryNamespace": name})
