"""The events of a run: faults of machines and networks, operators, garbage in the store.

The script of events is drawn from the seed before the run, so that a run can be repeated with fewer
events.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from simulation.cluster import Broker, Cluster, Process

from loadmanager.broker.compose import Parts
from loadmanager.engine.bundles.ranges import BundleRange, topic_hash
from loadmanager.engine.ownership.state_records import decode_record
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Create, Delete, Node, Put
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.leader.ports.operating import LeaderOperations

NAMESPACES = ("public/default", "public/second")
TOPICS = tuple(
    f"persistent://{namespace}/t{number}" for namespace in NAMESPACES for number in range(4)
)
SHORT_LIVED = NamespaceName("public", "brief")
GARBAGE = (
    b"",
    b"{nonsense",
    b"null",
    b"[]",
    b"7",
    b'{"a":"\xff\xfe"}',
    b'{"a":' * 3000,
    b'{"brokerId": 7, "nativeUrl": [], "bundles": 9, "lastStats": "x", "epoch": -3}',
    b'{"bundles": {"boundaries": ["0x00000000", "zz"]}}',
    (
        b'{"bundles": ["a/b/c/0x00000000_0xffffffff"], '
        b'"lastStats": {"a/b/c/0x00000000_0xffffffff": '
        b'{"msgRateIn": 1e300}}}'
    ),
)
MENDED_AFTER_S = 120.0
"""Overwritten nodes are restored after this time, or when the faults stop."""
GHOST = b'{"webServiceUrl": "http://ghost:1", "pulsarServiceUrl": "pulsar://ghost:1"}'
DYNAMIC = (
    ("loadBalancerLoadSheddingStrategy", "ThresholdShedder"),
    ("loadBalancerLoadSheddingStrategy", "ThresholdSheder"),
    ("loadBalancerLoadSheddingStrategy", "OverloadShedder"),
    ("loadBalancerSheddingIntervalMinutes", "0.05"),
    ("loadBalancerSheddingIntervalMinutes", "never"),
    ("loadBalancerSheddingEnabled", "false"),
    ("loadBalancerSheddingEnabled", "perhaps"),
    ("defaultNumberOfNamespaceBundles", "3"),
    ("defaultNumberOfNamespaceBundles", "-3"),
    ("brokerServicePort", "1"),
    ("noSuchKey", "1"),
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `dice` seeds its details."""

    at_s: float
    kind: str
    dice: int


def draw(
    rng: random.Random,
    *,
    from_s: float,
    until_s: float,
    mean_gap_s: float,
    of: Sequence[str] = (),
) -> list[Event]:
    """Draw a script, of some kinds of events or, if `of` is empty, of all."""
    kinds = [kind for kind in of or WEIGHTS for _ in range(WEIGHTS[kind])]
    events, now_s = [], from_s
    while (now_s := now_s + rng.expovariate(1 / mean_gap_s)) < until_s:
        events.append(Event(now_s, kinds[rng.randrange(len(kinds))], rng.randrange(1 << 30)))
    return events


