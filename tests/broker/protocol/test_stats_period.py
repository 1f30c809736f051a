"""The end of a stats period with many topics: in slices, while topics come and go."""

from __future__ import annotations

import asyncio

from broker.protocol.driven_broker import BUNDLE, Broker
from limits.driven import TOPIC
from system.raw import a_send

from loadmanager.broker.protocol.hosted_topics import MEASURED_AT_ONCE
from loadmanager.kit.names import TopicName
from loadmanager.kit.telemetry import Detail

TOPICS = 10 * MEASURED_AT_ONCE


async def test_clients_are_served_while_topics_are_measured(broker: Broker) -> None:
    """A topic that is closed between two slices is in no sum any more; what clients do between
    them is counted.
    """
    server = broker.server
    connection, _ = await broker.producer()
    names = [TopicName.parse(f"persistent://{TOPIC.namespace}/t-{n}") for n in range(TOPICS)]
    for name in names:
        await server.serving.topics.host(name)
    await broker.say(connection, a_send(1))
    broker.forward(1000)
    measuring = asyncio.ensure_future(server.serving.topics.measure())
    turns = 0
    while not measuring.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 2:
            assert server.close_topic(str(names[-1]), force=False)
            await broker.say(connection, a_send(2))
    assert turns > TOPICS / MEASURED_AT_ONCE
    told = {sample.name: sample.value for sample in server.samples(Detail(0, 0, 0))}
    assert told["pulsar_broker_topics_count"] == TOPICS  # with the producer's
    assert told["pulsar_broker_rate_in"] == 1
    assert told["pulsar_broker_storage_size"] > 0
    broker.forward(1000)
    await server.serving.topics.measure()
    told = {sample.name: sample.value for sample in server.samples(Detail(0, 0, 0))}
    assert told["pulsar_broker_rate_in"] == 1


async def test_a_fenced_bundle_has_no_traffic(broker: Broker) -> None:
    """Nor one that is closed, whoever looks for it."""
    server = broker.server
    await server.serving.topics.host(TOPIC)
    stats = server.bundle_stats()
    assert {bundle: each.topics for bundle, each in stats.items()} == {BUNDLE: 1}
    server.fence_bundle(BUNDLE, 1)
    assert (list(stats), len(stats), stats.get(BUNDLE)) == ([], 0, None)
    await server.close_bundle(BUNDLE, 1, destination=None, timeout_s=1)
    assert (list(stats), len(stats), stats.get(BUNDLE)) == ([], 0, None)
