"""Runs with stored topics: every message with a receipt is consumed, in order, whatever happened.

Brokers crash (and lose what they had not synced), pause and stop, syncs fail and lie afterwards,
bundles move and split, while producers send and consumers acknowledge. When the faults have
stopped, consumers that go on from the cursors must have got every message that was acknowledged to
its producer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from errno import EIO
from functools import partial

from simulation.clients import BrokenError, Client, Link, send_frame
from simulation.cluster import Cluster
from simulation.logs_seen import LogObserver
from simulation.operators import NAMESPACES, Event, Operators, draw
from simulation.simulate import SETTINGS, Observer, _prepare
from simulation.world import Machine, SimulationError, World, logs_into

from loadmanager.broker.storage.memory_disk import SharedFiles
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, encode, metadata_of

FLEETING = tuple(f"non-persistent://{namespace}/n" for namespace in NAMESPACES)
"""Topics without a log, which need the lease."""
TOPICS = tuple(f"persistent://{namespace}/s{n}" for namespace in NAMESPACES for n in range(2))
KINDS = (
    "crash",
    "pause",
    "stall",
    "stop",
    "drop",
    "isolate",
    "silence",
    "restart_store",
    "lose_answer",
    "lag",
    "slow_host",
    "unload",
    "unload_namespace",
    "split",
    "move",
    "cordon",
    "pause_moves",
    "merge",
)
"""The events that may lose no message."""
STORED = {**SETTINGS, "managedLedgerMaxEntriesPerLedger": "7", "defaultRetentionSizeInMB": "0"}
FAULTS_S = 20.0
SETTLE_S = 60.0


@dataclass(slots=True)
class Kept:
    """The messages that the clients of one topic saw."""

    receipts: set[int] = field(default_factory=set)
    consumed: set[int] = field(default_factory=set)
    subscribed: bool = False


class StoredClient(Client):
    """Sends 0, 1, 2 …, each until it has a receipt; consumes and acknowledges in order."""

    kept: Kept
    away = True
    """Whether the consumer goes away now and then."""

    async def _produce_on(self, url: str) -> None:
        link = Link(self.cluster, self.machine, url)
        try:
            await link.greet()
            link.send(
                encode(producer=pb.CommandProducer(topic=self.topic, producer_id=1, request_id=2))
            )
            await link.take(17)
            while True:
                for sequence in range(self.sequence, self.sequence + 3):
                    link.send(send_frame(1, sequence))
                for sequence in range(self.sequence, self.sequence + 3):
                    receipt = (await link.take(7)).command.send_receipt
                    if receipt.sequence_id != sequence:
                        self.cluster.world.fail(f"receipt {receipt.sequence_id} for {sequence}")
                    self.kept.receipts.add(sequence)
                    self.sequence = sequence + 1
                    self._receipt(self.topic, link.broker)
                await asyncio.sleep(self._interval_s)
        finally:
            link.close()

    async def consume(self) -> None:
        """Receive messages, and go away now and then, so that they wait in the topic."""
        while True:
            try:
                link = Link(self.cluster, self.machine, await self._owner())
                try:
                    await self._subscribe(link)
                    while not self.away or self._rng.random() < 0.9:
                        self._got(link, await link.take(9, timeout_s=1e6))
                finally:
                    link.close()
                await asyncio.sleep(self._rng.random() * 8)
            except BrokenError:
                await self._pause()

    async def _subscribe(self, link: Link) -> None:
        await link.greet()
        subscribe = pb.CommandSubscribe(
            topic=self.topic,
            subscription="s",
            subType=2,
            consumer_id=1,
            request_id=3,
            consumer_name="c",
            initialPosition=1,
        )
        link.send(encode(subscribe=subscribe))
        await link.take(13)
        self.kept.subscribed = True
        link.send(encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=10)))

    def _got(self, link: Link, frame: Frame) -> None:
        message, sequence = frame.command.message, metadata_of(frame.tail).sequence_id
        missing = [n for n in self.kept.receipts if n < sequence and n not in self.kept.consumed]
        if missing and sequence not in self.kept.consumed:
            self.cluster.world.fail(f"{self.topic}: {sequence} came before {min(missing)}")
        self.kept.consumed.add(sequence)
        ack = pb.CommandAck(consumer_id=1, ack_type=sequence % 2, message_id=[message.message_id])
        link.send(encode(ack=ack))
        link.send(encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=1)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the clients of a run got."""

    receipts: int
    consumed: int
    unleased: int
    """Receipts that a broker sent without the lease."""
    log: list[str]


