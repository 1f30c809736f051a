"""Runs the simulation: from a seed to an outcome, which names the broken invariant, if any.

The observer is not part of the cluster. After every step of a machine it compares what the protocol
servers would serve now: no two servers may serve overlapping ranges of a namespace. Also, epochs
must grow, a broker that has read a newer term must refuse the orders of older terms, no broker may
end, and no task may die. Within a bounded time after the faults stop, there must be a leader, every
broker must be ready, clients must be able to find, produce to and consume every topic, and exactly
one broker must serve it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from simulation.clients import BrokenError, Client
from simulation.cluster import Cluster, Process, leader_of
from simulation.operators import NAMESPACES, TOPICS, Event, Operators, draw, session_of
from simulation.world import Machine, SimulationError, World, logs_into

from loadmanager.broker.initialize import record_cluster
from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name, topic_hash
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind, Node
from loadmanager.kit.names import NamespaceName

NOTICE_S = 5.0
"""For so long the owner may not know that its lock or session was deleted (notifications lag)."""
TASKS_MAX = 90
ALWAYS_RUNNING = frozenset(
    (
        "broker/watch-admin",
        "broker/watch-namespace",
        "broker/watch-loadbalance-brokers",
        "broker/lease",
        "broker/session",
        "broker/registration",
        "broker/follow-leader",
        "broker/leadership",
        "broker/sample",
        "broker/report",
        "broker/traffic",
        "broker/keep-alive",
    )
)
"""The tasks that every ready broker must have."""
OF_MANAGER = {
    False: {"broker/watch-loadbalance-leader"},
    True: {
        "broker/watch-loadbalance-extension-leader",
        "broker/watch-service_unit_state",
        "broker/watch-loadbalance-extension-broker-load-data",
        "broker/state-records",
        "broker/publish-load",
        "broker/split",
    },
}
"""Those of the modular manager (False), those of the extensible one."""
MANAGERS = ("modular", "extensible", "changing")
BEGIN_S = 5.0
"""When the first fault may happen: brokers are ready after two seconds."""
COLLECT_EVERY = 10
"""Garbage is collected after so many runs, and not during a run, which would not repeat exactly."""

SETTINGS = {
    "forceDeleteNamespaceAllowed": "true",
    "loadBalancerReportUpdateMinIntervalMillis": "2000",
    "loadBalancerReportUpdateMaxIntervalMinutes": "0.1",
    "loadBalancerHostUsageCheckIntervalMinutes": "0.1",
    "loadBalancerSheddingIntervalMinutes": "0.1",
    "loadBalancerSheddingGracePeriodMinutes": "0.2",
    "loadBalancerSplitIntervalMinutes": "0.1",
    "loadBalancerResourceQuotaUpdateIntervalMinutes": "0.1",
    "loadBalancerLoadSheddingStrategy": "OverloadShedder",
    "loadBalancerNamespaceBundleMaxTopics": "2",
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": "5000",
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": "5",
    "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds": "8",
    "loadBalancerSheddingConditionHitCountThreshold": "0",
    "loadBalanceSheddingDelayInSeconds": "0",
    "loadBalancerBrokerLoadTargetStd": "0.05",
    "brokerShutdownTimeoutMs": "3000",
    "namespaceBundleUnloadingTimeoutMs": "10000",
    "statsUpdateFrequencyInSecs": "10",
    "loadManagerHistoryEnabled": "false",
    "loadManagerUnwellBrokersGiveUp": "false",
}

QUIET_SETTINGS = {
    "loadBalancerReportUpdateMinIntervalMillis": "300000",
    "loadBalancerHostUsageCheckIntervalMinutes": "5",
    "loadBalancerSheddingIntervalMinutes": "5",
    "loadBalancerSplitIntervalMinutes": "5",
    "statsUpdateFrequencyInSecs": "300",
    "keepAliveIntervalSeconds": "600",
    "loadManagerHistoryEnabled": "false",
    "loadManagerUnwellBrokersGiveUp": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a run. `only` keeps some events of the script, by index."""

    seed: int
    brokers: int = 3
    session_timeout_s: float = 4.0
    faults_s: float = 25.0
    settle_s: float = 45.0
    mean_gap_s: float = 0.8
    message_interval_s: float = 1.0
    manager: str = "modular"
    """Or "extensible"; or "changing": processes that start in the second half run that one."""
    hours: float | None = None
    """Set by `quiet`: a long run, with the timings of a large and quiet cluster."""
    kinds: tuple[str, ...] = ()
    """The kinds of events that happen; all of them if empty."""
    only: tuple[int, ...] | None = None

    @staticmethod
    def quiet(seed: int, hours: float, *, brokers: int = 3) -> Plan:
        """Hours of virtual time, cheap to simulate: a session timeout of five minutes, reports and
        decisions every five minutes, a message and a fault every half an hour.
        """
        return Plan(
            seed=seed,
            brokers=brokers,
            session_timeout_s=300.0,
            faults_s=hours * 3600,
            settle_s=3600.0,
            mean_gap_s=1800.0,
            message_interval_s=1800.0,
            hours=hours,
        )

    @property
    def line(self) -> str:
        """The command that repeats the run."""
        kept = f" --kinds {','.join(self.kinds)}" if self.kinds else ""
        kept += "" if self.only is None else f" --only {','.join(map(str, self.only))}"
        length = (
            f"--faults-s {self.faults_s:g}" if self.hours is None else f"--hours {self.hours:g}"
        )
        manager = "" if self.manager == "modular" else f" --manager {self.manager}"
        return (
            f"python -m bench simulation --seed {self.seed} --brokers {self.brokers} {length}"
            f"{manager}{kept}"
        )

    @property
    def extensible_from_s(self) -> float:
        """From when on processes run the extensible manager."""
        half_s = BEGIN_S + self.faults_s / 2
        return {"modular": float("inf"), "extensible": 0.0, "changing": half_s}[self.manager]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    plan: Plan
    failure: str | None
    digest: int
    steps: int
    receipts: int
    broker_hours: float
    log: Sequence[str]
    events: Sequence[Event]


