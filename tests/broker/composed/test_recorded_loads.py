"""What a broker records as its load is the mean of all that it carried since the last record."""

from __future__ import annotations

from clusters.running import NS, Cluster, Running, a_cluster
from system.raw import a_send

from loadmanager.engine.history.records import BrokerLoad, BundleLoad, TopicLoad
from loadmanager.kit.names import TopicName

ORDERS, BILLS = (TopicName("persistent", NS, name) for name in ("orders", "bills"))
Load = BrokerLoad | BundleLoad | TopicLoad


async def send(cluster: Cluster, broker: Running, topic: TopicName, count: int) -> None:
    """Publish, and wait for every receipt."""
    client = await cluster.connect(await broker.listen())
    await client.produce(topic)
    await client.send(*(a_send(number) for number in range(1, count + 1)))
    for _ in range(count):
        await client.take_of(7)
    client.close()


async def sampled(broker: Running) -> dict[str, int]:
    """Broker, bundle or topic → the messages that the next record of it stands for."""
    recorder = broker.parts.member._recorder
    assert recorder is not None
    broker.history.records.clear()
    await recorder.sample()
    return {
        name_of(it): round(it.msg_rate_in * it.interval_ms / 1000)
        for it in broker.history.records
        if isinstance(it, Load)
    }


def name_of(load: Load) -> str:
    if isinstance(load, BrokerLoad):
        return "broker"
    return load.bundle if isinstance(load, BundleLoad) else load.topic


async def test_a_burst_between_two_measurements_is_in_the_mean() -> None:
    """No period of statistics ends in this test. What a topic carried that was closed meanwhile
    is in its bundle's mean, and what a bundle carried that was given up is in its broker's.
    """
    async with a_cluster(brokers=1) as cluster:
        (broker,) = cluster.brokers
        await broker.serve(ORDERS)
        await broker.serve(BILLS)
        bundles = [await broker.use.namespaces.bundle_of(it) for it in (ORDERS, BILLS)]
        await sampled(broker)
        await send(cluster, broker, ORDERS, 300)
        carried = await sampled(broker)
        assert (carried["broker"], carried[bundles[0]], carried[str(ORDERS)]) == (300, 300, 300)
        assert carried[str(BILLS)] == 0

        await send(cluster, broker, BILLS, 50)
        assert broker.parts.hosting.close_topic(str(BILLS), force=True)
        carried = await sampled(broker)
        assert (carried["broker"], carried[bundles[1]], carried[str(ORDERS)]) == (50, 50, 0)
        assert str(BILLS) not in carried

        await send(cluster, broker, ORDERS, 70)
        await broker.use.orders.release(bundles[0], None)
        carried = await sampled(broker)
        assert carried["broker"] == 70
        assert bundles[0] not in carried
        assert set((await sampled(broker)).values()) == {0}
