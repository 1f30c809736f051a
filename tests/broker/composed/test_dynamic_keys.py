"""Every key that is called dynamic changes what a running broker does, at once: each is changed as
an operator does, and its effect seen from outside.

A new dynamic key without a line in `CASES` fails.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from clusters.running import NS, Client, Cluster, Running, a_cluster, eventually, until, usage
from structlog.testing import capture_logs
from system.raw import a_send

from loadmanager.broker import settings
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.wishes import Pause
from loadmanager.engine.moves.move import Author, MoveState
from loadmanager.engine.strategies.plan import Unload
from loadmanager.engine.strategies.plan_document import PlanShown, UnloadShown
from loadmanager.engine.strategies.splitting.merging import MERGE_RULES
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.operations import Operations

Observe = Callable[[], Awaitable[object]]
Watch = Callable[[Cluster], Awaitable[Observe]]

MIB = 1024 * 1024
A, B, C, D = (
    f"{NS}/0x{low:08x}_0x{low + 0x10000000:08x}" for low in range(0, 0x40000000, 0x10000000)
)
TOPIC = TopicName("persistent", NS, "orders")
DAY_MINUTES = "1440"
UNIFORM, AVG, OVERLOAD, TRANSFER = (
    {"loadBalancerLoadSheddingStrategy": name}
    for name in ("UniformLoadShedder", "AvgShedder", "OverloadShedder", "TransferShedder")
)
TRANSFER_NOW = {**TRANSFER, "loadBalancerSheddingConditionHitCountThreshold": "0"}
AVG_NOW = {**AVG, "loadBalancerAvgShedderHitCountLowThreshold": "1"}
UNEVEN = {"loadBalancerDistributeBundlesEvenlyEnabled": "false"}
SPLIT_SOON = {"loadBalancerSplitIntervalMinutes": "0.01"}
_numbers = itertools.count()


@dataclass(frozen=True)
class Case:
    """A cluster is brought where `watch` can see what a key does: `before`, and `after` it was set
    to `value`.
    """

    value: str
    watch: Watch
    before: object
    after: object
    values: Mapping[str, str] = field(default_factory=dict)
    cpu_percent: float = 10


def a_bundle(
    mib_per_s: float, rate: float, *, topics: int = 2, producers: int = 0
) -> NamespaceBundleStats:
    """Traffic of one bundle."""
    return NamespaceBundleStats(
        msg_throughput_in=mib_per_s * MIB, msg_rate_in=rate, topics=topics, producer_count=producers
    )


BUNDLES = {A: a_bundle(40, 6000), B: a_bundle(30, 5000), C: a_bundle(10, 1000)}


async def reported(cluster: Cluster, name: str, *args: Any, **fields: Any) -> None:
    """A broker that only reports has reported, and the leader knows."""
    await cluster.report(name, *args, **fields)
    await until(lambda: name in cluster.brokers[0].use.brokers.registered)


async def dry_run(cluster: Cluster) -> PlanShown:
    """The plan of a dry run."""
    return cluster.brokers[0].operations.plans.dry_run(None, None, {}).plan


async def moves(cluster: Cluster) -> list[UnloadShown]:
    """The moves among it."""
    return (await dry_run(cluster)).unloads


# What is shed. Broker hot:1 is at 90 % of something, and this one at 10 % of its CPU.


def shed(**resource: float) -> Watch:
    """The bundles that leave the hot broker."""
    used = {name: usage(percent) for name, percent in (resource or {"cpu": 90}).items()}

    async def watch(cluster: Cluster) -> Observe:
        await reported(cluster, "hot:1", BUNDLES, **used)

        async def observe() -> object:
            return [move.bundle for move in await moves(cluster)]

        return observe

    return watch


async def shed_an_old_report(cluster: Cluster) -> Observe:
    """Like `shed`, by a report that is a minute and a half old."""
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(90), age_s=90)

    async def observe() -> object:
        return bool(await moves(cluster))

    return observe


async def shed_by_policy(cluster: Cluster) -> Observe:
    """Like `shed`, for a namespace under an isolation policy that allows all brokers."""
    policy = {
        "namespaces": [str(NS)],
        "primary": [".*"],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
        "unload_scope": "none",
    }
    await cluster.brokers[0].parts.member.cluster.policies.set_isolation_policy("all", policy)
    return await shed()(cluster)


async def strategy(cluster: Cluster) -> Observe:
    """The name of the strategy that decides."""
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(90))

    async def observe() -> object:
        return (await dry_run(cluster)).strategy

    return observe


async def reasons(cluster: Cluster) -> Observe:
    """Why bundles would move."""
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(90))

    async def observe() -> object:
        return sorted({move.reason for move in await moves(cluster)})

    return observe


async def destination(cluster: Cluster) -> Observe:
    """The destination of the hot broker's bundle: p:1 has few messages, much of the namespace and
    many topics; this one is overloaded.
    """
    await reported(cluster, "p:1", {D: a_bundle(1, 100, topics=100)}, cpu=usage(5), num_topics=100)
    await reported(
        cluster, "p:2", {"public/other/0x00000000_0xffffffff": a_bundle(1, 10_000)}, cpu=usage(30)
    )
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(90))

    async def observe() -> object:
        return {move.destination for move in await moves(cluster)}

    return observe


async def transfer_destination(cluster: Cluster) -> Observe:
    """Like `destination`, where the least used broker is not the one with the fewest messages."""
    await reported(cluster, "p:1", {D: a_bundle(0, 10_000)}, cpu=usage(5))
    await reported(cluster, "p:2", cpu=usage(30))
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(90))

    async def observe() -> object:
        return {move.destination for move in await moves(cluster)}

    return observe


async def decided(cluster: Cluster, kind: str) -> list[DecisionShown]:
    """The leader's decisions of a kind, newest first."""
    told = cluster.brokers[0].operations.overview.decisions(
        bundle=None, broker=None, since_ms=None, until_ms=None, limit=1000
    )
    return [item for item in told.decisions if item.kind == kind]


