"""Lookups, partitions, lists of topics, schemas."""

from __future__ import annotations

from typing import Any

import pytest
from broker.admin.serving import ORDERS, serving

from loadmanager.engine.bundles.ranges import topic_hash
from loadmanager.kit.names import TopicName

LOOKUP = "/lookup/v2/topic/persistent/acme/orders"
TOPICS = "/admin/v2/persistent/acme/orders"


async def test_lookup_is_redirected_until_the_owner_answers() -> None:
    """A follower redirects to the leader, and the leader, authoritatively, to the placed broker,
    which answers with every URL that clients read.
    """
    async with serving(3) as served:
        bundle = await served.ask("GET", f"{LOOKUP}/t/bundle")
        unload = f"/admin/v2/namespaces/acme/orders/{bundle.body}/unload"
        to_broker_2 = f"{unload}?destinationBroker={served.broker_id(2)}"
        assert (await served.ask("PUT", to_broker_2)).status == 204
        first = await served.ask("GET", f"{LOOKUP}/t", at=1)
        assert (first.status, first.headers["Location"]) == (
            307,
            f"{served.url(0)}{LOOKUP}/t?authoritative=false",
        )
        second = await served.ask("GET", f"{LOOKUP}/t?authoritative=false")
        assert (second.status, second.headers["Location"]) == (
            307,
            f"{served.url(2)}{LOOKUP}/t?authoritative=true",
        )
        owner = served.brokers[2].address
        assert await served.get(f"{LOOKUP}/t?authoritative=true", at=2) == {
            "brokerUrl": owner.service_url,
            "brokerUrlTls": "",
            "brokerUrlSsl": "",
            "httpUrl": owner.web_url,
            "httpUrlTls": "",
            "nativeUrl": owner.service_url,
        }
        assert (await served.get(f"{LOOKUP}/t", at=1))["brokerUrl"] == owner.service_url


async def test_lookup_refused() -> None:
    """404 no such namespace or domain, 412 a bad flag, 503 without the store."""
    async with serving() as served:
        assert (await served.ask("GET", "/lookup/v2/topic/persistent/acme/none/t")).status == 404
        assert (await served.ask("GET", "/lookup/v2/topic/volatile/acme/orders/t")).status == 404
        assert (await served.ask("GET", f"{LOOKUP}/t?authoritative=perhaps")).status == 412
        assert (await served.ask("PUT", f"{LOOKUP}/t")).status == 405
        served.brokers[0].store.suspend()
        assert (await served.ask("GET", f"{LOOKUP}/t")).status == 503


async def test_bundle_of_a_topic() -> None:
    """The range as plain text, of the decoded name: slashes, blanks and non-ASCII count as the
    characters that they stand for.
    """
    async with serving(1) as served:
        for encoded, name in (
            ("t", "t"),
            ("a%2Fb", "a/b"),
            ("100%25", "100%"),
            ("%C3%BC%20x", "ü x"),
            ("a%2Fbundle", "a/bundle"),
        ):
            lower = topic_hash(f"persistent://acme/orders/{name}") // 0x40000000 * 0x40000000
            upper = min(lower + 0x40000000, 0xFFFFFFFF)
            answer = await served.ask("GET", f"{LOOKUP}/{encoded}/bundle")
            assert (answer.status, answer.body) == (200, f"0x{lower:08x}_0x{upper:08x}"), name


