"""The limits on the numbers of namespaces and topics."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from clusters.members import NS, Broker, a_fleet

from loadmanager.broker.messaging.memory import TopicMemory
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.messaging.topic import Topic
from loadmanager.broker.ports.directory import TopicRecords
from loadmanager.broker.topics.topics import Topics
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.names import TOPIC_NAME_BYTES_MAX, NamespaceName, TopicName
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.settings import BrokerSettings


def limited(broker: Broker, **limits: int) -> tuple[Namespaces, Topics]:
    """A broker's catalogue under limits."""
    settings = Live(dataclasses.replace(BrokerSettings(), **limits))
    namespaces = Namespaces(broker.store, settings)
    return namespaces, Topics(broker.store, namespaces, settings)


def topic(number: int) -> TopicName:
    """A topic."""
    return TopicName("persistent", NS, f"t{number}")


async def test_topics_of_a_namespace() -> None:
    """maxTopicsPerNamespace counts topics and partitions; existing topics can be opened. Concurrent
    creations do not exceed it.
    """
    async with a_fleet(1) as fleet:
        _, topics = limited(fleet.brokers[0], topics_per_namespace_max=5)
        await topics.create_partitioned(TopicName("persistent", NS, "parts"), 3)
        opened = await asyncio.gather(
            *(topics.opened(topic(number)) for number in range(10)), return_exceptions=True
        )
        refused = [answer for answer in opened if isinstance(answer, BadInputError)]
        assert len(refused) == 8
        assert "Exceed maximum number of topics in namespace" in str(refused[0])
        assert (
            await topics.opened(TopicName("persistent", NS, "parts-partition-2")) == TopicRecords()
        )
        assert await topics.opened(topic(0)) == TopicRecords()
        with pytest.raises(BadInputError, match="Exceed maximum"):
            await topics.create_partitioned(TopicName("persistent", NS, "more"), 1)
        assert (
            await topics.opened(TopicName.parse("persistent://pulsar/system/health"))
            == TopicRecords()
        )
        _, unlimited = limited(fleet.brokers[0])
        assert await unlimited.opened(topic(9)) == TopicRecords()


async def test_a_namespace_has_its_share_of_the_brokers_topics() -> None:
    """With 8 topics per broker, one namespace may make 6 of them, and another one still some.
    Existing topics can be opened; a topic that was closed makes room.
    """
    async with a_fleet(1) as fleet:
        namespaces, topics = limited(fleet.brokers[0])
        memory = TopicMemory(1 << 30, topics_max=8)
        topics.check_new = memory.check_new_topic
        other = NamespaceName("public", "other")
        await namespaces.create_namespace(other, {})

        async def opened(name: TopicName) -> Topic:
            await topics.opened(name)
            part = memory.part(str(name.namespace))
            return Topic(str(name), 1, Live(MessagingSettings()), part)

        made = [await opened(topic(number)) for number in range(6)]
        with pytest.raises(BadInputError, match="loadManagerMaxTopicsPerBroker"):
            await topics.opened(topic(6))
        made.append(await opened(TopicName("persistent", other, "t")))
        made[0].close()
        made[0].close()
        assert await topics.opened(topic(0)) == TopicRecords(), "it exists"
        for closed in made[1:3]:
            closed.close()
        made.append(await opened(topic(7)))
        assert memory.topics == 5


async def test_namespaces_of_a_tenant() -> None:
    """A namespace beyond maxNamespacesPerTenant is refused."""
    async with a_fleet(1) as fleet:
        namespaces, _ = limited(fleet.brokers[0], namespaces_per_tenant_max=2)
        await namespaces.create_namespace(NamespaceName("public", "second"), {})
        with pytest.raises(
            BadInputError, match="Exceed the maximum number of namespace in tenant :public"
        ):
            await namespaces.create_namespace(NamespaceName("public", "third"), {})


async def test_every_partition_must_have_a_name_that_is_allowed() -> None:
    """A topic is refused if the names of its partitions would be too long."""
    async with a_fleet(1) as fleet:
        _, topics = limited(fleet.brokers[0])
        room = TOPIC_NAME_BYTES_MAX - len(f"persistent://{NS}/-partition-0")
        await topics.create_partitioned(TopicName("persistent", NS, "x" * room), 10)
        with pytest.raises(BadInputError, match="at most"):
            await topics.create_partitioned(TopicName("persistent", NS, "y" * room), 11)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_a_partition_that_its_topic_has_not(domain: str) -> None:
    """It is refused until the topic has so many; without a partitioned topic, it is a topic."""
    async with a_fleet(1) as fleet:
        _, topics = limited(fleet.brokers[0])
        name = TopicName(domain, NS, "parts")
        await topics.opened(name.partition_name(7))
        await topics.create_partitioned(name, 2)
        assert await topics.partitions(name, create=True) == 2
        await topics.opened(name.partition_name(1))
        with pytest.raises(BadInputError) as refused:
            await topics.opened(name.partition_name(2))
        assert str(refused.value) == (
            f"Illegal topic partition name {name}-partition-2 with max allowed 2 partitions"
        )
        await topics.update_partitioned(name, 3)
        await topics.opened(name.partition_name(2))