async def shedding_cycles(cluster: Cluster) -> Observe:
    """Whether there was a shedding cycle."""

    async def observe() -> object:
        return bool(await decided(cluster, "shed"))

    return observe


async def one_cycle(cluster: Cluster) -> None:
    """One shedding cycle runs, and no other for a day."""
    await cluster.brokers[0].set("loadBalancerSheddingIntervalMinutes", "0.01")
    await eventually(lambda: decided(cluster, "shed"), bool)
    await cluster.brokers[0].set("loadBalancerSheddingIntervalMinutes", DAY_MINUTES)


async def shed_after_a_move(cluster: Cluster) -> Observe:
    """Whether the bundle that was just moved is exempt."""
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(90))
    await one_cycle(cluster)
    await until(lambda: cluster.released[:1] == [A])

    async def observe() -> object:
        manager: Any = cluster.brokers[0].load_manager
        return A in manager.snapshot(manager.strategies.value).recently_unloaded_ms

    return observe


# The queue of moves


async def a_queue(cluster: Cluster) -> Moves:
    """The leader's queue; hot:1 and p:1 only report."""
    await reported(cluster, "hot:1", BUNDLES)
    await reported(cluster, "p:1")
    operations = cluster.brokers[0].parts.member.cluster.leading.operations
    assert isinstance(operations, Operations)
    return operations.moves


def eight_moves() -> list[Unload]:
    """From hot:1 to p:1; each time of other bundles."""
    names = [f"public/default/0x{next(_numbers):08x}_0xffffffff" for _ in range(8)]
    return [Unload(name, "hot:1", "p:1", "test") for name in names]


async def moves_under_way(cluster: Cluster) -> Observe:
    """How many of eight moves are under way at once."""
    cluster.slow = asyncio.Event()
    queue = await a_queue(cluster)
    queue.decide(eight_moves(), Author.CYCLE)
    return _value(queue.queue.running)


async def moves_made(cluster: Cluster) -> Observe:
    """How many of eight moves have begun."""
    (await a_queue(cluster)).decide(eight_moves(), Author.CYCLE)
    return _value(lambda: len(cluster.released))


async def moves_queued(cluster: Cluster) -> Observe:
    """How many of eight moves wait while the queue is paused."""
    queue = await a_queue(cluster)
    await queue.cluster.wishes.set_pause(Pause(queue.term.clock.now_ms() + 1_000_000), ())

    async def observe() -> object:
        queue.cancel(None)
        queue.decide(eight_moves(), Author.CYCLE)
        return queue.queue.waiting

    return observe


async def moves_waiting(cluster: Cluster) -> Observe:
    """How many of eight moves wait still, although the queue is paused."""
    observe = await moves_queued(cluster)
    await observe()
    queue = await a_queue(cluster)
    return _value(lambda: queue.queue.waiting)


MERGES = {
    "loadManagerBundleMergeIdleMinutes": "0.01",
    "loadManagerBundleMergeMinimumBundles": "1",
    "loadBalancerSplitIntervalMinutes": "0.01",
}


async def merged(cluster: Cluster) -> Observe:
    """Whether two bundles of ours, with a topic each, have become one."""
    broker, namespace = cluster.brokers[0], await a_namespace(cluster, 2)
    for number in range(8):
        await broker.serve(TopicName("persistent", namespace, f"t{number}"))

    async def observe() -> object:
        return len((await broker.use.namespaces.bundles(namespace)).ranges) == 1

    return observe


async def first_cycle(cluster: Cluster) -> Observe:
    """Whether there was a cycle, though most brokers reported before the term began."""
    broker = cluster.brokers[0]
    for name in ("one:1", "two:1", "three:1"):
        await cluster.report(name)
    await broker.parts.member._election.resign(campaign_again=True)
    await until(lambda: broker.parts.member.cluster.leading.load_manager is None)
    await until(lambda: broker.parts.member.cluster.leading.load_manager is not None)
    load_manager = broker.load_manager
    assert isinstance(load_manager, LoadManager)
    return _value(lambda: load_manager.cycles > 0)