class Observer:
    """Checks the protocol servers after every step."""

    def __init__(self, cluster: Cluster, operators: Operators) -> None:
        self._cluster, self._operators, self._world = cluster, operators, cluster.world
        self._last: dict[Process, dict[str, int]] = {}
        self._locks: dict[tuple[Process, str], str] = {}
        """The lock that the last receipt of a process for a topic stood on."""
        self._epochs: dict[str, int] = {}
        """Leader's node → the epoch of its last term."""
        self._counters_deleted: set[str] = set()
        self.receipts = 0
        cluster.server.on_change = self.on_change
        cluster.server.tree.on_robbery = self.robbed  # type: ignore[method-assign]
        cluster.observe = self.after_step
        cluster.on_receipt = self.sent_receipt

    def on_change(self, change: Change) -> None:
        """Check the epochs when the store changes."""
        path = change.path
        if path in (paths.LEADER, paths.EXTENSIBLE_LEADER) and change.kind is ChangeKind.CREATED:
            epoch = self._cluster.epoch_of(self._cluster.server.tree.nodes[path])
            last = self._epochs.get(path, 0)
            if epoch <= last and path not in self._counters_deleted:
                self._world.fail(f"a term of epoch {epoch} began after one of epoch {last}")
            self._epochs[path] = epoch
            self._counters_deleted.discard(path)
        elif path.startswith(paths.LEADER_EPOCHS) and change.kind is ChangeKind.DELETED:
            self._counters_deleted.add(path.removeprefix(paths.LEADER_EPOCHS))

    def robbed(self, path: str, owner: int, session_id: int) -> None:
        """Fail, because a session deleted a node that another session holds.

        One case is excused: after its lock was deleted by hand, an owner that has not heard of it
        may delete the next owner's lock, because a ZooKeeper transaction cannot check a node's
        session.
        """
        bundle = paths.bundle_of_lock(path)
        if bundle is not None and self._excused(bundle):
            return
        self._world.fail(
            f"session 0x{session_id:x} deleted {path}, which session 0x{owner:x} holds"
        )

    def after_step(self, process: Process) -> None:
        """Check the bundles that a broker began to serve in a turn of its loop."""
        serving, before = process.serving(), self._last.get(process, {})
        if serving != before:
            self._last[process] = serving
            for bundle in sorted(serving.keys() - before.keys()):
                self._check_alone(process, bundle)

    def _check_alone(self, process: Process, bundle: str) -> None:
        namespace, text = split_bundle_name(bundle)
        span = BundleRange.parse(text)
        for other in self._cluster.processes():
            for theirs in other.serving():
                space, part = split_bundle_name(theirs)
                if other is process and theirs == bundle:
                    continue
                if (
                    space == namespace
                    and _overlap(span, BundleRange.parse(part))
                    and not self._excused(bundle, theirs)
                ):
                    self._world.fail(
                        f"two owners: {process.machine.name} serves {bundle} and "
                        f"{other.machine.name} serves {theirs}"
                    )

    def sent_receipt(self, process: Process, topic: str) -> None:
        """Check that a broker which sends a receipt holds the claim of the topic's bundle."""
        nodes = self._cluster.server.tree.nodes
        last = self._locks.get((process, topic), "")
        held = nodes.get(last)
        if held is not None and self._holds(process, last, held):
            return  # by the claim of the last receipt
        namespace, value = topic.partition("://")[2].rpartition("/")[0], topic_hash(topic)
        root = paths.UNIT_STATES if process.extensible else paths.LOCKS
        prefix = f"{root}/{namespace}/"
        for path, node in nodes.items():
            if (
                path.startswith(prefix)
                and self._holds(process, path, node)
                and value in BundleRange.parse(path.removeprefix(prefix))
            ):
                self._locks[process, topic] = path
                return
        if not self._excused(*self._last.get(process, {})):
            self._world.fail(
                f"{process.machine.name} sent a receipt for {topic}, and does not hold the claim "
                "of its bundle"
            )

    def _holds(self, process: Process, path: str, node: Node) -> bool:
        overwritten = self._operators.overwritten.get(path)
        return session_of(path, node, overwritten) == process.store.session_id != 0

    def _excused(self, *bundles: str) -> bool:
        """True if the lock or session was deleted a moment ago, so that its owner cannot know."""
        now_s = self._world.now_s
        if now_s - self._operators.forgotten_s < NOTICE_S:
            return True
        return any(
            now_s - self._operators.lock_deleted_s.get(bundle, -1e9) < NOTICE_S
            for bundle in bundles
        )

    def receipt(self, topic: str, broker: str) -> None:
        """Count a receipt that a client got."""
        self.receipts += 1


