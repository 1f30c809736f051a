"""Complete brokers of the simulation: the real composition of parts, the real protocol server,
without sockets.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from simulation.world import Machine, MachineClock, SimulationError, World
from simulation.zookeeper import Client, Server

from loadmanager.broker.compose import Parts
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.server import HANDLERS, BrokerServer
from loadmanager.broker.service import Outside
from loadmanager.broker.settings import KEYS
from loadmanager.broker.settings.live import LiveSettings
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.metadata.store import Node
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.sampler import Reading, SystemUsage
from loadmanager.kit.settings import Settings
from loadmanager.kit.tasks import Scope
from loadmanager.leader.ports.mover import ClientsBack, Released

PEER_TIMEOUT_S = 10.0
RECEIPT = b"\x08\x07"
"""How a SEND_RECEIPT begins."""


class Broker:
    """One broker, whose process can crash, pause and start again."""

    def __init__(self, cluster: Cluster, index: int) -> None:
        self.cluster, self.world, self.index = cluster, cluster.world, index
        self.address = BrokerAddress(
            f"b{index}:8080", f"pulsar://b{index}:6650", f"http://b{index}:8080"
        )
        self.process: Process | None = None
        self.twin: Process | None = None
        """A second process with the same name, started by mistake."""

    @property
    def alive(self) -> bool:
        """True if a process exists, running or paused."""
        return self.process is not None

    def start(self) -> None:
        """Start the process."""
        self.world.note(f"b{self.index} starts")
        self.process = Process(self)

    def crash(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.world.note(f"b{self.index} crashes")
            self.process.die()
            self.process = None

    def stop(self) -> None:
        """Request a graceful stop; the process ends by itself."""
        if self.process is not None and not self.process.machine.paused:
            self.world.note(f"b{self.index} gets SIGTERM")
            self.process.machine.run(self.process.stopping.set)


class Process:
    """The life of one broker process."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.world, cluster = broker, broker.world, broker.cluster
        self.machine = self.world.machine(f"b{broker.index}")
        self.clock = MachineClock(self.world)
        self.store = Client(cluster.server, self.machine, cluster.session_timeout_s)
        self.store.on_read = self._on_read
        self.store.begin()
        self.stopping = asyncio.Event()
        self.extensible = cluster.extensible_now()
        """Which load manager it runs."""
        self.parts: Parts | None = None
        self.transports: list[Transport] = []
        self.disk: MemoryDisk | None = None
        self.broken_disk = False
        """Whether each call of the storage fails in this process."""
        self.epoch_read = 0
        """The epoch of the latest term that this process has read from the store."""
        self.listening = self.ready = False
        self.machine.observe = lambda: cluster.observe(self)
        self.machine.go(self._main(), "main")

    @property
    def leader_path(self) -> str:
        """The path of the leader's node in its load manager."""
        return paths.EXTENSIBLE_LEADER if self.extensible else paths.LEADER

    def _on_read(self, path: str, node: Node | None) -> None:
        if path == self.leader_path and node is not None:
            self.epoch_read = self.broker.cluster.epoch_of(node)

    async def _main(self) -> None:
        cluster = self.broker.cluster
        try:
            async with Scope("broker") as scope:
                outside = Outside(
                    me=self.broker.address,
                    store=self.store,
                    clock=self.clock,
                    peers=Peers(self),
                    sampler=lambda _own: Sampler(self),
                    version="1.0",
                    stop=lambda _rate: self.stopping.set(),
                    service=SlowServer,
                    storage=cluster.storage(self),
                    seed=self.world.seed,
                )
                self.parts = Parts(LiveSettings(cluster.settings[self.extensible]), outside, scope)
                self.parts.hosting.process = self  # type: ignore[attr-defined]
                await self.parts.prepare()
                self.listening = True
                await self.parts.join()
                self.ready = True
                await self.stopping.wait()
                await self.parts.stop(0)
                scope.cancel()
        except BaseException as error:
            # No fault may end a broker; only a stop does.
            self.world.fail(f"{self.machine.name} ended: {_story(error)}")
            raise
        finally:
            if not self.machine.crashed:
                self.store.close()
                if self.broker.process is self:
                    self.broker.process = None
                self.world.after(0.0, self._gone)

    def _gone(self) -> None:
        self.world.note(f"{self.machine.name} stopped")
        for transport in list(self.transports):
            transport.cut()
        if self.disk is not None:
            self.disk.crash(lambda size: size)  # the system lives on, and writes everything
        if not self.machine.crashed:
            self.world.crash(self.machine)

    def die(self) -> None:
        """Stop the machine at once, and break the connections (kill -9)."""
        self.store.died()
        if self.disk is not None:
            self.disk.crash(lambda size: self.world.rng.randint(0, size))
        self.world.crash(self.machine)
        for transport in list(self.transports):
            transport.cut()

    def serving(self) -> dict[str, int]:
        """Bundle → life, of the bundles that the protocol server would serve now."""
        if self.parts is None or not self.store.lease.held(self.world.now_s):
            return {}
        return {
            name: opened.life
            for name, opened in self.parts.hosting.serving.open_bundles.items()
            if not opened.fenced
        }

    # Calls from outside (operators, peers)

    def call(
        self,
        what: Callable[[Parts], Awaitable[Any]],
        name: str,
        answer: Callable[[Any, Exception | None], None],
    ) -> None:
        """Run something on this broker; `answer` gets the result unless the process dies."""

        async def run() -> None:
            try:
                if self.parts is None:
                    raise OperationalError("connection refused")
                value = await what(self.parts)
            except LoadManagerError as error:
                answer(None, error)
            else:
                answer(value, None)

        self.machine.go(run(), name)


