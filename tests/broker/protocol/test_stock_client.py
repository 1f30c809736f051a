"""The protocol server under the stock client: everything that a Pulsar user expects to work."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pulsar
import pytest
from clusters.standalone import Cluster, wait_for
from system.raw import Raw
from system.workload import client

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode

pytestmark = [pytest.mark.client, pytest.mark.system]

_numbers = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, so that lookups redirect."""
    settings = {"loadBalancerSheddingEnabled": "false"}
    with Cluster(tmp_path_factory.mktemp("cluster"), brokers=2, settings=settings) as running:
        yield running


@pytest.fixture
def user(cluster: Cluster) -> Iterator[pulsar.Client]:
    """A client of both brokers."""
    found = client(cluster.service_url())
    yield found
    found.close()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"persistent://public/default/stock-{next(_numbers)}"


def receive(consumer: pulsar.Consumer, number: int, *, acknowledge: bool = True) -> list[bytes]:
    """The next messages."""
    got = []
    for _ in range(number):
        message = consumer.receive(timeout_millis=60_000)
        got.append(message.data())
        if acknowledge:
            consumer.acknowledge(message)
    return got


def backlog(cluster: Cluster, topic: str, subscription: str) -> int:
    """Messages that it has not acknowledged; -1 without it."""
    path = "/admin/v2/" + topic.replace("://", "/") + "/stats"
    status, stats = cluster.request(0, "GET", path)
    found = stats["subscriptions"] if status == 200 else {}
    return int(found[subscription]["msgBacklog"]) if subscription in found else -1


def nothing_more(consumer: pulsar.Consumer, millis: int = 300) -> None:
    """No message arrives."""
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=millis)


def numbers(first: int, end: int) -> list[bytes]:
    """Payloads in order."""
    return [str(number).encode() for number in range(first, end)]


def publish(producer: pulsar.Producer, first: int, end: int) -> list[pulsar.MessageId]:
    """Send numbered messages one by one."""
    return [producer.send(payload) for payload in numbers(first, end)]


def publish_until_refused(producer: pulsar.Producer) -> None:
    """More than the topic may hold."""
    for _ in range(50):
        producer.send(b"x" * 1000)


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize(
    "compression",
    [
        pulsar.CompressionType.NONE,
        pulsar.CompressionType.LZ4,
        pulsar.CompressionType.ZLib,
        pulsar.CompressionType.ZSTD,
        pulsar.CompressionType.SNAPPY,
    ],
)
def test_batched_and_compressed(
    user: pulsar.Client, topic: str, batching: bool, compression: Any
) -> None:
    """Batches and compressed messages pass through, with properties, keys and event times."""
    consumer = user.subscribe(topic, "s")
    producer = user.create_producer(topic, batching_enabled=batching, compression_type=compression)
    for payload in numbers(0, 50):
        producer.send_async(
            payload * 20,
            lambda *_: None,
            properties={"n": payload.decode()},
            partition_key="k",
            event_timestamp=7,
        )
    producer.flush()
    for payload in numbers(0, 50):
        message = consumer.receive(timeout_millis=60_000)
        assert (message.data(), message.properties()) == (payload * 20, {"n": payload.decode()})
        assert (message.partition_key(), message.event_timestamp()) == ("k", 7)
        consumer.acknowledge(message)


def test_chunked(user: pulsar.Client, topic: str) -> None:
    """A message larger than a frame is sent in chunks and comes back whole."""
    consumer = user.subscribe(topic, "s")
    producer = user.create_producer(topic, chunking_enabled=True)
    payload = bytes(range(256)) * 50_000
    producer.send(payload)
    message = consumer.receive(timeout_millis=60_000)
    assert message.data() == payload
    consumer.acknowledge(message)


def test_exclusive(user: pulsar.Client, topic: str) -> None:
    """A second consumer of an exclusive subscription is refused; another subscription has all
    messages of its own.
    """
    first, other = user.subscribe(topic, "a"), user.subscribe(topic, "b")
    with pytest.raises(pulsar.ConsumerBusy):
        user.subscribe(topic, "a")
    publish(user.create_producer(topic), 0, 5)
    assert receive(first, 5) == receive(other, 5) == numbers(0, 5)


def test_shared(user: pulsar.Client, topic: str) -> None:
    """Two shared consumers divide the messages; what one leaves unacknowledged goes to the other
    when it closes.
    """
    kind = pulsar.ConsumerType.Shared
    first, second = (user.subscribe(topic, "s", kind, receiver_queue_size=10) for _ in range(2))
    publish(user.create_producer(topic), 0, 40)
    got = receive(first, 5) + receive(second, 5)
    first.close()
    assert sorted(got + receive(second, 30)) == sorted(numbers(0, 40))


