"""Statistics, subscriptions and unloads of topics, with clients attached."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from aiohttp import web
from broker.admin.serving import ORDERS, Served, serving
from clusters.running import Client
from system.raw import a_send

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.names import TopicName
from loadmanager.kit.telemetry import Detail

TOPICS = "/admin/v2/persistent/acme/orders"
ORDERS_TOPIC = "persistent://acme/orders"
T = TopicName("persistent", ORDERS, "t")
P = TopicName("persistent", ORDERS, "p")
SUBSCRIPTION = f"{TOPICS}/t/subscription/s"
MESSAGE, RECEIPT, CLOSED, ACKED = 9, 7, 16, 38


@asynccontextmanager
async def with_messages(brokers: int = 1) -> AsyncIterator[tuple[Served, Client]]:
    """A topic t at the last broker with ten messages, the last of them in a batch of three, and a
    subscription s before all of them; a client that is its producer.
    """
    async with serving(brokers) as served:
        owner = served.brokers[-1]
        await owner.serve(T)
        first = {"ledgerId": -1, "entryId": -1}
        assert (await served.ask("PUT", SUBSCRIPTION, first, at=-1)).status == 204
        client = await served.cluster.connect(await owner.listen())
        await client.produce(T)
        for number in range(8):
            await client.send(a_send(number, publish_time_ms=1000 + number))
        await client.send(a_send(8, b"a batch of three messages", publish_time_ms=1008, batch=3))
        for _ in range(9):
            await client.take_of(RECEIPT)
        yield served, client


async def stats_of(served: Served, topic: str = "t", *, at: int = 0) -> Any:
    """The stats of a topic."""
    return await served.get(f"{TOPICS}/{topic}/stats", at=at)


async def received(client: Client, count: int) -> list[int]:
    """The entry ids of the next messages."""
    frames = [await client.take_of(MESSAGE) for _ in range(count)]
    return [frame.command.message.message_id.entryId for frame in frames]


async def test_stats_are_exact() -> None:
    """Counters, backlog, producers and consumers are those of the moment, before any stats period
    ended; a batch is one entry of the backlog; rates come with the period.
    """
    async with with_messages() as (served, client):
        assert (await client.subscribe(T, permits=4)).command.type == 13
        assert await received(client, 4) == [0, 1, 2, 3]
        await acknowledge(served, client, 2)
        assert (await client.subscribe(T, consumer_id=2)).command.type == 13
        stats = await stats_of(served)
        assert (stats["msgInCounter"], stats["msgOutCounter"]) == (11, 4)
        assert stats["bytesInCounter"] == stats["storageSize"] == stats["backlogSize"] > 11
        assert stats["ownerBroker"] == served.broker_id(0)
        assert stats["msgRateIn"] == 0.0
        (publisher,) = stats["publishers"]
        assert (publisher["accessMode"], publisher["clientVersion"]) == ("Shared", "raw")
        assert publisher["address"].startswith("/127.0.0.1:")
        one = stats["subscriptions"]["s"]
        first, second = one["consumers"]
        clients = (publisher, first, second)
        moments = [datetime.fromisoformat(client["connectedSince"]) for client in clients]
        assert moments == sorted(moments)
        assert publisher["connectedSince"].endswith("Z")
        connected_ms, *last = (
            int(moments[1].timestamp() * 1000),
            first["lastConsumedFlowTimestamp"],
            first["lastConsumedTimestamp"],
            first["lastAckedTimestamp"],
        )
        assert [connected_ms, *last] == sorted([connected_ms, *last])
        assert [second["lastConsumedTimestamp"], second["lastAckedTimestamp"]] == [0, 0]
        figures = {
            (sample.name, sample.labels[-1][1]): sample.value
            for sample in served.brokers[0].use.hosting.samples(Detail(10, 10, 1))
            if sample.labels
        }
        assert figures[("pulsar_consumer_unacked_messages", "1")] == 3
        assert ("pulsar_consumer_unacked_messages", "2") not in figures
        assert figures[("loadmanager_metrics_left_out", "consumers")] == 1
        assert (one["msgBacklog"], one["unackedMessages"], one["type"]) == (8, 3, "Shared")
        assert [consumer["unackedMessages"] for consumer in one["consumers"]] == [3, 0]
        assert (one["msgOutCounter"], one["bytesOutCounter"]) == (4, stats["bytesOutCounter"])
        assert (one["isDurable"], one["activeConsumerName"]) == (True, None)
        await served.brokers[0].measure()
        stats = await stats_of(served)
        (publisher,) = stats["publishers"]
        assert 0 < stats["msgRateIn"] == pytest.approx(publisher["msgRateIn"])
        assert stats["msgThroughputIn"] == pytest.approx(publisher["msgThroughputIn"])
        one = stats["subscriptions"]["s"]
        first, second = one["consumers"]
        assert 0 < one["msgRateOut"] == pytest.approx(first["msgRateOut"])
        assert 0 < one["msgThroughputOut"] == pytest.approx(first["msgThroughputOut"])
        assert (second["msgRateOut"], second["msgOutCounter"]) == (0, 0)
        assert stats["averageMsgSize"] == pytest.approx(stats["bytesInCounter"] / 11)


async def acknowledge(served: Served, client: Client, entry_id: int) -> None:
    """Consumer 1 acknowledges an entry, and is told so."""
    message_id = pb.MessageIdData(ledgerId=await ledger(served), entryId=entry_id)
    ack = pb.CommandAck(consumer_id=1, ack_type=0, message_id=[message_id], request_id=1)
    await client.send(encode(ack=ack))
    await client.take_of(ACKED)


async def ledger(served: Served) -> int:
    """The ledger of t's present life."""
    return int((await served.get(f"{TOPICS}/t/lastMessageId", at=-1))["ledgerId"])