async def moves_given_up(cluster: Cluster) -> Observe:
    """Whether a move that takes long is given up."""
    cluster.slow = asyncio.Event()
    queue = await a_queue(cluster)

    async def observe() -> object:
        queue.decide(eight_moves()[:1], Author.CYCLE)
        return any(move.state is MoveState.FAILED for move in queue.queue.ended)

    return observe


async def cool_down(cluster: Cluster) -> Observe:
    """Whether the leader waits, because it has just moved a bundle from the hot broker."""
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(90))
    await one_cycle(cluster)
    await until(lambda: cluster.released[:1] == [C])
    await asyncio.sleep(0.01)
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(90))

    async def observe() -> object:
        return any(skip.reason.startswith("CoolDown") for skip in (await dry_run(cluster)).skipped)

    return observe


async def shed_after_a_quiet_cycle(cluster: Cluster) -> Observe:
    """Like `shed`, for a broker that was idle in the cycle before."""
    await reported(cluster, "hot:1", BUNDLES, cpu=usage(10))
    await one_cycle(cluster)
    return await shed()(cluster)


# Where unowned bundles are placed


async def placed(cluster: Cluster, namespace: NamespaceName) -> tuple[str, ...]:
    """The candidates for the bundle of a new namespace."""
    await cluster.brokers[0].use.directory.lookup(TopicName("persistent", namespace, "t"))
    return tuple((await decided(cluster, "place"))[0].candidates or ())


async def a_namespace(cluster: Cluster, bundles: int | None = 1) -> NamespaceName:
    """A new one."""
    namespace = NamespaceName(NS.tenant, f"n{next(_numbers)}")
    await cluster.brokers[0].use.namespaces.create_namespace(
        namespace, {"bundles": {"numBundles": bundles}} if bundles else {}
    )
    return namespace


async def candidates(cluster: Cluster) -> Observe:
    """Brokers well below the average of 55 %: two at 30 % and 40 %."""
    await reported(cluster, "p:1", cpu=usage(30))
    await reported(cluster, "p:2", cpu=usage(40))

    async def observe() -> object:
        return await placed(cluster, await a_namespace(cluster))

    return observe


async def candidates_of_a_group(cluster: Cluster) -> Observe:
    """Brokers for a namespace of an anti-affinity group, another one of which is in the eastern
    domain.
    """
    policies, served = cluster.brokers[0].parts.member.cluster.policies, await a_namespace(cluster)
    await policies.set_anti_affinity_group(served, "g")
    await policies.set_failure_domain("east", ["p:1", "p:2"])
    await policies.set_failure_domain("west", ["b0:8080"])
    await reported(cluster, "p:1", {f"{served}/0x00000000_0xffffffff": a_bundle(1, 1)})
    await reported(cluster, "p:2")

    async def observe() -> object:
        namespace = await a_namespace(cluster)
        for group in ("g", None):
            await policies.set_anti_affinity_group(namespace, group)
            await eventually(
                lambda: _members(cluster),
                lambda names, group=group: (str(namespace) in names) == (group is not None),
            )
            if group is not None:
                found = await placed(cluster, namespace)
        return found

    return observe


async def _members(cluster: Cluster) -> list[str]:
    """The namespaces of the group, as the leader knows them."""
    groups = cluster.brokers[0].parts.member.cluster.policies.groups
    return sorted(namespace for namespace, group in groups.items() if group == "g")


# Splits


def split(**stats: Any) -> Watch:
    """The bundles that the leader has had split."""

    async def watch(cluster: Cluster) -> Observe:
        await reported(cluster, "hot:1", {A: a_bundle(40, 6000, **stats), B: a_bundle(1, 1)})

        async def observe() -> object:
            return [bundle for bundle, _ in cluster.split]

        return observe

    return watch


async def unload_of_children(cluster: Cluster) -> Observe:
    """Whether the next bundle's children are to be unloaded."""
    big: dict[str, NamespaceBundleStats] = {}
    waiting = iter((A, B, C))

    async def observe() -> object:
        big[next(waiting)] = a_bundle(1, 1, topics=500)
        await reported(cluster, "hot:1", big)
        await eventually(_value(lambda: len(cluster.split)), lambda count: count == len(big))
        return cluster.split[-1][1]

    return observe


def own_split(algorithm: str | None = None, topics: int = 0) -> Watch:
    """By how many bundles a bundle of ours is replaced, by an operator's order; with topics that
    have traffic in it.
    """

    async def watch(cluster: Cluster) -> Observe:
        broker = cluster.brokers[0]
        namespace = await a_namespace(cluster, 1 if topics else 64)
        if topics:
            await publish(
                cluster,
                [TopicName("persistent", namespace, f"t{index}") for index in range(topics)],
            )

        async def observe() -> object:
            before = await broker.use.namespaces.bundles(namespace)
            span = str(before.ranges[0])
            try:
                await broker.use.splitting.split(namespace, span, algorithm=algorithm, unload=False)
            except ConflictError as error:
                return 1 if "is not split" in str(error) else "refused"
            return (
                1
                + len((await broker.use.namespaces.bundles(namespace)).ranges)
                - len(before.ranges)
            )

        return observe

    return watch


