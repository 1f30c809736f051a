"""Complete brokers in this process, over a store in memory; other brokers only report, and obey
orders.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from clusters.members import FixedSampler

from loadmanager.broker import settings
from loadmanager.broker.compose import Parts
from loadmanager.broker.ports.log import Storage
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.service import BrokerService, Outside
from loadmanager.broker.settings.live import LiveSettings
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, FrameReader, encode
from loadmanager.engine.history.archived import ARCHIVED
from loadmanager.engine.history.records import Record
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.sampler import OwnTraffic
from loadmanager.kit.security.identity import Verifier
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.tasks import Scope
from loadmanager.leader.ports.mover import ClientsBack, Released
from loadmanager.leader.ports.operating import LeaderOperations
from loadmanager.leader.ports.peers import Peers
from loadmanager.leader.present_leader import LoadManagement
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.testing.cluster import LoopTime
from loadmanager.testing.virtual_time import VirtualLoop

NS = NamespaceName("public", "default")
PATIENCE_S = 60.0
FAST = {
    "loadBalancerReportUpdateMinIntervalMillis": "50",
    "statsUpdateFrequencyInSecs": "3600",
    "brokerServicePort": "0",
    "webServicePort": "0",
}
"""Reports soon; traffic is measured when a test says so."""


class AheadClock(LoopTime):
    """The loop's time; that of rate limits is ahead of it by as much as a test says."""

    def __init__(self) -> None:
        self.limits_ahead_s = 0.0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + int(self.limits_ahead_s * 1e9)


class WallClock(AheadClock):
    """The same, with the wall clock's time of day."""

    def now_ms(self) -> int:
        return SystemClock().now_ms()


class Written:
    """A history in memory, and an archive on a disk if there is one."""

    def __init__(self, archive: Archive | None) -> None:
        self.records: list[Record] = []
        self._archive = archive

    def append(self, *records: Record) -> None:
        self.records += records
        if self._archive is not None:
            self._archive.append(*records)

    def count(self, kind: str) -> int:
        return sum(record.kind == kind for record in self.records)


class Running:
    """One broker."""

    def __init__(
        self,
        cluster: Cluster,
        address: BrokerAddress,
        values: Mapping[str, str],
        cpu_percent: float = 10,
        peers: Peers | None = None,
        verifier: Verifier | None = None,
        *,
        service: Callable[..., BrokerService] = BrokerServer,
        storage: Storage | None = None,
    ) -> None:
        self.address = address
        session_s = float(values.get("metadataStoreSessionTimeoutMillis", 60_000)) / 1000
        self.store: MemoryStore = cluster.tree.session(timeout_s=session_s)
        self.sampler = FixedSampler(cpu_percent)
        with_archive = "loadManagerHistoryDirectory" in values
        self.clock = WallClock() if with_archive else AheadClock()
        none = {} if with_archive else {"loadManagerArchiveMaxBytes": "0"}
        loaded = settings.KEYS.load(None, {**FAST, **none, **values})
        self.settings = LiveSettings(loaded)
        self.archive: Archive | None = None
        """There is one if `values` name a folder of the history."""
        if with_archive:
            self.archive = Archive(
                loaded.leaf(HistorySettings),
                ARCHIVED,
                cluster="standalone",
                broker=address.broker_id,
                clock=self.clock,
            )
            self.archive.start()
        self.history = Written(self.archive)
        self.stopped_with: list[int] = []
        self._port = 0
        self._sampler_made_with: OwnTraffic | None = None
        outside = Outside(
            me=self.address,
            store=self.store,
            clock=self.clock,
            peers=peers or cluster,
            sampler=self._make_sampler,
            version="1.0.0",
            stop=self.stopped_with.append,
            history=self.history,
            archive=self.archive,
            verifier=verifier,
            service=service,
            storage=storage,
        )
        self.parts = Parts(self.settings, outside, cluster.scope)
        self.use = self.parts.use_cases

    @property
    def throttling(self) -> BrokerThrottling:
        """The broker's limits."""
        return self.parts._throttling

    @property
    def load_manager(self) -> LoadManagement:
        """The leader's load manager, on the broker that leads."""
        load_manager = self.parts.member.cluster.leading.load_manager
        assert load_manager is not None
        return load_manager

    @property
    def operations(self) -> LeaderOperations:
        """The operators' API of the leader."""
        operations = self.parts.member.cluster.leading.operations
        assert operations is not None
        return operations

    def _make_sampler(self, own: OwnTraffic) -> FixedSampler:
        self._sampler_made_with = own
        return self.sampler

    async def set(self, name: str, value: str | None) -> None:
        """Change a dynamic key as the admin API does, and wait until it is in force here."""
        await self.parts.limits.set_dynamic(name, value)
        if value is not None:
            await until(lambda: self.use.settings()[name] == value)

    async def listen(self) -> int:
        """Take client connections; the port."""
        if not self._port:
            sock = socket.create_server(("127.0.0.1", 0))
            self._port = int(sock.getsockname()[1])
            await self.parts.hosting.listen(sock)
        return self._port

    async def serve(self, topic: TopicName) -> None:
        """Own the bundle of a topic, and open the topic."""
        bundles = await self.use.namespaces.bundles(topic.namespace)
        await self.use.orders.acquire(bundles.bundle_of_topic(str(topic)))
        await self.parts.hosting.serving.topics.host(topic)

    async def measure(self) -> None:
        """End a period over which traffic is averaged."""
        await self.parts.hosting.serving.topics.measure()