def _story(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_story(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"


class SlowServer(BrokerServer):
    """The real server, which sometimes is slow to open or close a bundle, or cannot open it."""

    process: Process

    async def open_bundle(self, bundle: str, life: int) -> None:
        """See the port."""
        trouble = self.process.broker.cluster.hosting_trouble
        rng = self.process.world.rng
        if rng.random() < trouble:
            await asyncio.sleep(rng.choice((0.05, 1.0, 5.0)))
        if rng.random() < trouble / 2:
            raise rng.choice((OperationalError("the disk does not answer"), RuntimeError("a bug")))
        await super().open_bundle(bundle, life)

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """See the port."""
        rng = self.process.world.rng
        if rng.random() < self.process.broker.cluster.hosting_trouble:
            await asyncio.sleep(rng.choice((0.05, 1.0, 5.0)))
        return await super().close_bundle(
            bundle, life, destination=destination, timeout_s=timeout_s
        )


class Sampler:
    """Reports random usage: now and then a broker looks hot."""

    scope = "process"

    def __init__(self, process: Process) -> None:
        self._process = process

    def sample(self) -> SystemUsage:
        """A sample."""
        rng = self._process.world.rng
        if rng.random() < 0.01:
            raise OSError(24, "Too many open files")
        cpu = 30.0 + 65.0 * (rng.random() < 0.3)
        return SystemUsage(Reading(cpu, 100), Reading(1, 100), Reading(0, 0), Reading(0, 0))


class Peers:
    """Implements `leader.ports.peers.Peers`: calls between processes, late or lost."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def release_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        """See the port."""
        released: Released | None = await self._ask(
            owner,
            "release",
            epoch,
            bundle,
            lambda parts: parts.use_cases.orders.release(bundle, destination, epoch=epoch),
        )
        return released

    async def served_bundles(
        self, broker: BrokerAddress, bundle: str | None = None
    ) -> Mapping[str, int]:
        """See the port."""

        async def served(parts: Parts) -> Mapping[str, int]:
            return parts.use_cases.orders.served(bundle)

        told: Mapping[str, int] = await self._ask(broker, "served", None, bundle or "", served)
        return told

    async def clients_back(
        self, broker: BrokerAddress, bundle: str, closed: int
    ) -> ClientsBack | None:
        """See the port."""

        async def back(parts: Parts) -> ClientsBack | None:
            return parts.use_cases.orders.clients_back(bundle, closed)

        told: ClientsBack | None = await self._ask(broker, "clients", None, bundle, back)
        return told

    async def last_release(self, broker: BrokerAddress, bundle: str) -> Released | None:
        """See the port."""

        async def last(parts: Parts) -> Released | None:
            return parts.use_cases.orders.released(bundle)

        told: Released | None = await self._ask(broker, "released", None, bundle, last)
        return told

    async def split_bundle(
        self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None
    ) -> list[str]:
        """See the port."""
        namespace, bundle_range = split_bundle_name(bundle)

        async def split(parts: Parts) -> list[str]:
            return await parts.use_cases.orders.split(
                NamespaceName.parse(namespace), bundle_range, unload=unload, epoch=epoch
            )

        return await self._ask(owner, "split", epoch, bundle, split)

    async def merge_bundles(
        self, owner: BrokerAddress, left: str, right: str, *, epoch: int | None
    ) -> str:
        """See the port."""

        async def merge(parts: Parts) -> str:
            return await parts.use_cases.orders.merge(left, right, epoch=epoch)

        merged: str = await self._ask(owner, "merge", epoch, left, merge)
        return merged

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        """See the port."""
        await self._ask(
            broker,
            "acquire",
            epoch,
            bundle,
            lambda parts: parts.use_cases.orders.acquire(bundle, epoch=epoch),
        )

    async def tell_changes(self, leader: BrokerAddress, changes: Sequence[ChangeShown]) -> None:
        """See the port."""

        async def tell(parts: Parts) -> None:
            parts.use_cases.tell_listeners(changes)

        await self._ask(leader, "changes", None, "", tell)

    async def close_topic(self, owner: BrokerAddress, topic: str, *, force: bool) -> bool:
        """See the port."""

        async def close(parts: Parts) -> bool:
            return parts.hosting.close_topic(topic, force=force)

        closed: bool = await self._ask(owner, "close", None, topic, close)
        return closed

    async def _ask(
        self,
        to: BrokerAddress,
        order: str,
        epoch: int | None,
        bundle: str,
        what: Callable[[Parts], Awaitable[Any]],
    ) -> Any:
        process = self._process
        world, cluster = process.world, process.broker.cluster
        future: asyncio.Future[Any] = process.machine.create_future()

        def settle(value: Any, error: Exception | None) -> None:
            def arrive() -> None:
                if not process.machine.crashed and not future.done():
                    process.machine.call_soon(
                        lambda: (
                            future.done()
                            or (future.set_exception(error) if error else future.set_result(value))
                        )
                    )

            if not cluster.loses_message():
                world.after(cluster.message_delay_s(), arrive)

        def reach() -> None:
            target = cluster.process_of(to)
            if target is None or target.parts is None:
                settle(None, OperationalError(f"{to.broker_id} cannot be reached"))
                return
            cluster.observe_order(target, order, epoch, bundle, what, settle)

        if not cluster.loses_message():
            world.after(cluster.message_delay_s(), reach)
        try:
            async with asyncio.timeout(PEER_TIMEOUT_S):
                return await future
        except LoadManagerError as error:
            raise OperationalError(f"{to.broker_id} answered: {error}") from None
        except TimeoutError:
            raise OperationalError(f"{to.broker_id} did not answer in time") from None


class Transport(asyncio.Transport):
    """A connection between a client and a broker's protocol server.

    The client's side is `receive` and `ended`.
    """

    def __init__(
        self,
        process: Process,
        client: Machine,
        receive: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        super().__init__()
        self._process, self._client, self._receive, self._ended = process, client, receive, ended
        self._world = process.world
        self._closing = self._cut = False
        self._reading = True
        self._inbox: list[bytes] = []
        self._in_s = self._out_s = 0.0
        process.transports.append(self)
        self._protocol = Connection(process.parts.hosting.serving, HANDLERS)  # type: ignore[union-attr]
        process.machine.call_soon(self._protocol.connection_made, self)

    # The client's side

    def from_client(self, data: bytes) -> None:
        """The client writes."""
        self._in_s = max(self._in_s + 1e-6, self._world.now_s + self._world.delay_s())

        def arrive() -> None:
            if not self._cut and not self._process.machine.crashed:
                self._inbox.append(data)
                self._process.machine.call_soon(self._feed)

        self._world.at(self._in_s, arrive)

    def cut(self) -> None:
        """(Anywhere.) The connection breaks for both."""
        if self._cut:
            return
        self._cut = True
        if self in self._process.transports:
            self._process.transports.remove(self)
        if not self._process.machine.crashed:
            self._process.machine.call_soon(self._protocol.connection_lost, None)
        self._world.after(self._world.delay_s(), lambda: self._client.call_soon(self._ended))

    # The broker's side

    def _feed(self) -> None:
        while self._inbox and self._reading and not self._closing and not self._cut:
            self._protocol.data_received(self._inbox.pop(0))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The client's address."""
        return ("127.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Clients read everything."""

    def get_write_buffer_size(self) -> int:
        """Clients read at once."""
        return 0

    def pause_reading(self) -> None:
        """The broker reads no more for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """The broker reads again."""
        self._reading = True
        self._process.machine.call_soon(self._feed)

    def is_closing(self) -> bool:
        """True if the broker has closed the connection."""
        return self._closing

    def write(self, data: Any) -> None:
        """The broker writes."""
        if self._cut or self._closing:
            return
        self._out_s = max(self._out_s + 1e-6, self._world.now_s + self._world.delay_s())
        copy = bytes(data)
        cluster = self._process.broker.cluster
        if cluster.on_write is not None:
            cluster.on_write(self._process, self._protocol, copy)
        if copy[8:10] == RECEIPT:
            for producer in self._protocol.producers.values():
                cluster.on_receipt(self._process, str(producer.hosted.name))
        self._world.at(
            self._out_s, lambda: None if self._cut else self._client.call_soon(self._receive, copy)
        )

    def close(self) -> None:
        """The broker closes the connection, after what it wrote."""
        if not self._closing:
            self._closing = True
            self._world.at(max(self._out_s, self._world.now_s) + 1e-6, self.cut)

    abort = close


class Cluster:
    """The store, the brokers, and the hooks of the observer."""

    def __init__(
        self,
        world: World,
        *,
        brokers: int,
        session_timeout_s: float,
        settings: dict[str, str],
        extensible_from_s: float = float("inf"),
    ) -> None:
        self.world = world
        self.session_timeout_s = session_timeout_s
        self.extensible_from_s = extensible_from_s
        """Processes that start from then on run the extensible manager."""
        manager = {"loadManagerClassName": "ExtensibleLoadManagerImpl"}
        self.settings: dict[bool, Settings] = {
            False: KEYS.parse(settings),
            True: KEYS.parse({**settings, **manager}),
        }
        self.server = Server(world)
        self.brokers = [Broker(self, index) for index in range(brokers)]
        self.observe: Callable[[Process], None] = lambda process: None
        """Called after every turn of a broker's loop."""
        self.message_loss = self.message_lag_s = self.hosting_trouble = 0.0
        """Probability that a message between brokers is lost; how long a message may take;
        probability that a host is slow or fails.
        """
        self.on_receipt: Callable[[Process, str], None] = lambda process, topic: None
        """Called when a broker sends a receipt for a topic."""
        self.on_write: Callable[[Process, Connection, bytes], None] | None = None
        """Called with what a broker writes to a client."""
        self.rng: random.Random = world.rng
        self.files: SharedFiles | None = None
        """The disk that brokers share; None: topics are in memory."""

    def extensible_now(self) -> bool:
        """True if a process that starts now runs the extensible manager."""
        return self.world.now_s >= self.extensible_from_s

    @property
    def leader_path(self) -> str:
        """The path of the leader's node."""
        return paths.EXTENSIBLE_LEADER if self.extensible_now() else paths.LEADER

    def storage(self, process: Process) -> LogFiles | None:
        """The storage of a broker, slow as a disk."""
        if self.files is None:
            return None
        process.disk = MemoryDisk(self.files)

        async def run(_thread: int, call: Callable[[], Any]) -> Any:
            await asyncio.sleep(self.world.delay_s(0.5))
            if process.broken_disk:
                raise OSError(errno.EIO, "Input/output error")
            return call()

        direct_max = self.rng.choice((0, 2))
        return LogFiles(
            process.disk,
            run,
            names=lambda: f"{self.rng.getrandbits(64):016x}",
            journal_bytes=2_000,
            direct_max=direct_max,
        )

    def process_of(self, address: BrokerAddress) -> Process | None:
        """The process at an address; a random one of two with the same name."""
        broker = next(
            (broker for broker in self.brokers if broker.address.broker_id == address.broker_id),
            None,
        )
        if broker is None:
            return None
        if broker.twin is not None and self.rng.random() < 0.5:
            return broker.twin
        return broker.process

    def at(self, service_url: str) -> Process | None:
        """The process behind a service URL."""
        broker = next(
            (broker for broker in self.brokers if broker.address.service_url == service_url), None
        )
        return None if broker is None else self.process_of(broker.address)

    def processes(self) -> list[Process]:
        """All processes that exist."""
        return [
            process
            for broker in self.brokers
            for process in (broker.process, broker.twin)
            if process is not None
        ]

    def loses_message(self) -> bool:
        """True if the next message between brokers is lost."""
        return self.message_loss > 0 and self.rng.random() < self.message_loss

    def message_delay_s(self) -> float:
        """The delay of the next message between brokers, in seconds."""
        return self.world.delay_s() + self.message_lag_s * self.rng.random()

    @staticmethod
    def epoch_of(node: Node) -> int:
        """The epoch in a leader's node; 0 if it is corrupt."""
        import json

        try:
            epoch = json.loads(node.value)["epoch"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return 0
        return epoch if isinstance(epoch, int) else 0

    def observe_order(
        self,
        target: Process,
        order: str,
        epoch: int | None,
        bundle: str,
        what: Callable[[Parts], Awaitable[Any]],
        settle: Callable[[Any, Exception | None], None],
    ) -> None:
        """Carry an order to a broker, which must refuse it if it has read a newer term."""
        newest = target.epoch_read

        def answered(value: Any, error: Exception | None) -> None:
            self.world.note(
                f"order {order} {bundle} of epoch {epoch} at {target.machine.name} (has read "
                f"{newest}): {error or value}"
            )
            nothing_done = order == "release" and value is None
            if epoch is not None and epoch < newest and error is None and not nothing_done:
                self.world.fail(
                    f"{target.machine.name} carried out the {order} of {bundle} of epoch {epoch}, "
                    f"though it had read {newest}"
                )
            settle(value, error)

        target.call(what, f"order-{order}", answered)


def leader_of(cluster: Cluster) -> Leader | None:
    """The leader according to the store."""
    node = cluster.server.tree.nodes.get(cluster.leader_path)
    return None if node is None else Leader("", "", cluster.epoch_of(node))


__all__ = ["Broker", "Cluster", "Process", "SimulationError", "Transport", "leader_of"]


def spawn(machine: Machine, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
    """Start a task on a machine."""
    machine.go(coroutine, name)