async def test_the_owner_answers() -> None:
    """Other brokers redirect to it, whatever is asked."""
    async with with_messages(2) as (served, _):
        for method, path in (
            ("GET", f"{TOPICS}/t/stats"),
            ("GET", f"{TOPICS}/t/lastMessageId"),
            ("GET", f"{TOPICS}/t/subscriptions"),
            ("POST", f"{SUBSCRIPTION}/skip/1"),
            ("POST", f"{SUBSCRIPTION}/skip_all"),
            ("POST", f"{SUBSCRIPTION}/resetcursor/5"),
            ("POST", f"{SUBSCRIPTION}/resetcursor"),
            ("PUT", f"{TOPICS}/t/subscription/new"),
            ("DELETE", SUBSCRIPTION),
            ("PUT", f"{TOPICS}/t/unload"),
        ):
            answer = await served.ask(method, path)
            assert answer.status == 307, path
            assert answer.headers["Location"] == f"{served.url(1)}{path}?authoritative=false"
        assert (await stats_of(served, at=1))["subscriptions"]["s"]["msgBacklog"] == 9


async def test_topics_that_are_not_open() -> None:
    """A topic that exists is opened; one that does not is 404 in Pulsar's words, at any broker."""
    async with serving(2) as served:
        assert (await served.ask("PUT", f"{TOPICS}/t")).status == 204
        owner = await served.ask("GET", f"{TOPICS}/t/stats?authoritative=true", at=1)
        assert (owner.status, owner.body["msgInCounter"]) == (200, 0)
        assert (await served.ask("PUT", f"{TOPICS}/t/unload", at=1)).status == 204
        assert served.brokers[1].parts.hosting.serving.topics.served(str(T)) is None
        assert (await stats_of(served, at=1))["subscriptions"] == {}
        for name, reason in (
            ("no", "Topic persistent://acme/orders/no not found"),
            (
                "no-partition-3",
                f"Partitioned Topic not found: {ORDERS_TOPIC}/no-partition-3 has zero partitions",
            ),
        ):
            for path in ("stats", "subscriptions", "lastMessageId"):
                answer = await served.ask("GET", f"{TOPICS}/{name}/{path}")
                assert (answer.status, answer.reason) == (404, reason)
        assert "acme/orders" not in "".join(served.brokers[0].use.ownership.owned())
        away = await served.ask("GET", "/admin/v2/persistent/acme/none/t/stats")
        assert (away.status, "does not exist" in away.reason) == (404, True)


async def test_non_persistent_topics() -> None:
    """They have stats while they are open, and neither subscriptions of operators nor message
    ids.
    """
    path = "/admin/v2/non-persistent/acme/orders/n"
    async with serving(1) as served:
        assert (await served.ask("GET", f"{path}/stats?authoritative=true")).status == 404
        await served.brokers[0].serve(TopicName("non-persistent", ORDERS, "n"))
        assert (await served.get(f"{path}/stats"))["publishers"] == []
        assert (await served.ask("GET", f"{path}/lastMessageId")).status == 405
        assert (await served.ask("PUT", f"{path}/subscription/s")).status == 400
        assert (await served.ask("PUT", f"{path}/unload")).status == 204
        assert (await served.ask("GET", f"{path}/stats")).status == 404