class Operators:
    """Carries out events, and repairs everything at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.world = cluster, cluster.world
        self._mend: list[Callable[[], None]] = []
        self.forgotten_s = -1e9
        """When the server last ended a session too early: until its broker learns of that, a bundle
        may have two owners.
        """
        self.overwritten: dict[str, Node] = {}
        """State record → what it was before it was overwritten: its owner owns the bundle still."""
        self.lock_deleted_s: dict[str, float] = {}
        """Bundle → when its lock was deleted by hand: until its owner learns of that, it may have
        two owners.
        """

    def carry_out(self, event: Event) -> None:
        """Carry out an event."""
        rng = random.Random(event.dice)
        self.world.note(f"event {event.kind} {event.dice}")
        ACTIONS[event.kind](self, rng)

    def put_right(self) -> None:
        """Stop all faults: restart brokers, restore connections and overwritten nodes."""
        self.world.note("the faults stop")
        cluster = self.cluster
        for broker in cluster.brokers:
            self._end_twin(broker)
        cluster.message_loss = cluster.message_lag_s = cluster.hosting_trouble = 0.0
        if not cluster.server.up:
            cluster.server.start()
        cluster.server.after_read.clear()
        for mend in reversed(self._mend):
            mend()
        self._mend.clear()
        for path in [path for path in cluster.server.tree.nodes if path.startswith(paths.CORDONS)]:
            if path != paths.CORDONS:
                cluster.server.tree.apply([Delete(path)], 0)
        for process in cluster.processes():
            process.machine.paused = False
            process.store.reachable = True
            process.store.answer_lag_s = process.store.event_lag_s = 0.0
            process.store.loses_next_answer = False
            process.clock.skew_ms = 0
        for broker in cluster.brokers:
            if not broker.alive:
                broker.start()

    # Choosing

    def _process(self, rng: random.Random) -> Process | None:
        running = [process for process in self.cluster.processes() if not process.machine.paused]
        return running[rng.randrange(len(running))] if running else None

    def _leader(self) -> Process | None:
        leading = [
            process
            for process in self.cluster.processes()
            if process.parts is not None
            and process.parts.member.cluster.leading.load_manager is not None
        ]
        return leading[0] if leading else None

    def _topic(self, rng: random.Random) -> TopicName:
        return TopicName.parse(TOPICS[rng.randrange(len(TOPICS))])

    def _request(
        self, rng: random.Random, name: str, what: Callable[[Parts], Awaitable[object]]
    ) -> None:
        process = self._process(rng)
        if process is not None:
            process.call(
                what, name, lambda value, error: self.world.note(f"{name}: {error or value}")
            )
            if rng.random() < 0.3:  # a connection to the store drops meanwhile
                other = self._process(rng) or process
                self.world.after(rng.random() * 0.1, other.store.cut)

    # Machines

    def crash(self, rng: random.Random) -> None:
        """kill -9, often of the leader; a new process starts at once, or after some seconds."""
        process = self._leader() if rng.random() < 0.4 else None
        process = process or self._process(rng)
        if process is not None:
            broker = process.broker
            broker.crash()
            delay_s = rng.choice((0.05, 0.5, 3.0, 8.0))
            self.world.after(delay_s, lambda: None if broker.alive else broker.start())

    def pause(self, rng: random.Random) -> None:
        """SIGSTOP and SIGCONT."""
        process = self._leader() if rng.random() < 0.4 else None
        process = process or self._process(rng)
        if process is not None:
            machine = process.machine
            machine.paused = True
            self.world.after(
                self.cluster.session_timeout_s * rng.choice((0.3, 0.86, 0.95, 1.05, 2.0)),
                lambda: setattr(machine, "paused", False),
            )

    def stop(self, rng: random.Random) -> None:
        """SIGTERM; a new process follows."""
        process = self._process(rng)
        if process is not None and process.ready:
            broker = process.broker
            broker.stop()
            self._start_when_gone(broker.start, lambda: broker.alive)

    def _start_when_gone(self, start: Callable[[], None], alive: Callable[[], bool]) -> None:
        def look() -> None:
            if alive():
                self.world.after(0.5, look)
            else:
                start()

        self.world.after(0.5, look)

    def twin(self, rng: random.Random) -> None:
        """A second broker with the same name is started elsewhere."""
        process = self._process(rng)
        if process is not None and process.ready and process.broker.twin is None:
            broker = process.broker
            self.world.note(f"a twin of b{broker.index} starts")
            broker.twin = Process(broker)
            self.world.after(rng.choice((2.0, 6.0)), lambda: self._end_twin(broker))

    def _end_twin(self, broker: Broker) -> None:
        if broker.twin is not None:
            twin, broker.twin = broker.twin, None
            twin.die()

    def stall(self, rng: random.Random) -> None:
        """Bundles move while hosts are slow, and a broker pauses for just longer than its lease."""
        self.cluster.hosting_trouble = 0.7
        self.world.after(8.0, lambda: setattr(self.cluster, "hosting_trouble", 0.0))
        self.unload_namespace(rng)
        machine = (
            (self._process(rng) or self.cluster.processes()[0]).machine
            if self.cluster.processes()
            else None
        )
        if machine is not None:
            self.world.after(rng.random(), lambda: setattr(machine, "paused", True))
            self.world.after(
                1.0 + 0.9 * self.cluster.session_timeout_s,
                lambda: setattr(machine, "paused", False),
            )

    def jump(self, rng: random.Random) -> None:
        """The wall clock of a machine jumps."""
        process = self._process(rng)
        if process is not None:
            process.clock.skew_ms += rng.choice((-86_400_000, -60_000, 60_000, 3_600_000))

    # Network

    def drop(self, rng: random.Random) -> None:
        """A broker's connection to the store drops; it can reconnect at once."""
        process = self._process(rng)
        if process is not None:
            process.store.cut()

    def flap(self, rng: random.Random) -> None:
        """A broker's connections to the store break after milliseconds, several times."""
        process = self._process(rng)
        if process is not None:
            life_s = rng.choice((0.005, 0.03, 0.2))
            for turn in range(12):
                self.world.after(turn * (life_s + 0.03), process.store.cut)

    def isolate(self, rng: random.Random) -> None:
        """A broker cannot reach the store for a while."""
        process = self._process(rng)
        if process is not None:
            store = process.store
            store.reachable = False
            store.cut() if rng.random() < 0.5 else store.silence()
            self.world.after(
                self.cluster.session_timeout_s * rng.choice((0.2, 0.7, 1.2, 2.0)),
                lambda: setattr(store, "reachable", True),
            )

    def lose_answer(self, rng: random.Random) -> None:
        """A broker's next transaction takes effect, and the connection drops before the answer."""
        process = self._process(rng)
        if process is not None:
            process.store.loses_next_answer = True

    def silence(self, rng: random.Random) -> None:
        """A broker's connection to the store goes silent; the next one works."""
        process = self._process(rng)
        if process is not None:
            process.store.silence()

    def restart_store(self, rng: random.Random) -> None:
        """The store stops and comes back."""
        server = self.cluster.server
        if server.up:
            server.stop()
            self.world.after(
                rng.choice((0.05, 0.5, 2.0, 6.0)), lambda: None if server.up else server.start()
            )

    def lose(self, rng: random.Random) -> None:
        """Messages between brokers are lost for a while."""
        self.cluster.message_loss = rng.choice((0.1, 0.5))
        self.world.after(rng.choice((1.0, 5.0)), lambda: setattr(self.cluster, "message_loss", 0.0))

    def lag(self, rng: random.Random) -> None:
        """For a while, answers or notifications of the store, or messages of brokers, are late."""
        process = self._process(rng)
        if process is None:
            return
        store, cluster, what = process.store, self.cluster, rng.randrange(3)
        if what == 0:
            store.answer_lag_s = rng.choice((0.2, 1.0))
        elif what == 1:
            lag_s = rng.choice((0.5, 3.0))
            for other in cluster.processes() if rng.random() < 0.5 else [process]:
                other.store.event_lag_s = lag_s
        else:
            cluster.message_lag_s = rng.choice((1.0, 9.0))

        def over() -> None:
            cluster.message_lag_s = 0.0
            for other in cluster.processes():
                other.store.answer_lag_s = other.store.event_lag_s = 0.0

        self.world.after(rng.choice((2.0, 6.0)), over)

    def expire(self, rng: random.Random) -> None:
        """The server ends a session too early."""
        process = self._process(rng)
        if process is None:
            return
        store = process.store
        store.answer_lag_s = rng.choice((0.0, 1.0))

        def forget() -> None:
            store.answer_lag_s = 0.0
            if store.session_id in self.cluster.server.sessions:
                self.forgotten_s = self.world.now_s
                self.cluster.server.end(store.session_id, "forgotten")
                store.cut()

        self.world.after(rng.random() * 3, forget)

    def slow_host(self, rng: random.Random) -> None:
        """For a while, hosts are slow to open and close bundles, and cannot open some."""
        self.cluster.hosting_trouble = rng.choice((0.2, 0.7))
        self.world.after(
            rng.choice((3.0, 8.0)), lambda: setattr(self.cluster, "hosting_trouble", 0.0)
        )

    # Operators

    def unload(self, rng: random.Random) -> None:
        """Unload a topic's bundle, sometimes with a destination, which may not exist."""
        topic = self._topic(rng)
        brokers = self.cluster.brokers
        destination = rng.choice(
            (None, brokers[rng.randrange(len(brokers))].address.broker_id, "nobody:1")
        )

        async def unload(parts: Parts) -> object:
            bundles = await parts.use_cases.namespaces.bundles(topic.namespace)
            bundle_range = bundles.bundle_of_topic(str(topic)).rpartition("/")[2]
            return await parts.use_cases.unloading.bundle(
                topic.namespace, bundle_range, destination=destination
            )

        self._request(rng, "unload", unload)

    def unload_namespace(self, rng: random.Random) -> None:
        """Unload all bundles of a namespace."""
        namespace = self._topic(rng).namespace
        self._request(
            rng, "unload-namespace", lambda parts: parts.use_cases.unloading.namespace(namespace)
        )

    def _operate(
        self,
        rng: random.Random,
        name: str,
        what: Callable[[Parts, LeaderOperations], Awaitable[object]],
    ) -> None:
        """Ask the leader; nobody is asked without one."""

        async def ask(parts: Parts) -> object:
            operations = parts.use_cases.leading.operations
            if parts.use_cases.leading.load_manager is None or operations is None:
                return "it leads no longer"
            return await what(parts, operations)

        leader = self._leader()
        if leader is None or leader.machine.paused:
            return
        leader.call(ask, name, lambda value, error: self.world.note(f"{name}: {error or value}"))
        if rng.random() < 0.3:  # its connection to the store drops meanwhile
            self.world.after(rng.random() * 0.1, leader.store.cut)

    def move(self, rng: random.Random) -> None:
        """Move a topic's bundle, often with a pin, to a broker that may not exist."""
        topic, brokers = self._topic(rng), self.cluster.brokers
        destination = rng.choice((*(broker.address.broker_id for broker in brokers), "nobody:1"))
        pin_s = rng.choice((None, 3.0, 20.0))

        async def move(parts: Parts, operations: LeaderOperations) -> object:
            bundles = await parts.use_cases.namespaces.bundles(topic.namespace)
            bundle = bundles.bundle_of_topic(str(topic))
            return await operations.move(bundle, destination, pin_s=pin_s)

        self._operate(rng, "move", move)

    def merge(self, rng: random.Random) -> None:
        """Merge a topic's bundle with the next one, often while somebody moves or splits it."""
        topic = self._topic(rng)

        async def merge(parts: Parts, operations: LeaderOperations) -> object:
            bundles = await parts.use_cases.namespaces.bundles(topic.namespace)
            names = bundles.names
            at = names.index(bundles.bundle_of_topic(str(topic)))
            if at + 1 == len(names):
                return None
            return await operations.merge(names[at], names[at + 1])

        owner = self._owner(topic)
        if owner is not None:
            owner.store.loses_next_answer = rng.random() < 0.3
        self._operate(rng, "merge", merge)
        if rng.random() < 0.3:
            self.world.after(rng.random() * 0.2, lambda: self.unload(rng))
        if rng.random() < 0.3:
            process = self._process(rng)
            if process is not None:
                self.world.after(rng.random() * 0.5, lambda: self._look_up(process, topic))

    def cordon(self, rng: random.Random) -> None:
        """Cordon a broker, often drain it, and uncordon it later, unless the leader is gone."""
        broker = rng.choice(self.cluster.brokers).address.broker_id
        drain = rng.random() < 0.7
        self._operate(
            rng, "cordon", lambda _parts, operations: operations.cordon(broker, drain=drain)
        )
        self.world.after(
            rng.choice((1.0, 5.0, 12.0)),
            lambda: self._operate(
                rng, "uncordon", lambda _parts, operations: operations.uncordon(broker)
            ),
        )

    def pause_moves(self, rng: random.Random) -> None:
        """Pause the queue of moves, and sometimes cancel what waits."""
        seconds, cancels = rng.choice((0.5, 3.0, 10.0)), rng.random() < 0.5

        async def pause(_parts: Parts, operations: LeaderOperations) -> object:
            paused = await operations.pause(seconds)
            return operations.cancel(None) if cancels else paused

        self._operate(rng, "pause-moves", pause)

    def split(self, rng: random.Random) -> None:
        """Split a topic's bundle."""
        topic = self._topic(rng)
        unload = rng.random() < 0.5

        async def split(parts: Parts) -> object:
            bundles = await parts.use_cases.namespaces.bundles(topic.namespace)
            if len(bundles.ranges) >= 12:
                return None
            bundle_range = bundles.bundle_of_topic(str(topic)).rpartition("/")[2]
            return await parts.use_cases.splitting.split(
                topic.namespace, bundle_range, unload=unload
            )

        owner = self._owner(topic)
        if owner is None:
            self._request(rng, "split", split)
            return
        if rng.random() < 0.5:  # the store answers late, and there are lookups meanwhile
            owner.store.answer_lag_s = 1.0
            self.world.after(2.0, lambda: setattr(owner.store, "answer_lag_s", 0.0))
            for _ in range(5):
                self.world.after(rng.random() * 3, lambda: self._look_up(owner, topic))
        owner.store.loses_next_answer = rng.random() < 0.3
        if rng.random() < 0.5:  # the other brokers learn of it late, and there are lookups there
            for other in self.cluster.processes():
                if other is not owner:
                    other.store.event_lag_s = 3.0
                    self.world.after(
                        4.0, lambda other=other: setattr(other.store, "event_lag_s", 0.0)
                    )  # type: ignore[misc]
                    self.world.after(
                        rng.random() * 3, lambda other=other: self._look_up(other, topic)
                    )  # type: ignore[misc]
        owner.call(split, "split", lambda value, error: self.world.note(f"split: {error or value}"))

    def _look_up(self, process: Process, topic: TopicName) -> None:
        if process in self.cluster.processes():
            note = self.world.note
            process.call(
                lambda parts: parts.use_cases.directory.lookup(topic, authoritative=True),
                "lookup",
                lambda value, error: note(f"lookup: {error or value}"),
            )

    def _owner(self, topic: TopicName) -> Process | None:
        """The process that serves a topic's bundle, unless it is paused."""
        prefix, value = f"{topic.namespace}/", topic_hash(str(topic))
        for process in self.cluster.processes():
            bundles = [bundle for bundle in process.serving() if bundle.startswith(prefix)]
            if not process.machine.paused and any(
                value in BundleRange.parse(bundle[len(prefix) :]) for bundle in bundles
            ):
                return process
        return None

    def brief_namespace(self, rng: random.Random) -> None:
        """Create a namespace, use it, and delete it, forced."""

        async def create(parts: Parts) -> None:
            await parts.use_cases.namespaces.create_namespace(
                SHORT_LIVED, {"bundles": {"numBundles": 2}}
            )

        async def use(parts: Parts) -> object:
            return await parts.use_cases.directory.lookup(
                TopicName.parse(f"persistent://{SHORT_LIVED}/t"), authoritative=True
            )

        async def delete(parts: Parts) -> None:
            await parts.use_cases.deleting.namespace(SHORT_LIVED, force=True)

        self._request(rng, "create-namespace", create)
        self.world.after(0.5, lambda: self._request(rng, "use-namespace", use))
        self.world.after(1.0, lambda: self._request(rng, "delete-namespace", delete))
        self.world.after(1.01, lambda: self._request(rng, "use-namespace", use))

    def delete_topic(self, rng: random.Random) -> None:
        """Delete a topic, forced; its clients reconnect and create it again."""
        topic = self._topic(rng)
        self._request(
            rng, "delete-topic", lambda parts: parts.use_cases.deleting.topic(topic, force=True)
        )

    def isolation(self, rng: random.Random) -> None:
        """Set or remove an isolation policy."""
        primary = f"b{rng.randrange(len(self.cluster.brokers))}:8080"
        namespaces = [rng.choice(("public/default", "public/.*", "(a+)+", "("))]
        parameters = {"min_limit": "1", "usage_threshold": "100"}
        policy = {
            "namespaces": namespaces,
            "primary": [primary],
            "secondary": [".*"],
            "auto_failover_policy": {"policy_type": "min_available", "parameters": parameters},
        }
        chosen = policy if rng.random() < 0.7 else None
        self._request(
            rng,
            "isolation",
            lambda parts: parts.member.cluster.policies.set_isolation_policy("p", chosen),
        )

    def dynamic(self, rng: random.Random) -> None:
        """Change a dynamic key, sometimes to an invalid value, which the API may not check."""
        name, value = rng.choice(DYNAMIC)
        if rng.random() < 0.7:
            self._request(
                rng,
                "dynamic",
                lambda parts: parts.limits.set_dynamic(name, rng.choice((value, None))),
            )
        else:
            self._write(
                paths.DYNAMIC_CONFIGURATION, f'{{"{name}": "{value}"}}'.encode(), mend=False
            )

    # The store, by hand

    def _write(self, path: str, value: bytes, *, mend: bool) -> None:
        tree = self.cluster.server.tree
        before = tree.nodes.get(path)
        if before is not None and paths.bundle_of_unit_state(path) and session_of(path, before):
            self.overwritten[path] = before
        for parent in _parents(path):
            if parent not in tree.nodes:
                tree.apply([Create(parent, b"")], 0)
        tree.apply([Put(path, value) if before is not None else Create(path, value)], 0)

        def put_back() -> None:
            now = tree.nodes.get(path)
            if now is not None and now.value == value:
                tree.apply([Delete(path) if before is None else Put(path, before.value)], 0)

        if mend:
            self._mend.append(put_back)
            self.world.after(MENDED_AFTER_S, put_back)

    def garbage(self, rng: random.Random) -> None:
        """Write an invalid value somewhere.

        It stays in nodes that no broker needs; other nodes are restored after a while.
        """
        value = GARBAGE[rng.randrange(len(GARBAGE))]
        namespace = rng.choice(NAMESPACES)
        stays = (
            f"{paths.BROKERS}/ghost:1",
            f"{paths.BUNDLE_DATA}/public/default/0x00000000_0x40000000",
            f"{paths.BUNDLE_DATA}/odd",
            f"{paths.BROKER_TIME_AVERAGE}/b0:8080",
            f"{paths.RESOURCE_GROUPS}/odd",
            f"{paths.TOPIC_POLICIES}/public/default/persistent/t0",
            f"{paths.CLUSTERS}/standalone/failureDomain/odd",
            f"{paths.CLUSTERS}/standalone/namespaceIsolationPolicies",
            f"{paths.POLICIES}/public/odd",
            f"{paths.LOCAL_POLICIES}/public/odd",
            f"{paths.LOCKS}/public/odd/0x00000000_0xffffffff",
            paths.DYNAMIC_CONFIGURATION,
            paths.LEDGER_COUNTER,
            f"{paths.PINS}/odd",
            f"{paths.CORDONS}/odd",
            paths.PAUSE,
            f"{paths.MEMORIES}/shedder-OverloadShedder",
            paths.MEMORY_OF_CYCLES,
        )
        live = [
            path
            for path in self.cluster.server.tree.nodes
            if path.startswith(
                (paths.BROKERS + "/", paths.LOCKS + "/public/", paths.UNIT_STATES + "/public/")
            )
            and path.count("/") > 2
        ]
        mended = (
            f"{paths.POLICIES}/{namespace}",
            f"{paths.LOCAL_POLICIES}/{namespace}",
            self.cluster.leader_path,
            *sorted(live),
        )
        if rng.random() < 0.5:
            path = rng.choice(stays)
            self._write(
                path, GHOST if path == stays[0] and rng.random() < 0.5 else value, mend=False
            )
            return
        path = rng.choice(mended)
        if path in self.cluster.server.tree.nodes:
            self._write(path, value, mend=True)

    def delete_node(self, rng: random.Random) -> None:
        """Delete a lock, a registration, the leader's node, the counter of epochs."""
        tree = self.cluster.server.tree
        candidates = [path for path in tree.nodes if paths.bundle_of_lock(path)]
        candidates += [path for path in tree.nodes if paths.bundle_of_unit_state(path)]
        candidates += [path for path in tree.nodes if path.startswith(paths.BROKERS + "/")]
        leader = self.cluster.leader_path
        candidates += [
            path for path in (leader, f"{paths.LEADER_EPOCHS}{leader}") if path in tree.nodes
        ]
        if not candidates:
            return
        path = rng.choice(sorted(candidates))
        for process in self.cluster.processes():
            process.store.answer_lag_s = rng.choice((0.0, 1.0))

        def delete() -> None:
            for process in self.cluster.processes():
                process.store.answer_lag_s = 0.0
            bundle = paths.bundle_of_lock(path) or paths.bundle_of_unit_state(path)
            if bundle is not None and path in tree.nodes:
                self._excuse(bundle, session_of(path, tree.nodes[path]))
            if path in tree.nodes:
                self.world.note(f"delete {path}")
                tree.apply([Delete(path)], 0)

        if rng.random() < 0.5:
            self.world.after(rng.random() * 3, delete)
        else:
            self.cluster.server.after_read[path] = delete

    def _excuse(self, bundle: str, session_id: int) -> None:
        """Excuse what the holder of a lock does while it cannot learn that the lock was deleted:
        until its process runs, reaches the store, and has had an answer from it.
        """
        deleted_s = self.lock_deleted_s[bundle] = self.world.now_s

        def deaf(process: Process) -> bool:
            store = process.store
            return process.machine.paused or not store.reachable or store.heard_s <= deleted_s

        def look_again() -> None:
            processes = self.cluster.processes()
            if any(
                deaf(process)
                and (process.store.session_id == session_id or bundle in process.serving())
                for process in processes
            ):
                self.lock_deleted_s[bundle] = self.world.now_s
                self.world.after(1.0, look_again)

        self.world.after(1.0, look_again)