async def test_partitions() -> None:
    """0 for a topic that does not exist yet, N after PUT N; a second PUT is refused, and so are
    invalid numbers (406, 400).
    """
    async with serving(1) as served:
        path = f"{TOPICS}/many/partitions"
        missing = await served.ask("GET", path)
        assert (missing.status, missing.reason) == (
            404,
            "Topic persistent://acme/orders/many not found",
        )
        assert await served.get(f"{path}?checkAllowAutoCreation=true") == {"partitions": 0}
        assert (await served.ask("GET", path)).status == 404
        assert (await served.ask("PUT", path, 0)).status == 406
        for body in ("three", 1.5, True, None, [3]):
            assert (await served.ask("PUT", path, body)).status == 400
        assert (await served.ask("PUT", path, 3)).status == 204
        assert (await served.ask("PUT", path, 3)).status == 409
        assert await served.get(path) == {"partitions": 3}
        assert await served.get(f"{TOPICS}/many-partition-2/partitions") == {"partitions": 0}
        illegal = await served.ask("PUT", f"{TOPICS}/many-partition-3")
        assert illegal.status == 412
        assert illegal.reason == (
            "Illegal topic partition name persistent://acme/orders/many-partition-3 with max "
            "allowed 3 partitions"
        )
        names = [f"persistent://acme/orders/many-partition-{index}" for index in range(3)]
        assert await served.get(TOPICS) == names
        assert await served.get("/admin/v2/namespaces/acme/orders/topics?mode=ALL") == names
        assert await served.get(f"{TOPICS}/partitioned") == ["persistent://acme/orders/many"]
        assert (
            await served.ask("GET", "/admin/v2/persistent/acme/none/t/partitions")
        ).status == 404
        assert (await served.ask("DELETE", path)).status == 204
        assert (await served.ask("DELETE", path)).status == 404


async def test_partitions_of_a_non_persistent_topic() -> None:
    """Its owner knows whether it exists: 0 while it is open there, 404 otherwise."""
    async with serving(1) as served:
        path = "/admin/v2/non-persistent/acme/orders/n/partitions"
        assert (await served.ask("GET", path)).status == 404
        await served.brokers[0].serve(TopicName("non-persistent", ORDERS, "n"))
        assert await served.get(path) == {"partitions": 0}


METADATA = "application/vnd.partitioned-topic-metadata+json"


@pytest.mark.parametrize(
    ("path", "media", "document", "status"),
    [
        ("t", None, {}, 204),
        ("t", None, {"a": "b"}, 501),
        ("t", None, [1], 400),
        ("t", None, {"a": 1}, 400),
        ("p/partitions", METADATA, {"partitions": 3}, 204),
        ("p/partitions", METADATA, {"partitions": 3, "properties": {}, "deleted": False}, 204),
        ("p/partitions", METADATA, {"partitions": 3, "properties": None}, 204),
        ("p/partitions", METADATA, {"partitions": 3, "properties": {"a": "b"}}, 501),
        ("p/partitions", METADATA, {"partitions": 3, "properties": [1]}, 400),
        ("p/partitions", METADATA, {"partitions": 3, "replicas": 3}, 400),
        ("p/partitions", METADATA, {"properties": {}}, 400),
        ("p/partitions", METADATA, {"partitions": 0}, 406),
        ("p/partitions", METADATA, 3, 400),
        ("p/partitions", None, {"partitions": 3}, 400),
    ],
)
async def test_properties_of_topics(
    path: str, media: str | None, document: Any, status: int
) -> None:
    """Properties are refused, not dropped, in both forms in which clients send them."""
    async with serving(1) as served:
        answer = await served.ask("PUT", f"{TOPICS}/{path}", document, media=media)
        assert answer.status == status, answer
        assert (await served.get(TOPICS) == []) is (status != 204)


async def test_topics_by_mode() -> None:
    """Each domain lists its own; the namespace's list has a mode, PERSISTENT unless
    said otherwise.
    """
    async with serving(1) as served:
        assert (await served.ask("PUT", f"{TOPICS}/a%2Fb")).status == 204
        assert (await served.ask("PUT", f"{TOPICS}/a%2Fb")).status == 409
        await served.brokers[0].serve(TopicName("non-persistent", ORDERS, "n"))
        durable, volatile = ["persistent://acme/orders/a/b"], ["non-persistent://acme/orders/n"]
        assert await served.get(TOPICS) == durable
        assert await served.get("/admin/v2/non-persistent/acme/orders") == volatile
        by_mode = "/admin/v2/namespaces/acme/orders/topics"
        assert await served.get(by_mode) == durable
        assert await served.get(f"{by_mode}?mode=NON_PERSISTENT") == volatile
        assert await served.get(f"{by_mode}?mode=ALL") == sorted(durable + volatile)
        assert (await served.ask("GET", f"{by_mode}?mode=SOME")).status == 412


