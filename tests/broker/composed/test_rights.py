"""What roles may do over the binary protocol, and that it ends when it is taken away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from clusters.running import Client, Cluster, Running, a_cluster, until
from kit.security.tokens import ADMIN, VALUES, token, verifier

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, encode
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import write_object
from loadmanager.kit.names import NamespaceName, TopicName

ACME = NamespaceName("acme", "orders")
OTHER = NamespaceName("acme", "other")
TOPIC = TopicName("persistent", ACME, "new")
ELSEWHERE = TopicName("persistent", OTHER, "new")
SUCCESS, ERROR, CLOSE_PRODUCER, CLOSE_CONSUMER, PRODUCER_SUCCESS = 13, 14, 15, 16, 17
WITHIN_S = 30.0
"""The broker acts when its watch tells it; a busy machine may take its time."""
ROLES = ("admin", "boss", "writer", "reader", "both", "narrow", "stranger")
GRANTS: dict[str, Any] = {
    "namespace_auth": {
        "writer": ["produce"],
        "reader": ["consume"],
        "both": ["produce", "consume"],
        "narrow": ["produce", "consume"],
    },
    "destination_auth": {},
    "subscription_auth_roles": {"closed": ["reader", "both"]},
}
PRODUCING = {"admin", "boss", "writer", "both", "narrow"}
CONSUMING = {"admin", "boss", "reader", "both", "narrow"}


def a_producer(initial: str = "", number: int = 1, topic: TopicName = TOPIC) -> bytes:
    """PRODUCER, with the name of an initial subscription."""
    asked = pb.CommandProducer(topic=str(topic), producer_id=number, request_id=number)
    if initial:
        asked.initial_subscription_name = initial
    return encode(producer=asked)


def a_consumer(subscription: str, number: int = 1, topic: TopicName = TOPIC) -> bytes:
    """SUBSCRIBE."""
    asked = pb.CommandSubscribe(
        topic=str(topic),
        subscription=subscription,
        subType=1,
        consumer_id=number,
        request_id=number,
    )
    return encode(subscribe=asked)


def a_lookup() -> bytes:
    """LOOKUP."""
    return encode(lookup=pb.CommandLookupTopic(topic=str(TOPIC), request_id=1, authoritative=True))


def a_metadata() -> bytes:
    """PARTITIONED_METADATA."""
    asked = pb.CommandPartitionedTopicMetadata(topic=str(TOPIC), request_id=1)
    return encode(partition_metadata=asked)


def a_listing() -> bytes:
    """GET_TOPICS_OF_NAMESPACE."""
    return encode(get_topics=pb.CommandGetTopicsOfNamespace(namespace=str(ACME), request_id=1))


def a_schema() -> bytes:
    """GET_SCHEMA."""
    return encode(get_schema=pb.CommandGetSchema(topic=str(TOPIC), request_id=1))


def a_new_schema() -> bytes:
    """GET_OR_CREATE_SCHEMA."""
    schema = pb.Schema(name="s", type=1, schema_data=b"")
    asked = pb.CommandGetOrCreateSchema(topic=str(TOPIC), request_id=1, schema=schema)
    return encode(get_or_create_schema=asked)


COMMANDS: Mapping[str, tuple[bytes, set[str]]] = {
    "lookup": (a_lookup(), PRODUCING | CONSUMING),
    "partitions": (a_metadata(), PRODUCING | CONSUMING),
    "topics": (a_listing(), PRODUCING | CONSUMING),
    "schema": (a_schema(), PRODUCING | CONSUMING),
    "new schema": (a_new_schema(), PRODUCING),
    "produce": (a_producer(), PRODUCING),
    "produce, with a subscription": (a_producer("planted"), PRODUCING & CONSUMING),
    "produce, with a closed subscription": (a_producer("closed"), {"admin", "boss", "both"}),
    "subscribe": (a_consumer("s"), CONSUMING),
    "subscribe to what is closed": (a_consumer("closed"), {"admin", "boss", "reader", "both"}),
}
"""Command → its frame, and the roles that may use it."""


async def grant(broker: Running, grants: Mapping[str, Any], namespace: NamespaceName) -> None:
    """Replace the permissions on a namespace."""
    await broker.use.namespaces.update_policies(
        namespace, lambda policies: {**policies, "auth_policies": dict(grants)}
    )


@asynccontextmanager
async def secured(brokers: int = 1) -> AsyncIterator[Cluster]:
    """Brokers with a tenant acme, whose administrator is `boss`, and the permissions `GRANTS`."""
    async with a_cluster(VALUES, brokers=brokers, bundles=4, verifier=verifier()) as cluster:
        first = cluster.brokers[0]
        await first.use.namespaces.create_tenant("acme", {"adminRoles": ["boss"]})
        for namespace in (ACME, OTHER):
            await first.use.namespaces.create_namespace(namespace, {"bundles": {"numBundles": 1}})
            await grant(first, GRANTS, namespace)
        yield cluster


async def answer_to(client: Client, frame: bytes) -> pb.BaseCommand:
    """The answer to a command, whatever it is."""
    await client.send(frame)
    return (await client.take()).command


def refused(command: pb.BaseCommand) -> bool:
    """True if it says that the role may not do it."""
    if command.HasField("error"):
        return command.error.error == pb.AuthorizationError
    for field in ("lookup_response", "partition_metadata_response"):
        if command.HasField(field):
            answer = getattr(command, field)
            return bool(answer.HasField("error") and answer.error == pb.AuthorizationError)
    return False


async def test_roles_and_commands() -> None:
    """Each role may use the commands that it is permitted, and no other; a producer that creates a
    subscription needs what its consumer needs, and plants nothing when it is refused.
    """
    async with secured() as cluster:
        (broker,) = cluster.brokers
        await broker.serve(TOPIC)
        port = await broker.listen()
        topics = broker.parts.hosting.topic_host
        for role in ROLES:
            for name, (frame, allowed) in COMMANDS.items():
                client = await cluster.connect(port, token(role))
                answer = await answer_to(client, frame)
                assert refused(answer) is (role not in allowed), (role, name, answer)
                client.close()
                for planted in {"planted", "closed"} & set(await topics.subscriptions(TOPIC)):
                    assert role in allowed, (role, name)
                    await topics.delete_subscription(TOPIC, planted, force=True)


async def test_stats_name_the_roles_of_clients() -> None:
    """Of producers and of consumers."""
    async with secured() as cluster:
        (broker,) = cluster.brokers
        await broker.serve(TOPIC)
        await attached(cluster, await broker.listen(), "both")
        stats = await broker.parts.hosting.topic_host.stats(TOPIC)
        (producer,), (consumer,) = (
            stats["publishers"],
            stats["subscriptions"]["of-both"]["consumers"],
        )
        assert (producer["role"], consumer["role"]) == ("both", "both")


async def attached(
    cluster: Cluster, port: int, role: str, topic: TopicName = TOPIC
) -> tuple[Client, Client]:
    """Clients of a role with a producer, and with a consumer of a subscription of its own."""
    producing = await cluster.connect(port, token(role))
    answer = await answer_to(producing, a_producer(topic=topic))
    assert answer.HasField("producer_success"), answer
    consuming = await cluster.connect(port, token(role))
    answer = await answer_to(consuming, a_consumer(f"of-{role}", topic=topic))
    assert answer.HasField("success"), answer
    return producing, consuming


async def closed_within(client: Client, kind: int) -> Frame:
    """The command that closes what a client attached."""
    return await client.take_of(kind, WITHIN_S)


def without(role: str) -> dict[str, Any]:
    """`GRANTS` without those of a role."""
    return {**GRANTS, "namespace_auth": {**GRANTS["namespace_auth"], role: []}}


async def test_a_permission_that_is_taken_away_ends_its_clients() -> None:
    """Its producers and consumers are closed, and refused when they come back; nobody else's."""
    async with secured() as cluster:
        (broker,) = cluster.brokers
        for topic in (TOPIC, ELSEWHERE):
            await broker.serve(topic)
        port = await broker.listen()
        gone = await attached(cluster, port, "both")
        stays = await attached(cluster, port, "narrow")
        elsewhere = await attached(cluster, port, "both", ELSEWHERE)
        await grant(broker, without("both"), ACME)
        assert (
            await closed_within(gone[0], CLOSE_PRODUCER)
        ).command.close_producer.producer_id == 1
        assert (
            await closed_within(gone[1], CLOSE_CONSUMER)
        ).command.close_consumer.consumer_id == 1
        for client, frame in zip(gone, (a_producer(), a_consumer("of-both")), strict=True):
            assert refused(await answer_to(client, frame))
        for client in (*stays, *elsewhere):
            await client.send(encode(ping=pb.CommandPing()))
            assert (await client.take()).command.HasField("pong")