class Cluster:
    """Complete brokers, and others that only report.

    Asks all of them directly (implements `Peers`).
    """

    def __init__(self, scope: Scope) -> None:
        self.tree = MemoryTree()
        self.scope = scope
        self.brokers: list[Running] = []
        self.released: list[str] = []
        """Bundles that brokers which only report were asked to unload."""
        self.split: list[tuple[str, bool]] = []
        """Bundles that they were asked to split, and whether to unload the children."""
        self.slow: asyncio.Event | None = None
        """Brokers that only report answer an order to unload when this is set."""
        self.signs: dict[str, str] = {}
        """brokerId → what keeps a broker from saying what it serves."""
        self.say: asyncio.Event | None = None
        """They say so, or what they serve, when this is set."""
        self.clients: list[Client] = []
        """Connections to close at the end."""
        self._reporting = self.tree.session(timeout_s=3600)

    def at(self, address: BrokerAddress) -> Running | None:
        """The complete broker of an address; None for one that only reports."""
        return next((broker for broker in self.brokers if broker.address == address), None)

    async def release_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        broker = self.at(owner)
        if broker is None:
            self.released.append(bundle)
            if self.slow is not None:
                await self.slow.wait()
            return Released()
        return await broker.use.orders.release(bundle, destination, epoch=epoch)

    async def served_bundles(
        self, broker: BrokerAddress, bundle: str | None = None
    ) -> Mapping[str, int]:
        if self.say is not None:
            await self.say.wait()
        if sign := self.signs.get(broker.broker_id):
            raise OperationalError(f"{broker.broker_id} {sign}")
        running = self.at(broker)
        return {} if running is None else running.use.orders.served(bundle)

    async def clients_back(
        self, broker: BrokerAddress, bundle: str, closed: int
    ) -> ClientsBack | None:
        running = self.at(broker)
        return None if running is None else running.use.orders.clients_back(bundle, closed)

    async def last_release(self, broker: BrokerAddress, bundle: str) -> Released | None:
        running = self.at(broker)
        return None if running is None else running.use.orders.released(bundle)

    async def split_bundle(
        self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None
    ) -> list[str]:
        self.split.append((bundle, unload))
        return []

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        running = self.at(broker)
        if running is None:
            raise OperationalError(f"{broker.broker_id} only reports")
        await running.use.orders.acquire(bundle, epoch=epoch)

    async def merge_bundles(
        self, owner: BrokerAddress, left: str, right: str, *, epoch: int | None
    ) -> str:
        running = self.at(owner)
        if running is None:
            raise OperationalError(f"{owner.broker_id} only reports")
        return await running.use.orders.merge(left, right, epoch=epoch)

    async def tell_changes(self, leader: BrokerAddress, changes: Sequence[ChangeShown]) -> None:
        running = self.at(leader)
        if running is not None:
            running.use.tell_listeners(changes)

    async def close_topic(self, owner: BrokerAddress, topic: str, *, force: bool) -> bool:
        running = self.at(owner)
        return running is not None and running.parts.hosting.close_topic(topic, force=force)

    async def report(
        self,
        name: str,
        bundles: Mapping[str, NamespaceBundleStats] | None = None,
        *,
        age_s: float = 0,
        **fields: Any,
    ) -> None:
        """A broker that is not here reports."""
        stats = dict(bundles or {})
        data = LocalBrokerData(
            web_service_url=f"http://{name}",
            pulsar_service_url=f"pulsar://{name}",
            broker_id=name,
            last_stats=stats,
            bundles=sorted(stats),
            num_bundles=len(stats),
            last_update=LoopTime().now_ms() - int(age_s * 1000),
        )
        for field in ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out"):
            setattr(data, field, sum(getattr(item, field) for item in stats.values()))
        for field, value in fields.items():
            setattr(data, field, value)
        path, value = paths.broker(name), msgspec.json.encode(data)
        if not await self._reporting.create(path, value, ephemeral=True):
            await self._reporting.put(path, value)

    async def connect(self, port: int, token: str = "") -> Client:
        """A client that has said CONNECT, with a token if it has one."""
        client = await connected(port, token)
        self.clients.append(client)
        return client

    async def __aenter__(self) -> Cluster:
        await self._reporting.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        self.scope.cancel()
        await self._reporting.__aexit__()
        for broker in self.brokers:
            await broker.parts.hosting.stop()
            await broker.store.__aexit__()
            if broker.archive is not None:
                await broker.archive.close()


