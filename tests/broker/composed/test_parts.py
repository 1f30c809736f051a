"""A complete broker without a port needs nothing but its arguments."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

import pytest
from clusters.running import (
    NS,
    Cluster,
    Running,
    a_client,
    a_cluster,
    an_address,
    eventually,
    until,
)
from system.raw import a_send

from loadmanager.broker.settings.live import REJECTED
from loadmanager.broker.topics import limit_telemetry
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.engine.ownership.states import BundleState
from loadmanager.kit.errors import ConflictError, NotFoundError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import KINDS
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.telemetry import Metric
from loadmanager.member import telemetry
from loadmanager.member.leading.leadership import STEPS

TOPIC = TopicName("persistent", NS, "orders")
LOW = "loadBalancerAvgShedderLowThreshold"
FORCED = {"forceDeleteNamespaceAllowed": "true"}
GAUGE = "loadmanager_rejected_dynamic_values"


def gauge(broker: Running, name: str) -> float:
    """A number of the metrics page."""
    return next(sample.value for sample in broker.parts.telemetry.collect() if sample.name == name)


def leader_of(broker: Running) -> str | None:
    """The leader's brokerId, as a broker sees it."""
    leader = broker.use.leading.leader
    return None if leader is None else leader.broker_id


async def place(cluster: Cluster, topic: TopicName) -> None:
    """Look a topic up as a client does, until a broker serves it."""
    asked: Running | None = cluster.brokers[-1]
    redirect, authoritative = True, False
    while redirect:
        assert asked is not None
        found = await asked.use.directory.lookup(topic, authoritative=authoritative)
        asked, redirect, authoritative = (
            cluster.at(found.broker),
            found.redirect,
            found.authoritative,
        )


async def test_three_brokers_in_one_process() -> None:
    """One leads, all see all, bundles are placed and served, and a broker that stops gives its
    bundles back.
    """
    async with a_cluster(brokers=3) as cluster:
        first, *others = cluster.brokers
        assert {leader_of(broker) for broker in others} == {first.address.broker_id}
        for index in range(30):
            await place(cluster, TopicName("persistent", NS, f"t{index}"))
        owned = [bundle for broker in cluster.brokers for bundle in broker.use.ownership.owned()]
        assert len(owned) == len(set(owned))
        assert all(broker.use.ownership.owned() for broker in cluster.brokers)
        await first.parts.stop(0)
        assert not first.use.ownership.owned()
        await until(lambda: leader_of(others[0]) not in (None, first.address.broker_id))
        await until(lambda: len(others[0].use.brokers.registered) == 2)
        assert any(record.kind == "ownership" for record in first.history.records)


@pytest.mark.parametrize("manager", ["ModularLoadManagerImpl", "ExtensibleLoadManagerImpl"])
async def test_a_client_that_comes_before_its_broker_has_heard_that_it_owns_the_bundle(
    manager: str,
) -> None:
    """Other brokers may hear of it first, and tell clients. The topic is opened once it is true."""
    async with a_cluster({"loadManagerClassName": manager}) as cluster:
        (broker,) = cluster.brokers
        bundle = await broker.use.namespaces.bundle_of(TOPIC)
        async with asyncio.TaskGroup() as tasks:
            acquiring = tasks.create_task(broker.use.orders.acquire(bundle))
            while broker.use.ownership.state(bundle) is BundleState.FREE:
                await asyncio.sleep(0)
            assert not acquiring.done()
            assert not broker.use.ownership.served(bundle)
            assert (await broker.parts.hosting.serving.topics.host(TOPIC)).bundle == bundle


async def test_a_bad_value_in_the_store() -> None:
    """A document that is not JSON, or of wrong types, is shown and counted, and changes nothing;
    the next good one acts.
    """
    async with a_cluster() as cluster:
        (broker,) = cluster.brokers
        await broker.set(LOW, "20")
        for bad in (b"{", b"[1]", b'{"%b": {}}' % LOW.encode(), b'{"%b": "41"}' % LOW.encode()):
            await broker.store.put(paths.DYNAMIC_CONFIGURATION, bad)
            await until(lambda: REJECTED in broker.use.settings())
            assert broker.use.settings()[LOW] == "20"
            assert gauge(broker, GAUGE) == 1
            await broker.store.put(paths.DYNAMIC_CONFIGURATION, b'{"%b": "20"}' % LOW.encode())
            await until(lambda: REJECTED not in broker.use.settings())
            assert gauge(broker, GAUGE) == 0