async def test_one_of_two_permissions() -> None:
    """Who may only consume any more keeps the consumer, and loses the producer."""
    async with secured() as cluster:
        (broker,) = cluster.brokers
        await broker.serve(TOPIC)
        producing, consuming = await attached(cluster, await broker.listen(), "both")
        now = {**GRANTS, "namespace_auth": {"both": ["consume"]}}
        await grant(broker, now, ACME)
        await closed_within(producing, CLOSE_PRODUCER)
        await consuming.send(encode(ping=pb.CommandPing()))
        assert (await consuming.take()).command.HasField("pong")


@pytest.mark.parametrize("admins", [[], ["other"], None])
async def test_an_administrator_who_is_none_any_more(admins: list[str] | None) -> None:
    """The administrators of a tenant lose what they had by it, in all of its namespaces."""
    async with secured() as cluster:
        (broker,) = cluster.brokers
        clients = []
        for topic in (TOPIC, ELSEWHERE):
            await broker.serve(topic)
            clients += await attached(cluster, await broker.listen(), "boss", topic)
        info = {} if admins is None else {"adminRoles": admins}
        await broker.store.put(f"{paths.POLICIES}/acme", write_object(info))
        for client, kind in zip(clients, (CLOSE_PRODUCER, CLOSE_CONSUMER) * 2, strict=True):
            await closed_within(client, kind)


