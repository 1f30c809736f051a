"""What a bundle has stored is recorded with its load."""

from __future__ import annotations

from clusters.running import NS, a_cluster, eventually
from system.raw import a_send

from loadmanager.engine.history.records import BundleLoad
from loadmanager.kit.names import TopicName

TOPIC = TopicName("persistent", NS, "orders")
COUNT = 100


async def test_the_bytes_of_its_topics() -> None:
    """Those of the bundle with the topic, which was written to; other bundles have none."""
    async with a_cluster({"loadManagerHistoryIntervalSeconds": "0.1"}) as cluster:
        (broker,) = cluster.brokers
        port = await broker.listen()
        await broker.serve(TOPIC)
        bundle = await broker.use.namespaces.bundle_of(TOPIC)
        client = await cluster.connect(port)
        await client.produce(TOPIC)
        await client.send(*(a_send(sequence_id) for sequence_id in range(1, COUNT + 1)))
        for _ in range(COUNT):
            await client.take_of(7)
        host = await broker.parts.hosting.serving.topics.host(TOPIC)
        stored = host.core.log.bytes
        assert stored > COUNT

        async def recorded() -> set[tuple[bool, int | None]]:
            await broker.measure()
            return {
                (load.bundle == bundle, load.stored_bytes)
                for load in list(broker.history.records)
                if isinstance(load, BundleLoad)
            }

        await eventually(recorded, lambda loads: (True, stored) in loads)