async def test_a_non_persistent_topic_is_not_created_without_clients() -> None:
    """412 with the reason, and none is listed; 409 while it is open; its partitions are recorded as
    those of a persistent topic.
    """
    async with serving(1) as served:
        path = "/admin/v2/non-persistent/acme/orders"
        answer = await served.ask("PUT", f"{path}/n")
        assert (answer.status, "was not created" in answer.reason) == (412, True)
        assert await served.get(path) == []
        await served.brokers[0].serve(TopicName("non-persistent", ORDERS, "n"))
        assert (await served.ask("PUT", f"{path}/n")).status == 409
        assert (await served.ask("PUT", f"{path}/p/partitions", 1)).status == 204
        assert "non-persistent://acme/orders/p-partition-0" in await served.get(path)


async def test_delete_topic() -> None:
    """412 while it has subscriptions, 204 forced, 404 when it is gone."""
    async with serving(1) as served:
        await served.ask("PUT", f"{TOPICS}/t")
        await served.brokers[0].use.directory.record_subscription(
            TopicName("persistent", ORDERS, "t"), "s"
        )
        assert (await served.ask("DELETE", f"{TOPICS}/t")).status == 412
        assert (await served.ask("DELETE", f"{TOPICS}/t?force=true")).status == 204
        assert (await served.ask("DELETE", f"{TOPICS}/t")).status == 404


async def test_delete_partitioned_topic() -> None:
    """Its partitions go with it, and only where it is said to be partitioned."""
    async with serving(1) as served:
        await served.ask("PUT", f"{TOPICS}/p/partitions", 2)
        refused = await served.ask("DELETE", f"{TOPICS}/p")
        assert (refused.status, "delete-partitioned-topic" in refused.reason) == (409, True)
        assert (await served.ask("DELETE", f"{TOPICS}/p/partitions")).status == 204
        assert await served.get(TOPICS) == []


async def test_schemas() -> None:
    """Any broker answers; another schema is refused until the first is deleted; versions grow, and
    a deleted topic forgets them.
    """
    path = "/admin/v2/schemas/acme/orders/t/schema"
    first, second = (
        {"type": "JSON", "schema": text, "properties": {}} for text in ('"int"', '"long"')
    )
    async with serving() as served:
        assert (await served.ask("GET", path)).status == 404
        assert (await served.ask("PUT", f"{TOPICS}/t")).status == 204
        assert (await served.call("POST", path, first)) == (200, {"version": {"version": 0}})
        assert (await served.ask("POST", path, second)).status == 409
        for at, version in ((0, ""), (1, "/0")):
            answer = await served.get(path + version, at=at)
            assert (answer["version"], answer["type"], answer["data"]) == (0, "JSON", '"int"')
        assert (await served.ask("GET", path + "/1")).status == 404
        assert (await served.call("DELETE", path)) == (200, {"version": 1})
        assert (await served.ask("DELETE", path)).status == 404
        assert (await served.call("POST", path, second)) == (200, {"version": {"version": 2}})
        assert (await served.get(path, at=1))["data"] == '"long"'
        assert (await served.ask("DELETE", f"{TOPICS}/t")).status == 204
        assert (await served.ask("GET", path)).status == 404


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"type": "NOSUCH"}, 422),
        ({"type": "KEY_VALUE"}, 422),
        ({"type": "JSON", "schema": 1}, 400),
        ({"type": "JSON", "properties": {"a": 1}}, 400),
        ({"type": "JSON", "schema": '"int"' + " " * 300_000}, 412),
        ({"type": "AVRO", "schema": "not avro"}, 422),
        ({"type": "AVRO", "schema": ""}, 422),
        ({"type": "JSON", "schema": "{"}, 422),
    ],
)
async def test_schemas_that_cannot_be_stored(document: dict[str, object], status: int) -> None:
    """They are refused, and nothing is stored."""
    path = "/admin/v2/schemas/acme/orders/t/schema"
    async with serving(1) as served:
        assert (await served.ask("POST", path, document)).status == status
        assert (await served.ask("GET", path)).status == 404