@asynccontextmanager
async def a_cluster(
    values: Mapping[str, str] | None = None,
    *,
    brokers: int = 1,
    bundles: int = 16,
    cpu_percent: float = 10,
    addresses: Sequence[BrokerAddress] = (),
    peers: Peers | None = None,
    verifier: Verifier | None = None,
    storage: Callable[[], Storage] | None = None,
) -> AsyncIterator[Cluster]:
    """Running brokers with the namespace public/default; broker 0 leads. `storage` makes one for
    each, over the same files.

    With `addresses`, they are reached there, and ask each other through `peers`. `<broker>` in a
    value is the number of the broker.
    """
    addresses = addresses or [an_address(index) for index in range(brokers)]
    async with Scope("cluster") as scope, Cluster(scope) as cluster:
        for index, address in enumerate(addresses):
            own = {key: it.replace("<broker>", f"{index}") for key, it in (values or {}).items()}
            stored = None if storage is None else storage()
            broker = Running(cluster, address, own, cpu_percent, peers, verifier, storage=stored)
            cluster.brokers.append(broker)
            await broker.store.__aenter__()
            await broker.parts.start()
            await until(lambda: cluster.brokers[0].use.leading.leader is not None)
            if broker.archive is not None:
                await until(partial(_begun, broker.archive))
        first = cluster.brokers[0].use.namespaces
        await first.create_tenant(NS.tenant, {})
        await first.create_namespace(NS, {"bundles": {"numBundles": bundles}})
        for broker in cluster.brokers:
            await until(partial(_knows, broker, len(addresses)))
        yield cluster


def _begun(archive: Archive) -> bool:
    """True once it can be asked."""
    return archive.bytes_used > 0


def _knows(broker: Running, brokers: int) -> bool:
    """True if a broker is ready and knows so many."""
    return broker.use.health.ready() and len(broker.use.brokers.registered) == brokers


def an_address(index: int) -> BrokerAddress:
    """The address of a broker that is called directly, not over HTTP."""
    return BrokerAddress(f"b{index}:8080", f"pulsar://b{index}:6650", f"http://b{index}:8080")


def _patience_s(within_s: float) -> float:
    """On virtual time, this; by a real clock a slow machine has a minute at least."""
    virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    return within_s if virtual else max(within_s, PATIENCE_S)


async def until(condition: Callable[[], bool], within_s: float = 5) -> None:
    """Wait for what another task brings about."""
    async with asyncio.timeout(_patience_s(within_s)):
        while not condition():
            await asyncio.sleep(0.01)


async def eventually(
    read: Callable[[], Awaitable[Any]], wanted: Callable[[Any], bool], within_s: float = 5
) -> Any:
    """Read until the answer is as wanted; the answer."""
    found: Any = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_patience_s(within_s)):
            while not wanted(found := await read()):
                await asyncio.sleep(0.01)
            return found
    raise AssertionError(f"it stays {found!r}")


def usage(percent: float) -> ResourceUsage:
    """A resource used to so many percent."""
    return ResourceUsage(usage=percent, limit=100)


class Client:
    """A connection that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader(1 << 24)
        self._requests = 0

    async def send(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))
        await self._writer.drain()

    async def take(self, within_s: float = PATIENCE_S) -> Frame:
        """The next frame."""
        async with asyncio.timeout(within_s):
            while (frame := self._frames.take()) is None:
                data = await self._reader.read(65536)
                assert data, "the broker hung up"
                self._frames.feed(data)
        return frame

    async def take_of(self, kind: int, within_s: float = PATIENCE_S) -> Frame:
        """The next frame of a type; others are passed over."""
        while True:
            frame = await self.take(within_s)
            if frame.command.type == kind:
                return frame

    async def produce(self, topic: TopicName) -> None:
        """Attach producer 1."""
        await self.send(
            encode(producer=pb.CommandProducer(topic=str(topic), producer_id=1, request_id=1))
        )
        frame = await self.take()
        assert frame.command.type == 17, frame.command

    async def subscribe(
        self,
        topic: TopicName,
        *,
        consumer_id: int = 1,
        permits: int = 0,
        kind: int = 1,
        durable: bool = True,
    ) -> Frame:
        """Attach a consumer of subscription s, which wants that many messages; the answer."""
        self._requests += 1
        asked = pb.CommandSubscribe(
            topic=str(topic),
            subscription="s",
            subType=kind,
            consumer_id=consumer_id,
            request_id=self._requests,
            initialPosition=1,
            durable=durable,
        )
        await self.send(encode(subscribe=asked))
        frame = await self.take()
        if permits:
            await self.send(
                encode(flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))
            )
        return frame

    def close(self) -> None:
        self._writer.close()


async def connected(port: int, token: str = "") -> Client:
    """A client that has said CONNECT, with a token if it has one; close it."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    connect = pb.CommandConnect(client_version="raw", protocol_version=20)
    if token:
        connect.auth_method_name, connect.auth_data = "token", token.encode()
    await client.send(encode(connect=connect))
    answer = (await client.take()).command
    if answer.type != 3:
        client.close()
    assert answer.type == 3, answer
    return client


@asynccontextmanager
async def a_client(port: int) -> AsyncIterator[Client]:
    """A client that has said CONNECT."""
    client = await connected(port)
    try:
        yield client
    finally:
        client.close()