async def test_skip_and_clear() -> None:
    """N of the entries that are not acknowledged, a batch being one; then all; what is skipped is
    not delivered, what is left is.
    """
    async with with_messages() as (served, client):
        await client.subscribe(T, permits=2)
        assert await received(client, 2) == [0, 1]
        await acknowledge(served, client, 1)
        assert (await served.ask("POST", f"{SUBSCRIPTION}/skip/3")).status == 204
        one = (await stats_of(served))["subscriptions"]["s"]
        assert (one["msgBacklog"], one["unackedMessages"]) == (5, 0)
        for entries in (0, -1):
            assert (await served.ask("POST", f"{SUBSCRIPTION}/skip/{entries}")).status == 412
        await client.send(encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=1)))
        assert await received(client, 1) == [4]
        assert (await served.ask("POST", f"{SUBSCRIPTION}/skip_all")).status == 204
        stats = await stats_of(served)
        assert (stats["backlogSize"], stats["subscriptions"]["s"]["msgBacklog"]) == (0, 0)
        assert stats["subscriptions"]["s"]["consumers"][0]["unackedMessages"] == 0
        for end in ("skip/1", "skip_all", "resetcursor/5"):
            answer = await served.ask("POST", f"{TOPICS}/t/subscription/none/{end}")
            assert (answer.status, answer.reason) == (
                404,
                f"Subscription none not found for topic {T}",
            )


@pytest.mark.parametrize(
    ("end", "body", "first"),
    [
        ("/1003", None, 3),
        ("/0", None, 0),
        ("/9999999999999", None, 9),
        ("", {"ledgerId": "this", "entryId": 4}, 4),
        ("", {"ledgerId": "this", "entryId": 4, "excluded": True}, 5),
        ("", {"ledgerId": "this", "entryId": 8, "batchIndex": 1, "excluded": True}, 8),
        ("", {"ledgerId": "this", "entryId": 8, "batchIndex": 2, "excluded": True}, 9),
        ("", {"ledgerId": -1, "entryId": -1}, 0),
        ("", {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}, 9),
    ],
)
async def test_reset(end: str, body: dict[str, Any] | None, first: int) -> None:
    """By publish time or by message id, although everything was acknowledged; the consumers are
    told to come back.
    """
    async with with_messages() as (served, client):
        assert (await client.subscribe(T)).command.type == 13
        reader = {"ledgerId": -1, "entryId": -1}
        assert (await served.ask("PUT", f"{TOPICS}/t/subscription/slow", reader)).status == 204
        assert (await served.ask("POST", f"{SUBSCRIPTION}/skip_all")).status == 204
        if body is not None and body["ledgerId"] == "this":
            body = {**body, "ledgerId": await ledger(served)}
        assert (await served.ask("POST", f"{SUBSCRIPTION}/resetcursor{end}", body)).status == 204
        assert (await client.take()).command.type == CLOSED
        one = (await stats_of(served))["subscriptions"]["s"]
        assert (one["msgBacklog"], one["consumers"], one["type"]) == (9 - first, [], "None")
        for document in (
            None,
            {},
            {"entryId": 1},
            {"ledgerId": 1},
            {"ledgerId": 1, "entryId": "x"},
        ):
            bad = await served.ask("POST", f"{SUBSCRIPTION}/resetcursor", document)
            assert bad.status == 400, document
        assert (await stats_of(served))["subscriptions"]["s"] == one


async def test_subscriptions_live() -> None:
    """Created at the end of the topic unless said otherwise, recorded, refused twice, deleted once
    they have no consumers, or forced.
    """
    async with with_messages() as (served, client):
        new = f"{TOPICS}/t/subscription/new"
        assert (await served.ask("PUT", new)).status == 204
        again = await served.ask("PUT", new)
        assert (again.status, again.reason) == (409, "Subscription already exists for topic")
        assert (await served.ask("PUT", f"{new}?replicated=true")).status == 501
        assert (await served.ask("PUT", new, {"properties": {"a": "b"}})).status == 501
        assert sorted(await served.get(f"{TOPICS}/t/subscriptions")) == ["new", "s"]
        backlogs = (await stats_of(served))["subscriptions"]
        assert {name: one["msgBacklog"] for name, one in backlogs.items()} == {"s": 9, "new": 0}
        await client.subscribe(T)
        busy = await served.ask("DELETE", SUBSCRIPTION)
        assert (busy.status, busy.reason) == (412, "Subscription has active connected consumers")
        assert (await served.ask("DELETE", f"{SUBSCRIPTION}?force=true")).status == 204
        assert (await client.take_of(CLOSED)).command.close_consumer.consumer_id == 1
        assert (await served.ask("DELETE", SUBSCRIPTION)).status == 404
        assert (await served.ask("PUT", f"{TOPICS}/t/unload")).status == 204
        assert await served.get(f"{TOPICS}/t/subscriptions") == ["new"], "only it is recorded"
        assert (await served.ask("DELETE", new)).status == 204
        assert (await served.ask("DELETE", f"{TOPICS}/t")).status == 204