async def test_a_stored_value_that_cannot_act_does_not_stop_a_start() -> None:
    """A broker that starts over a mistyped strategy sheds by its file's, and the other stored
    values act.
    """
    async with a_cluster(brokers=1) as cluster:
        await cluster.brokers[0].store.put(
            paths.DYNAMIC_CONFIGURATION,
            b'{"loadBalancerLoadSheddingStrategy": "Sheder", "%b": "20"}' % LOW.encode(),
        )
        late = Running(cluster, an_address(1), {})
        cluster.brokers.append(late)
        await late.store.__aenter__()
        await late.parts.start()
        shown = late.use.settings()
        assert shown["loadBalancerLoadSheddingStrategy"].endswith("ThresholdShedder")
        assert shown[LOW] == "20"
        assert "Sheder" in shown[REJECTED]


async def test_counters_are_0_before_their_first_event() -> None:
    """Every counter without names of users has a sample, so that an alert sees it grow."""
    async with a_cluster() as cluster:
        (broker,) = cluster.brokers
        zeros = {
            (sample.name, *sample.labels)
            for sample in broker.parts.telemetry.collect()
            if sample.kind == "counter" and sample.value == 0
        }
        for kind in KINDS:
            assert ("loadmanager_corrupt_data", ("kind", kind)) in zeros
        for step in ("sample", "report", "record", *STEPS):
            assert ("pulsar_lb_step_failures", ("step", step)) in zeros
        declared = {
            metric.name
            for module in (telemetry, limit_telemetry)
            for metric in vars(module).values()
            if isinstance(metric, Metric) and metric.kind == "counter"
        }
        of_limits = {name for name in declared if name.startswith("loadmanager_limit_")}
        seen = {sample.name for sample in broker.parts.telemetry.collect()}
        assert declared - of_limits <= seen


async def test_what_clients_cost_is_on_the_metrics_page() -> None:
    """Connections that were refused, and errors of our own that were contained."""
    async with a_cluster({"brokerMaxConnections": "1"}) as cluster:
        (broker,) = cluster.brokers
        refused, failures = "loadmanager_refused_connections", "loadmanager_protocol_failures"
        assert (gauge(broker, refused), gauge(broker, failures)) == (0, 0)
        port = await broker.listen()
        async with a_client(port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: gauge(broker, refused) == 1)
            writer.close()
        broker.parts.hosting.serving.failures.report("a command failed", ValueError("x"))
        assert gauge(broker, failures) == 1


@pytest.mark.parametrize("durable", [True, False])
async def test_a_consumer_that_comes_during_an_unsubscribe_goes_with_its_connection(
    durable: bool,
) -> None:
    """The same consumer id, while the store forgets the subscription of the consumer before."""
    async with a_cluster(bundles=1) as cluster:
        (broker,) = cluster.brokers
        await place(cluster, TOPIC)
        hosting = broker.parts.hosting
        async with a_client(await broker.listen()) as client:
            await client.subscribe(TOPIC)
            again = pb.CommandSubscribe(
                topic=str(TOPIC),
                subscription="other",
                subType=1,
                consumer_id=1,
                request_id=8,
                durable=durable,
            )
            leave = pb.CommandUnsubscribe(consumer_id=1, request_id=9)
            await client.send(encode(unsubscribe=leave), encode(subscribe=again))
            answered = {(await client.take_of(13)).command.success.request_id for _ in range(2)}
            assert answered == {8, 9}
        await until(lambda: not hosting.serving.attachments.connections)
        hosted = await hosting.serving.topics.host(TOPIC)
        assert not hosted.attached
        assert set(hosted.core.subscriptions) == ({"other"} if durable else set())


async def test_concurrent_limits_of_a_namespace_are_not_lost() -> None:
    """What one broker sets while another does stays, of the same field and cluster map, too."""
    async with a_cluster(brokers=2) as cluster:
        limits = [broker.parts.limits for broker in cluster.brokers]
        rates = [{"publishThrottlingRateInMsg": number} for number in range(2)]
        fields = ("publishMaxMessageRate", "topicDispatchRate")
        await asyncio.gather(
            *(
                one.set_namespace_limit(NS, field, rate)
                for one, field, rate in zip(limits, fields, rates, strict=True)
            )
        )
        assert [await limits[0].namespace_limit(NS, field) for field in fields] == rates
        other = {"other": rates[1]}
        await cluster.brokers[0].parts.member.cluster.namespaces.update_policies(
            NS, lambda policies: {**policies, fields[0]: {**policies[fields[0]], **other}}
        )
        await limits[1].set_namespace_limit(NS, fields[0], None)
        assert (await cluster.brokers[0].use.namespaces.policies(NS))[fields[0]] == other