def test_failover(cluster: Cluster, user: pulsar.Client, topic: str) -> None:
    """One failover consumer is active; the next takes over where it stopped, in order."""
    kind = pulsar.ConsumerType.Failover
    first = user.subscribe(topic, "s", kind, consumer_name="a")
    second = user.subscribe(topic, "s", kind, consumer_name="b")
    producer = user.create_producer(topic)
    publish(producer, 0, 10)
    assert receive(first, 5) == numbers(0, 5)
    wait_for(lambda: backlog(cluster, topic, "s") == 5, "the acknowledgements have arrived")
    first.close()
    assert receive(second, 5) == numbers(5, 10)


def test_negative_acknowledgement(user: pulsar.Client, topic: str) -> None:
    """A message that is refused comes again, counted."""
    consumer = user.subscribe(
        topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=200
    )
    publish(user.create_producer(topic), 0, 2)
    first = consumer.receive(timeout_millis=60_000)
    consumer.acknowledge(consumer.receive(timeout_millis=60_000))
    consumer.negative_acknowledge(first)
    again = consumer.receive(timeout_millis=60_000)
    assert (again.data(), again.redelivery_count()) == (first.data(), 1)
    consumer.acknowledge(again)
    nothing_more(consumer)


def test_dead_letters_wait_in_the_initial_subscription(
    cluster: Cluster, user: pulsar.Client, topic: str
) -> None:
    """The first dead letter is there for whoever subscribes later under that name."""
    policy = pulsar.ConsumerDeadLetterPolicy(
        max_redeliver_count=1,
        dead_letter_topic=f"{topic}-DLQ",
        initial_subscription_name="undertaker",
    )
    consumer = user.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=100,
    )
    user.create_producer(topic).send(b"poison")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(timeout_millis=60_000))

    def buried() -> bool:
        with suppress(pulsar.Timeout):  # the client moves the message while it waits
            consumer.receive(timeout_millis=500)
        return backlog(cluster, f"{topic}-DLQ", "undertaker") == 1

    wait_for(buried, "the message is among the dead letters")
    assert receive(user.subscribe(f"{topic}-DLQ", "undertaker"), 1) == [b"poison"]