def run(seed: int) -> Outcome:
    """Raises `SimulationError`."""
    world = World(seed)
    cluster = Cluster(world, brokers=3, session_timeout_s=4.0, settings=STORED)
    cluster.files = SharedFiles(rng=world.rng)
    cluster.files.trouble = partial(_trouble, world)
    operators = Operators(cluster)
    observer = LogObserver(cluster, operators)
    drawn = draw(world.rng, from_s=12.0, until_s=12.0 + FAULTS_S, mean_gap_s=0.5)
    with logs_into(lambda: world):
        try:
            kept = _run(cluster, operators, observer, [e for e in drawn if e.kind in KINDS])
        except SimulationError as error:
            raise SimulationError(
                f"seed {seed}: {error}\n" + "\n".join(list(world.log)[-80:])
            ) from None
        finally:
            world.close()
    sent = sum(len(topic.receipts) for topic in kept.values())
    consumed = sum(len(topic.consumed) for topic in kept.values())
    return Outcome(sent, consumed, observer.unleased, list(world.log))


def _trouble(world: World, call: str, _path: str) -> int:
    """Now and then a sync fails, while there are faults."""
    faults = 12.0 <= world.now_s < 12.0 + FAULTS_S
    return EIO if call == "sync" and faults and world.rng.random() < 0.01 else 0


def _run(
    cluster: Cluster, operators: Operators, observer: Observer, script: list[Event]
) -> dict[str, Kept]:
    world = cluster.world
    _prepare(cluster)
    for broker in cluster.brokers:
        world.after(world.rng.random() * 0.5, broker.start)
    world.run_until(10.0, lambda: all(process.ready for process in cluster.processes()))
    clients = world.machine("clients")
    kept: dict[str, Kept] = {}
    users = [StoredClient(cluster, clients, topic, 0.3, observer.receipt) for topic in TOPICS]
    for user in users:
        user.kept = kept[user.topic] = Kept()
        clients.go(user.consume(), f"consume-{user.topic}")
    world.run_until(12.0, lambda: all(seen.subscribed for seen in kept.values()))
    producing = [clients.go(user.produce(), f"produce-{user.topic}") for user in users]
    for topic in FLEETING:
        fleeting = Client(cluster, clients, topic, 0.5, observer.receipt)
        clients.go(fleeting.produce(), f"produce-{topic}")
        clients.go(fleeting.consume(), f"consume-{topic}")
    for event in script:
        world.at(event.at_s, lambda event=event: operators.carry_out(event))  # type: ignore[misc]
    world.run_until(12.0 + FAULTS_S)
    operators.put_right()
    for user in users:
        user.away = False
    _check(world, clients, kept, producing)
    return kept


def _check(
    world: World, clients: Machine, kept: dict[str, Kept], producing: list[asyncio.Task[None]]
) -> None:
    before = {topic: len(seen.receipts) for topic, seen in kept.items()}
    world.run_until(
        world.now_s + SETTLE_S,
        lambda: all(len(seen.receipts) > before[topic] for topic, seen in kept.items()),
    )
    for task in producing:
        clients.run(task.cancel)
    world.run_until(
        world.now_s + SETTLE_S, lambda: all(t.receipts <= t.consumed for t in kept.values())
    )
    for topic, seen in kept.items():
        if len(seen.receipts) <= before[topic]:
            raise SimulationError(f"{topic} takes no messages after the faults stopped")
        if lost := sorted(seen.receipts - seen.consumed):
            raise SimulationError(f"{topic}: {len(lost)} messages were lost: {lost[:9]}")