def session_of(path: str, node: Node, overwritten: Node | None = None) -> int:
    """The session that owns a bundle by a lock or a state record; 0: none. `overwritten`: what a
    record was that cannot be read now.
    """
    if paths.bundle_of_lock(path) is not None:
        return node.ephemeral_owner
    try:
        record = decode_record(node.value)
    except BadInputError:
        return 0 if overwritten is None else session_of(path, overwritten)
    return 0 if record.owner is None else record.owner[1]


def _parents(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


WEIGHTS = {
    "crash": 6,
    "pause": 6,
    "twin": 3,
    "stall": 5,
    "lose_answer": 4,
    "stop": 3,
    "jump": 2,
    "drop": 5,
    "flap": 4,
    "isolate": 6,
    "silence": 4,
    "restart_store": 4,
    "lose": 4,
    "lag": 8,
    "expire": 3,
    "slow_host": 5,
    "unload": 10,
    "unload_namespace": 4,
    "move": 8,
    "cordon": 4,
    "merge": 6,
    "pause_moves": 2,
    "split": 5,
    "brief_namespace": 3,
    "delete_topic": 3,
    "isolation": 3,
    "dynamic": 5,
    "garbage": 8,
    "delete_node": 6,
}
ACTIONS: dict[str, Callable[[Operators, random.Random], None]] = {
    kind: getattr(Operators, kind) for kind in WEIGHTS
}