def _overlap(one: BundleRange, other: BundleRange) -> bool:
    return one.lower < other.upper and other.lower < one.upper


def run(plan: Plan) -> Outcome:
    """Run a plan to its end."""
    world = World(plan.seed)
    settings = SETTINGS if plan.hours is None else QUIET_SETTINGS
    cluster = Cluster(
        world,
        brokers=plan.brokers,
        session_timeout_s=plan.session_timeout_s,
        settings=settings,
        extensible_from_s=plan.extensible_from_s,
    )
    operators = Operators(cluster)
    observer = Observer(cluster, operators)
    script = draw(
        world.rng,
        from_s=BEGIN_S,
        until_s=BEGIN_S + plan.faults_s,
        mean_gap_s=plan.mean_gap_s,
        of=plan.kinds,
    )
    failure = None
    with logs_into(lambda: world):
        try:
            _run(plan, cluster, operators, observer, script)
        except SimulationError as error:
            failure = str(error)
        finally:
            world.close()
    if plan.seed % COLLECT_EVERY == 0:
        gc.collect()
    hours = plan.brokers * world.now_s / 3600
    return Outcome(
        plan, failure, world.digest, world.steps, observer.receipts, hours, list(world.log), script
    )


def _run(
    plan: Plan,
    cluster: Cluster,
    operators: Operators,
    observer: Observer,
    script: Sequence[Event],
) -> None:
    world = cluster.world
    _prepare(cluster)
    for broker in cluster.brokers:
        world.after(world.rng.random() * 0.5, broker.start)
    world.run_until(
        10.0,
        lambda: (
            all(process.ready for process in cluster.processes())
            and len(cluster.processes()) == plan.brokers
        ),
    )
    clients = world.machine("clients")
    for number, topic in enumerate(TOPICS):
        client = Client(cluster, clients, topic, plan.message_interval_s, observer.receipt)
        clients.go(client.produce(), f"produce-{topic}")
        if number % 2:
            clients.go(client.consume(), f"consume-{topic}")
    for index, event in enumerate(script):
        if plan.only is None or index in plan.only:
            world.at(event.at_s, lambda event=event: operators.carry_out(event))  # type: ignore[misc]
    world.run_until(BEGIN_S + plan.faults_s)
    operators.put_right()
    _settle(plan, cluster, clients)