async def test_last_message_id() -> None:
    """The ledger and entry of the last message, and its index in a batch."""
    async with with_messages() as (served, _):
        last = await served.get(f"{TOPICS}/t/lastMessageId")
        assert (last["entryId"], last["partitionIndex"], last["batchIndex"]) == (8, -1, 2)
        assert (await served.ask("PUT", f"{TOPICS}/empty")).status == 204
        last = await served.get(f"{TOPICS}/empty/lastMessageId?authoritative=true")
        assert (last["entryId"], last["batchIndex"]) == (-1, -1)


async def test_partitions_at_several_brokers() -> None:
    """Requests about a partitioned topic reach the owner of each partition; stats add up."""
    path = f"{TOPICS}/p"
    async with serving(2) as served:
        assert (await served.ask("PUT", f"{path}/partitions", 4)).status == 204
        for index in range(4):
            await served.brokers[index % 2].serve(P.partition_name(index))
        client = await served.cluster.connect(await served.brokers[1].listen())
        await client.produce(P.partition_name(1))
        await client.send(a_send(0), a_send(1))
        for _ in range(2):
            await client.take_of(RECEIPT)
        owners = {
            topic: broker.address.broker_id
            for broker in served.brokers
            for bundle in broker.use.ownership.owned()
            for topic in broker.parts.hosting.topics(bundle)
        }
        first = {"ledgerId": -1, "entryId": -1}
        assert (await served.ask("PUT", f"{path}/subscription/s", first)).status == 204
        assert (await served.ask("PUT", f"{path}/subscription/s", first)).status == 409
        assert await served.get(f"{path}/subscriptions") == ["s"]
        stats = await served.get(f"{path}/partitioned-stats")
        assert stats["metadata"]["partitions"] == 4
        assert (stats["msgInCounter"], len(stats["publishers"])) == (2, 1)
        assert stats["subscriptions"]["s"]["msgBacklog"] == 2
        assert {name: one["ownerBroker"] for name, one in stats["partitions"].items()} == owners
        assert set(owners.values()) == {served.broker_id(0), served.broker_id(1)}
        short = await served.get(f"{path}/partitioned-stats?perPartition=false")
        assert (short["msgInCounter"], short["partitions"]) == (2, {})
        assert (await served.ask("POST", f"{path}/subscription/s/skip_all")).status == 204
        stats = await served.get(f"{path}/partitioned-stats")
        assert stats["subscriptions"]["s"]["msgBacklog"] == 0
        assert (await served.ask("POST", f"{path}/subscription/s/resetcursor/0")).status == 204
        stats = await served.get(f"{path}/partitioned-stats")
        assert stats["subscriptions"]["s"]["msgBacklog"] == 2
        assert (await served.ask("PUT", f"{path}/unload")).status == 204
        assert not [
            topic
            for broker in served.brokers
            for bundle in broker.use.ownership.owned()
            for topic in broker.parts.hosting.topics(bundle)
        ]
        assert (await served.ask("DELETE", f"{path}/subscription/s")).status == 204
        for method, end, status, reason in (
            ("DELETE", "subscription/s", 404, "Subscription not found"),
            ("POST", "subscription/s/skip_all", 404, f"Subscription s not found for topic {P}"),
            (
                "POST",
                "subscription/s/skip/1",
                405,
                "Skip messages on a partitioned topic is not allowed",
            ),
            (
                "POST",
                "subscription/s/resetcursor",
                405,
                "Reset-cursor at position is not allowed for partitioned-topic",
            ),
            ("GET", "stats", 404, f"Topic {P} not found"),
            ("GET", "lastMessageId", 404, f"Topic {P} not found"),
        ):
            answer = await served.ask(method, f"{path}/{end}")
            assert (answer.status, answer.reason) == (status, reason), end
        answer = await served.ask("GET", f"{TOPICS}/none/partitioned-stats")
        assert (answer.status, answer.reason) == (
            404,
            "Partitioned Topic persistent://acme/orders/none not found",
        )


