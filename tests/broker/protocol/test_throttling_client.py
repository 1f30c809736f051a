"""Limits under a stock client and real brokers: they hold, a removed limit frees clients at once,
and no client is stuck.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pulsar
import pytest
from clusters.standalone import Cluster, wait_for
from system.workload import client

pytestmark = [pytest.mark.client, pytest.mark.system]

BROKER_LIMIT = "/admin/v2/brokers/configuration/brokerPublisherThrottlingMaxMessageRate"

_numbers = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, so that policies travel and bundles move."""
    settings = {"loadBalancerSheddingEnabled": "false"}
    with Cluster(tmp_path_factory.mktemp("cluster"), brokers=2, settings=settings) as running:
        yield running


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[Callable[[], pulsar.Client]]:
    """Makes clients, each with its own connections."""
    made: list[pulsar.Client] = []

    def make() -> pulsar.Client:
        made.append(client(cluster.service_url()))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"persistent://public/default/limited-{next(_numbers)}"


class Sending:
    """A producer that has everything in flight at once; `done_s` are the times of the receipts."""

    def __init__(self, user: pulsar.Client, topic: str) -> None:
        self.producer = user.create_producer(
            topic, max_pending_messages=10_000, send_timeout_millis=0
        )
        self.sent_s = 0.0
        """When `send` was called last. Measured from there, a slow machine never looks too fast."""
        self.done_s: list[float] = []
        self.errors: list[Any] = []

    def send(self, number: int) -> None:
        """Send that many numbered messages without waiting."""
        self.sent_s = time.monotonic()
        for index in range(number):
            self.producer.send_async(str(index).encode(), self._on_receipt)

    def _on_receipt(self, result: Any, _message_id: Any) -> None:
        if result == pulsar.Result.Ok:
            self.done_s.append(time.monotonic())
        else:
            self.errors.append(result)


def set_rate(cluster: Cluster, topic: str, name: str, **rate: int) -> None:
    """Set a policy of a topic, through the broker that does not own it."""
    other = 1 - cluster.owner_of(topic)
    assert cluster.request(other, "POST", path_of(topic, name), rate)[0] == 204


def path_of(topic: str, name: str) -> str:
    """Admin path of something of a topic."""
    return f"/admin/v2/{topic.replace('://', '/')}/{name}"


def throttling(cluster: Cluster, topic: str) -> Any:
    """Why the topic's producers are slow."""
    return cluster.get(0, path_of(topic, "throttling"))


def limited(cluster: Cluster, topic: str, rate: float) -> None:
    """Wait until the topic's owner enforces exactly this limit in messages."""
    wait_for(
        lambda: (
            [one["configuredMessagesPerS"] for one in throttling(cluster, topic)["limits"]]
            == [rate]
        ),
        f"a limit of {rate}",
    )


def paused(cluster: Cluster, topic: str) -> str:
    """Why the topic's one producer is paused; empty if it is not."""
    (producer,) = throttling(cluster, topic)["producers"]
    return str(producer["why"]) if producer["paused"] else ""


def at_once(consumer: pulsar.Consumer) -> Iterator[bytes]:
    """The messages that come less than 20 ms after one another."""
    while True:
        try:
            yield consumer.receive(timeout_millis=20).data()
        except pulsar.Timeout:
            return


def test_a_flat_out_producer_is_held_to_the_limit_and_freed_at_once(
    cluster: Cluster, clients: Callable[[], pulsar.Client], topic: str
) -> None:
    """Two hundred a second are never exceeded by more than 5 %, the first second included; without
    the limit the rest passes at once.
    """
    sending = Sending(clients(), topic)
    set_rate(cluster, topic, "publishRate", publishThrottlingRateInMsg=200)
    limited(cluster, topic, 200)
    sending.send(5000)
    wait_for(lambda: len(sending.done_s) >= 400, "400 receipts")
    for second in (1, 2):
        done = sum(at < sending.sent_s + second for at in sending.done_s[:400])
        assert done <= 210 * second
    why = wait_for(lambda: paused(cluster, topic), "the producer is paused")
    assert "publish limit of 200 msg/s" in why
    assert cluster.request(0, "DELETE", path_of(topic, "publishRate"))[0] == 204
    wait_for(lambda: len(sending.done_s) == 5000, "the rest")


def test_topic_and_broker_limit_together(
    cluster: Cluster, clients: Callable[[], pulsar.Client], topic: str
) -> None:
    """The smaller one governs; when it is removed on the running brokers the other one does; then
    none.
    """
    sending = Sending(clients(), topic)
    set_rate(cluster, topic, "publishRate", publishThrottlingRateInMsg=300)
    assert cluster.request(0, "POST", f"{BROKER_LIMIT}/50")[0] == 204
    wait_for(lambda: len(throttling(cluster, topic)["limits"]) == 2, "both limits")
    sending.send(990)
    wait_for(lambda: len(sending.done_s) >= 75, "75 receipts")
    assert sending.done_s[74] - sending.sent_s > 1.3
    start, freed_s = len(sending.done_s), time.monotonic()
    assert cluster.request(0, "DELETE", BROKER_LIMIT)[0] == 204
    limited(cluster, topic, 300)
    wait_for(lambda: len(sending.done_s) >= start + 300, "300 more receipts")
    assert sending.done_s[start + 299] - freed_s > 0.8
    assert cluster.request(0, "DELETE", path_of(topic, "publishRate"))[0] == 204
    wait_for(lambda: len(sending.done_s) == 990, "the rest")