def test_exclusive_producers(user: pulsar.Client, topic: str) -> None:
    """One fences the other out, which can send no more; a third is refused."""
    first = user.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    first.send(b"one")
    second = user.create_producer(topic, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
    second.send(b"two")
    with pytest.raises(pulsar.PulsarException):
        first.send(b"three")
    with pytest.raises(pulsar.ProducerFenced):
        user.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    second.send(b"four")


def test_delayed_messages_wait(user: pulsar.Client, topic: str) -> None:
    """A shared subscription gets a message when its producer asked for it, and others meanwhile; an
    exclusive one at once.
    """
    shared = user.subscribe(topic, "shared", consumer_type=pulsar.ConsumerType.Shared)
    exclusive = user.subscribe(topic, "exclusive")
    producer = user.create_producer(topic)
    due_ms = int(time.time() * 1000) + 5000
    producer.send(b"later", deliver_at=due_ms)
    producer.send(b"now")
    assert receive(exclusive, 2) == [b"later", b"now"]
    assert receive(shared, 1) == [b"now"]
    assert receive(shared, 1) == [b"later"]
    assert time.time() * 1000 >= due_ms


def test_cumulative_acknowledgement(user: pulsar.Client, topic: str) -> None:
    """A consumer that comes back finds only what lies after its cumulative acknowledgement."""
    consumer = user.subscribe(topic, "s")
    publish(user.create_producer(topic), 0, 10)
    messages = [consumer.receive(timeout_millis=60_000) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[6])
    consumer.close()
    assert receive(user.subscribe(topic, "s"), 3) == numbers(7, 10)


def test_seek(user: pulsar.Client, topic: str) -> None:
    """A subscription can be set back to a message, to a time, to the begin and to the end."""
    consumer = user.subscribe(topic, "s")
    producer = user.create_producer(topic)
    ids = publish(producer, 0, 5)
    assert receive(consumer, 5) == numbers(0, 5)
    consumer.seek(ids[1])
    assert receive(consumer, 3) == numbers(2, 5)
    time.sleep(0.05)
    now_ms = int(time.time() * 1000)
    time.sleep(0.05)
    publish(producer, 5, 8)
    assert receive(consumer, 3) == numbers(5, 8)
    consumer.seek(now_ms)
    assert receive(consumer, 3) == numbers(5, 8)
    consumer.seek(pulsar.MessageId.earliest)
    assert receive(consumer, 8) == numbers(0, 8)
    consumer.seek(pulsar.MessageId.latest)
    nothing_more(consumer)


def test_readers(user: pulsar.Client, topic: str) -> None:
    """A reader starts at the begin, behind a message or at the end, and knows whether there is
    more.
    """
    producer = user.create_producer(topic)
    ids = publish(producer, 0, 5)
    reader = user.create_reader(topic, pulsar.MessageId.earliest)
    got = []
    while reader.has_message_available():
        got.append(reader.read_next(timeout_millis=60_000).data())
    assert got == numbers(0, 5)
    behind = user.create_reader(topic, ids[2])
    assert [behind.read_next(timeout_millis=60_000).data() for _ in range(2)] == numbers(3, 5)
    end = user.create_reader(topic, pulsar.MessageId.latest)
    assert not end.has_message_available()
    publish(producer, 5, 6)
    assert end.read_next(timeout_millis=60_000).data() == b"5"


@pytest.mark.parametrize("batching", [False, True])
def test_readers_that_include_their_start(
    user: pulsar.Client, topic: str, *, batching: bool
) -> None:
    """A reader that includes its start begins with that message, another one behind it."""
    ids = publish(user.create_producer(topic, batching_enabled=batching), 0, 5)
    for inclusive, first in ((True, 2), (False, 3)):
        reader = user.create_reader(topic, ids[2], start_message_id_inclusive=inclusive)
        got = [reader.read_next(timeout_millis=60_000).data() for _ in range(first, 5)]
        assert got == numbers(first, 5)
        with pytest.raises(pulsar.Timeout):
            reader.read_next(timeout_millis=300)


def test_earliest_and_last_message_id(user: pulsar.Client, topic: str) -> None:
    """A new subscription can begin with the first message; a client reads the last message's id,
    with its batch index.
    """
    producer = user.create_producer(topic, batching_enabled=True)
    for payload in numbers(0, 7):
        producer.send_async(payload, lambda *_: None)
    producer.flush()
    consumer = user.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert receive(consumer, 7) == numbers(0, 7)
    assert consumer.get_last_message_id().batch_index() >= 0


def test_unsubscribe(user: pulsar.Client, topic: str) -> None:
    """A subscription that was given up begins anew at the end; one that was only
    closed does not.
    """
    producer = user.create_producer(topic)
    kept, gone = user.subscribe(topic, "kept"), user.subscribe(topic, "gone")
    kept.close()
    gone.unsubscribe()
    publish(producer, 0, 3)
    assert receive(user.subscribe(topic, "kept"), 3) == numbers(0, 3)
    nothing_more(user.subscribe(topic, "gone"))


def test_partitioned(cluster: Cluster, user: pulsar.Client, topic: str) -> None:
    """A partitioned topic spreads over its partitions; ids tell which; nothing is lost."""
    assert (
        cluster.request(0, "PUT", "/admin/v2/" + topic.replace("://", "/") + "/partitions", 4)[0]
        == 204
    )
    assert cluster.get(1, "/admin/v2/" + topic.replace("://", "/") + "/partitions") == {
        "partitions": 4
    }
    consumer = user.subscribe(topic, "s")
    producer = user.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    publish(producer, 0, 40)
    messages = [consumer.receive(timeout_millis=60_000) for _ in range(40)]
    assert sorted(message.data() for message in messages) == sorted(numbers(0, 40))
    assert {message.message_id().partition() for message in messages} == {0, 1, 2, 3}


def test_subscription_by_pattern(user: pulsar.Client, topic: str) -> None:
    """A pattern finds the namespace's topics that match."""
    for suffix in ("a", "b"):
        publish(user.create_producer(f"{topic}-{suffix}"), 0, 1)
    consumer = user.subscribe(
        re.compile(f"{topic}-.*"), "s", initial_position=pulsar.InitialPosition.Earliest
    )
    assert receive(consumer, 2) == [b"0", b"0"]


def test_schema(user: pulsar.Client, topic: str) -> None:
    """Producers and consumers with a schema are accepted, and values come back typed."""
    consumer = user.subscribe(topic, "s", schema=pulsar.schema.StringSchema())
    user.create_producer(topic, schema=pulsar.schema.StringSchema()).send("grüß")
    assert consumer.receive(timeout_millis=60_000).value() == "grüß"


class Order(pulsar.schema.Record):  # type: ignore[misc]
    """A record."""

    item = pulsar.schema.String()


class OtherOrder(pulsar.schema.Record):  # type: ignore[misc]
    """Another one."""

    item = pulsar.schema.String()
    price = pulsar.schema.Double()


def test_another_schema_is_refused(cluster: Cluster, user: pulsar.Client, topic: str) -> None:
    """Its producer and its consumer hear why; any broker tells the schema, over both protocols."""
    producer = user.create_producer(topic, schema=pulsar.schema.JsonSchema(Order))
    producer.send(Order(item="tea"))
    consumer = user.subscribe(
        topic,
        "s",
        schema=pulsar.schema.JsonSchema(Order),
        initial_position=pulsar.InitialPosition.Earliest,
    )
    assert consumer.receive(timeout_millis=60_000).value().item == "tea"
    other = pulsar.schema.JsonSchema(OtherOrder)
    with pytest.raises(pulsar.IncompatibleSchema):
        user.create_producer(topic, schema=other)
    with pytest.raises(pulsar.IncompatibleSchema):
        user.subscribe(topic, "other", schema=other)
    local = topic.rsplit("/", 1)[1]
    texts = set()
    for broker, port in enumerate(range(cluster.pulsar_port, cluster.pulsar_port + 2)):
        texts.add(cluster.get(broker, f"/admin/v2/schemas/public/default/{local}/schema")["data"])
        with Raw("127.0.0.1", port) as raw:
            raw.greet()
            raw.send(encode(get_schema=pb.CommandGetSchema(topic=topic, request_id=1)))
            answer = raw.take().command.get_schema_response
            texts.add(answer.schema.schema_data.decode())
    assert len(texts) == 1
    assert '"item"' in texts.pop()


def test_unload_under_clients(cluster: Cluster, user: pulsar.Client, topic: str) -> None:
    """A bundle that moves takes its clients along: producer and consumer carry on by themselves,
    and the subscription is known at the new owner.
    """
    consumer, producer = user.subscribe(topic, "s"), user.create_producer(topic)
    publish(producer, 0, 5)
    assert receive(consumer, 5) == numbers(0, 5)
    bundle = cluster.get(0, "/lookup/v2/topic/" + topic.replace("://", "/") + "/bundle")
    for round_number in range(1, 4):
        owner = cluster.owner_of(topic)
        wait_for(lambda: backlog(cluster, topic, "s") == 0, "the acknowledgements have arrived")
        target = cluster.broker_id(1 - owner)
        path = f"/admin/v2/namespaces/public/default/{bundle}/unload?destinationBroker={target}"
        assert cluster.request(0, "PUT", path)[0] == 204
        assert cluster.owner_of(topic) == 1 - owner
        first = 5 * round_number
        publish(producer, first, first + 5)
        assert receive(consumer, 5) == numbers(first, first + 5)


def test_split_under_clients(cluster: Cluster, user: pulsar.Client) -> None:
    """A bundle that is split goes on serving its clients, who notice nothing; the children are
    owned by the same broker.
    """
    assert (
        cluster.request(
            0, "PUT", "/admin/v2/namespaces/public/split", {"bundles": {"numBundles": 1}}
        )[0]
        == 204
    )
    topics = [f"persistent://public/split/t-{number}" for number in range(8)]
    consumers = [user.subscribe(name, "s") for name in topics]
    producers = [user.create_producer(name) for name in topics]
    owner = cluster.owner_of(topics[0])
    assert (
        cluster.request(
            1 - owner, "PUT", "/admin/v2/namespaces/public/split/0x00000000_0xffffffff/split"
        )[0]
        == 204
    )
    halves = ["0x00000000", "0x7fffffff", "0xffffffff"]
    path = "/admin/v2/namespaces/public/split/bundles"
    wait_for(  # a broker that did not split them hears of it from ZooKeeper
        lambda: cluster.get(0, path)["boundaries"] == halves, "the boundaries are known"
    )
    assert {cluster.owner_of(name, asked=1 - owner) for name in topics} == {owner}
    for producer in producers:
        publish(producer, 0, 3)
    assert all(receive(consumer, 3) == numbers(0, 3) for consumer in consumers)


def test_backlog_limit_is_an_error_for_new_producers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A topic that holds as much as it may refuses producers with Pulsar's error."""
    settings = {"backlogQuotaDefaultLimitGB": "2e-5", "defaultRetentionSizeInMB": "0"}
    with Cluster(tmp_path_factory.mktemp("full"), brokers=1, settings=settings) as small:
        user = client(small.service_url())
        name = "persistent://public/default/full"
        user.subscribe(name, "s").close()
        producer = user.create_producer(name, send_timeout_millis=1000)

        def full() -> bool:
            with pytest.raises(pulsar.PulsarException):  # or the machine was busy
                publish_until_refused(producer)
            try:
                user.create_producer(name).close()
            except pulsar.ProducerBlockedQuotaExceededError:
                return True
            return False

        wait_for(full, "new producers are refused")
        wait_for(lambda: small.get(0, "/admin/v2/brokers/health") == "ok", "the broker is well")
        user.close()