async def publish(cluster: Cluster, topics: list[TopicName], count: int = 100) -> None:
    """Clients publish so many messages to each topic, and the traffic is measured."""
    broker = cluster.brokers[0]
    port = await broker.listen()
    for topic in topics:
        await broker.serve(topic)
        client = await cluster.connect(port)
        await client.produce(topic)
        await client.send(*(a_send(sequence_id) for sequence_id in range(1, count + 1)))
        for _ in range(count):
            await client.take_of(7)
    await broker.measure()


# Reports, history, sampling


def stored_report(reads: Callable[[Running, bytes, int], object], cpu_percent: float = 15) -> Watch:
    """The broker's published report after its CPU usage changed."""

    async def watch(cluster: Cluster) -> Observe:
        broker = cluster.brokers[0]
        path = paths.broker(broker.address.broker_id)
        first = await broker.store.get(path)
        assert first is not None
        broker.sampler.cpu_percent = cpu_percent
        samples = broker.sampler.samples
        await eventually(_value(lambda: broker.sampler.samples), lambda count: count >= samples + 2)

        async def observe() -> object:
            node = await broker.store.get(path)
            assert node is not None
            return reads(broker, node.value, node.version - first.version)

        return observe

    return watch


def _cpu(_broker: Running, value: bytes, _writes: int) -> object:
    return msgspec.json.decode(value)["cpu"]["usage"]