async def test_an_answer_that_is_not_json_costs_its_rows() -> None:
    """The other partitions are answered, when something else than a broker answers for one."""

    async def nonsense(_request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async with serving(2) as served:
        assert (await served.ask("PUT", f"{TOPICS}/p/partitions", 2)).status == 204
        for index in range(2):
            await served.brokers[index].serve(P.partition_name(index))
        port = int(served.broker_id(1).rpartition(":")[2])
        await served.servers[1].stop()
        application = web.Application()
        application.router.add_get("/{path:.*}", nonsense)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            stats = await served.get(f"{TOPICS}/p/partitioned-stats")
            assert list(stats["partitions"]) == [str(P.partition_name(0))]
            assert await served.get(f"{TOPICS}/p/subscriptions") == []
        finally:
            await runner.cleanup()


async def test_heads_of_partitioned_topics() -> None:
    """A HEAD is answered as a GET is, though the partitions are asked for bodies."""
    async with serving(2) as served:
        assert (await served.ask("PUT", f"{TOPICS}/p/partitions", 2)).status == 204
        for index in range(2):
            await served.brokers[index].serve(P.partition_name(index))
        for what in ("partitioned-stats", "subscriptions"):
            assert (await served.ask("HEAD", f"{TOPICS}/p/{what}")).status == 200


async def test_more_partitions() -> None:
    """Every broker counts them at once; each new one has the subscriptions of the first."""
    path = f"{TOPICS}/p/partitions"
    async with serving(2) as served:
        assert (await served.ask("PUT", path, 2)).status == 204
        assert (await served.ask("PUT", f"{TOPICS}/p/subscription/s")).status == 204
        assert await served.get(path, at=1) == {"partitions": 2}
        fewer = await served.ask("POST", path, 1)
        assert (fewer.status, fewer.reason) == (
            422,
            "Desired partitions 1 can't be less than the current partitions 2.",
        )
        assert (await served.ask("POST", path, 20_000)).status == 422
        assert (await served.ask("POST", path, "x")).status == 400
        assert (await served.ask("POST", path, 4)).status == 204
        assert (await served.ask("POST", path, 4)).status == 204
        for at in (0, 1):
            assert await served.get(path, at=at) == {"partitions": 4}
        stats = await served.get(f"{TOPICS}/p/partitioned-stats")
        assert [list(one["subscriptions"]) for one in stats["partitions"].values()] == [["s"]] * 4
        for name in ("t", "none"):
            answer = await served.ask("POST", f"{TOPICS}/{name}/partitions", 4)
            topic = f"persistent://acme/orders/{name}"
            assert (answer.status, answer.reason) == (
                409,
                f"Topic {topic} is not the partitioned topic.",
            )
        assert (await served.ask("POST", f"{TOPICS}/p/createMissedPartitions")).status == 204
        assert (await served.ask("POST", f"{TOPICS}/none/createMissedPartitions")).status == 404


async def test_topics_of_a_bundle() -> None:
    """Those that a move of the bundle takes along; none of an unknown bundle."""
    async with serving(1) as served:
        names = [f"t{index}" for index in range(8)]
        for name in names:
            assert (await served.ask("PUT", f"{TOPICS}/{name}")).status == 204
        bundles = await served.get("/admin/v2/namespaces/acme/orders/bundles")
        bounds = bundles["boundaries"]
        listed = {}
        for lower, upper in zip(bounds, bounds[1:], strict=False):
            for topic in await served.get(f"{TOPICS}?bundle={lower}_{upper}"):
                listed[topic] = f"{lower}_{upper}"
        assert sorted(listed) == [f"persistent://acme/orders/{name}" for name in names]
        for topic, bundle in listed.items():
            local = topic.rpartition("/")[2]
            path = f"/lookup/v2/topic/persistent/acme/orders/{local}/bundle"
            assert await served.get(path) == bundle
        assert await served.get(f"{TOPICS}?bundle=0x00000000_0x41000000") == []


async def test_names_with_braces() -> None:
    """Every route of a topic takes them."""
    async with serving(1) as served:
        path = f"{TOPICS}/a%22b%7D%5C%7B"
        assert (await served.ask("PUT", path)).status == 204
        new = await served.ask("PUT", f"{path}/subscription/x%7B%7D?authoritative=true")
        assert new.status == 204
        assert await served.get(f"{path}/subscriptions?authoritative=true") == ["x{}"]
        assert await served.get(TOPICS) == ['persistent://acme/orders/a"b}\\{']
        rate = {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
        assert (await served.ask("POST", f"{path}/publishRate", rate)).status == 204
        assert await served.get(f"{path}/publishRate") == rate
        assert (await served.get(f"{path}/stats"))["msgInCounter"] == 0
        assert (await served.ask("DELETE", f"{path}?force=true")).status == 204
