"""Clients that are found by a part of a name or an address, on whichever broker they are."""

from __future__ import annotations

import asyncio

from broker.admin.serving import ORDERS, serving
from clusters.running import a_client

from loadmanager.broker.protocol import client_search
from loadmanager.kit.names import TopicName

CLIENTS = "/loadmanager/v1/clients"
TOPIC = TopicName("persistent", ORDERS, "t")


async def test_clients_of_all_brokers() -> None:
    """By address, name and subscription, asked at any broker, in order of their names."""
    async with serving(brokers=2) as served:
        await served.brokers[1].serve(TOPIC)
        async with a_client(await served.brokers[1].listen()) as client:
            await client.produce(TOPIC)
            await client.subscribe(TOPIC)
            answer = await served.get(f"{CLIENTS}?find=127.0.0.1")
            kinds = {it["kind"]: it for it in answer["clients"]}
            assert kinds.keys() == {"producer", "consumer"}
            assert (answer["total"], answer["allSearched"], answer["noAnswer"]) == (2, True, {})
            producer = kinds["producer"]
            assert (producer["broker"], producer["topic"]) == (served.broker_id(1), str(TOPIC))
            assert producer["bundle"].startswith("acme/orders/0x")
            name = producer["name"].upper()
            (again,) = (await served.get(f"{CLIENTS}?find={name}"))["clients"]
            assert again == producer
            assert kinds["consumer"]["subscription"]
            assert (producer["rate"], producer["throughput"], producer["heldBy"]) == (0, 0, [])
            assert (await served.get(f"{CLIENTS}?find=nobody"))["clients"] == []
            local = await served.get(f"{CLIENTS}?find=127.0.0.1&local=true")
            assert local["clients"] == []
        assert (await served.ask("GET", f"{CLIENTS}?find=x")).status == 412


async def test_open_topics_by_a_part_of_their_name() -> None:
    """On whichever broker they are, that of exactly this name first; as many as are asked for."""
    names = ["t", *(f"part-{number}" for number in range(5)), "all-part-0"]
    topics = [TopicName("persistent", ORDERS, name) for name in names]
    async with serving(brokers=2) as served:
        for topic in topics:
            await served.brokers[1].serve(topic)
        answer = await served.get(f"{CLIENTS}?find=PART-0")
        assert [it["topic"] for it in answer["topics"]] == [str(topics[1]), str(topics[-1])]
        assert answer["topicsTotal"] == 2
        first = answer["topics"][0]
        assert (first["broker"], first["producers"]) == (served.broker_id(1), 0)
        assert first["bundle"].startswith("acme/orders/0x")
        few = await served.get(f"{CLIENTS}?find=orders/part&limit=3")
        assert (len(few["topics"]), few["topicsTotal"]) == (3, 5)
        assert (await served.get(f"{CLIENTS}?find=persistent"))["topics"] == []


async def test_a_search_is_bounded() -> None:
    """As many as are asked for are answered, of however many; others have their turn meanwhile."""
    async with serving(brokers=1) as served:
        broker = served.brokers[0]
        await broker.serve(TOPIC)
        names = [f"sub-{number:04}" for number in range(3 * client_search.LOOKED_AT_ONCE)]
        hosted = broker.parts.hosting.serving.open_topics.get(str(TOPIC))
        assert hosted is not None
        for name in names:
            hosted.core.subscribe(name, 0, 0, durable=False)
        host = broker.use.topic_host
        assert host is not None
        searching = asyncio.ensure_future(host.find_clients("sub-", 5))
        turns = 0
        while not searching.done():
            turns += 1
            await asyncio.sleep(0)
        answer = searching.result()
        assert [it.name for it in answer.clients] == names[:5]
        assert {(it.kind, it.client) for it in answer.clients} == {("subscription", None)}
        assert (answer.total, turns >= 3) == (len(names), True)