def _prepare(cluster: Cluster) -> None:
    """Create the cluster's record, a tenant and two namespaces."""
    from loadmanager.kit.conf import Live
    from loadmanager.kit.metadata.memory import MemoryStore
    from loadmanager.member.namespaces import Namespaces
    from loadmanager.member.settings import BrokerSettings

    machine = cluster.world.machine("setup")

    async def prepare() -> None:
        store: MemoryStore = cluster.server.tree.session(timeout_s=1e9)
        async with store:
            await record_cluster(
                store,
                "standalone",
                BrokerAddress("b0:8080", "pulsar://b0:6650", "http://b0:8080"),
            )
            namespaces = Namespaces(store, Live(BrokerSettings()))
            await namespaces.create_tenant("public", {})
            for name in NAMESPACES:
                if name not in await namespaces.namespaces("public"):
                    await namespaces.create_namespace(
                        NamespaceName.parse(name), {"bundles": {"numBundles": 4}}
                    )

    task = machine.go(prepare(), "prepare")
    cluster.world.run_until(5.0, task.done)
    task.result()
    cluster.world.crash(machine)


def _settle(plan: Plan, cluster: Cluster, clients: Machine) -> None:
    """Wait until the cluster has recovered. Raises `SimulationError` with the problems left."""
    world = cluster.world
    end_s = world.now_s + plan.settle_s
    problems: dict[str, str] = {}
    probe = clients.go(_probe_all(cluster, clients, problems), "probe")
    if not world.run_until(end_s, lambda: probe.done() and next(_problems(cluster), None) is None):
        failed = [f"{topic}: {error}" for topic, error in problems.items()]
        raise SimulationError(
            f"{plan.settle_s:g} s after the last fault: "
            + "; ".join([*failed, *_problems(cluster)])
        )
    for process in cluster.processes():
        tasks = [task for task in asyncio.all_tasks(process.machine) if not task.done()]
        if len(tasks) > TASKS_MAX:
            raise SimulationError(f"{process.machine.name} has {len(tasks)} tasks")


async def _probe_all(cluster: Cluster, clients: Machine, problems: dict[str, str]) -> None:
    for topic in TOPICS:
        client = Client(cluster, clients, topic, 1.0, lambda topic, broker: None)
        while True:
            try:
                await client.probe()
            except BrokenError as error:
                problems[topic] = str(error)
                await asyncio.sleep(0.5)
            else:
                problems.pop(topic, None)
                break


def _problems(cluster: Cluster) -> Iterator[str]:
    """What keeps the cluster from having recovered, one after the other."""
    tree = cluster.server.tree.nodes
    for process in cluster.processes():
        for bundle in process.serving():
            if f"{paths.POLICIES}/{split_bundle_name(bundle)[0]}" not in tree:
                yield f"{process.machine.name} serves {bundle} of a namespace that does not exist"
            elif (
                paths.unit_state(bundle) if process.extensible else paths.lock(bundle)
            ) not in tree:
                yield f"{process.machine.name} serves {bundle} without its claim"
    if leader_of(cluster) is None and any(
        process.extensible == cluster.extensible_now() for process in cluster.processes()
    ):
        yield "there is no leader"
    leading = [
        process.machine.name
        for process in cluster.processes()
        if process.parts is not None and process.parts.member.cluster.leading.load_manager
    ]
    if len(leading) != len({process.extensible for process in cluster.processes()}):
        yield f"brokers that lead: {leading}"
    for process in cluster.processes():
        names = {task.get_name() for task in asyncio.all_tasks(process.machine) if not task.done()}
        needed = ALWAYS_RUNNING | OF_MANAGER[process.extensible]
        if process.ready and (ended := needed - names):
            yield f"{process.machine.name} has no task {', '.join(sorted(ended))}"
    for broker in cluster.brokers:
        parts = None if broker.process is None else broker.process.parts
        if parts is None or not broker.process.ready or not parts.use_cases.health.ready():  # type: ignore[union-attr]
            yield f"b{broker.index} is not ready"


def fails(plan: Plan) -> bool:
    """True if a run breaks an invariant."""
    return run(plan).failure is not None


def shorten(plan: Plan, fails: Callable[[Plan], bool] = fails) -> Plan:
    """The same failure with fewer events: leaves out halves, then single events."""
    events = list(plan.only if plan.only is not None else range(len(run(plan).events)))
    size = max(len(events) // 2, 1)
    while True:
        start = 0
        while start < len(events):
            fewer = events[:start] + events[start + size :]
            if fails(replace(plan, only=tuple(fewer))):
                events = fewer
            else:
                start += size
        if size == 1:
            return replace(plan, only=tuple(events))
        size = max(size // 2, 1)