def _value(read: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def value() -> Any:
        return read()

    return value


def counted(count: Callable[[Running], int], at_least: int) -> Watch:
    """Whether something happened so often."""

    async def watch(cluster: Cluster) -> Observe:
        before = count(cluster.brokers[0])
        return _value(lambda: count(cluster.brokers[0]) - before >= at_least)

    return watch


async def expected_brokers(cluster: Cluster) -> Observe:
    """How many brokers the leader's list of members expects."""

    def expected() -> object:
        members = cluster.brokers[0].parts.member.cluster.leading.members
        return None if members is None else members.shown().expected

    return _value(expected)


async def stored_averages(cluster: Cluster) -> Observe:
    """Of how many bundles the leader stores averages."""
    await reported(cluster, "hot:1", BUNDLES)

    async def observe() -> object:
        return len(await cluster.brokers[0].store.children(f"{paths.BUNDLE_DATA}/{NS}"))

    return observe


async def recorded_topics(cluster: Cluster) -> Observe:
    """Whether the history gets records of topics."""
    await cluster.brokers[0].serve(TOPIC)
    return _value(lambda: cluster.brokers[0].history.count("topic_load") > 0)


# What clients and operators ask


async def default_bundles(cluster: Cluster) -> Observe:
    """Bundles of a namespace that is created without a number."""

    async def observe() -> object:
        return len(
            (
                await cluster.brokers[0].use.namespaces.bundles(await a_namespace(cluster, None))
            ).ranges
        )

    return observe


async def concurrent_lookups(cluster: Cluster) -> Observe:
    """How many of two lookups at once are refused."""

    async def observe() -> object:
        topics = [TopicName("persistent", await a_namespace(cluster), "t") for _ in range(2)]
        answers = await asyncio.gather(
            *(cluster.brokers[0].use.directory.lookup(topic) for topic in topics),
            return_exceptions=True,
        )
        return sum(isinstance(answer, OperationalError) for answer in answers)

    return observe


async def creation_of_topics(cluster: Cluster) -> Observe:
    """Whether a topic that does not exist is created for a client."""

    async def observe() -> object:
        try:
            await cluster.brokers[0].use.directory.partitions(
                TopicName("persistent", NS, f"t{next(_numbers)}"), create=True
            )
        except NotFoundError:
            return False
        return True

    return observe


async def topics_of_a_namespace(cluster: Cluster) -> Observe:
    """How many of two topics of a new namespace may be made."""

    async def observe() -> object:
        namespace = await a_namespace(cluster)
        topics = [TopicName("persistent", namespace, name) for name in ("a", "b")]
        answers = await asyncio.gather(
            *(cluster.brokers[0].use.directory.open_topic(topic) for topic in topics),
            return_exceptions=True,
        )
        return sum(not isinstance(answer, BadInputError) for answer in answers)

    return observe


async def another_namespace(cluster: Cluster) -> Observe:
    """Whether a tenant that has namespaces may have another one."""

    async def observe() -> object:
        try:
            await a_namespace(cluster)
        except BadInputError:
            return False
        return True

    return observe


async def memory_limit(cluster: Cluster) -> Observe:
    """How much memory the broker says that it may use, in MiB."""
    return _value(lambda: cluster.brokers[0].parts.hosting.usage().memory_limit_bytes // MIB)


async def forced_deletion(cluster: Cluster) -> Observe:
    """Whether a namespace may be deleted by force."""

    async def observe() -> object:
        try:
            await cluster.brokers[0].use.deleting.namespace(await a_namespace(cluster), force=True)
        except BadInputError:
            return False
        return True

    return observe


async def closing_cut_short(cluster: Cluster) -> Observe:
    """Whether an unload of many topics gives up telling clients, on a broker where every turn of
    the loop takes 60 ms.
    """
    broker = cluster.brokers[0]

    async def block() -> None:
        while True:
            time.sleep(0.06)  # noqa: ASYNC251 - what a busy event loop is like
            await asyncio.sleep(0)

    async def observe() -> object:
        namespace = await a_namespace(cluster)
        for index in range(300):
            await broker.serve(TopicName("non-persistent", namespace, f"t{index}"))
        busy = cluster.scope.spawn(block(), "busy")
        with capture_logs() as logs:
            await broker.use.unloading.namespace(namespace)
        busy.cancel()
        return any("takes too long" in line["event"] for line in logs)

    return observe


async def stop_cut_short(cluster: Cluster) -> Observe:
    """Whether a stop that unloads one bundle a second ends within half a second, with five to
    unload.
    """
    broker = cluster.brokers[0]
    for bundle in (await broker.use.namespaces.bundles(NS)).names[:5]:
        await broker.use.orders.acquire(bundle)

    async def observe() -> object:
        try:
            async with asyncio.timeout(0.5):
                await broker.parts.stop(1)
        except TimeoutError:
            return False
        return True

    return observe


# Rate limits


def limit(name: str, unit: str) -> Watch:
    """A configured rate, as the broker tells it of what is open."""

    async def watch(cluster: Cluster) -> Observe:
        broker = cluster.brokers[0]
        await broker.serve(TOPIC)
        if " s " in name:
            await (await cluster.connect(await broker.listen())).subscribe(TOPIC, permits=1)

        async def observe() -> object:
            report = msgspec.to_builtins(broker.parts.limits.broker_throttling())
            limits = {item["name"]: item for item in report["limits"]}
            return limits[name][f"configured{unit}PerS"] if name in limits else None

        return observe

    return watch


def subscribes(after_s: float) -> Watch:
    """Whether the same consumer may subscribe, and again so much later."""

    async def watch(cluster: Cluster) -> Observe:
        broker = cluster.brokers[0]
        await broker.serve(TOPIC)
        port = await broker.listen()

        async def subscribe() -> bool:
            return (await (await cluster.connect(port)).subscribe(TOPIC)).command.type == 13

        async def observe() -> object:
            first = await subscribe()
            broker.clock.limits_ahead_s += after_s
            return first, await subscribe()

        return observe

    return watch


async def delivered(cluster: Cluster) -> Observe:
    """Whether a consumer has got all messages of a topic, under a limit of one a second."""
    broker = cluster.brokers[0]
    await publish(cluster, [TOPIC], 20)
    consumer = await cluster.connect(await broker.listen())
    await consumer.subscribe(TOPIC, permits=1000)
    got: list[int] = []
    cluster.scope.spawn(_deliveries(consumer, got), "deliveries")
    return _value(lambda: len(got) == 20)


async def _deliveries(consumer: Client, got: list[int]) -> None:
    """Write down what a consumer gets."""
    while True:
        got.append((await consumer.take_of(9, within_s=60)).command.message.message_id.entryId)


async def turns(cluster: Cluster) -> Observe:
    """Whether a shared consumer gets more than one message at a turn, beside another one."""
    broker = cluster.brokers[0]
    await broker.serve(TOPIC)
    port = await broker.listen()
    got: list[list[int]] = [[], []]
    for index, entries in enumerate(got):
        consumer = await cluster.connect(port)
        await consumer.subscribe(TOPIC, consumer_id=index + 1, permits=1000)
        cluster.scope.spawn(_deliveries(consumer, entries), "deliveries")
    producer = await cluster.connect(port)
    await producer.produce(TOPIC)
    sequence_ids = itertools.count(1)

    async def observe() -> object:
        for entries in got:
            entries.clear()
        await producer.send(*(a_send(next(sequence_ids)) for _ in range(40)))
        await eventually(_value(lambda: sum(map(len, got))), lambda count: count == 40)
        return any(
            later == earlier + 1
            for entries in got
            for earlier, later in itertools.pairwise(entries)
        )

    return observe


async def room_for_a_third_request(cluster: Cluster) -> Observe:
    """Whether a role with two requests in progress may ask something else."""
    turns = cluster.brokers[0].parts.hosting.serving.turns
    party = turns.party("role")
    party.requests = 2
    return _value(lambda: turns.may_ask(party))


async def too_many_refusals(cluster: Cluster) -> Observe:
    """Whether a role that is refused again and again was refused too often."""
    turns = cluster.brokers[0].parts.hosting.serving.turns
    party = turns.party("role")
    return _value(lambda: turns.refused(party))


CASES = {
    "allowAutoTopicCreation": Case("false", creation_of_topics, True, False),
    "brokerPublisherThrottlingMaxByteRate": Case("70", limit("broker publish", "Bytes"), None, 70),
    "brokerPublisherThrottlingMaxMessageRate": Case(
        "7", limit("broker publish", "Messages"), None, 7
    ),
    "brokerShutdownTimeoutMs": Case("100", stop_cut_short, False, True),
    "defaultNamespaceBundleSplitAlgorithm": Case("topic_count_equally_divide", own_split(), 2, 1),
    "defaultNumberOfNamespaceBundles": Case("7", default_bundles, 4, 7),
    "dispatchThrottlingOnNonBacklogConsumerEnabled": Case(
        "false", delivered, False, True, {"dispatchThrottlingRatePerSubscriptionInMsg": "1"}
    ),
    "dispatchThrottlingRateInByte": Case("70", limit("broker dispatch", "Bytes"), None, 70),
    "dispatchThrottlingRateInMsg": Case("7", limit("broker dispatch", "Messages"), None, 7),
    "dispatchThrottlingRatePerSubscriptionInByte": Case(
        "70", limit(f"{TOPIC} s dispatch", "Bytes"), None, 70
    ),
    "dispatchThrottlingRatePerSubscriptionInMsg": Case(
        "7", limit(f"{TOPIC} s dispatch", "Messages"), None, 7
    ),
    "dispatchThrottlingRatePerTopicInByte": Case(
        "70", limit(f"{TOPIC} dispatch", "Bytes"), None, 70
    ),
    "dispatchThrottlingRatePerTopicInMsg": Case(
        "7", limit(f"{TOPIC} dispatch", "Messages"), None, 7
    ),
    "dispatcherMaxRoundRobinBatchSize": Case("1", turns, True, False),
    "failureDomainsEnabled": Case(
        "true",
        candidates_of_a_group,
        ("b0:8080", "p:2"),
        ("b0:8080",),
        {**AVG, "loadBalancerLoadPlacementStrategy": "AvgShedder"},
    ),
    "flowOrQpsDifferenceThresholdPercentage": Case(
        "10",
        own_split("flow_or_qps_equally_divide", topics=2),
        1,
        2,
        {
            "flowOrQpsDifferenceThresholdPercentage": "1000000000",
            "loadBalancerNamespaceBundleMaxMsgRate": "1",
        },
    ),
    "forceDeleteNamespaceAllowed": Case("true", forced_deletion, False, True),
    "loadBalanceSheddingDelayInSeconds": Case("0", cool_down, True, False, TRANSFER_NOW),
    "loadBalancerAutoBundleSplitEnabled": Case(
        "true",
        split(topics=2000),
        [],
        [A],
        {**SPLIT_SOON, "loadBalancerAutoBundleSplitEnabled": "false"},
    ),
    "loadBalancerAutoUnloadSplitBundlesEnabled": Case(
        "false",
        unload_of_children,
        True,
        False,
        {**SPLIT_SOON, "loadBalancerNamespaceBundleMaxTopics": "100"},
    ),
    "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": Case(
        "20",
        candidates,
        ("p:1", "p:2"),
        ("p:1",),
        {"loadBalancerLoadPlacementStrategy": "LeastResourceUsageWithWeight"},
        95,
    ),
    "loadBalancerAvgShedderHighThreshold": Case(
        "90", shed(), [C], [], {**AVG, "loadBalancerAvgShedderHitCountHighThreshold": "1"}
    ),
    "loadBalancerAvgShedderHitCountHighThreshold": Case("1", shed(), [], [C], AVG),
    "loadBalancerAvgShedderHitCountLowThreshold": Case("1", shed(), [], [C], AVG),
    "loadBalancerAvgShedderLowThreshold": Case(
        "95", shed(), [C], [], {**AVG_NOW, "loadBalancerAvgShedderHighThreshold": "100"}
    ),
    "loadBalancerBandwidthInResourceWeight": Case("0", shed(bandwidth_in=90), [A], []),
    "loadBalancerBandwidthOutResourceWeight": Case("0", shed(bandwidth_out=90), [A], []),
    "loadBalancerBrokerLoadDataTTLInSeconds": Case("30", shed_an_old_report, True, False),
    "loadBalancerBrokerLoadTargetStd": Case(
        "0.9", reasons, ["Overloaded"], ["Underloaded"], TRANSFER_NOW
    ),
    "loadBalancerBrokerMaxTopics": Case("10", destination, {"p:1"}, {"p:2"}, UNEVEN, 95),
    "loadBalancerBrokerOverloadedThresholdPercentage": Case("95", shed(), [A], [], OVERLOAD),
    "loadBalancerBrokerThresholdShedderPercentage": Case("60", shed(), [A], []),
    "loadBalancerBundleUnloadMinThroughputThreshold": Case("1000", shed(), [A], []),
    "loadBalancerCPUResourceWeight": Case("0", shed(), [A], []),
    "loadBalancerDirectMemoryResourceWeight": Case("1", shed(direct_memory=90), [], [A]),
    "loadBalancerDistributeBundlesEvenlyEnabled": Case(
        "false", destination, {"p:2"}, {"p:1"}, {}, 95
    ),
    "loadBalancerHistoryResourcePercentage": Case("0", shed_after_a_quiet_cycle, [], [A]),
    "loadBalancerHostUsageCheckIntervalMinutes": Case(
        "0.005",
        counted(lambda broker: broker.sampler.samples, 3),
        False,
        True,
        {"loadBalancerHostUsageCheckIntervalMinutes": DAY_MINUTES},
    ),
    "loadBalancerLoadSheddingStrategy": Case(
        "OverloadShedder", strategy, "ThresholdShedder", "OverloadShedder"
    ),
    "loadBalancerMaxNumberOfBrokerSheddingPerCycle": Case("0", shed(), [C], [], TRANSFER_NOW),
    "loadBalancerMaxNumberOfBundlesInBundleLoadReport": Case(
        "-1",
        stored_averages,
        2,
        3,
        {
            "loadBalancerMaxNumberOfBundlesInBundleLoadReport": "1",
            "loadBalancerResourceQuotaUpdateIntervalMinutes": "0.01",
        },
    ),
    "loadBalancerMemoryResourceWeight": Case("1", shed(memory=90), [], [C], TRANSFER_NOW),
    "loadBalancerMsgRateDifferenceShedderThreshold": Case(
        "0",
        shed(),
        [C],
        [],
        {**UNIFORM, "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": "0"},
    ),
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": Case(
        "0", shed(), [C], [], {**UNIFORM, "loadBalancerMsgRateDifferenceShedderThreshold": "0"}
    ),
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": Case("35", split(), [], [A], SPLIT_SOON),
    "loadBalancerNamespaceBundleMaxMsgRate": Case("5500", split(), [], [A], SPLIT_SOON),
    "loadBalancerNamespaceBundleMaxSessions": Case(
        "100", split(producers=500), [], [A], SPLIT_SOON
    ),
    "loadBalancerNamespaceBundleMaxTopics": Case("100", split(topics=500), [], [A], SPLIT_SOON),
    "loadBalancerNamespaceMaximumBundles": Case("64", own_split(), 2, "refused"),
    "loadBalancerReportUpdateMaxIntervalMinutes": Case(
        "0.01",
        stored_report(lambda _broker, _value, writes: writes >= 2),
        False,
        True,
        {
            "loadBalancerReportUpdateThresholdPercentage": "100000",
            "loadBalancerHostUsageCheckIntervalMinutes": "0.005",
        },
    ),
    "loadBalancerReportUpdateMinIntervalMillis": Case(
        "50",
        stored_report(_cpu, 90),
        10,
        90,
        {
            "loadBalancerReportUpdateMinIntervalMillis": "900000",
            "loadBalancerHostUsageCheckIntervalMinutes": "0.005",
        },
    ),
    "loadBalancerReportUpdateThresholdPercentage": Case(
        "1", stored_report(_cpu), 10, 15, {"loadBalancerHostUsageCheckIntervalMinutes": "0.005"}
    ),
    "loadBalancerSheddingBundlesWithPoliciesEnabled": Case(
        "true", shed_by_policy, [], [C], TRANSFER_NOW
    ),
    "loadBalancerSheddingConditionHitCountThreshold": Case("0", shed(), [], [C], TRANSFER),
    "loadBalancerSheddingEnabled": Case("false", shed(), [A], []),
    "loadBalancerSheddingExcludedNamespaces": Case(str(NS), shed(), [A], []),
    "loadBalancerSheddingGracePeriodMinutes": Case("0", shed_after_a_move, True, False),
    "loadBalancerSheddingIntervalMinutes": Case(
        "0.01", shedding_cycles, False, True, {"loadBalancerSheddingIntervalMinutes": DAY_MINUTES}
    ),
    "loadBalancerTransferEnabled": Case(
        "false", transfer_destination, {"p:1"}, {"p:2"}, {**TRANSFER_NOW, **UNEVEN}, 95
    ),
    "loadManagerExpectedBrokers": Case("5", expected_brokers, 0, 5),
    "loadManagerBalancedDifferencePercent": Case(
        "1000000",
        shed(),
        [A],
        [],
        {
            "loadBalancerLoadSheddingStrategy": "BalancedShedder",
            "loadBalancerLoadPlacementStrategy": "BalancedPlacement",
        },
    ),
    "loadManagerHistoryIntervalSeconds": Case(
        "0.1",
        counted(lambda broker: broker.history.count("broker_load"), 3),
        False,
        True,
        {"loadManagerHistoryIntervalSeconds": "86400"},
    ),
    "loadManagerHistoryMaxTopics": Case(
        "5",
        recorded_topics,
        False,
        True,
        {"loadManagerHistoryIntervalSeconds": "0.1", "loadManagerHistoryMaxTopics": "0"},
    ),
    "loadManagerBundleMergeEnabled": Case("true", merged, False, True, MERGES),
    "loadManagerBundleMergeIdleMinutes": Case(
        "0.01",
        merged,
        False,
        True,
        {
            **MERGES,
            "loadManagerBundleMergeEnabled": "true",
            "loadManagerBundleMergeIdleMinutes": "600",
        },
    ),
    "loadManagerBundleMergeLoadFraction": Case(
        "0.4",
        merged,
        False,
        True,
        {
            **MERGES,
            "loadManagerBundleMergeEnabled": "true",
            "loadManagerBundleMergeLoadFraction": "0",
        },
    ),
    "loadManagerBundleMergeRule": Case(
        "any_two",
        merged,
        False,
        True,
        {
            **MERGES,
            "loadManagerBundleMergeEnabled": "true",
            "loadManagerBundleMergeLoadFraction": "0",
        },
    ),
    "loadManagerBundleMergeMinimumBundles": Case(
        "1",
        merged,
        False,
        True,
        {
            **MERGES,
            "loadManagerBundleMergeEnabled": "true",
            "loadManagerBundleMergeMinimumBundles": "99",
        },
    ),
    "loadManagerMaxRefusedRequestsPerSecondPerRole": Case(
        "0",
        too_many_refusals,
        True,
        False,
        {"loadManagerMaxRefusedRequestsPerSecondPerRole": "1"},
    ),
    "loadManagerMaxRequestsInProgressPerRole": Case("2", room_for_a_third_request, True, False),
    "loadManagerMovesAtOnceMax": Case(
        "5",
        moves_under_way,
        2,
        5,
        {
            "loadManagerMovesAtOnceMax": "2",
            "loadManagerMovesPerSourceMax": "99",
            "loadManagerMovesPerDestinationMax": "99",
        },
    ),
    "loadManagerMovesPerCycleMax": Case("0", shed(), [A], []),
    "loadManagerMovesPerDestinationMax": Case(
        "5",
        moves_under_way,
        2,
        5,
        {"loadManagerMovesPerDestinationMax": "2", "loadManagerMovesPerSourceMax": "99"},
    ),
    "loadManagerMovesPerMinuteMax": Case(
        "5", moves_made, 2, 5, {"loadManagerMovesPerMinuteMax": "2"}
    ),
    "loadManagerMovesPerSourceMax": Case(
        "5",
        moves_under_way,
        2,
        5,
        {"loadManagerMovesPerSourceMax": "2", "loadManagerMovesPerDestinationMax": "99"},
    ),
    "loadManagerMovesQueueMax": Case("3", moves_queued, 8, 3),
    "loadManagerMovesTTLInSeconds": Case("1", moves_waiting, 8, 0),
    "loadManagerMovesTimeoutInSeconds": Case("1", moves_given_up, False, True),
    "loadManagerMovesWarmUpInSeconds": Case(
        "0",
        first_cycle,
        False,
        True,
        {
            "loadManagerMovesWarmUpInSeconds": "3600",
            "loadBalancerSheddingIntervalMinutes": "0.01",
        },
    ),
    "maxConcurrentLookupRequest": Case("1", concurrent_lookups, 0, 1),
    "maxMessagePublishBufferSizeInMB": Case("76", memory_limit, 1024 + 256 + 256, 1024 + 76 + 256),
    "maxNamespacesPerTenant": Case("1", another_namespace, True, False),
    "maxPublishRatePerTopicInBytes": Case("70", limit(f"{TOPIC} publish", "Bytes"), None, 70),
    "maxPublishRatePerTopicInMessages": Case("7", limit(f"{TOPIC} publish", "Messages"), None, 7),
    "maxTopicsPerNamespace": Case("1", topics_of_a_namespace, 2, 1),
    "maxUnloadBundleNumPerShedding": Case("0", shed(), [C], [], UNIFORM),
    "maxUnloadPercentage": Case("0", shed(), [C], [], UNIFORM),
    "minUnloadMessage": Case("100000", shed(), [C], [], UNIFORM),
    "minUnloadMessageThroughput": Case(
        "1000000000",
        shed(),
        [C],
        [],
        {**UNIFORM, "loadBalancerMsgRateDifferenceShedderThreshold": "0"},
    ),
    "namespaceBundleUnloadingTimeoutMs": Case("100", closing_cut_short, False, True),
    "subscribeRatePeriodPerConsumerInSecond": Case(
        "1",
        subscribes(1.1),
        (True, False),
        (True, True),
        {
            "subscribeThrottlingRatePerConsumer": "1",
            "subscribeRatePeriodPerConsumerInSecond": "3600",
        },
    ),
    "subscribeThrottlingRatePerConsumer": Case("1", subscribes(0), (True, True), (True, False)),
}


@pytest.fixture
def any_two() -> Iterator[None]:
    """A merge rule, as an installed package brings it."""
    MERGE_RULES["any_two"] = lambda *_: True
    yield
    del MERGE_RULES["any_two"]


@pytest.mark.usefixtures("any_two")
@pytest.mark.parametrize("key", settings.KEYS.dynamic_names())
async def test_every_dynamic_key_acts(key: str) -> None:
    """On a running broker, without a restart."""
    case = CASES[key]
    async with a_cluster(case.values, cpu_percent=case.cpu_percent) as cluster:
        observe = await case.watch(cluster)
        await eventually(observe, lambda seen: seen == case.before)
        await cluster.brokers[0].set(key, case.value)
        await eventually(observe, lambda seen: seen == case.after)


def test_every_case_is_of_a_dynamic_key() -> None:
    """No case outlives its key."""
    assert sorted(CASES) == settings.KEYS.dynamic_names()