async def test_on_every_broker() -> None:
    """The change is made at one broker, and acts at the other, which serves the topic."""
    async with secured(brokers=2) as cluster:
        asked, serving = cluster.brokers
        await serving.serve(TOPIC)
        clients = await attached(cluster, await serving.listen(), "both")
        await grant(asked, without("both"), ACME)
        for client, kind in zip(clients, (CLOSE_PRODUCER, CLOSE_CONSUMER), strict=True):
            await closed_within(client, kind)


async def test_a_change_while_it_attaches() -> None:
    """A producer whose permission goes after the check, and before it is attached, goes."""
    async with secured() as cluster:
        (broker,) = cluster.brokers
        await broker.serve(TOPIC)
        port = await broker.listen()
        client = await cluster.connect(port, token("both"))
        # The namespace's new policies are there when the check has been made and the topic opens.
        hosting, going_on = broker.parts.hosting, asyncio.Event()
        hosting.close_topic(str(TOPIC), force=True)
        open_topic = hosting.serving.directory.open_topic

        class Slow:
            """The broker's directory, which opens topics when it is told to."""

            def __getattr__(self, name: str) -> Any:
                return getattr(directory, name)

            async def open_topic(self, topic: TopicName) -> Any:
                opening.set()
                await going_on.wait()
                return await open_topic(topic)

        directory, opening = hosting.serving.directory, asyncio.Event()
        hosting.serving.directory = Slow()
        await client.send(a_producer())
        await opening.wait()
        access = broker.parts.access
        assert access is not None
        before = access.changes
        await grant(broker, without("both"), ACME)
        await until(lambda: access.changes > before)
        going_on.set()
        await closed_within(client, CLOSE_PRODUCER)


async def test_other_changes_cost_what_is_attached_there() -> None:
    """A change of a namespace looks at its producers and consumers only."""
    async with secured() as cluster:
        (broker,) = cluster.brokers
        for topic in (TOPIC, ELSEWHERE):
            await broker.serve(topic)
        port = await broker.listen()
        for topic in (TOPIC, ELSEWHERE):
            await attached(cluster, port, "both", topic)
        hosting = broker.parts.hosting
        assert hosting.client_access is not None
        rights, access = hosting.client_access.rights, broker.parts.access
        assert access is not None
        await until(lambda: not rights._changed)
        before, changes = rights.checked, access.changes
        await grant(broker, GRANTS, ACME)
        await until(lambda: access.changes > changes and rights.checked == before + 2)
        await grant(broker, {**GRANTS, "destination_auth": {str(TOPIC): {ADMIN: []}}}, ACME)
        await until(lambda: rights.checked == before + 4)