async def test_a_deleted_topic_is_forgotten_by_its_owner() -> None:
    """Clients are told, messages are gone, and other topics of the bundle stay as they are; asked
    of any broker.
    """
    async with a_cluster(brokers=2, bundles=1) as cluster:
        await place(cluster, TOPIC)
        owner = next(broker for broker in cluster.brokers if broker.use.ownership.owned())
        asked = next(broker for broker in cluster.brokers if broker is not owner)
        other = TopicName("persistent", NS, "other")
        (bundle,) = owner.use.ownership.owned()
        port = await owner.listen()
        async with (
            a_client(port) as client,
            a_client(port) as consumer,
            a_client(port) as bystander,
        ):
            await client.produce(TOPIC)
            await client.send(a_send(1), a_send(2))
            await client.take_of(7)
            await bystander.produce(other)
            await consumer.subscribe(TOPIC, permits=10, durable=False)
            with pytest.raises(ConflictError):
                await asked.use.deleting.topic(TOPIC, force=False)
            await asked.use.deleting.topic(TOPIC, force=True)
            assert (await client.take_of(15)).command.close_producer.producer_id == 1
            assert (await consumer.take_of(16)).command.close_consumer.consumer_id == 1
            assert await asked.use.directory.topics_of_namespace(NS, "PERSISTENT") == [str(other)]
            await bystander.send(a_send(1))
            await bystander.take_of(7)
        async with a_client(port) as consumer:
            await consumer.subscribe(TOPIC, permits=10)
            await owner.measure()
            traffic = owner.parts.hosting.topics(bundle).get(str(TOPIC))
            assert traffic is not None
            assert traffic.backlog_messages == 0
        await asked.use.deleting.topic(other, force=True)
        with pytest.raises(NotFoundError):
            await asked.use.deleting.topic(other, force=True)


async def test_a_namespace_is_deleted_though_clients_come_back() -> None:
    """Clients look up and acquire without end meanwhile; afterwards no broker has a bundle of the
    namespace open.
    """
    gone = NamespaceName("public", "gone")
    async with a_cluster(FORCED, brokers=3) as cluster:
        first = cluster.brokers[0].use
        for _ in range(5):
            await first.namespaces.create_namespace(gone, {"bundles": {"numBundles": 8}})
            names = (await first.namespaces.bundles(gone)).names
            deleted = asyncio.Event()

            async def come_back(
                broker: Running, names: Sequence[str] = names, deleted: asyncio.Event = deleted
            ) -> None:
                while not deleted.is_set():
                    for bundle in names:
                        await asyncio.sleep(0)
                        with contextlib.suppress(OperationalError, NotFoundError):
                            await broker.use.orders.acquire(bundle)

            async def delete(deleted: asyncio.Event = deleted) -> None:
                try:
                    await asyncio.sleep(0.02)
                    await first.deleting.namespace(gone, force=True)
                finally:
                    deleted.set()

            await asyncio.gather(delete(), *(come_back(broker) for broker in cluster.brokers))
            for broker in cluster.brokers:
                assert not [
                    bundle
                    for bundle in broker.use.ownership.owned()
                    if bundle.startswith(f"{gone}/")
                ]
                assert not [
                    bundle
                    for bundle in broker.parts.hosting.bundle_stats()
                    if bundle.startswith(f"{gone}/")
                ]
            assert await cluster.brokers[1].store.children(f"{paths.LOCKS}/{gone}") == []
            with pytest.raises(NotFoundError):
                await first.namespaces.bundles(gone)


async def test_an_owner_that_does_not_answer_keeps_a_namespace_marked() -> None:
    """The namespace cannot be used any more, and deleting it again goes on where it stopped."""
    async with a_cluster(FORCED, brokers=2) as cluster:
        first, second = cluster.brokers
        bundle = (await first.use.namespaces.bundles(NS)).names[0]
        await second.use.orders.acquire(bundle)
        # nobody unloads it: brokers that are not here only take note
        cluster.brokers.remove(second)
        with pytest.raises(OperationalError, match="delete it again"):
            await first.use.deleting.namespace(NS, force=True)
        for broker in (first, second):
            await eventually(partial(_is_gone, broker), bool)
        cluster.brokers.append(second)
        await first.use.deleting.namespace(NS, force=True)
        assert not second.use.ownership.owned()
        with pytest.raises(NotFoundError):
            await first.use.deleting.namespace(NS, force=True)


async def _is_gone(broker: Running) -> bool:
    try:
        await broker.use.directory.lookup(TOPIC)
    except NotFoundError:
        return True
    return False