def test_a_producer_that_disconnects_while_it_waits(
    cluster: Cluster, clients: Callable[[], pulsar.Client], topic: str
) -> None:
    """A producer that leaves gives up its place in the queue, and the other producers go on."""
    staying, leaving_user = Sending(clients(), topic), clients()
    leaving = Sending(leaving_user, topic)
    set_rate(cluster, topic, "publishRate", publishThrottlingRateInMsg=50)
    limited(cluster, topic, 50)
    leaving.send(500)
    staying.send(5000)
    wait_for(lambda: len(leaving.done_s) > 5 and len(staying.done_s) > 5, "both begin")
    leaving_user.shutdown()
    wait_for(lambda: len(throttling(cluster, topic)["producers"]) == 1, "the broker notices")
    start = len(staying.done_s)
    wait_for(lambda: len(staying.done_s) >= start + 50, "the other goes on")
    assert cluster.request(0, "DELETE", path_of(topic, "publishRate"))[0] == 204
    wait_for(lambda: len(staying.done_s) == 5000, "the rest")
    assert not staying.errors


def test_a_bundle_that_is_unloaded_while_its_producer_waits(
    cluster: Cluster, clients: Callable[[], pulsar.Client], topic: str
) -> None:
    """The producer goes on at the new owner, under the same limit; every message arrives once the
    limit is lifted.
    """
    user = clients()
    consumer = user.subscribe(topic, "s")
    sending = Sending(user, topic)
    set_rate(cluster, topic, "publishRate", publishThrottlingRateInMsg=20)
    limited(cluster, topic, 20)
    sending.send(2000)
    wait_for(lambda: len(sending.done_s) > 10, "it begins")
    assert cluster.request(0, "PUT", "/admin/v2/namespaces/public/default/unload")[0] == 204
    before = len(sending.done_s)
    wait_for(lambda: len(sending.done_s) > before + 5, "it goes on elsewhere")
    limited(cluster, topic, 20)
    assert cluster.request(0, "DELETE", path_of(topic, "publishRate"))[0] == 204
    wait_for(lambda: len(sending.done_s) == 2000, "the rest")
    assert not sending.errors
    got: dict[int, None] = {}
    while len(got) < 2000 - before:
        message = consumer.receive(timeout_millis=60_000)
        consumer.acknowledge(message)
        got[int(message.data())] = None
    assert list(got) == sorted(got)


def test_dispatch_is_paced_and_freed_at_once(
    cluster: Cluster, clients: Callable[[], pulsar.Client], topic: str
) -> None:
    """A backlog comes out at the limit, in order; without the limit the rest comes at once."""
    user = clients()
    user.subscribe(topic, "s").close()
    sending = Sending(user, topic)
    sending.send(5000)
    sending.producer.flush()
    set_rate(cluster, topic, "dispatchRate", dispatchThrottlingRateInMsg=100)
    limited(cluster, topic, 100)
    began_s = time.monotonic()
    consumer = user.subscribe(topic, "s")
    got = [int(consumer.receive(timeout_millis=60_000).data()) for _ in range(200)]
    assert time.monotonic() - began_s > 1.85
    assert cluster.request(0, "DELETE", path_of(topic, "dispatchRate"))[0] == 204
    began_s = time.monotonic()
    got += [int(consumer.receive(timeout_millis=60_000).data()) for _ in range(4800)]
    assert time.monotonic() - began_s < 45  # 48 with the limit
    assert got == list(range(5000))


def test_one_subscription_is_limited_and_another_is_not(
    cluster: Cluster, clients: Callable[[], pulsar.Client], topic: str
) -> None:
    """A policy of one subscription holds for it alone."""
    user = clients()
    slow, fast = (user.subscribe(topic, name) for name in ("slow", "fast"))
    set_rate(cluster, topic, "slow/dispatchRate", dispatchThrottlingRateInMsg=10)
    wait_for(lambda: throttling(cluster, topic)["limits"], "the limit")
    sending, began_s = Sending(user, topic), time.monotonic()
    sending.send(1000)
    sending.producer.flush()
    for _ in range(1000):
        fast.receive(timeout_millis=60_000)
    got = len(list(at_once(slow)))
    assert got < 20 + 10 * (time.monotonic() - began_s)


def test_subscribing_too_often_is_refused(
    cluster: Cluster, clients: Callable[[], pulsar.Client], topic: str
) -> None:
    """The third SUBSCRIBE of one consumer within the window fails, another consumer's does not."""
    user = clients()
    user.subscribe(topic, "s", consumer_name="first").close()
    assert (
        cluster.request(
            0,
            "POST",
            "/admin/v2/namespaces/public/default/subscribeRate",
            {"subscribeThrottlingRatePerConsumer": 1},
        )[0]
        == 204
    )
    try:
        time_limit_s = time.monotonic() + 60
        refused = None
        while refused is None and time.monotonic() < time_limit_s:
            # Consumer ids differ from one consumer to the next of a client, so each try comes from
            # a client of its own.
            # The limit may come into force between two tries: then the next one is refused.
            try:
                for _ in range(2):
                    clients().subscribe(topic, "s", consumer_name="same").close()
            except pulsar.PulsarException as error:
                refused = error
        assert refused is not None
    finally:
        assert (
            cluster.request(0, "DELETE", "/admin/v2/namespaces/public/default/subscribeRate")[0]
            == 204
        )
